"""The client's end of a byte stream: a future per request, and one timer for all deadlines.

The path of one request:

    request        encodes it, and waits for the future of its `_PendingCall`; messages of one turn of the loop are
                   written together (`_send`, `_flush`)
    feed           splits the bytes of the server into lines; `ClientPeer.receive` turns them into events
    _dispatch      handles an event: sets the future of a response, passes other events to `LinkEvents`, or answers

If the server does not read (`pause_writing`), new requests and the responses to the server's requests wait. A timer per
deadline would cost more than a request, so one timer (`_arm_timer`) is set to the earliest. An error without an id does
not fail a request at once: the response may still be on its way (`_handle_unattributed_error`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from wharfinger.content.redaction import redacted_text
from wharfinger.content.text import printable
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

__all__ = ["StreamLink", "mark_unsent", "show_bytes"]

log = logging.getLogger("wharfinger.transports.stream_client")

OnNotification = Callable[[Message], None]

MAX_QUOTED_BYTES = 80
"""The maximum number of bytes that error messages quote from a line that is not a message."""
MAX_GARBAGE_BYTES = 200
"""The maximum number of bytes that are kept of the first line that is not a message."""
TENTATIVE_ERROR_SECONDS = 2.0
"""Seconds for which a request still waits for its response after an error without an id that seems to be about it."""
MAX_COALESCED_MESSAGES = 16
"""The maximum number of messages written together: with more, each side would be idle while the other one works."""
BLOCKED_BYTES = 1024 * 1024
"""Unsent bytes above which new requests wait, because the server does not read."""


def mark_unsent(error: WharfingerError) -> WharfingerError:
    """Mark the error of a request that the server cannot have acted on: it may safely be sent again.

    The request was never sent, or was refused because the session has ended.
    """
    if isinstance(error, ConnectionLost):
        error.unsent = True
    return error


def show_bytes(data: bytes) -> str:
    """Return the beginning of a line that is not a message, for an error message."""
    return redacted_text(repr(bytes(data[:MAX_QUOTED_BYTES])))


class _PendingCall(msgspec.Struct, eq=False):
    """A request that waits for its response."""

    method: str
    future: asyncio.Future[Message]
    on_notification: OnNotification | None
    id: int = 0
    timeout: float = 0.0
    deadline: float = 0.0
    """The loop's time at which it fails, or 0 for never."""
    tentative_error: tuple[float, Message] | None = None
    """The loop's time at which an error without an id becomes the response, and that error."""


