"""Reads rows from PostgreSQL on a given connection, and converts their values to JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from wharfinger.content import mime
from wharfinger.sources.sql_database.database_catalogue import DatabaseTable
from wharfinger.sources.sql_database.database_engine import (
    BadKey,
    CellValue,
    Parameters,
    QueryBounds,
    QueryRefused,
    Rows,
    Span,
    TableRow,
)
from wharfinger.sources.sql_database.postgres_catalogue import quoted
from wharfinger.sources.sql_database.postgres_safety import parameters_for, wrapped
from wharfinger.sources.sql_database.row_choice import RowChoice, RowFilter, like_pattern
from wharfinger.sources.sql_database.row_order import (
    columns_of_cursor,
    cursor_of,
    key_of,
    order_of,
    rows_beyond,
    sort_terms,
)
from wharfinger.sources.sql_database.row_text import binary, cut_text, json_value, render
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["WindowStatement", "read_by_place", "read_cell", "read_rows", "run_statement"]

MAX_BATCH_ROWS = 200
"""Rows fetched from the server at a time."""
FIRST_BLOCKS = 64
"""Blocks of a table without a key that the first statement reads. Each further statement reads twice as many."""
MAX_BLOCKS = 65_536

_PLACE = re.compile(r"\(([0-9]{1,10}),[0-9]{1,5}\)").fullmatch


class WindowStatement:
    """The statement that reads a span and one more row: the order's columns as text, then the wanted columns."""

    def __init__(self, table: DatabaseTable, span: Span) -> None:
        self.table = table
        self.span = span
        self.order = order_of(table, span)
        self.columns = span.columns(table)
        self.values: list[str] = []
        self.conditions: list[str] = []
        self._expressions = [f"t.{quoted(column.name)}" for column in self.order]
        if span.key:
            if table.key is None:
                raise BadKey("")
            part = columns_of_cursor(table.key, self.order, span.key)
            placeholders = [
                None if text is None else self._add(text, _cast(table, column.name))
                for text, column in zip(span.key, part, strict=True)
            ]
            self.conditions.append(rows_beyond(part, self._expressions[: len(part)], placeholders, span.where))
        self.conditions += [self._condition(one) for one in span.choice.filters]

    def _add(self, value: str, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::text::{kind}"

    def _condition(self, wanted: RowFilter) -> str:
        name = f"t.{quoted(wanted.column)}"
        if wanted.operator == "is":
            return f"{name} IS {'NOT ' if wanted.value == 'notnull' else ''}NULL"
        if wanted.operator == "like":
            return f"{name}::text ILIKE {self._add(like_pattern(wanted.value), 'text')} ESCAPE '!'"
        return f"{name} {_SIGNS[wanted.operator]} {self._add(wanted.value, _cast(self.table, wanted.column))}"

    def text(self, cell: int, blocks: tuple[int, int] | None = None, limit: int | None = None) -> str:
        """Return the SQL. `blocks` are the first block of the table to read, and the one after the last."""
        span, table = self.span, self.table
        wanted = [f"{name}::text" for name in self._expressions] if table.key is not None else []
        wanted += [_shown(f"t.{quoted(column.name)}", column.cast, cell) for column in self.columns]
        conditions = [f"({one})" for one in self.conditions]
        if blocks is not None:
            conditions += [f"t.ctid >= '({blocks[0]},0)'::tid", f"t.ctid < '({blocks[1]},0)'::tid"]
        statement = f"SELECT {', '.join(wanted)} FROM {quoted(table.schema)}.{quoted(table.name)} AS t"  # noqa: S608 - the catalogue's names
        statement += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        if span.where != "at":
            expressions = self._expressions
            if table.key is None:  # it is ordered by all its columns
                expressions = [
                    f"{name}::text" if table.column(column.name).cast in _UNORDERED else name
                    for name, column in zip(expressions, self.order, strict=True)
                ]
            statement += f" ORDER BY {sort_terms(self.order, expressions, backwards=span.backwards)}"
        return f"{statement} LIMIT {(span.limit if limit is None else limit) + 1} OFFSET {span.offset}"


_UNORDERED = {"json", "xml", "point", "line", "lseg", "box", "path", "polygon", "circle", "xid", "cid"}
"""Types that PostgreSQL cannot order."""
_SIGNS = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def _cast(table: DatabaseTable, name: str) -> str:
    return "tid" if table.key is not None and table.key.physical and name == "ctid" else table.column(name).cast


def _shown(expression: str, kind: str, cell: int) -> str:
    """Return an expression for about `cell` characters of a cell, in a form that `_value` converts.

    The size in bytes follows the beginning of a longer text as digits, and precedes the beginning of bytes.
    """
    if kind in _NATIVE:
        return expression
    if kind == "bytea":
        beginning = f"pg_catalog.substring({expression}, 1, {mime.SNIFFED_BYTES})"
        return f"pg_catalog.int4send(pg_catalog.octet_length({expression})) || {beginning}"
    whole = f"{expression}::text"
    if kind.endswith("[]") or kind == "record":
        whole = f"pg_catalog.to_json({expression})::text"
    beginning = f"pg_catalog.left({whole}, {cell + 1})"
    size = f"CASE WHEN pg_catalog.length({beginning}) > {cell} THEN pg_catalog.octet_length({whole})::text ELSE '' END"
    return f"{beginning} || {size}"


_NATIVE = {"boolean", "smallint", "integer", "bigint", "real", "double precision"}


def _value(value: object, kind: str, cell: int) -> object:
    if value is None or kind in _NATIVE:
        return render(value, cell)
    if isinstance(value, bytes):
        return binary(value[4:], int.from_bytes(value[:4], "big"))
    if not isinstance(value, str):
        return render(value, cell)
    if len(value) > cell:
        return cut_text(value[:cell], cell, int(value[cell + 1 :]))
    if kind in ("json", "jsonb", "record") or kind.endswith("[]"):
        return json_value(value, cell)
    return cut_text(value, cell)


async def read_rows(
    connection: Any,
    statement: WindowStatement,
    bounds: QueryBounds,
    blocks: tuple[int, int] | None = None,
    limit: int | None = None,
) -> Rows:
    """Run a statement. If `blocks` are given, it reads only these blocks of its table."""
    key, order = statement.table.key, statement.order
    text = statement.text(bounds.cell, blocks, limit)
    kinds = [column.cast for column in statement.columns]
    most = statement.span.limit if limit is None else limit
    found = await _fetch(connection, text, statement.values, len(order) if key else 0, kinds, most, bounds)
    if key is None:
        return found
    rows = [TableRow(key_of(key, order, row.place), row.cells, cursor_of(key, order, row.place)) for row in found.rows]
    return Rows(rows, found.more)


async def read_cell(connection: Any, table: DatabaseTable, key: KeyTexts, column: str, size: int) -> CellValue | None:
    """Read one value, at most `size` bytes of it."""
    at = Span(where="at", key=key, limit=1, choice=RowChoice(columns=(column,)))
    statement = WindowStatement(table, at)
    name, kind = f"t.{quoted(column)}", table.column(column).cast
    data = name if kind == "bytea" else f"{name}::text"
    source = f"{quoted(table.schema)}.{quoted(table.name)} AS t WHERE {statement.conditions[0]}"
    found = await connection.fetchrow(
        f"SELECT octet_length({data}) AS size, substring({data}, 1, {size}) AS beginning FROM {source}",  # noqa: S608 - the catalogue's names
        *statement.values,
    )
    if found is None:
        raise LookupError(table.name)
    beginning = found["beginning"]
    if beginning is None:
        return None
    encoded = beginning if isinstance(beginning, bytes) else beginning.encode("utf-8", "surrogateescape")
    return CellValue(encoded[:size], found["size"], kind != "bytea")


async def _fetch(
    connection: Any,
    statement: str,
    values: Sequence[object],
    width: int,
    kinds: Sequence[str],
    limit: int,
    bounds: QueryBounds,
) -> Rows:
    """Fetch as many rows as the bounds allow, at least one. Batches keep few rows in memory."""
    cursor = await connection.cursor(statement, *values)
    rows: list[TableRow] = []
    size = 0
    batch = 20
    while True:
        found = await cursor.fetch(batch)
        for record in found:
            cells = tuple(_value(value, kind, bounds.cell) for value, kind in zip(record[width:], kinds, strict=True))
            size += sum(_size(cell) for cell in cells)
            if len(rows) == limit or (size > bounds.size and rows):
                return Rows(rows, True)
            rows.append(TableRow((), cells, tuple(record[:width])))
        if len(found) < batch:
            return Rows(rows, False)
        batch = max(1, min(MAX_BATCH_ROWS, (bounds.size - size) * len(rows) // max(size, 1)))


def _size(cell: object) -> int:
    if isinstance(cell, str):
        return len(cell) + 2
    return len(repr(cell))


async def read_by_place(connection: Any, statement: WindowStatement, bounds: QueryBounds) -> Rows:
    """Read a table without a key in the order of storage, some blocks at a time, so that few rows are sorted."""
    table, span = statement.table, statement.span
    blocks = await connection.fetchval(
        "SELECT pg_relation_size($1::oid) / current_setting('block_size')::int8", table.oid
    )
    low, high = _block_range(span, blocks)
    rows: list[TableRow] = []
    width = FIRST_BLOCKS
    size = bounds.size
    while low < high:
        begin, end = (max(low, high - width), high) if span.backwards else (low, min(high, low + width))
        left = QueryBounds(cell=bounds.cell, size=max(size, 1))
        found = await read_rows(connection, statement, left, (begin, end), span.limit - len(rows))
        rows += found.rows
        size -= sum(_size(cell) for row in found.rows for cell in row.cells)
        if found.more:
            return Rows(rows, True)
        low, high = (low, begin) if span.backwards else (end, high)
        if low < high and (len(rows) >= span.limit or size <= 0):
            rest = await read_rows(connection, statement, QueryBounds(cell=1, size=1), (low, high), 0)
            return Rows(rows, rest.more)
        width = min(width * 2, MAX_BLOCKS)
    return Rows(rows, False)


def _block_range(span: Span, blocks: int) -> tuple[int, int]:
    """Return the first block that a span can be in, and the one after the last."""
    if not span.key:
        return 0, blocks
    match = _PLACE(span.key[0] or "")
    if match is None:
        raise BadKey("The place of a row is written as (block,number).")
    block = int(match[1])
    return (block, blocks) if span.where == "after" else (0, min(block + 1, blocks))


async def run_statement(
    connection: Any, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds, *, explain: bool
) -> tuple[list[str], Rows]:
    """Prepare the statement to find its columns, then run it in parentheses (see `postgres_safety`), or explain it."""
    prepared = await connection.prepare(statement)
    attributes = prepared.get_attributes()
    if not attributes:
        raise QueryRefused("The statement returns no rows: run one SELECT.")
    values = parameters_for(prepared.get_parameters(), parameters)
    kinds = [_kind(attribute.type) for attribute in attributes]
    shown = [f"q.c{at}" if explain else _shown(f"q.c{at}", kind, bounds.cell) for at, kind in enumerate(kinds)]
    text = wrapped(statement, shown, limit + 1)
    if explain:
        lines = await connection.fetch(f"EXPLAIN {text}", *values)
        return ["plan"], Rows([TableRow((), (line[0],)) for line in lines[:limit]], len(lines) > limit)
    rows = await _fetch(connection, text, values, 0, kinds, limit, bounds)
    return [attribute.name for attribute in attributes], rows


_TYPE_NAMES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
}


def _kind(kind: Any) -> str:
    name = str(kind.name)
    if kind.kind == "composite":
        return "record"
    return "array[]" if kind.kind == "array" or name.endswith("[]") else _TYPE_NAMES.get(name, name)
