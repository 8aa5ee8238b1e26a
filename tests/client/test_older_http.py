"""Detection of HTTP+SSE of 2024-11-05 by a client with a URL (spec §2.5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.transports.client_servers import (
    ReceivedRequest,
    encode_event,
    run,
    start_event_stream,
    stub_server,
    write_accepted,
    write_response,
)
from wharfinger import Client
from wharfinger.errors import ConnectionFailed, ConnectionLost, NotAuthorized

INITIALIZED = {
    "protocolVersion": "2024-11-05",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "old", "version": "1"},
}


class OldServer:
    """A server of `/sse` and `/messages` that refuses any other path with `status`."""

    def __init__(self, status: str = "405 Method Not Allowed") -> None:
        self.status = status
        self.seen: list[str] = []
        self.down: asyncio.StreamWriter | None = None

    async def __call__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        self.seen.append(f"{request.verb} {request.path}")
        if request.verb == "GET" and request.path == "/sse":
            self.down = writer
            start_event_stream(writer)
            writer.write(b"event: endpoint\ndata: /messages?session_id=1\n\n")
            await writer.drain()
            await asyncio.sleep(60)
        elif request.path.startswith("/messages") and self.down is not None:
            write_accepted(writer)
            await self.serve(request.message, self.down)
        else:
            write_response(writer, b"no", "text/plain", self.status)

    async def serve(self, message: Any, down: asyncio.StreamWriter) -> None:
        if message.get("method") == "initialize":
            down.write(encode_event(id=message["id"], result=INITIALIZED))
        elif message.get("method") == "tools/call" and message["params"]["name"] == "vanish":
            down.transport.abort()
        elif message.get("method") == "tools/call":
            self.call_id = message["id"]
            down.write(encode_event(id="q", method="roots/list"))
        elif message.get("id") == "q":
            content = [{"type": "text", "text": json.dumps(message["result"])}]
            down.write(encode_event(id=self.call_id, result={"content": content}))


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "400 Bad Request"])
def test_an_http_sse_server_is_detected_and_may_send_requests(status: str) -> None:
    async def test() -> None:
        harbour = OldServer(status)
        async with stub_server(harbour) as base, Client(f"{base}/sse", roots=["file:///charts"]) as client:
            assert client.revision == "2024-11-05"
            assert "file:///charts" in (await client.call_tool("where")).text
        assert harbour.seen[:4] == ["POST /sse", "POST /sse", "GET /sse", "POST /messages?session_id=1"]

    run(test())


def test_the_end_of_the_stream_fails_the_call_and_the_next_call_succeeds() -> None:
    async def test() -> None:
        async with stub_server(OldServer()) as base, Client(f"{base}/sse", roots=[]) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("vanish")
            assert (await client.call_tool("where")).text == '{"roots": []}'

    run(test())


def test_a_server_that_was_updated_since_the_last_connection_is_found() -> None:
    """A bug: for an hour, clients tried only HTTP+SSE at a URL that once spoke it."""

    async def updated(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb != "POST":
            write_response(writer, b"no", "text/plain", "405 Method Not Allowed")
        elif request.message["method"] == "initialize":
            result = {**INITIALIZED, "protocolVersion": "2025-11-25"}
            body = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": result})
            write_response(writer, body.encode(), "application/json")
        elif "id" in request.message:
            write_response(writer, b"no", "text/plain", "400 Bad Request")
        else:
            write_accepted(writer)

    async def test() -> None:
        old = OldServer()
        serve: Any = old

        async def switch(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            await serve(request, writer)

        async with stub_server(switch) as base:
            for _ in range(2):
                async with Client(f"{base}/sse") as client:
                    assert client.revision == "2024-11-05"
            assert old.seen.count("POST /sse") == 2  # the second client used the remembered protocol
            serve = updated
            async with Client(f"{base}/sse") as client:
                assert (client.transport, client.revision) == ("streamable http", "2025-11-25")

    run(test())


def test_the_time_of_a_sign_in_does_not_count_while_a_stream_is_opened() -> None:
    """A bug: whoever took longer than `probe_timeout` was told that the server sent no endpoint event."""

    class SlowSignIn:
        token = ""

        async def headers(self, url: str) -> Mapping[str, str]:
            return {"Authorization": self.token} if self.token else {}

        async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
            await asyncio.sleep(0.4)
            self.token = "Bearer t"
            return True

    old = OldServer()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "GET" and "authorization" not in request.headers:
            write_response(writer, b"token?", "text/plain", "401 Unauthorized")
        else:
            await old(request, writer)

    async def test() -> None:
        async with stub_server(serve) as base, Client(f"{base}/sse", auth=SlowSignIn(), probe_timeout=0.2) as client:
            assert client.revision == "2024-11-05"

    run(test())


def test_the_error_for_a_url_without_a_transport_suggests_another_url() -> None:
    async def test() -> None:
        async with stub_server(OldServer("404 Not Found")) as base:
            with pytest.raises(ConnectionFailed, match=rf"404 Not Found: no\. Try {base}/sse\.$"):
                async with Client(f"{base}/mcp"):
                    pass

    run(test())


def test_an_unauthorized_stream_raises_not_authorized() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        status = "401 Unauthorized" if request.verb == "GET" else "405 Method Not Allowed"
        write_response(writer, b"token?", "text/plain", status)

    async def test() -> None:
        async with stub_server(serve) as base:
            with pytest.raises(NotAuthorized, match="token"):
                async with Client(f"{base}/sse"):
                    pass

    run(test())
