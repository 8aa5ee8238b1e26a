"""Members of a ZIP archive.

An archive is untrusted input: it may be built to fill the memory or to reach files outside. Therefore:

- The directory of the archive is bounded in bytes, members and extra fields, before `zipfile` parses it.
- Members are withheld (neither listed nor read) if their path leads out of the archive, if they are links or devices,
  or if they share bytes with another member: a bomb packs its data once and lists it a thousand times.
- Members are decompressed as streams, only with deflate, and at most to their declared size. A member that declares to
  grow more than 250 times is not decompressed.

To read at an offset, everything before it must be decompressed. Therefore the streams of the last windows stay open,
and the next window continues in its stream.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import threading
import time
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from typing import IO, NamedTuple

from wharfinger.content.text import many
from wharfinger.source import UnusableSource
from wharfinger.sources.object_store.object_store_contract import (
    ObjectChanged,
    ObjectInfo,
    StoreFailed,
    StoreUnavailable,
    UnreadableObject,
    direct_entries,
    served,
)
from wharfinger.sources.windows.window import RandomAccess

__all__ = ["MAX_DIRECTORY_BYTES", "MAX_INFLATED_BYTES", "MAX_RATIO", "ZipStore"]

MAX_DIRECTORY_BYTES = 32 << 20
"""Bytes of the archive's directory."""
MAX_MEMBERS = 300_000
"""Entries in the directory: each takes about 600 bytes of memory, but as few as 46 in the file."""
MAX_EXTRA_BYTES = 4_096
"""Bytes of the extra fields of one entry. The time that `zipfile` takes grows with the square of their number."""
MAX_NAME_BYTES = 1_024
"""Bytes of the name of a member, as of a key in S3. Members with a longer name are withheld."""
MAX_INFLATED_BYTES = 1 << 30
"""Bytes of a compressed member that can be read; the rest is not decompressed."""
MAX_RATIO, RATIO_MIN_BYTES = 250, 16 << 20
"""A member that declares to grow more than `MAX_RATIO` times, and beyond `RATIO_MIN_BYTES`, is taken for a bomb."""
PIECE_BYTES = 1 << 20
MAX_STREAMS = 4
"""Streams of the last windows that stay open."""

