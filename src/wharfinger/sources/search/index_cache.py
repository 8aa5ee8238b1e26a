"""Where an index is kept: a file in a cache folder, held by one server at a time; refuses to know what is in it."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

__all__ = ["IndexFile", "cache_folder", "hold"]

log = logging.getLogger("wharfinger.sources")

SERVERS = 16
"""Servers that may keep an index of the same sources at once, each its own."""
ENDINGS = ("", "-wal", "-shm")


class IndexFile:
    """A file that no other server uses, until `release`."""

    def __init__(self, path: Path, lock: sqlite3.Connection, folder: tempfile.TemporaryDirectory[str] | None) -> None:
        self.path = path
        self._lock = lock
        self._temporary = folder

    def clear(self) -> None:
        """Remove what is there."""
        for ending in ENDINGS:
            Path(f"{self.path}{ending}").unlink(missing_ok=True)

    def release(self) -> None:
        """Let others use it; what was written into a folder of the moment is gone."""
        self._lock.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def cache_folder() -> Path:
    """`wharfinger` in `XDG_CACHE_HOME`, else where the system keeps caches."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "wharfinger"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "wharfinger" / "cache"
    return Path.home() / ".cache" / "wharfinger"


def hold(folder: Path, sources: Iterable[str], max_size: int) -> IndexFile:
    """A place in the folder for these sources, the same as the last time if it is free.

    Indexes of other sources are removed, those unused for longest first, until there is room. Where the folder cannot
    be used, that is logged, and the place is in a temporary one.
    """
    key = hashlib.blake2b("\0".join(sorted(sources)).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = _free(folder, key)
        _make_room(folder, place.path, max_size)
    except (OSError, sqlite3.Error) as error:
        log.warning("The search index is not kept: %s cannot be used (%s)", folder, error)
        temporary = tempfile.TemporaryDirectory(prefix="wharfinger-", ignore_cleanup_errors=True)
        return _free(Path(temporary.name), key, temporary)
    return place


def _free(folder: Path, key: str, temporary: tempfile.TemporaryDirectory[str] | None = None) -> IndexFile:
    """The first place that nobody holds.

    Raises:
        OSError: all are held.
        sqlite3.Error: the folder cannot be written.
    """
    for number in range(SERVERS):
        path = folder / f"search-{key}-{number}.sqlite"
        lock = _lock(path)
        if lock is not None:
            with suppress(OSError):
                os.utime(path)  # used now, whatever is written
            return IndexFile(path, lock, temporary)
    raise OSError(f"{SERVERS} servers keep an index of these sources already")


def _lock(path: Path) -> sqlite3.Connection | None:
    """Hold a path; None where somebody else does. SQLite's lock ends with its process, and is on every system."""
    lock = sqlite3.connect(path.with_suffix(".lock"), timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if "locked" in str(error):
            return None
        raise
    except BaseException:
        lock.close()
        raise
    return lock


def _make_room(folder: Path, kept: Path, max_size: int) -> None:
    """Remove indexes that nobody holds, the oldest first, until what is left has `max_size` with this one."""
    found = sorted(folder.glob("search-*.sqlite"), key=lambda path: path.stat().st_mtime, reverse=True)
    total = kept.stat().st_size if kept.exists() else 0
    for path in found:
        if path == kept:
            continue
        total += path.stat().st_size
        if total <= max_size:
            continue
        lock = _lock(path)
        if lock is not None:
            with closing(lock):
                for ending in ENDINGS:
                    Path(f"{path}{ending}").unlink(missing_ok=True)
