"""Statements that read rows from a DuckDB file, and the conversion of their values to JSON.

The statements make DuckDB return every value except integers, booleans and BLOBs as text, and cut long values. So a
DECIMAL keeps its digits, and a value of many megabytes costs little. Lists, structs and maps are returned as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from wharfinger.content import mime
from wharfinger.sources.sql_database.database_catalogue import DatabaseTable
from wharfinger.sources.sql_database.database_engine import BadKey, CellValue, QueryBounds, Rows, Span, TableRow
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import binary, cut_text, json_value, number
from wharfinger.sources.sql_database.span_statement import SpanStatement, collect_rows
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["FileStatement", "cell_statement", "cell_value"]

_INTEGER_OR_BOOLEAN_TYPE = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|BOOLEAN").fullmatch
_INTEGER_OR_BOOLEAN_TEXT = re.compile(r"-?[0-9]{1,40}|true|false").fullmatch
_FLOATS = ("FLOAT", "DOUBLE")
_NESTED = re.compile(r"JSON|.*\]|(?:STRUCT|MAP|UNION|VARIANT).*", re.DOTALL).fullmatch


class FileStatement(SpanStatement):
    """The statement that reads a span of a table in a DuckDB file. Columns that order the rows are read as text."""

    row_values_use_index = False

    def key_value(self, name: str, text: str) -> str:
        kind = _cast_type(self.table, name)
        if _INTEGER_OR_BOOLEAN_TYPE(kind) and not _INTEGER_OR_BOOLEAN_TEXT(text):
            raise BadKey(f"{name} must be of type {kind}.")  # DuckDB would convert 1e3
        return self._add(text, kind)

    def _add(self, value: str, kind: str) -> str:
        self.values.append(value)
        return f"CAST(${len(self.values)}::VARCHAR AS {kind})"

    def like(self, name: str, pattern: str) -> str:
        return f"{self.column_expression(name)}::VARCHAR ILIKE {self._add(pattern, 'VARCHAR')} ESCAPE '!'"

    def compare(self, name: str, sign: str, text: str) -> str:
        return f"{self.column_expression(name)} {sign} {self._add(text, _cast_type(self.table, name))}"

    def text(self, cell: int) -> str:
        """Return the SQL, with `$1`, `$2`, … for `values`. Values are cut after about `cell` characters."""
        expressions = [f"{name}::VARCHAR" for name in self.expressions] if self.table.key is not None else []
        for column in self.columns:
            expressions += _cell_expressions(self.column_expression(column.name), column.cast, cell)
        return self.select(expressions)

    def collect(self, rows: Iterable[Sequence[Any]], bounds: QueryBounds) -> Rows:
        """Return as many rows as the bounds allow, at least one."""
        width = len(self.order) if self.table.key is not None else 0

        def convert(values: Sequence[Any]) -> TableRow:
            cell_values = iter(values[width:])
            cells = tuple([_value(cell_values, column.cast, bounds.cell) for column in self.columns])
            return self.row(tuple(values[:width]), cells)

        return collect_rows(rows, convert, self.span.limit, bounds)


def _cast_type(table: DatabaseTable, name: str) -> str:
    return "BIGINT" if table.key is not None and table.key.physical and name == "rowid" else table.column(name).cast


def _text_of(expression: str, kind: str) -> str:
    return f"to_json({expression})::VARCHAR" if _NESTED(kind) and kind != "JSON" else f"{expression}::VARCHAR"


def _cell_expressions(expression: str, kind: str, cell: int) -> list[str]:
    """Return the expressions of a cell, which `_value` converts. For a text or BLOB, a size in bytes follows."""
    if _INTEGER_OR_BOOLEAN_TYPE(kind):
        return [expression]
    if kind == "BLOB":
        return [f"{expression}[1:{mime.SNIFFED_BYTES}]", f"octet_length({expression})"]
    text = _text_of(expression, kind)
    beginning = f"left({text}, {cell + 1})"
    return [beginning, f"CASE WHEN length({beginning}) > {cell} THEN strlen({text}) END"]


def _value(values: Iterator[Any], kind: str, cell: int) -> object:
    value = next(values)
    if _INTEGER_OR_BOOLEAN_TYPE(kind):
        return value if value is None or isinstance(value, bool) else number(value)
    size = next(values)
    if value is None:
        return None
    if kind == "BLOB":
        return binary(bytes(value), size)
    if size is not None:
        return cut_text(value[:cell], cell, size)
    if kind in _FLOATS:
        return number(float(value))
    return json_value(value, cell) if _NESTED(kind) else cut_text(value, cell)


def cell_statement(table: DatabaseTable, key: KeyTexts, name: str, size: int) -> tuple[str, list[str]]:
    """Return the statement that reads the first `size` bytes of one value, and its whole size."""
    span = Span(where="at", place=key, limit=1, choice=RowChoice(columns=(name,)))
    statement = FileStatement(table, span)
    kind = table.column(name).cast
    expression = statement.column_expression(name)
    data = expression if kind == "BLOB" else f"encode({_text_of(expression, kind)})"
    source = f"{statement.table_expression()} WHERE {statement.conditions[0]}"
    return f"SELECT ({data})[1:{size}], octet_length({data}) FROM {source} LIMIT 1", statement.values  # noqa: S608


def cell_value(table: DatabaseTable, name: str, row: Sequence[Any] | None) -> CellValue | None:
    """Return the value from the row that `cell_statement` reads.

    Raises:
        LookupError: there is no such row.
    """
    if row is None:
        raise LookupError(table.name)
    data, size = row
    return None if data is None else CellValue(bytes(data), int(size), table.column(name).cast != "BLOB")
