"""Statements that read rows from a DuckDB file, and the conversion of their values to JSON.

DuckDB returns every value except integers and booleans as text, and cuts long ones: so a DECIMAL keeps its digits, and
a value of many megabytes costs little. It returns lists, structs and maps as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from wharfinger.content import mime
from wharfinger.sources.sql_database.database_catalogue import DatabaseTable
from wharfinger.sources.sql_database.database_engine import BadKey, CellValue, QueryBounds, Rows, Span, TableRow
from wharfinger.sources.sql_database.duckdb_catalogue import quoted
from wharfinger.sources.sql_database.row_choice import RowChoice, RowFilter, like_pattern
from wharfinger.sources.sql_database.row_order import columns_of_cursor, key_of, order_of, rows_beyond, sort_terms
from wharfinger.sources.sql_database.row_text import binary, cut_text, json_value, number
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["FileStatement", "cell_statement", "cell_value", "collect_rows"]

_SIGNS = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_WHOLE = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|BOOLEAN").fullmatch
_INTEGER = re.compile(r"-?[0-9]{1,40}|true|false").fullmatch
_FLOATS = ("FLOAT", "DOUBLE")
_NESTED = re.compile(r"JSON|.*\]|(?:STRUCT|MAP|UNION|VARIANT).*", re.DOTALL).fullmatch


class FileStatement:
    """The statement that reads a span and one more row: the columns of its order as text, then the chosen ones."""

    def __init__(self, table: DatabaseTable, span: Span) -> None:
        self.table = table
        self.span = span
        self.order = order_of(table, span)
        self.columns = span.columns(table)
        self.values: list[str] = []
        self.conditions: list[str] = []
        self._expressions = [f"t.{quoted(one.name)}" for one in self.order]
        if span.key:
            if table.key is None:
                raise BadKey("")
            part = columns_of_cursor(table.key, self.order, span.key)
            kinds = [_cast(table, one.name) for one in part]
            if any(_WHOLE(kind) and not _INTEGER(text or "0") for text, kind in zip(span.key, kinds, strict=True)):
                raise BadKey("A part of it is not an integer.")  # DuckDB would convert 1e3
            marks = [
                None if text is None else self._add(text, kind) for text, kind in zip(span.key, kinds, strict=True)
            ]
            self.conditions.append(rows_beyond(part, self._expressions[: len(part)], marks, span.where, plain=True))
        self.conditions += [self._condition(one) for one in span.choice.filters]

    def _add(self, value: str, kind: str) -> str:
        self.values.append(value)
        return f"CAST(${len(self.values)}::VARCHAR AS {kind})"

    def _condition(self, wanted: RowFilter) -> str:
        name = f"t.{quoted(wanted.column)}"
        if wanted.operator == "is":
            return f"{name} IS {'NOT ' if wanted.value == 'notnull' else ''}NULL"
        if wanted.operator == "like":
            return f"{name}::VARCHAR ILIKE {self._add(like_pattern(wanted.value), 'VARCHAR')} ESCAPE '!'"
        return f"{name} {_SIGNS[wanted.operator]} {self._add(wanted.value, _cast(self.table, wanted.column))}"

    def text(self, cell: int) -> str:
        """Return the SQL, with `$1`, `$2`, … for `values`. Values are cut after about `cell` characters."""
        span, table = self.span, self.table
        wanted = [f"{name}::VARCHAR" for name in self._expressions] if table.key is not None else []
        for column in self.columns:
            wanted += _shown(f"t.{quoted(column.name)}", column.cast, cell)
        statement = f"SELECT {', '.join(wanted)} FROM {quoted(table.schema)}.{quoted(table.name)} AS t"  # noqa: S608 - the catalogue's names
        statement += f" WHERE {' AND '.join([f'({one})' for one in self.conditions])}" if self.conditions else ""
        if span.where != "at":
            statement += f" ORDER BY {sort_terms(self.order, self._expressions, backwards=span.backwards)}"
        return f"{statement} LIMIT {span.limit + 1} OFFSET {span.offset}"


def _cast(table: DatabaseTable, name: str) -> str:
    return "BIGINT" if table.key is not None and table.key.physical and name == "rowid" else table.column(name).cast


def _text_of(expression: str, kind: str) -> str:
    return f"to_json({expression})::VARCHAR" if _NESTED(kind) and kind != "JSON" else f"{expression}::VARCHAR"


def _shown(expression: str, kind: str, cell: int) -> list[str]:
    """Return the expressions of a cell, which `_value` converts. The size in bytes follows a text or bytes."""
    if _WHOLE(kind):
        return [expression]
    if kind == "BLOB":
        return [f"{expression}[1:{mime.SNIFFED_BYTES}]", f"octet_length({expression})"]
    whole = _text_of(expression, kind)
    beginning = f"left({whole}, {cell + 1})"
    return [beginning, f"CASE WHEN length({beginning}) > {cell} THEN strlen({whole}) END"]


def _value(values: Iterator[Any], kind: str, cell: int) -> object:
    value = next(values)
    if _WHOLE(kind):
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


def collect_rows(statement: FileStatement, found: Iterator[Sequence[Any]], bounds: QueryBounds) -> Rows:
    """Return as many rows as the bounds allow, at least one."""
    key, span = statement.table.key, statement.span
    width = len(statement.order) if key is not None else 0
    rows: list[TableRow] = []
    size = 0
    for values in found:
        shown = iter(values[width:])
        cells = tuple([_value(shown, column.cast, bounds.cell) for column in statement.columns])
        size += sum([len(cell) + 2 if isinstance(cell, str) else len(repr(cell)) for cell in cells])
        if len(rows) == span.limit or (size > bounds.size and rows):
            return Rows(rows, True)
        place = tuple(values[:width])
        rows.append(TableRow(key_of(key, statement.order, place) if key else (), cells, place))
    return Rows(rows, False)


def cell_statement(table: DatabaseTable, key: KeyTexts, name: str, size: int) -> tuple[str, list[str]]:
    """Return the statement that reads the first `size` bytes of one value, and its whole size."""
    at = Span(where="at", key=key, limit=1, choice=RowChoice(columns=(name,)))
    statement = FileStatement(table, at)
    kind = table.column(name).cast
    expression = f"t.{quoted(name)}"
    data = expression if kind == "BLOB" else f"encode({_text_of(expression, kind)})"
    source = f"{quoted(table.schema)}.{quoted(table.name)} AS t WHERE {statement.conditions[0]}"
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
