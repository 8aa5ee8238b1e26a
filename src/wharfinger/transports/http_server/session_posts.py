"""One session of the handshake era over HTTP, and one POST within it: where answers, notices and questions go."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from typing import Any

from wharfinger.errors import InternalError
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.http.rules import ACCEPTS_EVENTS, Refused
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message, encode_error
from wharfinger.protocol.request import ChunkedMessage, Request
from wharfinger.protocol.server_peer import Batch, ServerPeer
from wharfinger.transports.http_server.open_calls import Call, Calls
from wharfinger.transports.http_server.replay import Ring, Rings, Track
from wharfinger.transports.outbound_requests import PendingRequests
from wharfinger.transports.serving import report

__all__ = ["HttpSession", "Post", "Sealed"]

Sealed = tuple[bytes | ChunkedMessage | None, int, bool]
"""An answer, or None where there is none; its HTTP status; whether it is a result."""

_EXPIRED = "What came behind this event is not kept any more, or has been read: send the request again."
_TOO_LARGE = "The answer was too large to be kept while its client was away (HttpLimits.replay_size)."


class HttpSession:
    """One session: its peer, its questions, and its streams with what is kept of them."""

    __slots__ = ("calls", "key", "name", "opened", "own", "owner", "peer", "pending", "ring", "tracks", "used")

    def __init__(self, service: Service, principal: str, owner: str, calls: Calls, rings: Rings) -> None:
        # 192 random bits; nothing in it tells what is behind it (2025-11-25, session management).
        self.key = (principal, secrets.token_urlsafe(24).encode())
        self.owner = owner
        """Whose share it uses: its principal's, or that of the address that opened it."""
        self.calls = calls
        self.peer = ServerPeer(Session(principal, self.push), service.stamps, service.limits, report)
        self.pending = PendingRequests(self.peer, lambda: calls.now)
        self.used = calls.now
        self.name = secrets.token_hex(6)
        """What its event ids begin with: an id of another session names nothing here."""
        self.ring = Ring(rings, owner)
        self.own = Track(self.ring, self.name, 0)
        """The stream of what belongs to no request, which GET reads."""
        self.opened = 0
        self.tracks: dict[int, Track] = {}
        """The streams of requests that still run."""

    def push(self, message: bytes) -> bool:
        """`SendNotification`: to the session's own stream, or kept for its next connection as far as that goes."""
        return self.own.push(message, self.calls.now)

    def open_track(self) -> Track:
        """A new stream, for the answer to a POST."""
        self.opened += 1
        track = self.tracks[self.opened] = Track(self.ring, self.name, self.opened)
        return track

    def find_track(self, last: bytes) -> tuple[Track, int | None]:
        """The stream that a Last-Event-ID names, and the number of that event; an id that is none means the own one.

        Raises Refused: 400 where nothing of the stream is left.
        """
        name, _, place = last.partition(b"-")
        stream, _, number = place.partition(b"-")
        if name != self.name.encode() or len(place) > 30 or not (stream.isdigit() and number.isdigit()):
            return self.own, None
        if not int(stream):
            return self.own, int(number)
        track = self.tracks.get(int(stream))
        if track is None:
            if not self.ring.after(int(stream), int(number)):
                raise Refused(400, _EXPIRED)
            track = Track(self.ring, self.name, int(stream))
            track.over = True
        return track, int(number)

    @property
    def busy(self) -> bool:
        """Whether anything runs in it, or any stream of it is open."""
        return self.own.reader is not None or bool(self.peer.in_flight)


class Post:
    """One POST with requests: their `Channel`. Answered in JSON unless a handler emits something first."""

    __slots__ = ("batch", "call", "done", "session", "track")
    multiplexed = False

    def __init__(self, session: HttpSession, call: Call, batch: Batch | None = None) -> None:
        self.session = session
        self.call = call
        self.batch = batch
        self.track: Track | None = None
        """Its stream, once there is one."""
        self.done: asyncio.Future[Sealed | None] = asyncio.get_running_loop().create_future()
        """The answer, or None once it is a stream."""

    def send(self, request: Request, message: bytes) -> bool:
        """`Channel`: the first notification turns the answer into an event stream; False where it was dropped."""
        if self.session.peer.in_flight.get(request.id) is not request:
            return False
        track = self.track or self._open(request)
        return track is not None and track.push(message, self.call.calls.now)

    def ask(self, request: Request, method: str, params: Any) -> Awaitable[Message] | None:
        """`Channel`: a question on the POST's own stream; answers come with other POSTs of the session."""

        def put(message: bytes) -> bool:
            track = self.track or self._open(request)
            if track is None or track.over:  # no stream of its own: the session's, if anybody reads it
                track = self.session.own
                if track.reader is None:
                    return False
            return track.push(message, self.call.calls.now, must=True)

        return self.session.pending.send(request, method, params, put)

    def detach(self, request: Request, retry_ms: int) -> bool:
        """`Channel`: end the connection, and keep what comes until the client reads on over another one."""
        if not request.caller.rules.polled_streams or self.session.peer.in_flight.get(request.id) is not request:
            return False
        track = self.track or self._open(request)
        return track is not None and track.release(retry_ms, self.call.calls.now)

    def _open(self, request: Request) -> Track | None:
        call = self.call
        if self.done.done() or not call.accepted & ACCEPTS_EVENTS:
            return None
        track = self.track = self.session.open_track()
        call.calls.open_stream(call)
        track.reader = call
        if request.caller.rules.polled_streams:
            track.prime(call.calls.now)
        self.done.set_result(None)
        return track

    def answered(self, request: Request, data: bytes | ChunkedMessage | None, status: int, served: bool) -> None:
        """The request is over, without an answer where it was cancelled; `served` where that is a result."""
        batch, track = self.batch, self.track
        lost = b"" if data is None or track is None else encode_error(request.id, InternalError(_TOO_LARGE))
        if batch is not None:
            array = batch.answered(data)
            if track is not None:  # one event for each, as soon as it is there
                now = self.call.calls.now
                for answer in batch.answers:
                    body = answer if isinstance(answer, bytes) else b"".join(answer)
                    if not track.push(body, now, must=True) and answer is data:
                        track.push(lost, now, must=True)
                batch.answers.clear()
            if batch.left:
                return
            data = None if track is not None else array
        if track is not None:
            del self.session.tracks[track.stream]
            track.finish(data, lost)
        elif not self.done.done():
            self.done.set_result((data, status, served))
