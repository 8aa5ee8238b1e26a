"""Members of a ZIP archive.

An archive is untrusted input: it may be built to fill the memory or to reach files outside. Therefore:

- The directory of the archive is bounded in bytes, members and extra fields, before `zipfile` parses it.
- Members are withheld (neither listed nor read) if their path leads out of the archive, if they are links or devices,
  or if they share bytes with another member: a bomb packs its data once and lists it a thousand times. Of several
  members with the same name, the last one counts.
- Members are decompressed as streams, only with deflate, and at most to their declared size. A member that declares
  more than 250 times its compressed size is not decompressed.

To read at an offset, everything before it must be decompressed. Therefore the streams of the last windows stay open,
so that the next window can continue in one of them.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO

from wharfinger.sources.object_store.archive_store import (
    MAX_MEMBERS,
    MAX_RATIO,
    RATIO_MIN_BYTES,
    ArchiveStore,
    OpenArchive,
    stamp_of_path,
    stamp_of_status,
    stays_inside,
)
from wharfinger.sources.object_store.object_store_contract import (
    ObjectChanged,
    ObjectInfo,
    UnreadableObject,
)
from wharfinger.sources.windows.window import RandomAccess

__all__ = ["MAX_DIRECTORY_BYTES", "MAX_INFLATED_BYTES", "ZipStore"]

MAX_DIRECTORY_BYTES = 32 << 20
"""Maximum size of the archive's directory."""
MAX_EXTRA_BYTES = 4_096
"""Maximum size of the extra fields of one entry. The time of `zipfile` grows with the square of their number."""
MAX_INFLATED_BYTES = 1 << 30
"""Maximum number of bytes of a compressed member that can be read; the rest is not decompressed."""
PIECE_BYTES = 1 << 20
MAX_STREAMS = 4
"""Maximum number of streams that stay open after a window."""

_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""`zipfile` decompresses other methods without a bound: 861 bytes of bzip2 became 2 GiB, more than they declared."""
_OTHER_METHODS = {9: "deflate64", zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "LZMA", 93: "Zstandard"}
_REGULAR = (0, stat.S_IFREG)  # 0 if the archive states no type
_ENTRY = struct.Struct("<4s24xHHH12x")
"""An entry of the directory: its signature, and the lengths of its name, its extra fields and its comment."""
_HEADER_BYTES = 30
"""Bytes of a member's local header, before its name."""
_ENCRYPTED = 0x1

_OpenZip = OpenArchive[zipfile.ZipFile, zipfile.ZipInfo]


class ZipStore(ArchiveStore[zipfile.ZipFile, zipfile.ZipInfo]):
    """One ZIP archive."""

    format_name = "ZIP archive"
    withheld_kinds = "links, unsafe or overlapping"
    damage = (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, RecursionError)

    def __init__(self, path: str) -> None:
        self._streams: list[_Stream] = []
        super().__init__(path)

    def open(self) -> _OpenZip:
        """Open the file, and read its directory."""
        file = _BoundedFile(self.path)
        try:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is not a regular file")
            archive = zipfile.ZipFile(file)
        except BaseException:
            file.close()
            raise
        file.directory_was_read = True
        separate = _without_overlaps(archive.infolist())
        served = [info for info in separate if not info.is_dir() and _is_safe(info)]
        members = {info.filename: info for info in served}
        directories = sum(info.is_dir() for info in archive.infolist())
        withheld = len(archive.infolist()) - directories - len(served)
        return OpenArchive(stamp_of_status(status), archive, sorted(members), members, withheld)

    def forget(self) -> None:
        """Drop the open archive and its streams."""
        self._streams.clear()
        super().forget()

    def describe_member(self, key: str, member: zipfile.ZipInfo, archive: _OpenZip) -> ObjectInfo:
        """Return the facts about a member."""
        return ObjectInfo(key, member.file_size, _modified(member), _version(member))

    def content(self, info: ObjectInfo) -> RandomAccess:
        """Return the bytes of a member.

        Raises:
            ObjectChanged: the archive has changed.
            UnreadableObject: it is encrypted, compressed by an unsupported method, or looks like a bomb.
        """
        archive = self.current()
        member = archive.members.get(info.key)
        if member is None or _version(member) != info.version:
            raise ObjectChanged
        _refuse_unreadable(info.key, member)
        return _MemberBytes(self, archive, member)

    @contextmanager
    def stream(self, archive: _OpenZip, member: zipfile.ZipInfo, offset: int) -> Generator[_Stream, None, None]:
        """Yield a stream of a member to read from `offset`: the open one nearest before it, or a new one."""
        with self._lock:
            usable = [stream for stream in self._streams if stream.member is member and stream.begin <= offset]
            chosen = max(usable, key=lambda stream: stream.begin, default=None)
            if chosen is not None:
                self._streams.remove(chosen)
        if chosen is None:
            chosen = _Stream(member, archive.file.open(member))
        yield chosen
        with self._lock:  # not reached after an error: a failed stream is not used again
            if self._archive is archive:
                self._streams.append(chosen)
                del self._streams[:-MAX_STREAMS]


class _Stream:
    """A member that is being decompressed.

    The last piece is kept, because a window also reads a little before its own start.
    """

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
            unwanted = max(0, offset - self._end)  # bytes before the offset
            piece = self._file.read(min(PIECE_BYTES, unwanted or missing))
            if not piece:
                raise EOFError("it ends before its declared size")
            self._end += len(piece)
            self._last_piece = (self._last_piece + piece)[-PIECE_BYTES:]
            missing -= len(piece)
            if not unwanted:
                pieces.append(piece)
        return b"".join(pieces)


class _MemberBytes:
    """The content of a member."""

    def __init__(self, store: ZipStore, archive: _OpenZip, member: zipfile.ZipInfo) -> None:
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
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            NotImplementedError,
            RuntimeError,
            ValueError,
        ) as error:
            if stamp_of_path(self._store.path) != self._archive.stamp:
                raise ObjectChanged from None
            raise UnreadableObject(f"{self._key} is damaged: {error}") from None


class _BoundedFile(io.FileIO):
    """A file that checks the archive's directory before `zipfile` parses it. Garbage collection closes it."""

    directory_was_read = False
    """Whether `zipfile` has read the directory. What follows are members, which may look like a directory."""

    def __del__(self) -> None:
        self.close()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise ValueError(f"its directory has more than {MAX_DIRECTORY_BYTES >> 20} MiB")
        data = super().read(-1 if size is None else size) or b""
        if not self.directory_was_read and data.startswith(b"PK\x01\x02"):
            _check_directory(data)
        return data


def _check_directory(data: bytes) -> None:
    offset = count = 0
    while offset + _ENTRY.size <= len(data):
        mark, name, extra, comment = _ENTRY.unpack_from(data, offset)
        count += 1
        if mark != b"PK\x01\x02":
            return  # `zipfile` raises an error that explains it
        if extra > MAX_EXTRA_BYTES:
            raise ValueError(f"an entry of its directory has more than {MAX_EXTRA_BYTES:,} bytes of extra data")
        if count > MAX_MEMBERS:
            raise ValueError(f"it has more than {MAX_MEMBERS:,} members")
        offset += _ENTRY.size + name + extra + comment


def _without_overlaps(members: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """Return the members that do not overlap another one."""
    ordered = sorted(members, key=lambda member: member.header_offset)
    shared: set[int] = set()
    furthest, end = 0, 0
    for index, member in enumerate(ordered):
        if member.header_offset < end:
            shared |= {index, furthest}
        member_end = member.header_offset + _HEADER_BYTES + len(member.orig_filename) + member.compress_size
        if member_end > end:
            furthest, end = index, member_end
    return [member for index, member in enumerate(ordered) if index not in shared]


def _is_safe(member: zipfile.ZipInfo) -> bool:
    """Return whether a member is a regular file whose name stays inside the archive on every operating system."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    return kind in _REGULAR and stays_inside(member.filename)


def _refuse_unreadable(key: str, member: zipfile.ZipInfo) -> None:
    if member.flag_bits & _ENCRYPTED:
        raise UnreadableObject(f"{key} is encrypted, which is not supported: unpack it.")
    if member.compress_type not in _METHODS:
        method = _OTHER_METHODS.get(member.compress_type, f"method {member.compress_type}")
        raise UnreadableObject(f"{key} is compressed by {method}, but only deflate is supported: unpack or repack it.")
    if member.file_size > max(RATIO_MIN_BYTES, MAX_RATIO * max(member.compress_size, 1)):
        raise UnreadableObject(
            f"{key} declares {member.file_size:,} bytes from {member.compress_size:,} compressed ones, as archives do "
            "that are made to fill a disk or memory: unpack it if you trust it."
        )


def _version(member: zipfile.ZipInfo) -> str:
    return f"{member.CRC:08x}-{member.file_size:x}"


def _modified(member: zipfile.ZipInfo) -> float | None:
    """Return the time of a member. Archives store local times without a zone, so this machine's zone is assumed."""
    try:
        return time.mktime((*member.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        return None
