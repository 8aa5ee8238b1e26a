"""The HTTP calls that are open: how many each owner has, and one timer for all their deadlines."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from wharfinger.errors import InsufficientScope, Overloaded, ProtocolError, RateLimited
from wharfinger.protocol.http.rules import ACCEPTS_EVENTS, CLOSE_HEADERS, HttpLimits, HttpRefusal, Pairs
from wharfinger.protocol.interfaces import Authenticator, Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.request import ChunkedMessage, Request
from wharfinger.protocol.shares import Shares, name_network, name_principal
from wharfinger.transports.http_server.asgi_response import EventStream, FlushQueue, Receive, Send
from wharfinger.transports.serving import CancelReason, check_unread

__all__ = ["HttpCall", "OpenCalls"]

HOLD_BACK_SECONDS = 0.15, 0.35
"""Shortest and longest wait before a caller over its limit is refused: 32 connections get only 130 refusals in 1 s."""
MAX_HELD_BACK = 1_000
"""The maximum number of refusals that wait at a time; further ones are sent at once."""
_EXPIRED = b": the token has expired: open this stream again with a new one\n\n"


class HttpCall:
    """One ASGI call: the `Channel` of its request, and its times and counts."""

    __slots__ = (
        "accepted_types",
        "address",
        "calls",
        "cancel_reason",
        "counted",
        "endpoint",
        "expires",
        "final",
        "final_id",
        "headers",
        "in_session",
        "over",
        "owner",
        "principal",
        "receive",
        "reply",
        "request",
        "since",
        "size",
        "stream",
        "task",
        "unread",
        "watcher",
    )
    multiplexed = False

    def __init__(
        self,
        calls: OpenCalls,
        receive: Receive,
        reply: Send,
        accepted_types: int,
        client: Any,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.calls = calls
        self.receive = receive
        self.reply = reply
        self.accepted_types = accepted_types
        """The media types that the client accepts, as flags such as `ACCEPTS_EVENTS`."""
        self.address: str = client[0] if client else ""
        """The client's address, as the HTTP server or a trusted proxy reports it."""
        self.principal = principal
        self.expires = principal.expires
        """When a stream of this caller ends (seconds since 1970); None if its credential does not expire."""
        self.owner = name_principal(principal.key) if principal.key else name_network(self.address)
        """The owner whose share this call uses."""
        self.counted = ""
        """How it is counted: "in flight" or "stream"; "" if it is not, for example because a session counts it."""
        self.task = asyncio.current_task()
        self.since = calls.now
        """When it began, by the loop's time at the last tick."""
        self.size = 0
        """Bytes of the body that have arrived."""
        self.request: Request | None = None
        self.stream: EventStream | None = None
        self.watcher: asyncio.Task[None] | None = None
        """The task that cancels this call when the client disconnects, or None."""
        self.over = False
        """Whether the handler has returned, so that only its result is sent. For a call of a session: whether it no
        longer waits for an answer or for the end of its stream."""
        self.cancel_reason: CancelReason | None = None
        """Why the server cancelled the task; None if it has not."""
        self.in_session = False
        """Whether its work belongs to a session, so that only the session may end it. A stream that GET reads still
        ends when its token expires."""
        self.unread = 0
        """Bytes of memory that its answer takes until it is sent; counted for large answers."""
        self.final: bytes | ChunkedMessage | None = None
        """The last message of a stream that the server ends; `final_id` is the id of its event."""
        self.final_id = ""
        self.endpoint = ""
        """The URL of the endpoint as the client knows it, for challenges. Set only if callers need tokens, for calls of
        sessions and for failed calls."""
        self.headers: Pairs = ()
        """Headers that only this answer has."""

    def send(self, request: Request, message: bytes) -> bool:
        """Send a notification; the first one makes the answer an event stream. Returns False if it was dropped."""
        if self.over or not self.accepted_types & ACCEPTS_EVENTS:
            return False
        stream = self.stream
        if stream is None:
            stream = self.calls.open_stream(self)
        if not stream.push(message, self.calls.now):
            return False
        if request.usage is not None:
            request.usage.charge(len(message))
        return True

    def ask(self, request: Request, method: str, params: Any) -> Awaitable[Message] | None:
        """Return None: a stateless request has to run again with the answers."""
        return None

    def detach(self, request: Request, retry_ms: int) -> bool:
        """Return False: the stream cannot outlive its connection."""
        return False

    def cancel(self, reason: CancelReason) -> None:
        """Cancel the handler, or the reading of the body. In a session, end only the stream: the handler continues."""
        if self.over or self.cancel_reason is not None or self.task is None:
            return
        if not self.in_session or reason in (CancelReason.STREAM_ENDED, CancelReason.CREDENTIAL_EXPIRED):
            self.cancel_reason = reason
            self.task.cancel()


