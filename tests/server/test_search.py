"""A search covers registered features, then sources, and shows only what the caller may read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.driving import looped, opened
from wharfinger import types as t
from wharfinger.errors import InternalError, InvalidArgument, Overloaded, PermissionDenied, ResourceNotFound
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.middleware.chain import Call, Next
from wharfinger.server.search import SearchRequest, search, source_name
from wharfinger.source import Hit, Hits, Source


class Shelf(Source):
    """Given hits; `asked` has the requests."""

    def __init__(self, *hits: Hit, name: str = "shelf", uri: str = "", truncated: str = "") -> None:
        self.hits = Hits(hits)
        self.hits.truncated = truncated
        self.name = name
        self.uri = uri
        self.asked: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self.busy: asyncio.Event | None = None

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf:")

    async def read(self, uri: str) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text=uri[6:])])

    async def search(self, query: str, limit: int) -> Hits:
        self.asked.append((query, limit))
        if self.busy is not None:
            await self.busy.wait()
        if self.error is not None:
            raise self.error
        return self.hits


def hit(name: str, mime_type: str | None = None, snippet: str = "") -> Hit:
    uri = f"shelf:{name}"
    resource = t.Resource(uri=uri, name=name)
    if mime_type is not None:
        resource.mime_type = mime_type
    return Hit(uri=uri, title=name, snippet=snippet, resource=resource)


async def found(server: Server, query: str = "x", **wanted: Any) -> Hits:
    request = opened(server, "server/discover")
    return await search(
        server.services, server.resources, request, SearchRequest(query=query, **wanted), lambda done, message: None
    )


def titles(hits: Hits) -> list[str]:
    return [one.title for one in hits]


def of(*shelves: Source) -> Server:
    server = Server("s")
    for shelf in shelves:
        server.include(shelf)
    return server


# -- bounds


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({"query": "x" * 2000}, True),
        ({"query": "x" * 2001}, False),
        ({"type": "x" * 2000}, True),
        ({"type": "x" * 2001}, False),
        ({"path": "x" * 1000}, True),
        ({"path": "x" * 1001}, False),
        ({"source": "x" * 2001}, False),
    ],
)
@looped
async def test_words_and_filters_are_bounded(wanted: dict[str, str], fits: bool) -> None:
    server = of(Shelf())
    if fits:
        assert await found(server, **{"query": "x", **wanted}) == []
    else:
        with pytest.raises(InvalidArgument, match=r"at most 2,000 characters, with a path of at most 1,000\."):
            await found(server, **{"query": "x", **wanted})


@looped
async def test_sources_are_asked_for_the_remaining_number_of_hits() -> None:
    shelf = Shelf(*(hit(f"x{number}") for number in range(5)))
    server = of(shelf)
    for number in range(2):
        server.resources.add(f"note:x{number}", lambda: "text", name=f"note x{number}")
    assert titles(await found(server, limit=4)) == ["note x0", "note x1", "x0", "x1"]
    assert shelf.asked == [("x", 2)]
    assert titles(await found(server, limit=2)) == ["note x0", "note x1"]
    assert titles(await found(server, limit=1)) == ["note x0"]
    assert len(shelf.asked) == 1
    assert titles(await found(server, limit=3)) == ["note x0", "note x1", "x0"]
    assert shelf.asked[1:] == [("x", 1)]


@pytest.mark.parametrize(("wanted", "most"), [({}, 20), ({"type": "text"}, 200), ({"path": "x"}, 200)])
@looped
async def test_a_source_is_asked_for_more_hits_if_there_is_a_filter(wanted: dict[str, str], most: int) -> None:
    shelf = Shelf()
    await found(of(shelf), **wanted)
    assert shelf.asked == [("x", most)]


@looped
async def test_the_number_of_words_searched_in_registered_features_is_bounded() -> None:
    server = Server("s")
    server.resources.add("note:a", lambda: "text", name=" ".join(f"w{number}." for number in range(16)))
    words = [f"w{number}." for number in range(16)]
    assert len(await found(server, " ".join(words))) == 1
    assert len(await found(server, " ".join([*words, "other"]))) == 1
    assert len(await found(server, " ".join([*words[:15], "other"]))) == 0
    assert await found(server, "  ") == []


@looped
async def test_words_are_searched_in_all_fields_of_a_resource_in_any_case() -> None:
    server = Server("s")
    server.resources.add("note:a", lambda: "text", name="Name", title="Title", description="Described")
    for query in ("NAME", "title", "described", "note:a", "name title described note:a"):
        assert titles(await found(server, query)) == ["Title"]
    assert await found(server, "name other") == []


# -- filters


@looped
async def test_a_source_is_found_by_its_name_or_uri_in_any_case() -> None:
    one, other = Shelf(hit("a"), name="First"), Shelf(hit("b"), name="", uri="shelf:Second")
    server = of(one, other)
    server.resources.add("note:x", lambda: "text", name="x")
    assert titles(await found(server, source="first")) == ["a"]
    assert titles(await found(server, source="SHELF:second")) == ["b"]
    assert titles(await found(server)) == ["x", "a", "b"]
    with pytest.raises(InvalidArgument, match=r"There is no source 'third': there are First, shelf:Second\."):
        await found(server, source="third")
    with pytest.raises(InvalidArgument, match=r"There is no source 'third': there are none\."):
        await found(Server("s"), source="third")
    assert (source_name(one), source_name(other)) == ("First", "shelf:Second")


@pytest.mark.parametrize(
    ("type", "shown"),
    [
        ("text/plain", ["plain"]),
        ("text", ["plain", "html"]),
        ("text/", ["plain", "html"]),
        ("text/*", ["plain", "html"]),
        ("image", ["png"]),
        ("te", []),
        ("", ["plain", "html", "png", "none"]),
    ],
)
@looped
async def test_a_type_filter_is_a_media_type_or_its_first_part(type: str, shown: list[str]) -> None:
    hits = [hit("plain", "text/plain"), hit("html", "text/html"), hit("png", "image/png"), Hit(uri="a:", title="none")]
    assert titles(await found(of(Shelf(*hits)), type=type)) == shown


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("docs", ["docs/a.md", "docs.md"]),
        ("*.md", ["docs/a.md", "docs.md"]),
        ("docs?md", ["docs.md"]),
        ("[d]ocs/*", ["docs/a.md"]),
        ("shelf:src", ["src/b.py"]),
        ("ocs", []),
    ],
)
@looped
async def test_a_path_filter_is_a_prefix_or_a_pattern_of_a_title_or_uri(path: str, shown: list[str]) -> None:
    shelf = Shelf(hit("docs/a.md"), hit("docs.md"), hit("src/b.py"))
    assert titles(await found(of(shelf), path=path)) == shown


def test_a_request_with_any_filter_is_filtered() -> None:
    assert not SearchRequest(query="x", limit=5).filtered
    for name in ("source", "type", "path"):
        assert SearchRequest(query="x", **{name: "y"}).filtered


# -- sources that fail


@looped
async def test_a_resource_found_twice_is_returned_once_and_a_cut_is_reported() -> None:
    shelf = Shelf(hit("x"), hit("y"), truncated="There is more.")
    server = of(shelf, Shelf(name="other"))
    server.resources.add("shelf:x", lambda: "text", name="x")
    hits = await found(server)
    assert ([one.uri for one in hits], hits.truncated) == (["shelf:x", "shelf:y"], "There is more.")


@pytest.mark.parametrize("error", [InternalError("away"), OSError("away")])
@looped
async def test_an_unreachable_source_is_reported_and_hides_no_hits(error: Exception) -> None:
    away, there = Shelf(name="away"), Shelf(hit("a"), name="there", truncated="There is more.")
    away.error = error
    hits = await found(of(away, there))
    assert titles(hits) == ["a"]
    assert hits.truncated == "Not searched: away cannot be reached now."


@pytest.mark.parametrize("error", [Overloaded("busy"), ValueError("odd"), InvalidArgument("no")])
@looped
async def test_any_other_failure_of_a_source_fails_the_search(error: Exception) -> None:
    shelf = Shelf()
    shelf.error = error
    with pytest.raises(type(error)):
        await found(of(shelf, Shelf(hit("a"), name="other")))


@looped
async def test_a_source_that_does_not_answer_is_awaited_for_at_most_its_patience() -> None:
    slow, quick = Shelf(name="slow"), Shelf(hit("a"), name="quick")
    slow.patience = 0.02
    slow.busy = asyncio.Event()
    hits = await found(of(slow, quick))
    assert (titles(hits), "slow" in hits.truncated, "quick" in hits.truncated) == (["a"], True, False)


@looped
async def test_cancelling_a_search_cancels_its_requests_to_sources() -> None:
    shelf, cancelled = Shelf(), asyncio.Event()

    async def endless(query: str, limit: int) -> Hits:
        shelf.asked.append((query, limit))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Hits()

    shelf.search = endless  # type: ignore[method-assign]
    searched = asyncio.ensure_future(found(of(shelf)))
    while not shelf.asked:
        await asyncio.sleep(0)
    searched.cancel()
    await cancelled.wait()


# -- an index


class Known:
    """An index that knows some hits, and covers some of the sources."""

    def __init__(self, *hits: Hit, left: list[Source], truncated: str = "") -> None:
        self.hits, self.left = Hits(hits), left
        self.hits.truncated = truncated

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def search(self, owner: str, wanted: SearchRequest, message: Any) -> tuple[Hits, list[Source]]:
        return self.hits, self.left


@looped
async def test_sources_that_the_index_covers_are_not_asked() -> None:
    covered, other = Shelf(hit("a"), name="covered"), Shelf(hit("b"), hit("i"), name="other")
    server = of(covered, other)
    server.resources.index = Known(hit("i"), left=[other], truncated="Not all is known yet.")
    hits = await found(server, limit=5)
    assert (titles(hits), hits.truncated) == (["i", "b"], "Not all is known yet.")
    assert (covered.asked, other.asked) == ([], [("x", 4)])
    server.resources.index = Known(hit("i"), left=[])
    assert titles(await found(server)) == ["i"]


# -- what the caller may read


def guarded(*hits: Hit, texts: dict[str, str]) -> Server:
    server = of(Shelf(*hits))

    @server.middleware("resources/read")
    async def only_some(call: Call, next: Next) -> Any:
        name = call.params.uri[6:]
        if name not in texts:
            raise (ResourceNotFound(call.params.uri) if name == "gone" else PermissionDenied("no"))
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=call.params.uri, text=texts[name])])

    return server


@looped
async def test_hits_are_only_of_readable_resources_and_by_their_visible_words() -> None:
    hits = [hit("a", snippet="secret"), hit("gone"), hit("forbidden", snippet="secret"), hit("bare")]
    server = guarded(*hits, texts={"a": "first\n  a Tide line \nlast", "bare": "nothing"})
    shown = await found(server, '"tide"')
    assert [(one.title, one.snippet) for one in shown] == [("a", "1- first\n2:   a Tide line\n3- last"), ("bare", "")]


@looped
async def test_a_snippet_must_contain_every_word_that_the_name_lacks() -> None:
    text = "one\ntwo " + "x" * 300 + "\nthree"
    server = guarded(hit("note", snippet="secret"), texts={"note": text})
    for query, snippet in (
        ("one", "1: one"),
        ("note three one", "3: three"),
        ("two", "2: two xxx"),
        ("note", ""),
        ("NOTE shelf:", ""),
    ):
        (shown,) = await found(server, query)
        assert snippet in shown.snippet
        assert bool(snippet) == bool(shown.snippet)
    for query in ("four", "one four", "note four"):
        assert await found(server, query) == []


@looped
async def test_a_resource_that_requests_input_is_found_by_its_name() -> None:
    server = of(Shelf(hit("a")))

    @server.middleware("resources/read")
    async def anything(call: Call, next: Next) -> Any:
        return await next(call)

    @server.resource("ask:x", name="x")
    async def asks(ctx: Context[Any]) -> str:
        return str(await ctx.elicit("Sure?", bool))

    assert titles(await found(server)) == ["x", "a"]


@looped
async def test_middleware_of_a_mounted_server_filters_hits_too() -> None:
    part = guarded(hit("a"), hit("forbidden"), texts={"a": "text"})
    server = Server("whole")
    server.include(part)
    assert titles(await found(server)) == ["a"]
