"""The tools that are added, their size in tokens, and conflicts of names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.sources.resource_tool_set.conftest import Runner, call
from wharfinger import Client, Context, Server, ToolError
from wharfinger import types as t
from wharfinger.cli.doctor.survey import tokens
from wharfinger.source import Source, UriParameter
from wharfinger.sources import files, logs
from wharfinger.sources.resource_tool_set import resource_tools

NAMES = ["list_resources", "read_resource", "read_directory", "search", "fetch"]


def test_the_tools_are_listed_with_titles_descriptions_and_annotations(run: Runner) -> None:
    async def list_tools(client: Client) -> list[t.Tool]:
        return list(await client.list_tools())

    tools = {tool.name: tool for tool in run(list_tools)}
    assert list(tools) == NAMES
    for tool in tools.values():
        assert tool.annotations == t.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        )
        assert tool.title
        assert tool.description
        assert all(schema["description"] for schema in tool.input_schema["properties"].values())
    assert tools["search"].input_schema["required"] == ["query"]
    assert tools["fetch"].input_schema["required"] == ["id"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_resource", {"uri": "file:///charts/nothing"}),
        ("read_resource", {"uri": "no uri"}),
        ("read_directory", {"uri": "file:///charts/README.md"}),
        ("read_directory", {"uri": "file:///charts", "cursor": "nonsense"}),
        ("list_resources", {"cursor": "nonsense"}),
        ("list_resources", {"cursor": '["nonsense",null]'}),
        ("list_resources", {"cursor": '["nonsense",null,0]'}),
        ("fetch", {"id": "file:///charts/../secret"}),
    ],
)
def test_an_invalid_call_returns_a_tool_error(run: Runner, tool: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ToolError) as caught:
        call(run, tool, **arguments)
    assert "Internal" not in str(caught.value)


@pytest.mark.parametrize("added_first", [True, False])
def test_a_tool_of_the_author_takes_precedence(added_first: bool) -> None:
    server = Server("own")

    def search(query: str, ctx: Context[Any]) -> str:
        return "mine"

    if added_first:
        server.tools.add(search)
    server.include(resource_tools())
    if not added_first:
        server.tools.add(search)

    async def main() -> str:
        async with Client(server) as client:
            assert len(list(await client.list_tools())) == 5
            return str((await client.call_tool("search", {"query": "x"})).text)

    assert asyncio.run(main()) == "mine"


def test_the_query_tool_is_added_only_with_a_database_and_allow_query() -> None:
    class Ledger(Source):
        def query(self, statement: str, limit: int) -> None: ...

    def names(*parts: Any) -> list[str]:
        server = Server("sql")
        for part in parts:
            server.include(part)

        async def main() -> list[str]:
            async with Client(server) as client:
                return [tool.name for tool in await client.list_tools()]

        return asyncio.run(main())

    assert names(Ledger(), resource_tools()) == NAMES
    assert names(resource_tools(allow_query=True)) == NAMES
    assert names(Ledger(), resource_tools(allow_query=True)) == [*NAMES, "query"]


def test_the_tool_definitions_have_at_most_1500_tokens() -> None:
    """`wharfinger doctor` estimates that four characters are one token."""
    from benchmarks.tool_tokens import MAX_TOKENS, definitions

    texts = definitions().values()
    assert len(texts) == 6
    for example in ("level=error", "tail=200", "rows=1-200", "limit=200", "Databases: shop"):
        assert any(example in text for text in texts), example
    assert sum(tokens(text) for text in texts) <= MAX_TOKENS == 1_500


def test_descriptions_have_queries_that_a_source_learns_while_it_starts() -> None:
    """A bug: those of an API whose document is fetched were never named."""

    class LearningSource(Source):
        uri = "tide://"

        def matches(self, uri: str) -> bool:
            return False

        async def start(self) -> None:
            self.parameters = {"port": UriParameter("dover", "the tides of this port")}
            server.list_changed("resources")

    server = Server("sea")
    server.include(LearningSource())
    server.include(resource_tools())

    async def description() -> str:
        async with Client(server) as client:
            return next(str(tool.description) for tool in await client.list_tools() if tool.name == "read_resource")

    assert "tide:/…?port=dover" in asyncio.run(description())


def test_descriptions_name_new_sources_but_never_change_the_tools_of_the_author(tmp_path: Path) -> None:
    server = Server("later")
    server.include(resource_tools())
    server.tools.remove("fetch")

    async def tool_descriptions() -> dict[str, str]:
        async with Client(server) as client:
            return {tool.name: str(tool.description) for tool in await client.list_tools()}

    assert "To read less, add a query" not in asyncio.run(tool_descriptions())["read_resource"]
    (tmp_path / "app.log").write_text("quiet\n")
    server.include(logs(tmp_path / "*.log", label="app"))
    descriptions = asyncio.run(tool_descriptions())
    assert "log://app/{+path}?tail=200&since=15m" in descriptions["read_resource"]
    assert list(descriptions) == ["list_resources", "read_resource", "read_directory", "search"]

    @server.tool
    def read_resource(uri: str) -> str:
        """The author's tool."""
        return "mine"

    server.include(files(tmp_path, label="more"))
    assert asyncio.run(tool_descriptions())["read_resource"] == "The author's tool."
