"""Parses the query of a journal's URI: some parameters of log files, a boot, and positions.

A position is the cursor of an entry (`s=…;i=…;b=…;m=…;t=…;x=…`), written in a URI as its six hexadecimal numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument
from wharfinger.sources.log_files.levels import read_level
from wharfinger.sources.log_files.log_query import read_filters
from wharfinger.sources.windows import window

__all__ = ["JournalQuery", "position_of_cursor", "read_journal_query", "time_of_cursor"]

_PLACES = ("tail", "after", "before")
_FILTERS = ("since", "until", "level", "text", "boot")
_KEPT = ("until", "level", "text", "boot")
"""The filters that the link to the next window repeats; the link to the previous one omits `until`."""
_ENTRY_NAMES = ("entry", "lines", "bytes")
_CURSOR = re.compile(
    r"s=([0-9a-f]{32});i=([0-9a-f]{1,16});b=([0-9a-f]{32});m=([0-9a-f]{1,16});t=([0-9a-f]{1,16});x=([0-9a-f]{1,16})"
).fullmatch
_POSITION = re.compile(
    r"([0-9a-f]{32})\.([0-9a-f]{1,16})\.([0-9a-f]{32})\.([0-9a-f]{1,16})\.([0-9a-f]{1,16})\.([0-9a-f]{1,16})"
).fullmatch
_BOOT = re.compile(r"0|-[0-9]{1,4}|(?!0{32})[0-9a-f]{32}").fullmatch
"""Matches the ID of a boot, or its number. journalctl takes an ID of zeros for the last boot."""
_PRIORITIES = {60: 1, 50: 2, 40: 3, 30: 4, 25: 5, 20: 6}
"""The priority of syslog for the rank of a level; for lower ranks it is 7."""


class JournalQuery(NamedTuple):
    """A parsed query. Without values, it selects the newest entries."""

    tail: int | None = None
    """The number of the last lines that are requested; None without `tail=`."""
    after: str = ""
    """The cursor of the entry before the window."""
    before: str = ""
    """The cursor of the entry after the window."""
    since: float | None = None
    until: float | None = None
    priority: int | None = None
    """The least severe priority of syslog: 3 selects 0 to 3."""
    text: str = ""
    boot: str = ""
    entry: str = ""
    """The cursor of an entry that is read alone, with all its fields."""
    window: window.Window | None = None
    """The lines or bytes of that entry to return (`lines=`, `bytes=`); None for all of it."""
    filters: str = ""
    """The part of the query that the link to the next window repeats; see `_KEPT`."""

    @property
    def plain(self) -> bool:
        """Whether the query selects the newest entries without any condition."""
        return self == JournalQuery()

    @property
    def forward(self) -> bool:
        """Whether entries are read forward from `after` or `since`, not backward from `before` or the newest one."""
        return bool(self.after) or (self.since is not None and self.tail is None and not self.before)


def position_of_cursor(cursor: str) -> str:
    """Return a cursor as a URI has it; an empty string if the text is not a cursor."""
    match = _CURSOR(cursor)
    return ".".join(match.groups()) if match else ""


def time_of_cursor(cursor: str) -> float:
    """Return the Unix time of the entry that a cursor names; 0.0 if the text is not a cursor."""
    match = _CURSOR(cursor)
    return int(match[5], 16) / 1e6 if match else 0.0


def read_journal_query(query: Mapping[str, str]) -> JournalQuery:
    """Read the query of a URI.

    Raises:
        InvalidArgument: a name or a value is unknown, or two of them exclude each other.
    """
    if "entry" in query and set(query) <= set(_ENTRY_NAMES):
        part = {name: value for name, value in query.items() if name != "entry"}
        return JournalQuery(entry=_read_cursor("entry", query["entry"]), window=window.parse_window(part))
    places = [name for name in query if name in _PLACES]
    other_names = [name for name in query if name not in _PLACES + _FILTERS]
    if other_names or (len(places) > 1 and set(places) != {"before", "tail"}):
        names = ", ".join(map(shown, query))[:200]
        raise InvalidArgument(
            "Of a journal, ask for tail=200, since=15m, until=2026-11-20T10:00:00Z, level=error, text=word or boot=-1, "
            f"or several of them. This asked for {names}."
        )
    since, until, text = read_filters(query, zone=None)
    boot = query.get("boot", "")
    if "boot" in query and not _BOOT(boot):
        raise InvalidArgument("boot= takes 0 (the last boot), -1 (the one before it), or the 32 digits of a boot's ID.")
    tail = window.parse_window({"tail": query["tail"]}) if "tail" in query else None
    return JournalQuery(
        tail=tail.first if tail else None,
        after=_read_cursor("after", query["after"]) if "after" in query else "",
        before=_read_cursor("before", query["before"]) if "before" in query else "",
        since=since,
        until=until,
        priority=_PRIORITIES.get(read_level(query["level"]), 7) if "level" in query else None,
        text=text,
        boot=boot,
        filters="".join([f"&{name}={quote(query[name], safe=':+-')}" for name in _KEPT if name in query]),
    )


def _read_cursor(name: str, written: str) -> str:
    match = _POSITION(written)
    if match is None:
        raise InvalidArgument(f"{name}= takes a position from the _meta of another window: read without it.")
    return ";".join([f"{letter}={number}" for letter, number in zip("sibmtx", match.groups(), strict=True)])
