"""The streams of a session, which outlive the connections that carry them, and what is kept to be read again."""

from __future__ import annotations

from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.request import ChunkedMessage
from wharfinger.protocol.shares import Shares
from wharfinger.transports.http_server.asgi_response import is_hint
from wharfinger.transports.http_server.open_calls import Call
from wharfinger.transports.serving import CancelReason

__all__ = ["Ring", "Rings", "Track"]

_COST = 200
"""Bytes that an event takes beside its text."""
UNREAD = 64
"""Notifications that wait for a stream's next connection; answers and questions always do."""


class Rings:
    """What the rings of all sessions hold together; the largest owner's oldest rings give way first."""

    __slots__ = ("held", "largest", "limits", "rings")

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.largest = min(limits.replay_size, limits.replay_total) - _COST if limits.replay_events else -1
        """Bytes of the largest message that may be kept."""
        self.held = Shares()
        """Bytes by owner."""
        self.rings: dict[str, dict[Ring, None]] = {}
        """Those of each owner that hold something, the one written to least recently first."""

    def make_room(self) -> None:
        """Drop the oldest events until all fit."""
        while self.held.total > self.limits.replay_total:
            next(iter(self.rings[self.held.find_largest()])).drop_oldest()


class Ring:
    """The last events of one session, of all its streams, oldest first. Its session alone has a way to it."""

    __slots__ = ("_events", "_owner", "_rings", "_size")

    def __init__(self, rings: Rings, owner: str) -> None:
        self._rings = rings
        self._owner = owner
        self._events: dict[tuple[int, int], bytes] = {}
        self._size = 0

    @property
    def largest(self) -> int:
        """Bytes of the largest message that may be kept."""
        return self._rings.largest

    def __len__(self) -> int:
        return len(self._events)

    def keep(self, stream: int, number: int, message: bytes) -> bool:
        """Keep one event; False where it is larger than all that may be kept."""
        rings, events = self._rings, self._events
        if len(message) > rings.largest:
            return False
        cost = len(message) + _COST
        while events and (len(events) >= rings.limits.replay_events or self._size + cost > rings.limits.replay_size):
            self.drop_oldest()
        events[stream, number] = message
        self._size += cost
        rings.held.add(self._owner, cost)
        own = rings.rings.setdefault(self._owner, {})
        own.pop(self, None)
        own[self] = None
        if rings.held.total > rings.limits.replay_total:
            rings.make_room()
        return True

    def drop_oldest(self) -> None:
        """Forget the first event."""
        cost = len(self._events.pop(next(iter(self._events)))) + _COST
        self._size -= cost
        self._rings.held.add(self._owner, -cost)
        if not self._events:
            own = self._rings.rings[self._owner]
            del own[self]
            if not own:
                del self._rings.rings[self._owner]

    def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        """What is kept of one stream behind its event of this number."""
        return [(n, message) for (s, n), message in self._events.items() if s == stream and n > number]

    def clear(self) -> None:
        """Forget everything: the session has ended."""
        while self._events:
            self.drop_oldest()


class Track:
    """One stream of a session: its events have numbers, and one connection at most reads it at a time."""

    __slots__ = ("_delivered", "_last", "_name", "over", "reader", "ring", "stream")

    def __init__(self, ring: Ring, name: str, stream: int) -> None:
        self.ring = ring
        self.stream = stream
        """Its number within the session; 0 is the session's own, for what belongs to no request."""
        self._name = name
        self._last = 0
        self._delivered = 0
        self.reader: Call | None = None
        """The connection that reads it now."""
        self.over = False
        """Nothing more will come."""

    def _id(self, number: int) -> str:
        return f"{self._name}-{self.stream}-{number}"

    def push(self, message: bytes, now: float, *, must: bool = False) -> bool:
        """Send one message, or keep it for the next connection; False where it was dropped.

        What `must` be sent is dropped only where it can neither be sent nor kept.
        """
        number, reader = self._last + 1, self.reader
        if self.over:
            return False
        if reader is not None and reader.stream is not None and not reader.stream.closed:
            if not reader.stream.push(message, now, id=self._id(number), must=must):
                return False
            self._last = self._delivered = number
            self.ring.keep(self.stream, number, message)
            return True
        if not must:
            waiting = self.ring.after(self.stream, self._delivered)
            if is_hint(message) and any(message == other for _, other in waiting):
                return True
            if len(waiting) >= UNREAD:
                return False
        if not self.ring.keep(self.stream, number, message):
            return False
        self._last = number
        return True

    def finish(self, answer: bytes | ChunkedMessage | None, too_large: bytes = b"") -> None:
        """Send the answer as the last event, or keep it for a client that was cut off, and `too_large` in its place."""
        reader, self.reader = self.reader, None
        number = self._last = self._last + 1
        self.over = True
        kept = answer is None or self._keep_answer(number, answer)
        if reader is not None and reader.stream is not None and not reader.stream.closed:
            reader.final = answer
            reader.final_id = self._id(number)
            reader.cancel(CancelReason.STREAM_ENDED)
        elif not kept:
            self.ring.keep(self.stream, number, too_large)

    def _keep_answer(self, number: int, answer: bytes | ChunkedMessage) -> bool:
        if len(answer) > self.ring.largest:
            return False
        return self.ring.keep(self.stream, number, answer if isinstance(answer, bytes) else b"".join(answer))

    def prime(self, now: float) -> None:
        """Tell the reader an id to go on after, before there is any event."""
        if self.reader is not None and self.reader.stream is not None:
            self.reader.stream.prime(self._id(self._last), now)

    def release(self, retry: int, now: float) -> bool:
        """End the connection but not the stream: its client comes back for the rest after `retry` milliseconds."""
        reader, self.reader = self.reader, None
        if reader is None or reader.stream is None or reader.stream.closed:
            return False
        reader.stream.prime(self._id(self._last), now, retry=retry)
        reader.cancel(CancelReason.STREAM_ENDED)
        return True

    def leave(self, call: Call) -> None:
        """This connection is over; the stream is not, unless another end has ended it."""
        if self.reader is call:
            self.reader = None

    def read_on(self, call: Call, after: int | None, now: float) -> None:
        """Read from now on over this call, whose stream is open: first what came behind event `after`, if it is kept.

        A connection that still reads it, as far as we know, is ended: its client has said that it is not there.
        """
        if self.reader is not None:
            self.reader.cancel(CancelReason.STREAM_ENDED)
        self.reader = call
        assert call.stream is not None
        for number, message in self.ring.after(self.stream, self._delivered if after is None else after):
            call.stream.push(message, now, id=self._id(number), must=True)
        self._delivered = self._last
