"""SQLite files: rows in windows, statements that only read, and changes.

It runs in the server's threads with the standard library's sqlite3, because the authorizer, the progress handler and
`interrupt()` are methods of its connection. Asynchronous wrappers would add another thread.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from wharfinger.errors import InternalError, Overloaded
from wharfinger.source import UnusableSource
from wharfinger.sources.sql_database.catalogue import Catalogue, DatabaseTable, UniqueKey
from wharfinger.sources.sql_database.database_engine import (
    BadKey,
    DatabaseEngine,
    DatabaseUnreachable,
    Parameters,
    QueryBounds,
    QueryRefused,
    Rows,
    Span,
    TableRow,
    too_slow,
)
from wharfinger.sources.sql_database.row_text import cut_bytes, cut_text, render
from wharfinger.sources.sql_database.sqlite_catalogue import read_catalogue, rowid_name
from wharfinger.sources.sql_database.sqlite_safety import (
    MAX_LENGTH,
    MAX_QUERY_LENGTH,
    SLOW_FUNCTIONS,
    connect,
    deadline,
    identity,
    quoted,
    too_big,
)

__all__ = ["SQLite", "read_value", "write_value"]

CONNECTION_SECONDS = 5.0
"""How long to wait for a connection if all are in use."""


class SQLite(DatabaseEngine):
    """One SQLite file."""

    dialect = "SQLite"

    def __init__(self, path: str, bounds: QueryBounds) -> None:
        self.path = os.path.abspath(path)
        self.location = self.path
        self._bounds = bounds
        self._free: queue.SimpleQueue[_Pooled] = queue.SimpleQueue()
        self._slots = threading.BoundedSemaphore(bounds.connections)
        self._token_lock = threading.Lock()
        self._token_connection: _Pooled | None = None
        self._known: tuple[Hashable, Catalogue] | None = None
        self._check()

    def _check(self) -> None:
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
        """A connection for our own statements, to the file that is at the path now."""
        if not self._slots.acquire(timeout=CONNECTION_SECONDS):
            raise Overloaded(f"All connections to {os.path.basename(self.path)} are in use: try again later.")
        try:
            pooled = self._take()
            try:
                yield pooled.connection
            except sqlite3.DatabaseError:
                pooled.connection.close()
                raise
            except BaseException:
                self._free.put(pooled)
                raise
            self._free.put(pooled)
        finally:
            self._slots.release()

    def _take(self) -> _Pooled:
        try:
            now = identity(self.path)
            while True:
                try:
                    pooled = self._free.get_nowait()
                except queue.Empty:
                    return _Pooled(connect(self.path), now)
                if pooled.file == now:
                    return pooled
                pooled.connection.close()
        except (OSError, sqlite3.Error) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> DatabaseUnreachable:
        why = "it no longer exists" if isinstance(error, FileNotFoundError) else str(error)
        return DatabaseUnreachable(f"The SQLite file {os.path.basename(self.path)} cannot be read: {why}.")

    def close(self) -> None:
        """Close all connections."""
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().connection.close()
        with self._token_lock:
            if self._token_connection is not None:
                self._token_connection.connection.close()
                self._token_connection = None

    # Catalogue

    def catalogue(self, age: float = 0.0) -> Catalogue:
        """The tables of the file, read again after its schema changed."""
        with self._connection() as connection, self._bounded(connection):
            version = (identity(self.path), connection.execute("PRAGMA schema_version").fetchone()[0])
            known = self._known
            if known is None or known[0] != version:
                known = self._known = (version, read_catalogue(connection))
            return known[1]

    @contextmanager
    def _bounded(self, connection: sqlite3.Connection, seconds: float | None = None) -> Generator[None]:
        seconds = self._bounds.seconds if seconds is None else seconds
        with deadline(connection, seconds) as stopped:
            try:
                yield
            except sqlite3.Error as error:
                if stopped():
                    raise too_slow(seconds) from None
                if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                    raise Overloaded(f"{os.path.basename(self.path)} is locked by a writer: try again.") from None
                raise

    # Rows

    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Read rows of a table in the order of its key."""
        statement, values = _window(table, span)
        width = len(table.key.columns) if table.key else 0
        with self._connection() as connection:
            try:
                with self._bounded(connection, bounds.seconds):
                    return _collect(_fetch(connection, statement, values), width, span.limit, bounds)
            except sqlite3.OperationalError as error:
                if str(error).startswith(("no such table", "no such column")):
                    raise LookupError(table.name) from None
                raise
            except sqlite3.DataError as error:
                if not too_big(error):
                    raise
            if table.key is None:
                raise InternalError(f"A value of {table.name} is larger than {MAX_LENGTH >> 20} MiB: read its tables.")
            with self._bounded(connection, bounds.seconds):
                rows = self._rows_in_part(connection, table, span, bounds)
                return _collect(rows, width, span.limit, bounds)

    def _rows_in_part(
        self, connection: sqlite3.Connection, table: DatabaseTable, span: Span, bounds: QueryBounds
    ) -> Iterator[Sequence[object]]:
        """Read rows of which a cell is larger than a statement may load; that cell is read in part."""
        keys, values = _window(table, span, shown=[])
        for key in connection.execute(keys, values).fetchall() if table.key else ():
            texts = tuple(write_value(value) for value in key)
            one, at = _window(table, Span(where="at", key=texts, limit=1))
            try:
                yield from connection.execute(one, at).fetchall()
            except sqlite3.DataError:
                yield (*key, *[_cell(connection, table, texts, column.name, bounds) for column in table.columns])

    def estimate(self, table: DatabaseTable) -> int | None:
        """The count of ANALYZE; for a table with an integer key, the distance between its first and last value."""
        with self._connection() as connection, self._bounded(connection, 0.5), suppress(sqlite3.Error):
            try:
                found = connection.execute("SELECT stat FROM sqlite_stat1 WHERE tbl = ?", (table.name,)).fetchone()
            except sqlite3.OperationalError:
                found = None
            if found and (number := str(found[0]).split()[0]).isdigit():
                return int(number)
            if table.kind == "table" and table.key is not None and table.key.integer:
                name, key = quoted(table.name), quoted(table.key.columns[0])
                low, high = connection.execute(
                    f"SELECT (SELECT min({key}) FROM {name}), (SELECT max({key}) FROM {name})"  # noqa: S608 - the catalogue's names
                ).fetchone()
                return 0 if low is None else high - low + 1 if isinstance(low, int) else None
        return None

    # Changes

    def token(self) -> Hashable:
        """The file's identity, and `PRAGMA data_version`, which differs after another connection wrote."""
        with self._token_lock:
            try:
                now = identity(self.path)
                if self._token_connection is None or self._token_connection.file != now:
                    if self._token_connection is not None:
                        self._token_connection.connection.close()
                    self._token_connection = _Pooled(connect(self.path), now)
                version = self._token_connection.connection.execute("PRAGMA data_version").fetchone()[0]
                return now, self._token_connection.number, version
            except (OSError, sqlite3.Error) as error:
                raise self._unreachable(error) from error

    def table_token(self, table: DatabaseTable) -> str:
        """The token of the whole file: SQLite does not report which table changed."""
        return repr(self.token())

    def modified(self) -> float | None:
        """When the file, or its write-ahead log, was last written."""
        times: list[float] = []
        for path in (self.path, self.path + "-wal"):
            with suppress(OSError):
                times.append(os.stat(path).st_mtime)
        return max(times, default=None)

    # Statements of callers

    def query(self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds) -> tuple[list[str], Rows]:
        """Run a caller's statement on a connection of its own."""
        if "\0" in statement:
            raise QueryRefused("The statement contains a NUL character.")
        if not self._slots.acquire(timeout=CONNECTION_SECONDS):
            raise Overloaded(f"All connections to {os.path.basename(self.path)} are in use: try again later.")
        try:
            try:
                connection = connect(self.path, for_query=True)
            except sqlite3.Error as error:
                raise self._unreachable(error) from error
            with closing(connection):
                return _run(connection, statement, parameters, limit, bounds)
        finally:
            self._slots.release()

    def describe(self) -> list[str]:
        """The version of SQLite."""
        return [f"SQLite {sqlite3.sqlite_version}", "opened read-only"]


