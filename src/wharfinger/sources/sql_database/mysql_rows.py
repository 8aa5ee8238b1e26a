"""Statements that read rows from MySQL and MariaDB, and the conversion of their values to JSON.

The driver decodes no value: each arrives as the text that the database writes, or as bytes. So a DECIMAL keeps its
digits, `0000-00-00` and `838:59:59` stay as they are, and a BIGINT UNSIGNED is not rounded.

Columns are compared with literals of their own type. Otherwise MySQL compares both as DOUBLE, and rounds large values.
An ENUM or SET is compared and ordered by the position of its values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from wharfinger.content import mime
from wharfinger.errors import InvalidArgument
from wharfinger.sources.sql_database.database_catalogue import DatabaseColumn, DatabaseTable
from wharfinger.sources.sql_database.database_engine import BadKey, CellValue, QueryBounds, Rows, Span, TableRow
from wharfinger.sources.sql_database.mysql_catalogue import quoted
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import binary, cut_text, json_value, number, render
from wharfinger.sources.sql_database.span_statement import SpanStatement, collect_rows
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["SelectStatement", "cell_statement", "cell_value", "collect_result"]

_PLAIN_COLLATION = "utf8mb4_unicode_520_ci"
"""Ignores the case of letters. Some other collations consider all emoji equal."""


class SelectStatement(SpanStatement):
    """The statement that reads a span of a table of MySQL. Columns that order the rows are read as text."""

    row_values_use_index = False

    def __init__(self, table: DatabaseTable, span: Span) -> None:
        for term in span.choice.order:
            if table.column(term.column).cast in ("json", "geometry"):
                raise InvalidArgument(f"{table.name} cannot be ordered by {term.column}: its type has no order.")
        super().__init__(table, span)

    def quote(self, name: str) -> str:
        return quoted(name)

    def key_value(self, name: str, text: str) -> str:
        return self._add(_literal(self.table.column(name), text))

    def _add(self, value: object) -> str:
        self.values.append(value)
        return f"%(p{len(self.values) - 1})s"

    def like(self, name: str, pattern: str) -> str:
        text = f"CONVERT({_readable(self.table.column(name))} USING utf8mb4) COLLATE {_PLAIN_COLLATION}"
        return f"{text} LIKE {self._add(pattern)} ESCAPE '!'"

    def compare(self, name: str, sign: str, text: str) -> str:
        column = self.table.column(name)
        try:
            needs_decimal = column.cast in ("int", "bit") and not _INTEGER(text)
            value = _literal(msgspec.structs.replace(column, cast="decimal") if needs_decimal else column, text)
        except BadKey as error:
            raise InvalidArgument(str(error)) from None
        return f"{self.column_expression(name)} {sign} {self._add(value)}"

    def order_terms(self) -> str:
        """Return the terms of ORDER BY. MySQL has no NULLS LAST, so a separate term sorts the NULLs."""
        backwards = self.span.backwards
        terms: list[str] = []
        for column, expression in zip(self.order, self.expressions, strict=True):
            if column.nulls:
                terms.append(f"{expression} IS NULL{' DESC' if backwards else ''}")
            terms.append(f"{expression}{' DESC' if column.descending is not backwards else ''}")
        return ", ".join(terms)

    def text(self, cell: int) -> str:
        """Return the SQL, with the names of `parameters`. Values are cut after about `cell` characters."""
        expressions = (
            [_key_expression(self.table.column(column.name)) for column in self.order]
            if self.table.key is not None
            else []
        )
        for column in self.columns:
            expressions += _cell_expressions(column, cell)
        return self.select(expressions)

    def collect(self, rows: Iterable[Sequence[Any]], bounds: QueryBounds) -> Rows:
        """Return as many rows as the bounds allow, at least one."""
        width = len(self.order) if self.table.key is not None else 0

        def convert(values: Sequence[Any]) -> TableRow:
            cell_values = iter(values[width:])
            cells = tuple([_value(column, cell_values, bounds.cell) for column in self.columns])
            return self.row(tuple([None if value is None else _text(value) for value in values[:width]]), cells)

        return collect_rows(rows, convert, self.span.limit, bounds)


def _key_expression(column: DatabaseColumn) -> str:
    """Return an expression for a value as a text that `_literal` reads exactly."""
    name = f"t.{quoted(column.name)}"
    if column.cast == "float":
        return f"{name} + 0e0"  # MySQL would write a FLOAT with only six digits
    if column.cast == "bit":
        return f"{name} + 0"
    return f"LOWER(HEX({name}))" if column.cast == "binary" else name


_TIME = re.compile(r"[-0-9:. T]{1,32}").fullmatch  # for other texts, MySQL only warns, and finds no row
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}").fullmatch


def _literal(column: DatabaseColumn, text: str) -> object:
    """Convert a text to a value that the driver writes as a literal of the column's type.

    Raises:
        BadKey: the text is not a value of this type.
    """
    try:
        match column.cast:
            case "int" | "bit":
                if not _INTEGER(text):
                    raise ValueError
                return int(text)
            case "decimal":
                amount = Decimal(text)  # MySQL's DECIMAL has at most 65 digits
                if len(text) > 100 or not amount.is_finite() or abs(amount.adjusted()) > 100:
                    raise ValueError
                return amount
            case "float":
                value = float(text)
                if not math.isfinite(value):
                    raise ValueError
                return value
            case "binary":
                return bytes.fromhex(text)
            case "enum":
                # MySQL stores a value that is not in the list as position 0, and reads it as "".
                return 0 if text == "" and "" not in column.values else _position(column, text) + 1
            case "set":
                return sum(1 << _position(column, member) for member in dict.fromkeys(text.split(","))) if text else 0
            case "plain" if column.type.startswith(("date", "time")) and not _TIME(text):
                raise ValueError
            case _:
                return text
    except (ValueError, InvalidOperation):
        kind = "hex digits" if column.cast == "binary" else f"a value of the type {column.type}"
        raise BadKey(f"{column.name} must be {kind}.") from None


def _position(column: DatabaseColumn, text: str) -> int:
    """Return the position of a value of an ENUM or SET, whose collation usually ignores case."""
    if text in column.values:
        return column.values.index(text)
    return [member.casefold() for member in column.values].index(text.casefold())


# Values


def _readable(column: DatabaseColumn) -> str:
    """Return an expression for a value. A geometry becomes a text."""
    name = f"t.{quoted(column.name)}"
    return f"ST_AsText({name})" if column.cast == "geometry" else name


def _cell_expressions(column: DatabaseColumn, cell: int) -> list[str]:
    """Return the expressions of a cell, which `_value` converts. A long value is cut, and its size in bytes follows."""
    base = _readable(column)
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


def cell_statement(table: DatabaseTable, key: KeyTexts, name: str, size: int) -> tuple[str, dict[str, object]]:
    """Return the statement that reads the first `size` bytes of one value, and its whole size."""
    span = Span(where="at", place=key, limit=1, choice=RowChoice(columns=(name,)))
    statement = SelectStatement(table, span)
    column = table.column(name)
    data = f"{_readable(column)} + 0" if column.cast == "bit" else _readable(column)
    if column.cast != "binary":
        data = f"CAST(CONVERT({data} USING utf8mb4) AS BINARY)"
    source = f"{statement.table_expression()} WHERE {statement.conditions[0]}"
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


def _result_value(value: Any, kind: int, cell: int) -> object:
    if value is None:
        return None
    if isinstance(value, bytes):
        return number(int.from_bytes(value, "big")) if kind == _BIT else binary(value)
    if kind in _INTEGERS:
        return number(int(value))
    if kind in _FLOATS:
        return number(float(value))
    return json_value(value, cell) if kind == _JSON and len(value) <= cell else render(value, cell)


def collect_result(rows: Iterable[Sequence[Any]], kinds: Sequence[int], limit: int, bounds: QueryBounds) -> Rows:
    """Return as many rows of a caller's statement as the bounds allow, at least one."""

    def convert(values: Sequence[Any]) -> TableRow:
        cells = [_result_value(value, kind, bounds.cell) for value, kind in zip(values, kinds, strict=True)]
        return TableRow((), tuple(cells))

    return collect_rows(rows, convert, limit, bounds)
