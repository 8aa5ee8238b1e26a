"""Connections to an SQLite file that can only read, with bounds on time and memory.

Every client that can call `query` may send any SQL. Each of these checks keeps it from writing to the database:

1. The file is opened with `mode=ro`. Alone, that would let `ATTACH` and `VACUUM INTO` write other files.
2. `PRAGMA query_only` makes every write to the database fail.
3. An authorizer, which SQLite calls while it prepares a statement, allows only SELECT, READ, FUNCTION (without the
   functions that reach outside), RECURSIVE and `PRAGMA data_version`.

`trusted_schema = OFF` keeps views and triggers in an untrusted file from calling functions with side effects, and no
extension is ever loaded. Memory is bounded by limits on texts, columns and expressions. Time is bounded by a deadline,
which stops a statement in two ways: between two opcodes by the progress handler, and within one by `interrupt()` from
a timer. A few functions run within one opcode that ignores `interrupt()`, so their arguments are bounded.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from urllib.parse import quote

from wharfinger.sources.interrupt_timer import InterruptTimer
from wharfinger.sources.sql_database.database_catalogue import quoted

__all__ = [
    "MAX_LIKE_BYTES",
    "MAX_QUERY_LENGTH",
    "MAX_VALUE_BYTES",
    "SLOW_FUNCTIONS",
    "connect",
    "deadline",
    "identity",
    "only_reads",
    "too_big",
]

MIB = 1 << 20
MAX_VALUE_BYTES = 32 * MIB
"""Maximum bytes of a text or blob that a statement creates or loads. A longer one is read in part."""

MAX_QUERY_LENGTH = 8 * MIB
"""Maximum bytes of a text or blob in a caller's statement, which may create many of them in one row."""
MAX_QUERY_COLUMNS = 100
"""Maximum number of columns in the result of a caller's statement."""

SLOW_FUNCTIONS = {
    "trim": 64 << 10,
    "ltrim": 64 << 10,
    "rtrim": 64 << 10,
    "json_patch": 256 << 10,
    "instr": 512 << 10,
    "replace": 512 << 10,
}
"""Maximum bytes of a text or blob in a statement that uses one of these functions.

Their time grows with the square of the length, in one opcode that cannot be interrupted. With these maxima, they take
seconds instead of hours."""

OPCODES_PER_CHECK = 2_000
"""Opcodes between two checks of the deadline: well under a millisecond."""
MAX_LIKE_BYTES = 200
"""Maximum bytes of a pattern of LIKE, whose time in one opcode grows with its length times that of the text."""
BUSY_SECONDS = 2.0
"""Longest wait for a writer that has locked the file."""

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 2_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: MAX_LIKE_BYTES,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 1_000,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "lsdir", "fsdir", "sqlite_log", "rtreecheck"}
)
_OUR_PRAGMAS = frozenset(
    {
        "table_list",
        "table_xinfo",
        "index_list",
        "index_xinfo",
        "foreign_key_list",
        "data_version",
        "encoding",
        "schema_version",
    }
)


def only_reads(action: int, first: str | None, second: str | None, _database: str | None, _by: str | None) -> int:
    """Authorize SELECT, READ, RECURSIVE, harmless functions and `PRAGMA data_version` in callers' statements."""
    if action == sqlite3.SQLITE_PRAGMA and first == "data_version":
        return sqlite3.SQLITE_OK  # full-text tables use it; it returns a number
    if action not in _READING:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _query_authorizer(
    connection: sqlite3.Connection,
) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """Return an authorizer like `only_reads` that also lowers the maximum length for slow functions."""

    def authorize(action: int, first: str | None, second: str | None, database: str | None, by: str | None) -> int:
        limit = SLOW_FUNCTIONS.get((second or "").lower()) if action == sqlite3.SQLITE_FUNCTION else None
        if limit is not None and limit < connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)
        return only_reads(action, first, second, database, by)

    return authorize


def _own_authorizer(action: int, first: str | None, second: str | None, database: str | None, by: str | None) -> int:
    """Authorize our own statements, which also read the catalogue with pragmas."""
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in _OUR_PRAGMAS else sqlite3.SQLITE_DENY
    return only_reads(action, first, second, database, by)


def connect(path: str, *, for_query: bool = False) -> sqlite3.Connection:
    """Open a connection that can only read, for our own statements or, with `for_query`, for a caller's.

    Raises:
        sqlite3.Error: the file is missing, is locked, or is not a database.
    """
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=ro",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    try:
        connection.text_factory = _text
        for category, limit in _LIMITS.items():
            connection.setlimit(category, limit)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cache_size = -4096")  # KiB
        connection.execute("PRAGMA temp_store = FILE")  # a large sort must not take the memory of the server
        _declare_virtual_tables(connection)
        if for_query:  # after the schema is loaded, because its tables may have more columns
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_QUERY_LENGTH)
            connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, MAX_QUERY_COLUMNS)
        connection.set_authorizer(_query_authorizer(connection) if for_query else _own_authorizer)
    except BaseException:
        connection.close()
        raise
    return connection


def _declare_virtual_tables(connection: sqlite3.Connection) -> None:
    """Load the virtual tables before the authorizer is set: to an authorizer, declaring them looks like writing."""
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage = 0 AND name IS NOT NULL LIMIT 1000"
    ).fetchall()
    for (name,) in rows:
        with suppress(sqlite3.Error, UnicodeError):  # its module is missing, or its name is not UTF-8
            connection.execute(f"SELECT 1 FROM {quoted(name)} LIMIT 0").close()  # noqa: S608 - the catalogue's names


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@contextmanager
def deadline(connection: sqlite3.Connection, seconds: float) -> Generator[Callable[[], bool]]:
    """Stop the connection's statement after this time. Yields a function that returns whether it was stopped."""
    until = time.monotonic() + seconds
    stopped = threading.Event()

    def interrupt() -> None:
        stopped.set()
        connection.interrupt()

    timer = InterruptTimer(interrupt, seconds)

    def check() -> int:
        if time.monotonic() < until:
            return 0
        stopped.set()
        return 1

    connection.set_progress_handler(check, OPCODES_PER_CHECK)
    timer.start()
    try:
        yield stopped.is_set
    finally:
        timer.end()
        connection.set_progress_handler(None, 0)


def too_big(error: sqlite3.Error) -> bool:
    """Return whether a text or blob was longer than the connection allows."""
    return getattr(error, "sqlite_errorname", "") == "SQLITE_TOOBIG"


def identity(path: str) -> tuple[int, int]:
    """Return the device and inode of the file, which change if another file is put at its path.

    Raises:
        OSError: the file is missing.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino
