"""The interface of a store of objects. Keys are relative to its prefix.

Keys look like `a/b.txt`; the key of a directory ends with `/`. Lists are sorted by the characters of the keys, which is
the order of their UTF-8 bytes, and the order in which S3 lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from wharfinger.errors import InternalError, InvalidArgument
from wharfinger.source import SourceUnavailable
from wharfinger.sources.etag import digest
from wharfinger.sources.windows.window import RandomAccess

__all__ = [
    "ObjectChanged",
    "ObjectContent",
    "ObjectInfo",
    "ObjectStore",
    "StoreFailed",
    "StoreUnavailable",
    "UnreadableObject",
    "after_directory",
    "digest_of_keys",
    "direct_entries",
    "is_served",
    "is_valid_key",
    "with_directories",
]

LAST_CHARACTER = "\U0010ffff"
"""`directory + LAST_CHARACTER` sorts after everything in a directory."""


class ObjectInfo(NamedTuple):
    """The facts about an object or directory that are known without reading it."""

    key: str
    size: int | None = None
    modified: float | None = None
    version: str = ""
    handle: object = None
    """A value that the store needs to read the object."""

    @property
    def is_directory(self) -> bool:
        """Whether this is a directory."""
        return self.key.endswith("/") or not self.key


class StoreFailed(InternalError):
    """The store did not answer, or refused the call. The message names it without credentials."""


class StoreUnavailable(StoreFailed, SourceUnavailable):
    """The store does not answer, or its bucket or file no longer exists."""


class ObjectChanged(Exception):
    """The object has changed since `info` was called: call it again."""


class UnreadableObject(InvalidArgument):
    """The object exists but cannot be read. The message says why."""


class ObjectStore(Protocol):
    """A store. Methods may block for a bounded time, and are called from several threads at once.

    Each may raise StoreFailed.
    """

    location: str
    """The address of the store for people, without credentials."""
    noun: str
    """The kind of store, such as bucket or archive."""
    poll_seconds: float
    """Seconds between two rounds of polling."""
    sleep_ratio: float
    """Minimum pause between rounds of polling, as a multiple of the duration of a round."""

    def page(self, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List at most `limit` objects after the key `after`. Returns them, and whether more follow."""
        ...

    def directory_page(self, directory: str, begin: str, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List at most `limit` entries of a directory after the key `after`, with names that start with `begin`.

        Returns them, and whether more follow.
        """
        ...

    def info(self, key: str) -> ObjectInfo | None:
        """Return one object, or None if it does not exist."""
        ...

    def content(self, info: ObjectInfo) -> RandomAccess:
        """Return the content of an object. This, and reading it, may raise ObjectChanged or UnreadableObject."""
        ...

    def describe(self) -> str:
        """Return a text about the store, such as the number of withheld entries; empty if counting would take long."""
        ...

    def close(self) -> None:
        """Close connections. A later call opens them again."""
        ...


class RangeReader(Protocol):
    """A store that reads ranges of objects."""

    def range(self, info: ObjectInfo, offset: int, length: int) -> bytes:
        """Read bytes of the version of an object that `info` describes."""
        ...


class ObjectContent:
    """The content of one version of an object."""

    def __init__(self, store: RangeReader, info: ObjectInfo) -> None:
        self._store = store
        self._info = info

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._info.size or 0

    def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes from `offset`, or fewer at the end."""
        length = min(length, self.size - offset)
        return self._store.range(self._info, offset, length) if length > 0 else b""


def is_served(key: str) -> bool:
    """Return whether a URI can contain this key safely: it is valid, and has no empty part, `.` or `..`."""
    if not is_valid_key(key):
        return False
    parts = key.split("/")
    if not parts[-1]:
        del parts[-1]
    return bool(parts) and not any(part in ("", ".", "..") for part in parts)


def is_valid_key(key: str) -> bool:
    """Return whether a store accepts this key: UTF-8 without NUL."""
    try:
        return b"\0" not in key.encode()
    except UnicodeEncodeError:
        return False


def after_directory(directory: str) -> str:
    """Return a key that sorts after everything in a directory, to continue a list there."""
    return directory + LAST_CHARACTER


def with_directories(objects: Iterable[ObjectInfo], after: str) -> Iterator[ObjectInfo]:
    """Yield the objects of a list, and each directory before the first object in it.

    `after` is the key after which the list continues. Of the directories of the next object, exactly those that contain
    `after` were listed before: every key between `d/` and `d/x` starts with `d/`.
    """
    last = after
    for info in objects:
        slash = info.key.find("/")
        while slash >= 0:
            if not last.startswith(info.key[: slash + 1]):
                yield ObjectInfo(info.key[: slash + 1])
            slash = info.key.find("/", slash + 1)
        if not info.is_directory:
            yield info
        last = info.key


def direct_entries(keys: Sequence[str], directory: str, begin: str, after: str) -> Iterator[str]:
    """Yield the direct entries of a directory, from a sorted list of all keys. Skips the contents of subdirectories."""
    start = directory + begin
    # A directory does not contain itself, but it may contain an object with exactly the name `begin`.
    index = bisect_left(keys, start) if begin and start > after else bisect_right(keys, max(after, start))
    while index < len(keys) and keys[index].startswith(start):
        key = keys[index]
        slash = key.find("/", len(directory))
        if slash < 0:
            yield key
            index += 1
            continue
        inner = key[: slash + 1]
        if inner > after:
            yield inner
        index = bisect_right(keys, after_directory(inner), index)


def digest_of_keys(infos: Iterable[ObjectInfo]) -> str:
    """Return a digest of a list, which differs if the keys do."""
    return digest(*[info.key for info in infos])
