"""Copies of files in a form that DuckDB reads: text in UTF-8, and sheets of workbooks as JSON Lines.

They are in a temporary folder that only this user may open, and their total size is bounded. A copy that must go while
it is in use is removed after its last use, because DuckDB cannot read a file without a path.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

__all__ = ["ConvertedFiles", "OpenCopy"]

MAX_KEPT_BYTES = 1 << 30
"""Maximum size of all copies that are kept for later. Of several, the least recently used one is removed first.

A single copy is kept even if it is larger.
"""

T = TypeVar("T")


class OpenCopy(NamedTuple):
    """A copy that is open: its descriptor, its path, and what `make` returned."""

    descriptor: int
    path: str
    facts: Any


class _Folder:
    """A temporary folder, and how many callers write or read a copy in it."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="wharfinger-", ignore_cleanup_errors=True)
        self.path = os.path.realpath(self.directory.name)
        self.users = 0


class _Copy(msgspec.Struct):
    """A copy, and how many callers have it open. If `kept` is False, the last of them removes it."""

    folder: _Folder
    path: str
    version: str
    size: int
    facts: Any
    users: int = 1
    kept: bool = True


class ConvertedFiles:
    """Makes and keeps copies. Several threads may use it at once."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._folder: _Folder | None = None
        self._copies: OrderedDict[Hashable, _Copy] = OrderedDict()
        self._copy_locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()
        self._count = 0

    @contextlib.contextmanager
    def open(self, key: Hashable, version: str, make: Callable[[IO[bytes]], T]) -> Generator[OpenCopy]:
        """Open the copy of this version. If there is none, `make` writes it first. Raises what `make` raises."""
        with self._lock:
            copy_lock = self._copy_locks.setdefault(key, threading.Lock())
        try:
            with copy_lock:  # other callers that need the same copy wait for it
                copy, descriptor = self._open_existing(key, version) or self._make(key, version, make)
        finally:
            with self._lock:
                self._copy_locks.pop(key, None)
        try:
            yield OpenCopy(descriptor, copy.path, copy.facts)
        finally:
            os.close(descriptor)
            with self._lock:
                copy.users -= 1
                is_unused = not copy.kept and not copy.users
            if is_unused:
                _remove(copy.path)
            self._leave(copy.folder)

    def _open_existing(self, key: Hashable, version: str) -> tuple[_Copy, int] | None:
        with self._lock:
            copy = self._copies.get(key)
            if copy is None or copy.version != version:
                return None
            try:
                descriptor = _open(copy.path)
            except FileNotFoundError:  # some systems delete old temporary files
                return None
            self._copies.move_to_end(key)
            copy.users += 1
            copy.folder.users += 1
            return copy, descriptor

    def _make(self, key: Hashable, version: str, make: Callable[[IO[bytes]], T]) -> tuple[_Copy, int]:
        with self._lock:
            folder = self._folder = self._folder or _Folder()
            folder.users += 1
            self._count += 1
            path = os.path.join(folder.path, f"{self._count}")
        try:
            os.makedirs(folder.path, mode=0o700, exist_ok=True)  # some systems delete old temporary folders
            with open(path, "xb") as out:
                facts = make(out)
            descriptor = _open(path)
        except BaseException:
            _remove(path)
            self._leave(folder)
            raise
        copy = _Copy(folder, path, version, os.fstat(descriptor).st_size, facts)
        with self._lock:
            dropped: list[_Copy] = []
            if self._folder is folder:
                dropped += [self._copies.pop(key)] if key in self._copies else []
                self._copies[key] = copy
            else:  # `close` was called meanwhile
                copy.kept = False
            while len(self._copies) > 1 and sum(each.size for each in self._copies.values()) > self._max_bytes:
                dropped.append(self._copies.popitem(last=False)[1])
            for each in dropped:
                each.kept = False
            removed = [each.path for each in dropped if not each.users]
        for removed_path in removed:
            _remove(removed_path)
        return copy, descriptor

    def _leave(self, folder: _Folder) -> None:
        """Record that one caller has finished with the folder. After `close`, the last caller removes the folder."""
        with self._lock:
            folder.users -= 1
            is_unused = self._folder is not folder and not folder.users
        if is_unused:
            folder.directory.cleanup()

    def close(self) -> None:
        """Remove all copies: now, or if any is in use, after the last use. A later `open` makes its copy again."""
        with self._lock:
            folder, self._folder = self._folder, None
            self._copies.clear()
            is_unused = folder is not None and not folder.users
        if folder is not None and is_unused:
            folder.directory.cleanup()


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # Windows keeps a file that is open
        os.unlink(path)
