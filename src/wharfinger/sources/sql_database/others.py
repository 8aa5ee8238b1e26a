"""Reads tables and rows of any other database that SQLAlchemy supports. Callers' statements are not run.

Wharfinger cannot prevent writes to such a database, so `read_only_by_role=True` must confirm that the role of the URL
can only read. A read-only transaction is requested as well if the driver supports one.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any
from urllib.parse import quote

from wharfinger.errors import MissingExtra
from wharfinger.source import UnusableSource
from wharfinger.sources.etag import digest
from wharfinger.sources.sql_database.catalogue import (
    Catalogue,
    DatabaseColumn,
    DatabaseTable,
    ForeignKey,
    Kind,
    TableIndex,
    UniqueKey,
)
from wharfinger.sources.sql_database.database_engine import (
    BadKey,
    DatabaseEngine,
    DatabaseUnreachable,
    QueryBounds,
    Rows,
    Span,
    TableRow,
)
from wharfinger.sources.sql_database.row_text import render

__all__ = ["Other", "open_other"]

_SYSTEM_SCHEMAS = {"information_schema", "mysql", "performance_schema", "sys", "pg_catalog"}
_KEY_TYPES = (int, str)  # types whose values can be written as text and read back


def core() -> Any:
    """The module `sqlalchemy`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module("sqlalchemy")
    except ImportError:
        raise MissingExtra("sql", "Publishing this database") from None


def open_other(url: str, bounds: QueryBounds, read_only_by_role: bool) -> Other:
    """Create the engine for a URL of SQLAlchemy.

    Raises:
        UnusableSource: the URL is not valid, or it was not confirmed that its role can only read.
        MissingExtra: SQLAlchemy is not installed.
    """
    sqlalchemy = core()
    try:
        parsed = sqlalchemy.engine.make_url(url)
    except sqlalchemy.exc.ArgumentError:
        raise UnusableSource("This is not the URL of a database: write dialect://user:password@host/database") from None
    shown = parsed.render_as_string(hide_password=True).partition("?")[0]
    if not read_only_by_role:
        raise UnusableSource(
            f"Wharfinger cannot keep {parsed.get_backend_name()} from being written to. If the role of {shown} can "
            "only read, confirm it in Python: sql(url, read_only_by_role=True)."
        )
    try:
        engine = sqlalchemy.create_engine(
            parsed, pool_size=bounds.connections, max_overflow=0, pool_timeout=5, pool_pre_ping=True
        )
    except ImportError as error:
        raise UnusableSource(f"{shown} cannot be opened: {error.name} is not installed.") from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise UnusableSource(f"{shown} cannot be opened: {type(error).__name__}.") from None
    host = f"{parsed.host or 'localhost'}{f':{parsed.port}' if parsed.port else ''}"
    name = f"{quote(host, safe='[]:')}/{quote(parsed.database or 'database', safe='')}"
    return Other(engine, name, shown)


