"""What the resource tools' definitions cost in every conversation of a host that knows only tools.

python benchmarks/tool_tokens.py

A definition is counted as a host gets it: all of its JSON, with titles, annotations and output schema, of which most
hosts send a model only name, description and input schema. A token is taken for four characters, as `wharfinger doctor`
does, since no model's own tokenizer is at hand everywhere; for JSON and English that is about right.

The descriptions say what each kind of source can be asked, so the server has one of each kind.
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

MOST = 1_500
"""What all of them together may cost."""


def _sources(root: Path) -> list[Source]:
    """A source of each kind that has queries of its own."""
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
    """The JSON of each tool's definition."""

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
    """Print a table; 1 where they cost too much."""
    total = 0
    for name, text in definitions().items():
        total += tokens(text)
        print(f"{name:16}{tokens(text):>6} tokens, about")
    print(f"{'all':16}{total:>6} of {MOST:,} at most")
    return int(total > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
