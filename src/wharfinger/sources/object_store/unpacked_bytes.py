"""Random access to the bytes of a file that may be compressed as a whole, such as a `.tar.gz`.

The decompressed bytes are never held in memory:

- gzip: the first pass keeps a copy of the decompressor every few MiB (at most `MAX_POINTS`, about 50 KiB each). A read
  continues from the nearest copy before it, or from the stream of an earlier read.
- bzip2 and xz cannot be continued from a copy. They are decompressed once into an unnamed file, of at most
  `MAX_SPOOLED_BYTES`.

Compressed data is untrusted: it is decompressed in pieces of at most `PIECE_BYTES`, and refused as soon as it grows
beyond `MAX_UNPACKED_BYTES` or `MAX_SPOOLED_BYTES`, or, above `RATIO_MIN_BYTES`, more than `MAX_RATIO` times.
"""

from __future__ import annotations

import bz2
import lzma
import os
import tempfile
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol

from wharfinger.sources.folder.file_content import DuplicatedFile
from wharfinger.sources.object_store.archive_store import MAX_RATIO, RATIO_MIN_BYTES
from wharfinger.sources.windows.window import RandomAccess

__all__ = [
    "DAMAGE",
    "MAX_POINTS",
    "MAX_SPOOLED_BYTES",
    "MAX_UNPACKED_BYTES",
    "PIECE_BYTES",
    "GzipBytes",
    "open_unpacked",
]

MAX_UNPACKED_BYTES = 4 << 30
"""Maximum number of decompressed bytes of a gzip file. Finding its members takes about three seconds for each GiB."""
MAX_SPOOLED_BYTES = 1 << 30
"""Maximum number of decompressed bytes of a bzip2 or xz file, which are written into an unnamed file."""
MAX_XZ_MEMORY_BYTES = 128 << 20
"""Maximum memory for the dictionary of an xz file: `xz -9` needs 65 MiB, a forged header up to 4 GiB."""
PIECE_BYTES = 1 << 20
"""Bytes that are decompressed or read at once."""
INPUT_BYTES = 16 << 10
MAX_POINTS = 256
"""Maximum number of copies of the decompressor of one gzip file. If there are more, every second one is dropped."""
MAX_STREAMS = 4
"""Maximum number of streams of the last reads that are kept, so that later reads can continue them."""

_GZIP = 16 + zlib.MAX_WBITS
"""The `wbits` of zlib for data with a gzip header and trailer."""

DAMAGE = (zlib.error, lzma.LZMAError, EOFError, ValueError, OSError)
"""The errors that reading damaged data raises."""


def open_unpacked(file: IO[bytes]) -> RandomAccess:
    """Return the decompressed bytes of an open file, or its bytes if it is not compressed. The caller closes `file`.

    The `size` of a gzip file is the number of bytes that were decompressed so far.

    Raises:
        ValueError: the compression is not supported, the data grows beyond a bound, or bzip2 data is damaged.
        EOFError: it is truncated.
        zlib.error, lzma.LZMAError: it is damaged.
        OSError: it cannot be read.
    """
    packed = DuplicatedFile(file.fileno(), os.fstat(file.fileno()).st_size)
    head = packed.read(0, 6)
    if head.startswith(b"\x1f\x8b"):
        return GzipBytes(packed)
    for mark, make in _SPOOLED:
        if head.startswith(mark):
            return _spool(packed, make)
    for mark, name in _UNSUPPORTED:
        if head.startswith(mark):
            raise ValueError(f"it is compressed by {name}, which is not supported: repack it with gzip or xz")
    return packed


