"""DuckDB as a reader of files below one folder, and of nothing else: it downloads, writes and configures nothing."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from wharfinger.errors import HandlerFailed, InvalidArgument, MissingExtra

__all__ = ["DuckDBEngine", "UnreadableTable", "literal", "path_of"]

SECONDS = 10.0
"""Time of one statement, which is interrupted then."""
MEMORY, THREADS = "256MB", 2
FETCHED = 16
"""Rows that are taken from DuckDB at once: each may have values of many MiB."""

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
    """The file is not a table that can be read; the message says why, and where."""


class DuckDBEngine:
    """One DuckDB in memory, for several threads at once. It may read below `root`."""

    def __init__(self, root: str) -> None:
        try:
            import duckdb
        except ImportError:
            raise MissingExtra("tables", "Publishing tables") from None
        self._errors: Any = duckdb.Error
        self._interrupted: Any = duckdb.InterruptException
        self._connection: Any = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "memory_limit": MEMORY,
                "threads": str(THREADS),
            },
        )
        inside = os.path.join(root, "")
        for setting in _SETTINGS:
            self._connection.execute(f"SET {setting.format(root=literal(inside))}")

    def ask(self, name: str, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement, which bounds them itself; errors as of `rows`."""
        return list(self.rows(name, statement, parameters))

    def rows(self, name: str, statement: str, parameters: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement, a few at a time, since they may be large; `name` is the file's, for errors.

        Raises:
            UnreadableTable: DuckDB cannot read the file.
            HandlerFailed: it took too long.
        """
        cursor = self._connection.cursor()
        timer = threading.Timer(SECONDS, cursor.interrupt)
        timer.daemon = True
        timer.start()
        try:
            cursor.execute(statement, list(parameters))
            while batch := cursor.fetchmany(FETCHED):
                yield from batch
        except self._interrupted:
            raise HandlerFailed(f"{name}: this took longer than {SECONDS:g} s, and was ended.") from None
        except self._errors as error:
            raise UnreadableTable(f"{name} cannot be read: {_reason(str(error))}") from None
        finally:
            timer.cancel()
            cursor.close()


def path_of(descriptor: int, path: str) -> str:
    """A path of this open file that stays valid if the file is renamed; its own path if the system has none."""
    ours = f"/proc/self/fd/{descriptor}"
    return ours if os.path.exists(ours) else path


def literal(text: str) -> str:
    """A text in a statement."""
    return "'" + text.replace("'", "''") + "'"


def _reason(said: str) -> str:
    """DuckDB's error about a file in one line, without the content that it repeats and the settings it proposes."""
    line = _LINE.search(said)
    lines = [_NOISE.sub("", _NOISE.sub("", text.strip())).strip() for text in said.splitlines()]
    words = _OUR_PATH.sub("", next((text for text in lines if text), "it is damaged"))[:300].rstrip(".")
    return f"line {line[1]}: {words}." if line else f"{words}."
