"""A server with a folder, a resource of its own and the resource tools, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.sources import Folder
from wharfinger.sources.resource_tool_set import resource_tools

Use = Callable[[Client], Awaitable[Any]]
Ask = Callable[[Use], Any]


@pytest.fixture
def ask(source: Folder) -> Ask:
    """Run something with a client of a server that has the folder, a resource of its own, and the resource tools."""
    server = Server("harbour")
    server.include(resource_tools())

    @server.resource("notes://today", mime_type="text/markdown")
    def today() -> str:
        """The pilot's notes."""
        return "fog"

    server.include(source)

    def run(use: Use) -> Any:
        async def main() -> Any:
            async with Client(server) as client:
                return await use(client)

        return asyncio.run(main())

    return run


def call(ask: Ask, tool: str, **arguments: Any) -> tuple[Any, list[t.ContentBlock]]:
    """Return `(structured content, blocks)` of a call; the first block must repeat the structured content."""
    result = ask(lambda client: client.call_tool(tool, arguments))
    if result.structured:
        assert isinstance(result.content[0], t.TextContent)
        assert msgspec.json.decode(result.content[0].text) == result.structured
        assert all(isinstance(block, t.ResourceLink) for block in result.content[1:])
    return result.structured, list(result.content)
