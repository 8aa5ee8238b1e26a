"""The search tool: ChatGPT's format, links and filters; and the query tool: SQL statements."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.sources.resource_tool_set.conftest import Runner, call, runner_of
from wharfinger import Client, Server, ToolError
from wharfinger import types as t
from wharfinger.source import Hit, Source
from wharfinger.sources import Folder, files
from wharfinger.sources.resource_tool_set import resource_tools
from wharfinger.sources.resource_tool_set.answer_budget import DEFAULT_TOKENS
from wharfinger.sources.search import search_index


def test_search_and_fetch_answer_in_the_format_of_chatgpt(run: Runner, source: Folder) -> None:
    uri = f"{source.uri}/harbours/hull.ts"
    assert call(run, "search", query="depth")[0] == {
        "results": [{"id": uri, "title": "harbours/hull.ts", "url": uri, "text": "1: export const depth = 4;"}]
    }
    assert call(run, "fetch", id=uri)[0] == {
        "id": uri,
        "title": "hull.ts",
        "text": "export const depth = 4;\n",
        "url": uri,
        "metadata": {"mimeType": "text/x-typescript"},
    }
    assert call(run, "search", query="pilot")[0]["results"][0]["id"] == "notes://today"
    assert call(run, "fetch", id="notes://today")[0]["text"] == "fog"


def test_a_search_without_hits_reports_what_was_searched(run: Runner) -> None:
    found, _ = call(run, "search", query="nothing like it", path="*.md")
    assert found["results"] == []
    assert "Looked through the names and texts of charts, in paths like *.md." in found["note"]
    assert "Try fewer words" in found["note"]


def test_hits_that_do_not_fit_are_counted() -> None:
    class WordySource(Source):
        name = "wordy"

        def matches(self, uri: str) -> bool:
            return uri.startswith("wordy:")

        def search(self, query: str, limit: int) -> list[Hit]:
            return [Hit(uri=f"wordy:{number}", title="x" * 5_000, snippet="y" * 5_000) for number in range(limit)]

    server = Server("wordy")
    server.include(WordySource())
    server.include(resource_tools())

    async def main() -> tuple[Any, int]:
        async with Client(server) as client:
            result: Any = await client.call_tool("search", {"query": "x"})
            return result.structured, len(result.content[0].text)

    found, length = asyncio.run(main())
    assert length <= DEFAULT_TOKENS * 4
    assert found["note"] == (
        f"{20 - len(found['results'])} more results are too long for this answer: narrow the search by path or source."
    )


@pytest.mark.parametrize("tool", ["search", "list_resources"])
def test_the_texts_of_one_resource_are_within_the_budget(tool: str) -> None:
    """A bug: an answer had several megabytes if another server listed a resource with such a title or type."""
    long = "tide " * 200_000
    resource = t.Resource(
        uri="wordy:1",
        name=long,
        title=long,
        description=long,
        mime_type=long,
        annotations=t.Annotations(last_modified=long),
    )

    class WordySource(Source):
        name = "wordy"

        def matches(self, uri: str) -> bool:
            return uri.startswith("wordy:")

        def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            return [resource], None

        def search(self, query: str, limit: int) -> list[Hit]:
            return [Hit(uri=resource.uri, title=long, resource=resource)]

    server = Server("wordy")
    server.include(WordySource())
    server.include(resource_tools())
    arguments = {"query": "tide", "links": True} if tool == "search" else {}
    found, blocks = call(runner_of(server), tool, **arguments)
    assert len(found["results" if tool == "search" else "resources"]) == 1
    assert len(msgspec.json.encode(blocks)) <= DEFAULT_TOKENS * 4


def test_a_search_returns_links_only_on_request(run: Runner) -> None:
    """AutoGen 0.7 and Semantic Kernel 1.45 lose an answer that has a link, and LangChain turns it into a file."""
    for arguments in ({}, {"links": False}, {"source": "charts", "type": "text"}):
        _, blocks = call(run, "search", query="depth", **arguments)
        assert [type(block) for block in blocks] == [t.TextContent]


def test_the_link_of_a_hit_is_described_by_its_matching_line(run: Runner, source: Folder) -> None:
    _, blocks = call(run, "search", query="depth", links=True)
    link = blocks[1]
    assert isinstance(link, t.ResourceLink)
    assert (link.uri, link.name, link.title, link.mime_type, link.description) == (
        f"{source.uri}/harbours/hull.ts",
        "hull.ts",
        "harbours/hull.ts",
        "text/x-typescript",
        "1: export const depth = 4;",
    )


@pytest.mark.parametrize(
    ("max_length", "name"), [(2_000, "query"), (2_000, "source"), (2_000, "type"), (1_000, "path")]
)
def test_the_length_of_queries_and_filters_is_limited(run: Runner, max_length: int, name: str) -> None:
    if name != "source":
        call(run, "search", **{"query": "h", name: "*a" * (max_length // 2)})
    with pytest.raises(ToolError, match="Search for at most 2,000 characters, with a path of at most 1,000"):
        call(run, "search", **{"query": "h", name: "a" * (max_length + 1)})


@pytest.mark.parametrize("indexed", [False, True])
def test_hostile_paths_and_queries_are_answered_quickly(tmp_path: Path, indexed: bool) -> None:
    """Regression: a path like `*a*a…*b`, and a word that almost matches everywhere, took exponential backtracking."""
    folder = tmp_path / "charts"
    folder.mkdir()
    (folder / ("a" * 200)).write_text("tide")
    (folder / "long.txt").write_text("ab" * (1 << 18))
    server = Server("searched")
    server.include(files(folder))
    server.include(resource_tools())
    if indexed:
        server.include(search_index(tmp_path / "index"))

    async def main() -> None:
        async with Client(server) as client:
            await client.call_tool("search", {"query": "tide"})
            began = time.process_time()
            for arguments in ({"query": "tide", "path": "*a" * 499 + "b"}, {"query": "ab" * 499 + "c"}):
                found: Any = await client.call_tool("search", arguments)
                assert found.structured["results"] == []
            for words in ("a b " * 499, '"' * 2_000, '"a ' * 600):
                await client.call_tool("search", {"query": words})
            assert time.process_time() - began < 5

    asyncio.run(main())


def test_a_search_is_narrowed_by_type_path_and_source(run: Runner, source: Folder) -> None:
    def titles(**filters: str) -> list[str]:
        return [result["title"] for result in call(run, "search", query="h", **filters)[0]["results"]]

    assert titles(type="text/csv") == ["tides.csv"]
    assert titles(path="harbours/", type="text") == ["harbours/hull.ts"]
    assert titles(path="*.md", source="charts") == ["README.md"]
    with pytest.raises(ToolError, match="There is no source 'elsewhere': there are charts"):
        titles(source="elsewhere")


def test_a_hit_in_a_long_file_links_to_its_window(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    root.mkdir()
    (root / "big.log").write_text("all quiet\n" * 30_000 + "Collision at berth 4\n" + "all quiet\n" * 30_000)
    server = Server("far")
    for part in (files(root), search_index(tmp_path / "cache"), resource_tools()):
        server.include(part)

    async def main() -> tuple[str, str]:
        async with Client(server) as client:
            result = await client.call_tool("search", {"query": "collision"})
            uri: str = result.structured["results"][0]["id"]
            fetched = await client.call_tool("fetch", {"id": uri})
            return uri, fetched.structured["text"]

    uri, text = asyncio.run(main())
    assert uri == "file:///logs/big.log?lines=29981-30181"
    assert "Collision" in text
    assert len(text) < 5_000


class Ledger(Source):
    """A source that accepts statements, like a database."""

    name = "ledger"
    uri = "ledger://"

    def matches(self, uri: str) -> bool:
        return uri.startswith("ledger://")

    def query(self, statement: str, parameters: tuple[Any, ...] = (), limit: int = 200) -> Any:
        from wharfinger.errors import InvalidArgument
        from wharfinger.sources.sql_database.sql_query import QueryAnswer

        if not statement.startswith("SELECT"):
            raise InvalidArgument("Only reading is allowed.")
        return QueryAnswer(
            columns=["port", "depth"], rows=[["Hull", 6.1], ["Oslo", None]][:limit], truncated="There are more."
        )


def run_query(server: Server, **arguments: Any) -> Any:
    async def main() -> Any:
        async with Client(server) as client:
            return (await client.call_tool("query", arguments)).structured

    return asyncio.run(main())


@pytest.mark.parametrize("tools_first", [True, False])
def test_the_query_tool_runs_statements_of_the_chosen_database(tools_first: bool) -> None:
    server = Server("sql")
    for part in (
        (resource_tools(allow_query=True), Ledger()) if tools_first else (Ledger(), resource_tools(allow_query=True))
    ):
        server.include(part)
    assert run_query(server, statement="SELECT 1") == {
        "columns": ["port", "depth"],
        "rows": [["Hull", 6.1], ["Oslo", None]],
        "cut": "These are rows 1 to 2, and there are more: aggregate, or narrow the statement. To continue, call query "
        "with the same statement and skip=2.",
    }
    with pytest.raises(ToolError, match="Only reading"):
        run_query(server, statement="DROP TABLE ports")
    with pytest.raises(ToolError, match="Choose a database with `source`: ledger"):
        run_query(server, statement="SELECT 1", source="other")


def test_the_query_tool_reads_a_sqlite_database_in_parts(tmp_path: Path) -> None:
    import sqlite3

    from wharfinger.sources import sql

    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE berths (name TEXT, depth REAL)")
        connection.executemany("INSERT INTO berths VALUES (?, ?)", [(f"berth {n}", n / 2) for n in range(150)])
    connection.close()
    server = Server("shop")
    server.include(sql(f"sqlite:///{tmp_path}/shop.db", label="shop"))
    server.include(resource_tools(allow_query=True))
    answer = run_query(server, statement="SELECT name, depth FROM berths ORDER BY depth", source="shop")
    assert answer["columns"] == ["name", "depth"]
    assert len(answer["rows"]) == 100
    assert answer["rows"][3] == ["berth 3", 1.5]
    assert answer["cut"].endswith("To continue, call query with the same statement and skip=100.")
    rest = run_query(server, statement="SELECT name, depth FROM berths ORDER BY depth", skip=100)
    assert [row[0] for row in rest["rows"]] == [f"berth {number}" for number in range(100, 150)]
    assert "cut" not in rest
    assert (
        run_query(server, statement="SELECT name FROM berths WHERE depth > 900")["note"]
        == "No rows match the statement."
    )
    with pytest.raises(ToolError, match="skip is 9,901: give a number from 0 to 9,900"):
        run_query(server, statement="SELECT 1", skip=9_901)
    with pytest.raises(ToolError):
        run_query(server, statement="DELETE FROM berths")


def test_all_rows_with_long_values_are_returned_by_several_calls(tmp_path: Path) -> None:
    import sqlite3

    from wharfinger.sources import sql

    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE notes (id INTEGER, a TEXT, b BLOB)")
        connection.executemany(
            "INSERT INTO notes VALUES (?, ?, ?)", [(n, "x" * 70_000, bytes([0, 255]) * 9_000) for n in range(60)]
        )
    connection.close()
    server = Server("shop")
    server.include(sql(f"sqlite:///{tmp_path}/shop.db", label="shop"))
    server.include(resource_tools(allow_query=True))
    ids: list[int] = []

    async def main() -> None:
        async with Client(server) as client:
            arguments: dict[str, Any] = {"statement": "SELECT * FROM notes"}
            while True:
                result: Any = await client.call_tool("query", arguments)
                assert len(result.content[0].text) <= DEFAULT_TOKENS * 4
                found = result.structured
                ids.extend(row[0] for row in found["rows"])
                assert all(row[1]["characters"] == 70_000 for row in found["rows"])
                assert all(row[2] == {"type": "application/octet-stream", "bytes": 18_000} for row in found["rows"])
                if "cut" not in found:
                    break
                arguments["skip"] = int(found["cut"].rpartition("skip=")[2].rstrip("."))

    asyncio.run(main())
    assert ids == list(range(60))


def test_an_answer_names_its_database_and_how_to_read_shortened_values() -> None:
    class LabelledAnswer(NamedTuple):
        columns: list[str]
        rows: list[list[Any]]
        truncated: str = ""
        shortened: str = "Select substr(port, 5)."
        database: str = "ledger"
        dialect: str = "SQLite"

    class SqliteLedger(Ledger):
        dialect = "SQLite"

        def query(self, statement: str, parameters: tuple[Any, ...] = (), limit: int = 200) -> Any:
            return LabelledAnswer(["port"], [["Hull"]])

    server = Server("labelled")
    server.include(SqliteLedger())
    server.include(resource_tools(allow_query=True))
    assert run_query(server, statement="SELECT 1") == {
        "columns": ["port"],
        "rows": [["Hull"]],
        "database": "ledger (SQLite)",
        "shortened": "Select substr(port, 5).",
    }

    async def query_description() -> str:
        async with Client(server) as client:
            return str(next(tool.description for tool in await client.list_tools() if tool.name == "query"))

    assert asyncio.run(query_description()).endswith("Databases: ledger (SQLite).")


def test_a_statement_with_more_than_200_columns_is_refused(tmp_path: Path) -> None:
    from wharfinger.sources.sql_database.sql_query import QueryAnswer

    class WideLedger(Ledger):
        def query(self, statement: str, parameters: tuple[Any, ...] = (), limit: int = 200) -> Any:
            number = int(statement)
            return QueryAnswer(columns=[f"c{n}" for n in range(number)], rows=[["x" * 9_000] * number] * 2)

    server = Server("wide")
    server.include(WideLedger())
    server.include(resource_tools(allow_query=True))
    assert len(str(run_query(server, statement="200"))) < DEFAULT_TOKENS * 4
    with pytest.raises(ToolError, match="returns 201 columns: name at most 200 of them"):
        run_query(server, statement="201")
