"""Pages of lists: filled from all features, sources and mounted servers, stable during changes, and encoded once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.server.driving import ALL, ERAS, ask, list_all, make_principal
from wharfinger import types as t
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.app import Server
from wharfinger.server.features.listing import DEFAULT_PAGE_SIZE, MAX_CACHED_PAGES, PAGE_BYTES, _count_that_fit
from wharfinger.server.threads import MEMBER_SEPARATOR
from wharfinger.source import Source


class RowSource(Source):
    """Ordered resources, in pages that start after a URI."""

    def __init__(self, prefix: str, number: int) -> None:
        self.prefix = prefix
        self.uris = [f"{prefix}:{n:03}" for n in range(number)]

    def matches(self, uri: str) -> bool:
        return uri.startswith(self.prefix)

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        remaining = [uri for uri in self.uris if after is None or uri > after]
        key = remaining[limit - 1] if len(remaining) > limit else None
        return [t.Resource(uri=uri, name="r") for uri in remaining[:limit]], key


def catalogue(uris: list[str], *, keyed: bool) -> Callable[..., AsyncIterator[t.Resource]]:
    """Return a catalogue of a list that may change. If it is keyed, it can start after a URI."""

    async def rows_after(after: str | None) -> AsyncIterator[t.Resource]:
        for uri in [uri for uri in uris if after is None or uri > after]:
            yield t.Resource(uri=uri, name="c")

    async def all_rows() -> AsyncIterator[t.Resource]:
        for uri in list(uris):
            yield t.Resource(uri=uri, name="c")

    return rows_after if keyed else all_rows


async def page(server: Server, cursor: str | None = None, revision: str = "2026-07-28") -> tuple[list[str], str | None]:
    answer = await ask(server, "resources/list", {} if cursor is None else {"cursor": cursor}, revision)
    result = answer["result"]
    return [resource["uri"] for resource in result["resources"]], result.get("nextCursor")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("revision", ERAS)
async def test_pages_are_full_across_registered_resources_catalogues_and_sources(revision: str, size: int) -> None:
    server = Server("s", page_size=size)
    expected = [f"a:{n}" for n in range(3)] + ["k:1", "k:2"] + ["c:1", "c:2", "c:3"] + [f"s:{n:03}" for n in range(5)]
    for uri in expected[:3]:
        server.resources.add(uri, lambda: "")
    server.list_resources(catalogue(["k:1", "k:2"], keyed=True))
    server.include(RowSource("empty", 0))
    server.list_resources(catalogue(["c:1", "c:2", "c:3"], keyed=False))
    server.include(RowSource("s", 5))
    listed_uris: list[str] = []
    cursor = None
    while True:
        uris, cursor = await page(server, cursor, revision)
        listed_uris += uris
        if cursor is None:
            break
        assert len(uris) == size
    assert listed_uris == expected


@pytest.mark.parametrize("number", [0, 1, 4, 5, 6])
async def test_the_last_page_has_no_cursor(number: int) -> None:
    server = Server("s", page_size=5)
    server.include(RowSource("s", number))
    uris, cursor = await page(server)
    assert (len(uris), cursor is None) == (min(number, 5), number <= 5)


async def test_registered_templates_and_those_of_sources_are_one_list() -> None:
    server = Server("s", page_size=2)
    for number in range(3):
        server.resources.add(f"a{number}:{{x}}", lambda x: x)
    source = RowSource("s", 0)
    source.templates = [t.ResourceTemplate(uri_template=f"s{n}:{{x}}", name="s") for n in range(3)]
    server.include(source)
    templates = await list_all(server, "resources/templates/list")
    assert [template["uriTemplate"] for template in templates] == [f"{c}{n}:{{x}}" for c in "as" for n in range(3)]


# -- changes between pages


CHANGES = st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 30)), max_size=12)


@pytest.mark.parametrize("kind", ["registered", "keyed", "unkeyed", "source"])
@given(size=st.integers(1, 5), rounds=st.lists(CHANGES, max_size=12))
@settings(max_examples=examples(40), deadline=None)
def test_permanent_entries_are_listed_once(kind: str, size: int, rounds: list[list[tuple[str, int]]]) -> None:
    """A catalogue without `after` keeps its order: new entries are added at its end."""
    server = Server("s", page_size=size)
    uris = [f"x:{n:03}" for n in range(0, 30, 2)]
    source = RowSource("x", 0)
    source.uris = uris
    if kind == "registered":
        for uri in uris:
            server.resources.add(uri, lambda: "")
    elif kind == "source":
        server.include(source)
    else:
        server.list_resources(catalogue(uris, keyed=kind == "keyed"))

    def change(action: str, number: int) -> None:
        if action == "remove":
            if uris:
                uri = uris.pop(number % len(uris))
                if kind == "registered":
                    server.resources.remove(uri)
                permanent.discard(uri)
        elif kind in ("registered", "unkeyed"):
            uri = f"x:new{len(uris)}-{number}-{len(listed_uris)}"
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
            uris_of_page, cursor = await page(server, cursor)
            listed_uris.extend(uris_of_page)
            if cursor is None:
                return
            for arguments in next(changes, []):
                change(*arguments)

    permanent = set(uris)
    listed_uris: list[str] = []
    asyncio.run(run())
    assert permanent <= set(listed_uris)
    assert len([uri for uri in listed_uris if uri in permanent]) == len(permanent)


async def test_a_catalogue_without_after_continues_at_its_position_after_many_removals() -> None:
    uris = [f"x:{n:04}" for n in range(400)]
    server = Server("s", page_size=100)
    server.list_resources(catalogue(uris, keyed=False))
    first, cursor = await page(server)
    del uris[85:100]  # 15 of the 16 URIs in the cursor
    second, _ = await page(server, cursor)
    assert second == [f"x:{n:04}" for n in range(100, 200)]
    del uris[84]  # the last of them: the resources before them are counted instead
    assert (await page(server, cursor))[0] == second
    assert first == [f"x:{n:04}" for n in range(100)]


async def test_a_catalogue_is_closed_when_its_page_is_full() -> None:
    server = Server("s", page_size=2)
    closed: list[str] = []

    async def rows(after: str | None) -> AsyncIterator[t.Resource]:
        try:
            for number in range(9):
                yield t.Resource(uri=f"k:{number}", name="k")
        finally:
            closed.append("keyed")

    async def all_rows() -> AsyncIterator[t.Resource]:
        try:
            for number in range(9):
                yield t.Resource(uri=f"c:{number}", name="c")
        finally:
            closed.append("unkeyed")

    server.list_resources(rows)
    await page(server)
    assert closed == ["keyed"]
    second_server = Server("s", page_size=2)
    second_server.list_resources(all_rows)
    _, cursor = await page(second_server)
    await page(second_server, cursor)
    assert closed == ["keyed", "unkeyed", "unkeyed"]


async def test_cursors_of_long_uris_can_be_opened() -> None:
    server = Server("s", page_size=1)
    uris = [f"x:{n:02}" + "é" * 8000 for n in range(40)]
    server.list_resources(catalogue(uris, keyed=False))
    server.list_resources(catalogue(uris, keyed=True))
    assert [resource["uri"] for resource in await list_all(server)] == uris * 2


# -- cursors


@pytest.mark.parametrize("revision", ALL)
async def test_a_cursor_of_another_list_is_an_invalid_param(revision: str) -> None:
    def make_server(**options: Any) -> Server:
        server = Server("s", page_size=1, **options)
        for x in "abc":
            server.resources.add(f"{x}:y", lambda: "")
            server.resources.add(f"{x}:y/{{x}}", lambda x: "")
        return server

    server = make_server()
    cursor = (await ask(server, "resources/list"))["result"]["nextCursor"]
    cursor_of_templates = (await ask(server, "resources/templates/list"))["result"]["nextCursor"]
    cursor_of_another_server = (await ask(make_server(), "resources/list"))["result"]["nextCursor"]
    for invalid in (
        "",
        "x",
        "1",
        cursor[:-2],
        cursor + "A",
        "é",
        "\0",
        cursor_of_templates,
        cursor_of_another_server,
        "A" * 100_000,
    ):
        answer = await ask(server, "resources/list", {"cursor": invalid}, revision)
        assert (invalid[:20], answer["error"]["code"]) == (invalid[:20], -32602)
    assert (await page(server, cursor, revision))[0] == ["b:y"]
    shared_cursor = (await ask(make_server(secret="s"), "resources/list"))["result"]["nextCursor"]
    assert (await page(make_server(secret="s"), shared_cursor, revision))[0] == ["b:y"]
    small_server = Server("s", secret="s")
    small_server.resources.add("a:y", lambda: "")
    large_server = make_server(secret="s")
    large_server.include(RowSource("r", 3))
    cursor_past_the_end = (
        await page(large_server, (await page(large_server, (await page(large_server, shared_cursor))[1]))[1])
    )[1]
    assert cursor_past_the_end is not None
    assert (await ask(small_server, "resources/list", {"cursor": cursor_past_the_end}, revision))["error"][
        "code"
    ] == -32602


# -- cached pages


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
    assert [r["uri"] for r in await list_all(server)] == ["a:0", "a:2", "a:3", "a:4", "a:5"]


async def test_the_number_of_cached_pages_is_bounded() -> None:
    server = Server("s", page_size=1)
    for number in range(MAX_CACHED_PAGES + 10):
        server.resources.add(f"a:{number}", lambda: "")
    assert len(await list_all(server)) == MAX_CACHED_PAGES + 10
    assert len(server.resources.listing._cached_pages) == MAX_CACHED_PAGES


async def test_a_list_uses_the_thread_share_of_its_caller() -> None:
    """Security H53: slow lists of one caller do not delay those of another."""
    owners: list[str] = []
    server = Server("s")

    async def provider(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        owners.append(owner)
        return [], None

    server.resources.add("a:b", lambda: "")
    server.resources.listing.providers.append(provider)
    await ask(server, "resources/list", principal="ann", revision="2025-11-25")
    assert [owner.partition(MEMBER_SEPARATOR)[0] for owner in owners] == [f"principal {make_principal('ann').key}"]


@pytest.mark.parametrize("size", [0, -1])
def test_a_page_size_below_1_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"page_size={size}: a page has at least 1 item"):
        Server("s", page_size=size)


# -- pages by size


SIZES = st.lists(st.one_of(st.integers(0, 80), st.sampled_from([300, 2_000])), max_size=14)


class DescribedRows(RowSource):
    """Resources with descriptions of these lengths."""

    def __init__(self, prefix: str, lengths: list[int]) -> None:
        super().__init__(prefix, len(lengths))
        self.lengths = dict(zip(self.uris, lengths, strict=True))

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        resources, key = await super().page(after, limit)
        for resource in resources:
            resource.description = "é" * self.lengths[resource.uri]
        return resources, key


def described_catalogue(source: DescribedRows, *, keyed: bool) -> Callable[..., AsyncIterator[t.Resource]]:
    """Return a catalogue of the same resources."""

    async def rows_after(after: str | None) -> AsyncIterator[t.Resource]:
        for resource in (await source.page(after, 1_000))[0]:
            yield resource

    async def all_rows() -> AsyncIterator[t.Resource]:
        for resource in (await source.page(None, 1_000))[0]:
            yield resource

    return rows_after if keyed else all_rows


@given(
    registered=SIZES, first=SIZES, second=SIZES, third=SIZES, size=st.integers(1, 12), max_bytes=st.integers(1, 3_000)
)
@settings(max_examples=examples(200), deadline=None)
def test_pages_are_filled_up_to_max_bytes_without_losses_or_duplicates(
    registered: list[int], first: list[int], second: list[int], third: list[int], size: int, max_bytes: int
) -> None:
    server = Server("s")
    listing = server.resources.listing
    listing.size, listing.max_bytes = size, max_bytes
    for number, length in enumerate(registered):
        server.resources.add(f"a:{number:03}", lambda: "", description="é" * length)
    rows = [DescribedRows(prefix, lengths) for prefix, lengths in zip("bcd", (first, second, third), strict=True)]
    server.include(rows[0])
    server.list_resources(described_catalogue(rows[1], keyed=True))
    server.list_resources(described_catalogue(rows[2], keyed=False))

    async def pages() -> list[list[dict[str, Any]]]:
        all_pages: list[list[dict[str, Any]]] = []
        cursor = None
        while True:
            result = (await ask(server, "resources/list", {} if cursor is None else {"cursor": cursor}))["result"]
            all_pages.append(result["resources"])
            if (cursor := result.get("nextCursor")) is None:
                return all_pages

    all_pages = asyncio.run(pages())
    listed_uris = [resource["uri"] for page in all_pages for resource in page]
    assert listed_uris == [f"a:{n:03}" for n in range(len(registered))] + [
        uri for source in rows for uri in source.uris
    ]
    for page, next_page in zip(all_pages, [*all_pages[1:], []], strict=True):
        assert len(page) <= size
        assert len(page) <= 1 or len(encode(page)) <= max_bytes
        # The entries of each provider are encoded as a separate list, whose brackets take a few bytes.
        assert not next_page or len(page) == size or len(encode([*page, next_page[0]])) > max_bytes - 8


@pytest.mark.parametrize("more", [0, 1])
async def test_a_page_may_reach_but_not_exceed_max_bytes(more: int) -> None:
    server = Server("s")
    for number in range(10):
        server.resources.add(f"a:{number}", lambda: "", description="d" * 100)
    listing = server.resources.listing
    listing.max_bytes = len(encode([feature.definition for feature in server.resources.static])) - more
    uris, cursor = await page(server)
    assert (len(uris), cursor is None) == (10 - more, not more)


@pytest.mark.parametrize("number", [DEFAULT_PAGE_SIZE, DEFAULT_PAGE_SIZE + 1])
async def test_a_thousand_short_entries_are_one_page(number: int) -> None:
    server = Server("s")
    for index in range(number):
        server.resources.add(f"notes://of-the-harbour/{index:05}", lambda: "", description="A note on the tide. " * 5)
    uris, cursor = await page(server)
    assert (len(uris), cursor is None) == (DEFAULT_PAGE_SIZE, number == DEFAULT_PAGE_SIZE)


async def test_a_thousand_long_descriptions_are_several_pages() -> None:
    server = Server("s")
    for number in range(1_000):
        server.resources.add(f"a:{number:05}", lambda: "", description="d" * 5_000)
    first = await server.resources.listing.page()
    assert PAGE_BYTES - 6_000 < len(first) <= PAGE_BYTES + 200
    assert [resource["uri"] for resource in await list_all(server)] == [f"a:{number:05}" for number in range(1_000)]


async def test_a_configured_page_size_is_exact() -> None:
    server = Server("s", page_size=300)
    for number in range(301):
        server.resources.add(f"a:{number:05}", lambda: "", description="d" * 5_000)
    uris, cursor = await page(server)
    assert (len(uris), cursor is None) == (300, False)


async def test_an_entry_larger_than_max_bytes_has_its_own_page() -> None:
    server = Server("s")
    server.resources.listing.max_bytes = 200
    server.include(DescribedRows("a", [0, 1_000, 1_000, 0]))
    assert [resource["uri"] for resource in await list_all(server)] == ["a:000", "a:001", "a:002", "a:003"]
    uris, _ = await page(server)
    assert uris == ["a:000"]


def test_a_page_is_filled_to_the_last_byte_of_its_room() -> None:
    definitions = [{"name": "a"}, {"name": "bc"}, {"name": "d"}]
    whole = len(encode(definitions))
    assert [_count_that_fit(definitions, room) for room in (whole, whole - 1)] == [3, 2]


async def test_a_cursor_of_a_mounted_server_that_has_no_sources_any_more_is_an_empty_page() -> None:
    """A bug: a server that was started again without the source answered with an internal error."""
    part, server = Server("part"), Server("s")
    part.resources.add("a:1", lambda: "")
    server.include(part)
    cursor = server.services.keys.seal("resources", [1, [0, "r:001"]])
    assert await page(server, cursor) == ([], None)
