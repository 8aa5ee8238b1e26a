"""Pages of lists: filled from all features, sources and mounted servers, stable during changes, and encoded once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.server.driving import ALL, ERAS, ask, listed, looped, named
from wharfinger import types as t
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.app import Server
from wharfinger.server.features.listing import DEFAULT_PAGE_SIZE, MAX_CACHED_PAGES, PAGE_BYTES
from wharfinger.server.threads import MEMBER_SEPARATOR
from wharfinger.source import Source


class Rows(Source):
    """Rows in order, in pages by their own key."""

    def __init__(self, prefix: str, number: int) -> None:
        self.prefix = prefix
        self.uris = [f"{prefix}:{n:03}" for n in range(number)]

    def matches(self, uri: str) -> bool:
        return uri.startswith(self.prefix)

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        left = [uri for uri in self.uris if after is None or uri > after]
        return [t.Resource(uri=uri, name="r") for uri in left[:limit]], left[limit - 1] if left[limit:] else None


def catalogue(uris: list[str], *, keyed: bool) -> Callable[..., AsyncIterator[t.Resource]]:
    """Return an async generator over a list that may change."""

    async def behind(after: str | None) -> AsyncIterator[t.Resource]:
        for uri in [uri for uri in uris if after is None or uri > after]:
            yield t.Resource(uri=uri, name="c")

    async def again() -> AsyncIterator[t.Resource]:
        for uri in list(uris):
            yield t.Resource(uri=uri, name="c")

    return behind if keyed else again


async def page(server: Server, cursor: str | None = None, revision: str = "2026-07-28") -> tuple[list[str], str | None]:
    answer = await ask(server, "resources/list", {} if cursor is None else {"cursor": cursor}, revision)
    result = answer["result"]
    return [resource["uri"] for resource in result["resources"]], result.get("nextCursor")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("revision", ERAS)
@looped
async def test_pages_are_full_across_registered_catalogues_and_sources(revision: str, size: int) -> None:
    server = Server("s", page_size=size)
    expected = [f"a:{n}" for n in range(3)] + ["k:1", "k:2"] + ["c:1", "c:2", "c:3"] + [f"s:{n:03}" for n in range(5)]
    for uri in expected[:3]:
        server.resources.add(uri, lambda: "")
    server.list_resources(catalogue(["k:1", "k:2"], keyed=True))
    server.include(Rows("empty", 0))
    server.list_resources(catalogue(["c:1", "c:2", "c:3"], keyed=False))
    server.include(Rows("s", 5))
    shown: list[str] = []
    cursor = None
    while True:
        uris, cursor = await page(server, cursor, revision)
        shown += uris
        if cursor is None:
            break
        assert len(uris) == size
    assert shown == expected


@pytest.mark.parametrize("number", [0, 1, 4, 5, 6])
@looped
async def test_the_last_page_has_no_cursor(number: int) -> None:
    server = Server("s", page_size=5)
    server.include(Rows("s", number))
    uris, cursor = await page(server)
    assert (len(uris), cursor is None) == (min(number, 5), number <= 5)


@looped
async def test_registered_templates_and_those_of_sources_are_one_list() -> None:
    server = Server("s", page_size=2)
    for number in range(3):
        server.resources.add(f"a{number}:{{x}}", lambda x: x)
    source = Rows("s", 0)
    source.templates = [t.ResourceTemplate(uri_template=f"s{n}:{{x}}", name="s") for n in range(3)]
    server.include(source)
    shown = await listed(server, "resources/templates/list")
    assert [template["uriTemplate"] for template in shown] == [f"{c}{n}:{{x}}" for c in "as" for n in range(3)]


# -- changing between pages


CHANGES = st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 30)), max_size=12)


@pytest.mark.parametrize("kind", ["registered", "keyed", "again", "source"])
@given(size=st.integers(1, 5), rounds=st.lists(CHANGES, max_size=12))
@settings(max_examples=examples(40), deadline=None)
def test_permanent_entries_are_listed_once(kind: str, size: int, rounds: list[list[tuple[str, int]]]) -> None:
    """A catalogue without `after` keeps its order, so that what is new comes last."""
    server = Server("s", page_size=size)
    uris = [f"x:{n:03}" for n in range(0, 30, 2)]
    source = Rows("x", 0)
    source.uris = uris
    if kind == "registered":
        for uri in uris:
            server.resources.add(uri, lambda: "")
    elif kind == "source":
        server.include(source)
    else:
        server.list_resources(catalogue(uris, keyed=kind == "keyed"))

    def change(what: str, number: int) -> None:
        if what == "remove":
            if uris:
                uri = uris.pop(number % len(uris))
                if kind == "registered":
                    server.resources.remove(uri)
                staying.discard(uri)
        elif kind in ("registered", "again"):
            uri = f"x:new{len(uris)}-{number}-{len(shown)}"
            if uri not in uris:
                uris.append(uri)
                if kind == "registered":
                    server.resources.add(uri, lambda: "")
        elif (uri := f"x:{number * 2 + 1:03}") not in uris:
            uris.append(uri)
            uris.sort()

    async def run() -> None:
        cursor = None
        changes = iter(rounds)
        while True:
            found, cursor = await page(server, cursor)
            shown.extend(found)
            if cursor is None:
                return
            for what in next(changes, []):
                change(*what)

    staying = set(uris)
    shown: list[str] = []
    asyncio.run(run())
    assert staying <= set(shown)
    assert len([uri for uri in shown if uri in staying]) == len(staying)


@looped
async def test_a_catalogue_that_starts_over_continues_at_its_position_after_many_removals() -> None:
    uris = [f"x:{n:04}" for n in range(400)]
    server = Server("s", page_size=100)
    server.list_resources(catalogue(uris, keyed=False))
    first, cursor = await page(server)
    del uris[85:100]  # all of the marks but one
    second, _ = await page(server, cursor)
    assert second == [f"x:{n:04}" for n in range(100, 200)]
    del uris[84]  # and this one: what was marked does not count
    assert (await page(server, cursor))[0] == second
    assert first == [f"x:{n:04}" for n in range(100)]


@looped
async def test_a_catalogue_is_closed_when_its_page_is_full() -> None:
    server = Server("s", page_size=2)
    closed: list[str] = []

    async def rows(after: str | None) -> AsyncIterator[t.Resource]:
        try:
            for number in range(9):
                yield t.Resource(uri=f"k:{number}", name="k")
        finally:
            closed.append("keyed")

    async def again() -> AsyncIterator[t.Resource]:
        try:
            for number in range(9):
                yield t.Resource(uri=f"c:{number}", name="c")
        finally:
            closed.append("again")

    server.list_resources(rows)
    await page(server)
    assert closed == ["keyed"]
    other = Server("s", page_size=2)
    other.list_resources(again)
    _, cursor = await page(other)
    await page(other, cursor)
    assert closed == ["keyed", "again", "again"]


@looped
async def test_cursors_of_long_uris_can_be_opened() -> None:
    server = Server("s", page_size=1)
    uris = [f"x:{n:02}" + "é" * 8000 for n in range(40)]
    server.list_resources(catalogue(uris, keyed=False))
    server.list_resources(catalogue(uris, keyed=True))
    assert [resource["uri"] for resource in await listed(server)] == uris * 2


# -- cursors


@pytest.mark.parametrize("revision", ALL)
@looped
async def test_a_cursor_of_another_list_is_an_invalid_param(revision: str) -> None:
    def make(**options: Any) -> Server:
        server = Server("s", page_size=1, **options)
        for x in "abc":
            server.resources.add(f"{x}:y", lambda: "")
            server.resources.add(f"{x}:y/{{x}}", lambda x: "")
        return server

    server = make()
    cursor = (await ask(server, "resources/list"))["result"]["nextCursor"]
    of_templates = (await ask(server, "resources/templates/list"))["result"]["nextCursor"]
    foreign = (await ask(make(), "resources/list"))["result"]["nextCursor"]
    for wrong in ("", "x", "1", cursor[:-2], cursor + "A", "é", "\0", of_templates, foreign, "A" * 100_000):
        answer = await ask(server, "resources/list", {"cursor": wrong}, revision)
        assert (wrong[:20], answer["error"]["code"]) == (wrong[:20], -32602)
    assert (await page(server, cursor, revision))[0] == ["b:y"]
    shared = (await ask(make(secret="s"), "resources/list"))["result"]["nextCursor"]
    assert (await page(make(secret="s"), shared, revision))[0] == ["b:y"]
    fewer = Server("s", secret="s")
    fewer.resources.add("a:y", lambda: "")
    more = make(secret="s")
    more.include(Rows("r", 3))
    beyond = (await page(more, (await page(more, (await page(more, shared))[1]))[1]))[1]
    assert beyond is not None
    assert (await ask(fewer, "resources/list", {"cursor": beyond}, revision))["error"]["code"] == -32602


# -- kept pages


@looped
async def test_a_page_is_encoded_once_until_the_list_changes() -> None:
    server = Server("s", page_size=2)
    for number in range(5):
        server.resources.add(f"a:{number}", lambda: "")
    first = await server.resources.listing.page()
    assert await server.resources.listing.page() is first
    _, cursor = await page(server)
    assert (await page(server, cursor))[0] == ["a:2", "a:3"]
    server.resources.remove("a:1")
    assert await server.resources.listing.page() is not first
    assert (await page(server))[0] == ["a:0", "a:2"]
    assert (await page(server, cursor))[0] == ["a:2", "a:3"]
    server.resources.add("a:5", lambda: "")
    assert [r["uri"] for r in await listed(server)] == ["a:0", "a:2", "a:3", "a:4", "a:5"]


@looped
async def test_the_number_of_cached_pages_is_bounded() -> None:
    server = Server("s", page_size=1)
    for number in range(MAX_CACHED_PAGES + 10):
        server.resources.add(f"a:{number}", lambda: "")
    assert len(await listed(server)) == MAX_CACHED_PAGES + 10
    assert len(server.resources.listing._cached_pages) == MAX_CACHED_PAGES


@looped
async def test_a_list_uses_the_thread_share_of_its_caller() -> None:
    """security H53: slow lists of one caller do not delay another's."""
    owners: list[str] = []
    server = Server("s")

    async def provider(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        owners.append(owner)
        return [], None

    server.resources.add("a:b", lambda: "")
    server.resources.listing.providers.append(provider)
    await ask(server, "resources/list", principal="ann", revision="2025-11-25")
    assert [owner.partition(MEMBER_SEPARATOR)[0] for owner in owners] == [f"principal {named('ann').key}"]


@pytest.mark.parametrize("size", [0, -1])
def test_a_page_without_room_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"page_size={size}: a page has at least 1 item"):
        Server("s", page_size=size)


