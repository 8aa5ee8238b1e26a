"""Members of a ZIP archive: listed from its directory, inflated in a stream that never gives more than was declared.

What an archive says of itself is not trusted: names that lead out of it, links, devices and members that share bytes
are withheld; its directory, the bytes inflated for one member and the ratio of their sizes are bounded.
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
    UnreadableObject,
    level_of,
    served,
)
from wharfinger.sources.windows.window import RandomAccess

__all__ = ["DIRECTORY", "INFLATED", "RATIO", "ZipStore"]

DIRECTORY = 32 << 20
"""Bytes of an archive's directory that are read."""
MEMBERS = 300_000
"""Entries of a directory; each takes some 600 bytes of memory, and only 46 of the file."""
EXTRA = 4_096
"""Bytes of what an entry adds to its name; `zipfile` takes time quadratic in them."""
NAME = 1_024
"""Bytes of a member's name, as of a key of S3; a longer one is withheld."""
INFLATED = 1 << 30
"""Bytes of one member that are inflated at most; what is behind them cannot be read."""
RATIO, RATIO_FROM = 250, 16 << 20
"""A member that claims to grow more than so many times, and beyond so many bytes, is taken for a bomb."""
PIECE = 1 << 20
STREAMS = 4  # members, and places in them, that are kept open where the last windows ended

_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""`zipfile` inflates other methods without a bound: 861 bytes of bzip2 became 2 GiB, whatever size they declared."""
_OTHER_METHODS = {9: "deflate64", zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "LZMA", 93: "Zstandard"}
_REGULAR = (0, stat.S_IFREG)
_ENTRY = struct.Struct("<4s24xHHH12x")
_HEADER = 30  # bytes before the name of a member in front of its data
_ENCRYPTED = 0x1

_Stamp = tuple[int, int, int, int]


class _Archive(NamedTuple):
    """An archive as it was when it was opened."""

    stamp: _Stamp
    file: zipfile.ZipFile
    keys: list[str]
    members: dict[str, zipfile.ZipInfo]
    withheld: int


class ZipStore:
    """One archive, opened anew when its file changes."""

    every = 1.0

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
        """The archive as its file is now.

        Raises:
            StoreFailed: it is gone, or no archive any more.
        """
        with self._lock:
            try:
                now = _stamp(os.stat(self.path))
                if self._archive is None or self._archive.stamp != now:
                    self._forget()
                    self._archive = _opened(self.path)
            except OSError as error:
                raise StoreFailed(f"{self.path} cannot be read: {error.strerror}.") from None
            except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, RecursionError) as error:
                raise StoreFailed(f"{self.path} is no ZIP archive that can be read: {error}") from None
            return self._archive

    def _forget(self) -> None:
        """Let go of what is open; a thread that still reads from it has the file until it is done."""
        self._streams.clear()
        self._archive = None

    # Listing

    def page(self, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """Members in the order of their names."""
        archive = self._current()
        begin = bisect_right(archive.keys, after)
        return [_info(archive, key) for key in archive.keys[begin : begin + limit]], begin + limit < len(archive.keys)

    def level(self, directory: str, begin: str, after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        """One directory."""
        archive = self._current()
        found = list(islice(level_of(archive.keys, directory, begin, after), limit + 1))
        return [_info(archive, key) for key in found[:limit]], len(found) > limit

    def info(self, key: str) -> ObjectInfo | None:
        """One member."""
        archive = self._current()
        return _info(archive, key) if key in archive.members else None

    def content(self, info: ObjectInfo) -> RandomAccess:
        """The bytes of a member.

        Raises:
            UnreadableObject: it is encrypted, compressed in an unknown way, or looks like a bomb.
        """
        archive = self._current()
        member = archive.members.get(info.key)
        if member is None or _version(member) != info.version:
            raise ObjectChanged
        _check(info.key, member)
        return _Member(self, archive, member)

    def describe(self) -> str:
        """How many members there are, and how many are withheld."""
        archive = self._current()
        said = many(len(archive.keys), "member")
        return f"{said} ({archive.withheld:,} that are links, unsafe or overlapping)" if archive.withheld else said

    def close(self) -> None:
        """Close the archive."""
        with self._lock:
            self._forget()

    @contextmanager
    def stream(self, archive: _Archive, member: zipfile.ZipInfo, offset: int) -> Generator[_Stream, None, None]:
        """A member that can be read from `offset` on: one that was read before, where that saves the most."""
        with self._lock:
            found = self._nearest(member, offset)
            if found is not None:
                self._streams.remove(found)
        if found is None:
            found = _Stream(member, archive.file.open(member))
        yield found
        with self._lock:  # only what did not fail is used again
            if self._archive is archive:
                self._streams.append(found)
                del self._streams[:-STREAMS]

    def _nearest(self, member: zipfile.ZipInfo, offset: int) -> _Stream | None:
        usable = [stream for stream in self._streams if stream.member is member and stream.begin <= offset]
        return max(usable, key=lambda stream: stream.begin, default=None)


class _Stream:
    """A member that is being inflated. What came last is kept: windows look a little back."""

    def __init__(self, member: zipfile.ZipInfo, file: IO[bytes]) -> None:
        self.member = member
        self._file = file
        self._kept = b""
        self._end = 0

    @property
    def begin(self) -> int:
        """The first byte that can still be read."""
        return self._end - len(self._kept)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from `offset` on, which is not before `begin`.

        Raises:
            EOFError: the member ends before.
        """
        pieces = [self._kept[offset - self.begin :][:length]] if offset < self._end else []
        missing = offset + length - self._end
        while missing > 0:
            skipped = max(0, offset - self._end)
            piece = self._file.read(min(PIECE, skipped or missing))
            if not piece:
                raise EOFError("it ends before the size that it declares")
            self._end += len(piece)
            self._kept = (self._kept + piece)[-PIECE:]
            missing -= len(piece)
            if not skipped:
                pieces.append(piece)
        return b"".join(pieces)


class _Member:
    """The bytes of a member, read by inflating what lies before them."""

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
        if self._member.compress_type != zipfile.ZIP_STORED and offset + length > INFLATED:
            raise UnreadableObject(
                f"{self._key} is compressed, and at most its first {INFLATED >> 20} MiB are inflated: unpack it."
            )
        try:
            with self._store.stream(self._archive, self._member, offset) as stream:
                return stream.read(offset, length)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as e:
            if _stamp_of(self._store.path) != self._archive.stamp:
                raise ObjectChanged from None
            raise UnreadableObject(f"{self._key} is damaged: {e}") from None


class _Bounded(io.FileIO):
    """A file whose directory is looked at before `zipfile` gets it; closed when nobody has it."""

    opened = False
    """Whether the directory has been read."""

    def __del__(self) -> None:
        self.close()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > DIRECTORY:
            raise ValueError(f"its directory has more than {DIRECTORY >> 20} MiB")
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
            return  # `zipfile` says what is wrong with it
        if extra > EXTRA:
            raise ValueError(f"an entry of its directory has more than {EXTRA:,} bytes of extra data")
        if count > MEMBERS:
            raise ValueError(f"it has more than {MEMBERS:,} members")
        at += _ENTRY.size + name + extra + comment


def _opened(path: str) -> _Archive:
    file = _Bounded(path)
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
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
    """Those that share no bytes with another: what is packed once and listed a thousand times is a bomb."""
    ordered = sorted(members, key=lambda one: one.header_offset)
    shared: set[int] = set()
    furthest, end = 0, 0
    for at, member in enumerate(ordered):
        if member.header_offset < end:
            shared |= {at, furthest}
        ends = member.header_offset + _HEADER + len(member.orig_filename) + member.compress_size
        if ends > end:
            furthest, end = at, ends
    return [member for at, member in enumerate(ordered) if at not in shared]


def _safe(member: zipfile.ZipInfo) -> bool:
    """Whether a member is a regular file with a name that stays inside, whatever is unpacked where."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    name = member.filename
    safe = served(name) and "\\" not in name and name[1:2] != ":" and len(name.encode()) <= NAME
    return kind in _REGULAR and safe


def _check(key: str, member: zipfile.ZipInfo) -> None:
    if member.flag_bits & _ENCRYPTED:
        raise UnreadableObject(f"{key} is encrypted, and no password can be given here: unpack it.")
    if member.compress_type not in _METHODS:
        how = _OTHER_METHODS.get(member.compress_type, f"method {member.compress_type}")
        raise UnreadableObject(f"{key} is compressed by {how}, and only deflate is read: unpack it, or pack it anew.")
    if member.file_size > max(RATIO_FROM, RATIO * max(member.compress_size, 1)):
        raise UnreadableObject(
            f"{key} declares {member.file_size:,} bytes made of {member.compress_size:,}, which is how an archive is "
            "made that fills a disk or a memory: unpack it if you trust it."
        )


def _info(archive: _Archive, key: str) -> ObjectInfo:
    member = archive.members.get(key)
    if member is None:
        return ObjectInfo(key)
    return ObjectInfo(key, member.file_size, _modified(member), _version(member))


def _version(member: zipfile.ZipInfo) -> str:
    return f"{member.CRC:08x}-{member.file_size:x}"


def _modified(member: zipfile.ZipInfo) -> float | None:
    """An archive keeps local times without their zone; this machine's is as good as any."""
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
