"""The entries of a log: each is a line with a time and the lines after it without one.

If no line has a time, each line that is not indented and does not continue a stack trace begins an entry.

Finds the entries in some bytes, the beginning of the entry at an offset, and the first entry since a time (by bisection
over blocks of 64 KiB; a few probes check that times are in order).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import tzinfo
from itertools import islice
from typing import NamedTuple

from wharfinger.sources.log_files.levels import LEVEL_BYTES, level_of
from wharfinger.sources.log_files.log_text import RedactedParts, may_contain, shown_bytes
from wharfinger.sources.log_files.times import LINE_START_BYTES, time_of
from wharfinger.sources.windows.window import RandomAccess

__all__ = [
    "BLOCK_BYTES",
    "EntryFilter",
    "EntryMatch",
    "LogEntry",
    "end_of_last_entry",
    "entries",
    "find_time",
    "has_times",
    "head_before",
    "line_times",
    "next_head",
]

BLOCK_BYTES = 64 << 10
"""Bytes before a window that are searched for the beginning of its first entry."""
MAX_LINE_BYTES = 256 << 20
"""Bytes of the longest line that is skipped to find a time after it."""
MAX_BLOCKS = 32
"""Maximum number of blocks, each of twice `BLOCK_BYTES`, that are searched for the first entry since a time."""
PROBED_BLOCKS = 8
"""Maximum number of such blocks that are searched for a time after an offset: entries can be long."""
ORDER_PROBES = 16
"""Offsets at which times are compared, to check that they are in order."""
LATE_SECONDS = 60.0
"""Times are not in order if an entry is more than this older than an entry before it."""


class LogEntry(NamedTuple):
    """An entry in some bytes: its `start` and `end`, and its time if it has one."""

    start: int
    end: int
    time: float | None


class EntryMatch(NamedTuple):
    """The offset of the first entry since a time. It is reliable only if times are in order (`ordered`)."""

    offset: int
    ordered: bool


class EntryFilter(NamedTuple):
    """The conditions that an entry must meet."""

    since: float | None = None
    until: float | None = None
    level: int | None = None
    text: str = ""
    redact: bool = True

    def matches(self, data: bytes, entry: LogEntry, redacted: RedactedParts) -> bool:
        """Return whether an entry meets all conditions except `until`. `redacted` shows parts of `data`.

        The text is searched in the entry as it is shown, without the secrets that are redacted.
        """
        if entry.time is not None and self.since is not None and entry.time < self.since:
            return False
        if self.level is not None:
            rank = level_of(data[entry.start : min(entry.end, entry.start + LEVEL_BYTES)])
            if rank is None or rank < self.level:
                return False
        if not self.text:
            return True
        part = data[entry.start : entry.end]
        return (
            may_contain(part, self.text)
            # Few entries have the text, so secrets, which take much longer to find, are searched last.
            and self.text in shown_bytes(part).casefold()
            and (not self.redact or self.text in redacted.show(entry.start, entry.end).casefold())
        )


def has_times(data: bytes, zone: tzinfo | None, now: float) -> bool:
    """Return whether one of the first lines has a time."""
    lines = data[:BLOCK_BYTES].split(b"\n", 200)[:200]
    return any(time_of(line[:LINE_START_BYTES], zone, now) is not None for line in lines)


def line_times(data: bytes, zone: tzinfo | None, now: float | None) -> Iterator[tuple[int, float]]:
    """Yield the offset and the time of each line that has a time, in bytes that begin with a line."""
    position = 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        moment = time_of(data[position : min(end, position + LINE_START_BYTES)], zone, now)
        if moment is not None:
            yield position, moment
        position = end


# Lines of stack traces (Python, Java, JavaScript, Go) that are not indented, and the ends of printed objects.
_CONTINUES = re.compile(
    rb"Traceback \(most recent call|Caused by: |Suppressed: |During handling of the above|The above exception was|"
    rb"\.\.\. \d|goroutine \d|[})\]]"
).match
_EXCEPTION = re.compile(rb"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Warning|Interrupt|Exit|Group|Iteration)\b").match


def _begins(line: bytes, previous_start: bytes) -> bool:
    """Return whether a line begins an entry, in a log without times.

    `previous_start` is the first byte of the line before it.
    """
    if line[:1] in (b" ", b"\t", b"\r", b"\n", b"") or _CONTINUES(line):
        return False
    return not (previous_start in (b" ", b"\t") and _EXCEPTION(line))


def entries(data: bytes, zone: tzinfo | None, now: float) -> Iterator[LogEntry]:
    """Yield the entries of some bytes that begin with a line."""
    has_time = has_times(data, zone, now)
    start, moment, offset = 0, None, 0
    previous_start = b""
    while offset < len(data):
        end = data.find(b"\n", offset) + 1 or len(data)
        line = data[offset : min(end, offset + LINE_START_BYTES)]
        entry_time = time_of(line, zone, now) if has_time else None
        begins = entry_time is not None if has_time else _begins(line, previous_start)
        if begins:
            if offset > start:
                yield LogEntry(start, offset, moment)
            start, moment = offset, entry_time
        previous_start = line[:1]
        offset = end
    if offset > start:
        yield LogEntry(start, offset, moment)


def head_before(content: RandomAccess, offset: int, zone: tzinfo | None, now: float) -> int:
    """Return the offset at which the entry at `offset` begins, or `offset` if no beginning is found."""
    begin = max(0, offset - BLOCK_BYTES)
    data = content.read(begin, offset - begin)
    line = content.read(offset, LINE_START_BYTES).partition(b"\n")[0]
    if not data or time_of(line, zone, now) is not None:
        return offset
    has_time = has_times(data[-BLOCK_BYTES // 2 :].partition(b"\n")[2] or data, zone, now)
    position = len(data)
    next_line = line + b"\n"
    while position > 0:
        begins_at, position = position, data.rfind(b"\n", 0, position - 1) + 1
        if not position and begin:
            break  # the beginning of this line is not known
        earlier = data[position : position + LINE_START_BYTES]
        if has_time and time_of(earlier, zone, now) is not None:
            return begin + position
        if not has_time and _begins(next_line, earlier[:1]):
            return begin + begins_at
        next_line = earlier
    return begin if not begin and not has_time else offset


def next_head(content: RandomAccess, offset: int, data: bytes, zone: tzinfo | None, now: float) -> int | None:
    """Return the offset of the first entry that begins in `data`, or None. `data` begins at `offset` of the log."""
    if head_before(content, offset, zone, now) == offset:
        return offset
    heads = list(islice(entries(data, zone, now), 2))
    return offset + heads[1].start if len(heads) == 2 else None


def end_of_last_entry(content: RandomAccess, offset: int, data: bytes, zone: tzinfo | None, now: float) -> int:
    """Return the offset at which the last complete entry in `data` ends, or the end of `data` if none is complete.

    `data` begins at `offset` of the log.
    """
    end = offset + len(data)
    head = head_before(content, end, zone, now)
    return head if head > offset else end


def _times_after(
    content: RandomAccess, offset: int, max_blocks: int, zone: tzinfo | None, now: float
) -> Iterator[tuple[int, float]]:
    """Yield the offset and time of each line after `offset` that has a time; for 0, from the first line on.

    Reads 4 KiB and then `max_blocks` blocks. At last, yields the offset where the search ended, and an infinite time.
    """
    begin = _line_after(content, offset)
    for length in (4 << 10, *[2 * BLOCK_BYTES] * max_blocks):
        data = content.read(begin, length)
        end = begin + len(data)
        if not data or end >= content.size:
            end = content.size
        elif line_end := data.rfind(b"\n") + 1:  # the time of the line after it may be cut
            data, end = data[:line_end], begin + line_end
        else:
            end = _line_after(content, end - 1)
        for position, moment in line_times(data, zone, now):
            yield begin + position, moment
        begin = end
        if end == content.size:
            break
    yield begin, math.inf


def _line_after(content: RandomAccess, offset: int) -> int:
    """Return the offset of the first line that begins after `offset`; for 0, return 0.

    Returns the end of the content if no line begins within `MAX_LINE_BYTES`.
    """
    if not offset:
        return 0
    for position in range(offset, min(offset + MAX_LINE_BYTES, content.size), BLOCK_BYTES):
        line_end = content.read(position, BLOCK_BYTES).find(b"\n")
        if line_end >= 0:
            return position + line_end + 1
    return content.size


def find_time(content: RandomAccess, moment: float, zone: tzinfo | None, now: float) -> EntryMatch:
    """Find the first entry of `moment` or later. Returns the end of the content if all entries are earlier."""

    def first_time(offset: int) -> tuple[int, float]:
        return next(_times_after(content, offset, PROBED_BLOCKS, zone, now))

    def is_before(offset: int) -> bool:
        seen.append(first_time(offset))
        return seen[-1][1] < moment

    probes = (first_time(content.size * number // ORDER_PROBES) for number in range(ORDER_PROBES))
    seen = [probe for probe in probes if probe[1] < math.inf]
    blocks = range(0, content.size, BLOCK_BYTES)
    block = bisect_left(blocks, True, key=lambda offset: not is_before(offset))
    offset = blocks[block - 1] if block else 0
    seen.sort()
    highest = -math.inf
    for _, entry_time in seen:  # an infinite time, if no time was found in many blocks, counts as out of order
        if entry_time < highest - LATE_SECONDS:
            return EntryMatch(offset, False)
        highest = max(highest, entry_time)
    times = _times_after(content, offset, MAX_BLOCKS, zone, now)
    return EntryMatch(next(position for position, entry_time in times if entry_time >= moment), True)
