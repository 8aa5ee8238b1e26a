"""MySQL and MariaDB by PyMySQL: rows in windows, read-only statements, and detection of changes.

A statement that takes too long is ended by the database server's own limit (`max_statement_time` in MariaDB,
`max_execution_time` in MySQL). MySQL does not apply this limit to all statements, so a second connection kills a
statement that continues. If the database server does not answer, the connection is closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar

from wharfinger.content.redaction import redacted_text
from wharfinger.errors import InternalError, InvalidArgument, Overloaded
from wharfinger.source import UnusableSource
from wharfinger.sources.sql_database.database_catalogue import DatabaseCatalogue, DatabaseTable
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
    stopped_early,
    too_slow,
)
from wharfinger.sources.sql_database.mysql_catalogue import read_catalogue
from wharfinger.sources.sql_database.mysql_connection import (
    CONNECTION_SECONDS,
    MAX_ROW_BYTES,
    MySQLAddress,
    RowTooLarge,
    connect,
    drain,
    driver,
    read_address,
    rows_of,
)
from wharfinger.sources.sql_database.mysql_rows import (
    SelectStatement,
    cell_statement,
    cell_value,
    collect_result,
)
from wharfinger.sources.sql_database.mysql_safety import (
    check_account,
    check_statement,
    settings,
    with_parameters,
    writes,
)
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["MySQL", "open_mysql"]

T = TypeVar("T")

GRACE_SECONDS = 0.5
"""Time from the server's limit, which should end a statement, to KILL.

