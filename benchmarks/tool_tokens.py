"""What the resource tools' definitions cost in every conversation of a host that knows only tools.

python benchmarks/tool_tokens.py

A definition is counted as a host gets it: all of its JSON, with titles, annotations and output schema, of which most
hosts send a model only name, description and input schema. A token is taken for four characters, as `wharfinger doctor`
does, since no model's own tokenizer is at hand everywhere; for JSON and English that is about right.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from wharfinger import Client, Server
from wharfinger.cli.doctor.survey import tokens
from wharfinger.source import Source
from wharfinger.sources.resource_tool_set import resource_tools

MOST = 1_000
"""What all of them together may cost."""


class Database(Source):
    """What makes the tool `query` appear."""

    def query(self, statement: str, limit: int) -> Any:
        """Never asked."""


def definitions() -> dict[str, str]:
    """The JSON of each tool's definition."""
    server = Server("tokens")
    server.include(Database())
    server.include(resource_tools(allow_query=True))

    async def listed() -> dict[str, str]:
        async with Client(server) as client:
            return {tool.name: msgspec.json.encode(tool).decode() for tool in await client.list_tools()}

    return asyncio.run(listed())


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
