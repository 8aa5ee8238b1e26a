"""The file of an index in a cache folder, locked while a server uses it, and reused after a restart."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from wharfinger.private_files import cache_folder

__all__ = ["IndexFile", "open_index_file"]

log = logging.getLogger("wharfinger.sources")

ENDINGS = ("", "-wal", "-shm")
"""Endings of the files that SQLite creates for one database."""


class IndexFile:
    """An index file that no other server can use until `release` is called."""

    def __init__(
        self,
        path: Path,
        lock: sqlite3.Connection | None = None,
        temporary: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.path = path
        self._lock = lock
        self._temporary = temporary

    def clear(self) -> None:
        """Delete the index."""
        _delete(self.path)

    def release(self) -> None:
        """Let other servers use the file, or delete it if it is temporary."""
        if self._lock is not None:
            self._lock.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def open_index_file(folder: Path | None, identities: Iterable[str], max_size: int) -> IndexFile:
    """Open the file in `folder` for the index of the sources with these identities, which always get the same file.

    The default folder is that of the user's caches. Keeps the newest indexes that fit into `max_size` bytes together,
    and deletes others that no server uses. If another server uses the file, or the folder cannot be used, this is
    logged, and the file is in a temporary folder.
    """
    key = hashlib.blake2b("\0".join(sorted(identities)).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    name = f"search-{key}.sqlite"
    try:
        folder = folder or cache_folder()
        path = folder / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock(path)
        if lock is not None:
            with suppress(OSError):
                os.utime(path)  # the time of the last use, even if nothing is written
            _make_room(folder, path, max_size)
            return IndexFile(path, lock)
        log.info("Another server uses the search index of these sources: this server uses a temporary one")
    except (OSError, sqlite3.Error) as error:
        log.warning("The search index is not kept: %s cannot be used (%s)", folder or "the cache folder", error)
    temporary = tempfile.TemporaryDirectory(prefix="wharfinger-", ignore_cleanup_errors=True)
    return IndexFile(Path(temporary.name) / name, temporary=temporary)


def _lock(path: Path) -> sqlite3.Connection | None:
    """Lock a path and return the lock; None if another server holds it. SQLite's lock ends with its process."""
    lock = sqlite3.connect(path.with_suffix(".lock"), timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except BaseException as error:
        lock.close()
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return None
        raise
    return lock


def _make_room(folder: Path, own_path: Path, max_size: int) -> None:
    """Keep the newest indexes that fit into `max_size` bytes together, and delete others that no server uses."""
    total = own_path.stat().st_size if own_path.exists() else 0
    indexes: list[tuple[float, int, Path]] = []
    for path in folder.glob("search-*.sqlite"):
        with suppress(FileNotFoundError):  # another server that starts now may have deleted it
            status = path.stat()
            indexes.append((status.st_mtime, status.st_size, path))
    for _, size, path in sorted(indexes, reverse=True):
        if path == own_path:
            continue
        total += size
        if total > max_size and (lock := _lock(path)) is not None:
            with closing(lock):
                _delete(path)


def _delete(path: Path) -> None:
    for ending in ENDINGS:
        Path(f"{path}{ending}").unlink(missing_ok=True)
