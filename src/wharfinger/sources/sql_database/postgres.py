"""PostgreSQL by asyncpg: rows in windows, read-only statements, and detection of changes.

asyncpg's connections belong to one event loop, but a source is called from threads, and by servers on any loop.
Therefore the connections have their own loop, in a thread.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from wharfinger.content.redaction import redacted_text
from wharfinger.errors import InternalError, InvalidArgument, MissingExtra, Overloaded
from wharfinger.net import connection_failure
from wharfinger.source import UnusableSource
from wharfinger.sources.loop_thread import LoopThread
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
    stopped_early,
    too_slow,
)
from wharfinger.sources.sql_database.postgres_catalogue import read_catalogue
from wharfinger.sources.sql_database.postgres_notify import NotifyListener
from wharfinger.sources.sql_database.postgres_rows import (
    PostgresStatement,
    read_by_place,
    read_cell,
    read_rows,
    run_statement,
)
from wharfinger.sources.sql_database.postgres_safety import ROLE, check_names, check_role, settings
from wharfinger.sources.sql_database.sql_uris import KeyTexts

__all__ = ["Postgres", "open_postgres"]

T = TypeVar("T")

GRACE_SECONDS = 0.5
"""Time between PostgreSQL's deadline, which should stop a statement first, and ours."""
CONNECTION_SECONDS = 5.0
"""Longest wait for a connection if all are in use, or for PostgreSQL to accept one."""
CLOSE_SECONDS = 2.0
"""Longest wait for connections to close."""
IDLE_SECONDS = 60.0
"""Time after which an unused connection is closed."""


