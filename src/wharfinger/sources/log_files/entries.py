"""The entries of a log: each is a line with a time and the lines after it without one.

If no line has a time, each line begins an entry that is not indented and does not continue a stack trace.

Finds the entries in some bytes, the beginning of the entry that contains a place, and the first entry since a time (by
bisection over blocks of 64 KiB; a few probes check that times are in order).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import tzinfo
from itertools import islice
from typing import NamedTuple

from wharfinger.sources.log_files.levels import LEVEL_BYTES, level_of
from wharfinger.sources.log_files.log_text import Around, render
from wharfinger.sources.log_files.times import LOOKED_AT, time_of
from wharfinger.sources.windows.window import RandomAccess

__all__ = [
    "BACK",
    "EntryFilter",
    "EntryMatch",
    "LogEntry",
    "entries",
    "find_time",
    "has_times",
    "head_before",
    "last_head",
    "next_head",
]

BACK = 64 << 10
"""Bytes before a window in which the beginning of its first entry is searched for."""
MAX_LINE = 256 << 20  # bytes of a line that is skipped to find a time after it
STEPS = 32  # blocks of twice `BACK` that are searched for an entry after a place near it
PROBES = 16  # places at which times are compared, to check that they are in order
LATE = 60.0  # seconds by which an entry may be older than one before it


class LogEntry(NamedTuple):
    """An entry in some bytes: from `start` to `end`, and its time if it has one."""

    start: int
    end: int
    time: float | None


class EntryMatch(NamedTuple):
    """Where the first entry since a time begins. It is reliable only if times are in order (`ordered`)."""

    offset: int
    ordered: bool


class EntryFilter(NamedTuple):
    """Which entries are wanted."""

    since: float | None = None
    until: float | None = None
    level: int | None = None
    text: str = ""
    redact: bool = True

    def holds(self, data: bytes, entry: LogEntry, offset: int, around: Around) -> bool:
        """Whether an entry of `data`, which begins at `offset` of the log, is wanted."""
        if entry.time is not None and self.since is not None and entry.time < self.since:
            return False
        if self.level is not None:
            rank = level_of(data[entry.start : min(entry.end, entry.start + LEVEL_BYTES)])
            if rank is None or rank < self.level:
                return False
        return not self.text or self._has_text(data[entry.start : entry.end], offset + entry.start, around)

    def may_be_in(self, data: bytes) -> bool:
        """Whether the text may be in these bytes. A quick check, which may return True although it is not."""
        return not self.text.isascii() or self.text.encode() in data.lower()

    def _has_text(self, data: bytes, offset: int, around: Around) -> bool:
        """Whether the text is in the shown form of an entry. Redacted secrets are not searched."""
        if not self.may_be_in(data):
            return False
        return self.text in render(data, offset, around, redact=self.redact, cut=False).casefold()


def has_times(data: bytes, zone: tzinfo | None, now: float) -> bool:
    """Whether one of the first lines has a time."""
    return any(time_of(line[:LOOKED_AT], zone, now) is not None for line in data[:BACK].split(b"\n", 200)[:200])


# Lines of stack traces (Python, Java, JavaScript, Go) that are not indented, and the ends of printed objects.
_CONTINUES = re.compile(
    rb"Traceback \(most recent call|Caused by: |Suppressed: |During handling of the above|The above exception was|"
    rb"\.\.\. \d|goroutine \d|[})\]]"
).match
_EXCEPTION = re.compile(rb"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Warning|Interrupt|Exit|Group|Iteration)\b").match


def _begins(line: bytes, before: bytes) -> bool:
    """Whether a line of a log without times begins an entry; `before` is the first byte of the line before it."""
    if line[:1] in (b" ", b"\t", b"\r", b"\n", b"") or _CONTINUES(line):
        return False
    return not (before in (b" ", b"\t") and _EXCEPTION(line))


def entries(data: bytes, zone: tzinfo | None, now: float) -> Iterator[LogEntry]:
    """The entries of some bytes that begin with a line."""
    timed = has_times(data, zone, now)
    start, moment, at = 0, None, 0
    before = b""
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        line = data[at : min(end, at + LOOKED_AT)]
        here = time_of(line, zone, now) if timed else None
        if here is not None if timed else _begins(line, before):
            if at > start:
                yield LogEntry(start, at, moment)
            start, moment = at, here
        before = line[:1]
        at = end
    if at > start:
        yield LogEntry(start, at, moment)


def head_before(content: RandomAccess, offset: int, zone: tzinfo | None, now: float) -> int:
    """Where the entry at `offset` begins; `offset` itself if one begins there, or no beginning is found."""
    begin = max(0, offset - BACK)
    data = content.read(begin, offset - begin)
    line = content.read(offset, LOOKED_AT).partition(b"\n")[0]
    if not data or time_of(line, zone, now) is not None:
        return offset
    timed = has_times(data[-BACK // 2 :].partition(b"\n")[2] or data, zone, now)
    at = len(data)
    following = line + b"\n"
    while at > 0:
        begins_at, at = at, data.rfind(b"\n", 0, at - 1) + 1
        if not at and begin:
            break  # the beginning of this line is not known
        earlier = data[at : at + LOOKED_AT]
        if timed and time_of(earlier, zone, now) is not None:
            return begin + at
        if not timed and _begins(following, earlier[:1]):
            return begin + begins_at
        following = earlier
    return begin if not begin and not timed else offset


def next_head(content: RandomAccess, offset: int, data: bytes, zone: tzinfo | None, now: float) -> int | None:
    """Where the first entry in `data` begins, which is at `offset`. Returns None if none does."""
    if head_before(content, offset, zone, now) == offset:
        return offset
    found = list(islice(entries(data, zone, now), 2))
    return offset + found[1].start if len(found) == 2 else None


def last_head(content: RandomAccess, offset: int, data: bytes, zone: tzinfo | None, now: float) -> int:
    """Where the last entry in `data`, which is at `offset`, begins if it goes on after `data`; otherwise the end."""
    end = offset + len(data)
    head = head_before(content, end, zone, now)
    return head if head > offset else end


def _first_time(content: RandomAccess, offset: int, zone: tzinfo | None, now: float) -> tuple[int, float] | None:
    """The first line after `offset` that has a time, within `BACK` of the first line end."""
    begin = _line_after(content, offset)
    for length in (4 << 10, BACK):
        data = content.read(begin, length)
        at = 0
        while at < len(data):
            end = data.find(b"\n", at) + 1 or len(data)
            moment = time_of(data[at : min(end, at + LOOKED_AT)], zone, now)
            if moment is not None:
                return begin + at, moment
            at = end
        if len(data) < length:
            break
    return None


def _line_after(content: RandomAccess, offset: int) -> int:
    """Where the next line begins; the end of the content if this line is longer than `MAX_LINE`."""
    if not offset:
        return 0
    for at in range(offset, min(offset + MAX_LINE, content.size), BACK):
        found = content.read(at, BACK).find(b"\n")
        if found >= 0:
            return at + found + 1
    return content.size


def find_time(content: RandomAccess, moment: float, zone: tzinfo | None, now: float) -> EntryMatch:
    """Where the first entry of `moment` or later begins; the end if there is none."""
    seen: list[tuple[int, float]] = []

    def is_before(offset: int) -> bool:
        found = _first_time(content, offset, zone, now)
        if found is None:
            return False
        seen.append(found)
        return found[1] < moment

    for number in range(PROBES):
        is_before(content.size * number // PROBES)
    blocks = range(0, content.size, BACK)
    block = bisect_left(blocks, True, key=lambda offset: not is_before(offset))
    offset = blocks[block - 1] if block else 0
    seen.sort()
    highest = float("-inf")
    for _, here in seen:
        if here < highest - LATE:
            return EntryMatch(offset, False)
        highest = max(highest, here)
    return EntryMatch(_walk(content, offset, moment, zone, now), True)


def _walk(content: RandomAccess, offset: int, moment: float, zone: tzinfo | None, now: float) -> int:
    """Where the first entry since `moment` begins; all before `offset` are older. A long line may lie between them."""
    begin = _line_after(content, offset)
    for _ in range(STEPS):
        data = content.read(begin, 2 * BACK)
        at = 0
        while at < len(data):
            end = data.find(b"\n", at) + 1 or len(data)
            here = time_of(data[at : min(end, at + LOOKED_AT)], zone, now)
            if here is not None and here >= moment:
                return begin + at
            at = end
        if not data or begin + len(data) >= content.size:
            return content.size
        begin = begin + len(data) if data.endswith(b"\n") else _line_after(content, begin + len(data) - 1)
    return begin
