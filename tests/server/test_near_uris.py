"""A URI that does not exist is answered with a similar one, within bounds, without revealing hidden ones."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.driving import looped
from wharfinger import Client, Server, ToolError
from wharfinger import types as t
from wharfinger.errors import RemoteResourceNotFound, ResourceNotFound
from wharfinger.server import near_uris as module
from wharfinger.server.middleware.chain import Call, Next
from wharfinger.server.near_uris import near_uris
from wharfinger.source import Source
from wharfinger.sources import files, resource_tools

KNOWN = ["file:///w/docs/search.md", "file:///w/src/app.py", "file:///w/src/web/app.py", "file:///w/README.md"]


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("file:///w/docs/serach.md", ["file:///w/docs/search.md"]),
        ("file:///w/search.md", ["file:///w/docs/search.md"]),
        ("docs/search.md", ["file:///w/docs/search.md"]),
        ("file:///other/docs/search.md?lines=1-20", ["file:///w/docs/search.md"]),
        ("file:///w/docs/search.rst", ["file:///w/docs/search.md"]),
        ("file:///w/docs/search", ["file:///w/docs/search.md"]),
        ("file:///w/docs/SEARCH.md", ["file:///w/docs/search.md"]),
        ("file:///w/web/app.py", ["file:///w/src/web/app.py", "file:///w/src/app.py"]),
        ("file:///w/docs/nothing.md", []),
        ("file:///", []),
        ("", []),
    ],
)
def test_uris_with_an_equal_or_misspelled_end_are_near(uri: str, meant: list[str]) -> None:
    assert near_uris(uri, KNOWN) == meant


@given(st.text(max_size=80), st.lists(st.text(max_size=40), max_size=8))
def test_any_uris_can_be_compared(uri: str, known: list[str]) -> None:
    found = near_uris(uri, known)
    assert len(found) <= module.MAX_SUGGESTIONS
    assert set(found) <= set(known)


async def not_found_message(server: Server, uri: str) -> str:
    async with Client(server) as client:
        with pytest.raises(RemoteResourceNotFound) as error:
            await client.read_resource(uri)
        assert error.value.uri == uri
        return error.value.message


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "w"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "search.md").write_text("words")
    (root / ".env").write_text("TOKEN=1")
    return root


@looped
async def test_an_unknown_uri_is_answered_with_the_nearest_one(tree: Path) -> None:
    server = Server("s")
    server.include(files(tree, label="w"))
    server.resources.add("note:tides", lambda: "text", name="tides")
    uri = "file:///w/docs/serach.md"
    assert await not_found_message(server, uri) == f"Resource not found: {uri}. Did you mean file:///w/docs/search.md?"
    assert await not_found_message(server, "note:tide") == "Resource not found: note:tide. Did you mean note:tides?"
    for uri in ("file:///w/nothing", "file:///w/.env", "file:///w/.emv", "x:" + "y" * module.MAX_COMPARED_CHARACTERS):
        assert await not_found_message(server, uri) == f"Resource not found: {uri}"


@looped
async def test_the_error_of_the_read_tool_has_the_suggestion(tree: Path) -> None:
    server = Server("s")
    server.include(files(tree, label="w"))
    server.include(resource_tools())
    async with Client(server) as client:
        with pytest.raises(
            ToolError, match=r"There is no resource x:search\.md\. Did you mean file:///w/docs/search\.md\?"
        ):
            await client.call_tool("read_resource", {"uri": "x:search.md"})


@looped
async def test_nothing_is_suggested_if_middleware_may_hide_resources(tree: Path) -> None:
    part, server = Server("part"), Server("s")
    part.include(files(tree, label="w"))
    server.include(part)
    uri = "file:///w/docs/serach.md"
    assert "Did you mean" in await not_found_message(server, uri)

    @server.middleware("resources/read")
    async def guard(call: Call, next: Next) -> Any:
        return await next(call)

    assert await not_found_message(server, uri) == f"Resource not found: {uri}"


class Shelf(Source):
    """Documents by number, some of which are listed late."""

    name, uri = "shelf", "shelf://"

    def __init__(self, many: int, gate: threading.Event | None = None) -> None:
        self.many, self.gate, self.pages = many, gate, 0

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf://")

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        if self.gate is not None:
            self.gate.wait(20)
        self.pages += 1
        begin = int(after or 0)
        end = min(self.many, begin + limit)
        resources = [t.Resource(uri=f"shelf://{number:06}", name=str(number)) for number in range(begin, end)]
        return resources, str(end) if end < self.many else None

    def read(self, uri: str) -> t.ReadResourceResult:
        raise ResourceNotFound(uri)


@looped
async def test_no_more_uris_are_compared_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COMPARED_URIS", 300)
    monkeypatch.setattr(module, "LISTING_SECONDS", 20.0)
    shelf = Shelf(10_000)
    server = Server("s")
    server.include(shelf)
    assert "Did you mean shelf://000299" in await not_found_message(server, "shelf://00299")
    assert "Did you mean shelf://000300" not in await not_found_message(server, "shelf://00300")
    assert shelf.pages == 4


@looped
async def test_a_source_that_does_not_answer_delays_the_error_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTING_SECONDS", 0.02)
    gate = threading.Event()
    server = Server("s")
    server.include(Shelf(10, gate))
    try:
        async with asyncio.timeout(10):
            assert await not_found_message(server, "shelf://00003") == "Resource not found: shelf://00003"
    finally:
        gate.set()


@looped
async def test_the_number_of_concurrent_searches_for_suggestions_is_bounded() -> None:
    server = Server("s")
    server.include(Shelf(10))
    server.resources.near_uri_searches = module.MAX_CONCURRENT_SEARCHES
    assert await not_found_message(server, "shelf://00003") == "Resource not found: shelf://00003"
    server.resources.near_uri_searches -= 1
    assert "Did you mean" in await not_found_message(server, "shelf://00003")
    assert server.resources.near_uri_searches == module.MAX_CONCURRENT_SEARCHES - 1
