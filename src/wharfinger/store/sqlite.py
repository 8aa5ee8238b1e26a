"""A store in a SQLite file, which several processes may share. One thread owns the connection."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, UnsetType

from wharfinger.errors import StoreUnusable

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["SqliteStore"]

T = TypeVar("T")

APPLICATION_ID = 0x57686172
"""`PRAGMA application_id` of these files."""
SCHEMA_VERSION = 1
"""`PRAGMA user_version`: the version of the tables."""
BUSY_SECONDS = 5.0
"""The maximum time to wait for another process that writes."""
SWEEP_SECONDS = 60.0
"""Each `SqliteStore` deletes all expired keys in a call of `put`, at most once in this time."""

_TABLES = """
CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL, expires REAL);
CREATE INDEX kept_expires ON kept (expires) WHERE expires IS NOT NULL;
"""
_GET = "SELECT value FROM kept WHERE key = :key AND (expires IS NULL OR expires > :now)"
_SET = """
INSERT INTO kept VALUES (:key, :value, :expires)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires = excluded.expires
"""
_ADD = _SET + " WHERE kept.expires <= :now"  # replaces only a value that has expired
_REPLACE = """
UPDATE kept SET value = :value, expires = :expires
WHERE key = :key AND value = :old AND (expires IS NULL OR expires > :now)
"""
_SCAN = """
SELECT key, value FROM kept
WHERE key >= :prefix AND key < CAST(:end AS TEXT) AND key > :after AND (expires IS NULL OR expires > :now)
ORDER BY key LIMIT :limit
"""
# SQLite reads the length of a blob from its header, so this does not read the values.
_USAGE = """
SELECT count(*), coalesce(sum(length(value)), 0) FROM kept
WHERE key >= :prefix AND key < CAST(:end AS TEXT) AND (expires IS NULL OR expires > :now)
"""

Job = tuple[Callable[["Connection"], Any], "asyncio.Future[Any]"]


class SqliteStore:
    """A `Store` in the file at `path`, which is opened on first use. Only its owner can read a file that this creates.

    A value is on disk when `put` returns (write-ahead log, `synchronous=FULL`). Do not use it on network file systems,
    where SQLite's log does not work. `clock` returns seconds since 1970.
    """

    shared = True

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._clock = clock
        self._jobs: SimpleQueue[Job] | None = None
        self._next_sweep = 0.0

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, or None if the key is missing or has expired."""
        now = self._clock()

        def job(connection: Connection) -> bytes | None:
            row = connection.execute(_GET, {"key": key, "now": now}).fetchone()
            return None if row is None else bytes(row[0])

        return await self._run(job)

    async def put(
        self, key: str, value: bytes, *, expires: float | None = None, instead_of: bytes | UnsetType | None = UNSET
    ) -> bool:
        """Set a key; see `Store.put`."""
        now = self._clock()
        statement = _SET if instead_of is UNSET else _ADD if instead_of is None else _REPLACE
        values = {"key": key, "value": value, "expires": expires, "now": now, "old": instead_of}

        def job(connection: Connection) -> bool:
            if now >= self._next_sweep:
                self._next_sweep = now + SWEEP_SECONDS
                connection.execute("DELETE FROM kept WHERE expires <= :now", {"now": now})
            return connection.execute(statement, values).rowcount > 0

        return await self._run(job)

    async def delete(self, key: str) -> None:
        """Remove a key, if it exists."""
        await self._run(lambda connection: connection.execute("DELETE FROM kept WHERE key = ?", (key,)).rowcount)

    async def scan(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """Return keys with this prefix and their values, in order, starting after the key `after`."""
        values = self._prefix_values(prefix) | {"after": after, "limit": limit}
        return await self._run(lambda connection: [(k, bytes(v)) for k, v in connection.execute(_SCAN, values)])

    async def usage(self, prefix: str) -> tuple[int, int]:
        """Return the number of keys with this prefix, and the bytes of their values."""
        values = self._prefix_values(prefix)

        def job(connection: Connection) -> tuple[int, int]:
            count, size = connection.execute(_USAGE, values).fetchone()
            return count, size

        return await self._run(job)

    async def close(self) -> None:
        """Close the file, after all earlier calls. The next use opens it again."""
        jobs, self._jobs = self._jobs, None
        if jobs is None:
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        jobs.put((_close, ended))
        await ended

    def _prefix_values(self, prefix: str) -> dict[str, Any]:
        # SQLite compares keys by their UTF-8 bytes, none of which is 0xFF.
        return {"prefix": prefix, "end": prefix.encode() + b"\xff", "now": self._clock()}

    async def _run(self, job: Callable[[Connection], T]) -> T:
        """Run a job in the thread, in the order of the calls.

        Raises:
            StoreUnusable: the file cannot be opened, read or written.
        """
        if self._jobs is None:
            jobs: SimpleQueue[Job] = SimpleQueue()
            name = f"wharfinger-{self.path.name}"
            threading.Thread(target=self._work, args=(jobs,), name=name, daemon=True).start()
            self._jobs = jobs  # only now: without a thread, this call and all later ones would wait for ever
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future))
        return await future

    def _work(self, jobs: SimpleQueue[Job]) -> None:
        import sqlite3

        connection: Connection | None = None
        while True:
            job, future = jobs.get()
            result: Any = None
            error: BaseException | None = None
            try:
                if job is _close:
                    if connection is not None:
                        connection.close()
                else:
                    connection = connection or _open_database(self.path)
                    result = job(connection)
            except (sqlite3.Error, OSError) as problem:
                error = StoreUnusable(f"{self.path}: {_explain(problem)}")
            except BaseException as problem:
                error = problem
            with suppress(RuntimeError):  # the loop is closed
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            if job is _close:
                return
            del job, future, result, error


def _close(connection: Connection) -> None:
    """The job that ends the thread. The thread recognises it, and does not call it."""


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # its caller was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _open_database(path: Path) -> Connection:
    """Open the file, and create the tables in a new one. Refuse a file of another program or version."""
    import sqlite3

    # Only for the owner: SQLite itself would use the umask.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN IMMEDIATE")  # only one of several processes creates the tables
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application == 0 and tables == 0:
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif application != APPLICATION_ID:
            raise StoreUnusable(f"{path} is a database of another program: choose another file.")
        elif version != SCHEMA_VERSION:
            raise StoreUnusable(
                f"{path} was written by another version (schema {version}, not {SCHEMA_VERSION}): move it away."
            )
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL").fetchone()  # after the checks, because it changes the file
    except BaseException:
        connection.close()
        raise
    return connection


def _explain(problem: Exception) -> str:
    text = str(problem)
    if "not a database" in text or "malformed" in text:
        return f"this is not a SQLite database, or a damaged one ({text}): move it away, or choose another file."
    if isinstance(problem, OSError):
        return f"it cannot be opened: {problem.strerror or text}."
    return f"{text}."
