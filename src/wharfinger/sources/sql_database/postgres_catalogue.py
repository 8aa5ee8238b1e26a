"""Reads the tables and views that the role may read from the catalogue of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wharfinger.sources.sql_database.database_catalogue import (
    DatabaseCatalogue,
    DatabaseColumn,
    DatabaseTable,
    ForeignKey,
    Kind,
    TableIndex,
    UniqueKey,
)

__all__ = ["read_catalogue"]

_KINDS: Mapping[str, Kind] = {
    "r": "table",
    "p": "table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}

# `has_ctid`: rows can be ordered and found by their ctid. Children by inheritance have rows with the same ctids.
_TABLES = """
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       obj_description(c.oid, 'pg_class') AS comment,
       CASE WHEN c.relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid) END AS definition,
       c.relkind IN ('r', 'm') AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid) AS has_ctid
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
  AND (cardinality($1::text[]) = 0 OR n.nspname = ANY ($1::text[]))
  AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
"""

_COLUMNS = """
SELECT a.attrelid::int8 AS oid, a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type,
       format_type(a.atttypid, -1) AS cast_type, a.attnotnull AS not_null, a.attgenerated <> '' AS generated,
       CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END AS default,
       col_description(a.attrelid, a.attnum) AS comment,
       ARRAY(SELECT e.enumlabel::text FROM pg_type t JOIN pg_enum e ON e.enumtypid IN (t.oid, t.typelem, t.typbasetype)
             WHERE t.oid = a.atttypid ORDER BY e.enumsortorder) AS values
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
  AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
ORDER BY a.attrelid, a.attnum
"""

# Columns that PostgreSQL cannot order rows by: their type, or one that it consists of, has no default B-tree operators.
# A domain consists of its base type, an array of its elements, and a composite type of its attributes.
_UNORDERED = """
WITH RECURSIVE part (oid, name, type) AS (
    SELECT attrelid, attname, atttypid FROM pg_attribute
    WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped
    UNION
    SELECT p.oid, p.name, inner_part.type FROM part p JOIN pg_type t ON t.oid = p.type CROSS JOIN LATERAL (
        SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL SELECT t.typelem WHERE t.typelem <> 0 AND t.typlen = -1
        UNION ALL SELECT a.atttypid FROM pg_attribute a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS inner_part (type)
)
SELECT DISTINCT p.oid::int8 AS oid, p.name::text AS name FROM part p JOIN pg_type t ON t.oid = p.type
WHERE t.typtype = 'b' AND NOT (t.typelem <> 0 AND t.typlen = -1) AND NOT EXISTS (
    SELECT FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod
    WHERE m.amname = 'btree' AND o.opcdefault AND (o.opcintype = t.oid OR EXISTS (
        SELECT FROM pg_cast c
        WHERE c.castsource = t.oid AND c.casttarget = o.opcintype AND c.castmethod = 'b' AND c.castcontext = 'i'
    ))
)
"""

# `orders`: rows can be ordered by this index alone. It is unique (not deferred), valid, covers all rows, and is a
# B-tree of plain columns that are never null, all in one direction, with their own collation and default operators.
_INDEXES = """
SELECT i.indrelid::int8 AS oid, x.relname::text AS name, i.indisprimary AS primary, i.indisunique AS unique,
       ARRAY(SELECT coalesce(a.attname::text, '(an expression)') FROM unnest(i.indkey) WITH ORDINALITY k (number, at)
             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number AND k.number > 0
             WHERE k.at <= i.indnkeyatts ORDER BY k.at) AS columns,
       i.indoption[0] & 1 = 1 AS descending,
       i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND m.amname = 'btree'
       AND NOT EXISTS (
           SELECT FROM generate_series(0, i.indnkeyatts - 1) s (at)
           LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[s.at] AND a.attnum > 0
           LEFT JOIN pg_opclass o ON o.oid = i.indclass[s.at]
           WHERE a.attnum IS NULL OR NOT a.attnotnull OR NOT o.opcdefault OR i.indcollation[s.at] <> a.attcollation
              OR i.indoption[s.at] & 1 <> i.indoption[0] & 1
       ) AS orders
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = ANY ($1::oid[])
ORDER BY i.indrelid, i.indisprimary DESC, i.indnkeyatts, x.relname
"""

_FOREIGN_KEYS = """
SELECT f.conrelid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name,
       ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k (number, at)
             JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.number ORDER BY k.at) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY k (number, at)
             JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.number ORDER BY k.at) AS references
