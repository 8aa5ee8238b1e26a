"""Streams that outlive their connections: numbered events, some of which are kept to be sent again.

A session of the handshake era has several streams: its own, which GET reads, and one for each POST whose answer became
a stream. A stream may lose its connection. Then its client requests the rest: GET with the id of the last event that it
saw (2025-11-25, resumability).

    ReplayStream   numbers the events of one stream. They go to `reader`, the connection that reads it now. Without
                   a reader, they are only kept.
    ReplayBuffer   keeps the last events of one session, of all its streams, oldest first. An event is kept even after
                   it was written: the server cannot know what the client has received.
    ReplayBuffers  bounds what all sessions keep together. The owner who keeps most loses events first, of the session
                   that was written to least recently.

An event's id is `<name of the session>-<number of the stream>-<number of the event>`, so that an id alone says what to
resume, and an id of another session is ignored. While `MAX_WAITING_MESSAGES` messages wait for a stream's next
connection, new notifications are dropped; of equal change notifications, only one waits. Answers and requests are kept
even then, unless one alone is larger than the buffer. Kept events of any kind are dropped when newer ones need the
room.
"""

from __future__ import annotations

from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.request import ChunkedMessage
from wharfinger.protocol.shares import Shares
from wharfinger.transports.http_server.asgi_response import is_change_notice
from wharfinger.transports.http_server.open_calls import HttpCall
from wharfinger.transports.serving import CancelReason

__all__ = ["ReplayBuffer", "ReplayBuffers", "ReplayStream"]

_EVENT_OVERHEAD_BYTES = 200
"""Bytes of memory that an event takes in addition to its text."""
MAX_WAITING_MESSAGES = 64
"""With this many messages waiting for a stream's next connection, further notifications are dropped."""


class ReplayBuffers:
    """The buffers of all sessions, with a limit on their total size."""

    __slots__ = ("buffers", "limits", "max_message", "sizes")

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.max_message = (
            min(limits.replay_size, limits.replay_total) - _EVENT_OVERHEAD_BYTES if limits.replay_events else -1
        )
        """The maximum size in bytes of a message that can be kept."""
        self.sizes = Shares()
        """Bytes by owner."""
        self.buffers: dict[str, dict[ReplayBuffer, None]] = {}
        """The buffers of each owner that hold something; the one that was written to least recently comes first."""

    def make_room(self) -> None:
        """Drop events of the owner who keeps most, until all events together are within the limit.

        The first to go are the oldest events of the session that was written to least recently.
        """
        while self.sizes.total > self.limits.replay_total:
            next(iter(self.buffers[self.sizes.find_largest()])).drop_oldest()


class ReplayBuffer:
    """The last events of one session, of all its streams, oldest first."""

    __slots__ = ("_buffers", "_events", "_owner", "_size")

    def __init__(self, buffers: ReplayBuffers, owner: str) -> None:
        self._buffers = buffers
        self._owner = owner
        self._events: dict[tuple[int, int], bytes] = {}
        self._size = 0

    @property
    def max_message(self) -> int:
        """The maximum size in bytes of a message that can be kept."""
        return self._buffers.max_message

    def __len__(self) -> int:
        return len(self._events)

    def keep(self, stream: int, number: int, message: bytes) -> bool:
        """Keep one event. Returns False if it is too large."""
        buffers, events = self._buffers, self._events
        if len(message) > buffers.max_message:
            return False
        limits = buffers.limits
        cost = len(message) + _EVENT_OVERHEAD_BYTES
        while events and (len(events) >= limits.replay_events or self._size + cost > limits.replay_size):
            self.drop_oldest()
        events[stream, number] = message
        self._size += cost
        buffers.sizes.add(self._owner, cost)
        same_owner = buffers.buffers.setdefault(self._owner, {})
        same_owner.pop(self, None)
        same_owner[self] = None  # now the last one
        if buffers.sizes.total > limits.replay_total:
            buffers.make_room()
        return True

    def drop_oldest(self) -> None:
        """Drop the oldest event."""
        cost = len(self._events.pop(next(iter(self._events)))) + _EVENT_OVERHEAD_BYTES
        self._size -= cost
        self._buffers.sizes.add(self._owner, -cost)
        if not self._events:
            same_owner = self._buffers.buffers[self._owner]
            del same_owner[self]
            if not same_owner:
                del self._buffers.buffers[self._owner]

    def events_after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        """Return the kept events of one stream after the one with this number: pairs of number and message."""
        return [(n, message) for (s, n), message in self._events.items() if s == stream and n > number]

    def clear(self) -> None:
        """Drop everything: the session has ended."""
        while self._events:
            self.drop_oldest()


