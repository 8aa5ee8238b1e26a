"""Reads the catalogue of an SQLite file from its schema."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from wharfinger.sources.sql_database.database_catalogue import (
    DatabaseCatalogue,
    DatabaseColumn,
    DatabaseTable,
    ForeignKey,
    Kind,
    TableIndex,
    UniqueKey,
    quoted,
    with_declared_names,
)

__all__ = ["SCHEMA", "read_catalogue", "rowid_name"]

SCHEMA = "main"
_KINDS: dict[str, Kind] = {"table": "table", "view": "view", "virtual": "virtual table"}
_ROWIDS = ("rowid", "_rowid_", "oid")


def rowid_name(columns: Sequence[str]) -> str | None:
    """Return the name of the rowid of a table with these columns, or None if columns have all its names."""
    lowercase_names = {column.lower() for column in columns}
    return next((name for name in _ROWIDS if name not in lowercase_names), None)


def read_catalogue(connection: sqlite3.Connection) -> DatabaseCatalogue:
    """Read all tables and views of the file, except SQLite's own and the shadow tables of virtual tables.

    Tables, columns and indexes whose name is not UTF-8 are left out: no statement can name them.
    """
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # loads the current schema
    rows = connection.execute("PRAGMA main.table_list").fetchall()
    definitions = dict(
        connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name IS NOT NULL"
        ).fetchall()
    )
    tables: list[DatabaseTable] = []
    for _schema, name, kind, _columns, without_rowid, _strict in rows:
        if kind not in _KINDS or name.startswith("sqlite_") or not name or not _is_utf8(name):
            continue
        try:
            tables.append(_table(connection, name, _KINDS[kind], bool(without_rowid), definitions.get(name)))
        except sqlite3.Error:  # a view of a dropped table, or a virtual table whose module is missing
            continue
    return DatabaseCatalogue(with_declared_names(tables), [SCHEMA])


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _table(
    connection: sqlite3.Connection, name: str, kind: Kind, without_rowid: bool, definition: str | None
) -> DatabaseTable:
    info = _pragma(connection, "table_xinfo", name)
    # `hidden` is 1 for a hidden column of a virtual table, and 2 or 3 for a generated column.
    columns = tuple(
        DatabaseColumn(
            name=column,
            type=declared,
            nullable=not not_null and not (without_rowid and primary),
            default=default,
            generated=hidden in (2, 3),
        )
        for _, column, declared, not_null, default, primary, hidden in info
        if hidden != 1 and _is_utf8(column)
    )
    primary = tuple(row[1] for row in sorted((row for row in info if row[5]), key=lambda row: row[5]))
    index_rows = [row for row in _pragma(connection, "index_list", name) if _is_utf8(row[1])] if kind == "table" else []
    table_indexes = [_Index(connection, row) for row in index_rows]
    return DatabaseTable(
        schema=SCHEMA,
        name=name,
        kind=kind,
        columns=columns,
        key=_key(kind, info, columns, primary, table_indexes, without_rowid, "collate" in (definition or "").lower()),
        primary_key=primary,
        foreign_keys=_foreign_keys(connection, name) if kind == "table" else (),
        indexes=tuple(
            TableIndex(index.name, index.column_names, index.unique) for index in table_indexes if index.origin != "pk"
        ),
        checks=_checks(definition or "") if kind == "table" else (),
        definition=None if kind == "table" else definition,
    )


def _pragma(connection: sqlite3.Connection, pragma: str, name: str) -> list[Any]:
    return connection.execute(f"PRAGMA main.{pragma}({quoted(name)})").fetchall()


class _Index:
    """An index, with the names of its columns, and whether rows can be ordered by it."""

    def __init__(self, connection: sqlite3.Connection, row: Sequence[Any]) -> None:
        _, self.name, unique, self.origin, partial = row
        self.unique = bool(unique)
        # A part is (seqno, cid, name, desc, coll, key): `key` is 0 for a column that is only stored in the index.
        parts = [part for part in _pragma(connection, "index_xinfo", self.name) if part[5]]
        self.column_names = tuple(part[2] or "(an expression)" for part in parts)
        self.collations = tuple(part[4] for part in parts)
        directions = {bool(part[3]) for part in parts}
        self.descending = directions == {True}
        self.can_order_rows = self.unique and not partial and len(directions) == 1 and all(part[2] for part in parts)


def _key(
    kind: Kind,
    info: Sequence[Any],
    columns: Sequence[DatabaseColumn],
    primary: tuple[str, ...],
    indexes: Sequence[_Index],
    without_rowid: bool,
    collated: bool,
) -> UniqueKey | None:
    """Return the primary key, or else a unique index of columns that are never NULL, or else the rowid, if any.

    SQLite allows NULL in a primary key that is not declared NOT NULL. Such a key is followed by the rowid (`tie`).

    The key states collations only if a column and the index may have different ones: SQLite uses an index of several
    columns only if the statement names no collation.
    """
    if kind == "view":
        return None
    not_null = {column.name for column in columns if not column.nullable}
    rowid = rowid_name([row[1] for row in info])
    if (
        len(primary) == 1
        and not without_rowid
        and kind == "table"
        and not any(index.origin == "pk" for index in indexes)
    ):
        return UniqueKey(primary, integer=True)  # INTEGER PRIMARY KEY: another name of the rowid
    for origin in ("pk", "u", "c"):
        for index in indexes:
            never_null = not_null.issuperset(index.column_names)
            if index.origin == origin and index.can_order_rows and (never_null or (origin == "pk" and rowid)):
                plain = set(index.collations) == {"BINARY"} and not collated
                tie = "" if never_null else rowid or ""
                return UniqueKey(index.column_names, () if plain else index.collations, index.descending, tie=tie)
    return (
        None if without_rowid or rowid is None or kind != "table" else UniqueKey((rowid,), physical=True, integer=True)
    )


_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] | --[^\n]* | /\*.*?\*/ | \w+ | [()]""",
    re.DOTALL | re.VERBOSE,
)


def _checks(definition: str) -> tuple[str, ...]:
    """Return the CHECK conditions in a CREATE TABLE statement. SQLite has no pragma for them."""
    conditions: list[str] = []
    begin, depth, check_depth = -1, 0, 0
    last_word = ""
    for token in _TOKEN.finditer(definition):
        word = token[0]
        if word == "(":
            if begin < 0 and last_word.lower() == "check":
                begin, check_depth = token.end(), depth
            depth += 1
        elif word == ")":
            depth -= 1
            if begin >= 0 and depth == check_depth:
                conditions.append(" ".join(definition[begin : token.start()].split()))
                begin = -1
        if not word.startswith(("--", "/*")):
            last_word = word
    return tuple(conditions)


def _foreign_keys(connection: sqlite3.Connection, name: str) -> tuple[ForeignKey, ...]:
    rows_by_id: dict[int, list[Any]] = {}
    for row in _pragma(connection, "foreign_key_list", name):
        rows_by_id.setdefault(row[0], []).append(row)
    return tuple(
        ForeignKey(
            tuple(row[3] for row in rows), SCHEMA, rows[0][2], tuple(row[4] for row in rows if row[4] is not None)
        )
        for _, rows in sorted(rows_by_id.items())
        if _is_utf8(rows[0][2])
    )
