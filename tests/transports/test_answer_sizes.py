"""`Request.when_answered` reports the bytes of each answer as the client receives it, over every transport."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from wharfinger.protocol.request import Request
from wharfinger.server import Server
from wharfinger.transports.http_server.app import HttpApp
from wharfinger.transports.stream_server import StreamServer

STATELESS = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def recording_server(sizes: list[int], failures: list[str]) -> Server:
    """Return a server whose middleware records the sizes and errors of its answers."""
    server = Server("sizes")

    @server.tool
    async def text(length: int) -> str:
        return "é" * length

    @server.resource("notes://blob")
    async def blob() -> bytes:
        return bytes(300_000)

    @server.tool
    async def broken() -> str:
        raise RuntimeError("no")

    @server.tool
    async def endless() -> str:
        await asyncio.Event().wait()
        return ""

    async def record_answer(request: Request, next: Any) -> Any:
        def on_answered(size: int) -> None:
            sizes.append(size)
            failures.append(type(request.failure).__name__ if request.failure is not None else "")

        request.when_answered(on_answered)
        return await next(request)

    server.methods.add_middleware(record_answer)
    return server


def message(method: str, id: int = 7, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": STATELESS}}
    return json.dumps(body).encode()


CALLS = {
    "small": (message("tools/call", name="text", arguments={"length": 10}), ""),
    "large": (message("tools/call", name="text", arguments={"length": 400_000}), ""),
    "blob": (message("resources/read", uri="notes://blob"), ""),
    "missing": (message("resources/read", uri="notes://none"), "ResourceNotFound"),
    "failed": (message("tools/call", name="broken", arguments={}), "HandlerFailed"),
}


class Output(asyncio.WriteTransport):
    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: Any) -> None:
        self.data += bytes(data)


@pytest.mark.parametrize("name", CALLS)
def test_a_byte_stream_reports_the_size_of_the_line(name: str) -> None:
    sizes: list[int] = []
    failures: list[str] = []

    async def run() -> bytes:
        server = recording_server(sizes, failures)
        await server.start()
        stream, output = StreamServer(server), Output()
        stream.connection_made(output)
        stream.data_received(CALLS[name][0] + b"\n")
        stream.eof_received()
        await stream.ended
        await server.close()
        return output.data

    data = asyncio.run(run())
    assert sizes == [len(data) - 1]
    assert failures == [CALLS[name][1]]


async def post(app: HttpApp, body: bytes, *headers: tuple[bytes, bytes]) -> tuple[int, bytes, list[Any]]:
    """Return the status, body and headers of the answer to a POST."""
    events: list[Any] = []
    body_sent = False

    async def receive() -> Any:
        nonlocal body_sent
        if body_sent:
            await asyncio.Event().wait()
        body_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Any) -> None:
        events.append(event)

    message = json.loads(body)
    name = message.get("params", {}).get("name") or message.get("params", {}).get("uri")
    fields = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"content-length", b"%d" % len(body)),
        (b"mcp-method", message["method"].encode()),
        *([(b"mcp-name", name.encode())] if name else []),
        *headers,
    ]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": fields,
             "client": ("127.0.0.1", 1), "scheme": "http", "http_version": "1.1"}  # fmt: skip
    await app(scope, receive, send)
    answer_body = b"".join(event.get("body", b"") for event in events if event["type"] == "http.response.body")
    return events[0]["status"], answer_body, events[0]["headers"]


@pytest.mark.parametrize("name", CALLS)
def test_http_reports_the_size_of_the_body(name: str) -> None:
    sizes: list[int] = []
    failures: list[str] = []

    async def run() -> bytes:
        app = HttpApp(recording_server(sizes, failures))
        _, body, _ = await post(app, CALLS[name][0], (b"mcp-protocol-version", b"2026-07-28"))
        await app.aclose(0)
        return body

    body = asyncio.run(run())
    assert sizes == [len(body)]
    assert failures == [CALLS[name][1]]


@pytest.mark.parametrize("name", CALLS)
def test_a_session_over_http_reports_the_size_of_the_body(name: str) -> None:
    sizes: list[int] = []
    failures: list[str] = []
    request = json.loads(CALLS[name][0])
    del request["params"]["_meta"]

    async def run() -> bytes:
        app = HttpApp(recording_server(sizes, failures))
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        _, _, headers = await post(app, json.dumps(initialize).encode())
        session = (b"mcp-session-id", dict(headers)[b"mcp-session-id"])
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        version = (b"mcp-protocol-version", b"2025-11-25")
        await post(app, json.dumps(initialized).encode(), session, version)
        sizes.clear()
        failures.clear()
        _, body, _ = await post(app, json.dumps(request).encode(), session, version)
        await app.aclose(0)
        return body

    body = asyncio.run(run())
    assert sizes == [len(body)]
    assert failures == [CALLS[name][1]]


def test_a_cancelled_request_reports_its_end_without_a_size() -> None:
    sizes: list[int] = []
    failures: list[str] = []

    async def run() -> bytes:
        server = recording_server(sizes, failures)
        await server.start()
        stream, output = StreamServer(server), Output()
        stream.connection_made(output)
        stream.data_received(message("tools/call", name="endless", arguments={}) + b"\n")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        stream.data_received(json.dumps(cancel).encode() + b"\n")
        stream.eof_received()
        await stream.ended
        for _ in range(5):
            await asyncio.sleep(0)
        await server.close()
        return output.data

    assert asyncio.run(run()) == b""
    assert sizes == [0]
    assert failures == [""]
