"""What somebody's statement gives: columns, and rows as far as they are allowed; the engine decides what is run."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.sources.sql_database.database_engine import DatabaseEngine, Parameters, QueryBounds, QueryRefused
from wharfinger.sources.sql_database.row_text import clean
from wharfinger.sources.sql_database.row_windows import MOST

__all__ = ["QueryAnswer", "run_query"]

LONGEST = 100_000
"""Characters of a statement."""
SIZE = 1 << 20
"""Bytes of all rows of an answer, about."""


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a statement, each a list of JSON values in the order of `columns` (where names may repeat).

    `truncated` says in a sentence why there may be more, and is empty where there is not.
    """

    columns: list[str]
    rows: list[list[Any]]
    truncated: str = ""


def run_query(
    engine: DatabaseEngine, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds
) -> QueryAnswer:
    """Run one statement that only reads.

    Raises:
        Refused: it is not run, or was stopped; the message says why.
    """
    if not 1 <= limit <= MOST:
        raise QueryRefused(f"limit is {limit}: ask for 1 to {MOST:,} rows.")
    if len(statement) > LONGEST:
        raise QueryRefused(f"The statement has {len(statement):,} characters: at most {LONGEST:,} are run.")
    try:
        statement.encode()
    except UnicodeEncodeError:
        raise QueryRefused("The statement is not valid Unicode.") from None
    bounds = msgspec.structs.replace(bounds, size=min(SIZE, bounds.size))
    columns, found = engine.query(statement, parameters, limit, bounds)
    rows = [list(row.cells) for row in found.rows]
    return QueryAnswer(
        columns=[clean(name) for name in columns], rows=rows, truncated=_cut(len(rows), limit, found.more)
    )


def _cut(rows: int, limit: int, more: bool) -> str:
    if not more:
        return ""
    why = f"limit={limit}" if rows == limit else f"{SIZE // 1024:,} KiB of rows"
    return f"Only the first {rows:,} rows are here ({why}): there are more. Narrow the statement, or aggregate."
