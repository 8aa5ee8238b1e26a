"""Reads a log from a position, across growth, rotation and truncation, and returns every line once.

A position names a file by its inode and a digest of the bytes before the position (`positions`). `locate` finds that
file under any name. `read_on` reads complete lines from the position on, and continues in the next newer file when the
older one was read to its end and the newer one has content. After each read, the bytes at both of its ends are compared
with the file again: if it was truncated or replaced, `LogMoved` is raised and the read is repeated (`with_log`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.folder.tree import FileTree, Parts
from wharfinger.sources.log_files.entries import BLOCK_BYTES
from wharfinger.sources.log_files.positions import LogPlace, LogPosition, contains_position, locate, position_of
from wharfinger.sources.log_files.rotated_files import (
    InflatedLogs,
    LogContent,
    LogFile,
    LogFiles,
    LogMoved,
    with_log,
)

__all__ = ["FollowBounds", "Follower", "LogRead", "Piece", "read_on"]

T = TypeVar("T")

EDGE_BYTES = 1_024
"""Bytes at both ends of a read that are read again, to check that the file was not truncated in between."""


class FollowBounds(NamedTuple):
    """The maximum size of one window."""

    bytes: int
    lines: int


class Piece(NamedTuple):
    """Some bytes of one file of a log."""

    file: LogFile
    start: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset of its end in the file."""
        return self.start + len(self.data)


class LogRead(NamedTuple):
    """The pieces after a position, and the position after them.

    If `lost` is True, bytes between the first position and the pieces are gone. If `more` is True, more may follow.
    """

    pieces: list[Piece]
    position: LogPosition
    lost: bool
    more: bool


def read_on(log: LogFiles, place: LogPlace, bounds: FollowBounds) -> LogRead:
    """Read complete lines from a place.

    Raises:
        LogMoved: the files changed during the read.
    """
    index, offset, lost = place
    pieces: list[Piece] = []
    remaining = bounds
    reached: LogPosition | None = None
    while True:
        content = log.content(index)
        begin = position_of(content, offset)
        # Look at all newer files, because the next one may have been rotated while it was empty.
        has_newer = any(file.size for file in log.files[:index])
        data, more = _lines(content, offset, remaining, finished=has_newer, may_cut=not pieces)
        next_offset = 0
        if has_newer and not more:
            data, next_offset = _finish_file(content, log.content(index - 1), offset, data)
        if data or reached is None:  # if a newer file has no complete line, stay at the end of the older one
            reached = position_of(content, offset + len(data))
        _check_unchanged(content, begin, data)
        if data:
            pieces.append(Piece(content.file, offset, data))
            remaining = FollowBounds(remaining.bytes - len(data), remaining.lines - data.count(b"\n"))
        if more or not has_newer or remaining.bytes <= 0 or remaining.lines <= 0:
            # The position at offset 0 fits any content. If a file was copied and truncated since the listing, the copy
            # comes before what was read, but is not in `log`.
            if any(not piece.start for piece in pieces) and not log.is_current():
                raise LogMoved
            return LogRead(pieces, reached, lost, more or has_newer)
        index, offset = index - 1, next_offset


def _finish_file(content: LogContent, following: LogContent, offset: int, data: bytes) -> tuple[bytes, int]:
    """Return the data at the end of a rotated file, and the offset at which to continue in the newer file.

    Between the copy and the truncation of `copytruncate`, both files have the same bytes. Then only complete lines of
    the older file are returned, and the rest is read from the newer one.
    """
    end = position_of(content, offset + len(data))
    if end.offset and contains_position(following, end):
        data = data[: data.rfind(b"\n") + 1]
        return data, offset + len(data)
    if content.grew():
        raise LogMoved
    return data, 0


def _check_unchanged(content: LogContent, begin: LogPosition, data: bytes) -> None:
    """Check that the file still has the data: it may have been truncated and written again."""
    tail = max(0, len(data) - EDGE_BYTES)
    if (
        not contains_position(content, begin)
        or content.read(begin.offset, min(EDGE_BYTES, len(data))) != data[:EDGE_BYTES]
        or content.read(begin.offset + tail, len(data) - tail) != data[tail:]
    ):
        raise LogMoved


