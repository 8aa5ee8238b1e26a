"""The templates of logs, the values that complete them, and the links of a window to the next and previous ones."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.source import UriParameter
from wharfinger.sources.log_files.levels import LEVELS
from wharfinger.sources.log_files.log_query import LogQuery
from wharfinger.sources.log_files.log_windows import Selection
from wharfinger.sources.windows.window import NEXT, PREVIOUS, with_query

__all__ = ["PARAMETERS", "VALUES", "is_open", "links_of", "templates_of", "uri_before"]

VALUES: Mapping[str, tuple[str, ...]] = {
    "level": tuple(LEVELS),
    "since": ("15m", "1h", "24h", "7d"),
    "until": ("15m", "1h", "24h"),
    "tail": ("50", "200", "1000"),
}

PARAMETERS: Mapping[str, UriParameter] = {
    "tail": UriParameter("200", "the last lines"),
    "since": UriParameter("15m", "entries since then, or since a time such as 2026-11-20T10:00:00Z"),
    "until": UriParameter("5m", "entries before then"),
    "level": UriParameter("error", "entries of this level and above"),
    "text": UriParameter("timeout", "entries with this text, in any case"),
    "lines": UriParameter("1-200", "these lines"),
}


def templates_of(label: str, whole: str, filtered: str) -> list[t.ResourceTemplate]:
    """Return the templates for logs, and for parts of them. `whole` and `filtered` are their URI templates."""
    return [
        t.ResourceTemplate(
            uri_template=whole,
            name=label,
            title=f"Any log in {label}",
            description="A log's newest lines. Its _meta has the URIs of later (wharfinger/next) and earlier lines.",
            mime_type=mime.TEXT,
        ),
        t.ResourceTemplate(
            uri_template=filtered,
            name=f"{label}-part",
            title=f"A part of a log in {label}",
            description=(
                "The last lines (tail=200), or entries since= or until= a time (2026-11-20T10:00:00Z; 15m is 15 "
                f"minutes ago), of at least a level= ({', '.join(LEVELS)}), or with a text=. "
                "Parameters can be combined."
            ),
            mime_type=mime.TEXT,
        ),
    ]


def links_of(base: str, query: LogQuery, selection: Selection) -> dict[str, object]:
    """Return the links to the windows before and after, with the filters of the query."""
    links: dict[str, object] = {}
    filters = query.filters
    if selection.next_window or selection.previous_window:
        if selection.next_window:
            links[NEXT] = with_query(base, str(selection.next_window)) + filters
        if selection.previous_window:
            links[PREVIOUS] = with_query(base, str(selection.previous_window)) + filters
        return links
    if is_open(query) and selection.after and not (selection.closed and query.until is not None):
        links[NEXT] = with_query(base, f"after={selection.after}") + filters
    if selection.before:
        tail = query.window.first if query.window else None
        links[PREVIOUS] = uri_before(base, selection.before, tail, None if query.forward else query.since, filters)
    return links


def uri_before(base: str, position: object, tail: int | None, since: float | None, filters: str) -> str:
    """Return the URI of the window before a position, with these filters except `until=`."""
    parts = [f"before={position}"]
    parts += [f"tail={tail}"] if tail else []
    parts += [f"since={since:.3f}"] if since is not None else []
    parts += [part for part in filters.split("&") if part and not part.startswith("until=")]
    return with_query(base, "&".join(parts))


def is_open(query: LogQuery) -> bool:
    """Return whether a link with `after=` can continue the window. A window of lines or bytes has links of its own."""
    return query.window is None or query.window.kind == "tail"
