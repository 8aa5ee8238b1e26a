"""Split a byte stream into lines, with a limit on their length."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

__all__ = ["MAX_CHUNKS", "OVERLONG", "LineBuffer", "Overlong"]

MAX_CHUNKS = 1024
"""This many chunks of an unfinished line are joined: a chunk of 2 bytes takes twenty times as much memory."""


class Overlong(Enum):
    """Stands in a list of lines for a line over the limit, which was discarded."""

    LINE = "a line over the limit"


OVERLONG: Final = Overlong.LINE


class LineBuffer:
    """Collects bytes and returns complete lines without the newline; empty lines are omitted.

    `limit` is the maximum length of a line, and so of the buffer. A chunk is copied at most twice, so that a line takes
    linear time, even if it arrives in many chunks.
    """

    __slots__ = ("_buffered_bytes", "_chunks", "_joined_count", "_limit", "_skipping", "unfinished")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.unfinished = False
        """Whether the last line is incomplete."""
        self._chunks: list[bytes] = []
        self._joined_count = 0
        """The number of chunks, at the beginning, that were each joined from `MAX_CHUNKS` smaller ones."""
        self._buffered_bytes = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | Literal[Overlong.LINE]]:
        """Add bytes. Returns the lines that they complete, and `OVERLONG` once for each line over the limit."""
        ended = data.split(b"\n")
        rest = ended.pop()
        longest = self._buffered_bytes + len(data)  # no line can be longer
        if ended and self._skipping:  # `OVERLONG` was returned when this line grew over the limit
            self._skipping = False
            ended[0] = b""
        elif ended and self._chunks:
            ended[0] = b"".join((*self._chunks, ended[0]))
            self._chunks, self._joined_count, self._buffered_bytes = [], 0, 0
        lines: list[bytes | Literal[Overlong.LINE]] = [line for line in ended if line]
        if longest > self._limit:
            lines = [OVERLONG if len(line) > self._limit else line for line in ended if line]
        if rest and not self._skipping:
            self._chunks.append(rest)
            self._buffered_bytes += len(rest)
            if self._buffered_bytes > self._limit:
                self._chunks, self._joined_count, self._buffered_bytes, self._skipping = [], 0, 0, True
                lines.append(OVERLONG)
            elif len(self._chunks) - self._joined_count == MAX_CHUNKS:
                self._chunks[self._joined_count :] = [b"".join(self._chunks[self._joined_count :])]
                self._joined_count += 1
        self.unfinished = self._skipping or bool(self._chunks)
        return lines
