"""Statements that read rows from MySQL and MariaDB, and the conversion of their values to JSON.

The driver decodes no value: each arrives as the text that the database writes, or as bytes. So a DECIMAL keeps its
digits, `0000-00-00` and `838:59:59` stay as they are, and a BIGINT UNSIGNED is not rounded.

Columns are compared with literals of their own type. Otherwise MySQL compares both as DOUBLE, and rounds large values.
An ENUM or SET is compared and ordered by the position of its values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from wharfinger.content import mime
from wharfinger.errors import InvalidArgument
from wharfinger.sources.sql_database.database_catalogue import DatabaseColumn, DatabaseTable
from wharfinger.sources.sql_database.database_engine import BadKey, CellValue, QueryBounds, Rows, Span, TableRow
from wharfinger.sources.sql_database.mysql_catalogue import quoted
from wharfinger.sources.sql_database.row_choice import RowChoice, RowFilter, like_pattern
from wharfinger.sources.sql_database.row_order import OrderColumn, columns_of_cursor, key_of, order_of, rows_beyond
from wharfinger.sources.sql_database.row_text import binary, cut_text, json_value, number, render
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["SelectStatement", "cell_statement", "cell_value", "collect", "collect_result"]

_PLAIN_COLLATION = "utf8mb4_unicode_520_ci"
"""Ignores the case of letters. Some other collations consider all emoji equal."""


class SelectStatement:
    """The statement that reads a span and one more row: the columns of its order as text, then the chosen ones."""

    def __init__(self, table: DatabaseTable, span: Span) -> None:
        self.table = table
        self.span = span
        self.order = order_of(table, span)
        self.columns = span.columns(table)
        self.values: list[object] = []
        self.conditions: list[str] = []
        self._expressions = [f"t.{quoted(one.name)}" for one in self.order]
        for one in span.choice.order:
            if table.column(one.column).cast in ("json", "geometry"):
                raise InvalidArgument(f"{table.name} cannot be ordered by {one.column}: its type has no order.")
        if span.key:
            if table.key is None:
                raise BadKey("")
            part = columns_of_cursor(table.key, self.order, span.key)
            marks = [
                None if text is None else self._add(_literal(table.column(one.name), text))
                for text, one in zip(span.key, part, strict=True)
            ]
            self.conditions.append(rows_beyond(part, self._expressions[: len(part)], marks, span.where, plain=True))
        self.conditions += [self._condition(one) for one in span.choice.filters]

    def _add(self, value: object) -> str:
        self.values.append(value)
        return f"%(p{len(self.values) - 1})s"

    @property
    def parameters(self) -> dict[str, object]:
        """The values of the statement, by name."""
        return {f"p{number}": value for number, value in enumerate(self.values)}

    def _condition(self, wanted: RowFilter) -> str:
        name = f"t.{quoted(wanted.column)}"
        if wanted.operator == "is":
            return f"{name} IS {'NOT ' if wanted.value == 'notnull' else ''}NULL"
        column = self.table.column(wanted.column)
        if wanted.operator == "like":
            text = f"CONVERT({_base(column)} USING utf8mb4) COLLATE {_PLAIN_COLLATION}"
            return f"{text} LIKE {self._add(like_pattern(wanted.value))} ESCAPE '!'"
        try:
            number_like = column.cast in ("int", "bit") and not _INTEGER(wanted.value)
            value = _literal(msgspec.structs.replace(column, cast="decimal") if number_like else column, wanted.value)
        except BadKey as error:
            raise InvalidArgument(str(error)) from None
        return f"{name} {_SIGNS[wanted.operator]} {self._add(value)}"

    def text(self, cell: int) -> str:
        """Return the SQL, with the names of `parameters`. Values are cut after about `cell` characters."""
        span, table = self.span, self.table
        keyed = self.order if table.key is not None else []
        wanted = [_place(table.column(one.name)) for one in keyed]
        for column in self.columns:
            wanted += _shown(column, cell)
        statement = f"SELECT {', '.join(wanted)} FROM {quoted(table.schema)}.{quoted(table.name)} AS t"  # noqa: S608 - the catalogue's names
        statement += f" WHERE {' AND '.join([f'({one})' for one in self.conditions])}" if self.conditions else ""
        if span.where != "at":
            statement += f" ORDER BY {_sort_terms(self.order, self._expressions, backwards=span.backwards)}"
        return f"{statement} LIMIT {span.limit + 1} OFFSET {span.offset}"


_SIGNS = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def _sort_terms(order: Sequence[OrderColumn], expressions: Sequence[str], *, backwards: bool) -> str:
    """Return the terms of ORDER BY. MySQL has no NULLS LAST, so a separate term sorts the NULLs."""
    terms: list[str] = []
    for column, expression in zip(order, expressions, strict=True):
        if column.nulls:
            terms.append(f"{expression} IS NULL{' DESC' if backwards else ''}")
        terms.append(f"{expression}{' DESC' if column.descending is not backwards else ''}")
    return ", ".join(terms)


def _place(column: DatabaseColumn) -> str:
    """Return an expression for a value as a text that `_literal` reads exactly."""
    name = f"t.{quoted(column.name)}"
    if column.cast == "float":
        return f"{name} + 0e0"  # FLOAT is written with six digits
    if column.cast == "bit":
        return f"{name} + 0"
    return f"LOWER(HEX({name}))" if column.cast == "binary" else name


_TIME = re.compile(r"[-0-9:. T]{1,32}").fullmatch  # MySQL only warns of other texts, and finds no row
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}").fullmatch


def _literal(column: DatabaseColumn, text: str) -> object:
    """Convert a text to a value that the driver writes as a literal of the column's type.

    Raises:
        BadKey: it is not a value of this type.
    """
    try:
        match column.cast:
            case "int" | "bit":
                if not _INTEGER(text):
                    raise ValueError
                return int(text)
            case "decimal":
                return _decimal(text)
            case "float":
                value = float(text)
                if not math.isfinite(value):
                    raise ValueError
                return value
            case "binary":
                return bytes.fromhex(text)
            case "enum":
                return 0 if text == "" and "" not in column.values else _position(column, text) + 1
            case "set":
                return sum(1 << _position(column, one) for one in dict.fromkeys(text.split(","))) if text else 0
            case "plain" if column.type.startswith(("date", "time")) and not _TIME(text):
                raise ValueError
            case _:
                return text
    except (ValueError, InvalidOperation):
        kind = "hex digits" if column.cast == "binary" else f"a value of the type {column.type}"
        raise BadKey(f"{column.name} must be {kind}.") from None


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if len(text) > 100 or not value.is_finite() or abs(value.adjusted()) > 100:
        raise ValueError
    return value


def _position(column: DatabaseColumn, text: str) -> int:
    """Return the position of a value of an ENUM or SET, whose collation usually ignores case."""
    if text in column.values:
        return column.values.index(text)
    return [one.casefold() for one in column.values].index(text.casefold())


# Values


def _base(column: DatabaseColumn) -> str:
    name = f"t.{quoted(column.name)}"
    return f"ST_AsText({name})" if column.cast == "geometry" else name


def _shown(column: DatabaseColumn, cell: int) -> list[str]:
    """Return the expressions of a cell, which `_value` converts. A long value is cut, and its size in bytes follows."""
    base = _base(column)
    if column.cast == "bit":
        return [f"{base} + 0"]
    if column.cast == "binary":
        return [f"SUBSTRING({base}, 1, {mime.SNIFFED_BYTES})", f"OCTET_LENGTH({base})"]
    if column.cast in ("text", "json", "geometry"):
        size = f"OCTET_LENGTH(CONVERT({base} USING utf8mb4))"
        return [f"LEFT({base}, {cell + 1})", f"IF(CHAR_LENGTH({base}) > {cell}, {size}, NULL)"]
    return [base]


def _value(column: DatabaseColumn, values: Iterator[Any], cell: int) -> object:
    """Convert the next value, or the next two, of a row to JSON."""
    value = next(values)
    if column.cast in ("binary", "text", "json", "geometry"):
        size = next(values)
        if value is None:
            return None
        if column.cast == "binary":
            return binary(_bytes(value), int(size))
        if size is not None:
            return cut_text(value[:cell], cell, int(size))
        return json_value(value, cell) if column.cast == "json" else cut_text(value, cell)
    if value is None:
        return None
    if column.cast in ("int", "bit"):
        return number(int(value))
    return number(float(value)) if column.cast == "float" else cut_text(_text(value), cell)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def collect(statement: SelectStatement, found: Iterator[Sequence[Any]], bounds: QueryBounds) -> Rows:
    """Return as many rows as the bounds allow, at least one."""
    key, span = statement.table.key, statement.span
    width = len(statement.order) if key is not None else 0
    rows: list[TableRow] = []
    size = 0
    for values in found:
        shown = iter(values[width:])
        cells = tuple([_value(column, shown, bounds.cell) for column in statement.columns])
        size += sum([_size(cell) for cell in cells])
        if len(rows) == span.limit or (size > bounds.size and rows):
            return Rows(rows, True)
        place = tuple([None if value is None else _text(value) for value in values[:width]])
        rows.append(TableRow(key_of(key, statement.order, place) if key else (), cells, place))
    return Rows(rows, False)


def _size(cell: object) -> int:
    return len(cell) + 2 if isinstance(cell, str) else len(repr(cell))


def cell_statement(table: DatabaseTable, key: KeyTexts, name: str, size: int) -> tuple[str, dict[str, object]]:
    """Return the statement that reads the first `size` bytes of one value, and its whole size."""
    at = Span(where="at", key=key, limit=1, choice=RowChoice(columns=(name,)))
    statement = SelectStatement(table, at)
    column = table.column(name)
    data = f"{_base(column)} + 0" if column.cast == "bit" else _base(column)
    if column.cast != "binary":
        data = f"CAST(CONVERT({data} USING utf8mb4) AS BINARY)"
    source = f"{quoted(table.schema)}.{quoted(table.name)} AS t WHERE {statement.conditions[0]}"
    text = f"SELECT SUBSTRING({data}, 1, {size}), OCTET_LENGTH({data}) FROM {source} LIMIT 1"  # noqa: S608 - the catalogue's names
    return text, statement.parameters


def cell_value(table: DatabaseTable, name: str, row: Sequence[Any] | None) -> CellValue | None:
    """Return the value from the row that `cell_statement` reads.

    Raises:
        LookupError: there is no such row.
    """
    if row is None:
        raise LookupError(table.name)
    data, size = row
    if data is None:
        return None
    return CellValue(_bytes(data), int(size), table.column(name).cast != "binary")


# Results of callers' statements

_INTEGERS = (1, 2, 3, 8, 9, 13)
_FLOATS = (4, 5)
_BIT, _JSON, _GEOMETRY = 16, 245, 255
"""Types of columns in the protocol (MySQL, "Protocol::ColumnType")."""


def _result(value: Any, kind: int, cell: int) -> object:
    if value is None:
        return None
    if isinstance(value, bytes):
        return number(int.from_bytes(value, "big")) if kind == _BIT else binary(value)
    if kind in _INTEGERS:
        return number(int(value))
    if kind in _FLOATS:
        return number(float(value))
    return json_value(value, cell) if kind == _JSON and len(value) <= cell else render(value, cell)


def collect_result(found: Iterator[Sequence[Any]], kinds: Sequence[int], limit: int, bounds: QueryBounds) -> Rows:
    """Return as many rows of a caller's statement as the bounds allow, at least one."""
    rows: list[TableRow] = []
    size = 0
    for values in found:
        cells = tuple([_result(value, kind, bounds.cell) for value, kind in zip(values, kinds, strict=True)])
        size += sum([_size(cell) for cell in cells])
        if len(rows) == limit or (size > bounds.size and rows):
            return Rows(rows, True)
        rows.append(TableRow((), cells))
    return Rows(rows, False)
