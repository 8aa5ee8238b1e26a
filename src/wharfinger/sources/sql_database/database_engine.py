"""What a kind of database must be able to do for the source; the source knows nothing else of it.

Everything blocks, and may be called from several threads at once. Statements are written by the engine, with names that
come from its own catalogue; a value from outside is only ever a parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from wharfinger.errors import HandlerFailed, InvalidArgument
from wharfinger.sources.sql_database.catalogue import Catalogue, DatabaseTable

__all__ = [
    "BadKey",
    "DatabaseEngine",
    "DatabaseUnreachable",
    "Parameters",
    "QueryBounds",
    "QueryRefused",
    "Rows",
    "Span",
    "TableRow",
    "too_slow",
]

KIB = 1 << 10
MIB = 1 << 20

Parameters = Sequence[object] | Mapping[str, object]


class QueryBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What one statement may take: seconds, bytes of one cell, bytes of all rows, statements at the same time."""

    seconds: float = 10.0
    cell: int = 64 * KIB
    size: int = 4 * MIB
    connections: int = 4


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a table: those behind a key, before one, of exactly one, or from an end; at most `limit`."""

    where: Literal["first", "after", "before", "last", "at"] = "first"
    key: tuple[str, ...] = ()
    limit: int = 1_000

    @property
    def backwards(self) -> bool:
        """Whether the rows nearest to the end are wanted."""
        return self.where in ("before", "last")


class TableRow(NamedTuple):
    """A row as JSON values, and its key as texts (empty where the table has none)."""

    key: tuple[str, ...]
    cells: tuple[object, ...]


class Rows(NamedTuple):
    """Rows in the order of their key; `more` where there are others further on in the direction that was asked for."""

    rows: list[TableRow]
    more: bool


class BadKey(ValueError):
    """These texts are no key of the table."""


class QueryRefused(InvalidArgument):
    """A statement that is not run; the message says why, and what could be."""


class DatabaseUnreachable(HandlerFailed):
    """The database does not answer; the message names it, without its password."""


def too_slow(seconds: float) -> HandlerFailed:
    """The error of a statement that reached its deadline."""
    return HandlerFailed(f"The database took longer than {seconds:g} s, and the statement was stopped.")


class DatabaseEngine(ABC):
    """One database."""

    dialect: str
    """What a person calls it: SQLite, PostgreSQL."""
    location: str
    """Where it is, without a password."""
    queries: bool = True
    """Whether it can run somebody's statement so that nothing but reading is possible."""

    @abstractmethod
    def catalogue(self, age: float = 0.0) -> Catalogue:
        """What is there now, or was so many seconds ago at most."""

    @abstractmethod
    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Some rows of a table; fewer than asked for, with `more`, where `bounds.size` is reached.

        Raises:
            BadKey: the key of `span` is none.
            LookupError: the table is not there any more, or not as the catalogue said.
        """

    @abstractmethod
    def token(self) -> Hashable:
        """Equal as long as nothing was written to the database; quick."""

    @abstractmethod
    def table_token(self, table: DatabaseTable) -> str:
        """Differs once rows of a table changed, as far as the database tells that without reading them."""

    @abstractmethod
    def estimate(self, table: DatabaseTable) -> int | None:
        """About how many rows a table has, as far as that is known without counting."""

    def modified(self) -> float | None:
        """When something was written last (Unix time); None where the database does not say."""
        return None

    def query(self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds) -> tuple[list[str], Rows]:
        """Run one statement that only reads: the names of its columns, and at most `limit` rows.

        Raises:
            Refused: it does more than reading, or cannot be run.
        """
        raise QueryRefused(f"Queries are not offered for {self.dialect}: only reading by URI is.")

    def listen(self, told: Callable[[], None]) -> None:  # noqa: B027 - what cannot listen need not say so
        """Call `told`, from any thread, when the database itself tells of a change. Must not block."""

    def unlisten(self) -> None:  # noqa: B027
        """Call it no more. Must not block."""

    def describe(self) -> list[str]:
        """What to know of the database, in a few words each, within half a second."""
        return [self.dialect]

    @abstractmethod
    def close(self) -> None:
        """Close all connections; a later call opens them again."""
