"""The interface of a database to its source.

Methods may block unless stated otherwise, and may be called from several threads at once. The engine writes the
statements that read tables, with names from its own catalogue only. Values from callers are always parameters.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from wharfinger.errors import HandlerFailed, InvalidArgument
from wharfinger.source import SourceUnavailable
from wharfinger.sources.sql_database.database_catalogue import DatabaseCatalogue, DatabaseColumn, DatabaseTable
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = [
    "BadKey",
    "CellValue",
    "DatabaseEngine",
    "DatabaseUnreachable",
    "Parameters",
    "QueryBounds",
    "QueryRefused",
    "Rows",
    "Span",
    "TableRow",
    "last_modified",
    "stopped_early",
    "too_slow",
]

MIB = 1 << 20

Parameters = Sequence[object] | Mapping[str, object]


class QueryBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of statements.

    `seconds`, `cell` (characters of a value) and `size` (bytes of all rows) bound one statement. `connections` is the
    maximum number of statements at the same time.
    """

    seconds: float = 10.0
    cell: int = 2_000
    size: int = 4 * MIB
    connections: int = 4


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """At most `limit` rows of a table: the first or last ones, or those after, before or at `place`.

    A place has the text of each column that orders the rows (see `row_order`). `offset` skips rows, and is only for a
    table without a key.
    """

    where: Literal["first", "after", "before", "last", "at"] = "first"
    place: KeyTexts = ()
    limit: int = 1_000
    offset: int = 0
    choice: RowChoice = RowChoice()

    @property
    def backwards(self) -> bool:
        """Whether rows are read from the end towards the start."""
        return self.where in ("before", "last")

    def columns(self, table: DatabaseTable) -> list[DatabaseColumn]:
        """Return the columns that are read."""
        names = self.choice.columns
        return [column for column in table.columns if not names or column.name in names]


class TableRow(NamedTuple):
    """A row as JSON values, its key as texts, and its place in the order (both empty if the table has no key)."""

    key: KeyTexts
    cells: tuple[object, ...]
    place: KeyTexts = ()


class Rows(NamedTuple):
    """Rows in the order in which they were read. `more` is True if other rows follow in the direction of the span."""

    rows: list[TableRow]
    more: bool


class CellValue(NamedTuple):
    """The value of a cell as bytes (a text in UTF-8), or only its beginning. `size` is the size of the whole value."""

    data: bytes
    size: int
    is_text: bool


class BadKey(ValueError):
    """These texts are not a key of the table."""


class QueryRefused(InvalidArgument):
    """The statement is not allowed, failed, or was stopped. The message says why."""


class DatabaseUnreachable(SourceUnavailable):
    """The database cannot be reached. The message names it, without its password."""


def last_modified(*paths: str) -> float | None:
    """Return the Unix time of the last write to any of these files, or None if there are none."""
    times: list[float] = []
    for path in paths:
        with suppress(OSError):
            times.append(os.stat(path).st_mtime)
    return max(times, default=None)


def too_slow(seconds: float) -> HandlerFailed:
    """Return the error for a statement that reached its deadline."""
    return HandlerFailed(f"The database took longer than {seconds:g} s, and the statement was stopped.")


def stopped_early() -> HandlerFailed:
    """Return the error for a statement that was ended before its deadline, for example by `DatabaseEngine.close`."""
    return HandlerFailed("The statement was stopped: the source was closed, or an administrator ended the statement.")


class DatabaseEngine(ABC):
    """Runs statements on one database."""

    dialect: str
    """The name of the dialect, such as SQLite or PostgreSQL."""
    location: str
    """The path or URL of the database, without a password."""
    path: str = ""
    """The path of the database if it is a file."""
    can_query: bool = True
    """Whether the engine can run callers' statements and ensure that they only read."""

    @abstractmethod
    def catalogue(self, age: float = 0.0) -> DatabaseCatalogue:
        """Return the tables of the database, at most `age` seconds old."""

    @abstractmethod
    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Read rows of a table. If `bounds.size` is reached, returns fewer than requested, and `more` is True.

        Raises:
            BadKey: the place of `span` cannot be a place in the table.
            InvalidArgument: the table cannot be filtered or ordered in this way.
            LookupError: the table no longer exists, or is not as in the catalogue.
        """

    @abstractmethod
    def cell(self, table: DatabaseTable, key: KeyTexts, column: str, size: int, seconds: float) -> CellValue | None:
        """Read one value, at most `size` bytes of it. Returns None if it is NULL.

        Raises:
            BadKey, LookupError: there is no such row.
        """

    @abstractmethod
    def token(self) -> Hashable:
        """Return a value that changes with each write to the database. It may change without a write. Must be fast."""

    @abstractmethod
    def table_token(self, table: DatabaseTable) -> str:
        """Return a text that changes with the table's rows, as far as this can be seen without reading all of them."""

    @abstractmethod
    def estimates(self, tables: Sequence[DatabaseTable]) -> list[int | None]:
        """Return the approximate number of rows of each table, or None if it is not known without counting.

        Should take a second at most.
        """

    def modified(self) -> float | None:
        """Return the Unix time of the last write, or None if the database does not report it."""
        return None

    def query(
        self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds, *, explain: bool = False
    ) -> tuple[list[str], Rows]:
        """Run one statement that only reads. Returns the names of its columns, and at most `limit` rows.

        With `explain`, the statement is not run: the rows are the lines of the database's plan for it.

        Raises:
            QueryRefused: the statement does more than read, or cannot be run.
        """
        raise QueryRefused(f"Statements are not supported for {self.dialect}: read its tables by URI.")

    def listen(self, changed: Callable[[], None]) -> None:  # noqa: B027 - optional
        """Call `changed`, from any thread, when the database itself reports a change. Must not block."""

    def unlisten(self) -> None:  # noqa: B027 - optional
        """Stop calling `changed`. Must not block."""

    def describe(self) -> list[str]:
        """Return facts about the database, each in a few words. Should take half a second at most."""
        return [self.dialect]

    @abstractmethod
    def close(self) -> None:
        """Close all connections. A later call opens them again."""