class GzipBytes:
    """The decompressed bytes of a gzip file of one or several members."""

    def __init__(self, packed: RandomAccess) -> None:
        self._packed = packed
        self._lock = threading.Lock()
        self._points = [_Stream(0, 0, zlib.decompressobj(_GZIP))]
        self._distance = PIECE_BYTES
        """Minimum number of decompressed bytes between two kept copies."""
        self._streams: list[_Stream] = []
        self.size = 0

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes from `offset`, or fewer at the end."""
        stream = self._stream_before(offset)
        parts: list[bytes] = []
        end = offset + length
        while stream.unpacked < end:
            position = stream.unpacked
            piece = self._advance(stream, min(PIECE_BYTES, end - position))
            if not piece:
                break
            if position + len(piece) > offset:
                parts.append(piece[max(0, offset - position) :])
        with self._lock:
            self._streams.append(stream)
            del self._streams[:-MAX_STREAMS]
        return b"".join(parts)

    def finish(self) -> None:
        """Decompress the rest, which checks the checksum at its end, so that `size` is the final one."""
        while self.read(self.size, PIECE_BYTES):
            pass

    def _stream_before(self, offset: int) -> _Stream:
        """Return the nearest stream at or before an offset: the stream of an earlier read, or a copy of a kept one."""
        with self._lock:
            streams = [stream for stream in self._streams if stream.unpacked <= offset]
            stream = max(streams, key=lambda stream: stream.unpacked, default=None)
            point = max((known for known in self._points if known.unpacked <= offset), key=lambda known: known.unpacked)
            if stream is None or stream.unpacked < point.unpacked:
                return point.copy()
            self._streams.remove(stream)
            return stream

    def _advance(self, stream: _Stream, max_bytes: int) -> bytes:
        """Decompress the next piece of a stream. It is empty only at the end of the file."""
        while True:
            data = self._packed.read(stream.packed, INPUT_BYTES)
            if stream.decompressor.eof:  # another member may follow, after padding
                member = data.lstrip(b"\0")
                stream.packed += len(data) - len(member)
                if not member:
                    if data:
                        continue
                    return b""
                data, stream.decompressor = member, zlib.decompressobj(_GZIP)
            piece: bytes = stream.decompressor.decompress(data, max_bytes)
            rest = stream.decompressor.unused_data if stream.decompressor.eof else stream.decompressor.unconsumed_tail
            stream.packed += len(data) - len(rest)
            if not piece and not data and not stream.decompressor.eof:
                raise EOFError("its compressed data is truncated")
            stream.unpacked += len(piece)
            self._record(stream)
            if piece:
                return piece

    def _record(self, stream: _Stream) -> None:
        """Check the growth of the data, and keep a copy of the stream if the last copy is far enough before it."""
        _refuse_growth(stream.packed, stream.unpacked, MAX_UNPACKED_BYTES)
        with self._lock:
            self.size = max(self.size, stream.unpacked)
            if stream.unpacked >= self._points[-1].unpacked + self._distance and not stream.decompressor.eof:
                self._points.append(stream.copy())
                if len(self._points) > MAX_POINTS:
                    del self._points[1::2]
                    self._distance *= 2


@dataclass(slots=True)
class _Stream:
    """A decompressor, with the numbers of bytes that it has read (`packed`) and returned (`unpacked`)."""

    packed: int
    unpacked: int
    decompressor: Any

    def copy(self) -> _Stream:
        return _Stream(self.packed, self.unpacked, self.decompressor.copy())


class _Decompressor(Protocol):
    """The interface that `bz2.BZ2Decompressor` and `lzma.LZMADecompressor` share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes: ...


_SPOOLED: tuple[tuple[bytes, Callable[[], _Decompressor]], ...] = (
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY_BYTES)),
)
_UNSUPPORTED = (
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"\x04\x22\x4d\x18", "LZ4"),
    (b"\x1f\x9d", "compress"),
    (b"LZIP", "lzip"),
)


def _spool(packed: RandomAccess, make: Callable[[], _Decompressor]) -> RandomAccess:
    """Decompress a file of one or several streams into an unnamed file."""
    decompressor, position, size = make(), 0, 0
    with tempfile.TemporaryFile() as spool:
        while True:
            data = decompressor.unused_data.lstrip(b"\0") if decompressor.eof else b""
            if decompressor.needs_input or (decompressor.eof and not data):
                data = packed.read(position, INPUT_BYTES)
                if not data and decompressor.eof:
                    break
                if not data:
                    raise EOFError("its compressed data is truncated")
                position += len(data)
            if decompressor.eof:  # another stream follows, after padding
                data = data.lstrip(b"\0")
                if not data:
                    continue
                decompressor = make()
            try:
                piece = decompressor.decompress(data, PIECE_BYTES)
            except OSError as error:  # bzip2 raises it for damaged data, without a number
                raise ValueError(str(error)) from None
            size += len(piece)
            _refuse_growth(position, size, MAX_SPOOLED_BYTES)
            spool.write(piece)
        spool.flush()
        return DuplicatedFile(spool.fileno(), size)


def _refuse_growth(packed: int, unpacked: int, max_bytes: int) -> None:
    if unpacked > max_bytes:
        raise ValueError(f"it has more than {max_bytes >> 20:,} MiB decompressed: unpack it")
    if unpacked > max(RATIO_MIN_BYTES, MAX_RATIO * packed):
        raise ValueError(
            f"{packed:,} compressed bytes grow to more than {unpacked:,}, as archives do that are made to fill a disk "
            "or memory: unpack it if you trust it"
        )
