"""Counts the tokens of the resource tools' definitions, which hosts send in every conversation.

python benchmarks/tool_tokens.py

The whole JSON of each definition is counted, with titles, annotations and output schema. Most hosts send a model only
the name, the description and the input schema. A token is estimated as four characters, as in `wharfinger doctor`,
since tokenizers differ between models; for JSON and English that is about right.

The descriptions list the queries of each kind of source, so the server has one source of each kind.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import msgspec

from wharfinger import Client, Server
from wharfinger.cli.doctor.survey import tokens
from wharfinger.source import Source
from wharfinger.sources import files, git, logs, objects, sql, tables
from wharfinger.sources.resource_tool_set import resource_tools

MAX_TOKENS = 1_500
"""The maximum number of tokens of all definitions."""


def _sources(root: Path) -> list[Source]:
    """Return a source of each kind that has its own queries."""
    (root / "app.log").write_text("quiet\n")
    (root / "tides.csv").write_text("port,high\nHull,6.1\n")
    sqlite3.connect(root / "shop.db").close()
    subprocess.run(["git", "init", "-q", str(root / "harbour")], check=True)
    return [
        files(root, label="charts"),
        git(root / "harbour"),
        logs(root / "*.log", label="app"),
        sql(f"sqlite:///{root}/shop.db", label="shop"),
        tables(str(root / "*.csv"), label="sales"),
        objects("memory://store"),
    ]


def definitions() -> dict[str, str]:
    """Return the JSON of each tool's definition."""

    async def listed(root: Path) -> dict[str, str]:
        server = Server("tokens")
        for source in _sources(root):
            server.include(source)
        server.include(resource_tools(allow_query=True))
        async with Client(server) as client:
            return {tool.name: msgspec.json.encode(tool).decode() for tool in await client.list_tools()}

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(listed(Path(folder)))


def main() -> int:
    """Print a table. Returns 1 if there are more than `MAX_TOKENS`."""
    total = 0
    for name, text in definitions().items():
        total += tokens(text)
        print(f"{name:16}{tokens(text):>6} tokens, about")
    print(f"{'all':16}{total:>6} of {MAX_TOKENS:,} at most")
    return int(total > MAX_TOKENS)


if __name__ == "__main__":
    raise SystemExit(main())