_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""`zipfile` decompresses other methods without a bound: 861 bytes of bzip2 became 2 GiB, more than they declared."""
_OTHER_METHODS = {9: "deflate64", zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "LZMA", 93: "Zstandard"}
_REGULAR = (0, stat.S_IFREG)
_ENTRY = struct.Struct("<4s24xHHH12x")
_HEADER_BYTES = 30  # bytes of a member's local header, before its name
_ENCRYPTED = 0x1

_Stamp = tuple[int, int, int, int]


class _Archive(NamedTuple):
    """An archive as it was when it was opened. `withheld` counts the members that are not served."""

    stamp: _Stamp
    file: zipfile.ZipFile
    keys: list[str]
    members: dict[str, zipfile.ZipInfo]
    withheld: int


class ZipStore:
    """One archive, which is reopened when its file changes."""

    noun = "archive"
    every = 1.0
    rest = 20.0

    def __init__(self, path: str) -> None:
        self.path = self.location = os.path.realpath(path)
        if not os.path.isfile(self.path):
            raise UnusableSource(f"There is no file {self.path}.")
        self._lock = threading.Lock()
        self._archive: _Archive | None = None
        self._streams: list[_Stream] = []
        try:
            self._current()
        except StoreFailed as error:
            raise UnusableSource(str(error)) from None

    def _current(self) -> _Archive:
        """Return the archive, opened again if its file has changed.

        Raises:
            StoreFailed: the file no longer exists, or is not an archive.
        """
        with self._lock:
            try:
                now = _stamp(os.stat(self.path))
                if self._archive is None or self._archive.stamp != now:
                    self._forget()
                    self._archive = _open(self.path)
            except OSError as error:
                raise StoreUnavailable(f"{os.path.basename(self.path)} cannot be read: {error.strerror}.") from None
            except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, RecursionError) as error:
                raise StoreFailed(f"{self.path} cannot be read as a ZIP archive: {error}") from None
            return self._archive

    def _forget(self) -> None:
        """Drop the open archive. Its file stays open until threads that read from it are done."""
        self._streams.clear()
        self._archive = None

    # Listing

    def page(self, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List a page of all members, in the order of their names."""
        archive = self._current()
        begin = bisect_right(archive.keys, after)
        return [_info(archive, key) for key in archive.keys[begin : begin + limit]], begin + limit < len(archive.keys)

    def level(self, directory: str, begin: str, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """List a page of one directory."""
        archive = self._current()
        found = list(islice(direct_entries(archive.keys, directory, begin, after), limit + 1))
        return [_info(archive, key) for key in found[:limit]], len(found) > limit

    def info(self, key: str) -> ObjectInfo | None:
        """Return one member, or None if it does not exist."""
        archive = self._current()
        return _info(archive, key) if key in archive.members else None

    def content(self, info: ObjectInfo) -> RandomAccess:
        """Return the bytes of a member.

        Raises:
            ObjectChanged: the archive has changed.
            UnreadableObject: it is encrypted, compressed by an unsupported method, or looks like a bomb.
        """
        archive = self._current()
        member = archive.members.get(info.key)
        if member is None or _version(member) != info.version:
            raise ObjectChanged
        _check(info.key, member)
        return _Member(self, archive, member)

    def describe(self) -> str:
        """Describe the number of members, and how many are withheld."""
        archive = self._current()
        text = many(len(archive.keys), "member")
        return f"{text} ({archive.withheld:,} withheld: links, unsafe or overlapping)" if archive.withheld else text

    def close(self) -> None:
        """Close the archive."""
        with self._lock:
            self._forget()

    @contextmanager
    def stream(self, archive: _Archive, member: zipfile.ZipInfo, offset: int) -> Generator[_Stream, None, None]:
        """Yield a stream of a member to read from `offset`: the open one nearest before it, or a new one."""
        with self._lock:
            usable = [stream for stream in self._streams if stream.member is member and stream.begin <= offset]
            found = max(usable, key=lambda stream: stream.begin, default=None)
            if found is not None:
                self._streams.remove(found)
        if found is None:
            found = _Stream(member, archive.file.open(member))
        yield found
        with self._lock:  # not reached after an error: a failed stream is not used again
            if self._archive is archive:
                self._streams.append(found)
                del self._streams[:-MAX_STREAMS]


class _Stream:
    """A member that is being decompressed. The last piece is kept, because a window also reads a little before it."""

    def __init__(self, member: zipfile.ZipInfo, file: IO[bytes]) -> None:
        self.member = member
        self._file = file
        self._last_piece = b""
        self._end = 0

    @property
    def begin(self) -> int:
        """The first byte that can still be read."""
        return self._end - len(self._last_piece)

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes from `offset`, which must not be before `begin`.

        Raises:
            EOFError: the member ends before `offset + length`.
        """
        pieces = [self._last_piece[offset - self.begin :][:length]] if offset < self._end else []
        missing = offset + length - self._end
        while missing > 0:
            skipped = max(0, offset - self._end)
            piece = self._file.read(min(PIECE_BYTES, skipped or missing))
            if not piece:
                raise EOFError("it ends before its declared size")
            self._end += len(piece)
            self._last_piece = (self._last_piece + piece)[-PIECE_BYTES:]
            missing -= len(piece)
            if not skipped:
                pieces.append(piece)
        return b"".join(pieces)


class _Member:
    """The content of a member."""

    def __init__(self, store: ZipStore, archive: _Archive, member: zipfile.ZipInfo) -> None:
        self._store = store
        self._archive = archive
        self._member = member
        self._key = member.filename

    @property
    def size(self) -> int:
        return self._member.file_size

    def read(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        if self._member.compress_type != zipfile.ZIP_STORED and offset + length > MAX_INFLATED_BYTES:
            raise UnreadableObject(
                f"{self._key} is compressed, and at most its first {MAX_INFLATED_BYTES >> 20} MiB are inflated: "
                "unpack it."
            )
        try:
            with self._store.stream(self._archive, self._member, offset) as stream:
                return stream.read(offset, length)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as e:
            if _stamp_of(self._store.path) != self._archive.stamp:
                raise ObjectChanged from None
            raise UnreadableObject(f"{self._key} is damaged: {e}") from None


class _BoundedFile(io.FileIO):
    """A file that checks the archive's directory before `zipfile` parses it. It is closed when it is deleted."""

    opened = False
    """Whether the directory has been read."""

    def __del__(self) -> None:
        self.close()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise ValueError(f"its directory has more than {MAX_DIRECTORY_BYTES >> 20} MiB")
        data = super().read(-1 if size is None else size) or b""
        if not self.opened and data.startswith(b"PK\x01\x02"):
            _check_directory(data)
        return data


def _check_directory(data: bytes) -> None:
    at = count = 0
    while at + _ENTRY.size <= len(data):
        mark, name, extra, comment = _ENTRY.unpack_from(data, at)
        count += 1
        if mark != b"PK\x01\x02":
            return  # `zipfile` raises an error that explains it
        if extra > MAX_EXTRA_BYTES:
            raise ValueError(f"an entry of its directory has more than {MAX_EXTRA_BYTES:,} bytes of extra data")
        if count > MAX_MEMBERS:
            raise ValueError(f"it has more than {MAX_MEMBERS:,} members")
        at += _ENTRY.size + name + extra + comment


def _open(path: str) -> _Archive:
    file = _BoundedFile(path)
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        archive = zipfile.ZipFile(file)
    except BaseException:
        file.close()
        raise
    file.opened = True
    alone = _without_overlaps(archive.infolist())
    members = {info.filename: info for info in alone if not info.is_dir() and _safe(info)}
    directories = sum(info.is_dir() for info in archive.infolist())
    withheld = len(archive.infolist()) - directories - len(members)
    return _Archive(_stamp(status), archive, sorted(members), members, withheld)


def _without_overlaps(members: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """Return the members that do not overlap another one."""
    ordered = sorted(members, key=lambda one: one.header_offset)
    shared: set[int] = set()
    furthest, end = 0, 0
    for at, member in enumerate(ordered):
        if member.header_offset < end:
            shared |= {at, furthest}
        member_end = member.header_offset + _HEADER_BYTES + len(member.orig_filename) + member.compress_size
        if member_end > end:
            furthest, end = at, member_end
    return [member for at, member in enumerate(ordered) if at not in shared]


def _safe(member: zipfile.ZipInfo) -> bool:
    """Return whether a member is a regular file whose name stays inside the archive on every operating system."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    name = member.filename
    safe = served(name) and "\\" not in name and name[1:2] != ":" and len(name.encode()) <= MAX_NAME_BYTES
    return kind in _REGULAR and safe


def _check(key: str, member: zipfile.ZipInfo) -> None:
    if member.flag_bits & _ENCRYPTED:
        raise UnreadableObject(f"{key} is encrypted, which is not supported: unpack it.")
    if member.compress_type not in _METHODS:
        how = _OTHER_METHODS.get(member.compress_type, f"method {member.compress_type}")
        raise UnreadableObject(f"{key} is compressed by {how}, but only deflate is supported: unpack or repack it.")
    if member.file_size > max(RATIO_MIN_BYTES, MAX_RATIO * max(member.compress_size, 1)):
        raise UnreadableObject(
            f"{key} declares {member.file_size:,} bytes from {member.compress_size:,} compressed ones, as archives do "
            "that are made to fill a disk or memory: unpack it if you trust it."
        )


def _info(archive: _Archive, key: str) -> ObjectInfo:
    member = archive.members.get(key)
    if member is None:
        return ObjectInfo(key)
    return ObjectInfo(key, member.file_size, _modified(member), _version(member))


def _version(member: zipfile.ZipInfo) -> str:
    return f"{member.CRC:08x}-{member.file_size:x}"


def _modified(member: zipfile.ZipInfo) -> float | None:
    """Return the time of a member. Archives store local times without a zone, so this machine's zone is assumed."""
    try:
        return time.mktime((*member.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        return None


def _stamp(status: os.stat_result) -> _Stamp:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def _stamp_of(path: str) -> _Stamp | None:
    try:
        return _stamp(os.stat(path))
    except OSError:
        return None
