"""Runs a caller's SQL statement within bounds. The engine ensures that it only reads."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, Protocol

import msgspec

from wharfinger.sources.sql_database.database_engine import (
    DatabaseEngine,
    Parameters,
    QueryBounds,
    QueryRefused,
    Rows,
)
from wharfinger.sources.sql_database.row_text import PartialValue, becomes_array, becomes_object, clean
from wharfinger.sources.sql_database.row_windows import MAX_ROWS
from wharfinger.sources.windows.window_budget import cell_bytes

__all__ = ["QueryAnswer", "StatementEngine", "run_query"]

MAX_STATEMENT_LENGTH = 100_000
"""Maximum number of characters of a statement."""
MAX_RESULT_BYTES = 1 << 20
"""Maximum number of bytes of all rows of a result together, approximately."""


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a statement returned, each a list of JSON values in the order of `columns`.

    Names of columns may repeat. `truncated` says why rows are missing, and `shortened` how to get the rest of values
    that were cut. Both are empty if nothing is missing. `database` is the name of the source, and `dialect` is its
    SQL dialect.
    """

    columns: list[str]
    rows: list[list[Any]]
    truncated: str = ""
    shortened: str = ""
    database: str = ""
    dialect: str = ""


class StatementEngine(Protocol):
    """Runs statements that only read: a `DatabaseEngine`, or one for data of another kind."""

    @property
    def dialect(self) -> str:
        """The name of the SQL dialect."""
        ...

    def query(
        self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds, *, explain: bool = False
    ) -> tuple[list[str], Rows]:
        """Run one statement, as `DatabaseEngine.query` does."""
        ...


_EXPLAIN = re.compile(r"\s*EXPLAIN(?:\s+(?:QUERY\s+PLAN|ANALYZE|VERBOSE))*\s", re.IGNORECASE).match
"""Matches EXPLAIN and its options before a statement. `ANALYZE` has no effect: the statement is never run."""


def run_query(
    engine: StatementEngine,
    name: str,
    statement: str,
    parameters: Parameters,
    limit: int,
    bounds: QueryBounds,
    *,
    explain: bool = False,
    size: int = MAX_RESULT_BYTES,
) -> QueryAnswer:
    """Run one statement that only reads. A leading `EXPLAIN` is the same as `explain=True`.

    Raises:
        QueryRefused: the statement is not allowed, or was stopped. The message says why.
        DatabaseUnreachable: the database is down.
    """
    if not 1 <= limit <= MAX_ROWS:
        raise QueryRefused(f"limit must be from 1 to {MAX_ROWS:,}, not {limit}.")
    if len(statement) > MAX_STATEMENT_LENGTH:
        raise QueryRefused(
            f"The statement has {len(statement):,} characters, and at most {MAX_STATEMENT_LENGTH:,} are allowed."
        )
    if _SURROGATE(statement):
        raise QueryRefused("The statement is not valid Unicode.")
    if _has_surrogate(parameters):
        raise QueryRefused("A parameter is not valid Unicode.")
    if match := _EXPLAIN(statement):
        statement, explain = statement[match.end() :], True
    bounds = msgspec.structs.replace(bounds, size=min(size, bounds.size), cell=cell_bytes(bounds.cell))
    try:
        columns, result = engine.query(statement, parameters, limit, bounds, explain=explain)
    except QueryRefused as error:
        hint = _hint(engine, str(error), statement) if isinstance(engine, DatabaseEngine) else ""
        raise QueryRefused(f"{error}{hint}") from None
    rows = [list(row.cells) for row in result.rows]
    truncated = shortened = ""
    if result.more:
        bound = f"limit={limit}" if len(rows) == limit else f"{bounds.size >> 10:,} KiB of rows"
        truncated = f"There are more rows than these {len(rows):,} ({bound}). Narrow the statement, or aggregate."
    if any(isinstance(cell, PartialValue) and "cut" in cell for row in rows for cell in row):
        expression = f"substr(column, {bounds.cell + 1}, {bounds.cell})"
        shortened = f"Values are cut after {bounds.cell:,} characters: for what follows, select {expression}."
    return QueryAnswer(
        columns=[clean(column) for column in columns],
        rows=rows,
        truncated=truncated,
        shortened=shortened,
        database=name,
        dialect=engine.dialect,
    )


_SURROGATE = re.compile("[\ud800-\udfff]").search
"""Finds half of a surrogate pair, which UTF-8 cannot encode."""


def _has_surrogate(value: object) -> bool:
    """Return whether a text in a value has half of a surrogate pair."""
    if becomes_object(value):
        return any(_has_surrogate(part) for pair in value.items() for part in pair)
    if becomes_array(value):
        return any(map(_has_surrogate, value))
    return isinstance(value, str) and _SURROGATE(value) is not None


_UNKNOWN_TABLE = re.compile(
    r'no such table: (?:\w+\.)?"?([^\s".]+)|relation "(?:[^".]+\.)?([^"]+)" does not exist'
    r"|Table '(?:[^'.]+\.)?([^']+)' doesn't exist|there is no table (?:\w+\.)*(\w+)"
)
_UNKNOWN_COLUMN = re.compile(r"no such column|column .*does not exist|Unknown column|Referenced column")


def _hint(engine: DatabaseEngine, message: str, statement: str) -> str:
    """Return a hint with the names of the tables or columns, if the statement names one that does not exist."""
    if match := _UNKNOWN_TABLE.search(message):
        names = list(dict.fromkeys(table.name for table in engine.catalogue(5.0).tables.values()))
        by_lower = {name.lower(): name for name in names}
        matches = get_close_matches(next(filter(None, match.groups())).lower(), by_lower, 1)
        suggestion = f" Did you mean {by_lower[matches[0]]}?" if matches else ""
        return f"{suggestion} Tables: {_listed(names)}."
    if _UNKNOWN_COLUMN.search(message):
        words = {word.lower() for word in re.findall(r"\w+", statement)}
        tables = [table for table in engine.catalogue(5.0).tables.values() if table.name.lower() in words]
        return "".join(
            f" {table.name} has {_listed([column.name for column in table.columns])}." for table in tables[:5]
        )
    return ""


def _listed(names: list[str]) -> str:
    text = clean(", ".join(names))
    return text if len(text) <= 600 else text[:600] + "…"
