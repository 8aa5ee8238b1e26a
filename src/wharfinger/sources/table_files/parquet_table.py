"""Parquet: columns have types, and the footer has the number of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from wharfinger.sources.sql_database.database_catalogue import quoted
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import clean, json_line, render, unique_names
from wharfinger.sources.table_files.choice_sql import SqlColumn
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine
from wharfinger.sources.table_files.table_format import (
    INTEGER_TYPES,
    MAX_CELL_LENGTH,
    OpenFile,
    TableColumn,
    clean_cell,
    count_rows,
    positions_of,
    select,
)

__all__ = ["Parquet"]

_PLAIN = INTEGER_TYPES | {"UTINYINT", "USMALLINT", "UINTEGER", "FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "BLOB"}
_NESTED = re.compile(r"STRUCT|MAP|UNION|\]$|JSON|VARIANT")
_STRINGS_AND_SPECIAL_NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|nan|Infinity|inf)\b')
"""Matches strings, so that their content is not changed, and numbers that JSON does not have."""


class Parquet:
    """A Parquet file: its columns have types, and its footer has the number of rows."""

    source = "read_parquet(?)"
    is_typed = all_values_fit = True

    def __init__(self, engine: DuckDBEngine, file: OpenFile, facts: object = None) -> None:
        described = engine.fetch_all(file.name, "DESCRIBE SELECT * FROM read_parquet(?)", [file.pattern])
        self._names = [str(row[0]) for row in described]
        self.columns = [
            TableColumn(name, row[1]) for name, row in zip(unique_names(self._names), described, strict=True)
        ]
        self.details: dict[str, Any] = {}

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Return the number of rows in the footer."""
        statement = "SELECT coalesce(sum(num_rows), 0) FROM parquet_file_metadata(?)"
        return int(engine.fetch_all(file.name, statement, [file.pattern])[0][0])

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Yield rows. DuckDB skips the row groups before `first`."""
        positions = positions_of(self.columns, columns)
        expressions = ", ".join(self._expressions(positions))
        statement = f"SELECT {expressions} FROM {self.source} LIMIT ? OFFSET ?"  # noqa: S608 - quoted names
        return self._lines(positions, engine.rows(file.name, statement, [file.pattern, number, first - 1]))

    def _expressions(self, positions: Sequence[int]) -> list[str]:
        return [_select_expression(self._names[position], self.columns[position].type) for position in positions]

    def _lines(self, positions: Sequence[int], rows: Iterator[tuple[Any, ...]]) -> Iterator[str]:
        names = [self.columns[position].name for position in positions]
        nested = [bool(_NESTED.search(self.columns[position].type)) for position in positions]
        for row in rows:
            cells = [
                _nested(cell) if is_nested else clean_cell(cell) for is_nested, cell in zip(nested, row, strict=True)
            ]
            yield json_line(names, cells)

    def sql_columns(self) -> list[SqlColumn]:
        """Return the columns with their quoted names."""
        return [
            SqlColumn(column.name, column.type, quoted(name))
            for name, column in zip(self._names, self.columns, strict=True)
        ]

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Yield the rows that a choice selects.

        DuckDB skips row groups that cannot meet conditions on texts. Conditions on numbers and times read all of a
        column, because its values are cast.
        """
        positions = positions_of(self.columns, choice.columns)
        expressions = self._expressions(positions)
        columns = self.sql_columns()
        return self._lines(positions, select(engine, file, self.source, expressions, columns, choice, first, number))

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the rows that meet the conditions."""
        return count_rows(engine, file, self.source, self.sql_columns(), choice)


def _select_expression(name: str, kind: str) -> str:
    """Return the SQL expression for a column. Types that JSON does not have are converted to text."""
    column = quoted(name)
    if _NESTED.search(kind):
        return f"to_json({column})::VARCHAR"
    return column if kind in _PLAIN else f"{column}::VARCHAR"


def _nested(text: str | None) -> object:
    if text is None or len(text) > MAX_CELL_LENGTH:
        return render(text, MAX_CELL_LENGTH)
    return msgspec.Raw(_STRINGS_AND_SPECIAL_NUMBERS.sub(_as_string, clean(text)).encode())


def _as_string(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else f'"{match[0]}"'
