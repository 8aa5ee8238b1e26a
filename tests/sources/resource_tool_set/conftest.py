"""A server with a folder, a resource and the resource tools, and functions that call it with a client."""

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

ClientCode = Callable[[Client], Awaitable[Any]]
Runner = Callable[[ClientCode], Any]


@pytest.fixture
def run(source: Folder) -> Runner:
    """Return a function that runs code with a client of a server with a folder, a resource and the resource tools."""
    server = Server("harbour")
    server.include(resource_tools())

    @server.resource("notes://today", mime_type="text/markdown")
    def today() -> str:
        """The pilot's notes."""
        return "fog"

    server.include(source)

    return runner_of(server)


def runner_of(server: Server) -> Runner:
    """Return a function that runs code with a client of `server`."""

    def run(code: ClientCode) -> Any:
        async def main() -> Any:
            async with Client(server) as client:
                return await code(client)

        return asyncio.run(main())

    return run


def call(run: Runner, tool: str, **arguments: Any) -> tuple[Any, list[t.ContentBlock]]:
    """Call a tool, and return its structured content and its blocks. The first block repeats the structured content."""
    result = run(lambda client: client.call_tool(tool, arguments))
    if result.structured:
        assert isinstance(result.content[0], t.TextContent)
        assert msgspec.json.decode(result.content[0].text) == result.structured
        assert all(isinstance(block, t.ResourceLink) for block in result.content[1:])
    return result.structured, list(result.content)
