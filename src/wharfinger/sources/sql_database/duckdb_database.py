"""DuckDB files: rows in windows, read-only statements, and detection of changes.

While a process has a file open for reading, no other process can open it for writing; while one has it open for
writing, no other can open it. Therefore it is open only while requests read it, and a tenth of a second longer, because
opening takes about 20 ms. If requests follow each other for a second, it is closed as soon as none reads it.

The content of the file may be hostile: its views are SQL. They can only read the file itself, because external access,
extensions and changes of settings are disabled. Callers' statements are parsed and run in a child process (see
`table_files.query_process`), because DuckDB's parser takes exponential time for some of them, and cannot be stopped.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from wharfinger.errors import InternalError, InvalidArgument, MissingExtra
from wharfinger.source import UnusableSource
from wharfinger.sources.child_process import ChildProcesses
from wharfinger.sources.interrupt_timer import InterruptTimer
from wharfinger.sources.sql_database.database_catalogue import DatabaseCatalogue, DatabaseTable
from wharfinger.sources.sql_database.database_engine import (
    BadKey,
    CellValue,
    DatabaseEngine,
    DatabaseUnreachable,
    Parameters,
    QueryBounds,
    Rows,
    Span,
    last_modified,
    stopped_early,
    too_slow,
)
from wharfinger.sources.sql_database.duckdb_catalogue import read_catalogue
from wharfinger.sources.sql_database.duckdb_rows import FileStatement, cell_statement, cell_value
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["DuckDBFile"]

T = TypeVar("T")

MEMORY, THREADS = "256MB", 2
FETCHED_ROWS = 64
"""Rows that are fetched at once. Their values are cut by DuckDB."""

LOCK_SECONDS = 1.0
"""Time that a request waits for a writer that has locked the file; none if the last attempt to open it failed."""
IDLE_SECONDS = 0.1
"""Time after the last request at which the file is closed."""
OPEN_SECONDS = 1.0
"""Time after which the file is closed as soon as no request reads it, so that writers can open it."""

_CONFIGURATION = {
    "access_mode": "READ_ONLY",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "memory_limit": MEMORY,
    "temp_directory": "",
    "threads": str(THREADS),
}


def driver() -> Any:
    """Import `duckdb`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("tables", "Publishing a DuckDB file") from None
    return duckdb


