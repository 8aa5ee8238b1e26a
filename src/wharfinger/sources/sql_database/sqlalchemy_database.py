"""Reads tables and rows of any other database that SQLAlchemy supports. Callers' statements are not run.

Wharfinger cannot prevent writes to such a database, so `read_only_by_role=True` must confirm that the role of the URL
can only read. A read-only transaction is requested as well if the driver supports one. A statement that takes too long
is stopped if the driver has a function for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any, TypeVar, cast
from urllib.parse import quote

from wharfinger.content.redaction import redacted_text
from wharfinger.errors import InternalError, InvalidArgument, MissingExtra
from wharfinger.source import UnusableSource
from wharfinger.sources.etag import digest
from wharfinger.sources.interrupt_timer import InterruptTimer
from wharfinger.sources.sql_database.database_catalogue import (
    DatabaseCatalogue,
    DatabaseColumn,
    DatabaseTable,
    ForeignKey,
    Kind,
    TableIndex,
    UniqueKey,
)
from wharfinger.sources.sql_database.database_engine import (
    BadKey,
    CellValue,
    DatabaseEngine,
    DatabaseUnreachable,
    QueryBounds,
    Rows,
    Span,
    TableRow,
    too_slow,
)
from wharfinger.sources.sql_database.row_choice import RowChoice, RowFilter, like_pattern
from wharfinger.sources.sql_database.row_order import OrderColumn, columns_of_cursor, key_of, order_of
from wharfinger.sources.sql_database.row_text import render
from wharfinger.sources.sql_database.span_statement import collect_rows
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["SQLAlchemyDatabase", "open_sqlalchemy"]

T = TypeVar("T")

BUFFERED_ROWS = 16
"""Maximum number of rows that SQLAlchemy loads at once, if the driver can load them in parts."""
_SYSTEM_SCHEMAS = {"information_schema", "mysql", "performance_schema", "sys", "pg_catalog"}
_CONVERSIONS: Mapping[str, Callable[[str], object]] = {
    "int": int,
    "str": str,
    "Decimal": Decimal,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "float": float,
}
"""Functions that convert text to a value, by the name of its Python type."""
_EXACT_TYPES = ("int", "str", "Decimal", "date", "datetime")
"""Types whose values survive a conversion to text and back. A float may be rounded."""
_KEY_TYPES = ("int", "str")
"""Types of columns that a key may have."""
_DENIED = (1142, 1143, 1356)
"""Error numbers of the protocol of MySQL: the role lacks a right to a table, a column, or a table that a view reads."""


def import_sqlalchemy() -> Any:
    """Import `sqlalchemy`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module("sqlalchemy")
    except ImportError:
        raise MissingExtra("sql", "Publishing this database") from None


def open_sqlalchemy(url: str, bounds: QueryBounds, read_only_by_role: bool) -> SQLAlchemyDatabase:
    """Create the engine for a URL of SQLAlchemy.

    Raises:
        UnusableSource: the URL is not valid, its driver is not installed, or `read_only_by_role` is False.
        MissingExtra: SQLAlchemy is not installed.
    """
    sqlalchemy = import_sqlalchemy()
    try:
        parsed = sqlalchemy.engine.make_url(url)
    except sqlalchemy.exc.ArgumentError:
        raise UnusableSource("This is not the URL of a database: write dialect://user:password@host/database") from None
    safe_url = parsed.render_as_string(hide_password=True).partition("?")[0]
    if not read_only_by_role:
        raise UnusableSource(
            f"Wharfinger cannot keep {parsed.get_backend_name()} from being written to. If the role of {safe_url} can "
            "only read, confirm it in Python: sql(url, read_only_by_role=True)."
        )
    try:
        engine = sqlalchemy.create_engine(
            parsed, pool_size=bounds.connections, max_overflow=0, pool_timeout=5, pool_pre_ping=True
        )
    except ImportError as error:
        raise UnusableSource(f"{safe_url} cannot be opened: {error.name} is not installed.") from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise UnusableSource(f"{safe_url} cannot be opened: {type(error).__name__}.") from None
    host = f"{parsed.host or 'localhost'}{f':{parsed.port}' if parsed.port else ''}"
    name = f"{quote(host, safe='[]:')}/{quote(parsed.database or 'database', safe='')}"
    return SQLAlchemyDatabase(engine, name, safe_url, bounds.seconds)