# -- pages by size


SIZES = st.lists(st.one_of(st.integers(0, 80), st.sampled_from([300, 2_000])), max_size=14)


class Described(Rows):
    """Rows with descriptions of these lengths."""

    def __init__(self, prefix: str, lengths: list[int]) -> None:
        super().__init__(prefix, len(lengths))
        self.lengths = dict(zip(self.uris, lengths, strict=True))

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        shown, key = await super().page(after, limit)
        for resource in shown:
            resource.description = "é" * self.lengths[resource.uri]
        return shown, key


def yielding(source: Described, *, keyed: bool) -> Callable[..., AsyncIterator[t.Resource]]:
    """Return a catalogue of the same rows."""

    async def behind(after: str | None) -> AsyncIterator[t.Resource]:
        for resource in (await source.page(after, 1_000))[0]:
            yield resource

    async def again() -> AsyncIterator[t.Resource]:
        for resource in (await source.page(None, 1_000))[0]:
            yield resource

    return behind if keyed else again


@given(registered=SIZES, first=SIZES, second=SIZES, third=SIZES, size=st.integers(1, 12), room=st.integers(1, 3_000))
@settings(max_examples=examples(200), deadline=None)
def test_pages_are_filled_up_to_their_bytes_without_losses_or_duplicates(
    registered: list[int], first: list[int], second: list[int], third: list[int], size: int, room: int
) -> None:
    server = Server("s")
    listing = server.resources.listing
    listing.size, listing.max_bytes = size, room
    for number, length in enumerate(registered):
        server.resources.add(f"a:{number:03}", lambda: "", description="é" * length)
    rows = [Described(prefix, lengths) for prefix, lengths in zip("bcd", (first, second, third), strict=True)]
    server.include(rows[0])
    server.list_resources(yielding(rows[1], keyed=True))
    server.list_resources(yielding(rows[2], keyed=False))

    async def pages() -> list[list[dict[str, Any]]]:
        found: list[list[dict[str, Any]]] = []
        cursor = None
        while True:
            result = (await ask(server, "resources/list", {} if cursor is None else {"cursor": cursor}))["result"]
            found.append(result["resources"])
            if (cursor := result.get("nextCursor")) is None:
                return found

    found = asyncio.run(pages())
    shown = [resource["uri"] for part in found for resource in part]
    assert shown == [f"a:{n:03}" for n in range(len(registered))] + [uri for source in rows for uri in source.uris]
    for part, after in zip(found, [*found[1:], []], strict=True):
        assert len(part) <= size
        assert len(part) <= 1 or len(encode(part)) <= room
        # Each provider's entries count as a list of their own: a few bytes of brackets are left over.
        assert not after or len(part) == size or len(encode([*part, after[0]])) > room - 8


