"""Reads the catalogue of a DuckDB file from DuckDB's own functions, such as `duckdb_tables()`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wharfinger.sources.sql_database.database_catalogue import (
    DatabaseCatalogue,
    DatabaseColumn,
    DatabaseTable,
    ForeignKey,
    TableIndex,
    UniqueKey,
    with_declared_names,
)

__all__ = ["Fetch", "read_catalogue"]

Fetch = Callable[[str], Sequence[Sequence[Any]]]
"""Runs a statement and returns its rows."""

_HERE = "database_name = current_database() AND NOT internal"
_TABLES = f"SELECT schema_name, table_name, comment, table_oid FROM duckdb_tables() WHERE {_HERE} AND NOT temporary"  # noqa: S608
_VIEWS = f"SELECT schema_name, view_name, comment, sql FROM duckdb_views() WHERE {_HERE} AND NOT temporary"  # noqa: S608
_COLUMNS = f"""
SELECT schema_name, table_name, column_name, data_type, is_nullable, column_default, comment
FROM duckdb_columns() WHERE {_HERE} ORDER BY schema_name, table_name, column_index
"""  # noqa: S608
_CONSTRAINTS = """
SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names,
       expression
FROM duckdb_constraints() WHERE database_name = current_database() ORDER BY schema_name, table_name, constraint_index
"""
_INDEXES = """
SELECT schema_name, table_name, index_name, coalesce(TRY_CAST(expressions AS VARCHAR[]), [expressions]), is_unique
FROM duckdb_indexes() WHERE database_name = current_database() ORDER BY schema_name, table_name, index_name
"""
_ENUM = re.compile(r"ENUM\(.*\)", re.DOTALL).fullmatch
_ENUM_VALUE = re.compile("'((?:[^']|'')*)'")
_KEY_TYPE = re.compile(
    r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|DECIMAL.*|VARCHAR|BOOLEAN|UUID|DATE|TIME|TIMESTAMP.*|BLOB|ENUM.*",
    re.DOTALL,
).fullmatch
"""Types whose values do not change when they are converted to text and back."""


def read_catalogue(fetch: Fetch) -> DatabaseCatalogue:
    """Read all tables and views of the file."""
    columns = _by_table(fetch(_COLUMNS))
    constraints = _by_table(fetch(_CONSTRAINTS))
    indexes = _by_table(fetch(_INDEXES))
    tables = [
        _table(schema, name, comment, oid, columns.get((schema, name), []), constraints.get((schema, name), []),
               indexes.get((schema, name), []))
        for schema, name, comment, oid in fetch(_TABLES)
    ]  # fmt: skip
    views = [
        DatabaseTable(
            schema=schema,
            name=name,
            kind="view",
            columns=tuple([_column(row, set()) for row in columns[schema, name]]),
            comment=comment,
            definition=definition,
        )
        for schema, name, comment, definition in fetch(_VIEWS)
        if (schema, name) in columns
    ]
    return DatabaseCatalogue(with_declared_names([*tables, *views]))


_Rows = list[Sequence[Any]]


def _by_table(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, str], _Rows]:
    result: dict[tuple[str, str], _Rows] = {}
    for schema, table, *rest in rows:
        result.setdefault((schema, table), []).append(rest)
    return result


def _table(
    schema: str, name: str, comment: str | None, oid: int, columns: _Rows, constraints: _Rows, indexes: _Rows
) -> DatabaseTable:
    primary = next((tuple(row[1]) for row in constraints if row[0] == "PRIMARY KEY"), ())
    table_columns = tuple([_column(row, set(primary)) for row in columns])
    by_name = {column.name: column for column in table_columns}
    unique = [tuple(row[1]) for row in constraints if row[0] == "UNIQUE"]
    return DatabaseTable(
        schema=schema,
        name=name,
        kind="table",
        columns=table_columns,
        key=_key(by_name, [primary, *sorted(unique, key=len)]),
        primary_key=primary,
        foreign_keys=tuple(
            [ForeignKey(tuple(row[1]), schema, row[2], tuple(row[3])) for row in constraints if row[0] == "FOREIGN KEY"]
        ),
        indexes=tuple(
            [
                TableIndex(index, tuple([_unquoted(text) for text in expressions]), is_unique)
                for index, expressions, is_unique in indexes
            ]
        ),
        checks=tuple([str(row[4]) for row in constraints if row[0] == "CHECK"]),
        comment=comment,
        oid=oid,
    )


def _unquoted(text: str) -> str:
    """Return an entry of an index: the name of a column without its quotes, or an expression unchanged."""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _column(row: Sequence[Any], primary: set[str]) -> DatabaseColumn:
    name, kind, nullable, default, comment = row
    is_enum = _ENUM(kind) is not None
    return DatabaseColumn(
        name=name,
        type="ENUM" if is_enum else kind,
        nullable=bool(nullable) and name not in primary,
        default=default,
        comment=comment,
        values=tuple([value.replace("''", "'") for value in _ENUM_VALUE.findall(kind)]) if is_enum else (),
        cast=kind,
    )


def _key(columns: dict[str, DatabaseColumn], candidates: Iterable[tuple[str, ...]]) -> UniqueKey | None:
    """Return the first candidate whose columns are never NULL and have a `_KEY_TYPE`, or else the rowid.

    Returns None if a column is called rowid, which hides that of the row.
    """
    for names in candidates:
        key_columns = [columns.get(name) for name in names]
        if key_columns and all(
            column is not None and not column.nullable and _KEY_TYPE(column.cast) for column in key_columns
        ):
            return UniqueKey(names)
    if any(name.lower() == "rowid" for name in columns):
        return None
    return UniqueKey(("rowid",), physical=True, integer=True)
