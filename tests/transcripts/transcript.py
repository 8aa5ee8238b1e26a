"""Parse transcripts of the messages between a client and a server, and replay them.

A file has a line for each message: `> ` and a message of the client, or `< ` and a message of the server. `${state1}`
stands for text that differs each time: its first use by the server sets its value, and later uses repeat the value.
`${_}` matches any text. Lines that begin with `#` are remarks.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from tests.conformance.server import make_server
from wharfinger.transports.stream_server import StreamServer

__all__ = ["FOLDER", "Blanks", "Connection", "Line", "connected", "parse", "replay", "spawned"]

FOLDER = Path(__file__).parent
SERVER = FOLDER.parent / "conformance" / "server.py"
BLANK = re.compile(rb"\$\{(\w+)\}")
TIMEOUT_SECONDS = 60.0
"""A server must answer within this time."""


class Line(NamedTuple):
    """One message and its sender."""

    sender: Literal[">", "<"]
    text: bytes


def parse(data: bytes) -> list[Line]:
    """Read a transcript.

    Raises:
        ValueError: a line is neither a message nor a remark.
    """
    lines: list[Line] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line and not line.startswith(b"#"):
            sender, space, text = line.partition(b" ")
            if sender not in (b">", b"<") or not space:
                raise ValueError(f"line {number} begins with neither '> ' nor '< '")
            lines.append(Line(">" if sender == b">" else "<", text))
    return lines


class Connection(Protocol):
    """The client's end of a connection to a server."""

    def send(self, data: bytes) -> None:
        """Send bytes to the server."""
        ...

    async def receive(self) -> bytes:
        """Return the next line of the server."""
        ...

    async def end(self) -> bytes:
        """Close the input of the server. Return the rest of its output."""
        ...


class Blanks:
    """The values of the blanks of a transcript."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def fill(self, text: bytes) -> bytes:
        """Return the text with the values of its blanks.

        Raises:
            KeyError: a blank has no value yet.
        """
        return BLANK.sub(lambda blank: self.values[blank[1]], text)

    def matches(self, text: bytes, received: bytes) -> bool:
        """Return whether a received message matches the text. It sets the values of blanks that have none yet."""
        pattern = b""
        new: set[bytes] = set()
        for index, part in enumerate(BLANK.split(text)):
            if index % 2 == 0:
                pattern += re.escape(part)
            elif part == b"_":
                pattern += b'[^"]+'
            elif part in self.values:
                pattern += re.escape(self.values[part])
            elif part in new:
                pattern += b"(?P=%b)" % part
            else:
                new.add(part)
                pattern += b'(?P<%b>[^"]+)' % part
        match = re.fullmatch(pattern, received)
        if match is not None:
            self.values |= {name: match[name.decode()] for name in new}
        return match is not None


async def replay(lines: list[Line], connection: Connection) -> None:
    """Send the client's lines to a server and compare its messages with the other lines.

    Raises:
        AssertionError: the server sends other or further messages.
        TimeoutError: the server sends fewer messages.
    """
    blanks = Blanks()
    for line in lines:
        if line.sender == ">":
            connection.send(blanks.fill(line.text) + b"\n")
        else:
            received = await asyncio.wait_for(connection.receive(), TIMEOUT_SECONDS)
            assert blanks.matches(line.text, received), difference(filled(line.text, blanks), received.decode())
    rest = await asyncio.wait_for(connection.end(), TIMEOUT_SECONDS)
    assert rest == b"", f"unexpected output at the end: {rest.decode()}"


def filled(text: bytes, blanks: Blanks) -> str:
    """Return the text with the values of blanks that have one."""
    return BLANK.sub(lambda blank: blanks.values.get(blank[1], blank[0]), text).decode()


def difference(expected: str, received: str) -> str:
    """Return both texts from shortly before their first difference."""
    same = next(
        (n for n, (a, b) in enumerate(zip(expected, received, strict=False)) if a != b),
        min(len(expected), len(received)),
    )
    start = max(0, same - 60)
    return (
        f"they differ at character {same}\n"
        f"expected: …{expected[start : same + 200]}\nreceived: …{received[start : same + 200]}"
    )


class _MemoryConnection(asyncio.WriteTransport):
    """A connection to a server in this process."""

    def __init__(self, stream: StreamServer) -> None:
        super().__init__()
        self.stream = stream
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.incomplete = b""

    def write(self, data: Any) -> None:
        *whole, self.incomplete = (self.incomplete + bytes(data)).split(b"\n")
        for line in whole:
            self.lines.put_nowait(line)

    def send(self, data: bytes) -> None:
        self.stream.data_received(data)

    async def receive(self) -> bytes:
        return await self.lines.get()

    async def end(self) -> bytes:
        self.stream.eof_received()
        await self.stream.ended
        rest = self.incomplete
        while not self.lines.empty():
            rest += self.lines.get_nowait() + b"\n"
        return rest


@contextlib.asynccontextmanager
async def connected() -> AsyncGenerator[Connection]:
    """Connect to a new fixture server in this process."""
    server = make_server()
    await server.start()
    stream = StreamServer(server)
    connection = _MemoryConnection(stream)
    stream.connection_made(connection)
    try:
        yield connection
    finally:
        stream.connection_lost(None)
        await server.close()


class _ProcessConnection:
    """A connection to a server process by its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout

    def send(self, data: bytes) -> None:
        self.stdin.write(data)

    async def receive(self) -> bytes:
        return (await self.stdout.readline()).removesuffix(b"\n")

    async def end(self) -> bytes:
        self.stdin.close()
        return await self.stdout.read()


@contextlib.asynccontextmanager
async def spawned() -> AsyncGenerator[Connection]:
    """Start the fixture server as a process and connect to it over stdio."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), "--stdio", stdin=pipe, stdout=pipe, limit=1 << 20
    )
    try:
        yield _ProcessConnection(process)
        assert await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
