"""Completions for the tables and rows of a database, and the documents in which a search finds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from wharfinger.content import mime
from wharfinger.errors import ProtocolError, WharfingerError
from wharfinger.source import Document
from wharfinger.sources.etag import digest
from wharfinger.sources.name_completion import MAX_COMPLETIONS, complete_name
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.sql_database.database_catalogue import DatabaseCatalogue, DatabaseTable
from wharfinger.sources.sql_database.database_engine import BadKey, DatabaseEngine, QueryBounds, Span
from wharfinger.sources.sql_database.readable_catalogue import reads_rows
from wharfinger.sources.sql_database.row_text import clean
from wharfinger.sources.sql_database.row_windows import RowQuery, RowWindow, read_window
from wharfinger.sources.sql_database.sql_uris import SqlUris, join_key, quote_part, split_key
from wharfinger.sources.sql_database.table_descriptions import definition_text

__all__ = ["MAX_ROWS", "complete_variable", "table_documents"]

MAX_ROWS = 100_000
"""Maximum number of rows of one table that become documents: the first ones.

Of a table without a key, only the first `WINDOW_ROWS` do: each further window would order all rows again.
"""
WITHOUT_ROWS = ("view", "foreign table")
"""Kinds of tables whose rows do not become documents: they are in other tables, and may be slow to read."""
WINDOW_ROWS = 100
"""Number of rows in one document."""
MAX_KEYS = 20
"""Maximum number of rows that one statement reads to complete a key."""
MAX_PAGE_KEY_LENGTH = 65_536
"""Maximum number of characters of the key of a page of documents: enough for names and a place that is all escaped."""
ReadCatalogue = Callable[[float], DatabaseCatalogue]
"""Returns the tables that the caller may read, at most this many seconds old."""
CATALOGUE_SECONDS = 0.25
"""Maximum age of a catalogue."""
LIMITS = ("100", "1000", "10000")
WINDOW_SECONDS = 2.0
"""Time limit for one window of rows."""


def complete_variable(
    engine: DatabaseEngine,
    read_catalogue: ReadCatalogue,
    uris: SqlUris,
    bounds: QueryBounds,
    argument: str,
    value: str,
    context: Mapping[str, str],
) -> list[str]:
    """Suggest values for a variable of the templates."""
    if argument == "limit":
        return [limit for limit in LIMITS if limit.startswith(value)]
    catalogue = read_catalogue(5.0)
    if argument == "schema":
        return complete_name(catalogue.schemas, value)
    schema = uris.schema if uris.schema is not None else context.get("schema", "")
    if argument == "table":
        return complete_name(
            dict.fromkeys(name for table_schema, name in catalogue.tables if schema in ("", table_schema)), value
        )
    table = catalogue.tables.get((schema, context.get("table", "")))
    if argument in ("columns", "order") and table is not None:
        return _complete_columns(table, value)
    if argument in ("key", "after") and table is not None and table.key is not None and reads_rows(uris, table):
        return _complete_key(engine, bounds, table, value)
    return []


def _complete_columns(table: DatabaseTable, value: str) -> list[str]:
    """Suggest columns that begin with the text after the last comma. The minus of a descending order is kept."""
    before, comma, typed = value.rpartition(",")
    sign = "-" if typed.startswith("-") else ""
    names = complete_name([column.name for column in table.columns], typed.removeprefix("-"))
    return [before + comma + sign + name for name in names]


def _complete_key(engine: DatabaseEngine, bounds: QueryBounds, table: DatabaseTable, value: str) -> list[str]:
    bounds = msgspec.structs.replace(bounds, seconds=0.5, cell=64)
    spans = [Span(limit=MAX_KEYS)]
    if value:
        try:
            key = split_key(value)
        except ValueError:
            return []
        spans = [Span(where="at", place=key, limit=1), Span(where="after", place=key, limit=MAX_KEYS)]
    keys: dict[str, None] = {}
    for span in spans:
        try:
            rows = engine.rows(table, span, bounds).rows
        except (BadKey, LookupError, WharfingerError):
            continue
        keys |= dict.fromkeys(text for row in rows if (text := join_key(row.key)).startswith(value))
    return list(keys)[:MAX_COMPLETIONS]


# Documents


class _Position(NamedTuple):
    """A position in the list of documents: a table, the key of its last listed row, and how many rows were listed."""

    schema: str = ""
    table: str = ""
    last: str = ""
    row_count: int = 0

    def write(self) -> str:
        return "/".join(
            ["d", quote_part(self.schema), quote_part(self.table), quote_part(self.last), str(self.row_count)]
        )


def _read_position(key: str) -> _Position:
    mark, *parts = key.split("/") if len(key) <= MAX_PAGE_KEY_LENGTH else [""]
    if mark == "d" and len(parts) == 4 and re.fullmatch("[0-9]{1,6}", parts[3]):
        schema, table, last = (unquote(part) for part in parts[:3])
        position = _Position(schema, table, last, int(parts[3]))
        if position.write() == key:
            return position
    raise bad_cursor()


def table_documents(
    engine: DatabaseEngine,
    read_catalogue: ReadCatalogue,
    uris: SqlUris,
    bounds: QueryBounds,
    after: str | None,
    limit: int,
) -> tuple[list[Document], str | None]:
    """Return definitions and windows of rows, and the key of the next page."""
    page: list[Document] = []
    key: str | None = None
    begin = _Position() if after is None else _read_position(after)
    for document, position in _walk(engine, read_catalogue(CATALOGUE_SECONDS), uris, bounds, begin):
        if len(page) == limit:
            return page, key
        page.append(document)
        key = position.write()
    return page, None


def _walk(
    engine: DatabaseEngine, catalogue: DatabaseCatalogue, uris: SqlUris, bounds: QueryBounds, begin: _Position
) -> Iterator[tuple[Document, _Position]]:
    """Yield each document after a position, with its own position."""
    start = (begin.schema, begin.table)
    for full_name, table in catalogue.tables.items():
        if full_name < start:
            continue
        last, row_count = begin.last, begin.row_count
        if full_name > start:
            last, row_count = "", 0
            version = digest(definition_text(table, uris))
            yield _document(uris.of_table(*full_name), table, version, mime.JSON), _Position(*full_name)
        if not reads_rows(uris, table):
            continue
        for uri, window in _windows(engine, uris, bounds, table, last, row_count):
            row_count = row_count + window.row_count if table.key is not None else MAX_ROWS
            yield _document(uri, table, window.version, mime.JSON_LINES), _Position(*full_name, window.last, row_count)


def _document(uri: str, table: DatabaseTable, version: str, kind: str) -> Document:
    title = clean(table.name if kind == mime.JSON else f"Rows of {table.name}")
    return Document(uri=uri, title=title, version=version, mime_type=kind)


def _windows(
    engine: DatabaseEngine, uris: SqlUris, bounds: QueryBounds, table: DatabaseTable, last: str, row_count: int
) -> Iterator[tuple[str, RowWindow]]:
    """Yield each window of a table after a key, with its URI, up to `MAX_ROWS` rows. Without a key, only the first."""
    if table.kind in WITHOUT_ROWS:
        return
    bounds = msgspec.structs.replace(bounds, seconds=min(WINDOW_SECONDS, bounds.seconds))
    while row_count < MAX_ROWS:
        span = Span(where="after", place=split_key(last), limit=WINDOW_ROWS) if last else Span(limit=WINDOW_ROWS)
        query = f"after={quote_part(last)}&limit={WINDOW_ROWS}" if last else f"limit={WINDOW_ROWS}"
        try:
            window = read_window(engine, table, RowQuery(span, True), bounds)
        except (LookupError, ValueError, ProtocolError):  # the table was dropped, is too slow, or has another key now
            return
        if window.row_count:
            yield uris.of_rows(table.schema, table.name, query), window
        if window.next is None or table.key is None:
            return
        row_count += window.row_count
        last = window.last
