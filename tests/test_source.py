"""The defaults of `Source`, and sources that are down or slow."""

from __future__ import annotations

import asyncio
import threading

import pytest
from msgspec import UNSET

from tests.server.driving import ask, make_request
from wharfinger import Server
from wharfinger import types as t
from wharfinger.errors import InternalError, ResourceNotFound
from wharfinger.server import search
from wharfinger.server.document_search import search_documents
from wharfinger.server.middleware.chain import Call, Next, Result
from wharfinger.server.middleware.guards import Timing
from wharfinger.source import VERSION, Document, Hit, Source, UnusableSource, document_of, version_of


class BuoySource(Source):
    """Three resources, one of them a directory."""

    buoys = (
        t.Resource(uri="buoy:///", name="buoys", mime_type="inode/directory"),
        t.Resource(uri="buoy:///1", name="1", title="One", mime_type="text/plain", meta={VERSION: "a"}),
        t.Resource(uri="buoy:///2", name="2"),
    )

    def matches(self, uri: str) -> bool:
        return uri.startswith("buoy:///")

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        begin = 0 if after is None else int(after)
        end = begin + limit
        return list(self.buoys[begin:end]), str(end) if end < len(self.buoys) else None

    def stat(self, uri: str) -> t.Resource:
        found = next((buoy for buoy in self.buoys if buoy.uri == uri), None)
        if found is None:
            raise ResourceNotFound(uri)
        return found

    def read(self, uri: str) -> t.ReadResourceResult:
        self.stat(uri)
        text, blob = (UNSET, b"\0") if uri.endswith("2") else ("red", UNSET)
        contents = [t.ResourceContents(uri=uri, text=text, blob=blob)]
        return t.ReadResourceResult(contents=contents, ttl_ms=5, cache_scope="public")


def test_documents_are_the_listed_resources_without_directories() -> None:
    assert BuoySource().documents(None, 2) == (
        [Document(uri="buoy:///1", title="One", version="a", mime_type="text/plain")],
        "2",
    )
    assert BuoySource().documents("2", 2) == ([Document(uri="buoy:///2", title="2", version="")], None)


def test_the_version_comes_from_stat() -> None:
    assert BuoySource().version("buoy:///1") == "a"
    assert BuoySource().version("buoy:///2") == ""
    with pytest.raises(ResourceNotFound):
        BuoySource().version("buoy:///9")


def test_the_text_comes_from_read_and_is_empty_for_a_blob() -> None:
    assert list(BuoySource().text("buoy:///1")) == ["red"]
    assert list(BuoySource().text("buoy:///2")) == []


def test_a_resource_without_contents_has_no_text() -> None:
    """A bug: an IndexError ended the search of all sources."""

    class EmptySource(BuoySource):
        def read(self, uri: str) -> t.ReadResourceResult:
            return t.ReadResourceResult(contents=[])

    assert list(EmptySource().text("buoy:///1")) == []


def test_a_source_without_directories_has_no_children() -> None:
    with pytest.raises(ResourceNotFound):
        BuoySource().children("buoy:///")


def test_a_source_without_methods_publishes_nothing() -> None:
    source = Source()
    assert source.page(None, 10) == ([], None)
    assert source.documents(None, 10) == ([], None)
    assert source.complete("x:{y}", "y", "", {}) == []
    assert search_documents(source, "red", 10) == []
    assert source.describe() == ""
    with pytest.raises(ResourceNotFound):
        source.read("x:1")


def test_the_version_of_a_resource_without_one_is_empty() -> None:
    assert version_of(t.Resource(uri="x:", name="x")) == ""
    assert version_of(t.Resource(uri="x:", name="x", meta={})) == ""
    assert document_of(t.Resource(uri="x:", name="x")).title == "x"


def test_the_exit_code_of_an_unusable_source_is_2() -> None:
    assert UnusableSource("no such folder").exit_code == 2


async def cache_scope(server: Server, principal: str = "") -> str:
    answer = await ask(server, "resources/read", {"uri": "buoy:///1"}, principal=principal)
    return str(answer["result"]["cacheScope"])


