"""The server's end of a byte stream: reads lines, runs one task per request, writes once per turn of the event loop.

The path of one request:

    data_received    splits the bytes into lines; `ServerPeer.receive` makes a `Request` of a line
    serve            the request's task: runs the handler, encodes the result, and calls `write`
    write, flush     collect small messages, and write them together in the next turn of the loop

If the reader is slow (`pause_writing`) or a message is large, messages are queued (`enqueue`) and written in parts as
the reader accepts them (`write_queued`). The queue is bounded in steps: above `Limits.backlog` notifications are
dropped, above `Limits.unread` requests are refused, and a client that keeps sending requests without reading even the
refusals is disconnected. All connections together have a bound as well, above which large answers are refused
(`check_unread`).

A connection ends in steps as well: `drain` ends the long requests (`subscriptions/listen`) and lets the others finish;
`finish` cancels the rest after `Limits.drain` seconds; `ended` is set when everything is written, or the reader does
not read.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator
from functools import partial
from typing import Any

from wharfinger.errors import ConnectionLost, Overloaded
from wharfinger.protocol.events import Cancellation, Notification, Reply, Response
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.lines import LineBuffer
from wharfinger.protocol.principal import LOCAL, Principal
from wharfinger.protocol.request import (
    ChunkedMessage,
    Request,
    call_on_answer,
    no_such_method,
    seal_error,
)
from wharfinger.protocol.server_peer import Batch, Event, ServerPeer
from wharfinger.protocol.shares import Shares
from wharfinger.transports.outbound_requests import PendingRequests, deliver
from wharfinger.transports.serving import (
    PART_BYTES,
    CancelReason,
    answer_exception,
    check_unread,
    report,
    report_refusal,
)

__all__ = ["StreamServer"]

log = logging.getLogger("wharfinger.transports.stream_server")

TICK_SECONDS = 1.0
"""Seconds between two checks of deadlines: one timer per connection, since a timer per request costs 1.8 µs."""
EAGER: bool = sys.version_info >= (3, 12)
"""Whether a task starts at once, so that a handler that never waits needs no turn of the loop."""
new_task: Any = partial(asyncio.Task, name="request", **{"eager_start": True} if EAGER else {})  # type: ignore[arg-type]
"""Starts the task of a request."""
MAX_COALESCED_MESSAGES = 16
"""The maximum number of messages written together: the reader handles them while the server continues."""
EXPIRED = -1
"""`Request.started_at` of a request whose deadline has passed."""


class StreamServer(asyncio.Protocol):
    """Serves one connection of newline-delimited messages: stdio, a pipe, a socket.

    `unread` counts the bytes that wait for the readers of all connections of one server, by owner.
    `ended` is done when the connection is over, and every request that was read is answered or cancelled.
    """

    multiplexed = True

    def __init__(
        self, service: Service, *, principal: Principal = LOCAL, unread: Shares | None = None, owner: str = ""
    ) -> None:
        self.service = service
        self.unread = Shares() if unread is None else unread
        self.owner = owner
        self.peer = ServerPeer(Session(principal, self.notify), service.result_meta, service.limits, report)
        self.pending = PendingRequests(self.peer, lambda: self.tick)
        self.lines = LineBuffer(service.limits.message)
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.transport: Any = None
        self.out: list[bytes] = []
        """The small messages of this turn of the loop, which are written together."""
        self.queued: deque[bytes | Iterator[bytes | memoryview]] = deque()
        """Messages that wait for the reader, or for a large message before them."""
        self.queued_bytes = 0
        self.counted_bytes = 0
        """The part of `queued_bytes` that is counted in `unread`."""
        self.queued_small_bytes = 0
        """The part of `queued_bytes` in small messages: if it keeps growing, the client does not read refusals."""
        self.blocked = False
        self.tick = 0
        """The number of deadline checks: the connection's clock, in units of `TICK_SECONDS`."""
        self.draining = False
        self.sweeper = self.loop.call_later(TICK_SECONDS, self.sweep)

    # -- reading

    def data_received(self, data: bytes) -> None:
        """Read bytes; each request starts a task."""
        # Nearly every chunk consists of whole lines, and needs no buffer.
        whole = not self.lines.unfinished and data.endswith(b"\n")
        for line in data.split(b"\n") if whole else self.lines.feed(data):
            if not line:
                continue
            event = self.peer.receive(line)
            if type(event) is Request:
                event.channel = self
                event.started_at = self.tick
                event.task = new_task(self.serve(event), loop=self.loop)
            elif event is not None:
                self.dispatch(event)

    def dispatch(self, event: Event) -> None:
        """Handle an event that is not a request."""
        match event:
            case Reply(data, status):
                if status == 503:
                    busy = Overloaded("Too many requests are in flight.")
                    report_refusal(self.service, busy, principal=self.peer.session.principal, size=len(data))
                self.write(data)
            case Cancellation(request):
                # In the next turn: a task that is cancelled before its first step never runs, and its batch would wait.
                self.loop.call_soon(request.task.cancel)
            case Notification() | Response():
                deliver(self.service, self.peer.session, event)
            case Batch():
                self.serve_batch(event)
            case _:  # a request, or nothing: not passed to this method
                pass

    def serve_batch(self, batch: Batch) -> None:
        """Serve the requests of a batch. Their answers are written together."""
        if not batch.pending_count and (data := batch.join_answers()) is not None:
            self.write(data)
        for event in batch.events:
            if isinstance(event, Request):
                self.begin(event, batch)
            else:
                self.dispatch(event)

    def begin(self, request: Request, batch: Batch | None = None) -> None:
        """Serve a request of a batch, or a request that did not come as a line."""
        request.channel = self
        request.started_at = self.tick
        request.task = new_task(self.serve(request, batch), loop=self.loop)

    def eof_received(self) -> bool:
        """Called when the client sends nothing more: answer what was read, then end. The write side stays open."""
        self.pending.close()
        self.drain()
        return True

    # -- serving

    async def serve(self, request: Request, batch: Batch | None = None) -> None:
        """Run the handler, and write the answer."""
        if EAGER:  # a client in the same process may cancel the request before its task is known
            request.task = asyncio.current_task()
        try:
            handler = self.service.handlers.get(request.method) if request.row is not None else None
            if handler is None:
                raise no_such_method(request)
            result = await handler(request)
            if self.peer.refusing:
                raise Overloaded("The answers before this one have not been read: try again when they are.")
            data = self.peer.respond(request, result)
            if type(data) is not bytes or len(data) > PART_BYTES:
                data = self.check_unread(request, data)
        except BaseException as error:
            data = self.answer_failure(request, error)
        if request.on_answer:
            call_on_answer(request, data)
        if batch is not None:
            data = batch.record_answer(data)
        if data is not None:
            self.write(data)
        if self.draining and not self.peer.in_flight:
            self.finish()

    def answer_failure(self, request: Request, error: BaseException) -> bytes | ChunkedMessage | None:
        """Return the answer to a request whose handler raised, or None if its client cancelled it or is gone."""
        if isinstance(error, asyncio.CancelledError) and self.peer.in_flight.get(request.id) is not request:
            return None
        # The handler is not at fault if it asks a client that has left.
        expected = self.draining and isinstance(error, ConnectionLost)
        data, failure = answer_exception(
            request,
            error,
            self.peer,
            self.service.limits,
            reason=CancelReason.DEADLINE if request.started_at == EXPIRED else None,
            level=logging.DEBUG if expected else logging.ERROR,
        )
        if failure is not None and not request.observers:
            report_refusal(self.service, failure, request=request, size=0 if data is None else len(data))
        return data

    def sweep(self) -> None:
        """Cancel the requests whose time is up."""
        self.tick += 1
        oldest = self.tick - self.service.limits.handler_time / TICK_SECONDS
        for request in self.peer.in_flight.values():
            # Cancelled once only, so that the handler's `finally` can end.
            if EXPIRED < request.started_at < oldest and not (request.row is not None and request.row.long):
                request.started_at = EXPIRED
                request.task.cancel()
        self.sweeper = self.loop.call_later(TICK_SECONDS, self.sweep)

    # -- writing

    def send(self, request: Request, message: bytes) -> bool:
        """Send a notification for a request; it is dropped if the request is over or the reader slow."""
        if self.peer.in_flight.get(request.id) is not request or not self.notify(message):
            return False
        if request.usage is not None:
            request.usage.charge(len(message))
        return True

    def ask(self, request: Request, method: str, params: Any) -> Awaitable[Message] | None:
        """Send a request to the client; returns None in the stateless era. It is sent even when notifications are
        dropped, since a handler waits for the response."""
        if request.session is None:
            return None
        return self.pending.send(request, method, params, self.write_required)

    def detach(self, request: Request, retry_ms: int) -> bool:
        """Return False: the stream cannot outlive its connection."""
        return False

    def write_required(self, message: bytes) -> bool:
        """Write a message that must not be dropped. Returns False if the client no longer reads."""
        if self.ended.done() or self.peer.refusing:
            return False
        self.write(message)
        return True

    def notify(self, message: bytes) -> bool:
        """Send a notification. Returns False if it was dropped: the reader is too slow, or gone."""
        if self.queued_bytes > self.service.limits.backlog or self.ended.done():
            return False
        self.write(message)
        return True

    def write(self, data: bytes | ChunkedMessage) -> None:
        """Write one message in its order; small ones are collected, and written once per turn of the loop."""
        if self.blocked or self.queued or type(data) is not bytes or len(data) > PART_BYTES:
            self.enqueue(data)
            return
        self.out.append(data)
        if len(self.out) == 1:
            self.loop.call_soon(self.flush)
        elif len(self.out) == MAX_COALESCED_MESSAGES:
            self.flush()

    def flush(self) -> None:
        """Write what was collected in this turn of the loop."""
        if self.out and self.transport is not None:
            self.out.append(b"")
            self.transport.write(b"\n".join(self.out))
        self.out.clear()

    def enqueue(self, data: bytes | ChunkedMessage) -> None:
        """Queue a message, so that it is written in its order, and in parts if it is large."""
        if self.transport is None and self.ended.done():
            return  # such as the answers to the rest of a batch: counted in `unread`, they would never be subtracted
        self.flush()
        self.queued_bytes += len(data) + 1
        if type(data) is bytes and len(data) <= PART_BYTES:
            self.queued.append(data + b"\n")
            self.queued_small_bytes += len(data) + 1
        else:
            self.queued.extend((_split((data,) if isinstance(data, bytes) else data), b"\n"))
            self.queued_small_bytes += 1  # its line end
        if not self.blocked:
            self.write_queued()
        self.count_unread()
        unread = self.service.limits.unread
        self.peer.refusing = self.queued_bytes > unread
        if self.queued_small_bytes > 2 * unread and self.transport is not None:
            log.warning("A client does not read its answers: the connection is closed.")
            self.transport.abort()
            self.connection_lost(None)

    def write_queued(self) -> None:
        """Write queued messages until the reader is slow."""
        while self.queued and not self.blocked and self.transport is not None:
            head = self.queued[0]
            chunk: Any = head if isinstance(head, bytes) else next(head, None)
            if chunk is None or head is chunk:
                self.queued.popleft()
            if chunk is not None:
                if isinstance(head, bytes):
                    self.queued_small_bytes -= len(head)
                self.queued_bytes -= len(chunk)
                self.transport.write(chunk)
        self.count_unread()
        self.peer.refusing = self.queued_bytes > self.service.limits.unread
        if not self.queued and self.draining and not self.peer.in_flight:
            self.finish()

    def count_unread(self) -> None:
        """Bring the queued bytes of this connection up to date in the server's `unread`."""
        if self.queued_bytes != self.counted_bytes:
            self.unread.add(self.owner, self.queued_bytes - self.counted_bytes)
            self.counted_bytes = self.queued_bytes

    def check_unread(self, request: Request, data: bytes | ChunkedMessage | None) -> bytes | ChunkedMessage | None:
        """Return a large answer, or an error in its place if too much is unread already."""
        if data is None or (len(data) if isinstance(data, bytes) else data.memory) <= PART_BYTES:
            return data
        try:
            check_unread(self.unread, self.owner, self.service.limits, data)
        except Overloaded as error:
            return seal_error(request, error, self.peer.result_meta)
        return data

    def pause_writing(self) -> None:
        """Called by the transport when the reader is slow."""
        self.blocked = True

    def resume_writing(self) -> None:
        """Called by the transport when the reader has caught up."""
        self.blocked = False
        self.write_queued()

    # -- beginning and end

    def connection_made(self, transport: Any) -> None:
        """Called with the transport of a socket. For two pipes `transport` is set directly."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel every request, and drop the messages that wait: the client no longer reads."""
        self.out.clear()
        self.queued.clear()
        self.queued_bytes = self.queued_small_bytes = 0
        self.count_unread()
        self.blocked, self.transport = False, None
        self.finish()

    def drain(self) -> None:
        """End long requests, let the others finish within `Limits.drain` seconds, even new ones, and then end."""
        if self.draining:
            return
        self.draining = True
        for request in [
            request for request in self.peer.in_flight.values() if request.row is not None and request.row.long
        ]:
            del self.peer.in_flight[request.id]
            request.task.cancel()
        if self.peer.in_flight:
            self.loop.call_later(self.service.limits.drain, self.finish)
        else:
            self.finish()

    def finish(self) -> None:
        """Cancel what still runs, and write what is collected. Set `ended` unless messages are queued: then it is set
        when they are written, or by `give_up`."""
        self.sweeper.cancel()
        for request in self.peer.close():
            request.task.cancel()
        self.pending.close()
        self.flush()
        if self.ended.done():
            return
        if self.queued:
            self.loop.call_later(self.service.limits.drain, self.give_up, self.queued_bytes)
        else:
            self.ended.set_result(None)

    def give_up(self, bytes_before: int) -> None:
        """End although messages are queued. A reader that has accepted some of the `bytes_before` gets more time."""
        if self.queued and self.queued_bytes == bytes_before:
            self.connection_lost(None)
        elif not self.ended.done():
            self.finish()


def _split(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Split pieces into parts of at most `PART_BYTES` bytes: a transport keeps in memory all that it has accepted."""
    for piece in pieces:
        for at in range(0, len(piece), PART_BYTES):
            yield piece if len(piece) <= PART_BYTES else memoryview(piece)[at : at + PART_BYTES]
