"""Selects the entries of one window of a journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from wharfinger.content.text import iso
from wharfinger.errors import InvalidArgument
from wharfinger.sources.etag import digest
from wharfinger.sources.log_files.log_text import MAX_SHOWN_LINE_BYTES, render
from wharfinger.sources.log_files.log_windows import LOG_WINDOW_BYTES
from wharfinger.sources.log_files.secrets import CONTEXT_BYTES
from wharfinger.sources.systemd_journal.entry_text import (
    FIELDS,
    KERNEL,
    UNIT_FIELDS,
    cursor_of,
    has_text,
    line_of,
    moment_of,
    shown_size,
)
from wharfinger.sources.systemd_journal.export_format import ExportedEntry
from wharfinger.sources.systemd_journal.journal_process import RUN_SECONDS, Journalctl
from wharfinger.sources.systemd_journal.journal_query import JournalQuery, time_of_cursor
from wharfinger.sources.windows.window import BytesContent
from wharfinger.sources.windows.window_budget import has_budget, window_bytes, within_budget

__all__ = ["ALL", "MAX_SCANNED_BYTES", "MAX_TAIL_BYTES", "EntryCheck", "JournalReader", "JournalSelection"]

ALL = "all"
"""The name of the log of all entries."""
MAX_SCANNED_BYTES = 16 << 20
"""Maximum bytes of entries that one read examines."""
MAX_TAIL_BYTES = 1 << 20
"""Maximum bytes of a window for `tail=`."""

LINE_OVERHEAD_BYTES = 512
"""Bytes of a line besides its message: time, level, program, and the URI of the whole entry."""
MIN_MESSAGE_BYTES = 256

EntryCheck = Callable[[ExportedEntry], bool]
"""Returns whether the caller may read an entry."""


class JournalSelection(NamedTuple):
    """The lines of a window, oldest first, and the entries at its ends.

    Entries that the caller may not read do not count as examined, unless the window ends at a limit.
    """

    lines: Sequence[bytes]
    cursors: Sequence[str]
    """The cursors of the entries, one for each of `lines`."""
    after: str = ""
    """The cursor of the newest examined entry; if there is none, the `after` of the query."""
    before: str = ""
    """The cursor of the oldest examined entry; empty if there is none, or if a backward read met no limit."""
    closed: bool = False
    """Whether no later entry can belong to the window."""
    more: bool = False
    """Whether the window ends at a limit, so that further entries may belong to it."""
    full: bool = False
    """Whether the window has the requested number of lines."""
    notes: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """A text that changes with the entries."""
        ends = (self.cursors[0], self.cursors[-1]) if self.cursors else ()
        return digest(str(len(self.cursors)), *ends)


class JournalReader:
    """Reads windows of one journal."""

    def __init__(self, journalctl: Journalctl, redact: bool) -> None:
        self.journalctl = journalctl
        self.redact = redact

    def newest(self, log: str, may_read: EntryCheck) -> str:
        """Return the cursor of the newest entry of a log that the caller may read.

        Returns an empty string if there is none in the newest `MAX_SCANNED_BYTES`.
        """
        with self.journalctl.run([*_log_arguments(log), "--reverse"], UNIT_FIELDS) as run:
            size = 0
            for entry in run.entries():
                size += entry.size
                if size > MAX_SCANNED_BYTES:
                    break
                if may_read(entry):
                    return cursor_of(entry)
        return ""

    def entry(self, log: str, cursor: str, may_read: EntryCheck) -> ExportedEntry:
        """Return one entry with all its fields.

        Raises:
            InvalidArgument: the entry is not in this log (any more), or the caller may not read it.
        """
        with self.journalctl.run([*_log_arguments(log), f"--cursor={cursor}"]) as run:
            entry = run.first_entry()
        if entry is None or cursor_of(entry) != cursor or not may_read(entry):
            raise _missing_entry("entry", cursor)
        return entry

    def select(self, log: str, query: JournalQuery, may_read: EntryCheck) -> JournalSelection:
        """Select the entries of a window.

        Raises:
            InvalidArgument: the entry that `after=` or `before=` names no longer exists, or the boot does not.
        """
        anchor = query.after or query.before
        arguments = [*_log_arguments(log), *_condition_arguments(query)]
        if anchor:
            arguments.append(f"--cursor={anchor}")
        if not query.forward:
            arguments.append("--reverse")
        max_bytes = (
            within_budget(MAX_TAIL_BYTES) if query.tail else window_bytes() if has_budget() else LOG_WINDOW_BYTES
        )
        max_message_bytes = min(max(MIN_MESSAGE_BYTES, max_bytes - LINE_OVERHEAD_BYTES), MAX_SHOWN_LINE_BYTES)
        lines: list[bytes] = []
        cursors: list[str] = []
        first = last = examined = ""  # links name only entries that the caller may read, unless a limit is reached
        size = line_count = scanned = 0
        more = closed = full = anchor_checked = anchor_missing = False
        notes: list[str] = []
        with self.journalctl.run(arguments, FIELDS) as run:
            for entry in run.entries():
                cursor, moment = cursor_of(entry), moment_of(entry)
                if anchor and not anchor_checked:
                    anchor_checked, anchor_missing = True, cursor != anchor
                    if not anchor_missing:
                        continue
                if query.until is not None and moment >= query.until:
                    if query.forward:
                        closed = True
                        break
                    continue
                if query.since is not None and moment < query.since:
                    if query.forward:
                        continue
                    break
                examined = cursor
                scanned += entry.size
                line = line_of(entry, max_message_bytes) if may_read(entry) else b""
                if line and (not query.text or has_text(line, query.text, self.redact)):
                    length, height = shown_size(line), line.count(b"\n")
                    full = query.tail is not None and line_count + height > query.tail
                    if lines and (size + length > max_bytes or full):
                        more = True
                        break
                    size, line_count = size + length, line_count + height
                    lines.append(line)
                    cursors.append(cursor)
                if line:
                    first, last = first or cursor, cursor
                if scanned > MAX_SCANNED_BYTES:
                    last, more = examined, True
                    notes.append(f"Looked {'up to' if query.forward else 'back to'} {iso(moment)}.")
                    break
            if run.timed_out and not (more or closed):  # the end of the window may have been reached before
                last, more = examined, True
                notes.append(f"Ended after {RUN_SECONDS:g} s.")
        if anchor and not run.timed_out and (anchor_missing or not anchor_checked):
            self._require_entry(query, anchor)
        # An entry has the time at which it was written, so no entry is added to a time in the past.
        ends_in_past = query.until is not None and query.until <= time.time()
        if query.forward:
            closed = closed or (not more and ends_in_past)
            return JournalSelection(
                lines, cursors, last or query.after, first, closed=closed, more=more, notes=tuple(notes)
            )
        full = full or line_count == query.tail
        before = last if more else ""
        closed = bool(query.before) or ends_in_past
        return JournalSelection(lines[::-1], cursors[::-1], first, before, closed, more, full, tuple(notes))

    def _require_entry(self, query: JournalQuery, cursor: str) -> None:
        """Check that the entry at a cursor exists. If not, journalctl begins at another entry, without an error."""
        with self.journalctl.run([f"--cursor={cursor}"], ("_PID",)) as run:
            entry = run.first_entry()
        if entry is None or cursor_of(entry) != cursor:
            raise _missing_entry("after" if query.after else "before", cursor)

    def text(self, log: str, selection: JournalSelection) -> str:
        """Return the text of a window. With `redact`, secrets that begin in it or before it are left out."""
        data = b"".join(selection.lines)
        before = self._text_before(log, selection.cursors[0]) if data and self.redact else b""
        return render(data, len(before), BytesContent(before + data), redact=self.redact, cut=False)

    def _text_before(self, log: str, cursor: str) -> bytes:
        """Return the lines before an entry, about `CONTEXT_BYTES`: a secret is recognised by the text before it."""
        lines: list[bytes] = []
        size = 0
        with self.journalctl.run([*_log_arguments(log), f"--cursor={cursor}", "--reverse"], FIELDS) as run:
            entries = run.entries()
            next(entries, None)
            for entry in entries:
                line = line_of(entry, CONTEXT_BYTES)
                size += len(line)
                lines.append(line)
                if size >= CONTEXT_BYTES:
                    break
        return b"".join(reversed(lines))


def _log_arguments(log: str) -> list[str]:
    """Return the arguments that select the entries of a log."""
    if log == ALL:
        return []
    return ["_TRANSPORT=kernel"] if log == KERNEL else [f"--unit={log}"]


def _condition_arguments(query: JournalQuery) -> list[str]:
    """Return the arguments for the conditions that journalctl checks.

    Among them is the time at which reading begins, unless it begins at a cursor. `select` checks all times again.
    """
    arguments: list[str] = []
    if query.priority is not None:
        arguments.append(f"--priority=0..{query.priority}")
    if query.boot:
        arguments.append(f"--boot={query.boot}")
    if not (query.after or query.before):
        arguments += [f"--since=@{max(0.0, query.since):.6f}"] if query.since is not None and query.forward else []
        arguments += [f"--until=@{max(0.0, query.until):.6f}"] if query.until is not None and not query.forward else []
    return arguments


def _missing_entry(name: str, cursor: str) -> InvalidArgument:
    moment = ""
    with suppress(ValueError):
        moment = iso(time_of_cursor(cursor))
    return InvalidArgument(
        f"The entry that {name}= names is not in the journal: it was rotated or vacuumed, or belongs to another log. "
        f"Read without {name}=" + (f", or with since={moment}." if moment else ".")
    )
