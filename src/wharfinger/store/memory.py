"""A store in memory. It has no limits of its own: its users must limit what they store."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice

from msgspec import UNSET, UnsetType

__all__ = ["MemoryStore"]


class MemoryStore:
    """A `Store` in the memory of this process. `clock` returns seconds since 1970."""

    shared = False

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._values: dict[str, tuple[bytes, float | None]] = {}
        self._keys: list[str] = []
        self._expiries: list[tuple[float, str]] = []
        """A heap of expiry times and keys. Entries of keys that have changed since are ignored."""
        self._usage: dict[str, tuple[int, int]] = {}
        """The number of keys and bytes by prefix, for the empty prefix and each one that ends with a slash."""

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, or None if the key is missing or has expired."""
        self._sweep()
        found = self._values.get(key)
        return None if found is None else found[0]

    async def put(
        self, key: str, value: bytes, *, expires: float | None = None, instead_of: bytes | UnsetType | None = UNSET
    ) -> bool:
        """Set a key; see `Store.put`."""
        if instead_of is not UNSET and await self.get(key) != instead_of:
            return False
        before = self._values.get(key)
        if before is None:
            insort(self._keys, key)
            self._count(key, 1, len(value))
        else:
            self._count(key, 0, len(value) - len(before[0]))
        if expires is not None and (before is None or before[1] != expires):
            heappush(self._expiries, (expires, key))
        self._values[key] = value, expires
        return True

    async def delete(self, key: str) -> None:
        """Remove a key, if it exists."""
        if (found := self._values.pop(key, None)) is not None:
            del self._keys[bisect_left(self._keys, key)]
            self._count(key, -1, -len(found[0]))

    async def scan(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """Return keys with this prefix and their values, in order, starting after the key `after`."""
        self._sweep()
        return [(key, self._values[key][0]) for key in islice(self._keys_with(prefix, after), limit)]

    async def usage(self, prefix: str) -> tuple[int, int]:
        """Return the number of keys with this prefix, and the bytes of their values; fast if it ends with a slash."""
        self._sweep()
        if not prefix or prefix.endswith("/"):
            return self._usage.get(prefix, (0, 0))
        sizes = [len(self._values[key][0]) for key in self._keys_with(prefix)]
        return len(sizes), sum(sizes)

    async def close(self) -> None:
        """Do nothing: the store keeps its values."""

    def _keys_with(self, prefix: str, after: str = "") -> Iterator[str]:
        """Yield the keys with this prefix in order, from the first one after the key `after`."""
        start = bisect_right(self._keys, after) if after >= prefix else bisect_left(self._keys, prefix)
        for number in range(start, len(self._keys)):
            if not self._keys[number].startswith(prefix):
                return
            yield self._keys[number]

    def _count(self, key: str, key_count: int, size: int) -> None:
        """Add a number of keys and bytes to the usage of each prefix of a key. Both may be negative."""
        parts = key.split("/")
        for depth in range(len(parts)):
            folder = "".join(f"{part}/" for part in parts[:depth])
            count, used = self._usage.get(folder, (0, 0))
            if count + key_count:
                self._usage[folder] = count + key_count, used + size
            else:
                self._usage.pop(folder, None)

    def _sweep(self) -> None:
        """Remove expired keys."""
        now = self._clock()
        while self._expiries and self._expiries[0][0] <= now:
            expires, key = heappop(self._expiries)
            found = self._values.get(key)
            if found is not None and found[1] == expires:
                del self._values[key], self._keys[bisect_left(self._keys, key)]
                self._count(key, -1, -len(found[0]))