class _Pooled:
    """A connection and the file that it has open."""

    _count = 0

    def __init__(self, connection: sqlite3.Connection, file: tuple[int, int]) -> None:
        self.connection = connection
        self.file = file
        _Pooled._count += 1
        self.number = f"{os.getpid()}.{time.monotonic_ns()}.{_Pooled._count}"


# Statements


def _window(table: DatabaseTable, span: Span, shown: Sequence[str] | None = None) -> tuple[str, list[object]]:
    """The statement that reads a span: the columns of the key, then all columns; one row more than requested."""
    key = table.key
    wanted = [quoted(name) for name in key.columns] if key else []
    wanted += [quoted(column.name) for column in table.columns] if shown is None else shown
    statement = f"SELECT {', '.join(wanted)} FROM main.{quoted(table.name)}"  # noqa: S608 - the catalogue's names
    values: list[object] = []
    if key is not None:
        ordered = _ordered(key)
        if span.key:
            marks, values = _parameters(key, span.key)
            compared = _comparison(key, span)
            statement += f" WHERE ({', '.join(ordered)}) {compared} ({', '.join(marks)})"
            if key.collations and len(marks) > 1:  # so that SQLite uses an index for the first column at least
                statement += f" AND {ordered[0]} {compared[0]}= {marks[0]}"
                values = [*values, values[0]]
        if span.where != "at":
            down = " DESC" if key.descending is not span.backwards else ""
            statement += " ORDER BY " + ", ".join([name + down for name in ordered])
    return f"{statement} LIMIT {span.limit + 1}", values