class SQLAlchemyDatabase(DatabaseEngine):
    """One database, read with SQLAlchemy. Changes are found by polling."""

    can_query = False

    def __init__(self, engine: Any, name: str, location: str, seconds: float) -> None:
        self.name = name
        self.location = location
        self.dialect = str(engine.dialect.name)
        self._engine = engine
        self._seconds = seconds
        self._lock = threading.Lock()
        self._last_token = 0
        self._catalogue: tuple[float, DatabaseCatalogue] | None = None

    def _read(self, statement: Any, collect: Callable[[Iterable[Any]], T], seconds: float | None = None) -> T:
        """Run a statement, and return what `collect` makes of its rows. It need not take all of them.

        Raises:
            LookupError: the table does not exist, or the role may not read it.
            BadKey: the database cannot run the statement.
            DatabaseUnreachable: the database cannot be reached.
        """
        sqlalchemy = import_sqlalchemy()
        seconds = self._seconds if seconds is None else seconds
        try:
            with self._engine.connect() as connection:
                with suppress(Exception):  # not all drivers support it
                    connection.execution_options(**{f"{self.dialect}_readonly": True})
                # Otherwise, many drivers load all rows before the first one can be taken.
                connection.execution_options(stream_results=True, max_row_buffer=BUFFERED_ROWS)
                timer = InterruptTimer(_interrupter(connection.connection.driver_connection), seconds)
                began = time.monotonic()
                timer.start()
                try:
                    with closing(connection.execute(statement)) as rows:
                        collected = collect(rows)
                except sqlalchemy.exc.SQLAlchemyError:
                    if time.monotonic() - began >= seconds:
                        raise too_slow(seconds) from None
                    raise
                finally:
                    timer.end()
                connection.rollback()
                return collected
        except (sqlalchemy.exc.NoSuchTableError, sqlalchemy.exc.ProgrammingError):
            raise LookupError("the table does not exist") from None
        except sqlalchemy.exc.SQLAlchemyError as error:
            if _code(error) in _DENIED:
                raise LookupError("the role may not read it") from None
            of_connection = isinstance(error, (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError))
            if of_connection or getattr(error, "connection_invalidated", True):
                raise self._unreachable(error) from None
            raise BadKey(_message(error)) from None

    def _unreachable(self, error: Any) -> DatabaseUnreachable:
        return DatabaseUnreachable(f"{self.location} cannot be read: {_message(error)}.")

    def catalogue(self, age: float = 0.0) -> DatabaseCatalogue:
        """Return the tables that SQLAlchemy's inspector finds."""
        cached = self._catalogue
        if cached is not None and time.monotonic() - cached[0] < age:
            return cached[1]
        sqlalchemy = import_sqlalchemy()
        try:
            inspector = sqlalchemy.inspect(self._engine)
            schemas = [name for name in inspector.get_schema_names() if name.lower() not in _SYSTEM_SCHEMAS]
            tables = [table for schema in schemas for table in self._tables(inspector, schema)]
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise self._unreachable(error) from None
        self._catalogue = (time.monotonic(), DatabaseCatalogue(tables, schemas))
        return self._catalogue[1]

    def _tables(self, inspector: Any, schema: str) -> list[DatabaseTable]:
        tables: list[str] = inspector.get_table_names(schema)
        views: list[str] = inspector.get_view_names(schema)
        kinds: list[tuple[str, Kind]] = [*((name, "table") for name in tables), *((name, "view") for name in views)]
        return [
            _table(inspector, schema, name, kind, columns)
            for name, kind in kinds
            if (columns := self._columns(inspector, schema, name))
        ]

    def _columns(self, inspector: Any, schema: str, name: str) -> list[DatabaseColumn]:
        """Return the columns of a table or view, from the information schema if the role may not see its definition."""
        sqlalchemy = import_sqlalchemy()
        try:
            return [_column(column) for column in inspector.get_columns(name, schema)]
        except sqlalchemy.exc.SQLAlchemyError as error:
            if isinstance(error, sqlalchemy.exc.DBAPIError) and error.connection_invalidated:
                raise
        statement = sqlalchemy.text(_COLUMNS).bindparams(schema=schema, name=name)
        with suppress(LookupError, BadKey, DatabaseUnreachable):
            return [_plain_column(*row) for row in self._read(statement, list)]
        return []

    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Read rows of a table in the requested order, or else by its key."""
        sa = import_sqlalchemy()
        source = _table_clause(sa, table)
        order = order_of(table, span)
        for column in order:
            if table.key is not None and table.column(column.name).cast not in _EXACT_TYPES:
                raise InvalidArgument(f"{table.name} cannot be ordered by {column.name}: its type is not exact.")
        order_columns = [source.c[column.name] for column in order]
        key_columns = order_columns if table.key is not None else []
        selected = [source.c[column.name] for column in span.columns(table)]
        statement = sa.select(*key_columns, *selected).limit(span.limit + 1).offset(span.offset or None)
        if span.place:
            if table.key is None:
                raise BadKey("")
            cursor_columns = columns_of_cursor(table.key, order, span.place)
            values = [
                _convert(table.column(column.name), text)
                for column, text in zip(cursor_columns, span.place, strict=True)
            ]
            statement = statement.where(_beyond(sa, cursor_columns, order_columns, values, span.where))
        for condition in span.choice.filters:
            statement = statement.where(
                _condition(sa, source.c[condition.column], table.column(condition.column), condition)
            )
        statement = statement.order_by(*_order_terms(sa, order, order_columns, backwards=span.backwards))
        width = len(key_columns)

        def convert(row: Sequence[Any]) -> TableRow:
            place = tuple([_text(value) for value in row[:width]])
            cells = tuple([render(value, bounds.cell) for value in row[width:]])
            return TableRow(key_of(table.key, order, place) if table.key else (), cells, place)

        try:
            return self._read(statement, lambda rows: collect_rows(rows, convert, span.limit, bounds), bounds.seconds)
        except BadKey as error:
            if span.choice.filters or span.choice.order:
                raise InvalidArgument(f"{table.name} cannot be read in this way: {error}.") from None
            if span.place:
                raise
            raise InternalError(f"{self.dialect} cannot read {table.name}: {error}.") from None

    def cell(self, table: DatabaseTable, key: KeyTexts, column: str, size: int, seconds: float) -> CellValue | None:
        """Read one value, or its beginning."""
        sa = import_sqlalchemy()
        source = _table_clause(sa, table)
        span = Span(where="at", place=key, limit=1, choice=RowChoice(columns=(column,)))
        if table.key is None:
            raise BadKey("")
        cursor_columns = columns_of_cursor(table.key, order_of(table, span), key)
        values = [
            _convert(table.column(key_column.name), text) for key_column, text in zip(cursor_columns, key, strict=True)
        ]
        key_columns = [source.c[key_column.name] for key_column in cursor_columns]
        statement = sa.select(source.c[column]).where(_beyond(sa, cursor_columns, key_columns, values, "at"))
        rows = self._read(statement, list, seconds)
        if not rows:
            raise LookupError(table.name)
        value = rows[0][0]
        if value is None:
            return None
        is_text = not isinstance(value, (bytes, bytearray, memoryview))
        data = str(value).encode() if is_text else bytes(cast("bytes", value))
        return CellValue(data[:size], len(data), is_text)

    def token(self) -> Hashable:
        """Return a new value each time, because changes can only be found by reading."""
        with self._lock:
            self._last_token += 1
            return self._last_token

    def table_token(self, table: DatabaseTable) -> str:
        """Return a digest of the last row's key, if the table has a key. Changes of earlier rows are not noticed."""
        last = self.rows(table, Span(where="last", limit=1), QueryBounds(cell=1)).rows if table.key else []
        return digest(str(last[0].key if last else ""))

    def estimates(self, tables: Sequence[DatabaseTable]) -> list[int | None]:
        """Return None for each table: SQLAlchemy reads no statistics."""
        return [None] * len(tables)

    def describe(self) -> list[str]:
        """Return the kind of database, why it is read-only, and how changes are found."""
        return [self.dialect, "read-only by its role, as confirmed by read_only_by_role", "watched by reading again"]

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


