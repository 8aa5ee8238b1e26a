"""Ways to a server for a `Client` under test: one that records, loses, delays and cuts, and one that only repeats.

Refuses to know what a message means: a fault is of a method, and of its request or its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger.errors import ConnectionFailed, ConnectionLost
from wharfinger.protocol.interfaces import LinkEvents, Service
from wharfinger.protocol.limits import Limits
from wharfinger.testing.transcripts import Line, Transcript, essence
from wharfinger.transports.memory import MemoryLink
from wharfinger.transports.stream_client import StreamLink

__all__ = ["Replay", "Wire"]

Deliver = Callable[[bytes], None]
Who = Literal[">", "<"]


class _Head(msgspec.Struct):
    """What tells which request a message is, or answers."""

    method: str | UnsetType = UNSET
    id: int | str | UnsetType | None = UNSET


class _Fault(msgspec.Struct):
    """What is to happen to the next messages of a method."""

    kind: Literal["drop", "delay", "cut"]
    method: str
    answer: bool
    times: int
    seconds: float = 0.0


_decode_head = msgspec.json.Decoder(_Head).decode


class Wire:
    """A server of this process and an unreliable connection to it; the target of a `Client`.

        wire = Wire(server)
        wire.cut("tools/call")                       # the next call: the connection ends before the server has it
        async with Client(wire) as client: ...
        print(wire.transcript)

    The bytes are those of stdio. Each opening of the client is a new connection to the same server.
    """

    def __init__(self, server: Service) -> None:
        self.server = server
        self.transcript = Transcript()
        """What both ends have said, whether it arrived or not."""
        self.connections = 0
        """How often it was opened."""
        self._faults: list[_Fault] = []
        self._links: list[_WireLink] = []

    # The script.

    def drop(self, method: str, *, answer: bool = False, times: int = 1) -> None:
        """Lose the next requests or notifications of a method; with `answer` the answers to its requests."""
        self._faults.append(_Fault("drop", method, answer, times))

    def delay(self, method: str, seconds: float, *, answer: bool = False, times: int = 1) -> None:
        """Hold back the next ones for so long; what is said meanwhile overtakes them."""
        self._faults.append(_Fault("delay", method, answer, times, seconds))

    def cut(self, method: str = "", *, answer: bool = False, times: int = 1) -> None:
        """End the connection instead of delivering the next ones; without a method end what is open at once."""
        if method:
            self._faults.append(_Fault("cut", method, answer, times))
            return
        for link in [*self._links]:
            link.cut()

    @property
    def waiting(self) -> int:
        """Faults that have not happened yet."""
        return sum(fault.times for fault in self._faults)

    # What the client calls.

    async def open_link(self, limits: Limits, events: LinkEvents) -> Any:
        """A new connection."""
        link = _WireLink(self, limits, events)
        self.connections += 1
        self.transcript.lines.append(Line("#", f"connection {self.connections}"))
        self._links.append(link)
        await link.open()
        return link

    # What its connections call.

    def next_fault(self, method: str, answer: bool) -> _Fault | None:
        """The fault that a message of this method meets, used once."""
        for fault in self._faults:
            if fault.method == method and fault.answer is answer:
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                return fault
        return None

    def parted(self, link: _WireLink) -> None:
        """A connection is no more."""
        if link in self._links:
            self._links.remove(link)


class _WireLink(MemoryLink):
    """One connection of a `Wire`."""

    def __init__(self, wire: Wire, limits: Limits, events: LinkEvents) -> None:
        super().__init__(wire.server, limits, events)
        self._wire = wire
        self._asked: dict[tuple[Who, Any], str] = {}
        """The methods of requests without an answer yet, by who asked."""
        self._partial = b""
        self._ending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Join the server, with this between the two ends."""
        await super().open()
        deliver = self.write
        self.write = lambda data: self._say(">", data, deliver)

    def feed(self, data: bytes) -> None:
        """Take bytes of the server's."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._say("<", b"\n".join(lines), super().feed)

    def cut(self) -> None:
        """End the connection for both ends."""
        self._wire.transcript.lines.append(Line("#", "cut"))
        self.lose(lambda: ConnectionLost(f"The connection to {self.name} was cut."))
        self._ending = self._loop.create_task(self.close())

    async def close(self) -> None:
        """Part from the server."""
        self._wire.parted(self)
        await super().close()

    def _say(self, who: Who, data: bytes, deliver: Deliver) -> None:
        for line in data.split(b"\n"):
            if line.strip() and not self.is_lost:
                self._say_one(who, line, deliver)

    def _say_one(self, who: Who, line: bytes, deliver: Deliver) -> None:
        self._wire.transcript.lines.append(Line(who, line.decode(errors="replace")))
        method, answer = self._method_of(who, line)
        fault = self._wire.next_fault(method, answer)
        if fault is None:
            deliver(line + b"\n")
        elif fault.kind == "cut":
            self.cut()
        else:
            self._wire.transcript.lines.append(Line("#", f"{fault.kind} {method}"))
            if fault.kind == "delay":
                self._loop.call_later(fault.seconds, self._deliver_late, line, deliver)

    def _deliver_late(self, line: bytes, deliver: Deliver) -> None:
        if not self.is_lost:
            deliver(line + b"\n")

    def _method_of(self, who: Who, line: bytes) -> tuple[str, bool]:
        """The method of a message, and whether it is an answer; none for what is no message, such as a batch."""
        try:
            head = _decode_head(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return "", False
        if isinstance(head.method, str):
            if head.id is not UNSET:
                self._asked[who, head.id] = head.method
            return head.method, False
        return self._asked.pop(("<" if who == ">" else ">", head.id), ""), True


class Replay:
    """A server that says what it said before, as long as its client does, too; the target of a `Client`.

    It holds the first connection of a transcript. A client that says something else loses the connection, and the error
    of its call names both messages.
    """

    def __init__(self, transcript: Transcript) -> None:
        said = [line for line in transcript.lines if line.who != "#"]
        self._lines = iter(said)
        self._next = next(self._lines, None)
        self._opened = False

    @property
    def done(self) -> bool:
        """Whether everything was said."""
        return self._next is None

    async def open_link(self, limits: Limits, events: LinkEvents) -> Any:
        """The connection; there is one only."""
        if self._opened:
            raise ConnectionFailed("A transcript is replayed once: make another Replay.")
        self._opened = True
        return _ReplayLink(self, limits, events)

    def hear(self, text: str) -> list[str] | str:
        """What the server says after this message of the client; or what the client should have said."""
        line = self._next
        if line is None or line.who != ">" or essence(line.text) != essence(text):
            return "nothing more" if line is None else line.text
        said: list[str] = []
        self._next = next(self._lines, None)
        while self._next is not None and self._next.who == "<":
            said.append(self._next.text)
            self._next = next(self._lines, None)
        return said


class _ReplayLink(StreamLink):
    """The connection of a `Replay`."""

    def __init__(self, replay: Replay, limits: Limits, events: LinkEvents) -> None:
        super().__init__("the transcript", limits, events)
        self._replay = replay
        self.write = self._hear

    def _hear(self, data: bytes) -> None:
        for text in data.decode().rstrip("\n").split("\n"):
            answers = self._replay.hear(text)
            if isinstance(answers, str):
                self._end_with(text, answers)
                return
            self.feed("".join(f"{answer}\n" for answer in answers).encode())

    def _end_with(self, text: str, wanted: str) -> None:
        message = f"The client said\n  {text[:2000]}\nand the transcript goes on with\n  {wanted[:2000]}"
        self.lose(lambda: ConnectionLost(message))
