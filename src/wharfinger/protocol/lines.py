"""Split a byte stream into lines, with a limit on their length."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

__all__ = ["OVERLONG", "LineBuffer", "Overlong"]


class Overlong(Enum):
    """Stands for a line over the limit, which was discarded, in a list of lines."""

    LINE = "a line over the limit"


OVERLONG: Final = Overlong.LINE


class LineBuffer:
    """Collects bytes and returns complete lines without the newline; empty lines are omitted.

    `limit` is the maximum length of a line, and so of the buffer. Chunks are joined once, so that a line takes
    linear time, even if it arrives in many chunks.
    """

    __slots__ = ("_buffered_bytes", "_chunks", "_limit", "_skipping", "unfinished")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.unfinished = False
        """Whether the last line is incomplete."""
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | Literal[Overlong.LINE]]:
        """Add bytes. Returns the lines that they complete, and `OVERLONG` once for each line over the limit."""
        lines: list[bytes | Literal[Overlong.LINE]] = data.split(b"\n")  # type: ignore[assignment]
        rest: bytes = lines.pop()  # type: ignore[assignment]
        if lines and (self._chunks or self._skipping):
            lines[0] = self._finish(lines[0])  # type: ignore[arg-type]
        if len(data) > self._limit:
            lines = [OVERLONG if line is not OVERLONG and len(line) > self._limit else line for line in lines]
        if rest:
            overlong = self._keep(rest)
            if overlong:
                lines.append(OVERLONG)
        self.unfinished = self._skipping or bool(self._chunks)
        return [line for line in lines if line]

    def _finish(self, last: bytes) -> bytes | Literal[Overlong.LINE]:
        if self._skipping:  # `OVERLONG` was returned when it grew over the limit
            self._skipping = False
            return b""
        self._chunks.append(last)
        line = b"".join(self._chunks)
        self._chunks, self._buffered_bytes = [], 0
        return OVERLONG if len(line) > self._limit else line

    def _keep(self, rest: bytes) -> bool:
        """Buffer the beginning of a line. Returns whether it just grew over the limit."""
        if self._skipping:
            return False
        self._chunks.append(rest)
        self._buffered_bytes += len(rest)
        if self._buffered_bytes <= self._limit:
            return False
        self._chunks, self._buffered_bytes, self._skipping = [], 0, True
        return True
