"""Callers of a server that keep every byte that they receive, over HTTP and over a stream, in every revision."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.server.driving import STATELESS, Wire, initialize_params, line
from wharfinger import Server
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.transports.http_server.app import HttpApp

Params = dict[str, Any]


def http_app(server: Server, principals: dict[str, Principal]) -> HttpApp:
    """Return an application in which a principal's token is its name."""

    def verify(headers: Any) -> Principal:
        return principals.get(headers.get(b"authorization", b"").decode().removeprefix("Bearer "), ANONYMOUS)

    return HttpApp(server, verify=verify)


class HttpCaller:
    """One principal over HTTP, in one revision."""

    def __init__(self, app: HttpApp, token: str, revision: str) -> None:
        self.app = app
        self.token = token
        self.revision = revision
        self.session: bytes = b""
        self.received = b""
        self._streams: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> HttpCaller:
        if self.revision != STATELESS:
            await self.ask("initialize", initialize_params(self.revision))
            await self._send("POST", line("notifications/initialized", {}, None, self.revision))
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)

    async def ask(self, method: str, params: Params | None = None) -> bytes:
        """Send a request. Return the head and body of the answer unchanged."""
        return await self._send("POST", line(method, params, 1, self.revision))

    def listen(self, params: Params) -> None:
        """Listen until the caller is closed."""
        body = line("subscriptions/listen", params, 2, self.revision)
        self._streams.append(asyncio.create_task(self._receive("POST", body)))

    def open_stream(self, last_event: str = "") -> None:
        """Open the stream of a session for notifications."""
        extra = [(b"last-event-id", last_event.encode())] if last_event else []
        self._streams.append(asyncio.create_task(self._receive("GET", b"", *extra)))

    async def _receive(self, verb: str, body: bytes, *extra: tuple[bytes, bytes]) -> None:
        await self._send(verb, body, *extra)

    async def _send(self, verb: str, body: bytes, *extra: tuple[bytes, bytes]) -> bytes:
        response: list[bytes] = []
        sent = False

        async def receive() -> Any:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: Any) -> None:
            if event["type"] == "http.response.start":
                fields = [(name, value) for name, value in event["headers"] if name != b"mcp-session-id"]
                self.session = dict(event["headers"]).get(b"mcp-session-id", self.session)
                response.append(b"%d " % event["status"] + b"; ".join(b": ".join(field) for field in fields) + b"\n")
            else:
                response.append(event.get("body", b""))
            self.received += response[-1]

        scope = {
            "type": "http",
            "method": verb,
            "path": "/mcp",
            "query_string": b"",
            "headers": [*self._headers(body), *extra],
            "client": ("127.0.0.1", 1),
            "scheme": "http",
            "http_version": "1.1",
        }
        await self.app(scope, receive, send)
        return b"".join(response)

    def _headers(self, body: bytes) -> list[tuple[bytes, bytes]]:
        fields = [
            (b"host", b"127.0.0.1"),
            (b"authorization", b"Bearer " + self.token.encode()),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"content-length", b"%d" % len(body)),
        ]
        message = json.loads(body or b"{}")
        if self.session:
            fields.append((b"mcp-session-id", self.session))
        if message.get("method") != "initialize":
            fields.append((b"mcp-protocol-version", self.revision.encode()))
        if self.revision == STATELESS:
            params = message.get("params", {})
            fields.append((b"mcp-method", message.get("method", "").encode()))
            name = params.get("name") or params.get("uri") or params.get("taskId")
            if name and message["method"] in (
                "tools/call",
                "prompts/get",
                "resources/read",
                "tasks/get",
                "tasks/cancel",
            ):
                fields.append((b"mcp-name", name.encode()))
        return fields


class StreamCaller:
    """One principal over a stream of lines, like stdio and in-process clients."""

    def __init__(self, server: Server, principal: Principal, revision: str) -> None:
        self.wire = Wire(server, revision, principal.subject)
        self.revision = revision

    async def __aenter__(self) -> StreamCaller:
        await self.wire.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.wire.__aexit__()

    @property
    def received(self) -> bytes:
        """Every byte received so far."""
        return b"".join(self.wire.chunks)

    async def ask(self, method: str, params: Params | None = None) -> bytes:
        """Send a request. Return the answer with the id 1."""
        answer = await self.wire.ask(method, params)
        answer["id"] = 1
        return json.dumps(answer, ensure_ascii=False).encode()

    def listen(self, params: Params) -> None:
        """Listen until the caller is closed."""
        self.wire.send_request("subscriptions/listen", params)


__all__ = ["HttpCaller", "StreamCaller", "http_app"]
