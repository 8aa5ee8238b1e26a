"""Reads an open file in parts, and returns its MIME type, version and heading."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from hashlib import blake2b

from wharfinger.content import mime
from wharfinger.sources.folder.safe_open import Handle, NotServed, open_file, stamp_of
from wharfinger.sources.windows.line_index import RandomAccess
from wharfinger.sources.windows.window import BytesContent

__all__ = [
    "DuplicatedFile",
    "FileContent",
    "Headings",
    "content_of",
    "listed_type",
    "type_of",
    "version_of_file",
]

MAX_HEADINGS = 8_192
"""Maximum number of headings that are kept: about 3 MiB."""


class FileContent:
    """The first `size` bytes of an open file, which it does not close."""

    __slots__ = ("descriptor", "size")

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer only at the end."""
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        data = read_at(self.descriptor, length, offset)
        if len(data) == length or not data:
            return data
        pieces = [data]
        remaining = length - len(data)
        while remaining and (data := read_at(self.descriptor, remaining, offset + length - remaining)):
            pieces.append(data)
            remaining -= len(data)
        return b"".join(pieces)


def _read_after_seek(descriptor: int, length: int, offset: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, length)


read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_after_seek)
"""Reads bytes at an offset. Windows has no `pread`."""


class DuplicatedFile(FileContent):
    """A duplicate of an open file, closed when this object is garbage-collected. Several threads may read it."""

    def __init__(self, descriptor: int, size: int) -> None:
        super().__init__(-1, size)  # if `dup` fails, `__del__` must close nothing
        self._lock = threading.Lock()
        self.descriptor = os.dup(descriptor)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer only at the end."""
        with self._lock:
            return super().read(offset, length)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def content_of(descriptor: int, size: int, max_bytes: int) -> RandomAccess:
    """Return the bytes of an open file. If its size is 0, as in /proc, up to `max_bytes` are read now."""
    if size:
        return FileContent(descriptor, size)
    return BytesContent(FileContent(descriptor, max_bytes).read(0, max_bytes))


def version_of_file(status: os.stat_result) -> str:
    """Return the version of a file: a digest of its identity, size and times."""
    return blake2b(b"%d %d %d %d %d" % stamp_of(status), digest_size=9).hexdigest()


def type_of(name: str, descriptor: int) -> str:
    """Return the MIME type of a file, by its name or, if its suffix is unknown, by its first bytes."""
    type_by_name = mime.by_name(name)
    if type_by_name:
        return type_by_name
    try:
        head = read_at(descriptor, mime.SNIFFED_BYTES, 0)
    except OSError:
        return mime.OCTETS
    return mime.classify(name, head, bool(mime.encoding_of(head, len(head) < mime.SNIFFED_BYTES)))


def listed_type(parent: Handle, name: str) -> str:
    """Return the MIME type of a file for a list. The file is opened only if its suffix is unknown."""
    type_by_name = mime.by_name(name)
    if type_by_name:
        return type_by_name
    try:
        descriptor = open_file(parent, name)
    except (NotServed, OSError):
        return mime.OCTETS
    try:
        return type_of(name, descriptor)
    finally:
        os.close(descriptor)


class Headings:
    """The headings of files. Each is kept as long as the identity, size and times of its file stay the same."""

    def __init__(self) -> None:
        self._texts: dict[tuple[object, ...], str] = {}  # the oldest first
        self._lock = threading.Lock()

    def of(self, mime_type: str, status: os.stat_result, descriptor: int) -> str:
        """Return the heading of an open file, or an empty string if it has none."""
        # Imported on use: `headings` compiles patterns for 3 ms, which would delay every start.
        from wharfinger.content.headings import has_heading

        if not has_heading(mime_type):
            return ""
        key = _key(mime_type, status)
        heading = self._texts.get(key)
        return self._read(key, mime_type, descriptor) if heading is None else heading

    def listed(self, mime_type: str, status: os.stat_result, parent: Handle, name: str, may_open: bool) -> str:
        """Return the heading of a file in a directory. If it is not cached, the file is opened only if `may_open`."""
        key = _key(mime_type, status)
        heading = self._texts.get(key)
        if heading is not None or not may_open:
            return heading or ""
        from wharfinger.content.headings import has_heading

        if not has_heading(mime_type):
            return ""
        try:
            descriptor = open_file(parent, name)
        except (NotServed, OSError):
            return ""
        try:
            return self._read(key, mime_type, descriptor)
        finally:
            os.close(descriptor)

    def _read(self, key: tuple[object, ...], mime_type: str, descriptor: int) -> str:
        from wharfinger.content.headings import HEAD_BYTES, heading_of

        try:
            heading = heading_of(mime_type, read_at(descriptor, HEAD_BYTES, 0))
        except OSError:
            return ""
        with self._lock:
            while len(self._texts) >= MAX_HEADINGS:
                del self._texts[next(iter(self._texts))]
            self._texts[key] = heading
        return heading


def _key(mime_type: str, status: os.stat_result) -> tuple[object, ...]:
    return mime_type, *stamp_of(status)
