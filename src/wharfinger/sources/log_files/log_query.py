"""Parses the query of a log's URI: a window by lines, bytes, time or position, and filters of entries."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import tzinfo
from typing import NamedTuple
from urllib.parse import quote

from wharfinger.errors import InvalidArgument
from wharfinger.sources.log_files.levels import read_level
from wharfinger.sources.log_files.positions import LogPosition
from wharfinger.sources.log_files.times import read_moment
from wharfinger.sources.windows import window

__all__ = ["LogQuery", "read_filters", "read_query"]

_WINDOW_NAMES = ("tail", "lines", "bytes", "after", "before")
_FILTER_NAMES = ("since", "until", "level", "text")
MAX_TEXT_CHARACTERS = 200
"""Maximum number of characters of `text=`."""


class LogQuery(NamedTuple):
    """A parsed query. Without values, it selects the end of the log."""

    window: window.Window | None = None
    after: LogPosition | None = None
    before: LogPosition | None = None
    since: float | None = None
    until: float | None = None
    level: int | None = None
    text: str = ""
    filters: str = ""
    """`until`, `level` and `text` as a part of a URI, such as `&level=error`, for the links to other windows."""

    @property
    def plain(self) -> bool:
        """Whether the URI has no query."""
        return self == LogQuery()

    @property
    def filtered(self) -> bool:
        """Whether entries are selected by their level or text."""
        return self.level is not None or bool(self.text)

    @property
    def forward(self) -> bool:
        """Whether the window is read forward, from `after` or `since`."""
        return self.after is not None or (self.since is not None and self.window is None and self.before is None)


def read_query(query: Mapping[str, str], zone: tzinfo | None) -> LogQuery:
    """Read the query of a URI.

    Raises:
        InvalidArgument: a name or a value is unknown, or two of them exclude each other.
    """
    window_names = [name for name in query if name in _WINDOW_NAMES]
    other_names = [name for name in query if name not in _WINDOW_NAMES + _FILTER_NAMES]
    is_tail_before = set(window_names) == {"before", "tail"}
    if other_names or (len(window_names) > 1 and not is_tail_before):
        raise InvalidArgument(
            "Ask for one part of a log: tail=200, lines=1-200 or bytes=0-65535; add since=15m, "
            f"until=2026-11-20T10:00:00Z, level=error or text=word. This asked for {', '.join(query)}."
        )
    if set(window_names) & {"lines", "bytes"} and set(query) & {"since", "until"}:
        raise InvalidArgument("A window of lines or bytes has no time: ask for since= and until= alone, or with tail=.")
    since, until, text = read_filters(query, zone)
    window_query = {name: query[name] for name in ("tail", "lines", "bytes") if name in query}
    return LogQuery(
        window=window.parse_window(window_query),
        after=LogPosition.read("after", query["after"]) if "after" in query else None,
        before=LogPosition.read("before", query["before"]) if "before" in query else None,
        since=since,
        until=until,
        level=read_level(query["level"]) if "level" in query else None,
        text=text,
        filters="".join(
            [f"&{name}={quote(query[name], safe=':+-')}" for name in ("until", "level", "text") if name in query]
        ),
    )


def read_filters(query: Mapping[str, str], zone: tzinfo | None) -> tuple[float | None, float | None, str]:
    """Read `since=`, `until=`, and `text=`, which is casefolded.

    Raises:
        InvalidArgument: a value is not valid, or `since` is not before `until`.
    """
    text = query.get("text", "")
    if len(text) > MAX_TEXT_CHARACTERS or ("text" in query and not text):
        raise InvalidArgument(f"text= takes 1 to {MAX_TEXT_CHARACTERS} characters.")
    now = time.time()
    since, until = (read_moment(name, query[name], zone, now) if name in query else None for name in ("since", "until"))
    if since is not None and until is not None and since >= until:
        raise InvalidArgument(f"since={query['since']} is not before until={query['until']}.")
    return since, until, text.casefold()
