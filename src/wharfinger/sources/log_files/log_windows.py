"""Selects the bytes of a log's files that answer a query, and finds where the windows before and after them begin.

A query goes forward (from a position, or since a time), backward (the newest entries before a position, a time or the
end), or names lines or bytes. Filters for level and text must examine every entry, so one read examines at most
`MAX_SCANNED_BYTES` bytes; a link to the next or previous window continues the search.

An entry of several lines, such as a stack trace, is not cut: a window begins and ends with entries, unless the URI asks
for a number of lines or bytes, or one entry is larger than a window.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo
from typing import NamedTuple
from zlib import crc32

from wharfinger.errors import InvalidArgument
from wharfinger.sources.log_files.entries import (
    BLOCK_BYTES,
    EntryFilter,
    end_of_last_entry,
    entries,
    find_time,
    has_times,
    head_before,
    next_head,
)
from wharfinger.sources.log_files.log_follower import FollowBounds, LogRead, Piece, read_on
from wharfinger.sources.log_files.log_query import LogQuery
from wharfinger.sources.log_files.log_text import RedactedParts, may_contain
from wharfinger.sources.log_files.positions import SAMPLE_BYTES, LogPlace, LogPosition, locate, position_of
from wharfinger.sources.log_files.rotated_files import LogContent, LogFile, LogFiles, LogMoved
from wharfinger.sources.windows.line_index import LineIndexes, NotReached
from wharfinger.sources.windows.window import WINDOW_LINES, Window
from wharfinger.sources.windows.window_budget import has_budget, window_bytes, within_budget

__all__ = ["LOG_WINDOW_BYTES", "MAX_RANGE_BYTES", "MAX_SCANNED_BYTES", "LogReader", "Selection", "version_of_bytes"]

LOG_WINDOW_BYTES = 32 << 10
"""Bytes of a window whose URI states no number: about 8,000 to 10,000 tokens."""

MAX_RANGE_BYTES = 8 << 20
"""Maximum bytes of a window whose URI states both ends, or a number of lines."""
MAX_SCANNED_BYTES = 4 << 20
"""Maximum bytes that one read examines for matching entries, unless the URI asks for lines or bytes."""
SCAN_BYTES = 256 << 10
"""Bytes that are examined at once when reading backward, so that few more are examined than a window needs."""
MAX_FILTERED_BYTES = 1 << 20
"""Maximum bytes of entries that a filter returns, if the URI states a number of lines."""


class Selection(NamedTuple):
    """The answer to a query: pieces, oldest first, and the positions around them.

    `closed`: later entries do not belong to it. `more`: a bound ended it, and the log goes on. `full`: it has the
    requested number of lines, and there may be others before it. `scanned`: pieces that were examined for a filter.
    """

    pieces: list[Piece]
    after: LogPosition | None
    before: LogPosition | None = None
    next_window: Window | None = None
    previous_window: Window | None = None
    closed: bool = False
    more: bool = False
    full: bool = False
    notes: tuple[str, ...] = ()
    scanned: tuple[Piece, ...] = ()

    @property
    def version(self) -> str:
        """The version of the selected bytes, from their place and a sample of them."""
        versions = [version_of_bytes(piece.file, piece.start, piece.end, piece.data) for piece in self.pieces]
        return versions[0] if len(versions) == 1 else f"{len(versions)}-{crc32(''.join(versions).encode()):x}"


def version_of_bytes(file: LogFile, start: int, end: int, data: bytes) -> str:
    """Return the version of some bytes of a file, from their place and both ends of `data`."""
    return f"{file.identity[1]:x}-{start:x}-{end:x}-{crc32(data[:SAMPLE_BYTES] + data[-SAMPLE_BYTES:]):x}"


class LogReader:
    """Answers queries about the files of a log."""

    def __init__(self, zone: tzinfo | None, redact: bool) -> None:
        self.zone = zone
        self.redact = redact
        self.indexes = LineIndexes()

    def select(self, log: LogFiles, query: LogQuery) -> Selection:
        """Answer a query.

        Raises:
            InvalidArgument: the window is not possible.
            LogMoved: the files changed during the read, or the live file is missing: select again.
        """
        if query.forward:
            return self._forward(log, query)
        if query.window is not None and query.window.kind == "lines":
            return self._by_lines(log, query, query.window)
        if query.window is not None and query.window.kind == "bytes":
            return self._by_bytes(log, query, query.window)
        return self._backward(log, query)

    # Forward

    def _forward(self, log: LogFiles, query: LogQuery) -> Selection:
        entry_filter = EntryFilter(None, query.until, query.level, query.text, self.redact)
        notes: tuple[str, ...] = ()
        if query.after is not None:
            place = locate(log, query.after)
            if place.lost:
                notes = ("What came before these lines is gone: the log was emptied, or rotated away.",)
        else:
            place, ordered = self._find_since(log, query.since or 0.0)
            if not ordered:
                entry_filter, notes = entry_filter._replace(since=query.since), (_UNORDERED,)
        must_filter = query.filtered or query.until is not None or entry_filter.since is not None
        scans_all = query.filtered or entry_filter.since is not None
        log_read = read_on(
            log, place, FollowBounds(MAX_SCANNED_BYTES, MAX_SCANNED_BYTES) if scans_all else _default_bounds()
        )
        if not must_filter:
            before = self._position_before(log, place.at, place.offset)
            if query.after and not (log_read.pieces or log_read.lost):
                log_read = log_read._replace(position=query.after)
            log_read = self._whole_entries(log, log_read)
            return Selection(log_read.pieces, log_read.position, before, more=log_read.more, notes=notes)
        return self._filter(log, log_read, entry_filter, notes, query)

    def _whole_entries(self, log: LogFiles, log_read: LogRead) -> LogRead:
        """Leave out the last entry of a window if it does not end there, unless it is the only one."""
        if not log_read.more or not log_read.pieces:
            return log_read
        last = log_read.pieces[-1]
        content = log.content(log.files.index(last.file))
        end = last.end
        if end < content.size:
            end = end_of_last_entry(content, last.start, last.data, self.zone, content.modified / 1e9)
        if end == last.end:
            return log_read
        cut = Piece(last.file, last.start, last.data[: end - last.start])
        return log_read._replace(pieces=[*log_read.pieces[:-1], cut], position=position_of(content, end))

    def _filter(
        self, log: LogFiles, log_read: LogRead, entry_filter: EntryFilter, notes: tuple[str, ...], query: LogQuery
    ) -> Selection:
        """Select the matching entries of what was read, until a window is full or the end time is reached."""
        log_read = self._whole_entries(log, log_read)
        selected: list[Piece] = []
        after = log_read.position if log_read.pieces or query.after is None else query.after
        size = 0
        scanned, max_bytes = tuple(log_read.pieces), _open_bytes()
        for piece in log_read.pieces:
            content = log.content(log.files.index(piece.file))
            for start, end, matches, late in self._matched_entries(content, piece.start, piece.data, entry_filter):
                if late and entry_filter.since is None:  # times are in order
                    position = position_of(content, start)
                    return Selection(selected, position, closed=True, notes=notes, scanned=scanned)
                if not matches:
                    continue
                data = piece.data[start - piece.start : end - piece.start]
                if selected and size + len(data) > max_bytes:
                    return Selection(selected, position_of(content, start), more=True, notes=notes)
                if len(data) > max_bytes:
                    data = data[: data.rfind(b"\n", 0, max_bytes) + 1 or max_bytes]  # up to a line end if there is one
                    _add(selected, Piece(piece.file, start, data))
                    stop = start + len(data)
                    return Selection(selected, position_of(content, stop), more=True, notes=notes)
                size += len(data)
                _add(selected, Piece(piece.file, start, data))
        return Selection(selected, after, more=log_read.more, notes=notes, scanned=scanned)

    def _matched_entries(
        self, content: LogContent, start: int, data: bytes, entry_filter: EntryFilter
    ) -> Iterator[tuple[int, int, bool, bool]]:
        """Yield the entries of some bytes: begin, end, whether it matches, and whether it is at or after the end time.

        Yields none if it is certain that no entry matches.
        """
        if entry_filter.until is None and not may_contain(data, entry_filter.text):
            return
        now = content.modified / 1e9
        begin = head_before(content, start, self.zone, now)
        text = content.read(begin, start - begin) + data
        redacted = RedactedParts(text, begin, content)
        for entry in entries(text, self.zone, now):
            if begin + entry.end <= start:
                continue
            late = entry_filter.until is not None and entry.time is not None and entry.time >= entry_filter.until
            matches = not late and entry_filter.matches(text, entry, redacted)
            yield max(begin + entry.start, start), begin + entry.end, matches, late

    def _find_since(self, log: LogFiles, since: float) -> tuple[LogPlace, bool]:
        """Find the oldest file with entries since a time.

        Returns the place where they begin, and whether times are in order.
        """
        begin: tuple[LogPlace, bool] | None = None
        for index, file in enumerate(log.files):
            if file.modified / 1e9 < since and index:
                break
            content = log.content(index)
            if not content.size:
                begin = begin or (LogPlace(index, 0), True)
                continue
            if not self._is_timed(content):
                break
            start = find_time(content, since, self.zone, content.modified / 1e9)
            offset = start.offset if start.ordered else max(0, content.size - MAX_SCANNED_BYTES)
            if start.offset < content.size or begin is None:
                begin = LogPlace(index, offset), start.ordered
            if start.offset > 0 or not start.ordered:
                break
        if begin is None:
            raise _no_times()
        return begin

    def _is_timed(self, content: LogContent) -> bool:
        now = content.modified / 1e9
        return has_times(content.read(0, BLOCK_BYTES), self.zone, now) or has_times(
            content.read(max(0, content.size - BLOCK_BYTES), BLOCK_BYTES).partition(b"\n")[2], self.zone, now
        )

    # Backward

    def _backward(self, log: LogFiles, query: LogQuery) -> Selection:
        """Select the newest entries before a place, a time or the end, in one file."""
        index, high = self._find_end(log, query)
        content = log.content(index)
        low, closed = 0, query.before is not None
        notes: list[str] = []
        entry_filter = EntryFilter(None, None, query.level, query.text, self.redact)
        if query.since is not None or query.until is not None:
            if content.size and not self._is_timed(content):
                raise _no_times()
            now = content.modified / 1e9
            first = find_time(content, query.since, self.zone, now) if query.since is not None else None
            last = find_time(content, query.until, self.zone, now) if query.until is not None else None
            if (first and not first.ordered) or (last and not last.ordered):
                entry_filter = entry_filter._replace(since=query.since, until=query.until)
                notes.append(_UNORDERED)
            else:
                low = first.offset if first else 0
                closed = closed or (last is not None and last.offset < content.size)
                high = min(high, last.offset) if last else high
        requested_lines = query.window.first if query.window else None
        bounds = FollowBounds(within_budget(MAX_RANGE_BYTES), requested_lines) if requested_lines else _default_bounds()
        must_filter = query.filtered or entry_filter.since is not None or entry_filter.until is not None
        scanned: tuple[Piece, ...] = ()
        if must_filter:
            pieces, begin, full, examined = self._newest_matching(content, min(low, high), high, bounds, entry_filter)
            scanned = (examined,)
            full = full and requested_lines is not None
            if begin > low and not full and pieces:
                notes.append(f"Looked through as far back as byte {begin:,} of {content.file.name}.")
        else:
            pieces, begin = _newest(content, min(low, high), high, bounds)
            if requested_lines is None and pieces and begin > low:
                head = self._next_head(content, begin, pieces[0].data)
                begin = begin if head is None else head
                pieces = [Piece(content.file, begin, pieces[0].data[begin - pieces[0].start :])]
            full = requested_lines is not None and _count_lines(pieces) >= requested_lines
        before = self._position_before(log, index, begin) if begin > low or not low else None
        after = self._position_after(content, pieces, high)
        return Selection(pieces, after, before, closed=closed, full=full, notes=tuple(notes), scanned=scanned)

    def _next_head(self, content: LogContent, start: int, data: bytes) -> int | None:
        return next_head(content, start, data, self.zone, content.modified / 1e9)

    def _find_end(self, log: LogFiles, query: LogQuery) -> tuple[int, int]:
        """Return the index of the file in which the window ends, and the offset of the end."""
        if query.before is None:
            return 0, self._live_content(log).size
        place = locate(log, query.before)
        if place.lost:
            raise InvalidArgument(
                "The lines before it are gone: the log was emptied or rotated. Read it without before=."
            )
        return place.at, place.offset

    def _position_after(self, content: LogContent, pieces: list[Piece], high: int) -> LogPosition:
        """Return the position at `high`, or if the file ends there, after its last complete line.

        So an unfinished line is returned whole later.
        """
        if high < content.size:
            return position_of(content, high)
        is_selected = pieces and pieces[-1].end == high
        data = pieces[-1].data if is_selected else content.read(max(0, high - BLOCK_BYTES), BLOCK_BYTES)
        return position_of(content, high - len(data) + data.rfind(b"\n") + 1)

    def _position_before(self, log: LogFiles, index: int, offset: int) -> LogPosition | None:
        """Return the position at which the previous window ends, or None at the beginning of the oldest file."""
        if offset:
            return position_of(log.content(index), offset)
        for older in range(index + 1, len(log.files)):
            content = log.content(older)
            if content.size:
                return position_of(content, content.size)
        return None

    def _newest_matching(
        self, content: LogContent, low: int, high: int, bounds: FollowBounds, entry_filter: EntryFilter
    ) -> tuple[list[Piece], int, bool, Piece]:
        """Select the newest matching entries between two offsets.

        Returns them, where the search ended, whether the next entry would exceed the number of lines, and some of the
        examined bytes (all of them if nothing matched).
        """
        lowest, max_bytes = max(low, high - MAX_SCANNED_BYTES), min(bounds.bytes, within_budget(MAX_FILTERED_BYTES))
        end = high
        selected: list[Piece] = []
        size = lines = 0
        while end > lowest:
            begin, data, whole = self._block_before(content, low, lowest, end)
            if not whole and end < high:
                break  # the previous window ends with this entry
            for start, stop, matches, _ in reversed(list(self._matched_entries(content, begin, data, entry_filter))):
                if not matches:
                    continue
                part = data[start - begin : stop - begin]
                full = lines + part.count(b"\n") > bounds.lines
                if selected and (full or size + len(part) > max_bytes):
                    return _joined(selected[::-1]), selected[-1].start, full, Piece(content.file, begin, data)
                if len(part) > max_bytes:  # one entry: its last lines; the previous window has the others
                    first = _begin_of_last_lines(part, max_bytes)
                    first_piece = Piece(content.file, start + first, part[first:])
                    return [first_piece], first_piece.start, full, first_piece
                size, lines = size + len(part), lines + part.count(b"\n")
                selected.append(Piece(content.file, start, part))
            end = begin
        scanned = Piece(content.file, end, content.read(end, high - end) if not selected else b"")
        return _joined(selected[::-1]), end, False, scanned

    def _block_before(self, content: LogContent, low: int, lowest: int, end: int) -> tuple[int, bytes, bool]:
        """Read bytes before `end`, so many that an entry begins in them.

        Returns their start, the bytes, and whether they begin with an entry. They do, unless their first entry is so
        long that it begins before `lowest`.
        """
        length = SCAN_BYTES
        while True:
            begin = max(lowest, end - length)
            data = content.read(begin, end - begin)
            if not data:
                raise LogMoved  # the file was truncated
            if begin == low:
                return begin, data, True
            skip = data.find(b"\n") + 1
            head = self._next_head(content, begin + skip, data[skip:]) if skip < len(data) else None
            if head is not None:
                return head, data[head - begin :], True
            if begin == lowest:
                skip %= len(data)  # nothing is skipped if the only line end is the last byte
                return begin + skip, data[skip:], False
            length *= 2

    # By lines and bytes

    def _by_lines(self, log: LogFiles, query: LogQuery, window: Window) -> Selection:
        content = self._live_content(log)
        identity = content.file.identity
        index = self.indexes.of(identity, f"{content.size}-{content.modified}", content, identity)
        try:
            begin, line = index.find(content, window.first)
            if line < window.first and not (window.first == 1 or begin == 0):
                raise InvalidArgument(
                    f"This log has {line - 1:,} lines, and no line {window.first:,}: ask for tail=200."
                )
            width = WINDOW_LINES if window.last is None else window.last - window.first + 1
            end, end_line = index.find(content, window.first + width, until=begin + MAX_RANGE_BYTES)
        except NotReached as error:
            raise InvalidArgument(
                f"Line {window.first:,} was not reached in time: line {error.line:,} is at byte {error.offset:,}. Ask "
                f"again to look further from there, or ask for bytes={error.offset}-, tail= or since=."
            ) from None
        data = content.read(begin, min(end - begin, within_budget(MAX_RANGE_BYTES) if window.last else _open_bytes()))
        if end_line == 0 or begin + len(data) < end:  # 0: the line was not found within `MAX_RANGE_BYTES`
            data = data[: data.rfind(b"\n") + 1] or data
        stop = begin + len(data)
        next_line = window.first + data.count(b"\n")
        last = None if window.last is None else next_line + width - 1
        next_window = Window("lines", next_line, last) if stop < content.size and data.endswith(b"\n") else None
        previous_window = Window("lines", max(1, window.first - width), window.first - 1) if window.first > 1 else None
        complete = window.last is not None and next_line > window.last
        return self._select_range(
            content, begin, data, query, next_window, previous_window, closed=complete, more=not complete
        )

    def _by_bytes(self, log: LogFiles, query: LogQuery, window: Window) -> Selection:
        content = self._live_content(log)
        begin = window.first
        if begin > content.size:
            raise InvalidArgument(f"This log has {content.size:,} bytes, and no byte {begin:,}: ask for tail=200.")
        width = _open_bytes() if window.last is None else window.last - begin + 1
        data = content.read(begin, min(width, within_budget(MAX_RANGE_BYTES)))
        if (window.last is None or len(data) < width) and begin + len(data) < content.size:
            data = data[: data.rfind(b"\n") + 1] or data
        stop = begin + len(data)
        last = None if window.last is None else stop + width - 1
        next_window = Window("bytes", stop, last) if stop < content.size else None
        previous_window = Window("bytes", max(0, begin - width), begin - 1) if begin else None
        complete = window.last is not None and stop > window.last
        return self._select_range(
            content, begin, data, query, next_window, previous_window, closed=complete, more=not complete
        )

    def _select_range(
        self, content: LogContent, begin: int, data: bytes, query: LogQuery, next_window: Window | None,
        previous_window: Window | None, *, closed: bool, more: bool,
    ) -> Selection:  # fmt: skip
        """Select a window of one file, filtered if the query asks for it."""
        pieces = [Piece(content.file, begin, data)]
        scanned = tuple(pieces) if query.filtered else ()
        if query.filtered:
            entry_filter = EntryFilter(None, None, query.level, query.text, self.redact)
            matched = self._matched_entries(content, begin, data, entry_filter)
            pieces = _joined(
                [
                    Piece(content.file, start, data[start - begin : end - begin])
                    for start, end, matches, _ in matched
                    if matches
                ]
            )
        after = position_of(content, begin + len(data))
        more = more and next_window is not None
        return Selection(pieces, after, None, next_window, previous_window, closed=closed, more=more, scanned=scanned)

    def _live_content(self, log: LogFiles) -> LogContent:
        if log.live is None:
            raise LogMoved  # it was renamed and not yet recreated, or removed
        return log.content(0)


_UNORDERED = f"The times in this log are not in order: only its last {MAX_SCANNED_BYTES >> 20} MiB were searched."


def _no_times() -> InvalidArgument:
    return InvalidArgument("No times are known in this log: ask for tail=200, lines=1-200 or text=word instead.")


def _open_bytes() -> int:
    """Return the number of bytes in a window with an open end."""
    return window_bytes() if has_budget() else LOG_WINDOW_BYTES


def _default_bounds() -> FollowBounds:
    """Return the bounds of a window whose URI states none. Any number of lines fits, since each has at least a byte."""
    return FollowBounds(_open_bytes(), _open_bytes())


def _newest(content: LogContent, low: int, high: int, bounds: FollowBounds) -> tuple[list[Piece], int]:
    """Return the last lines between two offsets, up to the bounds, and where they begin."""
    offset, missing = high, bounds.lines
    lowest = max(low, high - bounds.bytes)
    ended = content.read(high - 1, 1) == b"\n" if high else False
    missing += ended  # the line end at `high` has no line after it
    line_start = -1
    while offset > lowest and line_start < 0:
        begin = max(lowest, offset - BLOCK_BYTES)
        data = content.read(begin, offset - begin)
        count = data.count(b"\n")
        if count >= missing:
            line_end = -1
            for _ in range(missing):
                line_end = data.rfind(b"\n", 0, line_end if line_end >= 0 else len(data))
            line_start = begin + line_end + 1
        missing -= count
        offset = begin
    start = line_start if line_start >= 0 else lowest
    data = content.read(start, high - start)
    if line_start < 0 and lowest > low:
        skip = data.find(b"\n") + 1
        start, data = (start + skip, data[skip:]) if skip < len(data) else (start, data)
    return ([Piece(content.file, start, data)] if data else []), start


def _begin_of_last_lines(data: bytes, size: int) -> int:
    """Return the offset of the first line in the last `size` bytes, or of these bytes if no line begins in them."""
    begin = len(data) - size
    next_line = data.find(b"\n", begin) + 1
    return next_line if 0 < next_line < len(data) else begin


def _count_lines(pieces: list[Piece]) -> int:
    """Count the lines in the pieces. The last one may lack its line end."""
    number = sum(piece.data.count(b"\n") for piece in pieces)
    return number + bool(pieces and not pieces[-1].data.endswith(b"\n"))


def _add(pieces: list[Piece], new: Piece) -> None:
    """Add a piece; if it continues the last one, join them."""
    if pieces and pieces[-1].file == new.file and pieces[-1].end == new.start:
        new = Piece(new.file, pieces[-1].start, pieces.pop().data + new.data)
    pieces.append(new)


def _joined(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        _add(joined, piece)
    return joined
