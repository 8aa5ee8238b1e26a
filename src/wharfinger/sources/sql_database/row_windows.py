"""Windows over rows: `?limit=200`, `?after=<key>`, `?before=<key>`, `?tail=200`, `?rows=1-200`.

A window starts at a key, never at a position: rows that are added or removed elsewhere do not move it, and the last
window of ten million rows costs as much as the first one. Rows are lines of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from wharfinger.errors import InvalidArgument
from wharfinger.source import UriParameter
from wharfinger.sources.etag import digest
from wharfinger.sources.sql_database.catalogue import DatabaseTable
from wharfinger.sources.sql_database.database_engine import BadKey, DatabaseEngine, QueryBounds, Rows, Span
from wharfinger.sources.sql_database.row_text import json_line, unique_names
from wharfinger.sources.sql_database.sql_uris import SqlUris, join_key, quote_part, split_key
from wharfinger.sources.windows.window import split_query
from wharfinger.sources.windows.window_budget import cell_bytes, limited, window_bytes

__all__ = [
    "DEFAULT_ROWS",
    "JSON_LINES",
    "MAX_ROWS",
    "PARAMETERS",
    "RowQuery",
    "RowWindow",
    "parse_rows",
    "read_window",
    "rows_uri",
]

JSON_LINES = "application/x-ndjson"
DEFAULT_ROWS = 1_000
"""Rows in a window whose URI states no number."""
MAX_ROWS = 10_000
"""Rows in one window."""

PARAMETERS: Mapping[str, UriParameter] = {
    "limit": UriParameter("200", "this number of rows"),
    "after": UriParameter("KEY", "the rows after the one with this key"),
}

_NUMBER = re.compile(r"[1-9][0-9]{0,5}").fullmatch
_FROM_START = re.compile(r"1-([1-9][0-9]{0,5})").fullmatch
_EXAMPLES = "limit=200, after=<key>, before=<key> (both also with limit), tail=200, or rows=1-200"


class RowQuery(NamedTuple):
    """The rows that a URI asks for; `explicit` if it states how many."""

    span: Span
    explicit: bool


class RowWindow(NamedTuple):
    """Rows as text, and the queries of the next and previous window (None if there is none)."""

    text: str
    rows: int
    next: str | None
    previous: str | None
    short: bool
    version: str
    first: str = ""
    last: str = ""


def parse_rows(uri: str) -> RowQuery:
    """Parse the query of a URI of rows.

    Raises:
        InvalidArgument: it is not valid; the message says what is.
    """
    _, query = split_query(uri)
    limit = _number(query, "limit")
    left = {name: value for name, value in query.items() if name != "limit"}
    if not left:
        return RowQuery(Span(limit=limit or DEFAULT_ROWS), limit is not None)
    (name, value), *more = left.items()
    if more or name not in ("after", "before", "tail", "rows"):
        raise InvalidArgument(f"Rows are read by {_EXAMPLES}. This URI has {', '.join(left)[:200]}.")
    if name in ("after", "before"):
        return RowQuery(Span(where=name, key=_key(name, value), limit=limit or DEFAULT_ROWS), limit is not None)  # type: ignore[arg-type]
    if limit is not None:
        raise InvalidArgument(f"{name} already states the number of rows: leave limit out.")
    if name == "tail":
        return RowQuery(Span(where="last", limit=_number(query, "tail") or DEFAULT_ROWS), True)
    match = _FROM_START(value)
    if match is None or int(match[1]) > MAX_ROWS:
        raise InvalidArgument(
            f"rows={value[:40]} could only be found by counting all rows before. Read the first ones by rows=1-200 "
            f"(at most {MAX_ROWS:,}), and the following ones by after=<key>, which each window states."
        )
    return RowQuery(Span(limit=int(match[1])), True)


def _number(query: Mapping[str, str], name: str) -> int | None:
    value = query.get(name)
    if value is None:
        return None
    if not _NUMBER(value) or int(value) > MAX_ROWS:
        raise InvalidArgument(f"{name}={value[:40]} is not a number of rows: write {name}=200, at most {MAX_ROWS:,}.")
    return int(value)


def _key(name: str, value: str) -> tuple[str, ...]:
    try:
        return split_key(value)
    except ValueError:
        raise InvalidArgument(f"{name}={value[:40]} is not a key: use one that a window states.") from None


def read_window(engine: DatabaseEngine, table: DatabaseTable, ask: RowQuery, bounds: QueryBounds) -> RowWindow:
    """Read the rows that were asked for, or as many of them as fit into one window.

    Raises:
        InvalidArgument: the table has no key, or not this one.
        LookupError: the table no longer exists.
    """
    span = ask.span
    if table.key is None and span.where != "first":
        raise InvalidArgument(
            f"{table.name} is a {table.kind} without a key: only its first rows can be read, by limit=200."
        )
    size = limited(bounds.size) if ask.explicit else min(window_bytes(), bounds.size)
    if span.where != "at":
        bounds = msgspec.structs.replace(bounds, size=size, cell=cell_bytes(bounds.cell))
    try:
        found = engine.rows(table, span, bounds)
    except BadKey as error:
        raise InvalidArgument(f"This is not a key of {table.name}. {error}".strip()) from None
    rows = found.rows[::-1] if span.backwards else found.rows
    names = unique_names(column.name for column in table.columns)
    text = "".join([json_line(names, row.cells) for row in rows])
    first, last = (join_key(rows[at].key) if rows else "" for at in (0, -1))
    neighbours = _neighbours(table, ask, found, first, last)
    whole_table = span.where == "first" and not ask.explicit
    token = engine.table_token(table) if found.more and whole_table else ""
    return RowWindow(
        text,
        len(rows),
        *neighbours,
        short=found.more and (not ask.explicit or (not span.backwards and len(rows) < span.limit)),
        version=digest(text, token),
        first=first,
        last=last,
    )


def _neighbours(
    table: DatabaseTable, ask: RowQuery, found: Rows, first: str, last: str
) -> tuple[str | None, str | None]:
    """The queries of the next and of the previous window."""
    span = ask.span
    if table.key is None or not first:
        return None, None
    size = f"&limit={span.limit}" if ask.explicit else ""
    follows = found.more if not span.backwards else span.where == "before"
    precedes = found.more if span.backwards else span.where == "after"
    return (
        f"after={quote_part(last)}{size}" if follows else None,
        f"before={quote_part(first)}{size}" if precedes else None,
    )


def rows_uri(uris: SqlUris, table: DatabaseTable, query: str | None) -> str | None:
    """The URI of the next or previous window. Returns None if there is no such window."""
    return None if query is None else uris.of_rows(table.schema, table.name, query)
