"""Pages of sources and catalogues, also while a source is slow or unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.driving import Wire, ask, list_all
from wharfinger import types as t
from wharfinger.errors import InternalError, Overloaded
from wharfinger.server.app import Server
from wharfinger.server.source_calls import MISSING_META_KEY
from wharfinger.source import Source


class StubSource(Source):
    """A source of rows that a test can block or break."""

    def __init__(self, prefix: str, number: int = 1) -> None:
        self.prefix = prefix
        self.uri = f"{prefix}:"
        self.name = prefix
        self.rows = [t.Resource(uri=f"{prefix}:{n}", name=f"{prefix}{n}") for n in range(number)]
        self.error: Exception | None = None
        self.released: asyncio.Event | None = None
        self.requests: list[tuple[Any, int]] = []
        self.cancelled = 0

    def matches(self, uri: str) -> bool:
        return uri.startswith(self.uri)

    async def page(self, after: Any, limit: int) -> Any:
        self.requests.append((after, limit))
        if self.released is not None:
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if self.error is not None:
            raise self.error
        start = after or 0
        end = start + limit
        return self.rows[start:end], end if end < len(self.rows) else None


def server_of(*sources: Source, **options: Any) -> Server:
    server = Server("s", **options)
    for source in sources:
        server.include(source)
    return server


async def listed_uris(server: Server) -> list[str]:
    return [resource["uri"] for resource in await list_all(server)]


@pytest.mark.parametrize("error", [InternalError("The disk\nis away."), OSError("secret")])
async def test_a_source_that_cannot_be_listed_is_reported_with_the_reason_and_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = StubSource("one"), StubSource("two")
    one.error = error
    server = server_of(one, two)
    await server.start()
    reason = "The disk is away" if isinstance(error, InternalError) else "it cannot be read"
    message = f"source 'one:' has been unavailable for 1 s ({reason}); its resources are missing from this list."
    for _ in range(2):
        result = (await ask(server, "resources/list"))["result"]
        placeholder, resource = result["resources"]
        assert (placeholder["uri"], placeholder["name"], resource["uri"]) == ("one:", "one", "two:0")
        assert placeholder["title"] == message
        assert result["_meta"][MISSING_META_KEY] == [{"source": "one", "uri": "one:", "message": message}]
    assert caplog.text.count("retrying in the background") == 1
    one.error = None
    result = (await ask(server, "resources/list"))["result"]
    assert [entry["uri"] for entry in result["resources"]] == ["one:0", "two:0"]
    assert MISSING_META_KEY not in result.get("_meta", {})
    one.error = error
    await list_all(server)
    one.uri = ""
    assert await listed_uris(server) == ["two:0"]
    await server.close()


async def test_a_list_reports_missing_sources_of_a_mounted_server() -> None:
    one, parent, mounted = StubSource("one"), server_of(StubSource("two")), Server("mounted")
    mounted.include(one)
    parent.include(mounted)
    one.error = InternalError("away")
    result = (await ask(parent, "resources/list"))["result"]
    assert [missing["source"] for missing in result["_meta"][MISSING_META_KEY]] == ["one"]


async def test_the_only_source_of_a_list_is_awaited_beyond_its_patience() -> None:
    source = StubSource("one")
    source.patience = 0.01
    source.released = asyncio.Event()
    server = server_of(source)
    listing = asyncio.ensure_future(listed_uris(server))
    asyncio.get_running_loop().call_later(0.05, source.released.set)
    assert await listing == ["one:0"]  # the server is not started, so it sends no probe


async def test_a_list_fails_if_a_source_is_busy_or_a_later_page_fails() -> None:
    one, two = StubSource("one", 5), StubSource("two")
    server = server_of(one, two, page_size=2)
    one.error = Overloaded("busy")
    assert (await ask(server, "resources/list"))["error"]["message"] == "busy"
    one.error = None
    first = (await ask(server, "resources/list"))["result"]
    one.error = InternalError("away")
    later = await ask(server, "resources/list", {"cursor": first["nextCursor"]})
    assert later["error"]["message"] == "away"
    one.error = None
    assert (await ask(server, "resources/list", {"cursor": first["nextCursor"]}))["result"]["resources"][0]["uri"] == (
        "one:2"
    )


async def test_a_list_does_not_wait_for_a_slow_source_and_has_its_page_later() -> None:
    slow, quick = StubSource("slow"), StubSource("quick")
    slow.patience = 0.01
    slow.released = asyncio.Event()
    server = server_of(slow, quick)
    await server.start()
    async with Wire(server) as wire:
        await wire.watch(lists=("resources",))
        for _ in range(2):
            placeholder, resource = await list_all(server)
            assert "has not answered" in placeholder["title"]
            assert resource["uri"] == "quick:0"
        requests = len(slow.requests)
        slow.released.set()
        number = 1
        while await listed_uris(server) != ["slow:0", "quick:0"]:
            number += 1
            await wire.wait_for_notifications(number)  # the source became unreachable or reachable
            assert wire.notifications[-1]["method"] == "notifications/resources/list_changed"
        assert requests <= 2  # the list and a probe: no page is requested while a request for it is pending
    await server.close()


async def test_a_late_page_that_fails_sends_no_notification_and_is_requested_again() -> None:
    slow, quick = StubSource("slow"), StubSource("quick")
    slow.patience = 0.01
    slow.released, slow.error = asyncio.Event(), OSError("away")
    server = server_of(slow, quick)
    changes: list[str] = []
    server.list_changed = changes.append  # type: ignore[method-assign,assignment]
    await list_all(server)
    slow.released.set()
    while "it cannot be read" not in (await list_all(server))[0]["title"]:
        await asyncio.sleep(0)
    assert changes == []
    slow.error = None
    while await listed_uris(server) != ["slow:0", "quick:0"]:
        await asyncio.sleep(0)


async def test_cancelling_a_list_cancels_its_requests_to_sources() -> None:
    slow, quick = StubSource("slow"), StubSource("quick")
    slow.released = asyncio.Event()
    listing = asyncio.ensure_future(list_all(server_of(slow, quick)))
    while not slow.requests:
        await asyncio.sleep(0)
    listing.cancel()
    await asyncio.wait((listing,))
    while not slow.cancelled:
        await asyncio.sleep(0)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
async def test_a_full_last_page_of_templates_or_of_a_catalogue_has_no_cursor(number: int) -> None:
    rows = StubSource("one")
    rows.templates = [t.ResourceTemplate(uri_template=f"one:{n}/{{x}}", name="x") for n in range(number)]
    server = server_of(rows, page_size=2)
    yielded: list[list[int]] = []

    @server.list_resources
    async def keyed(after: str | None) -> AsyncIterator[t.Resource]:
        yielded.append([])
        for n in range(0 if after is None else int(after[2:]) + 1, number):
            yielded[-1].append(n)
            yield t.Resource(uri=f"k:{n}", name="k")

    templates = await list_all(server, "resources/templates/list")
    assert [template["uriTemplate"] for template in templates] == [f"one:{n}/{{x}}" for n in range(number)]
    assert await listed_uris(server) == ["one:0", *(f"k:{n}" for n in range(number))]
    assert max(map(len, yielded)) <= 3
    params: dict[str, Any] = {}
    counts = []
    while True:
        result = (await ask(server, "resources/templates/list", params))["result"]
        counts.append(len(result["resourceTemplates"]))
        if "nextCursor" not in result:
            break
        params = {"cursor": result["nextCursor"]}
    assert counts == [2] * (number // 2) + [1] * (number % 2)


async def test_a_catalogue_is_read_only_up_to_the_first_entry_after_the_page() -> None:
    server = Server("s", page_size=2)
    yielded: list[int] = []

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        for n in range(100):
            yielded.append(n)
            yield t.Resource(uri=f"c:{n}", name="c")

    first = (await ask(server, "resources/list"))["result"]
    assert yielded == [0, 1, 2]
    yielded.clear()
    second = (await ask(server, "resources/list", {"cursor": first["nextCursor"]}))["result"]
    assert [resource["uri"] for resource in second["resources"]] == ["c:2", "c:3"]
    assert yielded == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("abcdef", "abcdef", "cd"),
        ("abcdef", "xabcdef", "cd"),
        ("abcdef", "acdef", "cd"),
        ("abcdef", "bcdef", "cd"),
        ("abcdef", "xycdef", "xy"),
        ("abcdef", "cdab", ""),
        ("abcdef", "ab", ""),
    ],
)
async def test_a_catalogue_continues_after_the_last_listed_entry(before: str, after: str, expected: str) -> None:
    server = Server("s", page_size=2)
    names = before

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        for name in names:
            yield t.Resource(uri=f"c:{name}", name=name)

    first = (await ask(server, "resources/list"))["result"]
    assert [resource["name"] for resource in first["resources"]] == list(before[:2])
    names = after
    second = (await ask(server, "resources/list", {"cursor": first["nextCursor"]}))["result"]
    assert [resource["name"] for resource in second["resources"]] == list(expected)


@pytest.mark.parametrize(("characters", "expected"), [(4_096, ["c"]), (4_097, ["a", "c"])])
async def test_a_cursor_of_a_catalogue_has_several_uris_up_to_their_bound(characters: int, expected: list[str]) -> None:
    """If the last entry of a page is gone, the next page continues after the one before, if the cursor has it."""
    server = Server("s", page_size=2)
    uris = {"a": "c:a", "b": "c:" + "b" * (characters - len("c:a") - len("c:")), "c": "c:c", "x": "c:x"}
    names = "abc"

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        for name in names:
            yield t.Resource(uri=uris[name], name=name)

    first = (await ask(server, "resources/list"))["result"]
    names = "xac"
    second = (await ask(server, "resources/list", {"cursor": first["nextCursor"]}))["result"]
    assert [resource["name"] for resource in second["resources"]] == expected


@pytest.mark.parametrize("listed", ["aab", "aaaab", "abab", "abcabca"])
@pytest.mark.parametrize("size", [1, 2, 3])
async def test_a_catalogue_that_yields_a_uri_again_is_listed_to_its_end(listed: str, size: int) -> None:
    """A bug: each page continued after the first of them, so the list had no end."""
    server = Server("s", page_size=size)

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        for name in listed:
            yield t.Resource(uri=f"c:{name}", name=name)

    assert await listed_uris(server) == [f"c:{name}" for name in listed]


async def test_a_catalogue_with_a_uri_twice_continues_after_it_when_the_list_has_changed() -> None:
    server = Server("s", page_size=2)
    names = "aabac"

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        for name in names:
            yield t.Resource(uri=f"c:{name}", name=name)

    first = (await ask(server, "resources/list"))["result"]
    names = "xaabac"
    second = (await ask(server, "resources/list", {"cursor": first["nextCursor"]}))["result"]
    assert [resource["name"] for resource in second["resources"]] == ["a", "b"]
    names = "abac"
    second = (await ask(server, "resources/list", {"cursor": first["nextCursor"]}))["result"]
    assert [resource["name"] for resource in second["resources"]] == ["b", "a"]


async def test_a_catalogue_that_yields_the_uri_after_which_it_continues_is_listed_to_its_end() -> None:
    server = Server("s", page_size=1)

    @server.list_resources
    async def rows(after: str | None) -> AsyncIterator[t.Resource]:
        for name in "aabc":
            if after is None or name >= after[2:]:
                yield t.Resource(uri=f"c:{name}", name=name)

    assert await listed_uris(server) == ["c:a", "c:b", "c:c"]