class DuckDBFile(DatabaseEngine):
    """One DuckDB file."""

    dialect = "DuckDB"

    def __init__(self, path: str, bounds: QueryBounds) -> None:
        self.path = os.path.abspath(path)
        self.location = self.path
        self._name = os.path.basename(path)
        self._bounds = bounds
        self._slots = threading.BoundedSemaphore(bounds.connections)
        self._lock = threading.Lock()
        self._cursors: dict[Any, InterruptTimer] = {}
        self._connection: Any = None
        self._opened_at = 0.0
        self._open_file_id: tuple[int, ...] = ()
        """The device and inode of the file that is open."""
        self._close_timer: threading.Timer | None = None
        self._failed = False  # whether the last attempt to open the file failed
        self._cached: tuple[Hashable, DatabaseCatalogue] | None = None
        self._children = ChildProcesses()
        driver()
        if not os.path.exists(self.path):
            raise UnusableSource(f"There is no DuckDB file {self.path}.")
        if not os.path.isfile(self.path):
            raise UnusableSource(f"{self.path} is not a file: give the path of a DuckDB file.")
        with open(self.path, "rb") as file:
            if file.read(12)[8:] != b"DUCK":
                raise UnusableSource(f"{self.path} is not a DuckDB file.")

    # Connections

    @contextmanager
    def _cursor(self, seconds: float) -> Generator[Any]:
        """Yield a cursor, which is interrupted after some seconds."""
        duckdb = driver()
        with self._slots:
            began = time.monotonic()
            cursor = self._open_cursor(seconds)
            try:
                yield cursor
            except duckdb.InterruptException:
                raise (too_slow(seconds) if time.monotonic() - began >= seconds else stopped_early()) from None
            except duckdb.OutOfMemoryException:
                raise InternalError(f"{self._name} cannot be read in this way within {MEMORY} of memory.") from None
            except (duckdb.IOException, duckdb.InternalException, duckdb.FatalException) as error:
                raise self._unreachable(error) from None
            finally:
                self._close_cursor(cursor)

    def _open_cursor(self, seconds: float) -> Any:
        with self._lock:
            if self._close_timer is not None:
                self._close_timer.cancel()
                self._close_timer = None
            if self._connection is not None and not self._cursors and self._open_file_id != self._identity()[0][:2]:
                self._close_file()  # another file was put at this path
            if self._connection is None:
                self._open_file_id = self._identity()[0][:2]
                self._connection = self._connect()
                self._opened_at = time.monotonic()
            cursor = self._connection.cursor()
            timer = self._cursors[cursor] = InterruptTimer(cursor.interrupt, seconds)
            timer.start()
            return cursor

    def _close_cursor(self, cursor: Any) -> None:
        """Close a cursor. After the last one, close the file: at once if it was open for long, else when it is idle."""
        with self._lock:
            self._cursors.pop(cursor).end()
            cursor.close()
            if self._cursors:
                return
            if time.monotonic() - self._opened_at > OPEN_SECONDS:
                self._close_file()
            else:
                self._close_timer = threading.Timer(IDLE_SECONDS, self._close_idle)
                self._close_timer.daemon = True
                self._close_timer.start()

    def _close_idle(self) -> None:
        with self._lock:
            if not self._cursors and self._close_timer is not None:
                self._close_file()

    def _close_file(self) -> None:
        self._close_timer = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> Any:
        duckdb = driver()
        deadline = time.monotonic() + (0 if self._failed else LOCK_SECONDS)
        connection: Any = None
        while True:
            try:
                connection = duckdb.connect(self.path, read_only=True, config=_CONFIGURATION)
                break
            except duckdb.Error as error:
                if not _is_locked(error) or time.monotonic() > deadline:
                    self._failed = True
                    raise self._unreachable(error) from None
                time.sleep(0.01)
        try:
            with suppress(duckdb.Error):
                connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET lock_configuration = true")
        except BaseException:
            connection.close()
            raise
        self._failed = False
        return connection

    def _unreachable(self, error: Exception) -> DatabaseUnreachable:
        text = str(error)
        if _is_locked(error):
            return DatabaseUnreachable(
                f"{self._name} is open for writing in another process: it cannot be read until that process closes it."
            )
        if "different configuration" in text:
            return DatabaseUnreachable(f"{self._name} is already open in this process, with other settings.")
        # The message of a damaged file has its path, which is not for callers.
        message = _message(error).replace(self.path, self._name)
        reason = message if os.path.exists(self.path) else "it no longer exists"
        return DatabaseUnreachable(f"The DuckDB file {self._name} cannot be read: {reason}.")

    def close(self) -> None:
        """End all running statements, and close the file after them."""
        self._children.close()
        with self._lock:
            for timer in self._cursors.values():  # an interrupt of the connection would not reach the cursors
                timer.interrupt_now()
            if not self._cursors:
                self._close_file()

    # Catalogue

    def catalogue(self, age: float = 0.0) -> DatabaseCatalogue:
        """Return the tables of the file. Reads them again after a write."""
        token = self._identity()
        cached = self._cached
        if cached is None or cached[0] != token or self._failed:
            with self._cursor(self._bounds.seconds) as cursor:
                cached = self._cached = (token, read_catalogue(lambda text: cursor.execute(text).fetchall()))
        return cached[1]

    # Rows

    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Read rows of a table in the requested order, or else by its key."""
        statement = FileStatement(table, span)

        def work(cursor: Any) -> Rows:
            cursor.execute(statement.text(bounds.cell), statement.values)
            return statement.collect(_fetch_rows(cursor), bounds)

        return self._read_table(table, span, work, bounds.seconds)

    def cell(self, table: DatabaseTable, key: KeyTexts, column: str, size: int, seconds: float) -> CellValue | None:
        """Read one value, or its beginning."""
        text, values = cell_statement(table, key, column, size)

        def work(cursor: Any) -> CellValue | None:
            return cell_value(table, column, cursor.execute(text, values).fetchone())

        return self._read_table(table, Span(where="at", place=key), work, seconds)

    def _read_table(self, table: DatabaseTable, span: Span, work: Callable[[Any], T], seconds: float) -> T:
        """Call `work`, and convert errors of DuckDB to those of a `DatabaseEngine`."""
        duckdb = driver()
        with self._cursor(min(seconds, self._bounds.seconds)) as cursor:
            try:
                return work(cursor)
            except duckdb.CatalogException:
                if table.kind == "table":
                    raise LookupError(table.name) from None
                raise InternalError(f"DuckDB cannot read {table.name}.") from None
            except (duckdb.InterruptException, duckdb.IOException, duckdb.OutOfMemoryException, duckdb.FatalException):
                raise
            except duckdb.PermissionException as error:
                raise InternalError(f"{table.name} may not be read: {_message(error)}.") from None
            except duckdb.Error as error:
                if span.choice.filters or span.choice.order:
                    raise InvalidArgument(f"{table.name} cannot be read in this way: {_message(error)}.") from None
                if span.place:
                    raise BadKey(_message(error)) from None
                raise InternalError(f"DuckDB cannot read {table.name}: {_message(error)}.") from None

    def estimates(self, tables: Sequence[DatabaseTable]) -> list[int | None]:
        """Return the row counts in DuckDB's catalogue (`estimated_size`)."""
        with self._cursor(self._bounds.seconds) as cursor:
            rows = cursor.execute("SELECT table_oid, estimated_size FROM duckdb_tables()").fetchall()
        counts = dict(rows)
        return [counts.get(table.oid) if table.kind == "table" else None for table in tables]

    # Changes

    def token(self) -> Hashable:
        """Return the identities, sizes and times of the file and its write-ahead log."""
        token = self._identity()
        if self._failed:  # raise the error again, as long as another process has the file locked
            with self._cursor(self._bounds.seconds):
                pass
        return token

    def _identity(self) -> tuple[tuple[int, ...], ...]:
        try:
            status = os.stat(self.path)
        except OSError as error:
            self._failed = True
            raise self._unreachable(error) from None
        identities = [(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)]
        with suppress(OSError):
            log = os.stat(f"{self.path}.wal")
            identities.append((log.st_dev, log.st_ino, log.st_size, log.st_mtime_ns))
        return tuple(identities)

    def table_token(self, table: DatabaseTable) -> str:
        """Return the token of the whole file: DuckDB does not report which table changed."""
        return repr(self._identity())

    def modified(self) -> float | None:
        """Return the Unix time of the last write to the file or its write-ahead log."""
        return last_modified(self.path, f"{self.path}.wal")

    # Statements of callers

    def query(
        self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds, *, explain: bool = False
    ) -> tuple[list[str], Rows]:
        """Run a caller's statement in a child process, or explain it."""
        from wharfinger.sources.table_files.query_child import run_in_child
        from wharfinger.sources.table_files.query_process import QueriedTable, QueryRequest

        tables = [QueriedTable(schema=table.schema, name=table.name) for table in self.catalogue().tables.values()]
        tables += [QueriedTable(schema="", name=table.name) for table in tables if table.schema == "main"]
        request = QueryRequest(
            statement=statement,
            tables=tables,
            parameters=dict(parameters) if isinstance(parameters, Mapping) else list(parameters),
            limit=limit,
            cell=bounds.cell,
            size=bounds.size,
            explain=explain,
            database=self.path,
        )
        return run_in_child(self._children, request, bounds)

    def describe(self) -> list[str]:
        """Return the version of DuckDB, and that the file is opened read-only."""
        return [f"DuckDB {driver().__version__}", "opened read-only"]


def _fetch_rows(cursor: Any) -> Iterator[Sequence[Any]]:
    while batch := cursor.fetchmany(FETCHED_ROWS):
        yield from batch


def _is_locked(error: Exception) -> bool:
    """Return whether another process has locked the file."""
    return any(words in str(error) for words in ("Could not set lock on file", "used by another process"))


def _message(error: Exception) -> str:
    """Return the first line of an error of DuckDB, without the name of its class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = lines[0].partition("Error: ") if lines else ("it is damaged", "", "")
    return (words[2] or words[0])[:300].rstrip(". ")
