"""The schemas, tables, columns and keys of a database, from its own catalogue. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

__all__ = [
    "DatabaseCatalogue",
    "DatabaseColumn",
    "DatabaseTable",
    "ForeignKey",
    "Kind",
    "TableIndex",
    "UniqueKey",
    "quoted",
    "with_declared_names",
]

Kind = Literal["table", "view", "materialized view", "foreign table", "virtual table"]


class DatabaseColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column. `type` is as the database writes it. The database computes the values of a `generated` column."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    generated: bool = False
    comment: str | None = None
    values: tuple[str, ...] = ()
    """The values of an enumeration."""
    cast: str = ""
    """How the engine reads and compares values: a type of the database, or a name that only the engine knows."""
    ordered: bool = True
    """Whether the database can order rows by this column. Only PostgreSQL finds it out, for tables without a ctid."""


class ForeignKey(msgspec.Struct, frozen=True):
    """Columns that refer to a row of another table."""

    columns: tuple[str, ...]
    schema: str
    table: str
    references: tuple[str, ...]
    """The columns of the other table."""


class TableIndex(msgspec.Struct, frozen=True):
    """An index of a table."""

    name: str
    columns: tuple[str, ...]
    unique: bool


class UniqueKey(msgspec.Struct, frozen=True):
    """The columns that order and identify rows. Together, their values are unique, and never NULL unless `tie` is set.

    A `physical` key is the location where the database stores a row (SQLite's rowid, PostgreSQL's ctid). It is not a
    column, and a later write or a vacuum may give it to another row.
    """

    columns: tuple[str, ...]
    collations: tuple[str, ...] = ()
    descending: bool = False
    physical: bool = False
    integer: bool = False
    """Whether its values are integers. Other values in a URI are refused, because some databases would convert them."""
    tie: str = ""
    """The name of the rowid, which distinguishes rows with a NULL in the key. Empty if the key is never NULL."""


class DatabaseTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table or a view. Without a `key`, it is ordered by all its columns and read by position."""

    schema: str
    name: str
    kind: Kind
    columns: tuple[DatabaseColumn, ...]
    key: UniqueKey | None = None
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    indexes: tuple[TableIndex, ...] = ()
    checks: tuple[str, ...] = ()
    """The conditions of its CHECK constraints."""
    comment: str | None = None
    definition: str | None = None
    """The statement of a view or virtual table."""
    oid: int = 0
    """The number of the table in the catalogue of PostgreSQL or DuckDB."""

    def column(self, name: str) -> DatabaseColumn:
        """Return the column with this name.

        Raises:
            KeyError: there is no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


class DatabaseCatalogue:
    """All tables, sorted by schema and name."""

    def __init__(self, tables: Iterable[DatabaseTable], schemas: Iterable[str] = ()) -> None:
        self.tables: Mapping[tuple[str, str], DatabaseTable] = MappingProxyType(
            {(table.schema, table.name): table for table in sorted(tables, key=lambda item: (item.schema, item.name))}
        )
        self.schemas: tuple[str, ...] = tuple(sorted({*schemas, *(schema for schema, _ in self.tables)}))

    def of_schema(self, schema: str) -> list[DatabaseTable]:
        """Return the tables of one schema."""
        return [table for (its_schema, _), table in self.tables.items() if its_schema == schema]


def quoted(name: str) -> str:
    """Quote a name as an identifier of standard SQL. MySQL has other quotes: see `mysql_catalogue.quoted`."""
    return '"' + name.replace('"', '""') + '"'


def with_declared_names(tables: Iterable[DatabaseTable]) -> list[DatabaseTable]:
    """Return the tables with foreign keys that spell the name of their target as its own definition does.

    SQLite and DuckDB ignore the case of names, but URIs do not.
    """
    tables = list(tables)
    names = {(table.schema, table.name.lower()): table.name for table in tables}

    def renamed(key: ForeignKey) -> ForeignKey:
        return msgspec.structs.replace(key, table=names.get((key.schema, key.table.lower()), key.table))

    return [
        msgspec.structs.replace(table, foreign_keys=tuple([renamed(key) for key in table.foreign_keys]))
        for table in tables
    ]
