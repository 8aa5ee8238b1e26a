"""Connections to an SQLite file that can do nothing but read, for so long and with so much memory.

Each holds alone, and all of them are there: the file is opened with `mode=ro`; `PRAGMA query_only` and
`trusted_schema = OFF`; an authorizer that knows four actions (SELECT, READ, FUNCTION, RECURSIVE), since `mode=ro` lets
`ATTACH` and `VACUUM INTO` write other files; no extension is ever loaded; a deadline that stops a statement between two
opcodes (progress handler) and within one (`interrupt()` by a timer).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from urllib.parse import quote

__all__ = ["FOREIGN_LENGTH", "LENGTH", "SLOW", "connect", "deadline", "identity", "only_reads", "quoted", "too_big"]

MIB = 1 << 20
LENGTH = 32 * MIB
"""Bytes of the largest text or blob that a statement may make or load: one that is longer is read in part."""

FOREIGN_LENGTH = 8 * MIB
"""The same for somebody's statement, which may make many of them in one row."""
FOREIGN_COLUMNS = 100
"""Columns of what somebody's statement gives."""

SLOW = {
    "trim": 64 << 10,
    "ltrim": 64 << 10,
    "rtrim": 64 << 10,
    "json_patch": 256 << 10,
    "instr": 512 << 10,
    "replace": 512 << 10,
}
"""Functions whose time grows with the square of their texts, in one opcode that nothing can stop: the same (in bytes)
for a statement that uses them, which takes seconds where it would take hours."""

OPCODES = 2_000  # between two looks at the clock: well under a millisecond
BUSY = 2.0  # seconds to wait for a writer that holds the file

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LENGTH,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 2_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,  # one opcode whose time grows fast with it
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 1_000,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "lsdir", "fsdir", "sqlite_log", "rtreecheck"}
)
_OUR_PRAGMAS = frozenset(
    {"table_list", "table_xinfo", "index_list", "index_xinfo", "foreign_key_list", "data_version", "schema_version"}
)


def only_reads(action: int, first: str | None, second: str | None, _database: str | None, _by: str | None) -> int:
    """The authorizer of somebody's statement: SELECT, READ, RECURSIVE and harmless functions; all else is denied."""
    if action == sqlite3.SQLITE_PRAGMA and first == "data_version":
        return sqlite3.SQLITE_OK  # what full-text tables ask for; it tells a number
    if action not in _READING:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _foreign(connection: sqlite3.Connection) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """`only_reads`, which also takes note of slow functions while a statement is prepared: it has yet to run."""

    def authorize(action: int, first: str | None, second: str | None, database: str | None, by: str | None) -> int:
        most = SLOW.get((second or "").lower()) if action == sqlite3.SQLITE_FUNCTION else None
        if most is not None and most < connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
        return only_reads(action, first, second, database, by)

    return authorize


def _ours(action: int, first: str | None, second: str | None, database: str | None, by: str | None) -> int:
    """The authorizer of our own statements, which also ask for what is in the file."""
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in _OUR_PRAGMAS else sqlite3.SQLITE_DENY
    return only_reads(action, first, second, database, by)


def connect(path: str, *, foreign: bool = False) -> sqlite3.Connection:
    """A connection that only reads, for our own statements, or (`foreign`) for somebody's.

    Raises:
        sqlite3.Error: the file is missing, or no database.
    """
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=ro",
        uri=True,
        timeout=BUSY,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    try:
        connection.text_factory = _text
        for limit, most in _LIMITS.items():
            connection.setlimit(limit, most)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cache_size = -4096")  # KiB
        connection.execute("PRAGMA temp_store = FILE")  # a sort of much must not take the memory of the server
        _declare_virtual_tables(connection)
        if foreign:  # now that the schema is loaded, whose tables may be wider
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, FOREIGN_LENGTH)
            connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, FOREIGN_COLUMNS)
        connection.set_authorizer(_foreign(connection) if foreign else _ours)
    except BaseException:
        connection.close()
        raise
    return connection


def _declare_virtual_tables(connection: sqlite3.Connection) -> None:
    """Load what virtual tables there are: SQLite declares them by what an authorizer would see as writing."""
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage = 0 AND name IS NOT NULL LIMIT 1000"
    ).fetchall()
    for (name,) in found:
        with suppress(sqlite3.Error):  # of a module that is not here
            connection.execute(f"SELECT 1 FROM {quoted(name)} LIMIT 0").close()  # noqa: S608 - the catalogue's names


def quoted(name: str) -> str:
    """A name as an identifier; names come from the catalogue only."""
    return '"' + name.replace('"', '""') + '"'


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@contextmanager
def deadline(connection: sqlite3.Connection, seconds: float) -> Generator[Callable[[], bool]]:
    """Stop what the connection does after so many seconds; what it gives tells whether that happened."""
    ends = time.monotonic() + seconds
    stopped = threading.Event()
    timer = _Interrupts(connection, seconds, stopped)

    def look() -> int:
        if time.monotonic() < ends:
            return 0
        stopped.set()
        return 1

    connection.set_progress_handler(look, OPCODES)
    timer.start()
    try:
        yield stopped.is_set
    finally:
        timer.end()
        connection.set_progress_handler(None, 0)


class _Interrupts(threading.Thread):
    """Interrupts a connection once its time is over, and goes on until the statement has ended: one may just begin."""

    def __init__(self, connection: sqlite3.Connection, seconds: float, stopped: threading.Event) -> None:
        super().__init__(name="wharfinger-sqlite-deadline", daemon=True)
        self._connection = connection
        self._seconds = seconds
        self._stopped = stopped
        self._ended = threading.Event()

    def run(self) -> None:
        wait = self._seconds
        while not self._ended.wait(wait):
            self._stopped.set()
            self._connection.interrupt()
            wait = 0.05

    def end(self) -> None:
        """Interrupt nothing any more from now on."""
        self._ended.set()
        self.join()


def too_big(error: sqlite3.Error) -> bool:
    """Whether a text or blob was over the limit of the connection."""
    return getattr(error, "sqlite_errorname", "") == "SQLITE_TOOBIG"


def identity(path: str) -> tuple[int, int]:
    """Which file this is: another one may stand at the same path later.

    Raises:
        OSError: it is not there.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino
