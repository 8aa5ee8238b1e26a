"""Connections for a `Client` under test: `Wire` records, drops, delays and cuts; `Replay` repeats a recording.

A fault affects the next messages of a method: either its requests, or the responses to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger.client.connect import Connection
from wharfinger.errors import ConnectionFailed, ConnectionLost
from wharfinger.protocol.interfaces import LinkEvents, Service
from wharfinger.protocol.limits import Limits
from wharfinger.testing.transcripts import Line, Transcript, normalized
from wharfinger.transports.memory import MemoryLink
from wharfinger.transports.stream_client import StreamLink

__all__ = ["Replay", "Wire"]

Deliver = Callable[[bytes], None]
Sender = Literal[">", "<"]


class _Head(msgspec.Struct):
    """The members that show which request a message belongs to."""

    method: str | UnsetType = UNSET
    id: int | str | UnsetType | None = UNSET


class _Fault(msgspec.Struct):
    """A fault of the next messages of a method."""

    kind: Literal["drop", "delay", "cut"]
    method: str
    response: bool
    """Whether it affects the responses to requests of the method, instead of the requests."""
    times: int
    """How many more messages it affects."""
    seconds: float = 0.0


_decode_head = msgspec.json.Decoder(_Head).decode


class Wire:
    """A server in this process and an unreliable connection to it, as the target of a `Client`.

        wire = Wire(server)
        wire.cut("tools/call")                       # the next call: the connection ends before the server has it
        async with Client(wire) as client: ...
        print(wire.transcript)

    The bytes are those of stdio. Each time a client connects, it gets a new connection to the same server.
    """

    def __init__(self, server: Service) -> None:
        self.server = server
        self.transcript = Transcript()
        """All messages that both ends have sent, including lost ones."""
        self.connections = 0
        """The number of connections that were opened."""
        self._faults: list[_Fault] = []
        self._links: list[_WireLink] = []

    def drop(self, method: str, *, response: bool = False, times: int = 1) -> None:
        """Lose the next requests or notifications of a method; with `response=True`, the responses to its requests."""
        self._faults.append(_Fault("drop", method, response, times))

    def delay(self, method: str, seconds: float, *, response: bool = False, times: int = 1) -> None:
        """Deliver the next messages of a method after `seconds`. Messages that are sent meanwhile overtake them."""
        self._faults.append(_Fault("delay", method, response, times, seconds))

    def cut(self, method: str = "", *, response: bool = False, times: int = 1) -> None:
        """End the connection instead of delivering the next messages of a method.

        Without a method, end all connections now.
        """
        if method:
            self._faults.append(_Fault("cut", method, response, times))
            return
        for link in [*self._links]:
            link.cut()

    @property
    def pending_faults(self) -> int:
        """The number of faults that have not happened yet."""
        return sum(fault.times for fault in self._faults)

    async def open_link(self, limits: Limits, events: LinkEvents) -> Connection:
        """Open a connection; `Client` calls this."""
        link = _WireLink(self, limits, events)
        self.connections += 1
        self.transcript.lines.append(Line("#", f"connection {self.connections}"))
        self._links.append(link)
        await link.open()
        return link

    def next_fault(self, method: str, response: bool) -> _Fault | None:
        """Return the fault for the next message of this method, or None; each fault is used `times` times."""
        for fault in self._faults:
            if fault.method == method and fault.response is response:
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                return fault
        return None

    def remove_link(self, link: _WireLink) -> None:
        """Remove a connection that has ended."""
        if link in self._links:
            self._links.remove(link)


class _WireLink(MemoryLink):
    """One connection of a `Wire`."""

    def __init__(self, wire: Wire, limits: Limits, events: LinkEvents) -> None:
        super().__init__(wire.server, limits, events)
        self._wire = wire
        self._open_requests: dict[tuple[Sender, Any], str] = {}
        """The methods of requests that have no response yet, by sender and id."""
        self._partial = b""
        """The beginning of a message of the server whose end has not arrived."""
        self._ending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect to the server, and intercept what the client sends."""
        await super().open()
        deliver = self.write
        self.write = lambda data: self._pass_on(">", data, deliver)

    def feed(self, data: bytes) -> None:
        """Take bytes that the server sent."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._pass_on("<", b"\n".join(lines), super().feed)

    def cut(self) -> None:
        """End the connection for both ends."""
        self._wire.transcript.lines.append(Line("#", "cut"))
        self.lose(lambda: ConnectionLost(f"The connection to {self.name} was cut."))
        self._ending = self._loop.create_task(self.close())

    async def close(self) -> None:
        """Disconnect from the server."""
        self._wire.remove_link(self)
        await super().close()

    def _pass_on(self, sender: Sender, data: bytes, deliver: Deliver) -> None:
        for line in data.split(b"\n"):
            if line.strip() and not self.is_lost:
                self._pass_on_line(sender, line, deliver)

    def _pass_on_line(self, sender: Sender, line: bytes, deliver: Deliver) -> None:
        self._wire.transcript.lines.append(Line(sender, line.decode(errors="replace")))
        method, response = self._method_of(sender, line)
        fault = self._wire.next_fault(method, response)
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

    def _method_of(self, sender: Sender, line: bytes) -> tuple[str, bool]:
        """Return the method of a message, empty for a batch or an invalid message; and whether it is a response."""
        try:
            head = _decode_head(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return "", False
        if isinstance(head.method, str):
            if head.id is not UNSET:
                self._open_requests[sender, head.id] = head.method
            return head.method, False
        return self._open_requests.pop(("<" if sender == ">" else ">", head.id), ""), True


class Replay:
    """A server that repeats a transcript of one connection, as the target of a `Client`.

    It continues as long as the client sends the messages of the transcript. At any other message the connection is
    lost, and the error of the call shows both messages.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._lines = (line for line in transcript.lines if line.sender != "#")
        self._next = next(self._lines, None)
        self._opened = False

    @property
    def done(self) -> bool:
        """Whether the end of the transcript is reached."""
        return self._next is None

    async def open_link(self, limits: Limits, events: LinkEvents) -> Connection:
        """Open the only connection; `Client` calls this."""
        if self._opened:
            raise ConnectionFailed("A Replay has one connection only: create another one.")
        self._opened = True
        return _ReplayLink(self, limits, events)

    def answers_to(self, text: str) -> list[str] | str:
        """Return the server's messages after this one of the client, or the text that was expected instead.

        That text is a message, or `nothing more` at the end of the transcript.
        """
        line = self._next
        if line is None or line.sender != ">" or normalized(line.text) != normalized(text):
            return "nothing more" if line is None else line.text
        answers: list[str] = []
        self._next = next(self._lines, None)
        while self._next is not None and self._next.sender == "<":
            answers.append(self._next.text)
            self._next = next(self._lines, None)
        return answers


class _ReplayLink(StreamLink):
    """The connection of a `Replay`."""

    transport = "memory"

    def __init__(self, replay: Replay, limits: Limits, events: LinkEvents) -> None:
        super().__init__("the transcript", limits, events)
        self._replay = replay
        self.write = self._answer

    def _answer(self, data: bytes) -> None:
        for text in data.decode().rstrip("\n").split("\n"):
            answers = self._replay.answers_to(text)
            if isinstance(answers, str):
                message = f"The client sent\n  {text[:2000]}\nand the transcript continues with\n  {answers[:2000]}"
                self.lose(partial(ConnectionLost, message))
                return
            self.feed("".join(f"{answer}\n" for answer in answers).encode())