FROM pg_constraint f JOIN pg_class c ON c.oid = f.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE f.contype = 'f' AND f.conrelid = ANY ($1::oid[])
ORDER BY f.conrelid, f.conname
"""

# Includes the checks of domains, in which VALUE stands for the column.
_CHECKS = """
SELECT k.conrelid::int8 AS oid, pg_get_expr(k.conbin, k.conrelid) AS condition
FROM pg_constraint k WHERE k.contype = 'c' AND k.conrelid = ANY ($1::oid[])
UNION ALL
SELECT a.attrelid::int8, a.attname::text || ': ' || substring(pg_get_constraintdef(k.oid) FROM 'CHECK \\((.*)\\)')
FROM pg_attribute a JOIN pg_constraint k ON k.contypid = a.atttypid AND k.contype = 'c'
WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 1, 2
"""


async def read_catalogue(connection: Any, schemas: tuple[str, ...]) -> DatabaseCatalogue:
    """Read all tables and views that the role may read, except partitions and PostgreSQL's own."""
    rows = await connection.fetch(_TABLES, list(schemas))
    oids = [row["oid"] for row in rows]
    columns = _by_table(await connection.fetch(_COLUMNS, oids))
    without_ctid = [row["oid"] for row in rows if not row["has_ctid"]]
    unordered = {(row["oid"], row["name"]) for row in await connection.fetch(_UNORDERED, without_ctid)}
    indexes = _by_table(await connection.fetch(_INDEXES, oids))
    foreign_keys = _by_table(await connection.fetch(_FOREIGN_KEYS, oids))
    checks = _by_table(await connection.fetch(_CHECKS, oids))
    return DatabaseCatalogue(
        _table(
            row,
            tuple(_column(column, (oid, column["name"]) not in unordered) for column in columns.get(oid, [])),
            indexes.get(oid, []),
            foreign_keys.get(oid, []),
            checks.get(oid, []),
        )
        for oid, row in zip(oids, rows, strict=True)
    )


def _by_table(rows: Iterable[Any]) -> dict[int, list[Any]]:
    grouped: dict[int, list[Any]] = {}
    for row in rows:
        grouped.setdefault(row["oid"], []).append(row)
    return grouped


def _table(
    row: Any,
    columns: tuple[DatabaseColumn, ...],
    indexes: list[Any],
    foreign_keys: list[Any],
    checks: list[Any],
) -> DatabaseTable:
    return DatabaseTable(
        schema=row["schema"],
        name=row["name"],
        kind=_KINDS[row["kind"]],
        columns=columns,
        key=_key(row["has_ctid"], {column.name for column in columns}, indexes),
        primary_key=next((tuple(index["columns"]) for index in indexes if index["primary"]), ()),
        foreign_keys=tuple(
            ForeignKey(tuple(key["columns"]), key["schema"], key["name"], tuple(key["references"]))
            for key in foreign_keys
        ),
        indexes=tuple(
            TableIndex(index["name"], tuple(index["columns"]), index["unique"])
            for index in indexes
            if not index["primary"]
        ),
        checks=tuple(check["condition"] for check in checks if check["condition"]),
        comment=row["comment"],
        definition=row["definition"],
        oid=row["oid"],
    )


def _column(row: Any, ordered: bool) -> DatabaseColumn:
    return DatabaseColumn(
        name=row["name"],
        type=row["type"],
        nullable=not row["not_null"],
        default=row["default"],
        generated=row["generated"],
        comment=row["comment"],
        values=tuple(row["values"]),
        cast=row["cast_type"],
        ordered=ordered,
    )


def _key(has_ctid: bool, readable: set[str], indexes: list[Any]) -> UniqueKey | None:
    """Return the primary key, or else another unique index, or else the location of the row (`ctid`) if it has one."""
    for index in indexes:
        if index["orders"] and readable.issuperset(index["columns"]):
            return UniqueKey(tuple(index["columns"]), descending=index["descending"])
    return UniqueKey(("ctid",), physical=True) if has_ctid else None
