"""Summarises audit logs: who read what, what was read most or refused, searches without hits, and bytes per caller.

Files are read line by line, and counts are kept for at most `MAX_COUNTED_NAMES` of each kind, so that a log of any
size is summarised in bounded memory. If there are more names, the rarest are dropped, and the other counts are too low
by at most `Counts.error` (the algorithm of Misra and Gries).
"""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from wharfinger.content.globs import compile_glob
from wharfinger.record.audit_file import is_rotation_suffix
from wharfinger.record.audit_line import action_of

__all__ = ["MAX_COUNTED_NAMES", "AuditReport", "Counts", "RecordedLine", "read_lines", "with_rotated_files"]

MAX_COUNTED_NAMES = 10_000
"""The maximum number of names of a kind that are counted."""
MAX_LINE_BYTES = 64 * 1024
"""A longer line is damaged, since `AuditLog` writes no such line."""
OUTCOMES = ("allowed", "refused", "failed", "cancelled", "limited")


class RecordedLine(msgspec.Struct):
    """The fields of a line that the report uses."""

    time: str
    action: str
    outcome: str
    method: str = ""
    target: str = ""
    subject: str = ""
    issuer: str = ""
    address: str = ""
    rule: str = ""
    via: str = ""
    bytes: int = 0
    hits: int | msgspec.UnsetType = msgspec.UNSET
    query: str = ""
    unrecorded: int = 0

    @property
    def who(self) -> str:
        """The caller: its subject, with the issuer if there is one, or its address."""
        if self.subject:
            return f"{self.subject} ({self.issuer})" if self.issuer else self.subject
        return self.address or "anonymous"

    @property
    def is_request(self) -> bool:
        """Whether the line stands for a request of a client, not for something that a request led to.

        What a handler reads has `via`. The action of a search, an approval or a stream's watch is not its method's.
        """
        return not self.via and self.action == action_of(self.method)


_decode = msgspec.json.Decoder(RecordedLine).decode


