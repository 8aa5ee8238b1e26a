"""Finds where the lines of a large content begin.

The index is a list of counts: how many line ends there are before each MiB. To find line N, bisection finds the block
in which the line begins, and only that block is read. The counts are made when they are needed, beginning with the
first, and kept. With more than `MAX_COUNTS` of them, every other one is dropped and the distance doubles, so that the
memory is bounded for any size.

A content that only grew (a log) keeps its counts, if samples of the counted bytes are still the same (`still_holds`).
UTF-16 and UTF-32 are reduced to one byte for each code unit, with a mark for each line end (`line_ends`).
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Hashable
from typing import NamedTuple, Protocol

from wharfinger.sources.bounded_cache import BoundedCache

__all__ = [
    "CodeUnit",
    "LineIndex",
    "LineIndexes",
    "LineStart",
    "NotReached",
    "RandomAccess",
    "ends_line",
    "line_ends",
    "nth_end",
]

STEP_BYTES = 1 << 20
"""Bytes between two counts, until the distance doubles."""
PIECE_BYTES = 64 << 10  # bytes that are read at once between two counts
MAX_COUNTS = 16_384  # an even number, so that dropping every other count keeps the last one
"""Maximum number of counts of one content (128 KiB); with more, every other one is dropped."""
MAX_CONTENTS = 64
"""Maximum number of contents of one source whose counts are kept (at most 8 MiB)."""
MAX_SAMPLES = 16
"""Maximum number of samples that are compared to see whether the counts still hold."""
SAMPLE_BYTES = 64  # bytes of each
SCAN_SECONDS = 5.0
"""Longest time of one search for a line. The next search continues where it ended."""


class RandomAccess(Protocol):
    """Bytes that can be read from any offset, without loading all of them."""

    @property
    def size(self) -> int:
        """Number of bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, or fewer at the end. May block."""
        ...


CodeUnit = tuple[int, bool]
"""The number of bytes of a code unit (2 for UTF-16), and whether it is big-endian."""


class NotReached(Exception):
    """A line was not found in time. The search ended at `offset`, in the line number `line`."""

    def __init__(self, offset: int, line: int) -> None:
        self.offset = offset
        self.line = line
        super().__init__(f"line {line} at {offset}")


class LineStart(NamedTuple):
    """`offset` is the position at which line number `line` begins.

    If the content has fewer lines, these are its end and the number of the line that would follow its last one.
    """

    offset: int
    line: int


class _Block(NamedTuple):
    """Bytes between two counts, and how many line ends are before them."""

    begin: int
    end: int
    before: int


class LineIndex:
    """The counts of one content. Safe to use from several threads at once."""

    def __init__(self) -> None:
        self.code_unit: CodeUnit = (1, False)
        self.step = STEP_BYTES
        self._counts = array("Q", (0,))  # line ends before each multiple of `step`
        self._samples: list[tuple[int, bytes]] = []
        self._lock = threading.Lock()

    @property
    def scanned(self) -> int:
        """The number of bytes whose line ends were counted."""
        return (len(self._counts) - 1) * self.step

    def find(
        self,
        content: RandomAccess,
        line: int,
        code_unit: CodeUnit = (1, False),
        *,
        until: int | None = None,
        seconds: float = SCAN_SECONDS,
    ) -> LineStart:
        """Return where line number `line` begins (1 is the first); the end of the content if it has fewer lines.

        With `until`, no block that begins after this offset is searched. For a line in such a block, the result is
        `until` and line 0.

        Raises:
            NotReached: the search took too long. Its counts are kept for the next one.
        """
        if line <= 1:
            return LineStart(0, 1)
        deadline = time.monotonic() + seconds
        late = False
        while True:
            with self._lock:  # released after each step, so that other threads can use the counts
                block = self._block(content, line - 1, code_unit, until, late)
            if block is not None:
                break
            late = time.monotonic() > deadline
        if until is not None and block.begin > until:
            return LineStart(until, 0)
        return _in_block(content, code_unit, block, line)

    def _block(
        self, content: RandomAccess, number: int, code_unit: CodeUnit, until: int | None, late: bool
    ) -> _Block | None:
        """Return the block that has line end `number`, or else the last block to search.

        Returns None, after counting one more block, if neither is known yet.
        """
        if code_unit != self.code_unit:
            self.code_unit, self.step, self._counts, self._samples = code_unit, STEP_BYTES, array("Q", (0,)), []
        index = bisect_left(self._counts, number)
        is_counted = index < len(self._counts)
        beyond = until is not None and self.scanned > until
        if not (is_counted or beyond or self.scanned + self.step > content.size):
            if late:
                raise NotReached(self.scanned, self._counts[-1] + 1)
            if self._extend(content):
                return None
        index = index - 1 if is_counted else len(self._counts) - 1  # the last block has no count: it may still grow
        begin = index * self.step
        return _Block(begin, min(begin + self.step, content.size), self._counts[index])

    def _extend(self, content: RandomAccess) -> bool:
        """Add a count. Returns False if the content has become shorter meanwhile."""
        begin, number, data = self.scanned, self._counts[-1], b""
        for at in range(begin, begin + self.step, STEP_BYTES):
            data = content.read(at, STEP_BYTES)
            if len(data) < STEP_BYTES:
                return False
            ends, mark = line_ends(data, self.code_unit)
            number += ends.count(mark)
        self._counts.append(number)
        self._samples.append((self.scanned - SAMPLE_BYTES, data[-SAMPLE_BYTES:]))
        if len(self._samples) > MAX_SAMPLES:  # drop every other one, but keep the first and the last
            del self._samples[1:-1:2]
        if len(self._counts) > MAX_COUNTS:
            self._counts = self._counts[::2]
            self.step *= 2
        return True

    def still_holds(self, content: RandomAccess) -> bool:
        """Return whether the counted bytes still begin the content, judging by samples of them."""
        with self._lock:
            samples = list(self._samples)
            scanned = self.scanned
        return content.size >= scanned and all(content.read(at, len(was)) == was for at, was in samples)


def _in_block(content: RandomAccess, code_unit: CodeUnit, block: _Block, line: int) -> LineStart:
    """Return where `line` begins in a block; the end of the content if that comes first."""
    offset, end, number = block
    while offset < end:
        data = content.read(offset, min(PIECE_BYTES, end - offset))
        if not data:
            break
        ends, mark = line_ends(data, code_unit)
        end_count = ends.count(mark)
        if number + end_count >= line - 1:
            return LineStart(offset + nth_end(ends, mark, line - 1 - number) * code_unit[0], line)
        number += end_count
        offset += len(data)
    return LineStart(offset, number + (1 if not offset or ends_line(content, offset, code_unit) else 2))


def ends_line(content: RandomAccess, offset: int, code_unit: CodeUnit) -> bool:
    """Return whether a line ends at this offset."""
    unit = code_unit[0]
    if not offset or offset % unit:
        return False
    ends, mark = line_ends(content.read(offset - unit, unit), code_unit)
    return ends.endswith(mark)


def line_ends(data: bytes, code_unit: CodeUnit) -> tuple[bytes, bytes]:
    """Return data with one byte for each code unit, and the byte that marks a line end in it."""
    unit, big = code_unit
    if unit == 1:
        return data, b"\n"
    planes = [data[at : len(data) - len(data) % unit : unit] for at in range(unit)]
    if big:
        planes.reverse()
    ends = int.from_bytes(planes[0].translate(_IS_LINE_FEED), "big")
    for plane in planes[1:]:
        ends &= int.from_bytes(plane.translate(_IS_ZERO), "big")
    return ends.to_bytes(len(planes[0]), "big"), b"\x01"


_IS_LINE_FEED = bytes(code == 10 for code in range(256))
_IS_ZERO = bytes(code == 0 for code in range(256))


def nth_end(data: bytes, mark: bytes, number: int) -> int:
    """Return the position after the mark of this number (1 is the first), which must exist."""
    low, high = 0, len(data)
    while high - low > 4_096:
        middle = (low + high) // 2
        ends = data.count(mark, low, middle)
        if ends >= number:
            high = middle
        else:
            low, number = middle, number - ends
    position = low - 1
    for _ in range(number):
        position = data.index(mark, position + 1)
    return position + 1


class LineIndexes:
    """The indexes of a source's contents. The least recently used ones are dropped."""

    def __init__(self, max_contents: int = MAX_CONTENTS) -> None:
        self._indexes: BoundedCache[Hashable, tuple[str, Hashable, LineIndex]] = BoundedCache(max_contents)

    def of(
        self,
        key: Hashable,
        version: str,
        content: RandomAccess,
        identity: Hashable = None,
    ) -> LineIndex:
        """Return the index of a content in this version.

        `identity` stays the same when the content grows, such as the inode of a file; None if there is no such value.
        """
        index = LineIndex()
        known = self._indexes.get(key)
        if known is not None:
            known_version, known_identity, known_index = known
            is_same = bool(version) and known_version == version
            if is_same or (identity is not None and known_identity == identity and known_index.still_holds(content)):
                index = known_index
        self._indexes.put(key, (version, identity, index))
        return index
