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
from wharfinger.sources.sql_database.postgres_safety import parameters_for, wrapped
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_order import sort_terms
from wharfinger.sources.sql_database.row_text import binary, cut_text, json_value, number, render
from wharfinger.sources.sql_database.span_statement import SpanStatement, cells_size
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["PostgresStatement", "read_by_place", "read_cell", "read_rows", "run_statement"]

MAX_BATCH_ROWS = 200
"""Maximum number of rows that are fetched from the server at a time."""
FIRST_BLOCKS = 64
"""Blocks of a table that the first statement of `read_by_place` reads. Each further one reads twice as many."""
MAX_BLOCKS = 65_536
"""Maximum number of blocks that one statement reads."""

_PLACE = re.compile(r"\(([0-9]{1,10}),[0-9]{1,5}\)").fullmatch


class PostgresStatement(SpanStatement):
    """Reads a span of a table. If the table has a key, each row begins with its place, as texts."""

    def key_value(self, name: str, text: str) -> str:
        return self._add(text, _cast_type(self.table, name))

    def _add(self, value: str, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::text::{kind}"

    def like(self, name: str, pattern: str) -> str:
        return f"{self.column_expression(name)}::text ILIKE {self._add(pattern, 'text')} ESCAPE '!'"

    def compare(self, name: str, sign: str, text: str) -> str:
        return f"{self.column_expression(name)} {sign} {self._add(text, _cast_type(self.table, name))}"

    def order_terms(self) -> str:
        expressions = self.expressions
        if self.table.key is None:  # all columns order the rows, also those of types without an order, such as json
            expressions = [
                name if self.table.column(column.name).ordered else f"{name}::text"
                for name, column in zip(expressions, self.order, strict=True)
            ]
        return sort_terms(self.order, expressions, backwards=self.span.backwards)

    def text(self, cell: int, blocks: tuple[int, int] | None = None, limit: int | None = None) -> str:
        """Return the SQL, which cuts values after about `cell` characters.

        `blocks` are the first block to read, and the one after the last. `limit` replaces the span's limit.
        """
        select_list = [f"{name}::text" for name in self.expressions] if self.table.key is not None else []
        select_list += [
            _cut_expression(self.column_expression(column.name), column.cast, cell) for column in self.columns
        ]
        extra = () if blocks is None else (f"t.ctid >= '({blocks[0]},0)'::tid", f"t.ctid < '({blocks[1]},0)'::tid")
        return self.select(select_list, extra=extra, limit=limit)


def _cast_type(table: DatabaseTable, name: str) -> str:
    return "tid" if table.key is not None and table.key.physical and name == "ctid" else table.column(name).cast


def _cut_expression(expression: str, kind: str, cell: int) -> str:
    """Return an expression that reads about `cell` characters of a value, in the form that `_value` decodes.

    - A text that is too long: its first `cell + 1` characters, then its size in UTF-8 as digits.
    - Bytes: their size as four bytes, big-endian, then their beginning.
    - A `real`: its shortest text, such as 0.1. The driver would read 0.10000000149011612.
    """
    if kind in _NATIVE:
        return expression
    if kind == "real":
        return f"{expression}::text"
    if kind == "bytea":
        beginning = f"pg_catalog.substring({expression}, 1, {mime.SNIFFED_BYTES})"
        return f"pg_catalog.int4send(pg_catalog.octet_length({expression})) || {beginning}"
    whole = _whole_text(expression, kind)
    beginning = f"pg_catalog.left({whole}, {cell + 1})"
    size = f"CASE WHEN pg_catalog.length({beginning}) > {cell} THEN {_utf8_size(whole)}::text ELSE '' END"
    return f"{beginning} || {size}"


def _whole_text(expression: str, kind: str) -> str:
    """Return an expression for a value as text: JSON for an array or a record."""
    is_nested = kind.endswith("[]") or kind == "record"
    return f"pg_catalog.to_json({expression})::text" if is_nested else f"{expression}::text"


def _utf8_size(text: str) -> str:
    """Return an expression for the size in bytes of a text in UTF-8, in which the server sends it."""
    # In a database in UTF-8, this is the stored size, which PostgreSQL finds without reading the text.
    return (
        "(CASE WHEN pg_catalog.getdatabaseencoding() IN ('UTF8', 'SQL_ASCII') "
        f"THEN pg_catalog.octet_length({text}) "
        f"ELSE pg_catalog.octet_length(pg_catalog.convert_to({text}, 'UTF8')) END)"
    )


_NATIVE = {"boolean", "smallint", "integer", "bigint", "double precision"}


def _value(value: object, kind: str, cell: int) -> object:
    """Convert a value that `_cut_expression` has read to JSON."""
    if value is None or kind in _NATIVE:
        return render(value, cell)
    if isinstance(value, bytes):
        return binary(value[4:], int.from_bytes(value[:4], "big"))
    assert isinstance(value, str)  # all other expressions are texts
    if kind == "real":
        return number(float(value))
    if len(value) > cell:
        return cut_text(value[:cell], cell, int(value[cell + 1 :]))
    if kind in ("json", "jsonb", "record") or kind.endswith("[]"):
        return json_value(value, cell)
    return cut_text(value, cell)


async def read_rows(
    connection: Any,
    statement: PostgresStatement,
    bounds: QueryBounds,
    blocks: tuple[int, int] | None = None,
    limit: int | None = None,
) -> Rows:
    """Run a statement. If `blocks` are given, it reads only these blocks of its table."""
    text = statement.text(bounds.cell, blocks, limit)
    kinds = [column.cast for column in statement.columns]
    width = len(statement.order) if statement.table.key is not None else 0
    row_limit = statement.span.limit if limit is None else limit
    fetched = await _fetch(connection, text, statement.values, width, kinds, row_limit, bounds)
    return Rows([statement.row(row.place, row.cells) for row in fetched.rows], fetched.more)


async def read_cell(connection: Any, table: DatabaseTable, key: KeyTexts, column: str, size: int) -> CellValue | None:
    """Read one value, at most `size` bytes of it. Returns None for NULL.

    Raises:
        BadKey: the key is not a key of the table.
        LookupError: there is no such row.
    """
    span = Span(where="at", place=key, limit=1, choice=RowChoice(columns=(column,)))
    statement = PostgresStatement(table, span)
    name, kind = statement.column_expression(column), table.column(column).cast
    data = name if kind == "bytea" else _whole_text(name, kind)
    whole_size = f"octet_length({name})" if kind == "bytea" else _utf8_size(data)
    source = f"{statement.table_expression()} WHERE {statement.conditions[0]}"
    row = await connection.fetchrow(
        f"SELECT {whole_size} AS size, substring({data}, 1, {size}) AS beginning FROM {source}",  # noqa: S608 - the catalogue's names
        *statement.values,
    )
    if row is None:
        raise LookupError(table.name)
    beginning = row["beginning"]
    if beginning is None:
        return None
    encoded = beginning if isinstance(beginning, bytes) else beginning.encode()
    return CellValue(encoded[:size], row["size"], kind != "bytea")


async def _fetch(
    connection: Any,
    statement: str,
    values: Sequence[object],
    width: int,
    kinds: Sequence[str],
    limit: int,
    bounds: QueryBounds,
) -> Rows:
    """Fetch at most `limit` rows until they exceed `bounds.size`. The first `width` columns of each are its place.

    Rows come in batches, so that few are held beyond the bounds.
    """
    cursor = await connection.cursor(statement, *values)
    rows: list[TableRow] = []
    size = 0
    batch_size = 20
    while True:
        batch_rows = await cursor.fetch(batch_size)
        for record in batch_rows:
            cells = tuple(_value(value, kind, bounds.cell) for value, kind in zip(record[width:], kinds, strict=True))
            size += cells_size(cells)
            if len(rows) == limit or (size > bounds.size and rows):
                return Rows(rows, True)
            rows.append(TableRow((), cells, tuple(record[:width])))
        if len(batch_rows) < batch_size:
            return Rows(rows, False)
        # About as many rows as still fit, by the average size so far.
        batch_size = max(1, min(MAX_BATCH_ROWS, (bounds.size - size) * len(rows) // max(size, 1)))


async def read_by_place(connection: Any, statement: PostgresStatement, bounds: QueryBounds) -> Rows:
    """Read a table whose key is its ctid, some blocks at a time, so that few rows are sorted."""
    table, span = statement.table, statement.span
    blocks = await connection.fetchval(
        "SELECT pg_relation_size($1::oid) / current_setting('block_size')::int8", table.oid
    )
    low, high = _block_range(span, blocks)
    rows: list[TableRow] = []
    block_count = FIRST_BLOCKS
    bytes_left = bounds.size
    while low < high:
        begin, end = (max(low, high - block_count), high) if span.backwards else (low, min(high, low + block_count))
        bounds_left = QueryBounds(cell=bounds.cell, size=bytes_left)
        block_rows = await read_rows(connection, statement, bounds_left, (begin, end), span.limit - len(rows))
        rows += block_rows.rows
        bytes_left -= sum(cells_size(row.cells) for row in block_rows.rows)
        if block_rows.more:
            return Rows(rows, True)
        low, high = (low, begin) if span.backwards else (end, high)
        if low < high and (len(rows) >= span.limit or bytes_left <= 0):
            # Find out whether there is another row: with a limit of 0, one row is read and dropped.
            later_rows = await read_rows(connection, statement, QueryBounds(cell=1, size=1), (low, high), 0)
            return Rows(rows, later_rows.more)
        block_count = min(block_count * 2, MAX_BLOCKS)
    return Rows(rows, False)


def _block_range(span: Span, blocks: int) -> tuple[int, int]:
    """Return the blocks that may contain rows of a span: the first, and the one after the last."""
    if not span.place:
        return 0, blocks
    match = _PLACE(span.place[0] or "")
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
    select_list = [
        f"q.c{index}" if explain else _cut_expression(f"q.c{index}", kind, bounds.cell)
        for index, kind in enumerate(kinds)
    ]
    text = wrapped(statement, select_list, limit + 1)
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


def _kind(pg_type: Any) -> str:
    """Return a type for `_cut_expression`: `record` for a composite, `array[]` for any array, or its SQL name."""
    name = str(pg_type.name)
    if pg_type.kind == "composite":
        return "record"
    return "array[]" if pg_type.kind == "array" or name.endswith("[]") else _TYPE_NAMES.get(name, name)
