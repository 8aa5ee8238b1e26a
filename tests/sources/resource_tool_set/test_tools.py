"""Which tools are added, their cost, and conflicts of names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.sources.resource_tool_set.conftest import Ask, call
from wharfinger import Client, Context, Server, ToolError
from wharfinger import types as t
from wharfinger.cli.doctor.survey import tokens
from wharfinger.source import Source
from wharfinger.sources import files, logs
from wharfinger.sources.resource_tool_set import resource_tools

NAMES = ["list_resources", "read_resource", "read_directory", "search", "fetch"]


def test_the_tools_are_listed_with_titles_descriptions_and_annotations(ask: Ask) -> None:
    async def listed(client: Client) -> list[t.Tool]:
        return list(await client.list_tools())

    tools = {tool.name: tool for tool in ask(listed)}
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
        ("fetch", {"id": "file:///charts/../secret"}),
    ],
)
def test_an_impossible_request_is_reported_to_the_model(ask: Ask, tool: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ToolError) as caught:
        call(ask, tool, **arguments)
    assert "Internal" not in str(caught.value)


@pytest.mark.parametrize("first", [True, False])
def test_a_tool_of_the_author_takes_precedence(first: bool) -> None:
    server = Server("own")

    def search(query: str, ctx: Context[Any]) -> str:
        return "mine"

    if first:
        server.tools.add(search)
    server.include(resource_tools())
    if not first:
        server.tools.add(search)

    async def main() -> str:
        async with Client(server) as client:
            assert len(list(await client.list_tools())) == 5
            return str((await client.call_tool("search", {"query": "x"})).text)

    assert asyncio.run(main()) == "mine"


def test_a_database_alone_adds_no_query_tool() -> None:
    """Statements are accepted only if the author allows them."""

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


def test_the_definitions_cost_few_tokens() -> None:
    """1,500 at most, by the estimate of `wharfinger doctor`: four characters are a token."""
    from benchmarks.tool_tokens import MOST, definitions

    each = definitions()
    assert len(each) == 6
    for message in ("level=error", "tail=200", "rows=1-200", "limit=200", "Databases: shop"):
        assert any(message in text for text in each.values()), message
    assert sum(tokens(text) for text in each.values()) <= MOST == 1_500


def test_descriptions_name_the_sources_and_leave_those_of_the_author(tmp_path: Path) -> None:
    server = Server("later")
    server.include(resource_tools())
    server.tools.remove("fetch")

    async def described() -> dict[str, str]:
        async with Client(server) as client:
            return {tool.name: str(tool.description) for tool in await client.list_tools()}

    assert "Ask for less by a query" not in asyncio.run(described())["read_resource"]
    (tmp_path / "app.log").write_text("quiet\n")
    server.include(logs(tmp_path / "*.log", label="app"))
    message = asyncio.run(described())
    assert "log://app/{+path}?tail=200&since=15m" in message["read_resource"]
    assert list(message) == ["list_resources", "read_resource", "read_directory", "search"]

    @server.tool
    def read_resource(uri: str) -> str:
        """The author's tool."""
        return "mine"

    server.include(files(tmp_path, label="more"))
    assert asyncio.run(described())["read_resource"] == "The author's tool."
