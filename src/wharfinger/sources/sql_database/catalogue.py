"""What a database holds, as its own catalogue says: schemas, tables, columns and keys. Knows no database and no URI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

__all__ = ["Catalogue", "DatabaseColumn", "DatabaseTable", "ForeignKey", "Kind", "TableIndex", "UniqueKey"]

Kind = Literal["table", "view", "materialized view", "foreign table", "virtual table"]


class DatabaseColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column; `type` as the database writes it, `generated` where its values are computed."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    generated: bool = False
    comment: str | None = None
    cast: str = ""
    """How a value's text becomes a value again; for the engine that wrote it."""


class ForeignKey(msgspec.Struct, frozen=True):
    """Columns that name a row of another table."""

    columns: tuple[str, ...]
    schema: str
    table: str
    references: tuple[str, ...]


class TableIndex(msgspec.Struct, frozen=True):
    """What is quick to look up."""

    name: str
    columns: tuple[str, ...]
    unique: bool


class UniqueKey(msgspec.Struct, frozen=True):
    """By what rows are ordered and named: columns whose values together are never null and never the same twice.

    `physical` is the database's own place of a row (SQLite's rowid, PostgreSQL's ctid), which is no column, and which
    another writing or a clean-up of the table may give to another row.
    """

    columns: tuple[str, ...]
    collations: tuple[str, ...] = ()
    descending: bool = False
    physical: bool = False
    integer: bool = False
    """Whether its values are whole numbers, whatever the database would let them be compared with."""


class DatabaseTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table or a view. `key` is None where the database offers none: then only its first rows can be read."""

    schema: str
    name: str
    kind: Kind
    columns: tuple[DatabaseColumn, ...]
    key: UniqueKey | None = None
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    indexes: tuple[TableIndex, ...] = ()
    comment: str | None = None
    definition: str | None = None
    """The statement behind a view."""
    oid: int = 0

    def column(self, name: str) -> DatabaseColumn:
        """The column of this name.

        Raises:
            KeyError: there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


class Catalogue:
    """All tables, in the order in which they are listed: by schema, then by name."""

    def __init__(self, tables: Iterable[DatabaseTable], schemas: Iterable[str] = ()) -> None:
        self.tables: Mapping[tuple[str, str], DatabaseTable] = MappingProxyType(
            {(table.schema, table.name): table for table in sorted(tables, key=lambda one: (one.schema, one.name))}
        )
        self.schemas: tuple[str, ...] = tuple(sorted({*schemas, *(schema for schema, _ in self.tables)}))

    def of_schema(self, schema: str) -> list[DatabaseTable]:
        """The tables of one schema."""
        return [table for (of, _), table in self.tables.items() if of == schema]
