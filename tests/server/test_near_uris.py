"""The error for an unknown URI suggests similar URIs, within bounds and without revealing hidden ones."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger import Client, Server, ToolError
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, RemoteResourceNotFound, ResourceNotFound
from wharfinger.server import near_uris as near_uris_module
from wharfinger.server.middleware.chain import Call, Next
from wharfinger.server.near_uris import near_uris
from wharfinger.source import Source
from wharfinger.sources import files, resource_tools

KNOWN = ["file:///w/docs/search.md", "file:///w/src/app.py", "file:///w/src/web/app.py", "file:///w/README.md"]


@pytest.mark.parametrize(
    ("uri", "expected"),
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
def test_uris_with_the_same_or_a_misspelled_end_are_suggested(uri: str, expected: list[str]) -> None:
    assert near_uris(uri, KNOWN) == expected


@given(st.text(max_size=80), st.lists(st.text(max_size=40), max_size=8))
def test_suggestions_for_any_text_are_a_bounded_number_of_known_uris(uri: str, known: list[str]) -> None:
    found = near_uris(uri, known)
    assert len(found) <= near_uris_module.MAX_SUGGESTIONS
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


async def test_the_error_for_an_unknown_uri_suggests_the_nearest_uri(tree: Path) -> None:
    server = Server("s")
    server.include(files(tree, label="w"))
    server.resources.add("note:tides", lambda: "text", name="tides")
    uri = "file:///w/docs/serach.md"
    assert await not_found_message(server, uri) == f"Resource not found: {uri}. Did you mean file:///w/docs/search.md?"
    assert await not_found_message(server, "note:tide") == "Resource not found: note:tide. Did you mean note:tides?"
    for uri in (
        "file:///w/nothing",
        "file:///w/.env",
        "file:///w/.emv",
        "x:" + "y" * near_uris_module.MAX_COMPARED_CHARACTERS,
    ):
        assert await not_found_message(server, uri) == f"Resource not found: {uri}"


async def test_the_error_of_the_read_resource_tool_has_a_suggestion(tree: Path) -> None:
    server = Server("s")
    server.include(files(tree, label="w"))
    server.include(resource_tools())
    async with Client(server) as client:
        with pytest.raises(
            ToolError, match=r"There is no resource x:search\.md\. Did you mean file:///w/docs/search\.md\?"
        ):
            await client.call_tool("read_resource", {"uri": "x:search.md"})


async def test_no_uri_is_suggested_if_middleware_may_hide_resources(tree: Path) -> None:
    part, server = Server("part"), Server("s")
    part.include(files(tree, label="w"))
    server.include(part)
    uri = "file:///w/docs/serach.md"
    assert "Did you mean" in await not_found_message(server, uri)

    @server.middleware("resources/read")
    async def pass_on(call: Call, next: Next) -> Any:
        return await next(call)

    assert await not_found_message(server, uri) == f"Resource not found: {uri}"


class NumberedDocuments(Source):
    """Documents with numbers as names; `gate` holds back their list."""

    name, uri = "shelf", "shelf://"

    def __init__(self, count: int, gate: threading.Event | None = None) -> None:
        self.count, self.gate, self.pages = count, gate, 0

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf://")

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        if self.gate is not None:
            self.gate.wait(20)
        self.pages += 1
        begin = int(after or 0)
        end = min(self.count, begin + limit)
        resources = [t.Resource(uri=f"shelf://{number:06}", name=str(number)) for number in range(begin, end)]
        return resources, str(end) if end < self.count else None

    def read(self, uri: str) -> t.ReadResourceResult:
        raise ResourceNotFound(uri)


async def test_the_number_of_compared_uris_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_uris_module, "MAX_COMPARED_URIS", 300)
    monkeypatch.setattr(near_uris_module, "LISTING_SECONDS", 20.0)
    source = NumberedDocuments(10_000)
    server = Server("s")
    server.include(source)
    assert "Did you mean shelf://000299" in await not_found_message(server, "shelf://00299")
    assert "Did you mean shelf://000300" not in await not_found_message(server, "shelf://00300")
    assert source.pages == 4


async def test_a_source_that_does_not_answer_delays_the_error_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_uris_module, "LISTING_SECONDS", 0.02)
    gate = threading.Event()
    server = Server("s")
    server.include(NumberedDocuments(10, gate))
    try:
        async with asyncio.timeout(40):
            assert await not_found_message(server, "shelf://00003") == "Resource not found: shelf://00003"
    finally:
        gate.set()


@pytest.mark.parametrize("error", [InvalidArgument("gone"), ResourceNotFound("bad://x"), LookupError("x")], ids=repr)
async def test_a_source_that_cannot_be_listed_does_not_change_the_error(error: Exception) -> None:
    """Regression: its error took the place of the suggestions, or of the error for the URI."""

    class Broken(Source):
        name, uri = "broken", "note://"

        def matches(self, uri: str) -> bool:
            return uri.startswith("note://")

        def stat(self, uri: str) -> t.Resource:
            raise ResourceNotFound(uri)

        def read(self, uri: str) -> t.ReadResourceResult:
            raise ResourceNotFound(uri)

        def documents(self, after: str | None, limit: int) -> Any:
            raise error

        def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            return [], None

    server = Server("harbour")
    server.resources.add("note://shop/alphabet.md", lambda: "abc")
    server.include(Broken())
    message = await not_found_message(server, "note://shop/alphabte.md")
    assert "Did you mean note://shop/alphabet.md?" in message


async def test_the_number_of_concurrent_searches_for_suggestions_is_bounded() -> None:
    server = Server("s")
    server.include(NumberedDocuments(10))
    server.resources.near_uri_searches = near_uris_module.MAX_CONCURRENT_SEARCHES
    assert await not_found_message(server, "shelf://00003") == "Resource not found: shelf://00003"
    server.resources.near_uri_searches -= 1
    assert "Did you mean" in await not_found_message(server, "shelf://00003")
    assert server.resources.near_uri_searches == near_uris_module.MAX_CONCURRENT_SEARCHES - 1
