"""An archive as a store of objects: opened once, listed from its index, and opened again when its file changes."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from wharfinger.content.text import many
from wharfinger.source import UnusableSource
from wharfinger.sources.object_store.object_store_contract import (
    ObjectInfo,
    StoreFailed,
    StoreUnavailable,
    direct_entries,
    is_served,
)

__all__ = [
    "MAX_MEMBERS",
    "MAX_NAME_BYTES",
    "MAX_RATIO",
    "RATIO_MIN_BYTES",
    "ArchiveStore",
    "FileStamp",
    "OpenArchive",
    "stamp_of_path",
    "stamp_of_status",
    "stays_inside",
]

MAX_MEMBERS = 300_000
"""Maximum number of entries of an archive: each takes about 600 bytes of memory, but as few as 46 in the file."""
MAX_NAME_BYTES = 1_024
"""Maximum bytes of the name of a member, as of a key in S3. Members with a longer name are withheld."""
MAX_RATIO, RATIO_MIN_BYTES = 250, 16 << 20
"""Data that grows more than `MAX_RATIO` times when it is decompressed, and beyond `RATIO_MIN_BYTES`, is refused as a
bomb."""

FileStamp = tuple[int, int, int, int]
"""The device, inode, time (ns) and size of a file. It differs if the file was changed or replaced."""

F = TypeVar("F")
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class OpenArchive(Generic[F, M]):
    """An archive as it was when it was opened: its file, its members by name, and the number of withheld ones."""

    stamp: FileStamp
    file: F
    keys: list[str]
    members: dict[str, M]
    withheld_count: int


class ArchiveStore(Generic[F, M]):
    """One archive. A subclass opens it, and reads its members."""

    noun = "archive"
    poll_seconds = 1.0
    sleep_ratio = 20.0
    """As for `Polling`."""
    format_name = "archive"
    """The format, for messages."""
    withheld_kinds = "links or unsafe"
    """The members that are not served, for messages."""
    damage: tuple[type[Exception], ...] = (ValueError,)
    """The exceptions that opening a damaged archive raises."""

    def __init__(self, path: str) -> None:
        self.path = self.location = os.path.realpath(path)
        if not os.path.isfile(self.path):
            raise UnusableSource(f"There is no file {self.path}.")
        self._lock = threading.Lock()
        self._archive: OpenArchive[F, M] | None = None
        self._failure: tuple[FileStamp | None, str] | None = None
        """The stamp of a file that was damaged, and the message about it."""
        try:
            self.current()
        except StoreFailed as error:
            raise UnusableSource(str(error)) from None

    def open(self) -> OpenArchive[F, M]:
        """Open the file and read its index. Raises OSError, or one of `damage`."""
        raise NotImplementedError

    def describe_member(self, key: str, member: M, archive: OpenArchive[F, M]) -> ObjectInfo:
        """Return the facts about a member."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop the open archive. Its file stays open until threads that read from it are done."""
        self._archive = None

    def current(self) -> OpenArchive[F, M]:
        """Return the archive, opened again if its file has changed.

        Raises:
            StoreFailed: the file no longer exists, or is not an archive.
        """
        with self._lock:
            stamp: FileStamp | None = None
            try:
                stamp = stamp_of_status(os.stat(self.path))
                if self._archive is None or self._archive.stamp != stamp:
                    self.forget()
                    if self._failure is not None and self._failure[0] == stamp:
                        raise StoreFailed(self._failure[1])  # opening it again would take as long, and fail again
                    self._archive = self.open()
            except OSError as error:
                raise StoreUnavailable(f"{os.path.basename(self.path)} cannot be read: {error.strerror}.") from None
            except self.damage as error:
                message = f"{os.path.basename(self.path)} cannot be read as a {self.format_name}: {error}"
                self._failure = (stamp, message)
                raise StoreFailed(message) from None
            return self._archive

    # Listing

    def page(self, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List a page of all members, in the order of their names."""
        archive = self.current()
        begin = bisect_right(archive.keys, after)
        end = begin + limit
        return [self._info(archive, key) for key in archive.keys[begin:end]], end < len(archive.keys)

    def directory_page(self, directory: str, begin: str, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List a page of the entries of a directory whose names begin with `begin`."""
        archive = self.current()
        entries = list(islice(direct_entries(archive.keys, directory, begin, after), limit + 1))
        return [self._info(archive, key) for key in entries[:limit]], len(entries) > limit

    def info(self, key: str) -> ObjectInfo | None:
        """Return one member, or None if it does not exist."""
        archive = self.current()
        return self._info(archive, key) if key in archive.members else None

    def _info(self, archive: OpenArchive[F, M], key: str) -> ObjectInfo:
        member = archive.members.get(key)
        return ObjectInfo(key) if member is None else self.describe_member(key, member, archive)

    def describe(self) -> str:
        """Return the number of members, and of withheld ones."""
        archive = self.current()
        text, withheld = many(len(archive.keys), "member"), archive.withheld_count
        return f"{text} ({withheld:,} withheld: {self.withheld_kinds})" if withheld else text

    def close(self) -> None:
        """Close the archive."""
        with self._lock:
            self.forget()


def stays_inside(name: str) -> bool:
    """Return whether the name of a member stays inside the archive on every operating system, and is short enough."""
    return is_served(name) and "\\" not in name and name[1:2] != ":" and len(name.encode()) <= MAX_NAME_BYTES


def stamp_of_status(status: os.stat_result) -> FileStamp:
    """Return the stamp of an open file or a path from its status."""
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def stamp_of_path(path: str) -> FileStamp | None:
    """Return the stamp of the file that is at a path now, or None if there is no file."""
    try:
        return stamp_of_status(os.stat(path))
    except OSError:
        return None