class Counts:
    """Counts of the most frequent names."""

    def __init__(self, limit: int = MAX_COUNTED_NAMES) -> None:
        self.limit = limit
        self.error = 0
        """By how much any count may be too low."""
        self._counts: dict[Any, int] = {}

    def add(self, name: Any, amount: int = 1) -> None:
        """Add an amount to the count of a name."""
        counts = self._counts
        counts[name] = counts.get(name, 0) + amount
        if len(counts) > self.limit:
            # Subtracting the median drops at least half of the names, so that this happens seldom.
            median = sorted(counts.values())[len(counts) // 2]
            self.error += median
            self._counts = {name: count - median for name, count in counts.items() if count > median}

    def top(self, limit: int) -> list[tuple[Any, int]]:
        """Return the most frequent names and their counts."""
        return sorted(self._counts.items(), key=lambda counted: (-counted[1], str(counted[0])))[:limit]

    def __len__(self) -> int:
        return len(self._counts)


class AuditReport:
    """A summary of audit lines.

    `since` and `until` are times in RFC 3339, `who` a subject, an address or a caller as the report names it, and
    `what` a pattern for URIs and names, in which `*` stands for any characters. Only lines that fit all of them are
    counted.
    """

    def __init__(self, *, since: str = "", until: str = "", who: str = "", what: str = "") -> None:
        self.since = since
        self.until = until
        self.who = who
        self.matches = compile_glob(what, path=False) if what else None
        self.first = self.last = ""
        """The times of the first and of the last line; empty if there are no lines."""
        self.line_count = 0
        self.damaged: list[str] = []
        """The first damaged lines, as FILE:LINE."""
        self.damaged_count = 0
        self.unrecorded = 0
        """Requests that were refused, and lines that were lost, because the log could not be written."""
        self.outcomes: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self.reads = Counts()
        """By URI."""
        self.reads_by_who = Counts()
        """By caller and URI."""
        self.refusals = Counts()
        """By caller, outcome, action, URI or name, and rule."""
        self.empty_searches = Counts()
        """By their words; all under the empty string if words are not recorded."""
        self.searches = 0
        self.bytes_by_who = Counts()
        self.requests_by_who = Counts()

    def add_file(self, path: Path) -> None:
        """Add a log, which may be compressed with gzip.

        Raises:
            OSError: it cannot be read.
        """
        for number, raw in read_lines(path):
            try:
                line = None if raw is None else _decode(raw)
            except (ValueError, RecursionError):  # not JSON, or not UTF-8
                line = None
            if line is None:
                self.damaged_count += 1
                if len(self.damaged) < 10:
                    self.damaged.append(f"{path}:{number}")
            else:
                self.add(line)

    def add(self, line: RecordedLine) -> None:
        """Add a line, if it fits the filters."""
        if (self.since and line.time < self.since) or (self.until and line.time >= self.until):
            return
        if self.who and self.who not in (line.subject, line.address, line.who):
            return
        if self.matches is not None and not self.matches(line.target):
            return
        self.first = min(self.first or line.time, line.time)
        self.last = max(self.last, line.time)
        self.line_count += 1
        self.unrecorded += line.unrecorded
        if line.action == "record":
            return
        who = line.who
        if line.outcome in self.outcomes:
            self.outcomes[line.outcome] += 1
        if line.is_request:  # the answer contains the bytes of what the handler read
            self.bytes_by_who.add(who, line.bytes)
            self.requests_by_who.add(who)
        if line.action == "read" and line.outcome == "allowed":
            self.reads.add(line.target)
            self.reads_by_who.add((who, line.target))
        elif line.action == "search":
            self.searches += 1
            if line.hits == 0:
                self.empty_searches.add(line.query)
        if line.outcome in ("refused", "limited"):
            self.refusals.add((who, line.outcome, line.action, line.target, line.rule))

    def as_dict(self, limit: int) -> dict[str, Any]:
        """Return the summary as JSON values, with at most `limit` entries in each list."""
        requests = dict(self.requests_by_who.top(MAX_COUNTED_NAMES))
        all_counts = [counts for counts in vars(self).values() if isinstance(counts, Counts)]
        return {
            "from": self.first,
            "to": self.last,
            "lines": self.line_count,
            "damaged": self.damaged_count,
            "damagedLines": self.damaged,
            "unrecorded": self.unrecorded,
            "outcomes": self.outcomes,
            "read": [{"target": target, "count": count} for target, count in self.reads.top(limit)],
            "readBy": [
                {"who": who, "target": target, "count": count} for (who, target), count in self.reads_by_who.top(limit)
            ],
            "refused": [
                {"who": who, "outcome": outcome, "action": action, "target": target, "rule": rule, "count": count}
                for (who, outcome, action, target, rule), count in self.refusals.top(limit)
            ],
            "searches": self.searches,
            "foundNothing": [{"query": query, "count": count} for query, count in self.empty_searches.top(limit)],
            "callers": [
                {"who": who, "bytes": size, "requests": requests.get(who, 0)}
                for who, size in self.bytes_by_who.top(limit)
            ],
            "tooLowBy": max(counts.error for counts in all_counts),
        }


def with_rotated_files(paths: Iterable[Path]) -> list[Path]:
    """Return these logs, each after its rotated files from the oldest on. No file is repeated."""
    files: dict[Path, None] = {}
    for path in paths:
        rotated = [
            file
            for file in path.parent.glob(f"{glob.escape(path.name)}.*")
            if file.is_file() and _is_rotated(file.name.removeprefix(f"{path.name}."))
        ]
        files |= dict.fromkeys((*sorted(rotated, key=_age_key), path))
    return list(files)


def _is_rotated(suffix: str) -> bool:
    """Return whether `AuditFile` (a time) or logrotate (a number) adds such a suffix to the name of a log."""
    return suffix.removesuffix(".gz").isdecimal() or is_rotation_suffix(suffix)


def _age_key(file: Path) -> tuple[int, str]:
    """Return a key that sorts rotated files from the oldest on. Numbers decrease with time, and times increase."""
    number = file.name.removesuffix(".gz").rpartition(".")[2]
    return (-int(number), "") if number.isdecimal() else (0, file.name)


def read_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line of a log that is not blank, with its number.

    A line that is too long is None. So is the first line that cannot be decompressed; nothing after it is read.
    """
    number = 0
    with path.open("rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file: IO[bytes] = gzip.GzipFile(fileobj=raw) if compressed else raw  # type: ignore[assignment]
        try:
            for number, line in enumerate(_bounded_lines(file), 1):
                if line is None or line.strip():
                    yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile):
            yield number + 1, None


def _bounded_lines(file: IO[bytes]) -> Iterator[bytes | None]:
    while line := file.readline(MAX_LINE_BYTES):
        if line.endswith(b"\n") or len(line) < MAX_LINE_BYTES:
            yield line
            continue
        yield None
        while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass
