"""SQLite files: pages of rows, read-only statements, and detection of changes.

Statements run in the server's threads with the standard library's sqlite3, because the authorizer, the progress handler
and `interrupt()` are methods of its connection. Asynchronous wrappers would add another thread.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from wharfinger.errors import InternalError, InvalidArgument, Overloaded
from wharfinger.source import UnusableSource
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.sql_database.database_catalogue import DatabaseCatalogue, DatabaseTable, quoted
from wharfinger.sources.sql_database.database_engine import (
    BadKey,
    CellValue,
    DatabaseEngine,
    DatabaseUnreachable,
    Parameters,
    QueryBounds,
    QueryRefused,
    Rows,
    Span,
    TableRow,
    last_modified,
    too_slow,
)
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_order import OrderColumn, key_of, order_of
from wharfinger.sources.sql_database.row_text import binary, cut_text, render
from wharfinger.sources.sql_database.span_statement import SpanStatement, collect_rows
from wharfinger.sources.sql_database.sql_uris import KeyTexts
from wharfinger.sources.sql_database.sqlite_catalogue import read_catalogue, rowid_name
from wharfinger.sources.sql_database.sqlite_safety import (
    MAX_LIKE_BYTES,
    MAX_QUERY_LENGTH,
    MAX_VALUE_BYTES,
    SLOW_FUNCTIONS,
    connect,
    deadline,
    identity,
    too_big,
)

__all__ = ["SQLite", "read_value", "write_value"]

CONNECTION_SECONDS = 5.0
"""Longest wait for a connection if all are in use."""
MAX_NULL_KEYS = 1_024
"""Maximum number of tables for which the source records whether a key contains NULL."""
ESTIMATE_SECONDS = 0.5
"""Time limit for the approximate row counts of all tables."""


class SQLite(DatabaseEngine):
    """One SQLite file."""

    dialect = "SQLite"

    def __init__(self, path: str, bounds: QueryBounds) -> None:
        self.path = os.path.abspath(path)
        self.location = self.path
        self._bounds = bounds
        self._free: queue.SimpleQueue[_PooledConnection] = queue.SimpleQueue()
        self._slots = threading.BoundedSemaphore(bounds.connections)
        self._token_lock = threading.Lock()
        self._token_connection: _PooledConnection | None = None
        self._cached: tuple[Hashable, DatabaseCatalogue] | None = None
        self._null_keys: BoundedCache[str, tuple[Hashable, bool]] = BoundedCache(MAX_NULL_KEYS)
        """By table: whether a key contains NULL, and the file's token (see `token`) when this was found out."""
        if not os.path.exists(self.path):
            raise UnusableSource(f"There is no SQLite file {self.path}.")
        if not os.path.isfile(self.path):
            raise UnusableSource(f"{self.path} is not a file: give the path of an SQLite file.")
        try:
            connect(self.path).close()
        except sqlite3.Error as error:
            raise UnusableSource(f"{self.path} cannot be read as an SQLite file: {error}.") from None

    # Connections

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        """Yield a connection for our own statements, to the file that is now at the path."""
        if not self._slots.acquire(timeout=CONNECTION_SECONDS):
            raise Overloaded(f"All connections to {os.path.basename(self.path)} are in use: try again later.")
        try:
            pooled = self._take()
            try:
                yield pooled.connection
            except (sqlite3.DatabaseError, DatabaseUnreachable):
                pooled.connection.close()
                raise
            except BaseException:
                self._free.put(pooled)
                raise
            self._free.put(pooled)
        finally:
            self._slots.release()

    def _take(self) -> _PooledConnection:
        try:
            file = identity(self.path)
            while True:
                try:
                    pooled = self._free.get_nowait()
                except queue.Empty:
                    return _PooledConnection(connect(self.path), file)
                if pooled.file == file:
                    return pooled
                pooled.connection.close()
        except (OSError, sqlite3.Error) as error:
            self._raise_if_unavailable(error)
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> DatabaseUnreachable:
        reason = str(error)
        if isinstance(error, OSError):  # its text has the path
            reason = "it no longer exists" if isinstance(error, FileNotFoundError) else error.strerror or "an error"
        return DatabaseUnreachable(f"The SQLite file {os.path.basename(self.path)} cannot be read: {reason}.")

    def close(self) -> None:
        """Close all connections that are not in use."""
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().connection.close()
        with self._token_lock:
            if self._token_connection is not None:
                self._token_connection.connection.close()
                self._token_connection = None

    # Catalogue

    def catalogue(self, age: float = 0.0) -> DatabaseCatalogue:
        """Return the tables of the file. Reads them again after the schema changed."""
        with self._connection() as connection, self._time_limit(connection):
            version = (identity(self.path), connection.execute("PRAGMA schema_version").fetchone()[0])
            cached = self._cached
            if cached is None or cached[0] != version:
                cached = self._cached = (version, read_catalogue(connection))
            return cached[1]

    @contextmanager
    def _time_limit(self, connection: sqlite3.Connection, seconds: float | None = None) -> Generator[None]:
        seconds = self._bounds.seconds if seconds is None else seconds
        with deadline(connection, seconds) as stopped:
            try:
                yield
            except sqlite3.Error as error:
                if stopped():
                    raise too_slow(seconds) from None
                self._raise_if_unavailable(error)
                raise

    def _raise_if_unavailable(self, error: Exception) -> None:
        """Raise an error for the client if the file, and not the statement, caused `error`."""
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise Overloaded(f"{os.path.basename(self.path)} is locked by a writer: try again.") from None
        if code.startswith(_BROKEN):
            raise self._unreachable(error) from error

    # Rows

    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Read rows of a table in the requested order, or else by its key."""
        with (
            self._connection() as connection,
            self._time_limit(connection, bounds.seconds),
            _dropped_as_lookup_error(table),
        ):
            select = _Select(table, span, ties=self._needs_ties(connection, table, span))
            try:
                try:
                    with closing(connection.execute(*select.statement())) as cursor:
                        return select.collect(cursor, bounds)
                except sqlite3.DataError as error:
                    if table.key is None or not too_big(error):
                        raise
                return select.collect(_rows_in_part(connection, select, bounds), bounds)
            except sqlite3.DataError as error:
                if not too_big(error):
                    raise
                hint = "read its tables" if table.key is None else "order by other columns"
                reason = f"A value of {table.name} is larger than {MAX_VALUE_BYTES >> 20} MiB: {hint}."
                raise InternalError(reason) from None

    def _needs_ties(self, connection: sqlite3.Connection, table: DatabaseTable, span: Span) -> bool:
        """Return whether rows must also be ordered by rowid.

        That is so if the key of some row contains NULL, or if the span starts at a place that includes a rowid, because
        it was made with this order.
        """
        key = table.key
        if key is None or not key.tie:
            return False
        if None in span.place or len(span.place) > len(order_of(table, span)):
            return True
        if span.where == "at":
            return False
        token = self.token()
        known = self._null_keys.get(table.name)
        if known is None or known[0] != token:
            # May read the whole table: 125 ms for each million keys of two columns.
            null = " OR ".join([f"t.{quoted(name)} IS NULL" for name in key.columns])
            statement = f"SELECT EXISTS (SELECT 1 FROM main.{quoted(table.name)} AS t WHERE {null})"  # noqa: S608 - the catalogue's names
            has_null = bool(connection.execute(statement).fetchone()[0])
            known = self._null_keys.put(table.name, (token, has_null))
        return known[1]

    def cell(self, table: DatabaseTable, key: KeyTexts, column: str, size: int, seconds: float) -> CellValue | None:
        """Read one value, or its beginning."""
        with self._connection() as connection, self._time_limit(connection, seconds), _dropped_as_lookup_error(table):
            span = Span(where="at", place=key, limit=1)
            select = _Select(table, span, ties=self._needs_ties(connection, table, span))
            try:
                row = connection.execute(*select.statement([select.column_expression(column)])).fetchone()
            except sqlite3.DataError as error:
                if not too_big(error):
                    raise
                # If not even the beginning can be read, its size is not known: at least `MAX_VALUE_BYTES`.
                return _beginning(connection, select, column, size) or CellValue(b"", MAX_VALUE_BYTES, True)
            if row is None:
                raise LookupError(table.name)
            value = row[-1]
            if value is None:
                return None
            data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
            return CellValue(data[:size], len(data), not isinstance(value, bytes))

    def estimates(self, tables: Sequence[DatabaseTable]) -> list[int | None]:
        """Return the row counts of ANALYZE, or else the size of the range of an integer key."""
        estimates: list[int | None] = [None] * len(tables)
        with (
            suppress(sqlite3.Error, InternalError),
            self._connection() as connection,
            self._time_limit(connection, ESTIMATE_SECONDS),
        ):
            counts = _analyze_counts(connection)
            for index, table in enumerate(tables):
                estimates[index] = counts[table.name] if table.name in counts else _key_range_size(connection, table)
        return estimates

    # Changes

    def token(self) -> Hashable:
        """Return the file's identity and `PRAGMA data_version`, which changes after another connection writes."""
        with self._token_lock:
            try:
                file = identity(self.path)
                if self._token_connection is None or self._token_connection.file != file:
                    if self._token_connection is not None:
                        self._token_connection.connection.close()
                    self._token_connection = _PooledConnection(connect(self.path), file)
                version = self._token_connection.connection.execute("PRAGMA data_version").fetchone()[0]
                return file, self._token_connection.id, version
            except (OSError, sqlite3.Error) as error:
                self._raise_if_unavailable(error)  # `Overloaded` if the file is only locked
                raise self._unreachable(error) from error

    def table_token(self, table: DatabaseTable) -> str:
        """Return the token of the whole file: SQLite does not report which table changed."""
        return repr(self.token())

    def modified(self) -> float | None:
        """Return the Unix time of the last write to the file or its write-ahead log."""
        return last_modified(self.path, f"{self.path}-wal")

    # Statements of callers

    def query(
        self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds, *, explain: bool = False
    ) -> tuple[list[str], Rows]:
        """Run a caller's statement on a separate connection, or explain it (EXPLAIN QUERY PLAN)."""
        if "\0" in statement:
            raise QueryRefused("The statement contains a NUL character.")
        if not self._slots.acquire(timeout=CONNECTION_SECONDS):
            raise Overloaded(f"All connections to {os.path.basename(self.path)} are in use: try again later.")
        try:
            try:
                connection = connect(self.path, for_query=True)
            except sqlite3.Error as error:
                self._raise_if_unavailable(error)
                raise self._unreachable(error) from error
            with closing(connection):
                if not explain:
                    return self._run(connection, statement, parameters, limit, bounds)
                _, found = self._run(connection, f"EXPLAIN QUERY PLAN {statement}", parameters, limit, bounds)
                return ["plan"], Rows([TableRow((), row.cells[3:]) for row in found.rows], found.more)
        finally:
            self._slots.release()

    def _run(
        self, connection: sqlite3.Connection, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds
    ) -> tuple[list[str], Rows]:
        with deadline(connection, bounds.seconds) as stopped:
            try:
                cursor = connection.execute(statement, parameters)
                if cursor.description is None:
                    raise QueryRefused("The statement returns no rows: run one SELECT.")
                names = [column[0] for column in cursor.description]
                return names, collect_rows(cursor, lambda row: TableRow((), _cells(row, bounds)), limit, bounds)
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
                if stopped():
                    raise QueryRefused(f"The statement was stopped after {bounds.seconds:g} s.") from None
                self._raise_if_unavailable(error)
                raise QueryRefused(_reason(error)) from None

    def describe(self) -> list[str]:
        """Return the version of SQLite, and that the file is opened read-only."""
        return [f"SQLite {sqlite3.sqlite_version}", "opened read-only"]