If KILL has no effect, the connection is closed after another `3 * GRACE_SECONDS`.
"""
WAIT_SECONDS = 5.0
"""Longest wait for a connection if all are in use."""
RECENT_WRITE_SECONDS = 3
"""Time after a write to a table in which another write may have the same `UPDATE_TIME`, which is in whole seconds."""

_MISSING = (1054, 1109, 1142, 1143, 1146, 1356)
"""Errors: there is no such column or table, or the account or the owner of a view may not read it."""
_KILLED = 1317
"""Error: the statement was ended by KILL."""
_STOPPED = (1205, _KILLED, 1969, 3024)
"""Errors: a lock was not released in time, the statement was killed, or it reached the time limit."""
_DISCONNECTED = (
    1040, 1044, 1045, 1049, 1053, 1077, 1079, 1129, 1130, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1227, 1698, 1927,
    2002, 2003, 2005, 2006, 2012, 2013, 2014, 2026, 2027, 2055, 2059, 2061, 3118, 3159, 3879, 4031, 4151,
)  # fmt: skip
"""Errors with which a server refuses or ends a connection, and those of the driver (2002 to 2061)."""
_REFUSED = (1044, 1045, 1049)
"""Errors: wrong account, password or database. Another attempt would fail too."""


def open_mysql(url: str, bounds: QueryBounds) -> MySQL:
    """Create the engine for a URL, without connecting yet.

    Raises:
        UnusableSource: the URL is not valid.
        MissingExtra: PyMySQL or SQLAlchemy is not installed.
    """
    driver()
    address = read_address(url)
    return MySQL(url.partition(":")[0].partition("+")[0].lower(), address, bounds)


class MySQL(DatabaseEngine):
    """One database of a MySQL or MariaDB server."""

    def __init__(self, scheme: str, address: MySQLAddress, bounds: QueryBounds) -> None:
        self.dialect = "MariaDB" if scheme == "mariadb" else "MySQL"
        self.host = address.shown
        self.database = address.database
        self.location = f"{scheme}://{address.shown}/{address.database}"
        self._address = address
        self._bounds = bounds
        self._lock = threading.Lock()
        self._running: dict[int, _Statement] = {}
        self._catalogue: tuple[Hashable, float, DatabaseCatalogue] | None = None
        self._write_counts: dict[str, tuple[str, Hashable, int]] = {}
        """By table: the times of its last write and of its creation, the last token, and how many writes were seen."""
        self._pool = self._new_pool()

    # Connections

    def _new_pool(self) -> Any:
        pool: Any = import_module("sqlalchemy.pool")
        return pool.QueuePool(
            self._connect, pool_size=self._bounds.connections, max_overflow=0, timeout=WAIT_SECONDS,
            reset_on_return=None,
        )  # fmt: skip

    def _connect(self) -> Any:
        read_seconds = self._bounds.seconds + 4 * GRACE_SECONDS
        connection = connect(self._address, CONNECTION_SECONDS, read_seconds)
        try:
            mariadb = "MariaDB" in str(connection.get_server_info())
            self.dialect = "MariaDB" if mariadb else "MySQL"
            for statement in settings(self._bounds.seconds, mariadb=mariadb):
                _fetch(connection, statement)
            connection.limit_seconds, connection.unusable = None, False
            check_account(*self._account(connection, mariadb), self.database)
        except BaseException:
            connection.close()
            raise
        return connection

    def _account(self, connection: Any, mariadb: bool) -> tuple[str, list[str]]:
        """Return the name of the account, and the lines of SHOW GRANTS with those of its active roles."""
        without_roles = not mariadb and str(connection.get_server_info()).startswith(("5.", "4."))
        role = "NULL" if without_roles else "CURRENT_ROLE()"
        account, roles = _fetch(connection, f"SELECT CURRENT_USER(), {role}")[0]
        using = "" if mariadb or roles in (None, "NONE") else f" FOR CURRENT_USER() USING {roles.replace('%', '%%')}"
        return str(account), [str(line) for (line,) in _fetch(connection, f"SHOW GRANTS{using}")]

    @contextmanager
    def _connection(self) -> Generator[Any]:
        """Yield a connection of the pool. It is closed if it may be in the middle of an answer."""
        pool_timeout = import_module("sqlalchemy.exc").TimeoutError
        try:
            pooled = self._pool.connect()
        except pool_timeout:
            raise Overloaded(f"All connections to {self.location} are in use: try again later.") from None
        usable = False
        try:
            yield pooled.dbapi_connection
            usable = True
        except (driver().err.ProgrammingError, LookupError, BadKey, InvalidArgument):
            usable = True
            raise
        finally:
            if not usable or pooled.dbapi_connection.unusable or not pooled.dbapi_connection.open:
                pooled.invalidate()
            pooled.close()

    def _run(self, work: Callable[[Any], T], seconds: float | None = None) -> T:
        """Call `work` with a connection, and once more if the server has closed that connection."""
        seconds = self._bounds.seconds if seconds is None else min(seconds, self._bounds.seconds)
        errors = driver().err
        began = time.monotonic()
        for attempt in (1, 2):
            try:
                with self._connection() as connection, self._limited(connection, seconds):
                    return work(connection)
            except errors.Error as error:
                code = _code(error)
                took_longer = time.monotonic() - began > seconds
                if code == _KILLED and not took_longer:
                    raise stopped_early() from None
                if code in _STOPPED or (code in (0, 2013) and took_longer):
                    raise too_slow(seconds) from None
                if code and code not in _DISCONNECTED:
                    raise
                if attempt == 2 or code in _REFUSED:
                    raise self._unreachable(error) from None
            except RowTooLarge:
                raise InternalError(f"A row of {self.location} is larger than {MAX_ROW_BYTES >> 20} MiB.") from None
            except UnicodeDecodeError:
                raise InternalError(f"{self.location} sent a text that is not valid UTF-8.") from None
            except UnusableSource as error:
                raise DatabaseUnreachable(str(error)) from None
        raise AssertionError("never here")

    @contextmanager
    def _limited(self, connection: Any, seconds: float) -> Generator[None]:
        """Limit the time of a statement, by the server and by KILL from another connection."""
        if connection.limit_seconds != seconds:
            mariadb = self.dialect == "MariaDB"
            limit = f"max_statement_time = {seconds:g}" if mariadb else f"max_execution_time = {int(seconds * 1000)}"
            _fetch(connection, f"SET SESSION {limit}")
            connection.limit_seconds = seconds
        statement = _Statement(connection.thread_id(), seconds + GRACE_SECONDS, self._kill)
        with self._lock:
            self._running[statement.thread] = statement
        try:
            yield
        finally:
            with self._lock:
                del self._running[statement.thread]
            if statement.end():  # the kill may arrive later, when the connection runs another statement
                connection.unusable = True

    def _kill(self, thread: int) -> None:
        """End the statement of a connection. An account needs no privilege to end its own statements."""
        with suppress(Exception):
            connection = connect(self._address, CONNECTION_SECONDS, CONNECTION_SECONDS)
            try:
                _fetch(connection, f"KILL QUERY {thread:d}")
            finally:
                connection.close()

    def _unreachable(self, error: Exception) -> DatabaseUnreachable:
        reason = str(error.args[1]) if len(error.args) > 1 else str(error) or "the connection was lost"
        return DatabaseUnreachable(f"{self.location} cannot be reached: {redacted_text(reason)[:300].rstrip('.')}.")

    def close(self) -> None:
        """End all running statements, and close all connections."""
        with self._lock:
            running = list(self._running.values())
        for statement in running:
            statement.kill()
        self._pool.dispose()
        self._pool = self._new_pool()

    # Catalogue

    def catalogue(self, age: float = 0.0) -> DatabaseCatalogue:
        """Return the tables that the account may read. A catalogue older than `age` is read again after a write."""
        cached = self._catalogue
        if cached is not None and time.monotonic() - cached[1] < age:
            return cached[2]
        return self._run(self._read_catalogue)

    def _read_catalogue(self, connection: Any) -> DatabaseCatalogue:
        token = _token(connection)
        cached = self._catalogue
        catalogue = cached[2] if cached is not None and cached[0] == token else None
        if catalogue is None:
            database = str(_fetch(connection, "SELECT DATABASE()")[0][0])
            catalogue = read_catalogue(
                lambda text: _fetch(connection, text), database, mariadb=self.dialect == "MariaDB"
            )
        self._catalogue = (token, time.monotonic(), catalogue)
        return catalogue

    # Rows

    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Read rows of a table in the requested order, or else by its key."""
        statement = SelectStatement(table, span)

        def work(connection: Any) -> Rows:
            cursor = _unbuffered_cursor(connection)
            cursor.execute(statement.text(bounds.cell), statement.parameters)
            try:
                return statement.collect(rows_of(connection, cursor), bounds)
            finally:
                drain(connection, cursor)

        return self._read_table(table, span, work, bounds.seconds)

    def cell(self, table: DatabaseTable, key: KeyTexts, column: str, size: int, seconds: float) -> CellValue | None:
        """Read one value, or its beginning."""
        text, parameters = cell_statement(table, key, column, size)

        def work(connection: Any) -> CellValue | None:
            rows = _fetch(connection, text, parameters)
            return cell_value(table, column, rows[0] if rows else None)

        return self._read_table(table, Span(where="at", place=key), work, seconds)

    def _read_table(self, table: DatabaseTable, span: Span, work: Callable[[Any], T], seconds: float) -> T:
        """Call `work`, and convert errors of the server to those of a `DatabaseEngine`."""
        try:
            return self._run(work, seconds)
        except driver().err.Error as error:
            if _code(error) in _MISSING:
                raise LookupError(table.name) from None
            if span.choice.filters or span.choice.order:
                raise InvalidArgument(f"{table.name} cannot be read in this way: {_message(error)}.") from None
            if span.place:
                raise BadKey(_message(error)) from None
            reason = f"{self.dialect} cannot read {table.name}: {_message(error)}."
            raise InternalError(reason) from None  # such as a view that divides by zero or would write

    def estimates(self, tables: Sequence[DatabaseTable]) -> list[int | None]:
        """Return the numbers of rows in the server's statistics (`TABLE_ROWS`), which InnoDB estimates."""
        rows = self._run(lambda connection: _fetch(connection, _ESTIMATES))
        counts = {name: int(count) for name, count in rows if count is not None}
        return [counts.get(table.name) if table.kind == "table" else None for table in tables]

    # Changes

    def token(self) -> Hashable:
        """Return counters of the server that change with each write, such as the log position of InnoDB."""
        return self._run(_token)

    def table_token(self, table: DatabaseTable) -> str:
        """Return a text that changes with each write to the table, by its `UPDATE_TIME`.

        This time has no fractions of a second. Shortly after a write, writes anywhere in the server count as well.
        """
        if table.kind == "view":
            return repr(self.token())
        token_rows = self._run(lambda connection: (_token(connection), _fetch(connection, _UPDATE_TIME, (table.name,))))
        token, rows = token_rows[0], [row for row in token_rows[1] if row[0] == table.name]
        if not rows:
            return repr(token)
        written = f"{rows[0][1]} {rows[0][2]}"
        is_recent = rows[0][3] is not None and int(rows[0][3]) <= RECENT_WRITE_SECONDS
        with self._lock:
            last_written, last_token, count = self._write_counts.get(table.name, ("", None, 0))
            if written != last_written or (is_recent and last_token != token):
                count += 1
            self._write_counts[table.name] = (written, token, count)
        return f"{written} {count}"

    # Statements of callers

    def query(
        self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds, *, explain: bool = False
    ) -> tuple[list[str], Rows]:
        """Run a caller's statement, or explain it. `mysql_safety` explains why it can only read."""
        check_statement(statement)

        def work(connection: Any) -> tuple[list[str], Rows]:
            text = with_parameters(statement, parameters, connection.escape)
            cursor = _unbuffered_cursor(connection)
            cursor.execute(f"EXPLAIN {text}" if explain else text)
            try:
                if cursor.description is None:
                    raise QueryRefused("The statement returns no rows: run one SELECT.")
                names = [str(column[0]) for column in cursor.description]
                kinds = [int(column[1]) for column in cursor.description]
                result = collect_result(rows_of(connection, cursor), kinds, limit, bounds)
                if not explain:
                    return names, result
                plan = [
                    ", ".join(
                        [f"{name}: {value}" for name, value in zip(names, row.cells, strict=True) if value is not None]
                    )
                    for row in result.rows
                ]
                return ["plan"], Rows([TableRow((), (line,)) for line in plan], result.more)
            except RowTooLarge:
                raise QueryRefused(
                    f"A row of the result is larger than {MAX_ROW_BYTES >> 20} MiB: select LEFT(column, 2000)."
                ) from None
            finally:
                drain(connection, cursor)

        began = time.monotonic()
        try:
            return self._run(work, bounds.seconds)
        except driver().err.Error as error:
            raise QueryRefused(f"{self.dialect} cannot run it: {_message(error)}.") from None
        except InternalError:
            if time.monotonic() - began < bounds.seconds:
                raise
            raise QueryRefused(f"The statement was stopped after {bounds.seconds:g} s.") from None

    def describe(self) -> list[str]:
        """Return the version, the rights of the account, and how changes are found."""

        def work(connection: Any) -> tuple[str, str, list[str]]:
            version = str(connection.get_server_info())
            return version, *self._account(connection, self.dialect == "MariaDB")

        version, account, grants = self._run(work)
        rights = "which may also write" if writes(grants, self.database) else "read-only"
        number = version.removeprefix("5.5.5-").partition("-")[0]  # MariaDB 10 puts 5.5.5- before its own version
        return [f"{self.dialect} {number}", f"account {account}, {rights}", "watched by polling"]


