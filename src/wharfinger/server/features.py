"""One ordered set of features, for resources, templates, tools and prompts alike; knows nothing of what they do."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Feature", "Features"]


class Feature(Protocol):
    """What can be listed."""

    @property
    def definition(self) -> Any:
        """The struct of `types` that a list shows."""
        ...


F = TypeVar("F", bound=Feature)


class Features(Generic[F]):
    """Features by key, in the order in which they were added; pages stay stable while it changes.

    Each addition gets the next number, and a page begins behind a number: what was added or removed meanwhile moves
    nothing. `version` changes with every change.
    """

    def __init__(self, kind: str, changed: Callable[[], None]) -> None:
        self.kind = kind
        self.version = 0
        self._changed = changed
        self.by_key: dict[str, F] = {}
        """For looking up; change it only by `add` and `remove`."""
        self._numbers: dict[str, int] = {}
        self._fallbacks: set[str] = set()
        self._order: list[int] = []
        self._keys: dict[int, str] = {}
        self._next = 1

    def add(self, key: str, feature: F, *, fallback: bool = False) -> None:
        """Add a feature; a fallback gives way to one of the same key that is none, whichever comes first.

        Raises:
            ValueError: the key is taken.
        """
        if key in self.by_key:
            if key not in self._fallbacks and fallback:
                return
            if key not in self._fallbacks:
                raise ValueError(f"The {self.kind} {key!r} is registered already: remove it first, or rename one.")
            self._drop(key)
        number, self._next = self._next, self._next + 1
        self.by_key[key] = feature
        self._numbers[key] = number
        self._order.append(number)
        self._keys[number] = key
        if fallback:
            self._fallbacks.add(key)
        self.version += 1
        self._changed()

    def remove(self, key: str) -> F:
        """Remove a feature.

        Raises:
            KeyError: there is none of this key.
        """
        if key not in self.by_key:
            raise KeyError(f"There is no {self.kind} {key!r}.")
        feature = self._drop(key)
        self.version += 1
        self._changed()
        return feature

    def _drop(self, key: str) -> F:
        number = self._numbers.pop(key)
        del self._order[bisect_left(self._order, number)]
        del self._keys[number]
        self._fallbacks.discard(key)
        return self.by_key.pop(key)

    def page(self, after: int, limit: int) -> tuple[list[F], int | None]:
        """At most `limit` features behind the number `after` (0: from the start), and where the next page begins."""
        start = bisect_right(self._order, after)
        numbers = self._order[start : start + limit]
        more = start + limit < len(self._order)
        return [self.by_key[self._keys[number]] for number in numbers], numbers[-1] if more and numbers else None

    def __iter__(self) -> Iterator[F]:
        return iter([self.by_key[self._keys[number]] for number in self._order])

    def __len__(self) -> int:
        return len(self._order)
