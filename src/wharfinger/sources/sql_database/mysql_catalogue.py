"""Reads the tables and views of one MySQL or MariaDB database from `information_schema`.

`DatabaseColumn.cast` is the kind of a column, which says how its values are read and compared:

| kind | types |
|---|---|
| int, decimal, float, bit | integers and YEAR; DECIMAL; FLOAT and DOUBLE; BIT |
| char, text, json | texts of up to 255 characters; longer texts; JSON |
| plain | dates, times, UUID, INET: the database writes them as ASCII text |
| enum, set | ENUM and SET, which the database orders by the position of their values |
| binary, geometry | BINARY, VARBINARY, BLOB and VECTOR; POINT, POLYGON and others |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from wharfinger.sources.sql_database.database_catalogue import (
    DatabaseCatalogue,
    DatabaseColumn,
    DatabaseTable,
    ForeignKey,
    TableIndex,
    UniqueKey,
)

__all__ = ["Fetch", "quoted", "read_catalogue"]

Fetch = Callable[[str], Sequence[tuple[str | None, ...]]]
"""Runs a statement and returns its rows as texts."""

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_COMMENT FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE()
"""
_COLUMNS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA,
       COLUMN_COMMENT, CHARACTER_MAXIMUM_LENGTH, PRIVILEGES
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
# For a column without a default, MariaDB writes the word NULL. It quotes texts; MySQL does not.
_MARIADB_COLUMNS = _COLUMNS.replace("COLUMN_DEFAULT", "NULLIF(COLUMN_DEFAULT, 'NULL')")
_INDEXES = """
SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""
_FOREIGN_KEYS = """
SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,
       REFERENCED_COLUMN_NAME
FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = DATABASE() AND REFERENCED_TABLE_NAME IS NOT NULL
ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION
"""
# In MariaDB, checks of different tables may have the same name, so they cannot be joined by it.
_MARIADB_CHECKS = """
SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = DATABASE() ORDER BY TABLE_NAME, CONSTRAINT_NAME
"""
_MYSQL_CHECKS = """
SELECT c.CONSTRAINT_SCHEMA, t.TABLE_NAME, c.CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS c
JOIN information_schema.TABLE_CONSTRAINTS t USING (CONSTRAINT_SCHEMA, CONSTRAINT_NAME)
WHERE t.CONSTRAINT_TYPE = 'CHECK' AND c.CONSTRAINT_SCHEMA = DATABASE() ORDER BY t.TABLE_NAME, c.CONSTRAINT_NAME
"""
_VIEWS = """
SELECT TABLE_SCHEMA, TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE()
"""

_TABLE_TYPES = ("BASE TABLE", "SYSTEM VERSIONED", "VIEW")
_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), "int"),
    **dict.fromkeys(("float", "double"), "float"),
    "decimal": "decimal",
    "bit": "bit",
    "json": "json",
    "enum": "enum",
    "set": "set",
    **dict.fromkeys(("char", "varchar"), "char"),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"), "binary"),
    **dict.fromkeys(
        ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"), "geometry"
    ),
    **dict.fromkeys(("geometrycollection", "geomcollection"), "geometry"),
}
_KEY_KINDS = ("int", "decimal", "float", "bit", "char", "text", "plain", "enum", "set", "binary")
_MAX_CHAR_LENGTH = 255
"""Maximum length of a `char`. A longer VARCHAR is a `text`: rows contain only the beginning of a long text."""
_VALUE = re.compile("'((?:[^']|'')*)'")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "0": "\0", "Z": "\x1a"}


def quoted(name: str) -> str:
    """Quote a name from the catalogue as an identifier, in a statement with `%s` for its values."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def read_catalogue(fetch: Fetch, database: str, *, mariadb: bool) -> DatabaseCatalogue:
    """Read all tables and views of the connection's database that the account may read."""
    # `information_schema` ignores the case of names, so the result may contain tables of another database.
    table_rows = [row[1:] for row in fetch(_TABLES) if row[0] == database and row[2] in _TABLE_TYPES]
    column_rows = fetch(_MARIADB_COLUMNS if mariadb else _COLUMNS)
    # The account has some right to each of these tables and columns, but perhaps not to read it.
    columns = _by_table([row for row in column_rows if "select" in (row[-1] or "").lower()], database)
    indexes = _by_table(fetch(_INDEXES), database)
    foreign_keys = _by_table(fetch(_FOREIGN_KEYS), database)
    checks = _by_table(fetch(_MARIADB_CHECKS if mariadb else _MYSQL_CHECKS), database)
    views = _by_table(fetch(_VIEWS), database)
    tables = [
        _view(database, name, columns[name], views.get(name, []))
        if kind == "VIEW"
        else _table(
            database,
            name,
            comment,
            columns[name],
            indexes.get(name, []),
            foreign_keys.get(name, []),
            [str(clause) for (clause,) in checks.get(name, [])],
        )
        for name, kind, comment in table_rows
        if name is not None and name in columns
    ]
    return DatabaseCatalogue(tables, [database])