class ReplayStream:
    """One stream of a session. At most one connection reads it at a time."""

    __slots__ = ("_delivered", "_last", "_name", "buffer", "number", "over", "reader")

    def __init__(self, buffer: ReplayBuffer, name: str, number: int) -> None:
        self.buffer = buffer
        self.number = number
        """Its number within the session; 0 is the session's own, for messages that belong to no request."""
        self._name = name
        self._last = 0
        self._delivered = 0
        """The number of the last event that was written to a connection."""
        self.reader: HttpCall | None = None
        """The connection that reads it now."""
        self.over = False
        """Whether the last event has been sent or kept."""

    def _id(self, number: int) -> str:
        return f"{self._name}-{self.number}-{number}"

    def push(self, message: bytes, now: float, *, required: bool = False) -> bool:
        """Keep one message, and send it if a connection reads the stream. Returns False if it was dropped.

        A change notification that equals one that waits for the next connection is not kept twice, and counts as sent.
        A `required` message is dropped only if it can neither be sent nor kept, or if the stream is over.
        """
        number, reader = self._last + 1, self.reader
        if self.over:
            return False
        if reader is not None and reader.stream is not None and not reader.stream.closed:
            if not reader.stream.push(message, now, id=self._id(number), required=required):
                return False
            self._last = self._delivered = number
            self.buffer.keep(self.number, number, message)
            return True
        if not required:
            waiting = self.buffer.events_after(self.number, self._delivered)
            if is_change_notice(message) and any(message == other for _, other in waiting):
                return True
            if len(waiting) >= MAX_WAITING_MESSAGES:
                return False
        if not self.buffer.keep(self.number, number, message):
            return False
        self._last = number
        return True

    def finish(self, answer: bytes | ChunkedMessage | None, too_large: bytes = b"") -> None:
        """End the stream with its answer: keep it, and send it if a connection reads the stream.

        If it can be neither sent nor kept, `too_large` is kept in its place. With None, the stream ends without an
        answer.
        """
        reader, self.reader = self.reader, None
        number = self._last = self._last + 1
        self.over = True
        kept = answer is None
        if answer is not None and len(answer) <= self.buffer.max_message:
            kept = self.buffer.keep(self.number, number, answer if isinstance(answer, bytes) else b"".join(answer))
        if reader is not None and reader.stream is not None and not reader.stream.closed:
            reader.final = answer
            reader.final_id = self._id(number)
            reader.cancel(CancelReason.STREAM_ENDED)
        elif not kept:
            self.buffer.keep(self.number, number, too_large)

    def prime(self, now: float) -> None:
        """Send the reader an id from which it can resume, before the first event."""
        if self.reader is not None and self.reader.stream is not None:
            self.reader.stream.prime(self._id(self._last), now)

    def detach(self, retry_ms: int, now: float) -> bool:
        """End the connection but not the stream: the client requests the rest after `retry_ms`.

        Returns False if no connection reads the stream.
        """
        reader, self.reader = self.reader, None
        if reader is None or reader.stream is None or reader.stream.closed:
            return False
        reader.stream.prime(self._id(self._last), now, retry=retry_ms)
        reader.cancel(CancelReason.STREAM_ENDED)
        return True

    def leave(self, call: HttpCall) -> None:
        """Forget a connection that is over, unless another one already reads the stream."""
        if self.reader is call:
            self.reader = None

    def resume(self, call: HttpCall, after: int | None, now: float) -> None:
        """Let an open connection read the stream: first the kept events after number `after`, then new ones.

        Without `after`, the connection first gets the events that no connection got. A connection that still reads the
        stream is ended, because its client has reconnected.
        """
        if self.reader is not None:
            self.reader.cancel(CancelReason.STREAM_ENDED)
        self.reader = call
        assert call.stream is not None
        for number, message in self.buffer.events_after(self.number, self._delivered if after is None else after):
            call.stream.push(message, now, id=self._id(number), required=True)
        self._delivered = self._last
