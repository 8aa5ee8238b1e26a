"""Windows over rows: `?limit=200`, `?after=<key>`, `?before=<key>`, `?tail=200`, `?rows=1-200`, each with conditions,
an order and columns (see `row_choice`).

A window starts at a key, not at a position: rows that are added or removed elsewhere do not move it, and the last
window of ten million rows costs as much as the first one. Tables and views without a key are read by position.
Rows are lines of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from wharfinger.errors import InvalidArgument
from wharfinger.source import UriParameter
from wharfinger.sources.etag import digest
from wharfinger.sources.sql_database.database_catalogue import DatabaseTable
from wharfinger.sources.sql_database.database_engine import BadKey, DatabaseEngine, QueryBounds, Rows, Span
from wharfinger.sources.sql_database.row_choice import FILTERS, check_columns, read_choice, read_pairs
from wharfinger.sources.sql_database.row_text import PartialValue, clean, json_line, unique_names
from wharfinger.sources.sql_database.sql_uris import KeyTexts, SqlUris, join_key, quote_part, split_key
from wharfinger.sources.windows.window_budget import cell_bytes, has_budget, within_budget

__all__ = [
    "DEFAULT_ROWS",
    "HOW_TO_ASK",
    "MAX_ROWS",
    "PARAMETERS",
    "WINDOW_VALUE_BYTES",
    "RowQuery",
    "RowWindow",
    "parse_rows",
    "read_window",
    "rows_uri",
]

DEFAULT_ROWS = 1_000
"""Maximum number of rows of a window whose URI states no number."""
MAX_ROWS = 10_000
"""Maximum number of rows of a window."""
WINDOW_VALUE_BYTES = 32_000
"""Maximum bytes of values in a window whose URI states no number of rows: about 10,000 tokens with column names."""
MAX_PLACE_LENGTH = 4_000
"""Maximum number of characters of a row's place in the order, which is part of the URI of the next window."""
RESERVED_NAMES = ("limit", "after", "before", "tail", "rows")
"""Parameters that are not names of columns."""
HOW_TO_ASK = "?<column>=<value>&order=-<column>&columns=a,b&limit=20"
"""The parameters for rows, in a form for people and models."""

PARAMETERS: Mapping[str, UriParameter] = {
    "limit": UriParameter("200", "this number of rows"),
    "order": UriParameter("-date,name", "ordered by these columns, - for descending"),
    "columns": UriParameter("id,name", "only these columns"),
    "after": UriParameter("KEY", "the rows after the one with this key"),
    "COLUMN": UriParameter("gte.100", f"only rows that meet conditions on columns: {FILTERS}"),
}
"""Descriptions for the tools. COLUMN stands for the name of any column."""

_NUMBER = re.compile(r"[1-9][0-9]{0,5}").fullmatch
_RANGE = re.compile(r"([1-9][0-9]{0,11})-([1-9][0-9]{0,11})?").fullmatch
_EXAMPLES = "limit=200, after=<key>, before=<key> (both also with limit), tail=200, or rows=1-200"
_OTHER_PARAMETERS = f"{', '.join(RESERVED_NAMES)}, order=-date (- for descending), columns=a,b"


class RowQuery(NamedTuple):
    """The rows that a URI requests, and whether it states their number."""

    span: Span
    states_number: bool


class RowWindow(NamedTuple):
    """Rows as text, and the queries of the next and previous window (None if there is no such window)."""

    text: str
    row_count: int
    next: str | None
    previous: str | None
    rest: str | None
    """The query of the window that has the next of the requested rows, if not all of them are in this one."""
    version: str
    first: str = ""
    """The place of the first row in the order, as in a URI."""
    last: str = ""


def parse_rows(uri: str) -> RowQuery:
    """Parse the query of a URI of rows.

    Raises:
        InvalidArgument: the query is not valid. The message says how to write it.
    """
    query, choice = read_choice(read_pairs(uri), RESERVED_NAMES)
    limit = _number(query, "limit")
    other_parameters = {name: value for name, value in query.items() if name != "limit"}
    if len(other_parameters) > 1:
        raise InvalidArgument(f"Rows are read by one of {_EXAMPLES}. This URI has {', '.join(other_parameters)[:200]}.")
    for name, value in other_parameters.items():
        if name in ("after", "before"):
            span = Span(where=name, place=_key(name, value), limit=limit or DEFAULT_ROWS, choice=choice)  # type: ignore[arg-type]
            return RowQuery(span, limit is not None)
        if limit is not None:
            raise InvalidArgument(f"{name} already states the number of rows: leave limit out.")
        if name == "tail":
            return RowQuery(Span(where="last", limit=_number(query, "tail") or DEFAULT_ROWS, choice=choice), True)
        first, last = _range(value)
        span = Span(offset=first - 1, limit=last - first + 1 if last else DEFAULT_ROWS, choice=choice)
        return RowQuery(span, bool(last))
    return RowQuery(Span(limit=limit or DEFAULT_ROWS, choice=choice), limit is not None)


def _range(value: str) -> tuple[int, int]:
    """Return the first and last number of `rows=1-200`. The last one of `rows=201-` is 0."""
    match = _RANGE(value)
    first, last = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    if not match or (match[2] and not first <= last < first + MAX_ROWS):
        raise InvalidArgument(f"rows={value[:40]} is not a range: write rows=1-200, for at most {MAX_ROWS:,} rows.")
    return first, last