class _PooledConnection:
    """A connection and the file that it has open."""

    _count = 0

    def __init__(self, connection: sqlite3.Connection, file: tuple[int, int]) -> None:
        self.connection = connection
        self.file = file
        _PooledConnection._count += 1
        self.id = f"{os.getpid()}.{time.monotonic_ns()}.{_PooledConnection._count}"
        """Different for each connection: `data_version` values of two connections cannot be compared."""


# Statements


class _Select(SpanStatement):
    """The statement that reads a span of a table of SQLite.

    Each column is written with its table: SQLite reads a name in double quotes as a text if there is no such column.
    """

    def order_expression(self, column: OrderColumn) -> str:
        return self.column_expression(column.name) + (
            f" COLLATE {quoted(column.collation)}" if column.collation else ""
        )

    def key_value(self, name: str, text: str) -> str:
        key = self.table.key
        value = read_value(text)
        if key is not None and key.integer and not self.span.choice.order and not isinstance(value, int):
            raise BadKey(f"{key.columns[0]} must be an integer.")
        placeholder = self._add(value)
        return f"CAST({placeholder} AS TEXT)" if text.startswith("t'") else placeholder

    def _add(self, value: object) -> str:
        self.values.append(value)
        return f":p{len(self.values) - 1}"  # by name: Python 3.12.0 to 3.12.3 warn about numbered parameters

    def like(self, name: str, pattern: str) -> str:
        if len(pattern.encode()) > MAX_LIKE_BYTES:
            raise InvalidArgument(
                f"{name[:100]}=like. takes at most {MAX_LIKE_BYTES} bytes in SQLite: use a shorter text."
            )
        return f"{self.column_expression(name)} LIKE {self._add(pattern)} ESCAPE '!'"

    def compare(self, name: str, sign: str, text: str) -> str:
        """Return the SQL of a comparison. SQLite converts a parameter to the affinity of the column, if it has one.

        A column without affinity, such as an expression in a view, is compared by the type of each value.
        """
        declared, column = self.table.column(name).type.upper(), self.column_expression(name)
        if declared.startswith("BOOL") and text.lower() in ("true", "false"):
            return f"{column} {sign} {int(text.lower() == 'true')}"
        as_text = f"{column} {sign} {self._add(text)}"
        if any(word in declared for word in ("CHAR", "CLOB", "TEXT")) or (declared and "BLOB" not in declared):
            return as_text
        amount = _number(text)
        if amount is None:
            return as_text
        return f"CASE typeof({column}) WHEN 'text' THEN {as_text} ELSE {column} {sign} {self._add(amount)} END"

    def statement(self, expressions: Sequence[str] | None = None) -> tuple[str, dict[str, object]]:
        """Return the SQL and its parameters.

        It selects the columns of the order, if the table has a key, and then `expressions` or the chosen columns.
        """
        keys = self.order if self.table.key is not None else ()
        selected = [self.column_expression(column.name) for column in keys]
        if expressions is None:
            expressions = [self.column_expression(column.name) for column in self.columns]
        return self.select([*selected, *expressions]), self.parameters

    def collect(self, rows: Iterable[Sequence[object]], bounds: QueryBounds) -> Rows:
        """Return as many rows as the bounds allow, at least one."""
        width = len(self.order) if self.table.key is not None else 0

        def convert(values: Sequence[object]) -> TableRow:
            place = tuple([write_value(value) for value in values[:width]])
            return self.row(place, _cells(values[width:], bounds))

        return collect_rows(rows, convert, self.span.limit, bounds)