_COLUMNS = """
SELECT column_name, data_type, is_nullable FROM information_schema.columns
WHERE table_schema = :schema AND table_name = :name ORDER BY ordinal_position
"""


def _interrupter(connection: Any) -> Callable[[], object]:
    """Return a function that stops a statement from another thread. It does nothing if the driver cannot."""
    stop = getattr(connection, "interrupt", None) or getattr(connection, "cancel", None)

    def interrupt() -> None:
        if stop is not None:
            with suppress(Exception):
                stop()

    return interrupt


def _message(error: Any) -> str:
    return redacted_text(str(getattr(error, "orig", None) or type(error).__name__))[:300].rstrip(".")


def _code(error: Any) -> object:
    """Return the number of an error of the driver, or None."""
    arguments = getattr(getattr(error, "orig", None), "args", ())
    return arguments[0] if arguments else None


def _column(column: Any) -> DatabaseColumn:
    return DatabaseColumn(
        name=column["name"],
        type=str(column["type"]),
        nullable=bool(column.get("nullable", True)),
        default=column.get("default"),
        generated="computed" in column,
        comment=column.get("comment"),
        values=tuple(getattr(column["type"], "enums", None) or ()),
        cast=_python_type(column["type"]),
    )


def _plain_column(name: str, kind: str, nullable: str) -> DatabaseColumn:
    kind = str(kind)
    by_words = {"int": "int", "char": "str", "text": "str", "decimal": "Decimal", "datetime": "datetime"}
    cast = next((cast for word, cast in by_words.items() if word in kind.lower()), "date" if kind == "date" else "")
    return DatabaseColumn(name=str(name), type=kind, nullable=nullable != "NO", cast=cast)


def _python_type(kind: Any) -> str:
    """Return the name of the Python type of a column. It is empty for an enumeration, which may sort by its numbers."""
    if getattr(kind, "enums", None) or type(kind).__name__ == "SET":
        return ""
    try:
        return str(kind.python_type.__name__)
    except NotImplementedError:
        return ""


