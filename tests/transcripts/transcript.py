"""Transcripts: what a client and a server said to each other line by line, and how to hear one again.

A file has a line for each message: `> ` and what the client writes, `< ` and what the server answers. `${state1}`
stands for text that is another every time: the server's first use of it fixes it, and the client repeats it; `${_}` is
any text. `# ` is a remark.
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

__all__ = ["FOLDER", "Ear", "Line", "Said", "connected", "parse", "replay", "spawned"]

FOLDER = Path(__file__).parent
SERVER = FOLDER.parent / "conformance" / "server.py"
BLANK = re.compile(rb"\$\{(\w+)\}")
WAIT = 10.0
"""Seconds until a server that does not answer is given up."""


class Line(NamedTuple):
    """One message and who says it."""

    who: Literal[">", "<"]
    text: bytes


def parse(data: bytes) -> list[Line]:
    """Read a transcript.

    Raises:
        ValueError: a line begins with something else.
    """
    lines: list[Line] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line and not line.startswith(b"#"):
            who, space, text = line.partition(b" ")
            if who not in (b">", b"<") or not space:
                raise ValueError(f"line {number} begins with neither '> ' nor '< '")
            lines.append(Line(">" if who == b">" else "<", text))
    return lines


class Ear(Protocol):
    """One end of a connection to a server: bytes in, lines out."""

    def say(self, data: bytes) -> None:
        """Write to the server."""
        ...

    async def hear(self) -> bytes:
        """Return the next line of the server."""
        ...

    async def end(self) -> bytes:
        """End the input, and return all remaining output."""
        ...


class Said:
    """The values of a transcript's blanks."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def fill(self, text: bytes) -> bytes:
        """The text with what is known in its blanks.

        Raises:
            KeyError: a blank that nothing has filled.
        """
        return BLANK.sub(lambda blank: self.values[blank[1]], text)

    def fits(self, text: bytes, received: bytes) -> bool:
        """Return whether what was heard is the text; blanks that are not known yet are fixed by it."""
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


async def replay(lines: list[Line], ear: Ear) -> None:
    """Say the client's lines to a server and hear the others.

    Raises:
        AssertionError: it says something else, or more.
        TimeoutError: it says less.
    """
    message = Said()
    for line in lines:
        if line.who == ">":
            ear.say(message.fill(line.text) + b"\n")
        else:
            received = await asyncio.wait_for(ear.hear(), WAIT)
            assert message.fits(line.text, received), difference(said_or(line.text, message), received.decode())
    rest = await asyncio.wait_for(ear.end(), WAIT)
    assert rest == b"", f"more than was meant: {rest.decode()}"


def said_or(text: bytes, message: Said) -> str:
    """Return the text with its known blanks filled."""
    return BLANK.sub(lambda blank: message.values.get(blank[1], blank[0]), text).decode()


def difference(meant: str, received: str) -> str:
    """Both texts, from a little before the place where they part."""
    same = next(
        (n for n, (a, b) in enumerate(zip(meant, received, strict=False)) if a != b), min(len(meant), len(received))
    )
    start = max(0, same - 60)
    return f"they part at character {same}\nmeant: …{meant[start : same + 200]}\nheard: …{received[start : same + 200]}"


class _Memory(asyncio.WriteTransport):
    """A bare peer of this process."""

    def __init__(self, stream: StreamServer) -> None:
        super().__init__()
        self.stream = stream
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.begun = b""

    def write(self, data: Any) -> None:
        *whole, self.begun = (self.begun + bytes(data)).split(b"\n")
        for line in whole:
            self.lines.put_nowait(line)

    def say(self, data: bytes) -> None:
        self.stream.data_received(data)

    async def hear(self) -> bytes:
        return await self.lines.get()

    async def end(self) -> bytes:
        self.stream.eof_received()
        await self.stream.ended
        rest = self.begun
        while not self.lines.empty():
            rest += self.lines.get_nowait() + b"\n"
        return rest


@contextlib.asynccontextmanager
async def connected() -> AsyncGenerator[Ear]:
    """A new fixture server in this process, connected only by bytes."""
    server = make_server()
    await server.start()
    stream = StreamServer(server)
    memory = _Memory(stream)
    stream.connection_made(memory)
    try:
        yield memory
    finally:
        stream.connection_lost(None)
        await server.close()


class _Process:
    """A process and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout

    def say(self, data: bytes) -> None:
        self.stdin.write(data)

    async def hear(self) -> bytes:
        return (await self.stdout.readline()).removesuffix(b"\n")

    async def end(self) -> bytes:
        self.stdin.close()
        return await self.stdout.read()


@contextlib.asynccontextmanager
async def spawned() -> AsyncGenerator[Ear]:
    """The fixture server as a process of its own, over its standard input and output."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), "--stdio", stdin=pipe, stdout=pipe, limit=1 << 20
    )
    try:
        yield _Process(process)
        assert await asyncio.wait_for(process.wait(), WAIT) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
