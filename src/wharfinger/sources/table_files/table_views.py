"""Writes the SELECT by which a caller's statement reads a file, with typed columns.

The types of CSV and JSON Lines are guesses from the first rows. If a later value does not fit, the whole column is text
in a statement, so that no value is lost and no statement fails. Texts such as `007` do not fit whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from wharfinger.sources.sql_database.database_catalogue import quoted
from wharfinger.sources.table_files.choice_sql import SqlColumn
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, literal
from wharfinger.sources.table_files.table_format import INTEGER_TYPES, OpenFile, TableFile

__all__ = ["select_of", "typed_columns"]

_NOT_CHECKED = re.compile(r"VARCHAR|STRUCT|MAP|UNION|\]$|JSON|VARIANT|NULL").search
"""Matches types that need no check, because values of them stay as they are: texts and nested values."""


def typed_columns(engine: DuckDBEngine, file: OpenFile, table: TableFile) -> frozenset[str]:
    """Return the names of the columns whose values all fit their type; text columns, which always do, may be left out.

    This may read the whole file.
    """
    columns = table.sql_columns()
    if table.all_values_fit:
        return frozenset(column.name for column in columns)
    columns_to_check = [column for column in columns if not _NOT_CHECKED(column.type)]
    if not columns_to_check:
        return frozenset()
    tests = ", ".join(f"bool_and({column.expression} IS NULL OR {_fits_sql(column)})" for column in columns_to_check)
    ((*fits_by_column,),) = engine.fetch_all(file.name, f"SELECT {tests} FROM {table.source}", [file.pattern])  # noqa: S608
    # `fits` is None if there are no rows.
    return frozenset(
        column.name for column, fits in zip(columns_to_check, fits_by_column, strict=True) if fits is not False
    )


def _fits_sql(column: SqlColumn) -> str:
    if column.type in INTEGER_TYPES:
        return (
            f"(regexp_full_match({column.expression}, '-?(0|[1-9][0-9]*)') "
            f"AND TRY_CAST({column.castable} AS {column.type}) IS NOT NULL)"
        )
    return f"TRY_CAST({column.castable} AS {column.type}) IS NOT NULL"


def select_of(table: TableFile, pattern: str, fitting: frozenset[str]) -> str:
    """Return the SELECT of all columns and rows of a file. `fitting` are the columns whose values fit their type."""
    columns = table.sql_columns()
    names = _distinct([column.name for column in columns])
    expressions = [
        f"{_value_sql(table, column, fitting)} AS {quoted(name)}" for column, name in zip(columns, names, strict=True)
    ] or ["NULL AS nothing"]
    return f"SELECT {', '.join(expressions)} FROM {table.source.replace('?', literal(pattern), 1)}"  # noqa: S608


def _value_sql(table: TableFile, column: SqlColumn, fitting: frozenset[str]) -> str:
    if table.is_typed or column.name not in fitting or _NOT_CHECKED(column.type):
        return column.expression
    return f"CAST({column.castable} AS {column.type})"


def _distinct(names: Sequence[str]) -> list[str]:
    """Make names distinct regardless of case, as SQL compares them."""
    result: list[str] = []
    names_in_use: set[str] = set()
    for name in names:
        distinct, count = name or "column", 1
        while distinct.lower() in names_in_use:
            count += 1
            distinct = f"{name}_{count}"
        names_in_use.add(distinct.lower())
        result.append(distinct)
    return result