@pytest.mark.parametrize("more", [0, 1])
@looped
async def test_a_page_of_exactly_the_bytes_is_one_page(more: int) -> None:
    server = Server("s")
    for number in range(10):
        server.resources.add(f"a:{number}", lambda: "", description="d" * 100)
    listing = server.resources.listing
    listing.max_bytes = len(encode([feature.definition for feature in server.resources.static])) - more
    uris, cursor = await page(server)
    assert (len(uris), cursor is None) == (10 - more, not more)


@pytest.mark.parametrize("number", [DEFAULT_PAGE_SIZE, DEFAULT_PAGE_SIZE + 1])
@looped
async def test_a_thousand_short_entries_are_one_page(number: int) -> None:
    server = Server("s")
    for each in range(number):
        server.resources.add(f"notes://of-the-harbour/{each:05}", lambda: "", description="A note on the tide. " * 5)
    uris, cursor = await page(server)
    assert (len(uris), cursor is None) == (DEFAULT_PAGE_SIZE, number == DEFAULT_PAGE_SIZE)


@looped
async def test_a_thousand_long_descriptions_are_several_pages() -> None:
    server = Server("s")
    for number in range(1_000):
        server.resources.add(f"a:{number:05}", lambda: "", description="d" * 5_000)
    first = await server.resources.listing.page()
    assert PAGE_BYTES - 6_000 < len(first) <= PAGE_BYTES + 200
    assert [resource["uri"] for resource in await listed(server)] == [f"a:{number:05}" for number in range(1_000)]


@looped
async def test_a_configured_page_size_is_exact() -> None:
    server = Server("s", page_size=300)
    for number in range(301):
        server.resources.add(f"a:{number:05}", lambda: "", description="d" * 5_000)
    uris, cursor = await page(server)
    assert (len(uris), cursor is None) == (300, False)


@looped
async def test_an_entry_larger_than_a_page_is_a_page() -> None:
    server = Server("s")
    server.resources.listing.max_bytes = 200
    server.include(Described("a", [0, 1_000, 1_000, 0]))
    assert [resource["uri"] for resource in await listed(server)] == ["a:000", "a:001", "a:002", "a:003"]
    uris, _ = await page(server)
    assert uris == ["a:000"]
