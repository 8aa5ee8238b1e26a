"""Encodes and decodes server-sent events (WHATWG HTML §9.2), incrementally and with bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from msgspec import Struct

from wharfinger.errors import WharfingerError
from wharfinger.protocol.lines import MAX_CHUNKS

__all__ = ["COMMENT", "Event", "EventDecoder", "EventTooLarge", "Pulse", "encode_event", "encode_pieces"]

COMMENT = b":\n\n"
"""A comment line, which keeps an idle stream open; readers ignore it."""

MAX_EVENT_ID_CHARACTERS = 4096
"""The maximum number of characters of an event id that a client sends back."""

_BOM = b"\xef\xbb\xbf"


class EventTooLarge(WharfingerError):
    """An event of a stream is over the limit."""


class Event(Struct, frozen=True, kw_only=True):
    """One dispatched event. `data` stays bytes: an event with empty data (a 2025-11-25 priming event) is not JSON."""

    data: bytes
    event: str = "message"
    id: str = ""
    """The last id of the stream, which may come from an earlier event (WHATWG HTML §9.2.6)."""


def encode_event(data: bytes, *, event: str = "message", id: str = "", retry: int | None = None) -> bytes:
    """Encode one event. Line breaks in `data` become further `data:` lines, so that content cannot forge a field.

    `retry` is the time in milliseconds after which a client whose connection breaks should reconnect.

    Raises:
        ValueError: `event` or `id` contains a line break or NUL.
    """
    head = b"event: message\n" if event == "message" else b"event: %b\n" % _field(event)
    if id:
        head += b"id: " + _field(id) + b"\n"
    if retry is not None:
        head += b"retry: %d\n" % retry
    return head + b"data: " + _fold(data) + b"\n\n"


async def encode_pieces(pieces: AsyncIterable[bytes | bytearray | memoryview], *, id: str = "") -> AsyncIterator[bytes]:
    """Encode one event whose data comes in pieces, without joining them."""
    yield b"event: message\nid: %b\ndata: " % _field(id) if id else b"event: message\ndata: "
    pending = b""  # a CR at the end of a piece may belong to an LF at the start of the next one
    async for piece in pieces:
        data = pending + bytes(piece)
        pending = data[-1:] if data.endswith(b"\r") else b""
        yield _fold(data[: len(data) - len(pending)])
    yield b"\n\n" if not pending else b"\ndata: \n\n"


def _field(value: str) -> bytes:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError("an event name or id must not contain a line break or NUL")
    return value.encode()


def _fold(data: bytes) -> bytes:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.replace(b"\n", b"\ndata: ") if b"\n" in data else data


class EventDecoder:
    """Decodes an event stream from chunks of any size, in linear time, with at most `limit` bytes in memory."""

    __slots__ = (
        "_buffered_bytes", "_data", "_event", "_joined_count", "_limit", "_line", "_skip_lf", "_started", "last_id",
        "retry",
    )  # fmt: skip

    def __init__(self, limit: int) -> None:
        self.last_id = ""
        self.retry: int | None = None
        """The last reconnection time that the stream asked for, in milliseconds."""
        self._limit = limit
        self._line: list[bytes] = []  # chunks of the unfinished line, joined as in `LineBuffer`
        self._joined_count = 0
        self._buffered_bytes = 0  # bytes in _line and _data
        self._data: list[bytes] = []
        self._event = ""
        self._skip_lf = False  # the last chunk ended in CR: an LF that opens the next one belongs to it
        self._started = False

    @property
    def resume_id(self) -> str:
        """`last_id` if a client can send it back in a Last-Event-ID header; otherwise an empty string."""
        id = self.last_id
        can_be_sent = len(id) <= MAX_EVENT_ID_CHARACTERS and id.isascii() and id.isprintable()
        return id if can_be_sent else ""

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode the next bytes and return the events that they complete.

        An unfinished event at the end of the stream is discarded (WHATWG HTML §9.2.6).

        Raises:
            EventTooLarge: an event is over the limit. Do not use the decoder after that.
        """
        if not chunk:
            return []
        if self._skip_lf:
            self._skip_lf = False
            if chunk[0] == 10:
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._skip_lf = chunk[-1] == 13
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *line_tails, rest = chunk.split(b"\n")
        events: list[Event] = []
        for tail in line_tails:
            self._line.append(tail)
            self._add_bytes(len(tail))
            line = b"".join(self._line) if len(self._line) > 1 else tail
            self._line.clear()
            self._joined_count = 0
            event = self._take(line)
            if event is not None:
                events.append(event)
        if rest:
            self._line.append(rest)
            self._add_bytes(len(rest))
            if len(self._line) - self._joined_count == MAX_CHUNKS:
                self._line[self._joined_count :] = [b"".join(self._line[self._joined_count :])]
                self._joined_count += 1
        return events

    def _add_bytes(self, size: int) -> None:
        self._buffered_bytes += size
        if self._buffered_bytes > self._limit:
            raise EventTooLarge(f"the server sent an event larger than {self._limit} bytes")

    def _take(self, line: bytes) -> Event | None:
        """Process one line. Returns the event that an empty line ends; None for any other line, or without data."""
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:  # the end of an event
            lines, event = self._data, self._event
            self._data, self._event, self._buffered_bytes = [], "", 0
            return Event(data=b"\n".join(lines), event=event or "message", id=self.last_id) if lines else None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._buffered_bytes -= len(line) - len(value)
            self._buffered_bytes += 1  # the line end that joins it to the next one: empty lines count too
            return None
        self._buffered_bytes -= len(line)
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry = int(value)
        return None


class Pulse:
    """Finds out when a silent stream is dead, if its server sends comments to keep it open. Times are in seconds."""

    __slots__ = ("_gap", "_last")

    MIN_SECONDS = 30.0
    """A stream that was silent for less than this is never dead."""
    MAX_MISSED = 3
    """A stream is dead after a silence of this many times the longest gap between two comments."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._gap = 0.0

    def beat(self, now: float, chunk: bytes) -> float | None:
        """Record a chunk. Returns the time at which the stream is dead if nothing more comes; None if unknown."""
        if chunk[:1] == b":":
            if self._last is not None:
                self._gap = max(self._gap, now - self._last)
            self._last = now
        return now + max(self.MIN_SECONDS, self.MAX_MISSED * self._gap) if self._gap else None
