"""Runs our own statements, which only read, in DuckDB with access to the files of one folder only.

DuckDB cannot download anything or change settings. Statements of callers run in a child process (`query_process`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from wharfinger.errors import HandlerFailed, InvalidArgument, MissingExtra
from wharfinger.sources.interrupt_timer import InterruptTimer

__all__ = ["DuckDBEngine", "UnreadableTable", "literal", "path_of", "pattern_of"]

QUERY_SECONDS = 10.0
"""Time after which a statement is interrupted."""
MEMORY, THREADS = "256MB", 2
FETCHED_ROWS = 16
"""Rows that are fetched from DuckDB at once. A row may have values of many MiB."""

_SETTINGS = (
    "temp_directory = ''",
    "enable_external_file_cache = false",
    "preserve_insertion_order = true",
    "allow_community_extensions = false",
    "allowed_directories = [{root}]",
    "enable_external_access = false",
    "lock_configuration = true",
)
_OUR_PATH = re.compile(r"[\"']?/proc/self/fd/\d+[\"']?")
_LINE = re.compile(r"on Line: (\d+)")
_NOISE = re.compile(r"^(?:[A-Z]\w+ )*Error:\s*|^CSV Error on Line: \d+|^Original Line:.*|^Possible .*|^LINE \d+:.*")


class UnreadableTable(InvalidArgument):
    """The file is not a table that can be read. The message says why, and in which line if that is known."""


class DuckDBEngine:
    """A DuckDB database in memory. Several threads may use it at once, and it can only open files in `root`."""

    def __init__(self, root: str) -> None:
        try:
            import duckdb
        except ImportError:
            raise MissingExtra("tables", "Publishing tables") from None
        self._error: Any = duckdb.Error
        self._interrupt: Any = duckdb.InterruptException
        self._connection: Any = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "memory_limit": MEMORY,
                "threads": str(THREADS),
            },
        )
        folder = os.path.join(root, "")
        for setting in _SETTINGS:
            self._connection.execute(f"SET {setting.format(root=literal(folder))}")

    def fetch_all(self, name: str, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a statement, which must limit their number. Raises the same errors as `rows`."""
        return list(self.rows(name, statement, parameters))

    def rows(self, name: str, statement: str, parameters: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement, and fetch only a few at a time. Errors contain `name`.

        Raises:
            UnreadableTable: DuckDB cannot read the file.
            HandlerFailed: the statement took longer than `QUERY_SECONDS`.
        """
        cursor = self._connection.cursor()
        timer = InterruptTimer(cursor.interrupt, QUERY_SECONDS)
        timer.start()
        try:
            cursor.execute(statement, list(parameters))
            while batch := cursor.fetchmany(FETCHED_ROWS):
                yield from batch
        except self._interrupt:
            raise HandlerFailed(f"{name}: this took longer than {QUERY_SECONDS:g} s, and was stopped.") from None
        except self._error as error:
            raise UnreadableTable(f"{name} cannot be read: {_reason(str(error))}") from None
        finally:
            timer.end()
            cursor.close()


def path_of(descriptor: int, path: str) -> str:
    """Return a path that names an open file even after a rename, but not after a removal.

    Returns `path` if the system has no such path.
    """
    open_path = f"/proc/self/fd/{descriptor}"
    return open_path if os.path.exists(open_path) else path


def pattern_of(path: str) -> str:
    """Return the pattern that matches only this path. DuckDB takes every path for a pattern of paths."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def literal(text: str) -> str:
    """Quote a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _reason(message: str) -> str:
    """Shorten an error of DuckDB to one line, without quoted content and suggested settings."""
    line = _LINE.search(message)
    lines = [_NOISE.sub("", _NOISE.sub("", text.strip())).strip() for text in message.splitlines()]
    if "Error when sniffing file" in message:
        return "its rows do not fit together: is a quote not closed, or the delimiter not one of , ; | and tab?"
    words = _OUR_PATH.sub("", next((text for text in lines if text), "it is damaged"))[:300].rstrip(".")
    return f"line {line[1]}: {words}." if line else f"{words}."
