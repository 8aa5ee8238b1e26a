"""Members of a tar archive, plain or compressed by gzip, bzip2 or xz.

A tar archive has no directory: its headers are read once, from the first to the last, and their offsets are kept.
`tarfile` parses the headers (ustar, pax and GNU); this module bounds what it reads, because an archive is untrusted:

- The headers of one member are bounded in bytes. The members, the global records and the parts of sparse files are
  bounded in number.
- Members are withheld (neither listed nor read) if their path leads out of the archive, or if they are links, devices
  or pipes. Of several members with the same name, the last one counts, as when tar unpacks the archive.
- A sparse file that declares more than 250 times the size of its data is not read. (For compressed archives, see
  `unpacked_bytes`.)
"""

from __future__ import annotations

import io
import math
import os
import re
import tarfile
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from wharfinger.sources.etag import digest
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
from wharfinger.sources.object_store.object_store_contract import ObjectChanged, ObjectInfo, UnreadableObject
from wharfinger.sources.object_store.unpacked_bytes import DAMAGE, PIECE_BYTES, GzipBytes, open_unpacked
from wharfinger.sources.windows.window import RandomAccess

__all__ = ["MAX_CHECKED_BYTES", "MAX_GLOBAL_HEADERS", "MAX_HEADER_BYTES", "TarStore"]

MAX_HEADER_BYTES = 1 << 20
"""Maximum bytes of all headers of one member: its long name, its extended attributes, and the map of a sparse file."""
MAX_GLOBAL_HEADERS = 100
"""Maximum number of records of pax headers that apply to all later members: `tarfile` copies them for each."""
MAX_CHECKED_BYTES = 256 << 20
"""Members that end within this many bytes have checksums as versions. Computing them takes half a second."""
MAX_DIGITS = 100
"""Maximum number of digits in a row in extended headers; `tarfile` may take quadratic time (CVE-2024-6232)."""
MAX_EXTENTS = 500_000
"""Maximum number of parts of all sparse files of an archive: each takes 10 bytes of a header, and 200 of memory."""
LATEST_SECONDS = 253_402_300_799
"""The last second of the year 9999."""

_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1)).search

_Extents = Sequence[tuple[int, int, int]]
_OpenTar = OpenArchive[RandomAccess, "TarMember"]


class TarMember(NamedTuple):
    """A regular file of an archive. Its bytes are at `offset`, except those of a sparse file."""

    offset: int
    size: int
    modified: float | None
    checksum: int | None = None
    """The CRC-32 of its bytes in the archive; None beyond the first `MAX_CHECKED_BYTES` of the archive."""
    extents: _Extents | None = None
    """The parts of a sparse file with data: where each begins in the file, where in the archive, and its length."""


class TarStore(ArchiveStore[RandomAccess, TarMember]):
    """One tar archive."""

    format_name = "tar archive"
    withheld_kinds = "links, devices or unsafe"
    damage = (tarfile.TarError, LookupError, ArithmeticError, RecursionError, TypeError, AttributeError, *DAMAGE)

    def open(self) -> _OpenTar:
        """Open the file, and read all headers."""
        with open(self.path, "rb") as file:
            stamp = stamp_of_status(os.fstat(file.fileno()))
            content = open_unpacked(file)
        members, withheld = _index(content)
        return OpenArchive(stamp, content, sorted(members), members, withheld)

    def describe_member(self, key: str, member: TarMember, archive: _OpenTar) -> ObjectInfo:
        """Return the facts about a member."""
        return ObjectInfo(key, member.size, member.modified, _version(member, archive))

    def content(self, info: ObjectInfo) -> RandomAccess:
        """Return the bytes of a member.

        Raises:
            ObjectChanged: the archive has changed.
            UnreadableObject: it is a sparse file that looks like a bomb.
        """
        archive = self.current()
        member = archive.members.get(info.key)
        if member is None or _version(member, archive) != info.version:
            raise ObjectChanged
        if member.extents is not None:
            data = sum(length for _, _, length in member.extents)
            if member.size > max(RATIO_MIN_BYTES, MAX_RATIO * max(data, 1)):
                raise UnreadableObject(
                    f"{info.key} is a sparse file of {member.size:,} bytes with {data:,} bytes of data: unpack it."
                )
        return _MemberBytes(self.path, archive, info.key, member)


