"""Explains why a window of a log is empty: says what was searched, and suggests other queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo

from wharfinger.content.text import iso, shown, size_text
from wharfinger.sources.log_files.entries import BLOCK_BYTES, entries
from wharfinger.sources.log_files.levels import LEVEL_BYTES, LEVELS, level_of
from wharfinger.sources.log_files.log_follower import Piece
from wharfinger.sources.log_files.log_query import LogQuery
from wharfinger.sources.log_files.log_windows import LogReader, Selection
from wharfinger.sources.log_files.rotated_files import LogFiles
from wharfinger.sources.log_files.times import LINE_START_BYTES, time_of

__all__ = ["HOW_TO_ASK", "nothing_shown"]

HOW_TO_ASK = "?tail=200, ?since=15m, ?until=2026-11-20T10:10:00Z, ?level=error, ?text=word, ?lines=1-200"
"""The parameters of a log, as people and models read them."""
_UNCONDITIONAL = ("tail", "after", "before")
"""Parameters that are not conditions of entries."""
_LEVEL_NAMES = {rank: name for name, rank in LEVELS.items()}


def nothing_shown(
    reader: LogReader, log: LogFiles, query: LogQuery, selection: Selection, parameters: Mapping[str, str]
) -> str:
    """Return a remark that says why a window is empty and what to try. `parameters` are those of its URI."""
    newest = log.files[0]
    conditions = "&".join(
        [f"{name}={shown(value)[:100]}" for name, value in parameters.items() if name not in _UNCONDITIONAL]
    )
    pieces = [piece for piece in selection.scanned if piece.data]
    if not any(file.size for file in log.files):
        return f"{shown(newest.name)} is empty."
    if not conditions:
        if query.after is not None:
            return "Nothing was written after this."
        return f"{shown(newest.name)} is empty; it was rotated." if not newest.size else "Nothing is here."
    times, levels = _times_and_levels(pieces, reader.zone)
    if not pieces:
        content = log.content(0)
        data = content.read(max(0, content.size - BLOCK_BYTES), BLOCK_BYTES)
        latest = _times_and_levels([Piece(newest, content.size - len(data), data)], reader.zone)[0]
        last_entry = f": its last entry is from {iso(latest[1])}" if latest else ""
        return f"Nothing is in the log for {conditions}{last_entry}. Try tail=200, or another time."
    size = size_text(sum(len(piece.data) for piece in pieces))
    reaches_end = pieces[-1].file == newest and pieces[-1].end >= newest.size
    searched = f"the last {size}" if reaches_end else f"{size} of {shown(pieces[-1].file.name)}"
    period = f" ({iso(times[0])} to {iso(times[1])})" if times else ""
    return f"Nothing matched {conditions} in {searched}{period}{_advice(query, levels)}"


def _advice(query: LogQuery, levels: Sequence[int]) -> str:
    if query.level is not None and not levels:
        return f": these lines carry no level. Try text={_LEVEL_NAMES[query.level]} instead."
    if query.level is not None and levels[-1] < query.level:
        names = ", ".join([_LEVEL_NAMES[rank] for rank in levels if rank in _LEVEL_NAMES])
        return f": the levels of these lines are {names}. Try level={_LEVEL_NAMES.get(levels[-1], 'info')}, or text=."
    if query.text:
        return ". Try a shorter text (upper and lower case are the same), or without level= and since=."
    return ". Try tail=200, or another time."


def _times_and_levels(pieces: Sequence[Piece], zone: tzinfo | None) -> tuple[tuple[float, float] | None, list[int]]:
    """Return the earliest and latest time near both ends of the examined bytes, and the levels there, lowest first."""
    times: list[float] = []
    levels: set[int] = set()
    for piece in dict.fromkeys((pieces[0], pieces[-1])) if pieces else ():
        now = piece.file.modified / 1e9
        beginning, end = piece.data[:BLOCK_BYTES], piece.data[-BLOCK_BYTES:]
        for part in dict.fromkeys((beginning, end.partition(b"\n")[2] or end)):
            for entry in entries(part, zone, now):
                moment = time_of(part[entry.start : entry.start + LINE_START_BYTES], zone, now)
                rank = level_of(part[entry.start : min(entry.end, entry.start + LEVEL_BYTES)])
                times += [moment] if moment is not None else []
                levels |= {rank} if rank is not None else set()
    return (min(times), max(times)) if times else None, sorted(levels)
