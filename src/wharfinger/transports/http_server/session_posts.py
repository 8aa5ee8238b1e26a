"""One session of the handshake era over HTTP, and the channel of one POST in it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from typing import Any

from wharfinger.errors import InternalError
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.http.rules import ACCEPTS_EVENTS, HttpRefusal, Pairs
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message, encode_error
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import ChunkedMessage, Request
from wharfinger.protocol.server_peer import Batch, ServerPeer
from wharfinger.transports.http_server.open_calls import HttpCall, OpenCalls
from wharfinger.transports.http_server.replay import ReplayBuffer, ReplayBuffers, ReplayStream
from wharfinger.transports.outbound_requests import PendingRequests
from wharfinger.transports.serving import report

__all__ = ["HttpSession", "PostAnswer", "PostChannel"]

PostAnswer = tuple[bytes | ChunkedMessage | None, int, bool, Pairs]
"""An answer, or None for no answer; its HTTP status; whether it is a result; its headers."""

_EXPIRED = "No event after this one is kept. If you did not get the answer, send the request again."
_TOO_LARGE = "The answer was too large to be kept while its client was away (HttpLimits.replay_size)."


class HttpSession:
    """One session: its peer, the requests to its client that have no answer yet, its streams, and their kept events."""

    __slots__ = (
        "buffer",
        "calls",
        "key",
        "name",
        "own_stream",
        "owner",
        "peer",
        "pending",
        "stream_count",
        "streams",
        "used_at",
    )

    def __init__(
        self, service: Service, principal: Principal, owner: str, calls: OpenCalls, buffers: ReplayBuffers
    ) -> None:
        # 192 random bits, which reveal nothing about the session (2025-11-25, session management).
        self.key = (principal.key, secrets.token_urlsafe(24).encode())
        self.owner = owner
        """The owner whose share of the sessions it uses: the principal, or the address that opened it."""
        self.calls = calls
        self.peer = ServerPeer(Session(principal, self.push), service.result_meta, service.limits, report)
        self.pending = PendingRequests(self.peer, lambda: calls.now)
        self.used_at = calls.now
        self.name = secrets.token_hex(6)
        """The beginning of the ids of its events, which no other session uses."""
        self.buffer = ReplayBuffer(buffers, owner)
        self.own_stream = ReplayStream(self.buffer, self.name, 0)
        """The stream for messages that belong to no request, which GET reads."""
        self.stream_count = 0
        self.streams: dict[int, ReplayStream] = {}
        """The streams of requests that still run."""

    def push(self, message: bytes) -> bool:
        """`SendNotification`: send a notification on the session's own stream, or keep it for the next connection."""
        return self.own_stream.push(message, self.calls.now)

    def open_stream(self) -> ReplayStream:
        """Return a new stream for the answer to a POST."""
        self.stream_count += 1
        stream = self.streams[self.stream_count] = ReplayStream(self.buffer, self.name, self.stream_count)
        return stream

    def find_stream(self, last_event_id: bytes) -> tuple[ReplayStream, int | None]:
        """Return the stream that a Last-Event-ID names, and the number of that event.

        Without an id, or for one of another session, return the session's own stream and None.

        Raises:
            HttpRefusal: the stream is over, and no event after that one is kept (400).
        """
        name, _, position = last_event_id.partition(b"-")
        stream_number, _, event_number = position.partition(b"-")
        are_numbers = stream_number.isdigit() and event_number.isdigit()
        if name != self.name.encode() or len(position) > 30 or not are_numbers:
            return self.own_stream, None
        number, after = int(stream_number), int(event_number)
        if not number:
            return self.own_stream, after
        stream = self.streams.get(number)
        if stream is None:
            if not self.buffer.events_after(number, after):
                raise HttpRefusal(400, _EXPIRED)
            stream = ReplayStream(self.buffer, self.name, number)
            stream.over = True
        return stream, after

    @property
    def busy(self) -> bool:
        """Whether a request runs in it, or its own stream is open."""
        return self.own_stream.reader is not None or bool(self.peer.in_flight)


class PostChannel:
    """The `Channel` of the requests of one POST. The answer is JSON unless a handler sends something before it."""

    __slots__ = ("batch", "call", "done", "session", "stream")
    multiplexed = False

    def __init__(self, session: HttpSession, call: HttpCall, batch: Batch | None = None) -> None:
        self.session = session
        self.call = call
        self.batch = batch
        self.stream: ReplayStream | None = None
        """The stream of the answer; None while the answer can be JSON."""
        self.done: asyncio.Future[PostAnswer | None] = asyncio.get_running_loop().create_future()
        """Set to the answer, or to None when the answer has become a stream."""

    def send(self, request: Request, message: bytes) -> bool:
        """Send a notification; the first one makes the answer an event stream. Returns False if it was dropped."""
        if self.session.peer.in_flight.get(request.id) is not request:
            return False
        stream = self.stream or self._open(request)
        if stream is None or not stream.push(message, self.call.calls.now):
            return False
        if request.usage is not None:
            request.usage.charge(len(message))
        return True

    def ask(self, request: Request, method: str, params: Any) -> Awaitable[Message] | None:
        """Send a request to the client; the response comes with another POST.

        It is sent on the stream of this POST. If that cannot be used, it is sent on the session's own stream, if a GET
        reads it.
        """

        def write(message: bytes) -> bool:
            stream = self.stream or self._open(request)
            if stream is None or stream.over:  # use the session's own, if it has a reader
                stream = self.session.own_stream
                if stream.reader is None:
                    return False
            return stream.push(message, self.call.calls.now, required=True)

        return self.session.pending.send(request, method, params, write)

    def detach(self, request: Request, retry_ms: int) -> bool:
        """End the connection, and keep the messages until the client resumes the stream over another one."""
        if not request.caller.rules.polled_streams or self.session.peer.in_flight.get(request.id) is not request:
            return False
        stream = self.stream or self._open(request)
        return stream is not None and stream.detach(retry_ms, self.call.calls.now)

    def _open(self, request: Request) -> ReplayStream | None:
        call = self.call
        if self.done.done() or not call.accepted_types & ACCEPTS_EVENTS:
            return None
        stream = self.stream = self.session.open_stream()
        call.calls.open_stream(call)
        stream.reader = call
        if request.caller.rules.polled_streams:
            stream.prime(call.calls.now)
        if self.batch is not None:  # the answers so far become events, while the client is there to read them
            for answer in self.batch.answers:
                body = answer if isinstance(answer, bytes) else b"".join(answer)
                stream.push(body, call.calls.now, required=True)
            self.batch.answers.clear()
        self.done.set_result(None)
        return stream

    def finish(
        self, request: Request, data: bytes | ChunkedMessage | None, status: int, is_result: bool, headers: Pairs = ()
    ) -> None:
        """Record the answer to one request (None if it was cancelled), and answer the POST after the last."""
        batch, stream = self.batch, self.stream
        too_large = b"" if data is None or stream is None else encode_error(request.id, InternalError(_TOO_LARGE))
        if batch is not None:
            array = batch.record_answer(data)
            if stream is not None and data is not None:  # each answer is an event
                batch.answers.clear()
                now = self.call.calls.now
                if not stream.push(data if isinstance(data, bytes) else b"".join(data), now, required=True):
                    stream.push(too_large, now, required=True)
            if batch.pending_count:
                return
            data = None if stream is not None else array
        if stream is not None:
            del self.session.streams[stream.number]
            stream.finish(data, too_large)
        elif not self.done.done():
            self.done.set_result((data, status, is_result, headers))
