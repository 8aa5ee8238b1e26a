"""The resources of a server as tools, asked for by a real client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.sources.conftest import many_names
from wharfinger import Client, Context, Server, ToolError
from wharfinger import types as t
from wharfinger.sources import Folder, mirror_tools, mirrors
from wharfinger.sources.mirror_tools import PAGE

Use = Callable[[Client], Awaitable[Any]]


@pytest.fixture
def ask(source: Folder) -> Callable[[Use], Any]:
    """Run something with a client of a server that has the folder, a resource of its own, and the mirrors."""
    server = Server("harbour")
    server.include(mirrors())

    @server.resource("notes://today", mime_type="text/markdown")
    def today() -> str:
        """What the pilot said."""
        return "fog"

    server.include(source)

    def run(use: Use) -> Any:
        async def main() -> Any:
            async with Client(server) as client:
                return await use(client)

        return asyncio.run(main())

    return run


def call(ask: Callable[[Use], Any], tool: str, **arguments: Any) -> tuple[Any, list[t.ContentBlock]]:
    """`(structured content, blocks)` of a call; a text block beside structured content must say the same."""
    result = ask(lambda client: client.call_tool(tool, arguments))
    if result.structured:
        assert [type(block) for block in result.content] == [t.TextContent]
        assert msgspec.json.decode(result.content[0].text) == result.structured
    return result.structured, list(result.content)


def test_the_tools_are_listed_with_what_a_host_wants_to_know(ask: Callable[[Use], Any]) -> None:
    async def listed(client: Client) -> list[t.Tool]:
        return list(await client.list_tools())

    tools = {tool.name: tool for tool in ask(listed)}
    assert list(tools) == ["list_resources", "read_resource", "read_directory", "search", "fetch"]
    for tool in tools.values():
        assert tool.annotations == t.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        )
        assert tool.title
        assert tool.description
        assert all(schema["description"] for schema in tool.input_schema["properties"].values())
    assert tools["search"].input_schema["required"] == ["query"]
    assert tools["fetch"].input_schema["required"] == ["id"]
    assert len(msgspec.json.encode(list(tools.values()))) < 5_000


def test_search_and_fetch_have_the_shapes_that_chatgpt_expects(ask: Callable[[Use], Any], source: Folder) -> None:
    uri = f"{source.uri}/harbours/hull.ts"
    assert call(ask, "search", query="depth")[0] == {"results": [{"id": uri, "title": "harbours/hull.ts", "url": uri}]}
    assert call(ask, "fetch", id=uri)[0] == {
        "id": uri,
        "title": "hull.ts",
        "text": "export const depth = 4;\n",
        "url": uri,
        "metadata": {"mimeType": "text/x-typescript"},
    }
    assert call(ask, "search", query="pilot")[0]["results"][0]["id"] == "notes://today"
    assert call(ask, "fetch", id="notes://today")[0]["text"] == "fog"
    assert call(ask, "search", query="nothing like it")[0] == {"results": []}


def test_what_is_no_text_is_fetched_as_a_hint(ask: Callable[[Use], Any], source: Folder) -> None:
    fetched, _ = call(ask, "fetch", id=f"{source.uri}/harbours/north/buoy.png")
    assert fetched["metadata"] == {"mimeType": "image/png", "size": "16"}
    assert "read_resource" in fetched["text"]


def test_a_very_long_text_is_fetched_in_part_and_that_is_told(
    ask: Callable[[Use], Any], source: Folder, charts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_tools, "FETCHED", 10)
    fetched, _ = call(ask, "fetch", id=f"{source.uri}/README.md")
    assert fetched["text"] == "# Charts\n\n"
    assert fetched["metadata"]["truncated"] == "the first 10 of 32 characters"


def test_resources_are_listed_in_pages_that_go_on(ask: Callable[[Use], Any], source: Folder, charts: Path) -> None:
    many_names(charts, [f"n{number:04d}.txt" for number in range(620)])
    uris: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page, _ = call(ask, "list_resources", **cursor)
        assert len(page["resources"]) <= PAGE
        uris += [resource["uri"] for resource in page["resources"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert len(uris) == len(set(uris)) == 620 + 8 + 1


def test_a_resource_is_listed_in_few_words(ask: Callable[[Use], Any], source: Folder) -> None:
    listed = {resource["uri"]: resource for resource in call(ask, "list_resources")[0]["resources"]}
    hull = listed[f"{source.uri}/harbours/hull.ts"]
    assert (hull["title"], hull["mimeType"], hull["size"]) == ("harbours/hull.ts", "text/x-typescript", 24)
    assert listed["notes://today"]["description"] == "What the pilot said."


def test_a_directory_is_listed_in_pages(ask: Callable[[Use], Any], source: Folder, charts: Path) -> None:
    assert call(ask, "read_directory")[0] == {"entries": [{"uri": source.uri, "mimeType": "inode/directory"}]}
    many_names(charts, [f"n{number:03d}.txt" for number in range(PAGE)])
    first, _ = call(ask, "read_directory", uri=source.uri)
    second, _ = call(ask, "read_directory", uri=source.uri, cursor=first["nextCursor"])
    titles = [entry["title"] for entry in (*first["entries"], *second["entries"])]
    assert titles[:3] == ["harbours", "README.md", "empty.txt"]
    assert len(titles) == len(set(titles)) == PAGE + 4
    assert "nextCursor" not in second


def test_reading_gives_text_pictures_and_whatever_else(ask: Callable[[Use], Any], source: Folder, charts: Path) -> None:
    (charts / "a.zip").write_bytes(b"PK\x03\x04\xff")
    assert call(ask, "read_resource", uri=f"{source.uri}/README.md")[1] == [
        t.TextContent(text="# Charts\n\nSoundings in fathoms.\n")
    ]
    assert call(ask, "read_resource", uri=f"{source.uri}/harbours/north/buoy.png")[1] == [
        t.ImageContent(data=b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", mime_type="image/png")
    ]
    zipped = t.ResourceContents(uri=f"{source.uri}/a.zip", mime_type="application/zip", blob=b"PK\x03\x04\xff")
    assert call(ask, "read_resource", uri=f"{source.uri}/a.zip")[1] == [t.EmbeddedResource(resource=zipped)]


def test_a_directory_is_read_as_its_listing_once(ask: Callable[[Use], Any], source: Folder) -> None:
    _, blocks = call(ask, "read_resource", uri=f"{source.uri}/harbours")
    assert len(blocks) == 1
    assert isinstance(blocks[0], t.TextContent)
    assert blocks[0].text.startswith("charts/harbours/ holds 1 folder and 1 file.")


def test_a_long_text_is_read_in_windows(
    ask: Callable[[Use], Any], source: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_tools, "WINDOW", 20)
    uri = f"{source.uri}/README.md"
    assert call(ask, "read_resource", uri=uri)[1] == [
        t.TextContent(text="# Charts\n\nSoundings "),
        t.TextContent(text="These are characters 0 to 20 of 32: go on with offset=20."),
    ]
    assert call(ask, "read_resource", uri=uri, offset=20)[1] == [t.TextContent(text="in fathoms.\n")]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_resource", {"uri": "file:///charts/nothing"}),
        ("read_resource", {"uri": "no uri"}),
        ("read_directory", {"uri": "file:///charts/README.md"}),
        ("read_directory", {"uri": "file:///charts", "cursor": "nonsense"}),
        ("list_resources", {"cursor": "nonsense"}),
        ("list_resources", {"cursor": '["nonsense",null]'}),
        ("fetch", {"id": "file:///charts/../secret"}),
    ],
)
def test_what_cannot_be_is_told_to_the_model(ask: Callable[[Use], Any], tool: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ToolError) as caught:
        call(ask, tool, **arguments)
    assert "Internal" not in str(caught.value)


@pytest.mark.parametrize("first", [True, False])
def test_a_tool_of_the_author_wins(first: bool) -> None:
    server = Server("own")

    def search(query: str, ctx: Context[Any]) -> str:
        return "mine"

    if first:
        server.add_tool(search)
    server.include(mirrors())
    if not first:
        server.add_tool(search)

    async def main() -> str:
        async with Client(server) as client:
            assert len(list(await client.list_tools())) == 5
            return str((await client.call_tool("search", {"query": "x"})).text)

    assert asyncio.run(main()) == "mine"


def test_a_client_is_told_of_a_change(source: Folder, charts: Path) -> None:
    """The whole way: a file is written, and a client's watch yields."""
    server = Server("live")
    server.include(source)
    uri = f"{source.uri}/tides.csv"

    async def main() -> None:
        async with Client(server) as client, asyncio.timeout(10):
            changes = client.watch(uri)
            waiting = asyncio.ensure_future(anext(aiter(changes)))
            while not server.watching.watched():
                await asyncio.sleep(0)
            (charts / "tides.csv").write_text("new")
            await waiting

    asyncio.run(main())
