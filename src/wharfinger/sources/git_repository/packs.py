"""Pack files: where an object is in one, and how it is stored there. Decompresses nothing, follows no delta.

What a pack says is checked before it is used, and it is read rather than mapped: a pack that is cut while it is open
is an error, where a mapped one would end the process. Formats: gitformat-pack(5), index versions 1 and 2.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from typing import NamedTuple

from wharfinger.sources.git_repository.repository import OpenRepository

__all__ = ["DELTAS", "KINDS", "BadPack", "Pack", "PackedObject"]

KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
OFFSET_DELTA, NAMED_DELTA = 6, 7
DELTAS = (OFFSET_DELTA, NAMED_DELTA)
OID = 20  # bytes of an object's name
IN_MEMORY = 1 << 20  # bytes of names that are read at once, to be searched in memory
_FAN = struct.Struct(">256L")


class BadPack(Exception):
    """This pack is not what a pack has to be; says which."""


class PackedObject(NamedTuple):
    """One entry of a pack: `size` bytes when decompressed from `start` on; of a delta, those of the delta."""

    number: int
    size: int
    start: int
    base_offset: int | None = None
    base_oid: bytes | None = None


class Pack:
    """One pack and its index, both open."""

    def __init__(self, name: str, index: OpenRepository, data: OpenRepository) -> None:
        self.name = name
        self.data = data
        self._index = index
        head = index.read(0, 8)
        self._first = head != b"\xfftOc\x00\x00\x00\x02"
        if head[:4] == b"\xfftOc" and self._first:
            raise BadPack(f"{name}: an index of a version that is not known")
        fan_at = 0 if self._first else 8
        fan = index.read(fan_at, _FAN.size)
        if len(fan) != _FAN.size:
            raise BadPack(f"{name}: the index is cut")
        self._fan = _FAN.unpack(fan)
        self._names_at = fan_at + _FAN.size
        self._stride, self._skip = (OID + 4, 4) if self._first else (OID, 0)
        count = self._fan[-1]
        if list(self._fan) != sorted(self._fan) or index.size < self._names_at + count * (
            OID + (4 if self._first else 8)
        ):
            raise BadPack(f"{name}: the index is damaged")
        if data.read(0, 4) != b"PACK":
            raise BadPack(f"{name}: this is no pack")

    def find(self, oid: bytes) -> int | None:
        """Where in the pack an object is, by its 20 bytes; None where it is not in it."""
        low, high = self._bucket(oid[0])
        stride, skip = self._stride, self._skip
        if (high - low) * stride > IN_MEMORY:
            names = _Lazy(self, low, high)
            at = bisect.bisect_left(names, oid)
            return self._offset(low + at) if at < len(names) and names[at] == oid else None
        begin, end = low, high
        table = self._index.read(self._names_at + low * stride, (high - low) * stride)
        while begin < end:
            middle = (begin + end) // 2
            at = (middle - low) * stride + skip
            if table[at : at + OID] < oid:
                begin = middle + 1
            else:
                end = middle
        at = (begin - low) * stride + skip
        return self._offset(begin) if begin < high and table[at : at + OID] == oid else None

    def starting_with(self, digits: str, most: int) -> Iterator[str]:
        """The names of at most `most` objects that begin with these hexadecimal digits, two at least."""
        low, high = self._bucket(int(digits[:2], 16))
        names = _Lazy(self, low, high)
        at = bisect.bisect_left(names, bytes.fromhex(digits + "0" * (len(digits) % 2)))
        for place in range(at, min(len(names), at + most)):
            name = names[place].hex()
            if not name.startswith(digits):
                return
            yield name

    def stored(self, offset: int) -> PackedObject:
        """How the object at this place is stored.

        Raises:
            BadPack: it cannot be stored so.
        """
        head = self.data.read(offset, 48)
        if offset < 12 or len(head) < 2:
            raise BadPack(f"{self.name}: an object outside of the pack")
        try:
            return _stored(head, offset)
        except (IndexError, ValueError):
            raise BadPack(f"{self.name}: a damaged object at {offset}") from None

    def _bucket(self, first: int) -> tuple[int, int]:
        return (self._fan[first - 1] if first else 0), self._fan[first]

    def _name(self, number: int) -> bytes:
        return self._index.read(self._names_at + number * self._stride + self._skip, OID)

    def _offset(self, number: int) -> int:
        index, count = self._index, self._fan[-1]
        if self._first:
            return int.from_bytes(index.read(self._names_at + number * self._stride, 4), "big")
        offsets_at = self._names_at + count * (OID + 4)
        offset = int.from_bytes(index.read(offsets_at + number * 4, 4), "big")
        if offset < 1 << 31:
            return offset
        return int.from_bytes(index.read(offsets_at + count * 4 + (offset & 0x7FFFFFFF) * 8, 8), "big")


class _Lazy:
    """The names of a large part of an index, each read when it is looked at."""

    def __init__(self, pack: Pack, low: int, high: int) -> None:
        self._pack = pack
        self._low = low
        self._many = high - low

    def __len__(self) -> int:
        return self._many

    def __getitem__(self, at: int) -> bytes:
        return self._pack._name(self._low + at)


def _stored(head: bytes, offset: int) -> PackedObject:
    byte = head[0]
    number, size, shift, at = byte >> 4 & 7, byte & 15, 4, 1
    while byte & 0x80:
        byte = head[at]
        size |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
    if shift > 64:
        raise ValueError("a size of more than 64 bits")
    if number == NAMED_DELTA:
        return PackedObject(number, size, offset + at + OID, base_oid=head[at : at + OID])
    if number != OFFSET_DELTA:
        if number not in KINDS:
            raise ValueError("an unknown kind")
        return PackedObject(number, size, offset + at)
    byte = head[at]
    back, at = byte & 0x7F, at + 1
    while byte & 0x80:
        byte = head[at]
        back, at = (back + 1 << 7) | (byte & 0x7F), at + 1
    if not 0 < back < offset:
        raise ValueError("a base outside of the pack")
    return PackedObject(number, size, offset + at, base_offset=offset - back)
