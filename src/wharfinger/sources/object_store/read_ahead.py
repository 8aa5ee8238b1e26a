"""Reads ahead, so that a window of a remote object takes one request instead of three."""

from __future__ import annotations

from wharfinger.sources.windows.window import WINDOW_BYTES, RandomAccess

__all__ = ["ReadAhead"]

MIN_REQUEST_BYTES = WINDOW_BYTES + (64 << 10)
"""Enough for a window and for the bytes from which the type is detected."""


class ReadAhead:
    """Content that keeps the last piece that was read. Use it for one read, in one thread."""

    def __init__(self, content: RandomAccess) -> None:
        self._content = content
        self._begin = 0
        self._data = b""
        self.size = content.size
        """Number of bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes from `offset`, or fewer at the end."""
        length = max(0, min(length, self.size - offset))
        begin = offset - self._begin
        if not 0 <= begin <= begin + length <= len(self._data):
            self._data = (
                self._content.read(offset, min(max(length, MIN_REQUEST_BYTES), self.size - offset)) if length else b""
            )
            self._begin, begin = offset, 0
        return self._data[begin : begin + length]
