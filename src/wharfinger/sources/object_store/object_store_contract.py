"""What a store of objects must be able to do, in keys below its prefix; knows no URIs and no library.

Keys are `a/b.txt`; a directory is a key that ends with `/`. All lists are in the order of the keys' characters, which
is that of their UTF-8 bytes and the one that S3 lists in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from wharfinger.errors import InternalError, InvalidArgument
from wharfinger.sources.etag import digest
from wharfinger.sources.windows.window import RandomAccess

__all__ = [
    "ObjectChanged",
    "ObjectContent",
    "ObjectInfo",
    "ObjectStore",
    "StoreFailed",
    "UnreadableObject",
    "behind",
    "level_of",
    "outline",
    "served",
    "signature",
    "writable",
]

LAST = "\U0010ffff"
"""Behind every character: `directory + LAST` is behind all that is in a directory."""


class ObjectInfo(NamedTuple):
    """One object, or a directory: what is known of it without reading it."""

    key: str
    size: int | None = None
    modified: float | None = None
    version: str = ""
    handle: object = None
    """What the store needs to read it again."""

    @property
    def directory(self) -> bool:
        """Whether its key is a directory's."""
        return self.key.endswith("/") or not self.key


class StoreFailed(InternalError):
    """The store did not answer, or refused; the message names it, and nothing secret."""


class ObjectChanged(Exception):
    """What is read is not what was looked at any more: look again."""


class UnreadableObject(InvalidArgument):
    """The object is there and cannot be read; the message says why."""


class ObjectStore(Protocol):
    """A store. Methods block for a bounded time, and are called by several threads at once.

    Each may raise StoreFailed.
    """

    location: str
    """Where it is, for a person; without credentials."""
    every: float
    """Seconds between looks for changes."""

    def page(self, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """Objects behind the key `after`, at most `limit`, and whether more follow."""
        ...

    def level(self, directory: str, begin: str, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """What is directly in a directory, its name beginning with `begin`, behind the key `after`."""
        ...

    def info(self, key: str) -> ObjectInfo | None:
        """One object, or None."""
        ...

    def content(self, info: ObjectInfo) -> RandomAccess:
        """The bytes of what was looked at; reading them raises ObjectChanged or UnreadableObject."""
        ...

    def describe(self) -> str:
        """What a person should know of it, such as how many entries are withheld; empty where that is not quick."""
        ...

    def close(self) -> None:
        """Let connections go; used again, it opens them again."""
        ...


class Ranges(Protocol):
    """What reads pieces of objects."""

    def range(self, info: ObjectInfo, offset: int, length: int) -> bytes:
        """Bytes of an object, of the version that was looked at."""
        ...


class ObjectContent:
    """One version of an object as a content."""

    def __init__(self, store: Ranges, info: ObjectInfo) -> None:
        self._store = store
        self._info = info

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._info.size or 0

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on: `length` of them, fewer only at the end."""
        length = min(length, self.size - offset)
        return self._store.range(self._info, offset, length) if length > 0 else b""


def served(key: str) -> bool:
    """Whether a URI can name this key safely: no empty part, no `.` or `..`, no NUL; a directory ends with one `/`."""
    if not writable(key):
        return False
    parts = key.split("/")
    if not parts[-1]:
        del parts[-1]
    return bool(parts) and not any(part in ("", ".", "..") for part in parts)


def writable(key: str) -> bool:
    """Whether a store can be asked for this key: UTF-8 without NUL."""
    try:
        return b"\0" not in key.encode()
    except UnicodeEncodeError:
        return False


def behind(directory: str) -> str:
    """The key behind all that is in a directory, to go on there."""
    return directory + LAST


def outline(objects: Iterable[ObjectInfo], after: str) -> Iterator[ObjectInfo]:
    """Objects in order, each directory before the first object in it; `after` is where the list goes on.

    A directory whose first object stands before `after` was shown there: everything between `d/` and `d/x` begins with
    `d/`, so that the last key alone tells which directories were shown.
    """
    last = after
    for info in objects:
        yield from (ObjectInfo(directory) for directory in _opened(last, info.key))
        if not info.directory:
            yield info
        last = info.key


def _opened(last: str, key: str) -> Iterator[str]:
    at = key.find("/")
    while at >= 0:
        if not last.startswith(key[: at + 1]):
            yield key[: at + 1]
        at = key.find("/", at + 1)


def level_of(keys: Sequence[str], directory: str, begin: str, after: str) -> Iterator[str]:
    """What is directly in a directory, out of all keys in order, skipping what is further down."""
    start = directory + begin
    at = max(bisect_right(keys, after), bisect_right(keys, start))
    if begin == "" and start:  # the directory itself is no entry of it
        at = max(at, bisect_right(keys, directory))
    elif at and keys[at - 1] == start and start > after:
        at -= 1
    while at < len(keys) and keys[at].startswith(start):
        key = keys[at]
        slash = key.find("/", len(directory))
        if slash < 0:
            yield key
            at += 1
            continue
        inner = key[: slash + 1]
        if inner > after:
            yield inner
        at = bisect_right(keys, behind(inner), at)


def signature(infos: Iterable[ObjectInfo]) -> str:
    """Tells one list from any other."""
    return digest(*[info.key for info in infos])
