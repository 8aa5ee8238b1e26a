"""Arguments in headers (2026-07-28, x-mcp-header), with a hand-written HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from wharfinger.client import Client
from wharfinger.errors import RemoteError

QUAY = {"type": "object", "properties": {"quay": {"type": "integer", "x-mcp-header": "Quay"}}}
WRONG = {"type": "object", "properties": {"quay": {"type": "number", "x-mcp-header": "Quay"}}}
TOOLS = [{"name": "berth", "inputSchema": QUAY}, {"name": "wrong", "inputSchema": WRONG}]


def call_with_refusals(refusals: int) -> tuple[list[tuple[str, str | None]], list[str], Any]:
    """Call a tool of a server that refuses the first calls. Return its requests, the listed tools and the outcome."""
    requests: list[tuple[str, str | None]] = []
    outcome: list[Any] = []
    left = refusals

    def reply(message: dict[str, Any], header: str | None) -> dict[str, Any]:
        nonlocal left
        match message["method"]:
            case "server/discover":
                return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}}
            case "tools/list":
                return {"result": {"tools": TOOLS, "resultType": "complete"}}
            case _ if left:
                left -= 1
                return {"error": {"code": -32020, "message": "Mcp-Param-Quay is missing"}}
            case _:
                return {"result": {"content": [], "structuredContent": header, "resultType": "complete"}}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:-2])
                message = json.loads(await reader.readexactly(int(headers["content-length"])))
                requests.append((message["method"], headers.get("mcp-param-quay")))
                body = json.dumps(
                    {"jsonrpc": "2.0", "id": message["id"], **reply(message, headers.get("mcp-param-quay"))}
                ).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        async with server, Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp") as client:
            try:
                outcome.append((await client.call_tool("berth", {"quay": 7})).data)
            except RemoteError as error:
                outcome.append(error)
            outcome.append([tool.name for tool in await client.list_tools()])

    asyncio.run(asyncio.wait_for(test(), 10))
    return requests[1:-1], outcome[1], outcome[0]


def test_a_refused_call_is_repeated_with_the_headers_of_the_list() -> None:
    """The client lists the tools and repeats the call. A tool with an invalid schema is left out."""
    assert call_with_refusals(refusals=1) == (
        [("tools/call", None), ("tools/list", None), ("tools/call", "7")],
        ["berth"],
        "7",
    )


def test_a_call_that_is_refused_twice_raises_the_error() -> None:
    requests, _, error = call_with_refusals(refusals=2)
    assert [method for method, _ in requests] == ["tools/call", "tools/list", "tools/call"]
    with pytest.raises(RemoteError, match="Mcp-Param-Quay is missing"):
        raise error
