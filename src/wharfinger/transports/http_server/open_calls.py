"""The HTTP calls that are open, and the one sweeper that keeps their times; knows no rule of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from wharfinger.errors import Overloaded
from wharfinger.protocol.http.rules import ACCEPTS_EVENTS, HttpLimits, Pairs, Refused
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.request import ChunkedMessage, Request
from wharfinger.protocol.shares import Shares, name_network, name_owner
from wharfinger.transports.http_server.asgi_response import EventStream, Flushes, Receive, Send
from wharfinger.transports.serving import CancelReason, check_unread

__all__ = ["Call", "Calls"]


class Call:
    """One ASGI call on its way: the `Channel` of its request, and what the sweeper has to know."""

    __slots__ = (
        "accepted",
        "address",
        "calls",
        "cancel_reason",
        "counted",
        "final",
        "final_id",
        "headers",
        "in_session",
        "over",
        "owner",
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
        self, calls: Calls, receive: Receive, reply: Send, accepted: int, client: Any, principal: str = ""
    ) -> None:
        self.calls = calls
        self.receive = receive
        self.reply = reply
        self.accepted = accepted
        self.address: str = client[0] if client else ""
        """Of the peer, as the server or a trusted proxy says."""
        self.owner = name_owner(principal, self.address) if principal else name_network(self.address)
        """Whose share it uses."""
        self.counted = ""
        """What it is counted as: "in flight" or "stream"."""
        self.task = asyncio.current_task()
        self.since = calls.now
        self.size = 0
        """Bytes of the body held while it arrives."""
        self.request: Request | None = None
        self.stream: EventStream | None = None
        self.watcher: asyncio.Task[None] | None = None
        self.over = False
        """The handler has returned: nothing is taken any more but its result."""
        self.cancel_reason: CancelReason | None = None
        """Why we cancelled the task; None if we did not."""
        self.in_session = False
        """Its work belongs to a session: nothing ends it before that."""
        self.unread = 0
        """Bytes of memory that its answer takes until it is sent, if that is large."""
        self.final: bytes | ChunkedMessage | None = None
        """The last event of a stream that is ended, and its id."""
        self.final_id = ""
        self.headers: Pairs = ()
        """Beside those that every answer has."""

    def send(self, request: Request, message: bytes) -> bool:
        """`Channel`: the first notification turns the answer into an event stream; False where it was dropped."""
        if self.over or not self.accepted & ACCEPTS_EVENTS:
            return False
        stream = self.stream
        if stream is None:
            stream = self.calls.open_stream(self)
        return stream.push(message, self.calls.now)

    def ask(self, request: Request, method: str, params: Any) -> Awaitable[Message] | None:
        """`Channel`: a stateless request has to run again with its answers."""
        return None

    def detach(self, request: Request, retry_ms: int) -> bool:
        """`Channel`: the stream is the connection."""
        return False

    def cancel(self, reason: CancelReason) -> None:
        """Stop the handler, or the reading of the body, for one of our reasons."""
        if self.over or self.cancel_reason is not None or self.task is None:
            return
        if not self.in_session or reason is CancelReason.STREAM_ENDED:
            self.cancel_reason = reason
            self.task.cancel()


class Calls:
    """Every open call by what it waits for, and how many each owner has."""

    def __init__(self, service: Service, limits: HttpLimits) -> None:
        self.service = service
        self.limits = limits
        self.now = 0.0
        """The loop's time at the last tick: nobody needs a clock read per request."""
        self.brisk = False
        """Ticks come in short steps, because there are fresh calls."""
        self.fresh: dict[Call, None] = {}
        """Reading their body, or running for a moment; oldest first."""
        self.slow: dict[Call, None] = {}
        """Running for longer: watched for their caller's leaving."""
        self.flushes = Flushes()
        self.streams: dict[Call, None] = {}
        """Open until one end ends them."""
        self.sweep_also: Callable[[float], bool] = lambda now: False
        """Somebody else who keeps time: swept too, and true while there is need."""
        self._in_flight: dict[str, int] = {}
        """Calls by owner. Not `Shares`: every request passes here, and who has most is never asked."""
        self._streams = Shares()
        self.unread = Shares()
        """Bytes of large answers on their way."""
        self._timer: asyncio.TimerHandle | None = None
        self._next_sweep = 0.0

    @property
    def busy(self) -> bool:
        """Whether any call is open."""
        return bool(self.fresh or self.slow or self.streams)

    @property
    def in_flight(self) -> int:
        """The number of calls that are no streams."""
        return len(self.fresh) + len(self.slow)

    def start(self, receive: Receive, reply: Send, accepted: int, client: Any, principal: str) -> Call:
        """Keep a new call's time."""
        if not self.brisk:
            self._hurry()
        call = Call(self, receive, reply, accepted, client, principal)
        self.fresh[call] = None
        call.counted = "in flight"
        in_flight, owner = self._in_flight, call.owner
        in_flight[owner] = in_flight.get(owner, 0) + 1
        return call

    def hand_over(self, call: Call) -> None:
        """Somebody else keeps this call's time, and counts it."""
        del self.fresh[call]
        self._uncount(call)

    def check_part(self, call: Call) -> None:
        """Raise Overloaded for a call of an owner who has an equal part of all calls in flight, or more."""
        if self._in_flight[call.owner] > self.service.limits.in_flight // len(self._in_flight):
            raise Overloaded("Too many requests are in flight: try again later.")

    def _uncount(self, call: Call) -> None:
        if call.counted == "in flight":
            in_flight, owner = self._in_flight, call.owner
            left = in_flight[owner] = in_flight[owner] - 1
            if not left:
                del in_flight[owner]
        elif call.counted:
            self._streams.add(call.owner, -1)
        call.counted = ""

    def end(self, call: Call) -> None:
        """The call is over: it is not watched and not counted any more."""
        if call.unread:
            self.end_unread(call)
        if call.counted:
            self._uncount(call)
        call.request = None  # whose channel is this call
        if self.fresh.pop(call, call) is None:
            return
        if self.slow.pop(call, call) is call:
            self.streams.pop(call, None)
        if call.watcher is not None:
            call.watcher.cancel()
            call.watcher = None

    def cancel_all(self, reason: CancelReason) -> None:
        """Stop every call, but nothing that belongs to a session."""
        for call in (*self.fresh, *self.slow, *self.streams):
            call.cancel(reason)

    # -- large answers

    def check_unread(self, call: Call, answer: bytes | ChunkedMessage) -> None:
        """Count a large answer until `end_unread`. Raises Overloaded if too much is unread already."""
        if call.over and call.in_session:  # nobody is there to read it
            return
        size = check_unread(self.unread, call.owner, self.service.limits, answer)
        self.unread.add(call.owner, size)
        call.unread += size

    def end_unread(self, call: Call) -> None:
        """The answer is sent, or given up."""
        self.unread.add(call.owner, -call.unread)
        call.unread = 0

    # -- streams

    def admit_stream(self, call: Call) -> None:
        """This call is to be a stream: count it as one of its owner's.

        Raises Overloaded, or Refused: 429.
        """
        limits, streams = self.limits, self._streams
        if streams[call.owner] >= limits.streams_per_client:
            raise Refused(429, "Too many streams of this client are open (--limit streams_per_client).")
        if not streams.has_room(call.owner, limits.streams):
            raise Overloaded("Too many streams are open: try again later.")
        self._uncount(call)
        call.counted = "stream"
        streams.add(call.owner)
        self.fresh.pop(call, None)
        self.streams[call] = None

    def open_stream(self, call: Call) -> EventStream:
        """Answer this call with events."""
        call.stream = EventStream(call.reply, self.service.limits.backlog, self.now, self.flushes, call.headers)
        if call.in_session:
            self.streams[call] = None
        else:
            self.watch(call)
        return call.stream

    def watch(self, call: Call) -> None:
        """From now on the caller's leaving cancels the call."""
        if self.fresh.pop(call, call) is None:
            self.slow[call] = None
        if call.watcher is None:
            call.watcher = asyncio.get_running_loop().create_task(_watch(call))

    # -- time

    def keep_time(self) -> None:
        """Make sure that the sweeper runs."""
        if self._timer is None:
            self._hurry()

    def stop(self) -> None:
        """No time is kept any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.brisk = False

    def _hurry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self.brisk = True
        self._timer = loop.call_later(self.limits.watch_after, self._tick)

    def _tick(self) -> None:
        """One sweeper for everything that waits: a timer per request would cost 1.8 µs."""
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self._sweep_fresh()
        needed = True
        if self.now >= self._next_sweep:
            self._next_sweep = self.now + self.limits.sweep_time
            self._sweep_slow()
            needed = self.sweep_also(self.now) or self.busy
        self.brisk = bool(self.fresh)
        self._timer = None
        if needed:
            pause = self.limits.watch_after if self.brisk else self.limits.sweep_time
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
        for call in (*self.slow, *self.streams):
            if call.stream is not None and call.stream.quiet_since < quiet:
                call.stream.comment(self.now)
        for call in list(self.slow):
            if call.since >= late:
                break
            call.cancel(CancelReason.DEADLINE)


async def _watch(call: Call) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
    call.cancel(CancelReason.CLIENT_GONE)
