"""Copies of files in a form that DuckDB reads: text in UTF-8, and sheets of workbooks as JSON Lines.

They are in a temporary folder that only this user may open. Its size is bounded, and `close` removes it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import IO, Any, NamedTuple, TypeVar

__all__ = ["ConvertedFiles", "OpenCopy"]

MAX_KEPT_BYTES = 1 << 30
"""Maximum size of all copies. The least recently used one is removed first; a read that has begun can still end."""

T = TypeVar("T")


class OpenCopy(NamedTuple):
    """A copy that is open: its descriptor, which the caller closes, its path, and what `make` returned."""

    descriptor: int
    path: str
    facts: Any


class _Copy(NamedTuple):
    version: str
    path: str
    size: int
    facts: Any


class ConvertedFiles:
    """Makes and keeps copies. Several threads may use it at once."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._copies: OrderedDict[Hashable, _Copy] = OrderedDict()
        self._copy_locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()
        self._count = 0

    @property
    def folder(self) -> str:
        """The folder of all copies. It exists from the first use."""
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="wharfinger-", ignore_cleanup_errors=True)
            return os.path.realpath(self._folder.name)

    def open(self, key: Hashable, version: str, make: Callable[[IO[bytes]], T]) -> OpenCopy:
        """Open the copy of this version. If there is none, `make` writes it first. Raises what `make` raises."""
        with self._lock:
            copy_lock = self._copy_locks.setdefault(key, threading.Lock())
        try:
            with copy_lock:  # other callers that need the same copy wait for it
                return self._open_existing(key, version) or self._make(key, version, make)
        finally:
            with self._lock:
                self._copy_locks.pop(key, None)

    def _open_existing(self, key: Hashable, version: str) -> OpenCopy | None:
        with self._lock:
            copy = self._copies.get(key)
            if copy is None or copy.version != version:
                return None
            try:
                descriptor = os.open(copy.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            except FileNotFoundError:  # some systems delete old temporary files
                return None
            self._copies.move_to_end(key)
            return OpenCopy(descriptor, copy.path, copy.facts)

    def _make(self, key: Hashable, version: str, make: Callable[[IO[bytes]], T]) -> OpenCopy:
        folder = self.folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with self._lock:
            self._count += 1
            path = os.path.join(folder, f"{self._count}")
        try:
            with open(path, "xb") as out:
                facts = make(out)
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except BaseException:
            _remove(path)
            raise
        with self._lock:
            previous = self._copies.pop(key, None)
            self._copies[key] = _Copy(version, path, os.fstat(descriptor).st_size, facts)
            removed = [previous.path] if previous else []
            while len(self._copies) > 1 and sum(copy.size for copy in self._copies.values()) > self._max_bytes:
                removed.append(self._copies.popitem(last=False)[1].path)
        for each in removed:
            _remove(each)
        return OpenCopy(descriptor, path, facts)

    def close(self) -> None:
        """Remove all copies. They are made again when they are opened again."""
        with self._lock:
            folder, self._folder = self._folder, None
            self._copies.clear()
        if folder is not None:
            folder.cleanup()


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # Windows keeps a file that is open
        os.unlink(path)
