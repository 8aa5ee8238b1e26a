"""One ordered set of features, for resources, templates, tools and prompts alike; knows nothing of what they do."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
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


class Onlooker(Protocol):
    """Who follows a set of features: a server that shows them as its own."""

    def added(self, key: str, feature: Any, fallback: bool) -> None:
        """A feature was added; ValueError refuses it."""
        ...

    def removed(self, key: str) -> None: ...
    def disabled(self, key: str) -> None: ...
    def enabled(self, key: str) -> None: ...


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
        """For looking up; change it only by `add`, `remove`, `disable` and `enable`."""
        self._numbers: dict[str, int] = {}
        self._fallbacks: set[str] = set()
        self.disabled: dict[str, F] = {}
        """What is out of sight for now; change it only by `disable` and `enable`."""
        self._order: list[int] = []
        self._keys: dict[int, str] = {}
        self._next = 1
        self.onlookers: list[Onlooker] = []
        """Told of each change before it is over."""

    def add(self, key: str, feature: F, *, fallback: bool = False) -> None:
        """Add a feature; a fallback gives way to one of the same key that is none, whichever comes first.

        Raises:
            ValueError: the key is taken.
        """
        if key in self._numbers:
            if key not in self._fallbacks and fallback:
                return
            if key not in self._fallbacks:
                raise ValueError(f"The {self.kind} {key!r} is registered already: remove it first, or rename one.")
            self._drop(key)
            for onlooker in self.onlookers:
                onlooker.removed(key)
        number, self._next = self._next, self._next + 1
        self.by_key[key] = feature
        self._numbers[key] = number
        self._order.append(number)
        self._keys[number] = key
        if fallback:
            self._fallbacks.add(key)
        if self.onlookers:
            self._show(key, feature, fallback)
        self.version += 1
        self._changed()

    def _show(self, key: str, feature: F, fallback: bool) -> None:
        """Tell of an addition; refused by one, it is taken back everywhere."""
        told: list[Onlooker] = []
        try:
            for onlooker in self.onlookers:
                onlooker.added(key, feature, fallback)
                told.append(onlooker)
        except ValueError:
            for onlooker in told:
                onlooker.removed(key)
            self._drop(key)
            raise

    def remove(self, key: str) -> F:
        """Remove a feature.

        Raises:
            KeyError: there is none of this key.
        """
        if key not in self._numbers:
            raise KeyError(f"There is no {self.kind} {key!r}.")
        feature = self._drop(key)
        for onlooker in self.onlookers:
            onlooker.removed(key)
        self.version += 1
        self._changed()
        return feature

    def _drop(self, key: str) -> F:
        number = self._numbers.pop(key)
        del self._keys[number]
        self._fallbacks.discard(key)
        if key in self.disabled:
            return self.disabled.pop(key)
        del self._order[bisect_left(self._order, number)]
        return self.by_key.pop(key)

    def disable(self, key: str) -> None:
        """Take a feature out of sight: unknown to calls and lists, but its key stays taken, and its place kept.

        Raises:
            KeyError: there is none of this key.
        """
        if key not in self._numbers:
            raise KeyError(f"There is no {self.kind} {key!r}.")
        if key not in self.disabled:
            del self._order[bisect_left(self._order, self._numbers[key])]
            self.disabled[key] = self.by_key.pop(key)
            for onlooker in self.onlookers:
                onlooker.disabled(key)
            self.version += 1
            self._changed()

    def has(self, key: str) -> bool:
        """Whether this key is taken, in sight or not."""
        return key in self._numbers

    def everything(self) -> list[tuple[str, F, bool]]:
        """`(key, feature, whether it is a fallback)` of all, also of what is out of sight, in order."""
        found = self.by_key | self.disabled
        return [(key, found[key], key in self._fallbacks) for key in self._keys.values()]

    def is_disabled(self, key: str) -> bool:
        """Whether there is such a feature, out of sight."""
        return key in self.disabled

    def enable(self, key: str) -> None:
        """Bring a feature back to where it was.

        Raises:
            KeyError: there is none of this key.
        """
        if key not in self._numbers:
            raise KeyError(f"There is no {self.kind} {key!r}.")
        if key in self.disabled:
            insort(self._order, self._numbers[key])
            self.by_key[key] = self.disabled.pop(key)
            for onlooker in self.onlookers:
                onlooker.enabled(key)
            self.version += 1
            self._changed()

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
