"""The response to one ASGI call: a JSON body, or a stream of events that never waits for a slow reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from wharfinger.protocol.request import ChunkedMessage
from wharfinger.protocol.sse import COMMENT, encode_event, encode_pieces
from wharfinger.protocol.subscriptions import LISTS
from wharfinger.transports.serving import PART_BYTES

__all__ = [
    "ABORTABLE",
    "JSON_TYPE",
    "STREAM_HEADERS",
    "ClientGone",
    "EventStream",
    "FlushQueue",
    "is_change_notice",
    "send_body",
    "send_empty",
    "send_json",
]

Pair = tuple[bytes, bytes]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

NO_SNIFFING: Pair = (b"x-content-type-options", b"nosniff")
"""Makes browsers use the declared type of a body instead of guessing it."""
JSON_TYPE: Pair = (b"content-type", b"application/json")
STREAM_HEADERS: tuple[Pair, ...] = (
    (b"content-type", b"text/event-stream"),
    NO_SNIFFING,
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx buffers events
)
ABORTABLE = "wharfinger.abortable"
"""A key of ASGI events with a part of a body: our own HTTP server's `send` then raises `ClientGone` if the client has
disconnected."""
_MAX_JOINED_BYTES = 64 * 1024
_CHANGE_NOTICES = tuple(
    b'{"jsonrpc":"2.0","method":"notifications/%b"' % name.encode()
    for name in ("resources/updated", *(f"{name}/list_changed" for name in LISTS))
)
"""How the messages of `protocol.subscriptions` about changes begin."""
STREAMS_PER_TURN = 200
"""The maximum number of streams that are written in one turn of the loop, in about 3 ms."""


def split_message(message: bytes) -> ChunkedMessage:
    """Return a large message in parts, which are views of it."""
    view = memoryview(message)
    return ChunkedMessage(tuple(view[start : start + PART_BYTES] for start in range(0, len(view), PART_BYTES)))


async def _parts_of(message: ChunkedMessage) -> AsyncIterator[bytes | memoryview]:
    """Yield a message in parts of at most `PART_BYTES`."""
    async for piece in message:
        for start in range(0, len(piece), PART_BYTES):
            yield piece[start : start + PART_BYTES]


async def send_json(send: Send, status: int, body: bytes | ChunkedMessage, headers: Iterable[Pair] = ()) -> None:
    """Send a JSON body; a large one is sent in parts, as fast as the connection takes them."""
    await send_body(send, status, body, (JSON_TYPE, *headers))


async def send_body(send: Send, status: int, body: bytes | ChunkedMessage, headers: tuple[Pair, ...]) -> None:
    """Send one body with these headers."""
    if len(body) <= PART_BYTES and not isinstance(body, bytes):  # one write is cheaper than three
        body = b"".join([bytes(piece) async for piece in body])
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, NO_SNIFFING, (b"content-length", b"%d" % len(body))],
        }
    )
    if not isinstance(body, bytes) or len(body) > PART_BYTES:
        try:
            async for piece in split_message(body) if isinstance(body, bytes) else body:
                for start in range(0, len(piece), PART_BYTES):
                    part = bytes(piece[start : start + PART_BYTES])
                    await send({"type": "http.response.body", "body": part, "more_body": True, ABORTABLE: True})
        except ClientGone:  # a lazy blob is not read any further
            return
        body = b""
    await send({"type": "http.response.body", "body": body})


async def send_empty(send: Send, status: int, headers: Iterable[Pair] = ()) -> None:
    """Send a response without a body."""
    length = () if status == 204 else ((b"content-length", b"0"),)
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b""})


def is_change_notice(message: bytes) -> bool:
    """Return whether a message is a change notification: while one is queued, an equal one would say nothing new."""
    return message.startswith(_CHANGE_NOTICES)


class ClientGone(OSError):
    """Raised by `send` for an event that has `ABORTABLE`: the client is gone."""


class FlushQueue:
    """The streams that have something to write. Each turn of the loop writes at most `STREAMS_PER_TURN` of them."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: deque[EventStream] = deque()

    def add(self, stream: EventStream) -> None:
        """Write this stream soon. All streams share a callback: one for each would cost as much as an event."""
        if not self._streams:
            asyncio.get_running_loop().call_soon(self._flush)
        self._streams.append(stream)

    def _flush(self) -> None:
        streams = self._streams
        batch = [streams.popleft() for _ in range(min(STREAMS_PER_TURN, len(streams)))]
        if streams:
            asyncio.get_running_loop().call_soon(self._flush)
        for stream in batch:
            stream.flush()


