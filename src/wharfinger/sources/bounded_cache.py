"""A thread-safe cache with a bounded total cost, which drops the least recently used value first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Keeps values with a total cost of at most `max_cost`.

    A value that costs more than half of `max_cost` (and more than 1) is not stored, because most others would be
    dropped for it.
    """

    def __init__(self, max_cost: int) -> None:
        self._max_cost = max_cost
        self._cost = 0
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, or None."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                return None
            self._kept.move_to_end(key)
            return entry[0]

    def put(self, key: Key, value: Value, cost: int = 1) -> Value:
        """Store a value in place of an earlier one with this key, and return it."""
        with self._lock:
            self._drop(key)
            if cost > 1 and cost * 2 > self._max_cost:
                return value
            self._kept[key] = (value, cost)
            self._cost += cost
            while self._cost > self._max_cost:
                self._drop(next(iter(self._kept)))
        return value

    def remove(self, key: Key) -> None:
        """Drop the value of a key, if the cache has it."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._kept.clear()
            self._cost = 0

    def _drop(self, key: Key) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._cost -= dropped[1]