def _lines(
    content: LogContent, offset: int, bounds: FollowBounds, *, finished: bool, may_cut: bool
) -> tuple[bytes, bool]:
    """Read complete lines from `offset`. Returns them, and whether more follow.

    If the file is `finished`, its last line is complete even without a line end. A line that is longer than the
    bounds is returned in parts if `may_cut` is True, and otherwise left for the next window.
    """
    data = content.read(offset, bounds.bytes)
    reaches_end = offset + len(data) >= content.size
    cut = len(data)
    if not (reaches_end and finished):
        cut = data.rfind(b"\n") + 1
        if not cut and may_cut and len(data) >= bounds.bytes:
            cut = len(data)
    if data.count(b"\n", 0, cut) > bounds.lines:
        cut = 0
        for _ in range(bounds.lines):
            cut = data.index(b"\n", cut) + 1
        return data[:cut], True
    return data[:cut], not reaches_end


class Follower:
    """Follows one log file. Each `read()` returns the new lines, every line once.

    It keeps no file of the log open between reads. To continue later, create a follower with this one's `position`.

    Args:
        path: The file, which may be missing.
        position: Where to begin. Default: after the last complete line, or at the beginning if the file is created
            later.
        beginning: Without a position, begin at the beginning of the file.
    """

    def __init__(
        self, path: str | os.PathLike[str], position: LogPosition | None = None, *, beginning: bool = False
    ) -> None:
        directory, name = os.path.split(os.path.abspath(path))
        escaped = re.sub(r"[\\*?\[ ]", r"\\\g<0>", name)
        self._tree = FileTree(directory, PublishChoice(include=("/" + escaped,), hidden=True), gitignore=False)
        self._parts: Parts = (name,)
        self._inflated = InflatedLogs()
        self._bounds = FollowBounds(1 << 20, 1 << 20)
        self.position = position
        self.lost = False
        """Whether lines were removed before they could be read."""
        if position is None and not beginning:
            self.position = self._with_log(self._find_end)

    def read(self) -> list[bytes]:
        """Read the new complete lines, each with its line end.

        A line of more than 1 MiB is returned in parts. The last line of a rotated file may have no line end.
        """
        lines: list[bytes] = []
        while log_read := self._with_log(self._read_on):
            if log_read.pieces or log_read.lost or self.position is None:
                self.position = log_read.position
            self.lost = self.lost or log_read.lost
            for piece in log_read.pieces:
                lines += [line + b"\n" for line in piece.data.split(b"\n")[:-1]]
                if not piece.data.endswith(b"\n"):
                    lines.append(piece.data.rpartition(b"\n")[2])
            if not log_read.more or not log_read.pieces:
                break
        return lines

    def lines(self, every: float = 0.1) -> Iterator[bytes]:
        """Yield new lines forever. Waits `every` seconds between two reads."""
        while True:
            yield from self.read()
            time.sleep(every)

    def _with_log(self, use: Callable[[LogFiles], T | None]) -> T | None:
        """Call `use` with the files of the log. Returns None if there are none, or they keep moving."""
        try:
            return with_log(self._tree, self._parts, self._inflated, use)
        except NotServed:
            return None

    def _read_on(self, log: LogFiles) -> LogRead | None:
        if self.position is not None:
            return read_on(log, locate(log, self.position), self._bounds)
        return read_on(log, LogPlace(0, 0), self._bounds) if log.live else None

    def _find_end(self, log: LogFiles) -> LogPosition | None:
        """Return the position after the last complete line. Reads backwards from the end."""
        if log.live is None:
            return None
        content = log.content(0)
        offset = content.size
        while offset > 0:
            begin = max(0, offset - BLOCK_BYTES)
            found = content.read(begin, offset - begin).rfind(b"\n")
            if found >= 0:
                return position_of(content, begin + found + 1)
            offset = begin
        return position_of(content, 0)