@contextmanager
def _dropped_as_lookup_error(table: DatabaseTable) -> Generator[None]:
    """Raise LookupError if the table, or a column of it, was dropped since the catalogue was read."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if str(error).startswith(("no such table", "no such column")):
            raise LookupError(table.name) from None
        raise


def _analyze_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the row counts of ANALYZE, by table."""
    try:
        rows = connection.execute("SELECT tbl, stat FROM sqlite_stat1 WHERE stat IS NOT NULL").fetchall()
    except sqlite3.OperationalError:
        return {}
    counts: dict[str, int] = {}
    for name, stat in rows:  # one for each index, which has fewer rows than the table if it is partial
        first = str(stat).partition(" ")[0]
        if first.isdecimal():
            counts[str(name)] = max(counts.get(str(name), 0), int(first))
    return counts


def _key_range_size(connection: sqlite3.Connection, table: DatabaseTable) -> int | None:
    """Return how many integers there are from the first to the last value of an integer key; None for other keys."""
    if table.kind != "table" or table.key is None or not table.key.integer:
        return None
    name, key = quoted(table.name), quoted(table.key.columns[0])
    low, high = connection.execute(
        f"SELECT (SELECT min({key}) FROM main.{name}), (SELECT max({key}) FROM main.{name})"  # noqa: S608 - the catalogue's names
    ).fetchone()
    return 0 if low is None else high - low + 1 if isinstance(low, int) else None