def driver() -> Any:
    """Import `asyncpg`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module("asyncpg")
    except ImportError:
        raise MissingExtra("sql", "Publishing a PostgreSQL database") from None


def open_postgres(url: str, bounds: QueryBounds, schemas: tuple[str, ...], notify: str | None) -> Postgres:
    """Create the engine for a URL, without connecting yet.

    Raises:
        UnusableSource: the URL is not valid.
        MissingExtra: asyncpg is not installed.
    """
    driver()
    dsn = "postgresql://" + url.partition("://")[2]
    try:
        parts = urlsplit(dsn)
        port = parts.port
    except ValueError:
        raise UnusableSource("Give a URL such as postgresql://user:password@host:5432/database.") from None
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host = unquote(parts.hostname or "") or options.get("host") or "localhost"
    host_text = "localhost" if host.startswith("/") else f"[{host}]" if ":" in host else host
    # asyncpg uses the option `port` only if the URL has no host.
    port_text = str(port or (not parts.hostname and options.get("port")) or 5432)
    host_text += f":{port_text}" if port_text != "5432" else ""
    database = unquote(parts.path[1:]) if parts.path else options.get("dbname") or options.get("database")
    database = database or unquote(parts.username or "") or options.get("user") or "postgres"
    return Postgres(dsn, host_text, database, bounds, schemas, notify)


class Postgres(DatabaseEngine):
    """One database of a PostgreSQL server."""

    dialect = "PostgreSQL"

    def __init__(
        self, dsn: str, host: str, database: str, bounds: QueryBounds, schemas: tuple[str, ...], notify: str | None
    ) -> None:
        self.host = host
        self.database = database
        self.location = f"postgresql://{host}/{database}"
        self._dsn = dsn
        self._bounds = bounds
        self._schemas = schemas
        self._loop = LoopThread(f"wharfinger-postgres-{database}")
        self._pool: Any = None
        self._pool_loop: asyncio.AbstractEventLoop | None = None
        """The loop to which the pool belongs: a call during `close` may open a pool on the loop that is ending."""
        self._catalogue: tuple[Hashable, float, DatabaseCatalogue] | None = None
        self._notify = NotifyListener(notify, self._connect, self.location) if notify else None
        self._listening: Future[None] | None = None

    # Connections

    async def _connect(self) -> Any:
        asyncpg = driver()
        options = settings(self._bounds.seconds)
        return await asyncpg.connect(self._dsn, timeout=CONNECTION_SECONDS, server_settings=options)

    async def _open_pool(self) -> Any:
        asyncpg = driver()
        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool_loop is not loop:
            self._pool_loop = loop
            self._pool = asyncpg.create_pool(
                self._dsn,
                min_size=0,
                max_size=self._bounds.connections,
                max_inactive_connection_lifetime=IDLE_SECONDS,
                timeout=CONNECTION_SECONDS,
                command_timeout=self._bounds.seconds + GRACE_SECONDS,  # also for BEGIN and ROLLBACK
                init=_prepare_connection,
                server_settings=settings(self._bounds.seconds),
            )
            await self._pool
        return self._pool

    @asynccontextmanager
    async def _connection(self, pool: Any, autocommit: bool) -> AsyncGenerator[Any]:
        """Yield a connection in a read-only transaction that is rolled back, or in no transaction with `autocommit`."""
        async with pool.acquire(timeout=CONNECTION_SECONDS) as connection:
            if autocommit:
                yield connection
                return
            transaction = connection.transaction(readonly=True)
            await transaction.start()
            try:
                yield connection
            finally:
                if not connection.is_closed():
                    await transaction.rollback()

    def _run(self, work: Callable[[Any], Awaitable[T]], seconds: float | None = None, *, autocommit: bool = False) -> T:
        """Call `work` with a connection, and once more if that connection was lost, or none could be opened."""
        attempts = self._try_twice(work, self._bounds.seconds if seconds is None else seconds, autocommit)
        try:
            return self._loop.run(attempts)
        except CancelledError:  # `close` has ended the loop
            raise stopped_early() from None

    async def _try_twice(self, work: Callable[[Any], Awaitable[T]], seconds: float, autocommit: bool) -> T:
        asyncpg = driver()
        for attempt in (1, 2):
            pool = await self._open_pool()
            try:
                async with self._connection(pool, autocommit) as connection:
                    try:
                        async with asyncio.timeout(seconds + GRACE_SECONDS):
                            return await work(connection)
                    except TimeoutError:
                        connection.terminate()  # a server that does not answer would not answer ROLLBACK either
                        raise too_slow(seconds) from None
                    except asyncpg.QueryCanceledError:
                        raise too_slow(seconds) from None
            except TimeoutError:
                raise self._timed_out() from None
            # InternalClientError: the connection was lost during a rollback.
            except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError) as error:
                if isinstance(error, asyncpg.PostgresError) and not isinstance(error, _disconnections()):
                    raise
                if self._pool is not pool:  # `close` has closed the connection
                    raise stopped_early() from None
                if attempt == 2 or isinstance(error, _refusals()):
                    raise self._unreachable(error) from None
        raise AssertionError("never here")

    def _timed_out(self) -> Exception:
        pool = self._pool
        if pool is not None and pool.get_size() >= self._bounds.connections and not pool.get_idle_size():
            return Overloaded(f"All connections to {self.location} are in use: try again later.")
        return DatabaseUnreachable(f"{self.location} did not answer in time.")

    def _unreachable(self, error: Exception) -> DatabaseUnreachable:
        if isinstance(error, OSError):
            reason = connection_failure(error) if error.strerror else type(error).__name__
        else:
            reason = redacted_text(str(error))
        return DatabaseUnreachable(f"{self.location} cannot be reached: {reason}.")

    def close(self) -> None:
        """Close all connections, and end the loop."""
        self.unlisten()
        pool, self._pool = self._pool, None
        if self._loop.running:
            if pool is not None:
                with suppress(Exception):
                    self._loop.run(_close(pool))
            self._loop.close()

    # Catalogue

    def catalogue(self, age: float = 0.0) -> DatabaseCatalogue:
        """Return the tables that the role may read. A catalogue older than `age` is read again after a write."""
        cached = self._catalogue
        if cached is not None and time.monotonic() - cached[1] < age:
            return cached[2]
        return self._run(self._read_catalogue)

    async def _read_catalogue(self, connection: Any) -> DatabaseCatalogue:
        token = await connection.fetchval(_SNAPSHOT)
        cached = self._catalogue
        catalogue = cached[2] if cached is not None and cached[0] == token else None
        if catalogue is None:
            catalogue = await read_catalogue(connection, self._schemas)
        self._catalogue = (token, time.monotonic(), catalogue)
        return catalogue

    # Rows

    def rows(self, table: DatabaseTable, span: Span, bounds: QueryBounds) -> Rows:
        """Read rows of a table in the requested order, or else by its key."""

        async def work(connection: Any) -> Rows:
            physical = table.key is not None and table.key.physical
            statement = PostgresStatement(table, span)
            if physical and span.where != "at" and not span.choice.order:
                return await read_by_place(connection, statement, bounds)
            return await read_rows(connection, statement, bounds)

        return self._read_table(table, span, work, bounds.seconds)

    def cell(self, table: DatabaseTable, key: KeyTexts, column: str, size: int, seconds: float) -> CellValue | None:
        """Read one value, or its beginning."""
        return self._read_table(
            table,
            Span(where="at", place=key),
            lambda connection: read_cell(connection, table, key, column, size),
            seconds,
        )

    def _read_table(self, table: DatabaseTable, span: Span, work: Callable[[Any], Awaitable[T]], seconds: float) -> T:
        """Call `work`, and convert errors of asyncpg to those of a `DatabaseEngine`."""
        asyncpg = driver()

        async def with_converted_errors(connection: Any) -> T:
            try:
                return await work(connection)
            except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.InsufficientPrivilegeError):
                raise LookupError(table.name) from None
            except (asyncpg.QueryCanceledError, *_disconnections()):
                raise
            except (asyncpg.DataError, asyncpg.UndefinedFunctionError) as error:
                if span.choice.filters or span.choice.order:
                    raise InvalidArgument(f"{table.name} cannot be read in this way: {_message(error)}.") from None
                if span.place:
                    raise BadKey(_message(error)) from None
                raise self._unreadable(table, error) from None
            except asyncpg.PostgresError as error:  # such as a view that divides by zero, or that would write
                raise self._unreadable(table, error) from None

        if any("\0" in (text or "") for text in span.place):
            raise BadKey("A key cannot contain NUL.")
        return self._run(with_converted_errors, seconds)

    def _unreadable(self, table: DatabaseTable, error: Exception) -> InternalError:
        return InternalError(f"PostgreSQL cannot read {table.name}: {_message(error)}.")

    def estimates(self, tables: Sequence[DatabaseTable]) -> list[int | None]:
        """Return the row counts of the last VACUUM or ANALYZE (`reltuples`)."""
        oids = [table.oid for table in tables]
        rows: Any = self._run(lambda connection: connection.fetch(_ESTIMATES, oids), autocommit=True)
        counts = {row["oid"]: row["count"] for row in rows}
        return [None if table.kind == "view" else counts.get(table.oid) for table in tables]

    # Changes

    def token(self) -> Hashable:
        """Return the snapshot, which changes after each transaction that wrote, and the number of notifications."""
        snapshot: Any = self._run(lambda connection: connection.fetchval(_SNAPSHOT), autocommit=True)
        return snapshot, self._notification_count("")

    def table_token(self, table: DatabaseTable) -> str:
        """Return the files, sizes and counters of the table and its parts, its last key, and its notifications."""
        counts = self._run(lambda connection: connection.fetchval(_TABLE_COUNTS, table.oid), autocommit=True)
        with suppress(LookupError, BadKey):
            last = self.rows(table, Span(where="last", limit=1), QueryBounds(cell=1)).rows if table.key else []
            counts = f"{counts} {last[0].key if last else ''}"
        return f"{counts} {self._notification_count(table.name)}"

    def _notification_count(self, table: str) -> int:
        return self._notify.count(table) if self._notify else 0

    def listen(self, changed: Callable[[], None]) -> None:
        """Listen on the channel, if the operator named one."""
        if self._notify is not None and self._listening is None:
            self._listening = self._loop.submit(self._notify.run(changed))

    def unlisten(self) -> None:
        """Stop listening."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()

    # Statements of callers

    def query(
        self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds, *, explain: bool = False
    ) -> tuple[list[str], Rows]:
        """Run a caller's statement, or explain it. `postgres_safety` explains why it can only read."""
        asyncpg = driver()

        async def work(connection: Any) -> tuple[list[str], Rows]:
            await check_role(connection)
            await check_names(connection, statement)
            try:
                return await run_statement(connection, statement, parameters, limit, bounds, explain=explain)
            except asyncpg.QueryCanceledError:
                raise QueryRefused(f"The statement was stopped after {self._bounds.seconds:g} s.") from None
            except _disconnections():
                raise
            except asyncpg.PostgresError as error:
                if match := _REFUSED_PARAMETER(_message(error)):
                    mark = f"${match[1]}"
                    raise QueryRefused(
                        f"Parameter {match[1]} does not fit the type of {mark}: pass a text and cast it, as in "
                        f"{mark}::text::interval."
                    ) from None
                raise QueryRefused(f"PostgreSQL cannot run it: {_message(error)}.") from None
            except (ValueError, TypeError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                if connection.is_closed():  # the statement did not cause this: it is retried, or the server is down
                    raise
                raise QueryRefused(f"It cannot be run: {error}.") from None

        return self._run(work, bounds.seconds)

    def describe(self) -> list[str]:
        """Return the version, the rights of the role, and how changes are found."""

        async def work(connection: Any) -> tuple[str, Any]:
            return await connection.fetchval("SHOW server_version"), await connection.fetchrow(ROLE)

        version, role = self._run(work)
        rights = "which may also write" if role["writes"] else "read-only"
        rights = "a superuser: use a role that can only read" if role["super"] else rights
        changes = f"watched by LISTEN {self._notify.channel}" if self._notify else "watched by polling"
        return [f"PostgreSQL {version.split()[0]}", f"role {role['name']}, {rights}", changes]


# A table includes the rows of its partitions and of its children by inheritance. -1 means that there is no count yet.
_ESTIMATES = """
WITH RECURSIVE part (oid, whole) AS (
    SELECT oid, oid FROM unnest($1::oid[]) t (oid)
    UNION SELECT i.inhrelid, part.whole FROM part JOIN pg_inherits i ON i.inhparent = part.oid
)
SELECT part.whole::int8 AS oid, sum(c.reltuples)::int8 AS count FROM part JOIN pg_class c USING (oid)
WHERE c.relkind <> 'p' AND c.reltuples >= 0 GROUP BY part.whole
"""
_REFUSED_PARAMETER = re.compile(r"invalid input for query argument \$(\d+):").match
"""Matches the words of asyncpg about a value that it cannot encode."""
_SNAPSHOT = "SELECT pg_current_snapshot()::text"
_TABLE_COUNTS = """
WITH RECURSIVE part (oid) AS (
    SELECT $1::oid UNION SELECT i.inhrelid FROM part JOIN pg_inherits i ON i.inhparent = part.oid
)
SELECT string_agg(concat_ws(' ', pg_relation_filenode(oid), pg_relation_size(oid), pg_stat_get_tuples_inserted(oid),
                            pg_stat_get_tuples_updated(oid), pg_stat_get_tuples_deleted(oid)), ', ' ORDER BY oid)
FROM part
"""


def _disconnections() -> tuple[type[Exception], ...]:
    """Return the errors with which PostgreSQL refuses or ends a connection."""
    asyncpg = driver()
    return (
        asyncpg.PostgresConnectionError,
        asyncpg.CannotConnectNowError,
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        *_refusals(),
    )


def _refusals() -> tuple[type[Exception], ...]:
    """Return the errors after which a second login would fail too, and might count as another failed attempt."""
    asyncpg = driver()
    return (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.TooManyConnectionsError,
    )


async def _close(pool: Any) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await pool.close()
    except TimeoutError:
        pool.terminate()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


async def _prepare_connection(connection: Any) -> None:
    """If the database has no encoding (`SQL_ASCII`), decode texts leniently, because they may not be UTF-8."""
    if connection.get_settings().server_encoding == "SQL_ASCII":
        await connection.set_type_codec("text", schema="pg_catalog", encoder=_encode, decoder=_decode, format="binary")


def _message(error: Any) -> str:
    return str(getattr(error, "message", None) or error).strip().rstrip(".")