async def test_a_read_is_public_unless_it_may_depend_on_the_caller() -> None:
    server = Server("sea")
    server.include(BuoySource())
    assert await cache_scope(server) == "public"
    assert await cache_scope(server, principal="mary") == "private"
    server.add_middleware(Timing())
    assert await cache_scope(server) == "public"

    @server.middleware("tools/call")
    async def around_calls(call: Call, next: Next) -> Result:
        return await next(call)

    assert await cache_scope(server) == "public"

    @server.middleware("resources/read")
    async def around_reads(call: Call, next: Next) -> Result:
        return await next(call)

    assert await cache_scope(server) == "private"


async def test_middleware_of_a_server_makes_reads_of_an_included_server_private() -> None:
    outer, inner = Server("sea"), Server("bay")
    inner.include(BuoySource())
    outer.include(inner)
    assert await cache_scope(outer) == "public"

    @outer.middleware
    async def around_all(call: Call, next: Next) -> Result:
        return await next(call)

    assert await cache_scope(outer) == "private"
    assert await cache_scope(inner) == "public"


async def test_a_source_that_is_down_is_listed_by_its_uri_beside_other_sources() -> None:
    class DownSource(BuoySource):
        name, uri, is_down = "wrecks", "wreck://", True

        def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            if self.is_down:
                raise InternalError("The register of wrecks cannot be reached.")
            return [t.Resource(uri="wreck://7", name="7")], None

    server, down = Server("sea"), DownSource()
    server.include(down)
    server.include(BuoySource())
    for _ in range(2):
        first, *others = (await ask(server, "resources/list"))["result"]["resources"]
        assert first["uri"] == "wreck://"
        assert "(The register of wrecks cannot be reached)" in first["title"]
        assert [other["uri"] for other in others] == [resource.uri for resource in BuoySource().page(None, 9)[0]]
    down.is_down = False
    assert (await ask(server, "resources/list"))["result"]["resources"][0]["uri"] == "wreck://7"


async def test_a_list_does_not_wait_for_a_source_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first list waits for `patience`, later ones do not, and a change is reported once it answers (W05)."""
    released = threading.Event()

    class SlowSource(BuoySource):
        name, uri = "wrecks", "wreck://"

        def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            released.wait(50)
            return [t.Resource(uri="wreck://7", name="7")], None

    server, slow = Server("sea"), SlowSource()
    server.include(slow)
    server.include(BuoySource())
    reported = asyncio.Event()
    monkeypatch.setattr(server.watching, "list_changed", lambda name: reported.set())
    try:
        for patience in (0.2, 40):  # the second list does not wait again
            slow.patience = patience
            async with asyncio.timeout(20):
                first, *others = (await ask(server, "resources/list"))["result"]["resources"]
            assert first["uri"] == "wreck://"
            assert f"has not answered within {patience} s" in first["title"]
            assert [other["uri"] for other in others] == [resource.uri for resource in BuoySource().page(None, 9)[0]]
        assert not reported.is_set()
    finally:
        released.set()
    await asyncio.wait_for(reported.wait(), 20)
    assert (await ask(server, "resources/list"))["result"]["resources"][0]["uri"] == "wreck://7"


async def test_a_search_does_not_wait_for_a_source_that_does_not_answer() -> None:
    """Sources are searched concurrently, and the result names those that did not answer in time (W05)."""
    released = threading.Event()

    class SlowSource(BuoySource):
        name, uri = "wrecks", "wreck://"

        def search(self, query: str, limit: int) -> list[Hit]:
            released.wait(20)
            return []

    class QuickSource(BuoySource):
        name, uri = "quays", "quay://"

        def search(self, query: str, limit: int) -> list[Hit]:
            return [Hit(uri="buoy:///1", title="One")]

    server, slow = Server("sea"), SlowSource()
    slow.patience = 0.2
    server.include(slow)
    server.include(QuickSource())
    try:
        request, search_request = make_request(server, "resources/list"), search.SearchRequest(query="one")
        hits = await search.search(server.services, server.resources, request, search_request, lambda *_: None)
    finally:
        released.set()
    assert [hit.uri for hit in hits] == ["buoy:///1"]
    assert hits.truncated == "Not searched: wrecks cannot be reached now."
