"""Hand-written HTTP servers for the tests of client transports. A function writes the response to each request."""

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
    """A received HTTP request."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)


Serve = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


@contextlib.asynccontextmanager
async def serving(serve: Serve, **options: Any) -> AsyncIterator[str]:
    """Start a server that answers each request with `serve`, and yield its base URL."""

    open_here: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_here.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                verb, path, _ = head[0].split(" ")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await serve(ReceivedRequest(verb, path, headers, body), writer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, **options)
    scheme = "https" if options.get("ssl") else "http"
    async with server:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in open_here:  # closing a server waits for its connections
            writer.transport.abort()


@contextlib.asynccontextmanager
async def linked(serve: Serve, rules: Any = STATELESS, limits: Limits = LIMITS, auth: Any = None) -> AsyncIterator[Any]:
    async with serving(serve) as base:
        link = HttpLink(f"{base}/mcp", limits, auth=auth)
        link.rules = rules
        try:
            yield link
        finally:
            await link.close()


def answer(
    writer: asyncio.StreamWriter, body: bytes, kind: str = "application/json", status: str = "200 OK", more: str = ""
) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    writer.write(head.encode() + body)


def accepted(writer: asyncio.StreamWriter) -> None:
    answer(writer, b"", status="202 Accepted")


def result(request: ReceivedRequest, **members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": members}).encode()


def stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")


def event(**members: Any) -> bytes:
    return b"event: message\ndata: " + json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n\n"


def ask(
    link: Any, method: str = "tools/list", timeout: float | None = 10.0, **params: Any
) -> Coroutine[Any, Any, Message]:
    call: Coroutine[Any, Any, Message] = link.request(method, t.PaginatedRequestParams(**params), timeout=timeout)
    return call


def got(message: Message) -> Any:
    """Return the result of an answer."""
    assert isinstance(message.result, Raw)
    return json.loads(bytes(message.result))
