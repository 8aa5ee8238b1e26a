"""A search covers registered features, then sources, and shows only what the caller may read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.driving import make_request
from wharfinger import types as t
from wharfinger.errors import InternalError, InvalidArgument, Overloaded, PermissionDenied, ResourceNotFound
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.middleware.chain import Call, Next
from wharfinger.server.search import SearchRequest, search, source_name
from wharfinger.source import Document, Hit, Hits, Source


class StubSource(Source):
    """A source that returns the hits it was created with; `requests` records its searches."""

    def __init__(self, *hits: Hit, name: str = "shelf", uri: str = "", truncated: str = "") -> None:
        self.hits = Hits(hits)
        self.hits.truncated = truncated
        self.name = name
        self.uri = uri
        self.requests: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf:")

    async def read(self, uri: str) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text=uri[6:])])

    async def search(self, query: str, limit: int) -> Hits:
        self.requests.append((query, limit))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.hits


def hit(name: str, mime_type: str | None = None, snippet: str = "") -> Hit:
    uri = f"shelf:{name}"
    resource = t.Resource(uri=uri, name=name)
    if mime_type is not None:
        resource.mime_type = mime_type
    return Hit(uri=uri, title=name, snippet=snippet, resource=resource)


async def run_search(server: Server, query: str = "x", **fields: Any) -> Hits:
    request = make_request(server, "server/discover")
    return await search(
        server.services, server.resources, request, SearchRequest(query=query, **fields), lambda done, message: None
    )


def titles(hits: Hits) -> list[str]:
    return [hit.title for hit in hits]


def server_with(*sources: Source) -> Server:
    server = Server("s")
    for source in sources:
        server.include(source)
    return server


# -- bounds


@pytest.mark.parametrize(
    ("fields", "accepted"),
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
async def test_the_lengths_of_queries_and_filters_are_bounded(fields: dict[str, str], accepted: bool) -> None:
    server = server_with(StubSource())
    if accepted:
        assert await run_search(server, **{"query": "x", **fields}) == []
    else:
        with pytest.raises(InvalidArgument, match=r"at most 2,000 characters, with a path of at most 1,000\."):
            await run_search(server, **{"query": "x", **fields})


async def test_sources_are_asked_for_the_remaining_number_of_hits() -> None:
    source = StubSource(*(hit(f"x{number}") for number in range(5)))
    server = server_with(source)
    for number in range(2):
        server.resources.add(f"note:x{number}", lambda: "text", name=f"note x{number}")
    assert titles(await run_search(server, limit=4)) == ["note x0", "note x1", "x0", "x1"]
    assert source.requests == [("x", 2)]
    assert titles(await run_search(server, limit=2)) == ["note x0", "note x1"]
    assert titles(await run_search(server, limit=1)) == ["note x0"]
    assert len(source.requests) == 1
    assert titles(await run_search(server, limit=3)) == ["note x0", "note x1", "x0"]
    assert source.requests[1:] == [("x", 1)]


@pytest.mark.parametrize(("fields", "expected_limit"), [({}, 20), ({"type": "text"}, 200), ({"path": "x"}, 200)])
async def test_a_source_is_asked_for_more_hits_if_there_is_a_filter(
    fields: dict[str, str], expected_limit: int
) -> None:
    source = StubSource()
    await run_search(server_with(source), **fields)
    assert source.requests == [("x", expected_limit)]


async def test_the_number_of_words_searched_in_registered_features_is_bounded() -> None:
    server = Server("s")
    server.resources.add("note:a", lambda: "text", name=" ".join(f"w{number}." for number in range(16)))
    words = [f"w{number}." for number in range(16)]
    assert len(await run_search(server, " ".join(words))) == 1
    assert len(await run_search(server, " ".join([*words, "other"]))) == 1
    assert len(await run_search(server, " ".join([*words[:15], "other"]))) == 0
    assert await run_search(server, "  ") == []


async def test_words_are_searched_in_all_fields_of_a_resource_in_any_case() -> None:
    server = Server("s")
    server.resources.add("note:a", lambda: "text", name="Name", title="Title", description="Described")
    for query in ("NAME", "title", "described", "note:a", "name title described note:a"):
        assert titles(await run_search(server, query)) == ["Title"]
    assert await run_search(server, "name other") == []


# -- filters


async def test_a_source_is_found_by_its_name_or_uri_in_any_case() -> None:
    one, other = StubSource(hit("a"), name="First"), StubSource(hit("b"), name="", uri="shelf:Second")
    server = server_with(one, other)
    server.resources.add("note:x", lambda: "text", name="x")
    assert titles(await run_search(server, source="first")) == ["a"]
    assert titles(await run_search(server, source="SHELF:second")) == ["b"]
    assert titles(await run_search(server)) == ["x", "a", "b"]
    with pytest.raises(InvalidArgument, match=r"There is no source 'third': there are First, shelf:Second\."):
        await run_search(server, source="third")
    with pytest.raises(InvalidArgument, match=r"There is no source 'third': there are none\."):
        await run_search(Server("s"), source="third")
    assert (source_name(one), source_name(other)) == ("First", "shelf:Second")


@pytest.mark.parametrize(
    ("type", "expected"),
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
async def test_a_type_filter_is_a_media_type_or_its_main_type(type: str, expected: list[str]) -> None:
    hits = [hit("plain", "text/plain"), hit("html", "text/html"), hit("png", "image/png"), Hit(uri="a:", title="none")]
    assert titles(await run_search(server_with(StubSource(*hits)), type=type)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("docs", ["docs/a.md", "docs.md"]),
        ("*.md", ["docs/a.md", "docs.md"]),
        ("docs?md", ["docs.md"]),
        ("[d]ocs/*", ["docs/a.md"]),
        ("shelf:src", ["src/b.py"]),
        ("ocs", []),
    ],
)
async def test_a_path_filter_is_a_prefix_or_a_pattern_of_a_title_or_uri(path: str, expected: list[str]) -> None:
    source = StubSource(hit("docs/a.md"), hit("docs.md"), hit("src/b.py"))
    assert titles(await run_search(server_with(source), path=path)) == expected


def test_a_request_with_any_filter_is_filtered() -> None:
    assert not SearchRequest(query="x", limit=5).filtered
    for name in ("source", "type", "path"):
        assert SearchRequest(query="x", **{name: "y"}).filtered


# -- sources that fail


async def test_a_resource_found_twice_is_returned_once_and_truncation_is_reported() -> None:
    source = StubSource(hit("x"), hit("y"), truncated="There is more.")
    server = server_with(source, StubSource(name="other"))
    server.resources.add("shelf:x", lambda: "text", name="x")
    hits = await run_search(server)
    assert ([hit.uri for hit in hits], hits.truncated) == (["shelf:x", "shelf:y"], "There is more.")


@pytest.mark.parametrize("error", [InternalError("away"), OSError("away")])
async def test_an_unreachable_source_is_reported_with_the_hits_of_the_others(error: Exception) -> None:
    away, there = StubSource(name="away"), StubSource(hit("a"), name="there", truncated="There is more.")
    away.error = error
    hits = await run_search(server_with(away, there))
    assert titles(hits) == ["a"]
    assert hits.truncated == "Not searched: away cannot be reached now."


@pytest.mark.parametrize("error", [Overloaded("busy"), ValueError("odd"), InvalidArgument("no")])
async def test_any_other_failure_of_a_source_fails_the_search(error: Exception) -> None:
    source = StubSource()
    source.error = error
    with pytest.raises(type(error)):
        await run_search(server_with(source, StubSource(hit("a"), name="other")))


async def test_a_source_that_does_not_answer_is_awaited_for_at_most_its_patience() -> None:
    slow, quick = StubSource(name="slow"), StubSource(hit("a"), name="quick")
    slow.patience = 0.02
    slow.gate = asyncio.Event()
    hits = await run_search(server_with(slow, quick))
    assert (titles(hits), "slow" in hits.truncated, "quick" in hits.truncated) == (["a"], True, False)


async def test_cancelling_a_search_cancels_its_requests_to_sources() -> None:
    source, cancelled = StubSource(), asyncio.Event()

    async def endless(query: str, limit: int) -> Hits:
        source.requests.append((query, limit))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Hits()

    source.search = endless  # type: ignore[method-assign]
    searching = asyncio.ensure_future(run_search(server_with(source)))
    while not source.requests:
        await asyncio.sleep(0)
    searching.cancel()
    await cancelled.wait()


# -- an index


class StubIndex:
    """An index with these hits, which does not cover these sources."""

    def __init__(self, *hits: Hit, uncovered: list[Source], truncated: str = "") -> None:
        self.hits, self.uncovered = Hits(hits), uncovered
        self.hits.truncated = truncated

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def search(self, owner: str, request: SearchRequest, message: Any) -> tuple[Hits, list[Source]]:
        return self.hits, self.uncovered


async def test_sources_covered_by_the_index_are_not_searched() -> None:
    covered, other = StubSource(hit("a"), name="covered"), StubSource(hit("b"), hit("i"), name="other")
    server = server_with(covered, other)
    server.resources.search_index = StubIndex(hit("i"), uncovered=[other], truncated="Not all is known yet.")
    hits = await run_search(server, limit=5)
    assert (titles(hits), hits.truncated) == (["i", "b"], "Not all is known yet.")
    assert (covered.requests, other.requests) == ([], [("x", 4)])
    server.resources.search_index = StubIndex(hit("i"), uncovered=[])
    assert titles(await run_search(server)) == ["i"]


class UnreachableSource(StubSource):
    """A source that does not answer a probe."""

    async def probe(self) -> None:
        raise InternalError("The shelf is away.")


class BlockedIndex(StubIndex):
    """An index that waits for one of its sources, and never answers."""

    async def search(self, owner: str, request: SearchRequest, message: Any) -> tuple[Hits, list[Source]]:
        await asyncio.Event().wait()
        raise AssertionError


async def test_if_the_index_waits_for_a_source_that_is_down_the_other_sources_are_searched_without_it() -> None:
    down, other = UnreachableSource(hit("a"), name="down"), StubSource(hit("b"), name="other")
    down.patience = other.patience = 0.05
    server = server_with(down, other)
    server.resources.search_index = BlockedIndex(uncovered=[])
    await server.start()
    try:
        hits = await run_search(server)
    finally:
        await server.close()
    assert titles(hits) == ["b"]
    assert (down.requests, len(other.requests)) == ([], 1)


# -- access


def guarded_server(*hits: Hit, texts: dict[str, str]) -> Server:
    server = server_with(StubSource(*hits))

    @server.middleware("resources/read")
    async def read_texts(call: Call, next: Next) -> Any:
        name = call.params.uri[6:]
        if name not in texts:
            raise (ResourceNotFound(call.params.uri) if name == "gone" else PermissionDenied("no"))
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=call.params.uri, text=texts[name])])

    return server


async def test_hits_contain_only_resources_and_words_that_the_caller_may_read() -> None:
    hits = [hit("a", snippet="secret"), hit("gone"), hit("forbidden", snippet="secret"), hit("bare")]
    server = guarded_server(*hits, texts={"a": "first\n  a Tide line \nlast", "bare": "nothing"})
    visible = await run_search(server, '"tide"')
    assert [(hit.title, hit.snippet) for hit in visible] == [("a", "1- first\n2:   a Tide line\n3- last"), ("bare", "")]


async def test_only_as_many_hits_are_read_as_are_shown() -> None:
    """A bug: with middleware, a search read every resource with a fitting name."""
    server = server_with()
    reads: list[str] = []
    for number in range(50):
        server.resources.add(f"note:{number}", lambda: "x")

    @server.middleware("resources/read")
    async def count(call: Call, next: Next) -> Any:
        reads.append(call.params.uri)
        return await next(call)

    assert len(await run_search(server, "note", limit=3)) == 3
    assert len(reads) == 3
    assert await run_search(server, "note", limit=-1) == []


async def test_words_that_are_not_in_the_name_must_be_in_the_text() -> None:
    text = "one\ntwo " + "x" * 300 + "\nthree"
    server = guarded_server(hit("note", snippet="secret"), texts={"note": text})
    for query, snippet in (
        ("one", "1: one"),
        ("note three one", "3: three"),
        ("two", "2: two xxx"),
        ("note", ""),
        ("NOTE shelf:", ""),
    ):
        (found,) = await run_search(server, query)
        assert snippet in found.snippet
        assert bool(snippet) == bool(found.snippet)
    for query in ("four", "one four", "note four"):
        assert await run_search(server, query) == []


async def test_a_hit_for_another_spelling_must_have_it_in_the_text_that_the_caller_reads() -> None:
    """A bug: the hit showed that a text has a word like the misspelled one, although middleware removed that word."""

    class Log(Source):
        name = "log"

        def matches(self, uri: str) -> bool:
            return uri == "log:1"

        def documents(self, after: str | None, limit: int) -> tuple[list[Document], None]:
            return [Document(uri="log:1", title="monday", version="")], None

        def text(self, uri: str) -> Iterator[str]:
            yield "high tide at noon\nthe word is swordfish\n"

        def read(self, uri: str) -> t.ReadResourceResult:
            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="".join(self.text(uri)))])

    server = server_with(Log())

    @server.middleware("resources/read")
    async def remove_word(call: Call, next: Next) -> Any:
        (contents,) = (await next(call)).contents
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=call.params.uri, text=contents.text[:30])])

    for query in ("swordfish", "swordfsh", "noon swordfsh"):
        assert await run_search(server, query) == []
    for query in ("nooon", "tide nooon"):
        (found,) = await run_search(server, query)
        assert found.snippet == "1: high tide at noon\n2- the word is"


async def test_a_resource_that_requests_input_is_found_by_its_name() -> None:
    server = server_with(StubSource(hit("a")))

    @server.middleware("resources/read")
    async def pass_on(call: Call, next: Next) -> Any:
        return await next(call)

    @server.resource("ask:x", name="x")
    async def confirm(ctx: Context[Any]) -> str:
        return str(await ctx.elicit("Sure?", bool))

    assert titles(await run_search(server)) == ["x", "a"]


async def test_middleware_of_a_mounted_server_also_filters_hits() -> None:
    part = guarded_server(hit("a"), hit("forbidden"), texts={"a": "text"})
    server = Server("whole")
    server.include(part)
    assert titles(await run_search(server)) == ["a"]
