"""A client peer on a stream of lines: a future per request, one timer for all deadlines; knows no process."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from wharfinger.content.redaction import redacted_text
from wharfinger.errors import ConnectionLost, InvalidResponse, RequestTimeout, WharfingerError
from wharfinger.protocol.client_peer import ClientPeer, Event
from wharfinger.protocol.events import (
    Cancellation,
    Malformed,
    NotAMessage,
    Notification,
    Reply,
    Response,
    ServerRequest,
    UnattributedError,
)
from wharfinger.protocol.http.headers import HeaderParam
from wharfinger.protocol.interfaces import LinkEvents
from wharfinger.protocol.jsonrpc import Message, encode_notification
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.lines import OVERLONG, LineBuffer, Overlong
from wharfinger.protocol.negotiation import read_error
from wharfinger.protocol.revisions import Revision
from wharfinger.transports.inbound_requests import RequestResponder

__all__ = ["StreamLink", "not_sent", "show_bytes"]

logger = logging.getLogger("wharfinger.transports.stream_client")

Notified = Callable[[Message], None]

SHOWN = 80
"""Bytes of what is no message that an error message repeats."""
GARBAGE_KEPT = 200
"""Bytes of the first line that is no message, for an error message."""
UNREAD_TIME = 2.0
"""Seconds that a request gets for its answer after the server seems to have said that it could not read it."""
MAX_COALESCED = 16
"""Messages of one write: with more the server would be idle while this end works, and the other way round."""
BLOCKED = 1024 * 1024
"""Unsent bytes above which new requests wait; the server is not reading."""


def not_sent(error: WharfingerError) -> WharfingerError:
    """The same, for a request that was never sent: it may be sent again elsewhere, whatever it does."""
    if isinstance(error, ConnectionLost):
        error.unsent = True
    return error


def show_bytes(data: bytes) -> str:
    """The beginning of what is no message, for an error message."""
    return redacted_text(repr(bytes(data[:SHOWN])))


class _PendingCall(msgspec.Struct, eq=False):
    """One request that waits for its answer."""

    method: str
    future: asyncio.Future[Message]
    notified: Notified | None
    id: int = 0
    timeout: float = 0.0
    deadline: float = 0.0
    """The loop's time at which it fails; 0 for never."""
    unread: tuple[float, Message] | None = None
    """The loop's time at which an error without an id becomes the answer, and that error."""


