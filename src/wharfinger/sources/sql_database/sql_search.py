"""Completions, and the documents that a search looks through, for the tables and rows of a database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import msgspec

from wharfinger.errors import ProtocolError, WharfingerError
from wharfinger.source import Document
from wharfinger.sources.etag import digest
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.sql_database.catalogue import DatabaseTable
from wharfinger.sources.sql_database.database_engine import BadKey, Span
from wharfinger.sources.sql_database.row_text import clean
from wharfinger.sources.sql_database.row_windows import JSON_LINES, RowQuery, RowWindow, read_window
from wharfinger.sources.sql_database.sql_uris import join_key, quote_part, split_key
from wharfinger.sources.sql_database.table_descriptions import describe
from wharfinger.sources.text_match import COMPLETIONS, begins_then_holds

if TYPE_CHECKING:
    from wharfinger.sources.sql_database.source import Database

__all__ = ["SEARCHED_ROWS", "complete", "documents"]

SEARCHED_ROWS = 100_000
"""Rows of one table that a search looks through, from the first one on."""
NOT_SEARCHED = ("view", "foreign table")
"""Of which only the definition is searched: their rows are those of other tables, and may take long to find."""
WINDOW = 500
"""Rows of one document."""
KEYS = 20
LONGEST_KEY = 8_192
JSON = "application/json"
SHORT = 0.25  # seconds for which a catalogue may be used again
LIMITS = ("100", "1000", "10000")
SECONDS = 2.0
"""How long one window of rows may take."""


def complete(database: Database, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
    """What may stand for a variable of the templates."""
    if argument == "limit":
        return [one for one in LIMITS if one.startswith(value)]
    catalogue = database.engine.catalogue(5.0)
    if argument == "schema":
        return begins_then_holds(catalogue.schemas, value)
    schema = database.uris.schema if database.uris.schema is not None else context.get("schema", "")
    if argument == "table":
        return begins_then_holds(dict.fromkeys(name for of, name in catalogue.tables if schema in ("", of)), value)
    table = catalogue.tables.get((schema, context.get("table", "")))
    if argument in ("key", "after") and table is not None and table.key is not None:
        return _keys(database, table, value)
    return []


def _keys(database: Database, table: DatabaseTable, value: str) -> list[str]:
    bounds = msgspec.structs.replace(database.bounds, seconds=0.5, cell=64)
    spans = [Span(limit=KEYS)]
    if value:
        try:
            key = split_key(value)
        except ValueError:
            return []
        spans = [Span(where="at", key=key, limit=1), Span(where="after", key=key, limit=KEYS)]
    found: dict[str, None] = {}
    for span in spans:
        try:
            rows = database.engine.rows(table, span, bounds).rows
        except (BadKey, LookupError, WharfingerError):
            continue
        found |= dict.fromkeys(text for row in rows if (text := join_key(row.key)).startswith(value))
    return list(found)[:COMPLETIONS]


# Documents


class _Position(NamedTuple):
    """How far documents are listed: the definition of a table, and its rows up to a key."""

    schema: str = ""
    table: str = ""
    last: str = ""
    rows: int = 0

    def write(self) -> str:
        return "/".join(["d", quote_part(self.schema), quote_part(self.table), quote_part(self.last), str(self.rows)])


def _read_position(key: str) -> _Position:
    mark, *parts = key.split("/") if len(key) <= LONGEST_KEY else [""]
    if mark == "d" and len(parts) == 4 and re.fullmatch("[0-9]{1,6}", parts[3]):
        schema, table, last = (unquote(part) for part in parts[:3])
        position = _Position(schema, table, last, int(parts[3]))
        if position.write() == key:
            return position
    raise bad_cursor()


def documents(database: Database, after: str | None, limit: int) -> tuple[list[Document], str | None]:
    """Definitions and windows of rows. A key is a table, and how far its rows are listed."""
    found: list[Document] = []
    key: str | None = None
    for document, position in _walk(database, _Position() if after is None else _read_position(after)):
        if len(found) == limit:
            return found, key
        found.append(document)
        key = position.write()
    return found, None


def _walk(database: Database, begin: _Position) -> Iterator[tuple[Document, _Position]]:
    """Each document after a position, with its own position."""
    start = (begin.schema, begin.table)
    for place, table in database.engine.catalogue(SHORT).tables.items():
        if place < start:
            continue
        last, rows = begin.last, begin.rows
        if place > start:
            last, rows = "", 0
            version = digest(describe(table, database.uris))
            yield _document(database.uris.of_table(*place), table, version, JSON), _Position(*place)
        for uri, window in _windows(database, table, last, rows):
            rows = rows + window.rows if table.key is not None else SEARCHED_ROWS
            yield _document(uri, table, window.version, JSON_LINES), _Position(*place, window.last, rows)


def _document(uri: str, table: DatabaseTable, version: str, kind: str) -> Document:
    title = clean(table.name if kind == JSON else f"Rows of {table.name}")
    return Document(uri=uri, title=title, version=version, mime_type=kind)


def _windows(database: Database, table: DatabaseTable, last: str, rows: int) -> Iterator[tuple[str, RowWindow]]:
    """`(URI, window)` for each window of a table behind a key, as far as a search looks."""
    if table.kind in NOT_SEARCHED:
        return
    bounds = msgspec.structs.replace(database.bounds, seconds=min(SECONDS, database.bounds.seconds))
    while rows < SEARCHED_ROWS:
        span = Span(where="after", key=split_key(last), limit=WINDOW) if last else Span(limit=WINDOW)
        query = f"after={quote_part(last)}&limit={WINDOW}" if last else f"limit={WINDOW}"
        try:
            window = read_window(database.engine, table, RowQuery(span, True), bounds)
        except (LookupError, ValueError, ProtocolError):  # dropped meanwhile, too slow, or no key any more
            return
        if window.rows:
            yield database.uris.of_rows(table.schema, table.name, query), window
        if window.next is None:
            return
        rows += window.rows
        last = window.last