class EventStream:
    """A stream of events to one client. `push` never waits: while more than `limit` bytes are queued for a slow reader,
    further messages are dropped.

    The events of one turn of the loop are written together in the next one. A task is needed only while the connection
    accepts nothing, or if the ASGI server cannot write without one; an idle stream has none.
    """

    __slots__ = (
        "_flushes",
        "_flushing",
        "_headers",
        "_limit",
        "_queue",
        "_queued_notices",
        "_send",
        "_size",
        "_started",
        "_write_at_once",
        "_writer",
        "closed",
        "quiet_since",
    )

    def __init__(self, send: Send, limit: int, now: float, flushes: FlushQueue, headers: Iterable[Pair] = ()) -> None:
        self._send = send
        self._write_at_once: Callable[[bytes], bool] | None = getattr(send, "write_at_once", None)
        """Added by our own HTTP server to ASGI's `send`: a task for each notification would double its cost."""
        self._flushes = flushes
        self._flushing = False
        self._limit = limit
        self._headers = (*STREAM_HEADERS, *headers)
        self._queue: list[bytes] = []
        self._queued_notices: set[bytes] = set()
        self._size = 0  # bytes that the connection has not accepted yet
        self._started = False
        self._writer: asyncio.Task[None] | None = None
        self.closed = False
        """Whether the stream is finished, or its reader is gone: nothing more is accepted."""
        self.quiet_since = now

    def open(self) -> None:
        """Send the headers now, so that the client sees an open stream before its first event."""
        self._wake()

    def push(self, message: bytes, now: float, *, id: str = "", required: bool = False) -> bool:
        """Send one message as an event. Returns False if it was dropped.

        A `required` message is not dropped when the reader is slow. A change notification that equals a queued one is
        not queued twice, and counts as sent.
        """
        if self.closed or (self._size > self._limit and not required):
            return False
        if message in self._queued_notices:
            return True
        if is_change_notice(message):
            self._queued_notices.add(message)
        self._put(encode_event(message, id=id), now)
        return True

    def prime(self, id: str, now: float, *, retry: int | None = None) -> None:
        """Send an event without data: its id, from which the stream can be resumed after `retry` ms."""
        if not self.closed:
            self._put(encode_event(b"", id=id, retry=retry), now)

    def comment(self, now: float, text: bytes = COMMENT) -> None:
        """Send a comment, which clients ignore: to show proxies that the stream is alive, or to say why it ends.

        Does nothing while events are queued.
        """
        if not self.closed and not self._queue:
            self._put(text, now)

    def _put(self, event: bytes, now: float) -> None:
        self.quiet_since = now
        self._queue.append(event)
        self._size += len(event)
        self._wake()

    def _wake(self) -> None:
        if self._flushing or self._writer is not None:
            return
        if self._write_at_once is not None and self._started:
            self._flushing = True
            self._flushes.add(self)
        else:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def flush(self) -> None:
        """Write the queued events now, or in a task if the connection does not accept them at once."""
        self._flushing = False
        if self._writer is not None or not self._queue:
            return
        data = b"".join(self._queue)
        if self._write_at_once is not None and self._write_at_once(data):
            self._queue.clear()
            self._queued_notices.clear()
            self._size -= len(data)
            self._sent()
        else:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            await self._start()
            while self._queue:
                data = b"".join(self._queue)
                self._queue.clear()
                self._queued_notices.clear()
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
                self._size -= len(data)
                self._sent()
        except OSError:  # raised by servers other than uvicorn when the client is gone
            self.closed = True
        finally:
            self._writer = None

    def _sent(self) -> None:
        """Called when the connection has accepted the queued events. A subclass may then ask for more."""

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(self._headers)})

    async def finish(self, message: bytes | ChunkedMessage | None, *, id: str = "") -> None:
        """Send the queued events, then the final message if there is one, and end the stream."""
        self.closed = True
        if self._flushing:
            self.flush()
        while self._writer is not None:
            await asyncio.wait((self._writer,))
        await self._start()
        pieces: list[bytes] = []
        if isinstance(message, bytes) and len(message) > PART_BYTES:
            message = split_message(message)
        if isinstance(message, bytes):
            pieces.append(encode_event(message, id=id))
        elif message is not None:
            parts = message if len(message) <= PART_BYTES else _parts_of(message)
            try:
                async for piece in encode_pieces(parts, id=id):
                    pieces.append(piece)
                    if sum(map(len, pieces)) >= _MAX_JOINED_BYTES:
                        body = b"".join(pieces)
                        await self._send(
                            {"type": "http.response.body", "body": body, "more_body": True, ABORTABLE: True}
                        )
                        pieces.clear()
            except ClientGone:  # a lazy blob is not read any further
                return
        await self._send({"type": "http.response.body", "body": b"".join(pieces)})
