"""Runs a caller's SQL statement within bounds. The engine ensures that it only reads."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.sources.sql_database.database_engine import DatabaseEngine, Parameters, QueryBounds, QueryRefused
from wharfinger.sources.sql_database.row_text import clean
from wharfinger.sources.sql_database.row_windows import MAX_ROWS
from wharfinger.sources.windows.window_budget import cell_bytes

__all__ = ["QueryAnswer", "run_query"]

MAX_STATEMENT_LENGTH = 100_000
"""Characters of a statement, at most."""
MAX_RESULT_BYTES = 1 << 20
"""Bytes of all rows of a result together, approximately."""


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a statement returned, each a list of JSON values in the order of `columns`.

    Names of columns may repeat. `truncated` says in a sentence why rows are missing; it is empty if none are.
    """

    columns: list[str]
    rows: list[list[Any]]
    truncated: str = ""


def run_query(
    engine: DatabaseEngine, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds
) -> QueryAnswer:
    """Run one statement that only reads.

    Raises:
        QueryRefused: the statement is not allowed, or was stopped; the message says why.
    """
    if not 1 <= limit <= MAX_ROWS:
        raise QueryRefused(f"limit must be from 1 to {MAX_ROWS:,}, not {limit}.")
    if len(statement) > MAX_STATEMENT_LENGTH:
        raise QueryRefused(
            f"The statement has {len(statement):,} characters, and at most {MAX_STATEMENT_LENGTH:,} are allowed."
        )
    try:
        statement.encode()
    except UnicodeEncodeError:
        raise QueryRefused("The statement is not valid Unicode.") from None
    bounds = msgspec.structs.replace(bounds, size=min(MAX_RESULT_BYTES, bounds.size), cell=cell_bytes(bounds.cell))
    columns, found = engine.query(statement, parameters, limit, bounds)
    rows = [list(row.cells) for row in found.rows]
    truncated = ""
    if found.more:
        why = f"limit={limit}" if len(rows) == limit else f"{MAX_RESULT_BYTES // 1024:,} KiB of rows"
        truncated = f"There are more rows than these {len(rows):,} ({why}). Narrow the statement, or aggregate."
    return QueryAnswer(columns=[clean(name) for name in columns], rows=rows, truncated=truncated)