def _number(query: Mapping[str, str], name: str) -> int | None:
    value = query.get(name)
    if value is None:
        return None
    if not _NUMBER(value) or int(value) > MAX_ROWS:
        raise InvalidArgument(f"{name}={value[:40]} is not a number of rows: write {name}=200, at most {MAX_ROWS:,}.")
    return int(value)


def _key(name: str, value: str) -> KeyTexts:
    try:
        return split_key(value)
    except ValueError:
        raise InvalidArgument(f"{name}={value[:40]} is not a key: use one that a window states.") from None


def read_window(
    engine: DatabaseEngine, table: DatabaseTable, query: RowQuery, bounds: QueryBounds, uris: SqlUris | None = None
) -> RowWindow:
    """Read the requested rows, or as many of them as fit into one window.

    With `uris`, cut values and bytes state the URI of the complete value.

    Raises:
        InvalidArgument: the table has no key, has a different key, lacks a column (`UnknownColumn`), or cannot be read
            in this way.
        LookupError: the table no longer exists.
    """
    span = query.span
    _check(table, span)
    size = within_budget(bounds.size) if query.states_number or has_budget() else min(WINDOW_VALUE_BYTES, bounds.size)
    if span.where != "at":
        bounds = msgspec.structs.replace(bounds, size=size, cell=cell_bytes(bounds.cell))
    try:
        result = engine.rows(table, span, bounds)
    except BadKey as error:
        raise InvalidArgument(f"This is not a key of {clean(table.name)}. {error}".strip()) from None
    rows = result.rows[::-1] if span.backwards else result.rows
    columns = span.columns(table)
    names = unique_names(column.name for column in columns)
    lines: list[str] = []
    for row in rows:
        cells = row.cells
        if uris is not None and row.key and PartialValue in map(type, cells):
            cells = tuple(
                [
                    {**cell, "read": uris.of_cell(table.schema, table.name, row.key, column.name)}
                    if isinstance(cell, PartialValue)
                    else cell
                    for cell, column in zip(cells, columns, strict=True)
                ]
            )
        lines.append(json_line(names, cells))
    text = "".join(lines)
    first, last = (join_key(rows[index].place) if rows else "" for index in (0, -1))
    whole_table = span.where == "first" and not query.states_number
    token = engine.table_token(table) if result.more and whole_table else ""
    following, previous = _neighbours(table, query, result, first, last)
    ended_early = result.more and (not query.states_number or (not span.backwards and len(rows) < span.limit))
    return RowWindow(
        text,
        len(rows),
        following,
        previous,
        rest=(previous if span.backwards else following) if ended_early else None,
        version=digest(text, token),
        first=first,
        last=last,
    )


def _check(table: DatabaseTable, span: Span) -> None:
    """Check that a table can be read by this span.

    Raises:
        InvalidArgument: it cannot. The message says how to read the table.
    """
    check_columns(span.choice, clean(table.name), [column.name for column in table.columns], _OTHER_PARAMETERS)
    if table.key is None and span.where != "first":
        raise InvalidArgument(
            f"{clean(table.name)} is a {table.kind} without a key: its rows are read by their numbers, as in "
            "rows=201-400. For the last ones, use the opposite order, as in order=-date&limit=20."
        )
    if table.key is not None and span.offset:
        raise InvalidArgument(
            f"rows={span.offset + 1}-{span.offset + span.limit} could only be found by counting all rows before them. "
            "Read the first ones with rows=1-200, and the following ones with after=<key>, which each window states."
        )


def _neighbours(
    table: DatabaseTable, query: RowQuery, result: Rows, first: str, last: str
) -> tuple[str | None, str | None]:
    """Return the queries of the next and of the previous window."""
    span = query.span
    suffix = f"&{span.choice.text}" if span.choice.text else ""
    if table.key is None:
        end = span.offset + len(result.rows)
        last_row = end + span.limit if query.states_number else ""
        following = f"rows={end + 1}-{last_row}{suffix}" if result.more else None
        begin = max(0, span.offset - span.limit)
        return following, f"rows={begin + 1}-{span.offset}{suffix}" if span.offset else None
    if not first:
        return None, None
    if max(len(first), len(last)) > MAX_PLACE_LENGTH:
        raise InvalidArgument(
            f"The values of {clean(table.name)} are too long to be ordered by {span.choice.order[0].column}."
            if span.choice.order
            else f"The keys of {clean(table.name)} are too long for a URI."
        )
    suffix = (f"&limit={span.limit}" if query.states_number else "") + suffix
    follows = result.more if not span.backwards else span.where == "before"
    precedes = result.more if span.backwards else span.where == "after"
    return (
        f"after={quote_part(last)}{suffix}" if follows else None,
        f"before={quote_part(first)}{suffix}" if precedes else None,
    )


def rows_uri(uris: SqlUris, table: DatabaseTable, query: str | None) -> str | None:
    """Return the URI of the next or previous window, or None if there is no such window."""
    return None if query is None else uris.of_rows(table.schema, table.name, query)