class OpenCalls:
    """All open calls, in three groups (fresh, slow, streams), and how many each owner has.

    There is no timer per request, which would cost 1.8 µs: one timer visits the calls. It ticks fast while there are
    fresh calls, which read their body or have just begun; slow calls and streams are visited less often.
    """

    def __init__(self, service: Service, limits: HttpLimits, auth: Authenticator | None = None) -> None:
        self.service = service
        self.auth = auth
        self.limits = limits
        self.now = 0.0
        """The loop's time at the last tick, so that no request has to read the clock."""
        self.fast_ticks = False
        """Whether the timer ticks in short steps, because there are fresh calls."""
        self.fresh: dict[HttpCall, None] = {}
        """Calls that read their body or have just begun to run; oldest first."""
        self.slow: dict[HttpCall, None] = {}
        """Calls that run for longer; each has a task that notices when the client disconnects."""
        self.flushes = FlushQueue()
        self.streams: dict[HttpCall, None] = {}
        """Calls whose answer is a stream that stays open until one side ends it."""
        self.sweep_also: Callable[[float], bool] = lambda now: False
        """Called with the time at each slow tick; returns whether it needs further ticks."""
        self._in_flight: dict[str, int] = {}
        """The number of calls by owner; not in `Shares`, which costs more because it also finds the largest owner."""
        self._streams = Shares()
        self._held_back = 0
        """Refusals that wait in `hold_back`."""
        self.unread = Shares()
        """Bytes of large answers that are not sent yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._next_sweep = 0.0

    @property
    def busy(self) -> bool:
        """Whether any group has a call. A call that was handed over to a session is in none, unless it is a stream."""
        return bool(self.fresh or self.slow or self.streams)

    def start(self, receive: Receive, reply: Send, accepted_types: int, client: Any, principal: Principal) -> HttpCall:
        """Add a new call."""
        if not self.fast_ticks:
            self._start_timer()
        call = HttpCall(self, receive, reply, accepted_types, client, principal)
        self.fresh[call] = None
        call.counted = "in flight"
        in_flight, owner = self._in_flight, call.owner
        in_flight[owner] = in_flight.get(owner, 0) + 1
        return call

    def hand_over(self, call: HttpCall) -> None:
        """Remove a call. From now on a session counts its request, and cancels the request if it takes too long."""
        del self.fresh[call]
        self._uncount(call)

    def check_share(self, call: HttpCall) -> None:
        """Raise Overloaded if the owner of a call has more than an equal share of `Limits.in_flight`."""
        if self._in_flight[call.owner] > self.service.limits.in_flight // len(self._in_flight):
            raise Overloaded("Too many requests are in flight: try again later.")

    def _uncount(self, call: HttpCall) -> None:
        if call.counted == "in flight":
            in_flight, owner = self._in_flight, call.owner
            remaining = in_flight[owner] = in_flight[owner] - 1
            if not remaining:
                del in_flight[owner]
        elif call.counted:
            self._streams.add(call.owner, -1)
        call.counted = ""

    def end(self, call: HttpCall) -> None:
        """Remove a call that is over."""
        if call.unread:
            self.end_unread(call)
        if call.counted:
            self._uncount(call)
        call.request = None  # breaks a cycle: its channel is the call
        if call in self.fresh:  # like most calls
            del self.fresh[call]
            return
        self.slow.pop(call, None)
        self.streams.pop(call, None)
        if call.watcher is not None:
            call.watcher.cancel()
            call.watcher = None

    def cancel_all(self, reason: CancelReason) -> None:
        """Cancel every call whose work does not belong to a session."""
        for call in (*self.fresh, *self.slow, *self.streams):
            call.cancel(reason)

    # -- large answers

    def check_unread(self, call: HttpCall, answer: bytes | ChunkedMessage) -> None:
        """Count a large answer until `end_unread`. Raises Overloaded if too much is unread already."""
        if call.over and call.in_session:  # its client is gone
            return
        size = check_unread(self.unread, call.owner, self.service.limits, answer)
        self.unread.add(call.owner, size)
        call.unread += size

    def end_unread(self, call: HttpCall) -> None:
        """Stop counting an answer that is sent, or cannot be."""
        self.unread.add(call.owner, -call.unread)
        call.unread = 0

    # -- refusals

    async def hold_back(self) -> None:
        """Wait before a caller over its limit gets the refusal.

        A caller who calls again at once would keep the server busy with refusals, and delay all other callers. The
        waits are random, so that many connections do not call again at the same time.
        """
        if self._held_back < MAX_HELD_BACK:
            self._held_back += 1
            try:
                await asyncio.sleep(random.uniform(*HOLD_BACK_SECONDS))  # noqa: S311  # no secret depends on it
            finally:
                self._held_back -= 1

    def headers_of(self, error: ProtocolError, call: HttpCall) -> Pairs:
        """Return the headers of the answer to a failed call, such as a challenge or `Retry-After`."""
        if isinstance(error, RateLimited):
            return ((b"retry-after", b"%d" % error.retry_after),)
        if not isinstance(error, InsufficientScope):
            return getattr(error, "headers", ())
        if self.auth is not None:
            challenge = self.auth.insufficient_scope(call.endpoint, error.scopes).headers
            return tuple(pair for pair in challenge if pair not in CLOSE_HEADERS)  # the body was read
        scopes = " ".join(error.scopes)
        return ((b"www-authenticate", f'Bearer error="insufficient_scope", scope="{scopes}"'.encode()),)

    # -- streams

    def admit_stream(self, call: HttpCall) -> None:
        """Count a call as a stream of its owner.

        Raises:
            Overloaded: too many streams are open.
            HttpRefusal: this owner has too many (429).
        """
        limits, streams = self.limits, self._streams
        if streams[call.owner] >= limits.streams_per_client:
            raise HttpRefusal(429, "Too many streams of this client are open (--limit streams_per_client).")
        if not streams.has_room(call.owner, limits.streams):
            raise Overloaded("Too many streams are open: try again later.")
        self._uncount(call)
        call.counted = "stream"
        streams.add(call.owner)
        self.fresh.pop(call, None)
        self.streams[call] = None

    def open_stream(self, call: HttpCall) -> EventStream:
        """Make the answer to a call a stream of events."""
        call.stream = EventStream(call.reply, self.service.limits.backlog, self.now, self.flushes, call.headers)
        if call.in_session:
            self.streams[call] = None
        else:
            self.watch(call)
        return call.stream

    def watch(self, call: HttpCall) -> None:
        """Cancel the call when its client disconnects. A fresh call becomes a slow one."""
        if call in self.fresh:
            del self.fresh[call]
            self.slow[call] = None
        if call.watcher is None:
            call.watcher = asyncio.get_running_loop().create_task(_watch(call))

    # -- time

    def keep_time(self) -> None:
        """Make sure that the timer runs."""
        if self._timer is None:
            self._start_timer()

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.fast_ticks = False

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self.fast_ticks = True
        self._timer = loop.call_later(self.limits.watch_after, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self._sweep_fresh()
        needed = True
        if self.now >= self._next_sweep:
            self._next_sweep = self.now + self.limits.sweep_time
            self._sweep_slow()
            needed = self.sweep_also(self.now) or self.busy
        self.fast_ticks = bool(self.fresh)
        self._timer = None
        if needed:
            pause = self.limits.watch_after if self.fast_ticks else self.limits.sweep_time
            self._timer = loop.call_later(pause, self._tick)

    def _sweep_fresh(self) -> None:
        limits, now = self.limits, self.now
        for call in list(self.fresh):
            if call.since > now - limits.watch_after:
                break  # the rest came later
            if call.request is not None:
                self.watch(call)
            elif call.since < now - limits.body_time - call.size / limits.body_rate:
                call.cancel(CancelReason.BODY_TIMEOUT)

    def _sweep_slow(self) -> None:
        quiet, late = self.now - self.limits.comment_time, self.now - self.service.limits.handler_time
        clock = time.time()
        for call in (*self.slow, *self.streams):
            if call.stream is not None and call.stream.quiet_since < quiet:
                call.stream.comment(self.now)
            if call.expires is not None and call.expires <= clock and call.counted == "stream":
                if call.stream is not None:
                    call.stream.comment(self.now, _EXPIRED)
                call.cancel(CancelReason.CREDENTIAL_EXPIRED)
        for call in list(self.slow):
            if call.since >= late:
                break
            call.cancel(CancelReason.DEADLINE)


async def _watch(call: HttpCall) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
    call.cancel(CancelReason.CLIENT_GONE)