class _MemberBytes:
    """The content of a member."""

    def __init__(self, path: str, archive: _OpenTar, key: str, member: TarMember) -> None:
        self._path = path
        self._archive = archive
        self._key = key
        self._member = member
        self.size = member.size

    def read(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        try:
            if self._member.extents is None:
                return self._read_exactly(self._member.offset + offset, length)
            data = bytearray(length)
            for begin, position, size in self._member.extents:
                first, last = max(begin, offset), min(begin + size, offset + length)
                if first < last:
                    data[first - offset : last - offset] = self._read_exactly(position + first - begin, last - first)
            return bytes(data)
        except DAMAGE as error:
            if stamp_of_path(self._path) != self._archive.stamp:
                raise ObjectChanged from None
            raise UnreadableObject(f"{self._key} is damaged: {error}") from None

    def _read_exactly(self, position: int, length: int) -> bytes:
        data = self._archive.file.read(position, length)
        if len(data) < length:
            raise EOFError("the archive ends before it")
        return data


class _HeaderFile(io.RawIOBase):
    """The archive as a file from which `tarfile` reads headers, within a bound for each member."""

    def __init__(self, content: RandomAccess) -> None:
        self._content = content
        self._position = 0
        self.remaining = MAX_HEADER_BYTES

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._position = offset
        return offset

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0 or size > self.remaining:
            raise ValueError(
                f"the headers of the member at byte {self._position:,} have more than {MAX_HEADER_BYTES:,} bytes"
            )
        data = self._content.read(self._position, size)
        self._position += len(data)
        self.remaining -= size
        if size > tarfile.BLOCKSIZE and _LONG_NUMBER(data):
            raise ValueError(f"a header has a number of more than {MAX_DIGITS} digits")
        return data


def _index(content: RandomAccess) -> tuple[dict[str, TarMember], int]:
    """Read all headers. Returns the members that are served, and the number of withheld ones."""
    file = _HeaderFile(content)
    # The constructor reads the first header, to check the format.
    archive: Any = tarfile.TarFile(fileobj=file, mode="r", encoding="utf-8", errors="surrogateescape")
    archive.pax_headers = {}
    members: dict[str, TarMember] = {}
    withheld: set[str] = set()
    position = count = end = extent_count = 0
    while content.read(position, tarfile.BLOCKSIZE).strip(b"\0"):  # until a block of zeros, or the end of the file
        file.seek(position)
        file.remaining = MAX_HEADER_BYTES
        try:
            header = tarfile.TarInfo.fromtarfile(archive)
        except tarfile.HeaderError as error:
            raise ValueError(f"the header at byte {position:,} is damaged or truncated ({error})") from None
        count += 1
        if count > MAX_MEMBERS:
            raise ValueError(f"it has more than {MAX_MEMBERS:,} members")
        records: dict[str, str] = archive.pax_headers
        if len(records) > MAX_GLOBAL_HEADERS:
            raise ValueError(f"it has more than {MAX_GLOBAL_HEADERS} global headers")
        if archive.offset <= position or header.size < 0:
            raise ValueError(f"the header at byte {position:,} has an impossible size")
        position = archive.offset
        extent_count += len(header.sparse or ())
        if extent_count > MAX_EXTENTS:
            raise ValueError(f"its sparse files have more than {MAX_EXTENTS:,} parts")
        if header.isdir():
            continue
        name = _name_of(header.name)
        member = None
        if header.isreg():
            member = _member_of(header, content)
            extents = [(0, member.offset, member.size)] if member.extents is None else member.extents
            end = max([end, *(begin + length for _, begin, length in extents)])
        if not stays_inside(name):
            withheld.add(digest(name))  # a name may have as many bytes as the headers
            continue
        members.pop(name, None)  # it is replaced, as when the archive is unpacked
        withheld.discard(name)
        if member is None:
            withheld.add(name)
        else:
            members[name] = member
    if isinstance(content, GzipBytes):
        content.finish()
    if end > content.size:
        raise EOFError(f"it is truncated: it has {content.size:,} bytes, and its last member ends at byte {end:,}")
    return members, len(withheld)


def _name_of(name: str) -> str:
    """Return the key of a member: its name without `./`. A name that is not UTF-8 is read as ISO 8859-1."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    try:
        name.encode()
    except UnicodeEncodeError:
        name = name.encode("utf-8", "surrogateescape").decode("latin-1")
    return name


def _member_of(header: Any, content: RandomAccess) -> TarMember:
    """Return the member for the header of a regular file. Reads its content for the checksum.

    Raises:
        ValueError: the map of a sparse file is impossible.
    """
    modified = float(header.mtime)
    valid_time = modified if math.isfinite(modified) and 0 <= modified <= LATEST_SECONDS else None
    extents: list[tuple[int, int, int]] = []
    position, end = header.offset_data, 0
    for begin, length in header.sparse or ():
        if length == 0:  # unused, or the end of the file
            continue
        if begin < end or length < 0 or begin + length > header.size:
            raise ValueError("the map of a sparse file is damaged")
        extents.append((begin, position, length))
        position, end = position + length, begin + length
    if not header.issparse():
        position += header.size
    checksum = None
    if position <= MAX_CHECKED_BYTES:
        checksum = 0
        for begin in range(header.offset_data, position, PIECE_BYTES):
            checksum = zlib.crc32(content.read(begin, min(PIECE_BYTES, position - begin)), checksum)
    return TarMember(header.offset_data, header.size, valid_time, checksum, extents if header.issparse() else None)


def _version(member: TarMember, archive: _OpenTar) -> str:
    """Return a version: from the checksum of the content or, without one, from the archive and the place in it."""
    if member.checksum is None:
        return digest(repr((archive.stamp, member.offset, member.size)))
    extents = "" if member.extents is None else "-" + digest(repr([(begin, size) for begin, _, size in member.extents]))
    return f"{member.checksum:08x}-{member.size:x}{extents}"
