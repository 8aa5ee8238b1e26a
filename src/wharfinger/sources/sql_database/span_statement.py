"""`SpanStatement`, which builds the statement that reads a span of a table. Does no I/O.

A subclass for each database adds what differs: how names are quoted, how values become parameters of the type of their
column, and how a text is matched with a pattern.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wharfinger.sources.sql_database.database_catalogue import DatabaseTable, quoted
from wharfinger.sources.sql_database.database_engine import BadKey, QueryBounds, Rows, Span, TableRow
from wharfinger.sources.sql_database.row_choice import SIGNS, RowFilter, like_pattern
from wharfinger.sources.sql_database.row_order import (
    OrderColumn,
    columns_of_cursor,
    cursor_of,
    key_of,
    order_of,
    rows_beyond,
    sort_terms,
)
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["SpanStatement", "cells_size", "collect_rows"]


class SpanStatement(ABC):
    """The statement that reads a span, and one more row to find out whether more follow.

    Raises:
        BadKey: the place of the span cannot be a place in the table.
        InvalidArgument: the table cannot be filtered or ordered in this way.
    """

    row_values_use_index = True
    """Whether the database uses an index for `(a, b) > (1, 2)`."""

    def __init__(self, table: DatabaseTable, span: Span, *, ties: bool = False) -> None:
        self.table = table
        self.span = span
        self.order = order_of(table, span, ties=ties)
        self.columns = span.columns(table)
        self.values: list[Any] = []
        """The parameters of the statement."""
        self.conditions: list[str] = []
        self.expressions = [self.order_expression(column) for column in self.order]
        if span.place:
            if table.key is None:
                raise BadKey("")
            cursor_columns = columns_of_cursor(table.key, self.order, span.place)
            placeholders = [
                None if text is None else self.key_value(column.name, text)
                for text, column in zip(span.place, cursor_columns, strict=True)
            ]
            self.conditions.append(
                rows_beyond(
                    cursor_columns,
                    self.expressions[: len(cursor_columns)],
                    placeholders,
                    span.where,
                    avoid_row_values=not self.row_values_use_index,
                )
            )
        self.conditions += [self._condition(row_filter) for row_filter in span.choice.filters]

    @property
    def parameters(self) -> dict[str, object]:
        """The values of the statement, named `p0`, `p1` and so on, for databases with named parameters."""
        return {f"p{number}": value for number, value in enumerate(self.values)}

    def quote(self, name: str) -> str:
        """Quote a name as an identifier."""
        return quoted(name)

    def table_expression(self) -> str:
        """Return the table after FROM."""
        return f"{self.quote(self.table.schema)}.{self.quote(self.table.name)} AS t"

    def column_expression(self, name: str) -> str:
        """Return the expression for the value of a column."""
        return f"t.{self.quote(name)}"

    def order_expression(self, column: OrderColumn) -> str:
        """Return the expression by which rows are ordered and compared."""
        return self.column_expression(column.name)

    @abstractmethod
    def key_value(self, name: str, text: str) -> str:
        """Add a part of the span's place to `values`, and return its placeholder.

        Raises:
            BadKey: the text is not a value of the column.
        """

    @abstractmethod
    def like(self, name: str, pattern: str) -> str:
        """Return the condition that a column matches a pattern, in which `!` escapes `%` and `_`."""

    @abstractmethod
    def compare(self, name: str, sign: str, text: str) -> str:
        """Return the condition that compares a column with a value.

        Raises:
            InvalidArgument: the text is not a value of the column.
        """

    def order_terms(self) -> str:
        """Return the terms of ORDER BY."""
        return sort_terms(self.order, self.expressions, backwards=self.span.backwards)

    def _condition(self, row_filter: RowFilter) -> str:
        if row_filter.operator == "is":
            null = "NOT NULL" if row_filter.value == "notnull" else "NULL"
            return f"{self.column_expression(row_filter.column)} IS {null}"
        if row_filter.operator == "like":
            return self.like(row_filter.column, like_pattern(row_filter.value))
        return self.compare(row_filter.column, SIGNS[row_filter.operator], row_filter.value)

    def select(self, expressions: Sequence[str], *, extra: Sequence[str] = (), limit: int | None = None) -> str:
        """Return the SQL. `extra` are further conditions; `limit` replaces the span's limit."""
        span = self.span
        conditions = [f"({condition})" for condition in (*self.conditions, *extra)]
        text = f"SELECT {', '.join(expressions)} FROM {self.table_expression()}"  # noqa: S608 - the catalogue's names
        text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        text += f" ORDER BY {self.order_terms()}" if span.where != "at" else ""
        return f"{text} LIMIT {(span.limit if limit is None else limit) + 1} OFFSET {span.offset}"

    def row(self, place: KeyTexts, cells: tuple[object, ...]) -> TableRow:
        """Return a row from its place in the order, which is empty if the table has no key, and its cells."""
        key = self.table.key
        if key is None:
            return TableRow((), cells, place)
        return TableRow(key_of(key, self.order, place), cells, cursor_of(key, self.order, place))


def cells_size(cells: Iterable[object]) -> int:
    """Return the approximate number of bytes of cells as JSON."""
    return sum([len(cell) + 2 if isinstance(cell, str) else len(repr(cell)) for cell in cells])


def collect_rows(
    database_rows: Iterable[Sequence[Any]],
    convert: Callable[[Sequence[Any]], TableRow],
    limit: int,
    bounds: QueryBounds,
) -> Rows:
    """Convert as many rows as the bounds allow, at least one."""
    rows: list[TableRow] = []
    size = 0
    for values in database_rows:
        row = convert(values)
        size += cells_size(row.cells)
        if len(rows) == limit or (size > bounds.size and rows):
            return Rows(rows, True)
        rows.append(row)
    return Rows(rows, False)
