"""HTTP+SSE of 2024-11-05: GET opens a stream of messages, whose first event says where to POST the client's own.

Deprecated since 2025-03-26, and here for clients that know nothing else.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from wharfinger.errors import Overloaded
from wharfinger.protocol.http.rules import ACCEPTS_EVENTS, Refused, check_stream
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.request import Request
from wharfinger.protocol.server_peer import Batch
from wharfinger.protocol.shares import Shares
from wharfinger.protocol.sse import encode_event
from wharfinger.transports.http_server.asgi_response import EventStream, Receive, Send
from wharfinger.transports.http_server.open_calls import HttpCall, OpenCalls
from wharfinger.transports.serving import CancelReason
from wharfinger.transports.stream_server import StreamServer

__all__ = ["MESSAGES", "SSE", "SseSessions"]

SSE, MESSAGES = "/sse", "/messages"
_HIGH, _LOW = 256 * 1024, 64 * 1024
"""Bytes that wait for the connection when its server is told that the reader is behind, and has caught up."""
_HEAD = b"event: message\ndata: "


class SseSessions:
    """The open connections of one application, by (principal, id): an id alone opens nothing.

    A session is its stream: it ends with it, and is bounded by what bounds streams.
    """

    def __init__(self, service: Service, calls: OpenCalls, requests: Shares) -> None:
        self.service = service
        self.requests = requests
        """Requests being served in all sessions, by owner."""
        self.calls = calls
        self.draining = False
        self._table: dict[tuple[str, str], _SseSession] = {}

    def __len__(self) -> int:
        return len(self._table)

    async def get(
        self, scope: Any, headers: Mapping[bytes, bytes], principal: str, receive: Receive, send: Send
    ) -> None:
        """Open a session and hold its stream until one end ends it.

        Raises Refused (406, 429) or Overloaded.
        """
        check_stream(headers)
        if self.draining:
            raise Overloaded("The server is stopping.")
        calls = self.calls
        calls.keep_time()
        call = HttpCall(calls, receive, send, ACCEPTS_EVENTS, scope.get("client"), principal)
        calls.admit_stream(call)
        id = secrets.token_urlsafe(24)
        server = _SseSession(self.service, principal, call, headers, self.requests)
        self._table[principal, id] = server
        # Relative to where it came from: below whatever prefix a proxy or a mount puts before it.
        server.down.put(encode_event(f"{MESSAGES[1:]}?session_id={id}".encode(), event="endpoint"))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            if call.cancel_reason is None:
                raise
            call.task.uncancel()  # type: ignore[union-attr]
            await server.down.finish(None)
        finally:
            call.over = server.down.closed = True
            del self._table[principal, id]
            server.connection_lost(None)
            calls.end(call)

    def take(self, query: bytes, principal: str, body: bytes) -> None:
        """Take one message of a session. Raises Refused: 404."""
        name, _, id = query.partition(b"=")
        server = self._table.get((principal, id.decode("latin-1"))) if name == b"session_id" else None
        if server is None:
            raise Refused(404, "There is no such session, or it has ended: open one with GET /sse.")
        if server.draining:
            raise Overloaded("The server is stopping.")
        if not self.requests.has_room(server.call.owner, self.calls.limits.session_requests):
            raise Overloaded("Too many requests are in flight: try again later.")
        server.take(body)

    def drain(self) -> None:
        """Let what runs finish, then end every stream."""
        self.draining = True
        for server in list(self._table.values()):
            server.drain()


class _SseSession(StreamServer):
    """One session: messages come one by one, each in its own POST, and go out as events."""

    def __init__(
        self, service: Service, principal: str, call: HttpCall, headers: Mapping[bytes, bytes], requests: Shares
    ) -> None:
        super().__init__(service, principal=principal, unread=call.calls.unread, owner=call.owner)
        self.call = call
        self.requests = requests
        self.headers = headers
        self.down = call.stream = _SseTransport(call, self)
        self.connection_made(self.down)
        self.ended.add_done_callback(lambda _: call.cancel(CancelReason.STREAM_ENDED))

    def take(self, body: bytes) -> None:
        """Take one message."""
        event = self.peer.receive(body)
        if isinstance(event, Request):
            self.begin(event)
        elif event is not None:
            self.settle(event)

    def begin(self, request: Request, batch: Batch | None = None) -> None:
        """Serve a request, counted as one of its owner's."""
        request.headers = self.headers
        request.peer = self.call.address
        super().begin(request, batch)
        self.requests.add(self.call.owner)
        request.task.add_done_callback(self._uncount)

    def _uncount(self, task: asyncio.Task[None]) -> None:
        self.requests.add(self.call.owner, -1)


class _SseTransport(EventStream):
    """Lines of a `StreamServer` as events: what that takes for its transport."""

    __slots__ = ("_behind", "_call", "_server", "_whole")

    def __init__(self, call: HttpCall, server: StreamServer) -> None:
        super().__init__(call.reply, 0, call.calls.now, call.calls.flushes)
        self._call = call
        self._server = server
        self._behind = False
        self._whole = True  # the last line that came is ended

    def put(self, event: bytes) -> None:
        """Send an event that is encoded already."""
        self._put(event, self._call.calls.now)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """As a transport: lines, or a part of one."""
        lines = bytes(data)
        if self.closed or not lines:
            return
        head = _HEAD if self._whole else b""
        self._whole = lines.endswith(b"\n")
        end = b"\n\n" if self._whole else b""
        self.put(head + lines.removesuffix(b"\n").replace(b"\n", b"\n\n" + _HEAD) + end)
        if self._size > _HIGH and not self._behind:
            self._behind = True
            self._server.pause_writing()

    def comment(self, now: float) -> None:
        """Show proxies that the stream is alive, between two events."""
        if self._whole:
            super().comment(now)

    def _sent(self) -> None:
        if self._behind and self._size < _LOW:
            self._behind = False
            self._server.resume_writing()

    def is_closing(self) -> bool:
        """As a transport: whether nothing more is taken."""
        return self.closed

    def abort(self) -> None:
        """As a transport: end the connection now."""
        self.closed = True
        self._queue.clear()
        self._call.cancel(CancelReason.STREAM_ENDED)
