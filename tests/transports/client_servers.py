"""Stub HTTP servers for the tests of client transports. A handler writes the response to each request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Raw

from wharfinger import types as t
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.transports.http_client.http_link import HttpLink

LIMITS = Limits(message=100_000, depth=64)
STATELESS, HANDSHAKE = REVISIONS["2026-07-28"], REVISIONS["2025-11-25"]


class ReceivedRequest(msgspec.Struct):
    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)


RequestHandler = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


@contextlib.asynccontextmanager
async def stub_server(handler: RequestHandler, **options: Any) -> AsyncIterator[str]:
    """Start a server that answers each request with `handler`, and yield its base URL."""
    open_writers: set[asyncio.StreamWriter] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                verb, path, _ = head[0].split(" ")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await handler(ReceivedRequest(verb, path, headers, body), writer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle_connection, "127.0.0.1", 0, **options)
    scheme = "https" if options.get("ssl") else "http"
    async with server:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in open_writers:  # closing a server waits for its connections
            writer.transport.abort()


@contextlib.asynccontextmanager
async def open_link(
    handler: RequestHandler, rules: Any = STATELESS, limits: Limits = LIMITS, auth: Any = None
) -> AsyncIterator[Any]:
    """Yield a link to a server that answers each request with `handler`."""
    async with stub_server(handler) as base:
        link = HttpLink(f"{base}/mcp", limits, auth=auth)
        link.rules = rules
        try:
            yield link
        finally:
            await link.close()


def write_response(
    writer: asyncio.StreamWriter,
    body: bytes,
    content_type: str = "application/json",
    status: str = "200 OK",
    header_lines: str = "",
) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{header_lines}\r\n"
    writer.write(head.encode() + body)


def write_accepted(writer: asyncio.StreamWriter) -> None:
    """Write the response to a notification."""
    write_response(writer, b"", status="202 Accepted")


def encode_result(request: ReceivedRequest, **members: Any) -> bytes:
    """Return the JSON-RPC response to a request, with these members in its result."""
    return json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": members}).encode()


def start_event_stream(writer: asyncio.StreamWriter) -> None:
    """Write the head of a response that is an event stream."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")


def encode_event(**members: Any) -> bytes:
    """Return an event with a JSON-RPC message of these members."""
    return b"event: message\ndata: " + json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n\n"


def send_request(
    link: Any, method: str = "tools/list", timeout: float | None = 10.0, **params: Any
) -> Coroutine[Any, Any, Message]:
    call: Coroutine[Any, Any, Message] = link.request(method, t.PaginatedRequestParams(**params), timeout=timeout)
    return call


def decode_result(message: Message) -> Any:
    """Return the decoded result of a response."""
    assert isinstance(message.result, Raw)
    return json.loads(bytes(message.result))
