"""Decompressing no more than was promised, and reading a part of a large object without holding the rest.

Refuses to know what is compressed.
"""

from __future__ import annotations

import threading
import zlib
from typing import Any

from wharfinger.sources.git_repository.repository import OpenRepository

__all__ = ["BadDelta", "Stream", "apply_delta", "delta_sizes", "inflate", "inflate_start"]

STEP = 65_536  # compressed bytes that are read at once
MARKS = 64  # places of one large object from which it can be read on
MOST_AT_ONCE = 1 << 20  # bytes that are decompressed at once
LEAST_BETWEEN = 4 << 20  # bytes between two of them at least; one costs about 40 KiB


class BadDelta(Exception):
    """This delta cannot have been made from its base."""


def inflate(source: OpenRepository, start: int, size: int) -> bytes:
    """Decompress what begins at `start`, which has to give exactly `size` bytes.

    Raises:
        zlib.error: it does not.
    """
    machine = zlib.decompressobj()
    pieces: list[bytes] = []
    left = size
    at = start
    step = min(STEP, size + size // 1000 + 64)
    while not machine.eof:
        packed = source.read(at, step)
        if not packed:
            raise zlib.error("the data ends too early")
        at += len(packed)
        piece = machine.decompress(packed, left + 1)  # one more shows that there is too much
        left -= len(piece)
        if left < 0 or machine.unconsumed_tail:
            raise zlib.error("there is more than promised")
        pieces.append(piece)
        step = STEP
    if left:
        raise zlib.error("there is less than promised")
    return b"".join(pieces)


def inflate_start(source: OpenRepository, start: int, most: int) -> bytes:
    """The first bytes of what is compressed at `start`, at most `most`.

    Raises:
        zlib.error: it is not compressed data.
    """
    return zlib.decompressobj().decompress(source.read(start, most + 64), most)


class Stream:
    """Content that is compressed in a file, read at any place: from the last mark before it, in constant memory.

    `skip` bytes come before the content, and are no part of it.
    """

    def __init__(self, source: OpenRepository, start: int, size: int, skip: int = 0) -> None:
        self.size = size
        self._source = source
        self._skip = skip
        self._end = size + skip
        self._between = max(LEAST_BETWEEN, self._end // MARKS)
        self._marks: list[tuple[int, int, Any]] = [(0, start, zlib.decompressobj())]
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`.

        Raises:
            zlib.error: the data is damaged.
        """
        begin = self._skip + max(0, offset)
        end = min(begin + length, self._end)
        if begin >= end:
            return b""
        with self._lock:
            place, at, machine = max((mark for mark in self._marks if mark[0] <= begin), key=lambda mark: mark[0])
            machine = machine.copy()
        pieces: list[bytes] = []
        rest = b""
        while place < end and not machine.eof:
            if not rest:
                rest = self._source.read(at, STEP)
                at += len(rest)
            ended = not rest
            wanted = (begin if place < begin else end) - place
            piece = machine.decompress(rest, min(wanted, MOST_AT_ONCE))
            rest = machine.unconsumed_tail
            if place >= begin:
                pieces.append(piece)
            place += len(piece)
            if ended and not piece:
                break
            self._mark(place, at - len(rest), machine)
        if place < end:
            raise zlib.error("there is less than promised")
        return b"".join(pieces)

    def _mark(self, place: int, at: int, machine: Any) -> None:
        """Remember how to read on from here; input that is not used yet is read again then."""
        with self._lock:
            if place - self._marks[-1][0] >= self._between and not machine.eof:
                self._marks.append((place, at, machine.copy()))


def delta_sizes(delta: bytes) -> tuple[int, int, int]:
    """Bytes of the base and of the result of a delta, and where its instructions begin.

    Raises:
        BadDelta: it is cut.
    """
    try:
        base, at = _number(delta, 0)
        result, at = _number(delta, at)
    except IndexError:
        raise BadDelta("a delta without sizes") from None
    return base, result, at


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if not byte & 0x80:
            return number, at


def apply_delta(base: bytes, delta: bytes) -> bytes:
    """What a delta makes of its base; never more bytes than it promised (gitformat-pack, deltified representation).

    Raises:
        BadDelta: it does not fit, or makes another size.
    """
    base_size, left, at = delta_sizes(delta)
    if base_size != len(base):
        raise BadDelta("a delta of another base")
    pieces: list[bytes] = []
    try:
        while at < len(delta):
            code = delta[at]
            at += 1
            if code & 0x80:
                offset = size = 0
                for bit in range(4):
                    if code >> bit & 1:
                        offset |= delta[at] << 8 * bit
                        at += 1
                for bit in range(3):
                    if code >> bit + 4 & 1:
                        size |= delta[at] << 8 * bit
                        at += 1
                piece = base[offset : offset + (size or 0x10000)]
                if len(piece) != (size or 0x10000):
                    raise BadDelta("a copy from outside of the base")
            else:
                piece = delta[at : at + code]
                at += code
                if not code or len(piece) != code:
                    raise BadDelta("an instruction that is none")
            left -= len(piece)
            if left < 0:
                raise BadDelta("more than promised")
            pieces.append(piece)
    except IndexError:
        raise BadDelta("a delta that is cut") from None
    if left:
        raise BadDelta("less than promised")
    return b"".join(pieces)