class _Statement:
    """A running statement, which is killed after some seconds."""

    def __init__(self, thread: int, seconds: float, kill: Callable[[int], None]) -> None:
        self.thread = thread
        self._kill = kill
        self._killed = self._ended = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self.kill)
        self._timer.daemon = True
        self._timer.start()

    def kill(self) -> None:
        """End the statement, unless `end` was called: its connection may run another one by now."""
        with self._lock:
            if self._ended:
                return
            self._killed = True
        self._kill(self.thread)

    def end(self) -> bool:
        """Stop the timer. Returns whether the statement was killed, or will be."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            return self._killed


_ESTIMATES = "SELECT TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
_UPDATE_TIME = """
SELECT TABLE_NAME, UPDATE_TIME, CREATE_TIME, UNIX_TIMESTAMP() - UNIX_TIMESTAMP(UPDATE_TIME)
FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s
"""

# InnoDB's log position changes with each write and commit. It has different names in MariaDB and MySQL, and MySQL
# before 8.0.30 has only the number of bytes written to the log. The others are for tables of other engines.
_COUNTERS = """
    Innodb_lsn_current Innodb_redo_log_current_lsn Innodb_os_log_written Handler_update Handler_delete
    Com_alter_table Com_alter_db Com_create_db Com_create_index Com_create_table Com_create_view Com_drop_db
    Com_drop_index Com_drop_table Com_drop_view Com_rename_table Com_truncate Com_grant Com_grant_role Com_revoke
    Com_revoke_all Com_revoke_role Com_drop_user Com_insert Com_insert_select Com_load Com_replace Com_replace_select
"""
_STATUS = f"SHOW GLOBAL STATUS WHERE Variable_name IN ({', '.join([repr(name) for name in _COUNTERS.split()])})"


def _token(connection: Any) -> Hashable:
    return tuple(_fetch(connection, _STATUS))


def _fetch(connection: Any, statement: str, parameters: object = ()) -> Sequence[tuple[Any, ...]]:
    """Return all rows of a statement of our own, which must bound their number."""
    connection.bytes_left = MAX_ROW_BYTES
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: Iterable[tuple[Any, ...]] = cursor.fetchall()
        return [tuple(row) for row in rows]


def _unbuffered_cursor(connection: Any) -> Any:
    connection.bytes_left = MAX_ROW_BYTES
    cursors: Any = import_module("pymysql.cursors")
    return connection.cursor(cursors.SSCursor)


def _code(error: Exception) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _message(error: Exception) -> str:
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    return redacted_text(text)[:500].strip().rstrip(".")