def write_value(value: object) -> str | None:
    """Write a value of a key as text, or None for NULL.

    Numbers are written unchanged. Other values have a prefix: `'` before a text that could be read as something else,
    `x'` before bytes, in hex, and `t'` before a text that contains NUL or is not UTF-8, in hex.
    """
    if value is None:
        return None
    if isinstance(value, bytes):
        return "x'" + value.hex()
    if not isinstance(value, str):
        return repr(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        return "t'" + value.encode("utf-8", "surrogateescape").hex()
    plain = value and not value.startswith(("'", "x'", "t'")) and _number(value) is None and "\0" not in value
    return value if plain else "t'" + value.encode().hex() if "\0" in value else "'" + value


def read_value(text: str) -> object:
    """Read a value from the text that `write_value` wrote. A text after `t'` is returned as its bytes.

    Raises:
        BadKey: the hex is invalid.
    """
    if text.startswith("'"):
        return text[1:]
    if text.startswith(("x'", "t'")):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise BadKey("The hex in this key is invalid.") from None
    number = _number(text)
    return text if number is None else number


def _number(text: str) -> int | float | None:
    if len(text) > 32 or not text.isascii() or "_" in text:
        return None
    try:
        integer = int(text)
        return integer if -(2**63) <= integer < 2**63 else None
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _rows_in_part(connection: sqlite3.Connection, select: _Select, bounds: QueryBounds) -> Iterator[Sequence[object]]:
    """Read rows of a table with a key. A cell that is larger than a statement may load is read in part."""
    table, key = select.table, select.table.key
    assert key is not None
    for place in connection.execute(*select.statement([])).fetchall():
        texts = key_of(key, select.order, tuple([write_value(value) for value in place]))
        span = Span(where="at", place=texts, limit=1, choice=RowChoice(columns=select.span.choice.columns))
        row_select = _Select(table, span, ties=None in texts)
        try:
            for row in connection.execute(*row_select.statement()).fetchall():
                yield (*place, *row[len(row_select.order) :])
        except sqlite3.DataError:
            yield (
                *place,
                *[_read_cell(connection, row_select, column.name, bounds) for column in row_select.columns],
            )


def _cells(values: Sequence[object], bounds: QueryBounds) -> tuple[object, ...]:
    return tuple([value.json if isinstance(value, _RenderedCell) else render(value, bounds.cell) for value in values])


class _RenderedCell(NamedTuple):
    """A cell that is already converted to JSON."""

    json: object


def _read_cell(connection: sqlite3.Connection, select: _Select, column: str, bounds: QueryBounds) -> object:
    """Read one cell completely if a statement may load it, otherwise its beginning."""
    with suppress(sqlite3.DataError):
        row = connection.execute(*select.statement([select.column_expression(column)])).fetchone()
        return row[-1] if row else None
    beginning = _beginning(connection, select, column, bounds.cell)
    if beginning is None:
        return _RenderedCell({"cut": True, "text": ""})
    if not beginning.is_text:
        return _RenderedCell(binary(beginning.data, beginning.size))
    return _RenderedCell(cut_text(beginning.data.decode("utf-8", "ignore"), bounds.cell, beginning.size))


def _beginning(connection: sqlite3.Connection, select: _Select, column: str, size: int) -> CellValue | None:
    """Read the beginning of a cell that is too large for a statement.

    Returns None if that is not possible, for example because the table has no rowid, or the column is generated.
    """
    rowid = rowid_name([column.name for column in select.table.columns])
    try:
        expressions = [f"typeof({select.column_expression(column)})", rowid or "NULL"]
        kind, number = connection.execute(*select.statement(expressions)).fetchone()[-2:]
        encoding = connection.execute("PRAGMA encoding").fetchone()[0]
        with connection.blobopen(select.table.name, column, number, readonly=True) as blob:
            if kind == "blob" or encoding == "UTF-8":
                return CellValue(blob.read(size), len(blob), kind != "blob")
            # The bytes of a text are those in the file: at least two for each byte in UTF-8 that is kept.
            text = blob.read(2 * size).decode(encoding, "ignore")
            return CellValue(text.encode()[:size], len(blob), True)
    except (sqlite3.Error, TypeError) as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":  # the deadline
            raise
        return None


_BROKEN = ("SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_IOERR", "SQLITE_NOTADB", "SQLITE_PROTOCOL")
_REASONS: dict[str, str] = {
    "SQLITE_AUTH": "Only one SELECT is allowed, which can only read",
    "SQLITE_TOOBIG": f"A text or blob of the statement is larger than {MAX_QUERY_LENGTH >> 20} MiB, or than a slow "
    f"function takes ({', '.join(f'{name}: {limit >> 10} KiB' for name, limit in SLOW_FUNCTIONS.items())})",
    "SQLITE_READONLY": "The file is opened read-only",
    "SQLITE_INTERRUPT": "The statement was stopped",
}


def _reason(error: Exception) -> str:
    if "one statement at a time" in str(error):
        return "Only one statement can be run at a time."
    code = getattr(error, "sqlite_errorname", "")
    reason = next((text for name, text in _REASONS.items() if code.startswith(name)), "SQLite cannot run it")
    return f"{reason}: {error}."
