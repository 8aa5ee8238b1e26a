"""Reading a little ahead, so that a window of a distant object costs one request and not three."""

from __future__ import annotations

from wharfinger.sources.windows.window import WINDOW_BYTES, RandomAccess

__all__ = ["Ahead"]

LEAST = WINDOW_BYTES + (64 << 10)
"""Bytes of one request at least: a window, and what is looked at to know what it is."""


class Ahead:
    """A content of which the last piece that was read is kept, for one reading by one thread."""

    def __init__(self, content: RandomAccess) -> None:
        self._content = content
        self._begin = 0
        self._data = b""
        self.size = content.size
        """Number of bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on: `length` of them, fewer only at the end."""
        length = max(0, min(length, self.size - offset))
        at = offset - self._begin
        if not 0 <= at <= at + length <= len(self._data):
            self._data = self._content.read(offset, min(max(length, LEAST), self.size - offset)) if length else b""
            self._begin, at = offset, 0
        return self._data[at : at + length]