class StreamLink:
    """A `Link` over one stream, which any task of the event loop may use and close.

    A transport sets `write` when it can send, calls `feed` with the bytes that it receives, and `lose` at the end.
    `close` calls its `disconnect`.
    """

    def __init__(self, name: str, limits: Limits, events: LinkEvents | None = None) -> None:
        self.name = name
        """The name of the server, for error messages."""
        self.limits = limits
        self.events = LinkEvents() if events is None else events
        """Callbacks for events. `on_missed` is never called, because a stream loses no notification."""
        self.header_params: dict[str, tuple[HeaderParam, ...]] | None = None
        """None: a stream has no headers that repeat arguments of tools."""
        self.write: Callable[[bytes], None] = self._not_open
        self.garbage = b""
        """The beginning of the first line that was not a message."""
        self._loop = asyncio.get_running_loop()
        self._peer: ClientPeer[_PendingCall] = ClientPeer(limits)
        self._peer.handles_requests = True
        self._responder = RequestResponder(name, self._wait_writable)
        self._lines = LineBuffer(limits.message)
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._blocked: asyncio.Future[None] | None = None
        """Done when the server reads again; None while it reads."""
        self._end: Callable[[], WharfingerError] | None = None
        """Returns the error for requests after the end of the connection; None until then."""
        self._closing: asyncio.Task[None] | None = None
        self._warned = False
        """Whether an error without an id was logged as a warning: only the first one is, to keep the log short."""

    @property
    def rules(self) -> Revision | None:
        """The negotiated revision; None before the negotiation."""
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
        on_notification: Callable[[Message], None] | None = None,
    ) -> Message:
        """Send a request and return the response; cancelling the waiting task cancels the request at the server.

        `on_notification` is called with each notification for this request. `timeout` is in seconds.

        Raises:
            ConnectionLost: the connection ended first.
            NotMCP: the connection ended first, and what the server had sent was no message.
            InvalidResponse: the response breaks the protocol.
            RequestTimeout: no response in time.
        """
        deadline = None if self._blocked is None else await self._wait_writable(method, timeout)
        if self._end is not None:
            raise mark_unsent(self._end())
        call = _PendingCall(method, self._loop.create_future(), on_notification)
        progress = on_notification is not None and method != "subscriptions/listen"
        call.id, data = self._peer.request(method, params, call, progress=progress)
        if timeout is not None:
            call.timeout = timeout
            if deadline is None:
                deadline = self._loop.time() + timeout
            call.deadline = deadline
            if deadline < self._timer_at:
                self._arm_timer(deadline)
        if self._out or len(self._peer.awaited) > 1:
            self._send(data)
        else:  # there is no other message to share a write with
            self.write(data + b"\n")
        try:
            return await call.future
        except asyncio.CancelledError:
            self._cancel(call, "The caller has cancelled the request.")
            if call.future.done() and not call.future.cancelled():
                call.future.exception()  # mark as retrieved: the cancellation is raised instead
            raise

    def notify(self, method: str, params: Any) -> None:
        """Send a notification; does nothing when the connection is gone."""
        if self._end is None:
            self._peer.record_one_way()
            self._send(encode_notification(method, params))

    async def close(self) -> None:
        """Send what was collected, and end the connection. Requests that wait fail with ConnectionLost."""
        if self._closing is None:
            self._flush()
            self.lose(lambda: ConnectionLost(f"The connection to {self.name} was closed by this client."))
            self._closing = self._loop.create_task(self.disconnect())
        # Shielded: if the caller is cancelled, no process or socket may be left.
        await asyncio.shield(self._closing)

    async def disconnect(self) -> None:
        """End the transport. Called once, by `close`; a transport that has something to end overrides this."""

    async def open_session_stream(self, timeout: float | None) -> None:
        """Do nothing: a stream needs no preparation for notifications that belong to no request."""

    # Called by the transport.

    def feed(self, data: bytes) -> None:
        """Receive bytes from the server."""
        lines: Iterable[bytes | Literal[Overlong.LINE]]
        if not self._lines.unfinished and len(data) <= self.limits.message and data.endswith(b"\n"):
            lines = data.split(b"\n")  # nearly every chunk consists of whole lines, and needs no buffer
        else:
            lines = self._lines.feed(data)
        for line in lines:
            if line is OVERLONG:
                self._fail_all()
            elif line:
                for event in self._peer.receive(line):
                    if type(event) is not Response:
                        self._dispatch(event)
                    elif not event.waiter.future.done():
                        event.waiter.future.set_result(event.message)

    def receive(self, message: bytes) -> None:
        """Receive one whole message, from a transport that has no lines."""
        for event in self._peer.receive(message):
            self._dispatch(event)

    def lose(self, end: Callable[[], WharfingerError]) -> None:
        """End the link because the connection is gone; `end` returns the error for waiting and later requests."""
        if self._end is not None:
            return
        self._end = end
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self._responder.stop()
        for call in self._peer.close():
            self._fail(call, end())
        self.events.on_lost(self, end())

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        return self._end is not None

    def pause_writing(self) -> None:
        """Called by the transport when the server does not read: new requests wait."""
        if self._blocked is None:
            self._blocked = self._loop.create_future()

    def resume_writing(self) -> None:
        """Called by the transport when the server reads again."""
        if self._blocked is not None:
            self._blocked.set_result(None)
            self._blocked = None

    # Internal.

    def _dispatch(self, event: Event[_PendingCall]) -> None:
        if type(event) is Response:
            if not event.waiter.future.done():
                event.waiter.future.set_result(event.message)
        elif type(event) is Notification:
            if event.waiter is None:
                self.events.on_notification(self, event.message)
            else:
                event.waiter.tentative_error = None
                if event.waiter.on_notification is not None:
                    event.waiter.on_notification(event.message)
        elif type(event) is Reply:
            self._reply(event.data)
        elif type(event) is ServerRequest:
            self._responder.respond(event.message, self.events.on_request, self._reply)
        elif type(event) is Cancellation:
            self._responder.cancel(event.request)
        elif type(event) is Malformed:
            reason = f"{self.name} answered {event.waiter.method} with an invalid message: {event.reason}"
            self._fail(event.waiter, InvalidResponse(reason))
        elif type(event) is UnattributedError:
            self._handle_unattributed_error(event)
        elif type(event) is NotAMessage:
            if not self.garbage:
                self.garbage = bytes(event.data[:MAX_GARBAGE_BYTES])
            log.debug("skipped a line from %s that is not a message: %.100r", self.name, event.data)

    def _reply(self, data: bytes) -> None:
        if self._blocked is None and self._end is None:  # a server that does not read must not fill our memory
            self._peer.record_one_way()
            self._send(data)

    def _handle_unattributed_error(self, event: UnattributedError[_PendingCall]) -> None:
        """Fail the request that an error without an id seems to be about, unless its response comes in time."""
        call, error = event.suspect, read_error(event.message)
        # Warn only once, or a flood would fill the log. Not while opening: older servers refuse discovery in this way.
        warn = self.rules is not None and not self._warned
        self._warned = self._warned or warn
        log.log(
            logging.WARNING if warn else logging.DEBUG,
            "%s sent an error that names no request: %s (error %d)",
            self.name,
            printable(error.message, 200),
            error.code,
        )
        if call is None or call.tentative_error is not None:
            return
        # While opening, do not wait for the response to discovery: the handshake is next.
        grace = TENTATIVE_ERROR_SECONDS if call.method != "server/discover" or self.rules is not None else 0.0
        call.tentative_error = self._loop.time() + grace, event.message
        if call.tentative_error[0] < self._timer_at:
            self._arm_timer(call.tentative_error[0])

    def _fail_all(self) -> None:
        """Fail every waiting request: a message over the limit may answer any of them. Ignore their later responses."""
        for call in self._peer.close():
            reason = f"{self.name} sent a message over the limit of {self.limits.message} bytes; set a larger limit."
            self._fail(call, InvalidResponse(reason))

    def _send(self, data: bytes) -> None:
        """Collect a message: all messages of one turn of the loop are written together."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        if len(self._out) >= MAX_COALESCED_MESSAGES:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._end is None and out:
            out.append(b"")
            self.write(b"\n".join(out))

    def _not_open(self, data: bytes) -> None:
        raise RuntimeError("The transport has not been opened.")  # a bug: callers cannot cause it

    async def _wait_writable(self, method: str = "", timeout: float | None = None) -> float | None:
        """Wait until the server reads. Returns the end of `timeout` by the loop's clock; None if there is no limit.

        Raises:
            RequestTimeout: the server did not read within `timeout` seconds. The message names `method`.
        """
        end = None if timeout is None else self._loop.time() + timeout
        while self._blocked is not None:
            blocked = self._blocked
            await asyncio.wait((blocked,), timeout=None if end is None else end - self._loop.time())
            if not blocked.done():
                raise RequestTimeout(f"{method}: {self.name} has not read earlier messages for {timeout:g} s.")
        return end

    def _cancel(self, call: _PendingCall, reason: str) -> None:
        notification = self._peer.cancel(call.id, reason)
        if notification is not None:
            self._send(notification)

    def _fail(self, call: _PendingCall, error: WharfingerError) -> None:
        if not call.future.done():
            call.future.set_exception(error)

    def _arm_timer(self, when: float) -> None:
        """Set the connection's only timer to `when`, the earliest deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._sweep), when

    def _sweep(self) -> None:
        self._timer, self._timer_at = None, math.inf
        now = self._loop.time()
        for call in list(self._peer.awaited.values()):
            if call.tentative_error is not None and call.tentative_error[0] <= now:
                self._peer.cancel(call.id, "")  # without a notification: the server could not read the request
                if not call.future.done():
                    call.future.set_result(call.tentative_error[1])
            elif call.deadline and call.deadline <= now:
                self._cancel(call, "No answer in time.")
                error = RequestTimeout(f"{call.method}: no answer from {self.name} within {call.timeout:g} s.")
                self._fail(call, error)
        deadlines = [
            end
            for call in self._peer.awaited.values()
            for end in (call.deadline, call.tentative_error[0] if call.tentative_error is not None else 0.0)
            if end
        ]
        if deadlines:
            self._arm_timer(min(deadlines))
