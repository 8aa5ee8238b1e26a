"""Parses the URI of a table: which file, which view of it, which rows and columns. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.folder.file_uri import UnreadableUri, split_path
from wharfinger.sources.folder.tree import Parts
from wharfinger.sources.table_files.formats import format_of
from wharfinger.sources.windows.window import split_query

__all__ = ["JSON", "JSON_LINES", "MARKDOWN", "ROWS", "VIEWS", "TableQuery", "locate", "rows_uri"]

ROWS = 200
"""Rows of a window with an open end."""
MARKDOWN, JSON, JSON_LINES = "text/markdown", "application/json", "application/x-ndjson"
VIEWS = {"schema": JSON, "sample": JSON_LINES}
"""The views that may follow a table in a URI, and their MIME types."""

_RANGE = re.compile(r"(\d{1,15})-(\d{1,15})?").fullmatch


class TableQuery(NamedTuple):
    """The parts of a URI: the path of a file or directory, a view of it, and a range of its rows and columns."""

    parts: Parts
    view: str
    rows: tuple[int, int] | None
    columns: tuple[str, ...]


def locate(uri: str, top: str) -> TableQuery:
    """Parse a URI below `top`.

    Raises:
        ResourceNotFound: it is not the URI of a file, directory or view.
        InvalidArgument: its query is not valid; the message says what to ask for.
    """
    base, query = split_query(uri)
    inside = top + "/"
    if base != top and not base.startswith(inside):
        raise ResourceNotFound(uri)
    try:
        parts, slashed = split_path(base[len(inside) :])
    except UnreadableUri:
        raise ResourceNotFound(uri) from None
    view = parts[-1] if len(parts) > 1 and parts[-1] in VIEWS and format_of(parts[-2]) else ""
    parts = parts[:-1] if view else parts
    table = bool(parts) and bool(format_of(parts[-1])) and not slashed
    if view and slashed:
        raise ResourceNotFound(uri)
    if query and (view or not table):
        raise InvalidArgument(f"Only a table has rows, as in {inside}x.csv?rows=1-{ROWS}: leave the query out.")
    asked = _asked(query)
    return TableQuery(parts, view or ("rows" if asked else "" if table else "directory"), *(asked or (None, ())))


def _asked(query: Mapping[str, str]) -> tuple[tuple[int, int] | None, tuple[str, ...]] | None:
    """The range of rows and the columns in a query; None if it is empty.

    Raises:
        InvalidArgument: it has other names, or the range is not valid.
    """
    if not query:
        return None
    unknown = [name for name in query if name not in ("rows", "columns")]
    if unknown:
        raise InvalidArgument(f"Ask for ?rows=1-{ROWS} and &columns=a,b; this asked for {', '.join(unknown)[:200]}.")
    rows = None
    if "rows" in query:
        match = _RANGE(query["rows"])
        rows = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
        if rows[0] < 1 or (match is not None and match[2] is not None and rows[1] < rows[0]):
            raise InvalidArgument(f"rows={query['rows'][:100]} is not a range of rows: write rows=1-200 or rows=201-.")
    columns = tuple(query["columns"].split(",")) if "columns" in query else ()
    return rows, columns


def rows_uri(base: str, first: int, last: int, columns: tuple[str, ...]) -> str:
    """The URI of a window; with `last` 0, one with an open end."""
    uri = f"{base}?rows={first}-{last or ''}"
    return f"{uri}&columns={','.join(quote(name, safe='') for name in columns)}" if columns else uri
