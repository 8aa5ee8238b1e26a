"""Reads rows from PostgreSQL on a given connection, and converts their values to JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from wharfinger.sources.sql_database.catalogue import DatabaseTable, UniqueKey
from wharfinger.sources.sql_database.database_engine import (
    BadKey,
    Parameters,
    QueryBounds,
    QueryRefused,
    Rows,
    Span,
    TableRow,
)
from wharfinger.sources.sql_database.postgres_catalogue import quoted
from wharfinger.sources.sql_database.postgres_safety import parameters_for, wrapped
from wharfinger.sources.sql_database.row_text import clean, cut_bytes, cut_text, number, render

__all__ = ["read_by_place", "read_rows", "run_statement", "window_statement"]

MAX_BATCH_ROWS = 200
"""Rows fetched from the server at a time."""
FIRST_BLOCKS = 64
"""Blocks of a table without a key that the first statement reads. Each further statement reads twice as many."""
MAX_BLOCKS = 65_536

_PLACE = re.compile(r"\(([0-9]{1,10}),[0-9]{1,5}\)").fullmatch


def window_statement(table: DatabaseTable, span: Span, bounds: QueryBounds, where: str = "") -> str:
    """The statement that reads a span: the key as texts, then all columns, and one row more than requested."""
    key = table.key
    ordered = [f"t.{quoted(name)}" for name in key.columns] if key else []
    wanted = [f"{name}::text" for name in ordered]
    wanted += [_shown(f"t.{quoted(column.name)}", column.cast, bounds.cell) for column in table.columns]
    statement = f"SELECT {', '.join(wanted)} FROM {quoted(table.schema)}.{quoted(table.name)} AS t"  # noqa: S608 - the catalogue's names
    if key is not None:
        if span.key:
            marks = [f"${at}::text::{_cast(table, name)}" for at, name in enumerate(key.columns, 1)]
            where = where or f"({', '.join(ordered)}) {_comparison(key, span)} ({', '.join(marks)})"
        statement += f" WHERE {where}" if where else ""
        if span.where != "at":
            down = " DESC" if key.descending is not span.backwards else ""
            statement += " ORDER BY " + ", ".join([name + down for name in ordered])
    return f"{statement} LIMIT {span.limit + 1}"


def _comparison(key: UniqueKey, span: Span) -> str:
    if span.where == "at":
        return "="
    return "<" if (span.where == "before") is not key.descending else ">"


def _cast(table: DatabaseTable, name: str) -> str:
    return "tid" if table.key is not None and table.key.physical else table.column(name).cast


def _shown(expression: str, kind: str, cell: int) -> str:
    """An expression for a cell that returns at most about `cell` bytes of it, in a form that `_value` converts."""
    if kind in _NATIVE:
        return expression
    if kind == "bytea":
        return f"pg_catalog.substring({expression}, 1, {cell + 1})"
    if kind.endswith("[]") or kind == "record":
        return f"pg_catalog.left(pg_catalog.to_json({expression})::text, {cell + 1})"
    return f"pg_catalog.left({expression}::text, {cell + 1})"


_NATIVE = {"boolean", "smallint", "integer", "bigint", "real", "double precision"}


def _value(value: object, kind: str, cell: int) -> object:
    if value is None or kind in _NATIVE:
        return render(value, cell)
    if isinstance(value, bytes):
        cut = cut_bytes(value, cell)
        return {name: one for name, one in cut.items() if name != "bytes"}
    if not isinstance(value, str):
        return render(value, cell)
    if len(value) > cell:
        return {"text": clean(value[:cell]), "cut": True}
    if kind in ("json", "jsonb", "record") or kind.endswith("[]"):
        return _json(value, cell)
    return cut_text(value, cell)


def _json(text: str, cell: int) -> object:
    try:
        return json.loads(text, parse_float=_float, parse_int=lambda digits: number(int(digits)))
    except (ValueError, RecursionError):
        return cut_text(text, cell)


def _float(digits: str) -> object:
    value = float(digits)
    return value if math.isfinite(value) else digits


async def read_rows(
    connection: Any, statement: str, values: Sequence[object], table: DatabaseTable, limit: int, bounds: QueryBounds
) -> Rows:
    """Run a statement of `window_statement`."""
    width = len(table.key.columns) if table.key else 0
    kinds = [column.cast for column in table.columns]
    return await _fetch(connection, statement, values, width, kinds, limit, bounds)


async def _fetch(
    connection: Any,
    statement: str,
    values: Sequence[object],
    width: int,
    kinds: Sequence[str],
    limit: int,
    bounds: QueryBounds,
) -> Rows:
    """Fetch as many rows as the bounds allow, at least one. Batches keep the number of rows in memory small."""
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
            rows.append(TableRow(tuple(record[:width]), cells))
        if len(found) < batch:
            return Rows(rows, False)
        batch = max(1, min(MAX_BATCH_ROWS, (bounds.size - size) * len(rows) // max(size, 1)))


def _size(cell: object) -> int:
    if isinstance(cell, str):
        return len(cell) + 2
    return len(repr(cell))


async def read_by_place(connection: Any, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
    """Read a table without a key in the order of storage, some blocks at a time, so that few rows are sorted."""
    name = f"{quoted(table.schema)}.{quoted(table.name)}"
    blocks = await connection.fetchval(
        "SELECT pg_relation_size($1::oid) / current_setting('block_size')::int8", table.oid
    )
    low, high = _block_range(span, blocks)
    rows: list[TableRow] = []
    width = FIRST_BLOCKS
    size = bounds.size
    while low < high:
        begin, end = (max(low, high - width), high) if span.backwards else (low, min(high, low + width))
        conditions = [f"t.ctid >= '({begin},0)'::tid", f"t.ctid < '({end},0)'::tid"]
        if span.key:
            conditions.append(f"t.ctid {_comparison(UniqueKey(('ctid',)), span)} $1::text::tid")
        part = Span(where=span.where, key=span.key, limit=span.limit - len(rows))
        statement = window_statement(table, part, bounds, " AND ".join(conditions))
        left = QueryBounds(cell=bounds.cell, size=max(size, 1))
        found = await read_rows(connection, statement, span.key, table, part.limit, left)
        rows += found.rows
        size -= sum(_size(cell) for row in found.rows for cell in row.cells)
        if found.more:
            return Rows(rows, True)
        low, high = (low, begin) if span.backwards else (end, high)
        if low < high and (len(rows) >= span.limit or size <= 0):
            rest = f"SELECT EXISTS (SELECT FROM {name} AS t WHERE t.ctid >= '({low},0)' AND t.ctid < '({high},0)')"  # noqa: S608
            return Rows(rows, await connection.fetchval(rest))
        width = min(width * 2, MAX_BLOCKS)
    return Rows(rows, False)


def _block_range(span: Span, blocks: int) -> tuple[int, int]:
    """The first block that a span can be in, and the one after the last."""
    if not span.key:
        return 0, blocks
    match = _PLACE(span.key[0])
    if match is None:
        raise BadKey("The place of a row is written as (block,number).")
    block = int(match[1])
    return (block, blocks) if span.where == "after" else (0, min(block + 1, blocks))


async def run_statement(
    connection: Any, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds
) -> tuple[list[str], Rows]:
    """Prepare the statement to find its columns, then run it in parentheses (see `postgres_safety`)."""
    prepared = await connection.prepare(statement)
    attributes = prepared.get_attributes()
    if not attributes:
        raise QueryRefused("The statement returns no rows: run one SELECT.")
    values = parameters_for(prepared.get_parameters(), parameters)
    kinds = [_kind(attribute.type) for attribute in attributes]
    shown = [_shown(f"q.c{at}", kind, bounds.cell) for at, kind in enumerate(kinds)]
    rows = await _fetch(connection, wrapped(statement, shown, limit + 1), values, 0, kinds, limit, bounds)
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