def _table(inspector: Any, schema: str, name: str, kind: Kind, columns: list[DatabaseColumn]) -> DatabaseTable:
    is_table = kind == "table"
    key: Any = _inspect(inspector.get_pk_constraint, name, schema, {}) if is_table else {}
    primary = tuple(key.get("constrained_columns") or ())
    usable = primary and all(column.cast in _KEY_TYPES for column in columns if column.name in primary)
    foreign: list[Any] = _inspect(inspector.get_foreign_keys, name, schema, []) if is_table else []
    indexes: list[Any] = _inspect(inspector.get_indexes, name, schema, []) if is_table else []
    checks: list[Any] = _inspect(inspector.get_check_constraints, name, schema, []) if is_table else []
    comment: Any = _inspect(inspector.get_table_comment, name, schema, {}) if is_table else {}
    return DatabaseTable(
        schema=schema,
        name=name,
        kind=kind,
        columns=tuple(columns),
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
                index["name"] or "", tuple(name or "(an expression)" for name in index["column_names"]), index["unique"]
            )
            for index in indexes
        ),
        checks=tuple(str(check["sqltext"]) for check in checks),
        comment=comment.get("text") or None,
        definition=None if is_table else _inspect(inspector.get_view_definition, name, schema, None),
    )


def _inspect(read: Callable[[str, str], Any], name: str, schema: str, otherwise: Any) -> Any:
    """Return the result of the inspector, or `otherwise` if the role or the database does not allow it."""
    try:
        return read(name, schema)
    except (import_sqlalchemy().exc.SQLAlchemyError, NotImplementedError):
        return otherwise


def _table_clause(sa: Any, table: DatabaseTable) -> Any:
    return sa.table(
        sa.quoted_name(table.name, True),
        *[sa.column(sa.quoted_name(column.name, True)) for column in table.columns],
        schema=sa.quoted_name(table.schema, True),
    )


def _text(value: object) -> str | None:
    """Convert a value to text that `_convert` can read."""
    if value is None or isinstance(value, str):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


def _convert(column: DatabaseColumn, text: str | None) -> object:
    if text is None:
        return None
    try:
        return _CONVERSIONS.get(column.cast, str)(text)
    except (ValueError, ArithmeticError):
        raise BadKey(f"{column.name} must be of type {column.type}.") from None


_SIGNS = {"eq": "__eq__", "neq": "__ne__", "gt": "__gt__", "gte": "__ge__", "lt": "__lt__", "lte": "__le__"}


def _condition(sa: Any, column: Any, definition: DatabaseColumn, row_filter: RowFilter) -> Any:
    if row_filter.operator == "is":
        return column.is_not(None) if row_filter.value == "notnull" else column.is_(None)
    if row_filter.operator == "like":
        return sa.cast(column, sa.String).ilike(like_pattern(row_filter.value), escape="!")
    try:
        value = _convert(definition, row_filter.value)
    except BadKey as error:
        raise InvalidArgument(str(error)) from None
    return getattr(column, _SIGNS[row_filter.operator])(value)


def _order_terms(sa: Any, order: Sequence[OrderColumn], columns: Sequence[Any], *, backwards: bool) -> list[Any]:
    """Return the terms of ORDER BY. Not all databases have NULLS LAST, so a separate term sorts the NULLs."""
    terms: list[Any] = []
    for order_column, column in zip(order, columns, strict=True):
        if order_column.nulls:
            null = sa.case((column.is_(None), 1), else_=0)
            terms.append(null.desc() if backwards else null.asc())
        terms.append(column.desc() if order_column.descending is not backwards else column.asc())
    return terms


def _beyond(sa: Any, order: Sequence[OrderColumn], columns: Sequence[Any], values: Sequence[object], where: str) -> Any:
    """Return the condition for rows after, before or at a place. Not all databases support row values."""
    equal = [
        column.is_(None) if value is None else column == value for column, value in zip(columns, values, strict=False)
    ]
    if where == "at":
        return sa.and_(*equal)
    backwards = where == "before"
    condition: Any = None
    for order_column, column, value, same in reversed(list(zip(order, columns, values, equal, strict=False))):
        if value is None:
            beyond = column.is_not(None) if backwards else sa.false()
        else:
            beyond = column < value if order_column.descending is not backwards else column > value
            if order_column.nulls and not backwards:
                beyond = sa.or_(beyond, column.is_(None))
        condition = beyond if condition is None else sa.or_(beyond, sa.and_(same, condition))
    first, column, value = order[0], columns[0], values[0]
    if value is None or (first.nulls and not backwards):
        return condition
    bound = column <= value if first.descending is not backwards else column >= value
    return sa.and_(bound, condition)