class StreamLink:
    """A `Link` over one stream, which belongs to the loop and to no task: it may be used and closed from any.

    A transport sets `write` once it can send, calls `feed` with what comes and `lose` at the end.
    """

    def __init__(self, name: str, limits: Limits, events: LinkEvents | None = None) -> None:
        self.name = name
        """What is at the other end, for error messages."""
        self.limits = limits
        self.events = LinkEvents() if events is None else events
        """What to call with what happens; a stream never misses a notification."""
        self.mirrors: dict[str, tuple[HeaderParam, ...]] | None = None
        """Which arguments of tools are repeated in headers: a stream has none."""
        self.write: Callable[[bytes], None] = self._not_open
        self.garbage = b""
        """The beginning of the first line that was no message."""
        self._loop = asyncio.get_running_loop()
        self._peer: ClientPeer[_PendingCall] = ClientPeer(limits)
        self._peer.answers = True
        self._responder = RequestResponder(name, self._unblocked)
        self._lines = LineBuffer(limits.message)
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._blocked: asyncio.Future[None] | None = None
        self._end: Callable[[], WharfingerError] | None = None
        self._reported = False
        """An error without an id was logged as a warning: later ones are not, or a server could fill the log."""

    @property
    def rules(self) -> Revision | None:
        """What the two ends have agreed on; None before that."""
        return self._peer.rules

    @rules.setter
    def rules(self, rules: Revision) -> None:
        self._peer.rules = rules

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None,
        notified: Callable[[Message], None] | None = None,
    ) -> Message:
        """Send a request and wait for its answer; cancelling the waiting task cancels the request at the server, too.

        `notified` takes what the server sends for this request before its answer. `timeout` is in seconds.

        Raises:
            ConnectionLost: the connection ended first.
            InvalidResponse: the answer breaks the protocol.
            RequestTimeout: no answer in time.
        """
        if self._blocked is not None:
            await self._room(method, timeout)
        if self._end is not None:
            raise not_sent(self._end())
        call = _PendingCall(method, self._loop.create_future(), notified)
        progress = notified is not None and method != "subscriptions/listen"
        call.id, data = self._peer.request(method, params, call, progress=progress)
        if timeout is not None:
            call.timeout = timeout
            call.deadline = deadline = self._loop.time() + timeout
            if deadline < self._timer_at:
                self._wind(deadline)
        if self._out or len(self._peer.awaited) > 1:
            self._send(data)
        else:  # nothing else is under way that this could share a write with
            self.write(data + b"\n")
        try:
            return await call.future
        except asyncio.CancelledError:
            self._cancel(call, "The caller no longer wants the answer.")
            if call.future.done() and not call.future.cancelled():
                call.future.exception()  # both came at once: the failure is seen, and the cancellation wins
            raise

    def notify(self, method: str, params: Any) -> None:
        """Send a notification; does nothing once the connection is gone."""
        if self._end is None:
            self._peer.sent_otherwise()
            self._send(encode_notification(method, params))

    async def close(self) -> None:
        """End the connection; what waits fails with ConnectionLost."""
        self.lose(lambda: ConnectionLost(f"The connection to {self.name} was closed by this client."))

    async def listen_in(self, timeout: float | None) -> None:
        """Be ready for notifications that belong to no request: a stream always is."""

    # What the transport calls.

    def feed(self, data: bytes) -> None:
        """Take bytes as they come from the server."""
        lines: Iterable[bytes | Literal[Overlong.LINE]]
        if not self._lines.unfinished and len(data) <= self.limits.message and data.endswith(b"\n"):
            lines = data.split(b"\n")  # whole lines, as nearly every time, need no buffer
        else:
            lines = self._lines.feed(data)
        for line in lines:
            if line is OVERLONG:
                self._overlong()
            elif line:
                for event in self._peer.receive(line):
                    if type(event) is not Response:
                        self._happen(event)
                    elif not event.waiter.future.done():
                        event.waiter.future.set_result(event.message)

    def take(self, message: bytes) -> None:
        """Take one whole message, from a transport that brings them one by one."""
        for event in self._peer.receive(message):
            self._happen(event)

    def lose(self, end: Callable[[], WharfingerError]) -> None:
        """The connection is gone: fail what waits, and all that comes later, with what `end` makes."""
        if self._end is not None:
            return
        self._end = end
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self._responder.stop()
        for call in self._peer.close():
            self._fail(call, end())
        self.events.lost(self, end())

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        return self._end is not None

    def pause_writing(self) -> None:
        """The server does not read: new requests wait."""
        if self._blocked is None:
            self._blocked = self._loop.create_future()

    def resume_writing(self) -> None:
        """The server reads again."""
        if self._blocked is not None:
            self._blocked.set_result(None)
            self._blocked = None

    # Inside.

    def _happen(self, event: Event[_PendingCall]) -> None:
        if type(event) is Response:
            if not event.waiter.future.done():
                event.waiter.future.set_result(event.message)
        elif type(event) is Notification:
            if event.waiter is None:
                self.events.notified(self, event.message)
            else:
                event.waiter.unread = None
                if event.waiter.notified is not None:
                    event.waiter.notified(event.message)
        elif type(event) is Reply:
            self._reply(event.data)
        elif type(event) is ServerRequest:
            self._responder.respond(event.message, self.events.answer, self._reply)
        elif type(event) is Cancellation:
            self._responder.cancel(event.request)
        elif type(event) is Malformed:
            reason = f"{self.name} answered {event.waiter.method} with what cannot be read: {event.reason}"
            self._fail(event.waiter, InvalidResponse(reason))
        elif type(event) is UnattributedError:
            self._wait_for_suspect(event)
        elif type(event) is NotAMessage:
            if not self.garbage:
                self.garbage = bytes(event.data[:GARBAGE_KEPT])
            logger.debug("skipped a line from %s that is no message: %.100r", self.name, event.data)

    def _reply(self, data: bytes) -> None:
        if self._blocked is None and self._end is None:  # a server that asks and does not read must not fill our memory
            self._peer.sent_otherwise()
            self._send(data)

    def _wait_for_suspect(self, event: UnattributedError[_PendingCall]) -> None:
        """An error without an id fails no call at once: the answer may be on its way, and then it counts."""
        call, error = event.suspect, read_error(event.message)
        # Once: a flood must not fill the log. While opening it is normal: old servers refuse the first question so.
        loud = self.rules is not None and not self._reported
        self._reported = self._reported or loud
        logger.log(
            logging.WARNING if loud else logging.DEBUG,
            "%s sent an error that names no request: %.200s (error %d)",
            self.name,
            error.message,
            error.code,
        )
        if call is None or call.unread is not None:
            return
        # A question of the opening costs nothing if it is taken for unread: another one follows.
        grace = UNREAD_TIME if call.method != "server/discover" or self.rules is not None else 0.0
        call.unread = self._loop.time() + grace, event.message
        if call.unread[0] < self._timer_at:
            self._wind(call.unread[0])

    def _overlong(self) -> None:
        """Nobody can tell whose answer it was: whoever waits gets to know, and late answers are ignored."""
        for call in self._peer.close():
            reason = f"{self.name} sent a message over the limit of {self.limits.message} bytes; set a larger limit."
            self._fail(call, InvalidResponse(reason))

    def _send(self, data: bytes) -> None:
        """Collect what is sent in this turn of the loop, so that one write takes several messages."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        if len(self._out) >= MAX_COALESCED:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._end is None and out:
            out.append(b"")
            self.write(b"\n".join(out))

    def _not_open(self, data: bytes) -> None:
        raise RuntimeError("The transport has not been opened.")  # a fault of ours: never reached by callers

    async def _unblocked(self) -> None:
        while self._blocked is not None:
            await asyncio.wait((self._blocked,))

    async def _room(self, method: str, timeout: float | None) -> None:
        end = None if timeout is None else self._loop.time() + timeout
        while self._blocked is not None:
            blocked = self._blocked
            await asyncio.wait((blocked,), timeout=None if end is None else end - self._loop.time())
            if not blocked.done():
                raise RequestTimeout(f"{method}: {self.name} has not read what was sent before, for {timeout:g} s.")

    def _cancel(self, call: _PendingCall, reason: str) -> None:
        notice = self._peer.cancel(call.id, reason)
        if notice is not None:
            self._send(notice)

    def _fail(self, call: _PendingCall, error: WharfingerError) -> None:
        if not call.future.done():
            call.future.set_exception(error)

    def _wind(self, when: float) -> None:
        """One timer serves every deadline of the connection: a timer for each costs more than the request."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._sweep), when

    def _sweep(self) -> None:
        self._timer, self._timer_at = None, math.inf
        now = self._loop.time()
        for call in list(self._peer.awaited.values()):
            if call.unread is not None and call.unread[0] <= now:
                self._peer.cancel(call.id, "")  # nothing to tell: the server has not read it
                if not call.future.done():
                    call.future.set_result(call.unread[1])
            elif call.deadline and call.deadline <= now:
                self._cancel(call, "No answer in time.")
                error = RequestTimeout(f"{call.method}: no answer from {self.name} within {call.timeout:g} s.")
                self._fail(call, error)
        ends = [
            end
            for call in self._peer.awaited.values()
            for end in (call.deadline, call.unread[0] if call.unread is not None else 0.0)
            if end
        ]
        if ends:
            self._wind(min(ends))