class Other(DatabaseEngine):
    """One database, read with SQLAlchemy. Changes are found by polling."""

    queries = False

    def __init__(self, engine: Any, name: str, location: str) -> None:
        self.name = name
        self.location = location
        self.dialect = str(engine.dialect.name)
        self._engine = engine
        self._lock = threading.Lock()
        self._tokens = 0

    def _read(self, statement: Any) -> list[Any]:
        sqlalchemy = core()
        try:
            with self._engine.connect() as connection:
                with suppress(Exception):  # only psycopg, asyncpg and oracledb support it
                    connection.execution_options(**{f"{self.dialect}_readonly": True})
                found = connection.execute(statement).fetchall()
                connection.rollback()
                return list(found)
        except (sqlalchemy.exc.NoSuchTableError, sqlalchemy.exc.ProgrammingError):
            raise LookupError("the table does not exist") from None
        except sqlalchemy.exc.DataError:
            raise BadKey("") from None
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> DatabaseUnreachable:
        return DatabaseUnreachable(f"{self.location} cannot be read: {type(error).__name__}.")

    def catalogue(self, age: float = 0.0) -> Catalogue:
        """The tables that SQLAlchemy's inspector finds."""
        sqlalchemy = core()
        try:
            inspector = sqlalchemy.inspect(self._engine)
            schemas = [name for name in inspector.get_schema_names() if name.lower() not in _SYSTEM_SCHEMAS]
            found = [table for schema in schemas for table in _tables(inspector, schema)]
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise self._unreachable(error) from None
        return Catalogue(found, schemas)

    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Read rows of a table in the order of its key."""
        sa = core()
        source = sa.table(
            sa.quoted_name(table.name, True),
            *[sa.column(sa.quoted_name(column.name, True)) for column in table.columns],
            schema=sa.quoted_name(table.schema, True),
        )
        key = [source.c[name] for name in table.key.columns] if table.key else []
        statement = sa.select(*key, *source.c).limit(span.limit + 1)
        if span.key:
            statement = statement.where(_beyond(sa, key, _values(table, span.key), span.where))
        if key:
            statement = statement.order_by(*[one.desc() if span.backwards else one.asc() for one in key])
        rows: list[TableRow] = []
        size = 0
        for found in self._read(statement):
            cells = tuple(render(value, bounds.cell) for value in found[len(key) :])
            size += sum(len(str(cell)) for cell in cells)
            if len(rows) == span.limit or (size > bounds.size and rows):
                return Rows(rows, True)
            rows.append(TableRow(tuple(str(value) for value in found[: len(key)]), cells))
        return Rows(rows, False)

    def token(self) -> Hashable:
        """A new value each time, because changes can only be found by reading."""
        with self._lock:
            self._tokens += 1
            return self._tokens

    def table_token(self, table: DatabaseTable) -> str:
        """The key of the last row. Changes of earlier rows are not noticed."""
        last = self.rows(table, Span(where="last", limit=1), QueryBounds(cell=1)).rows if table.key else []
        return digest(str(last[0].key if last else ""))

    def estimate(self, table: DatabaseTable) -> int | None:
        """Always None: only counting would show the number of rows."""
        return None

    def describe(self) -> list[str]:
        """The kind of database, why it is read-only, and how changes are found."""
        return [self.dialect, "read-only by its role, as confirmed by read_only_by_role", "watched by reading again"]

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def _tables(inspector: Any, schema: str) -> list[DatabaseTable]:
    tables = [_table(inspector, schema, name, "table") for name in inspector.get_table_names(schema)]
    return tables + [_table(inspector, schema, name, "view") for name in inspector.get_view_names(schema)]


def _table(inspector: Any, schema: str, name: str, kind: Kind) -> DatabaseTable:
    columns = tuple(
        DatabaseColumn(
            name=column["name"],
            type=str(column["type"]),
            nullable=bool(column.get("nullable", True)),
            default=column.get("default"),
            generated="computed" in column,
            comment=column.get("comment"),
            cast=getattr(column["type"], "python_type", str).__name__ if _typed(column["type"]) else "",
        )
        for column in inspector.get_columns(name, schema)
    )
    primary = tuple(inspector.get_pk_constraint(name, schema)["constrained_columns"]) if kind == "table" else ()
    usable = primary and all(column.cast in ("int", "str") for column in columns if column.name in primary)
    foreign: list[Any] = inspector.get_foreign_keys(name, schema) if kind == "table" else []
    indexes: list[Any] = inspector.get_indexes(name, schema) if kind == "table" else []
    return DatabaseTable(
        schema=schema,
        name=name,
        kind=kind,
        columns=columns,
        key=UniqueKey(primary) if usable else None,
        primary_key=primary,
        foreign_keys=tuple(
            ForeignKey(
                tuple(key["constrained_columns"]),
                key["referred_schema"] or schema,
                key["referred_table"],
                tuple(key["referred_columns"]),
            )
            for key in foreign
        ),
        indexes=tuple(
            TableIndex(
                index["name"] or "", tuple(one or "(an expression)" for one in index["column_names"]), index["unique"]
            )
            for index in indexes
        ),
    )


def _typed(kind: Any) -> bool:
    try:
        return kind.python_type in _KEY_TYPES
    except NotImplementedError:
        return False


def _values(table: DatabaseTable, texts: Sequence[str]) -> list[object]:
    names = table.key.columns if table.key else ()
    if len(texts) != len(names):
        raise BadKey(f"The key has {len(names)} parts.")
    try:
        return [
            int(text) if table.column(name).cast == "int" else text for name, text in zip(names, texts, strict=True)
        ]
    except ValueError:
        raise BadKey("A part of the key must be an integer.") from None


def _beyond(sa: Any, key: Sequence[Any], values: Sequence[object], where: str) -> Any:
    """The condition for rows after, before or at a key. It uses no row values, which not all databases support."""
    if where == "at":
        return sa.and_(*[column == value for column, value in zip(key, values, strict=True)])
    found = None
    for column, value in reversed(list(zip(key, values, strict=True))):
        beyond = column < value if where == "before" else column > value
        found = beyond if found is None else sa.or_(beyond, sa.and_(column == value, found))
    near = key[0] <= values[0] if where == "before" else key[0] >= values[0]
    return sa.and_(near, found)
