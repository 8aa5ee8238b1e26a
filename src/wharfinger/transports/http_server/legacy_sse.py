"""HTTP+SSE of 2024-11-05: GET opens a stream of messages, whose first event has the URL to which the client posts.

Deprecated since 2025-03-26; for clients that support nothing newer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from wharfinger.errors import Overloaded
from wharfinger.protocol.events import Reply
from wharfinger.protocol.http.rules import ACCEPTS_EVENTS, HttpRefusal, check_stream
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import Request
from wharfinger.protocol.server_peer import Batch
from wharfinger.protocol.shares import Shares
from wharfinger.protocol.sse import COMMENT, encode_event
from wharfinger.transports.http_server.asgi_response import EventStream, Receive, Send
from wharfinger.transports.http_server.open_calls import HttpCall, OpenCalls
from wharfinger.transports.serving import CancelReason
from wharfinger.transports.stream_server import StreamServer

__all__ = ["MESSAGES", "SSE", "SseSessions"]

SSE, MESSAGES = "/sse", "/messages"
_PAUSE_BYTES, _RESUME_BYTES = 256 * 1024, 64 * 1024
"""Bytes in the stream's queue at which the session stops writing, and at which it continues."""
_HEAD = b"event: message\ndata: "


class SseSessions:
    """The open sessions of one application, by principal and id: an id is valid only for its own principal.

    A session ends with its stream, and counts as a stream, not as a session, for the limits.
    """

    def __init__(self, service: Service, calls: OpenCalls, requests: Shares) -> None:
        self.service = service
        self.requests = requests
        """The number of requests that run in all sessions, with those of Streamable HTTP, by owner."""
        self.calls = calls
        self.draining = False
        self._table: dict[tuple[str, str], _SseSession] = {}

    def __len__(self) -> int:
        return len(self._table)

    async def serve_stream(
        self, scope: Any, headers: Mapping[bytes, bytes], principal: Principal, receive: Receive, send: Send
    ) -> None:
        """Open a session, and keep its stream open until one side ends it.

        Raises:
            HttpRefusal: 406, the client does not accept a stream; 429, it has too many.
            Overloaded: too many streams are open, or the server is stopping.
        """
        check_stream(headers)
        if self.draining:
            raise Overloaded("The server is stopping.")
        calls = self.calls
        calls.keep_time()
        call = HttpCall(calls, receive, send, ACCEPTS_EVENTS, scope.get("client"), principal)
        calls.admit_stream(call)
        id = secrets.token_urlsafe(24)
        session = _SseSession(self.service, principal, call, headers, self.requests)
        self._table[principal.key, id] = session
        # A relative URL works below any prefix that a proxy or a mount adds.
        session.events.send_event(encode_event(f"{MESSAGES[1:]}?session_id={id}".encode(), event="endpoint"))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            if call.cancel_reason is None:
                raise
            call.task.uncancel()  # type: ignore[union-attr]
            await session.events.finish(None)
        finally:
            call.over = session.events.closed = True
            del self._table[principal.key, id]
            session.connection_lost(None)
            calls.end(call)

    def receive(self, query: bytes, principal: Principal, body: bytes) -> None:
        """Receive one message of a session.

        Raises:
            HttpRefusal: there is no such session (404).
            Overloaded: it is a request, and too many requests run or the server is stopping.
        """
        name, _, id = query.partition(b"=")
        session = self._table.get((principal.key, id.decode("latin-1"))) if name == b"session_id" else None
        if session is None:
            raise HttpRefusal(404, "There is no such session, or it has ended: open one with GET /sse.")
        session.peer.session.renew(principal)
        session.receive(body)

    def drain(self) -> None:
        """Open no more sessions and accept no more requests. End each stream when its requests have ended.

        Long requests are ended, and the others finish, as `StreamServer.drain` says.
        """
        self.draining = True
        for session in list(self._table.values()):
            session.drain()


class _SseSession(StreamServer):
    """One session: each message comes in its own POST, and each answer is an event of the stream."""

    def __init__(
        self, service: Service, principal: Principal, call: HttpCall, headers: Mapping[bytes, bytes], requests: Shares
    ) -> None:
        super().__init__(service, principal=principal, unread=call.calls.unread, owner=call.owner)
        self.call = call
        self.requests = requests
        self.headers = headers
        self.events = call.stream = _SseTransport(call, self)
        self.connection_made(self.events)
        self.ended.add_done_callback(lambda _: call.cancel(CancelReason.STREAM_ENDED))

    def receive(self, body: bytes) -> None:
        """Receive one message.

        Raises:
            Overloaded: it has a request, and too many requests run or the server is stopping.
        """
        event = self.peer.receive(body)
        events = event.events if isinstance(event, Batch) else [event]
        requests = [each for each in events if isinstance(each, Request)]
        try:
            if requests:
                self.check_room(len(requests))
        except Overloaded as error:
            for each in events:
                if isinstance(each, Request):
                    self.peer.fail(each, error)
                elif not isinstance(each, Reply | None):
                    self.dispatch(each)
            raise
        if isinstance(event, Request):
            self.begin(event)
        elif event is not None:
            self.dispatch(event)

    def check_room(self, count: int = 1) -> None:
        """Raise Overloaded unless `count` more requests may run."""
        if self.draining:
            raise Overloaded("The server is stopping.")
        if not self.requests.has_room(self.call.owner, self.call.calls.limits.session_requests, count):
            raise Overloaded("Too many requests are in flight: try again later.")

    def begin(self, request: Request, batch: Batch | None = None) -> None:
        """Serve a request, and count it for its owner."""
        request.headers = self.headers
        request.peer = self.call.address
        super().begin(request, batch)
        self.requests.add(self.call.owner)
        request.task.add_done_callback(self._uncount)

    def _uncount(self, task: asyncio.Task[None]) -> None:
        self.requests.add(self.call.owner, -1)


class _SseTransport(EventStream):
    """The transport of a `StreamServer`: turns its lines into events, and pauses it while the client reads slowly."""

    __slots__ = ("_call", "_line_complete", "_paused", "_server")

    def __init__(self, call: HttpCall, server: StreamServer) -> None:
        super().__init__(call.reply, 0, call.calls.now, call.calls.flushes)
        self._call = call
        self._server = server
        self._paused = False
        self._line_complete = True  # whether the last line that was written is complete

    def send_event(self, event: bytes) -> None:
        """Send an event that is already encoded."""
        self._put(event, self._call.calls.now)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write lines, or a part of one."""
        lines = bytes(data)
        if self.closed or not lines:
            return
        head = _HEAD if self._line_complete else b""
        self._line_complete = lines.endswith(b"\n")
        end = b"\n\n" if self._line_complete else b""
        self.send_event(head + lines.removesuffix(b"\n").replace(b"\n", b"\n\n" + _HEAD) + end)
        if self._size > _PAUSE_BYTES and not self._paused:
            self._paused = True
            self._server.pause_writing()

    def comment(self, now: float, text: bytes = COMMENT) -> None:
        """Send a comment, but only between two events."""
        if self._line_complete:
            super().comment(now, text)

    def _sent(self) -> None:
        if self._paused and self._size < _RESUME_BYTES:
            self._paused = False
            self._server.resume_writing()

    def is_closing(self) -> bool:
        """Return whether nothing more is accepted."""
        return self.closed

    def abort(self) -> None:
        """Drop the queued events, and end the stream as soon as the connection has accepted the last write."""
        self.closed = True
        self._queue.clear()
        self._call.cancel(CancelReason.STREAM_ENDED)