_Rows = list[tuple[str | None, ...]]


def _by_table(rows: Iterable[tuple[str | None, ...]], database: str) -> dict[str, _Rows]:
    """Return the rows of this database by table, without the names of the database and the table."""
    rows_by_table: dict[str, _Rows] = {}
    for schema, table, *rest in rows:
        if schema == database:
            rows_by_table.setdefault(str(table), []).append(tuple(rest))
    return rows_by_table


def _view(database: str, name: str, columns: _Rows, definition: _Rows) -> DatabaseTable:
    return DatabaseTable(
        schema=database,
        name=name,
        kind="view",
        columns=_columns(columns, []),
        definition=(definition[0][0] if definition else None) or None,  # empty without the right SHOW VIEW
    )


def _table(
    database: str,
    name: str,
    comment: str | None,
    columns: _Rows,
    indexes: _Rows,
    foreign_keys: _Rows,
    checks: list[str],
) -> DatabaseTable:
    table_columns = _columns(columns, checks)
    table_indexes = _indexes(indexes)
    return DatabaseTable(
        schema=database,
        name=name,
        kind="table",
        columns=table_columns,
        key=_key({column.name: column for column in table_columns}, indexes, table_indexes),
        primary_key=next((index.columns for index in table_indexes if index.name == "PRIMARY"), ()),
        foreign_keys=_foreign_keys(foreign_keys, database),
        indexes=tuple(index for index in table_indexes if index.name != "PRIMARY"),
        checks=tuple(clause for clause in checks if not _JSON_CHECK(clause)),
        comment=comment or None,
    )


_JSON_CHECK = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)").fullmatch
"""The check by which MariaDB declares a text as JSON."""


def _columns(rows: _Rows, checks: Iterable[str]) -> tuple[DatabaseColumn, ...]:
    json_columns = {match[1].replace("``", "`") for clause in checks if (match := _JSON_CHECK(clause))}
    return tuple(_column(row, json_columns) for row in rows)


def _column(row: tuple[str | None, ...], json_columns: set[str]) -> DatabaseColumn:
    name, data_type, full_type, nullable, _, extra, comment, length, _ = [text or "" for text in row]
    data_type = data_type.lower()
    kind = _KINDS.get(data_type, "plain")
    if name in json_columns and kind in ("char", "text"):
        kind = "json"
    elif kind == "char" and int(length or 0) > _MAX_CHAR_LENGTH:
        kind = "text"
    quoted_values: list[str] = _VALUE.findall(full_type) if kind in ("enum", "set") else []
    values = tuple(
        [
            _ESCAPED.sub(lambda match: _CONTROLS.get(match[1], match[1]), value.replace("''", "'"))
            for value in quoted_values
        ]
    )
    return DatabaseColumn(
        name=name,
        type=(data_type if values else full_type) + (" INVISIBLE" if "INVISIBLE" in extra.upper() else ""),
        nullable=nullable != "NO",
        default=row[4],  # None if there is no default
        generated=" GENERATED" in extra.upper(),
        comment=comment or None,
        values=values,
        cast=kind,
    )


def _indexes(rows: _Rows) -> list[TableIndex]:
    indexes_by_name: dict[str, tuple[list[str], bool]] = {}
    for name, non_unique, column, _ in rows:
        indexes_by_name.setdefault(str(name), ([], non_unique == "0"))[0].append(column or "(an expression)")
    return [TableIndex(name, tuple(columns), unique) for name, (columns, unique) in indexes_by_name.items()]


def _key(columns: dict[str, DatabaseColumn], rows: _Rows, table_indexes: list[TableIndex]) -> UniqueKey | None:
    """Return the primary key, or else the shortest unique index of columns that are never NULL."""
    partial = {name for name, _, column, part in rows if column is None or part is not None}
    unique = [
        index for index in table_indexes if index.unique and (index.name == "PRIMARY" or index.name not in partial)
    ]
    for index in sorted(unique, key=lambda index: (index.name != "PRIMARY", len(index.columns), index.name)):
        key_columns = [columns.get(name) for name in index.columns]
        if all(column is not None and not column.nullable and column.cast in _KEY_KINDS for column in key_columns):
            return UniqueKey(index.columns)
    return None


def _foreign_keys(rows: _Rows, database: str) -> tuple[ForeignKey, ...]:
    """Return the foreign keys to tables of this database."""
    columns_by_key: dict[str, list[tuple[str | None, ...]]] = {}
    for row in rows:
        if row[2] == database:
            columns_by_key.setdefault(str(row[0]), []).append(row)
    return tuple(
        ForeignKey(tuple(str(row[1]) for row in key), database, str(key[0][3]), tuple(str(row[4]) for row in key))
        for key in columns_by_key.values()
    )