def _ordered(key: UniqueKey) -> list[str]:
    names = [quoted(name) for name in key.columns]
    if not key.collations:
        return names
    return [f"{name} COLLATE {quoted(collation)}" for name, collation in zip(names, key.collations, strict=True)]


def _comparison(key: UniqueKey, span: Span) -> str:
    if span.where == "at":
        return "="
    return "<" if (span.where == "before") is not key.descending else ">"


def _parameters(key: UniqueKey, texts: Sequence[str]) -> tuple[list[str], list[object]]:
    if len(texts) != len(key.columns):
        raise BadKey(f"The key has {len(key.columns)} parts: {', '.join(key.columns)}.")
    values = [read_value(text) for text in texts]
    if key.integer and not isinstance(values[0], int):
        raise BadKey(f"{key.columns[0]} must be an integer.")
    marks = ["CAST(? AS TEXT)" if text.startswith("t'") else "?" for text in texts]
    return marks, values


def write_value(value: object) -> str:
    """Write a value of a key as text.

    Numbers stay as they are; `'` precedes a text that could be read as something else, `x'` the hex of bytes, and `t'`
    the hex of a text that contains NUL or is not UTF-8.
    """
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
    """Read what `write_value` wrote.

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
        whole = int(text)
        return whole if -(2**63) <= whole < 2**63 else None
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _fetch(connection: sqlite3.Connection, statement: str, values: Sequence[object]) -> Iterator[Sequence[object]]:
    cursor = connection.execute(statement, values)
    try:
        yield from cursor
    finally:
        cursor.close()


def _collect(found: Iterator[Sequence[object]], width: int, limit: int, bounds: QueryBounds) -> Rows:
    """As many rows as the bounds allow, as JSON; at least one."""
    rows: list[TableRow] = []
    size = 0
    for values in found:
        cells = tuple(
            value.json if isinstance(value, _Rendered) else render(value, bounds.cell) for value in values[width:]
        )
        size += sum(_size(cell) for cell in cells)
        if len(rows) == limit or (size > bounds.size and rows):
            return Rows(rows, True)
        rows.append(TableRow(tuple(write_value(value) for value in values[:width]), cells))
    return Rows(rows, False)


def _size(cell: object) -> int:
    if isinstance(cell, str):
        return len(cell) + 2
    return len(repr(cell))


class _Rendered(NamedTuple):
    """A cell that is already converted to JSON."""

    json: object


def _cell(
    connection: sqlite3.Connection, table: DatabaseTable, key: tuple[str, ...], column: str, bounds: QueryBounds
) -> object:
    """Read one cell: the whole of it if a statement may load it, otherwise its beginning."""
    at = Span(where="at", key=key, limit=1)
    statement, values = _window(table, at, [quoted(column)])
    with suppress(sqlite3.DataError):
        found = connection.execute(statement, values).fetchone()
        return found[-1] if found else None
    rowid = rowid_name([one.name for one in table.columns])
    try:
        statement, values = _window(table, at, [f"typeof({quoted(column)})", rowid or "NULL"])
        kind, number = connection.execute(statement, values).fetchone()[-2:]
        with connection.blobopen(table.name, column, number, readonly=True) as blob:
            size, beginning = len(blob), blob.read(bounds.cell)
    except (sqlite3.Error, TypeError):  # it has no rowid, or the column is generated
        return _Rendered({"cut": True, "text": ""})
    if kind == "blob":
        return _Rendered(cut_bytes(beginning, bounds.cell, size))
    return _Rendered(cut_text(beginning.decode("utf-8", "ignore"), bounds.cell, size))


def _run(
    connection: sqlite3.Connection, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds
) -> tuple[list[str], Rows]:
    with deadline(connection, bounds.seconds) as stopped:
        try:
            cursor = connection.execute(statement, parameters)
            if cursor.description is None:
                raise QueryRefused("The statement returns no rows: run one SELECT.")
            names = [column[0] for column in cursor.description]
            return names, _collect(iter(cursor), 0, limit, bounds)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            if stopped():
                raise QueryRefused(f"The statement was stopped after {bounds.seconds:g} s.") from None
            raise QueryRefused(_why(error)) from None


_REASONS: dict[str, str] = {
    "SQLITE_AUTH": "Only one SELECT is allowed, which can only read",
    "SQLITE_TOOBIG": f"A text or blob of the statement is larger than {MAX_QUERY_LENGTH >> 20} MiB, or in "
    + ", ".join(f"{name} than {limit >> 10} KiB" for name, limit in SLOW_FUNCTIONS.items()),
    "SQLITE_READONLY": "The file is opened read-only",
    "SQLITE_INTERRUPT": "The statement was stopped",
}


def _why(error: Exception) -> str:
    if "one statement at a time" in str(error):
        return "Only one statement can be run at a time."
    code = getattr(error, "sqlite_errorname", "")
    reason = next((text for name, text in _REASONS.items() if code.startswith(name)), "SQLite cannot run it")
    return f"{reason}: {error}."
