"""The tools with a policy: descriptions, notes, errors and cursors name only what the caller may read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import ask
from wharfinger import Server
from wharfinger import types as t
from wharfinger.policy import Policy, Rule
from wharfinger.source import ResourcePage, Source
from wharfinger.sources import files, resource_tools, sql, tables


class Shelf(Source):
    """A directory of 300 resources, which does not check policies itself."""

    name, uri = "shelf", "shelf://top"
    names: Sequence[str] = [*(f"closed{number}" for number in range(150)), *(f"open{number}" for number in range(150))]

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf://")

    def read(self, uri: str) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="a folder")])

    def children(self, uri: str, after: str | None = None, limit: int = 100) -> ResourcePage:
        begin = 0 if after is None else self.names.index(after) + 1
        found = [t.Resource(uri=f"shelf://top/{name}", name=name) for name in self.names[begin : begin + limit]]
        return found, found[-1].name if begin + limit < len(self.names) else None


POLICY = Policy(
    allow=[
        Rule(who="sub:ann"),
        Rule(who="sub:bob", do="call"),
        Rule(who="sub:eve", do="call"),
        Rule(
            who="sub:bob",
            do="read",
            what=(
                "file:///seen/**",
                "sqlite://open/**",
                "sqlite://half/**",
                "shelf://top",
            ),
        ),
        Rule(who="sub:bob", do="read", what=("shelf://top/open*",)),
        Rule(
            who="sub:bob",
            do="query",
            what=(
                "sqlite://open/**",
                "sqlite://half/**",
            ),
        ),
    ],
    deny=[Rule(who="sub:bob", what=("sqlite://half/wages/**",))],
)


def database(path: Path, table: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
    return path


@pytest.fixture
def server(tmp_path: Path) -> Server:
    server = Server("harbour", policy=POLICY)
    for label in ("seen", "unseen"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "a.md").write_text("prudence")
        server.include(files(tmp_path / label, label=label))
    (tmp_path / "unseen" / "t.csv").write_text("a,b\n1,2\n")
    server.include(tables(tmp_path / "unseen", label="hushed"))
    for label, table in (("open", "orders"), ("half", "wages"), ("secret", "pay")):
        server.include(sql(f"sqlite:///{database(tmp_path / f'{label}.db', table)}", label=label))
    server.include(Shelf())
    server.include(resource_tools(allow_query=True))
    return server


async def call(server: Server, name: str, principal: str, **arguments: Any) -> str:
    result = (await ask(server, "tools/call", {"name": name, "arguments": arguments}, principal=principal))["result"]
    return str(result["content"][0]["text"])


async def test_descriptions_name_only_what_the_caller_may_read(server: Server) -> None:
    tools: dict[str, dict[str, str]] = {}
    for principal in ("ann", "bob"):
        found = (await ask(server, "tools/list", principal=principal))["result"]["tools"]
        tools[principal] = {tool["name"]: tool["description"] for tool in found}
    assert "hushed" in tools["ann"]["read_resource"] and "secret" in tools["ann"]["query"]
    descriptions = json.dumps(tools["bob"])
    assert not any(hidden in descriptions for hidden in ("hushed", "secret", "unseen"))
    assert "Databases: open (SQLite), half (SQLite)." in tools["bob"]["query"]
    assert "file:///seen/" in tools["bob"]["read_resource"]


async def test_directories_lists_and_notes_name_only_what_the_caller_may_read(server: Server) -> None:
    for text in (
        await call(server, "read_directory", "bob"),
        await call(server, "search", "bob", query="nowhere to be found"),
        await call(server, "search", "bob", query="prudence"),
        await call(server, "search", "bob", query="prudence", source="nowhere"),
        await call(server, "list_resources", "bob"),
    ):
        assert "unseen" not in text and "hushed" not in text and "secret" not in text
        assert "seen" in text
    assert "unseen" in await call(server, "search", "ann", query="prudence")


async def test_a_database_with_a_hidden_table_accepts_no_statements(server: Server) -> None:
    assert "rows" in await call(server, "query", "bob", statement="SELECT * FROM orders", source="open")
    missing = "Choose a database with `source`: open."
    for source in ("half", "secret", "nowhere"):
        assert await call(server, "query", "bob", statement="SELECT 1", source=source) == missing
    assert "rows" in await call(server, "query", "ann", statement="SELECT * FROM wages", source="half")


async def test_a_caller_who_may_query_no_database_is_told_so(server: Server) -> None:
    """A bug: the error asked to choose from an empty list of databases."""
    missing = "There is no database that you may query, or none can be reached now."
    assert await call(server, "query", "eve", statement="SELECT 1") == missing


async def test_pages_of_a_directory_omit_hidden_entries_and_cursors_reveal_nothing(server: Server) -> None:
    names: list[str] = []
    cursors: list[str] = []
    for _ in range(5):
        arguments = {"cursor": cursors[-1]} if cursors else {}
        found = json.loads(await call(server, "read_directory", "bob", uri="shelf://top", **arguments))
        names += [entry["uri"].rpartition("/")[2] for entry in found["entries"]]
        if "nextCursor" not in found:
            break
        cursors.append(found["nextCursor"])
    assert names == [f"open{number}" for number in range(150)]
    assert len(cursors) == 1 and "open" not in cursors[0]
    text = await call(server, "read_directory", "ann", uri="shelf://top", cursor=cursors[0])
    assert "the cursor does not belong to it" in text
