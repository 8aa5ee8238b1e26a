"""Pages of sources and catalogues: full, and complete although one source is unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.driving import Wire, ask, listed, looped
from wharfinger import types as t
from wharfinger.errors import InternalError, Overloaded
from wharfinger.server.app import Server
from wharfinger.server.source_calls import MISSING_META_KEY
from wharfinger.source import Source


class Rows(Source):
    """Rows, unless the test blocks or breaks them."""

    def __init__(self, prefix: str, number: int = 1) -> None:
        self.prefix = prefix
        self.uri = f"{prefix}:"
        self.name = prefix
        self.rows = [t.Resource(uri=f"{prefix}:{n}", name=f"{prefix}{n}") for n in range(number)]
        self.error: Exception | None = None
        self.go: asyncio.Event | None = None
        self.asked: list[tuple[Any, int]] = []
        self.cancelled = 0

    def matches(self, uri: str) -> bool:
        return uri.startswith(self.uri)

    async def page(self, after: Any, limit: int) -> Any:
        self.asked.append((after, limit))
        if self.go is not None:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if self.error is not None:
            raise self.error
        start = after or 0
        end = start + limit
        return self.rows[start:end], end if end < len(self.rows) else None


def of(*sources: Source, **options: Any) -> Server:
    server = Server("s", **options)
    for source in sources:
        server.include(source)
    return server


async def uris(server: Server) -> list[str]:
    return [shown["uri"] for shown in await listed(server)]


@pytest.mark.parametrize("error", [InternalError("The disk\nis away."), OSError("secret")])
@looped
async def test_a_source_that_cannot_be_listed_is_reported_with_the_reason_and_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Rows("one"), Rows("two")
    one.error = error
    server = of(one, two)
    await server.start()
    why = "The disk is away" if isinstance(error, InternalError) else "it cannot be read"
    message = f"source 'one:' has been unavailable for 1 s ({why}); its resources are missing from this list."
    for _ in range(2):
        result = (await ask(server, "resources/list"))["result"]
        top, row = result["resources"]
        assert (top["uri"], top["name"], row["uri"]) == ("one:", "one", "two:0")
        assert top["title"] == message
        assert result["_meta"][MISSING_META_KEY] == [{"source": "one", "uri": "one:", "message": message}]
    assert caplog.text.count("tried again in the background") == 1
    one.error = None
    result = (await ask(server, "resources/list"))["result"]
    assert [shown["uri"] for shown in result["resources"]] == ["one:0", "two:0"]
    assert MISSING_META_KEY not in result.get("_meta", {})
    one.error = error
    await listed(server)
    one.uri = ""
    assert await uris(server) == ["two:0"]
    await server.close()


@looped
async def test_a_list_reports_missing_sources_of_a_mounted_server() -> None:
    one, whole, part = Rows("one"), of(Rows("two")), Server("part")
    part.include(one)
    whole.include(part)
    one.error = InternalError("away")
    result = (await ask(whole, "resources/list"))["result"]
    assert [missing["source"] for missing in result["_meta"][MISSING_META_KEY]] == ["one"]


@looped
async def test_an_only_source_is_awaited_while_it_answers_probes() -> None:
    alone = Rows("one")
    alone.patience = 0.01
    alone.go = asyncio.Event()
    server = of(alone)
    waiting = asyncio.ensure_future(uris(server))
    asyncio.get_running_loop().call_later(0.05, alone.go.set)
    assert await waiting == ["one:0"]  # the server does not probe before it is started


@looped
async def test_a_busy_source_and_a_later_page_fail_the_list() -> None:
    one, two = Rows("one", 5), Rows("two")
    server = of(one, two, page_size=2)
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


@looped
async def test_a_slow_source_delays_no_list_and_its_page_is_used_when_it_arrives() -> None:
    slow, quick = Rows("slow"), Rows("quick")
    slow.patience = 0.01
    slow.go = asyncio.Event()
    server = of(slow, quick)
    await server.start()
    async with Wire(server) as wire:
        await wire.watch(lists=("resources",))
        for _ in range(2):
            top, row = await listed(server)
            assert "has not answered" in top["title"]
            assert row["uri"] == "quick:0"
        asked = len(slow.asked)
        slow.go.set()
        number = 1
        while await uris(server) != ["slow:0", "quick:0"]:
            number += 1
            await wire.notice(number)  # the list has changed: it went away, or came back
            assert wire.notices[-1]["method"] == "notifications/resources/list_changed"
        assert asked <= 2  # the list and a probe; nothing is requested again while a request is pending
    await server.close()


@looped
async def test_a_late_page_that_failed_is_not_reported_and_requested_again() -> None:
    slow, quick = Rows("slow"), Rows("quick")
    slow.patience = 0.01
    slow.go, slow.error = asyncio.Event(), OSError("away")
    server = of(slow, quick)
    changes: list[str] = []
    server.list_changed = changes.append  # type: ignore[method-assign,assignment]
    await listed(server)
    slow.go.set()
    while "it cannot be read" not in (await listed(server))[0]["title"]:
        await asyncio.sleep(0)
    assert changes == []
    slow.error = None
    while await uris(server) != ["slow:0", "quick:0"]:
        await asyncio.sleep(0)


@looped
async def test_cancelling_a_list_cancels_its_requests_to_sources() -> None:
    slow, quick = Rows("slow"), Rows("quick")
    slow.go = asyncio.Event()
    waiting = asyncio.ensure_future(listed(of(slow, quick)))
    while not slow.asked:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    while not slow.cancelled:
        await asyncio.sleep(0)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@looped
async def test_a_full_page_of_templates_or_of_a_catalogue_is_the_last_one_if_nothing_follows(number: int) -> None:
    rows = Rows("one")
    rows.templates = [t.ResourceTemplate(uri_template=f"one:{n}/{{x}}", name="x") for n in range(number)]
    server = of(rows, page_size=2)
    made: list[list[int]] = []

    @server.list_resources
    async def keyed(after: str | None) -> AsyncIterator[t.Resource]:
        made.append([])
        for n in range(0 if after is None else int(after[2:]) + 1, number):
            made[-1].append(n)
            yield t.Resource(uri=f"k:{n}", name="k")

    shown = await listed(server, "resources/templates/list")
    assert [one["uriTemplate"] for one in shown] == [f"one:{n}/{{x}}" for n in range(number)]
    assert await uris(server) == ["one:0", *(f"k:{n}" for n in range(number))]
    assert max(map(len, made)) <= 3
    params: dict[str, Any] = {}
    counts = []
    while True:
        result = (await ask(server, "resources/templates/list", params))["result"]
        counts.append(len(result["resourceTemplates"]))
        if "nextCursor" not in result:
            break
        params = {"cursor": result["nextCursor"]}
    assert counts == [2] * (number // 2) + [1] * (number % 2)


@looped
async def test_items_of_a_catalogue_beyond_a_page_are_not_requested() -> None:
    server = Server("s", page_size=2)
    made: list[int] = []

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        for n in range(100):
            made.append(n)
            yield t.Resource(uri=f"c:{n}", name="c")

    first = (await ask(server, "resources/list"))["result"]
    assert made == [0, 1, 2]
    made.clear()
    second = (await ask(server, "resources/list", {"cursor": first["nextCursor"]}))["result"]
    assert [shown["uri"] for shown in second["resources"]] == ["c:2", "c:3"]
    assert made == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
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
@looped
async def test_a_catalogue_continues_after_the_last_shown_entry(before: str, after: str, shown: str) -> None:
    server = Server("s", page_size=2)
    names = before

    @server.list_resources
    async def rows() -> AsyncIterator[t.Resource]:
        for name in names:
            yield t.Resource(uri=f"c:{name}", name=name)

    first = (await ask(server, "resources/list"))["result"]
    assert [one["name"] for one in first["resources"]] == list(before[:2])
    names = after
    second = (await ask(server, "resources/list", {"cursor": first["nextCursor"]}))["result"]
    assert [one["name"] for one in second["resources"]] == list(shown)
