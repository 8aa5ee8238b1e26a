"""One ordered set of features: tools, prompts, resources or templates, with those of mounted servers.

Features keep the order in which they were added. Each gets the next number, and a page starts after a number, so that
adding or removing features does not shift later pages.

The features of a mounted server (a part) are not copied: the set of the server that it is mounted in (its parent) has
the sets of its parts in `parts`, and shows their features under a prefix. The visible features are computed on use, and
again after a change. A set's own features come first, then those of each part, so that a position is a path:
(0, number) is a feature of the set itself, and (2, 0, 7) is number 7 of the second part. When a feature is added, its
name is checked in its own set and in every set that shows it. A feature that was added as a fallback is replaced by any
other feature of the same name.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from wharfinger.server.part import Part

__all__ = ["Feature", "Features", "MountedFeatures", "VisibleFeature"]

_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")


class Feature(Protocol):
    """An entry of a list."""

    @property
    def definition(self) -> Any:
        """The struct of `types` that a list shows."""
        ...


F = TypeVar("F", bound=Feature)


class VisibleFeature(NamedTuple, Generic[F]):
    """A visible feature, and the part that it belongs to."""

    feature: F
    fallback: bool
    part: Part | None = None
    """The part that has the feature; None if the set itself has it."""
    key: str = ""
    """Its key in that part."""


class Features(Generic[F]):
    """Features by key: a name, a URI or a URI template. `version` increases with every change, also of parts."""

    def __init__(self, kind: str, changed: Callable[[], None]) -> None:
        self.kind = kind
        self.version = 0
        self.parts: list[MountedFeatures[F]] = []
        """The sets of mounted servers, whose features this set shows."""
        self.parents: list[MountedFeatures[F]] = []
        """The mounts through which other sets show this one."""
        self.by_key: dict[str, F] = {}
        """The set's own features that are enabled; change it only with `add`, `remove`, `disable` and `enable`."""
        self.disabled: dict[str, F] = {}
        """The set's own features that are disabled."""
        self._changed = changed
        self._numbers: dict[str, int] = {}
        self._fallbacks: set[str] = set()
        self._order: list[int] = []
        """The numbers of the enabled features, in ascending order."""
        self._keys: dict[int, str] = {}
        self._next_number = 1
        self._hidden: dict[str, bool] = {}
        """Keys of parts' features that this set hides: True if they were disabled here, False if they were removed."""
        self._visible: dict[str, VisibleFeature[F]] | None = None
        self._positions: list[tuple[tuple[int, ...], str]] = []
        """The positions and keys of the visible features, in order."""

    # -- changing

    def add(self, key: str, feature: F, *, fallback: bool = False) -> None:
        """Add a feature. A fallback is replaced by another feature of the same key, whichever is added first.

        Raises:
            ValueError: the key is taken, here or in a set that shows this one.
        """
        holder = self.holder(key)
        if holder is not None and not holder.fallback:
            if fallback and key in self._numbers:
                return
            if not fallback:
                raise ValueError(f"The {self.kind} {key!r} is registered already: remove it first, or rename one.")
        for mounted in self.parents:
            mounted.check(key, fallback)
        if key in self._numbers:
            self._drop(key)
        number, self._next_number = self._next_number, self._next_number + 1
        self.by_key[key] = feature
        self._numbers[key] = number
        self._order.append(number)
        self._keys[number] = key
        if fallback:
            self._fallbacks.add(key)
        self._touch()
        self._changed()

    def remove(self, key: str) -> None:
        """Remove a feature. A part keeps its feature, but this set no longer shows it.

        Raises:
            KeyError: there is no feature of this key.
        """
        if key in self._numbers:
            self._drop(key)
        else:
            self._require(key)
            self._hidden[key] = False
        for mounted in self.parents:
            mounted.forget(key)
        self._touch()
        self._changed()

    def disable(self, key: str) -> None:
        """Hide a feature from calls and lists. It keeps its key and its position.

        Raises:
            KeyError: there is no feature of this key.
        """
        self._require(key)
        if self.is_disabled(key):
            return
        if key in self._numbers:
            del self._order[bisect_left(self._order, self._numbers[key])]
            self.disabled[key] = self.by_key.pop(key)
        else:
            self._hidden[key] = True
        self._touch()
        self._changed()

    def enable(self, key: str) -> None:
        """Enable a disabled feature again, at its old position.

        Raises:
            KeyError: there is no feature of this key.
        """
        self._require(key)
        if not self.is_disabled(key):
            return
        if key in self._numbers:
            insort(self._order, self._numbers[key])
            self.by_key[key] = self.disabled.pop(key)
        else:
            del self._hidden[key]
        self._touch()
        self._changed()

    def definition_changed(self) -> None:
        """Report that the definition of a feature has changed."""
        self._touch()
        self._changed()

    def forget(self, key: str) -> None:
        """Called when a part has removed a feature, so that a later feature of the same key is shown."""
        self._hidden.pop(key, None)
        for mounted in self.parents:
            mounted.forget(key)

    def _drop(self, key: str) -> None:
        number = self._numbers.pop(key)
        del self._keys[number]
        self._fallbacks.discard(key)
        if key in self.disabled:
            del self.disabled[key]
        else:
            del self._order[bisect_left(self._order, number)]
            del self.by_key[key]

    def _touch(self) -> None:
        self.version += 1
        self._visible = None
        for mounted in self.parents:
            mounted.parent._touch()

    # -- looking up

    def has(self, key: str) -> bool:
        """Return whether this key is taken, by an enabled or a disabled feature."""
        return self.holder(key) is not None

    def is_disabled(self, key: str) -> bool:
        """Return whether there is a disabled feature of this key."""
        return key in self.disabled or self._hidden.get(key, False)

    def hides(self, key: str) -> bool:
        """Return whether this set hides a part's feature of this key."""
        return key in self._hidden

    def _has_removed(self, key: str) -> bool:
        """Return whether a part's feature of this key was removed here, so that the key is free again."""
        return self._hidden.get(key) is False

    def find(self, key: str) -> VisibleFeature[F] | None:
        """Return the enabled feature of this key, the set's own or a part's; None if there is none."""
        if not self.parts:
            feature = self.by_key.get(key)
            return None if feature is None else VisibleFeature(feature, key in self._fallbacks)
        return self._visible_features().get(key)

    def items(self) -> Iterator[tuple[str, F]]:
        """Return every enabled feature with its key, in order."""
        if not self.parts:
            return ((key, self.by_key[key]) for key in map(self._keys.__getitem__, self._order))
        shown = self._visible_features()
        return ((key, shown[key].feature) for _, key in self._positions)

    def page(self, after: Any, limit: int) -> tuple[list[tuple[str, F]], Any]:
        """Return at most `limit` features after a position (0: the start) with their keys, and the position after them.

        The position is None after the last page.
        """
        if not self.parts:
            start = bisect_right(self._order, after)
            numbers = self._order[start : start + limit]
            more = start + limit < len(self._order)
            keys = [self._keys[number] for number in numbers]
            return [(key, self.by_key[key]) for key in keys], numbers[-1] if more and numbers else None
        shown = self._visible_features()
        position: tuple[int, ...] = (0, after) if isinstance(after, int) else after
        start = bisect_right(self._positions, position, key=lambda entry: entry[0])
        positions = self._positions[start : start + limit]
        more = start + limit < len(self._positions)
        return [(key, shown[key].feature) for _, key in positions], positions[-1][0] if more and positions else None

    def taken(self) -> Iterator[tuple[str, bool]]:
        """Yield every key that is taken, and whether its feature is a fallback."""
        for key in self._numbers:
            yield key, key in self._fallbacks
        for mounted in self.parts:
            for key, fallback in mounted.features.taken():
                if not self._has_removed(mounted.prefix + key):
                    yield mounted.prefix + key, fallback

    def holder(self, key: str) -> _Holder | None:
        """Return the server whose feature has this key, or None. A feature that is not a fallback is preferred."""
        found = _Holder("", key in self._fallbacks) if key in self._numbers else None
        for mounted in self.parts:
            if found is not None and not found.fallback:
                break
            if key.startswith(mounted.prefix) and not self._has_removed(key):
                inner = mounted.features.holder(key[len(mounted.prefix) :])
                if inner is not None and (found is None or not inner.fallback):
                    found = _Holder(mounted.part.name, inner.fallback)
        return found

    def _require(self, key: str) -> None:
        if self.holder(key) is None:
            raise KeyError(f"There is no {self.kind} {key!r}.")

    def _visible_features(self) -> dict[str, VisibleFeature[F]]:
        """Return the visible features by key: enabled, and not replaced by another one."""
        if self._visible is None:
            positions: list[tuple[tuple[int, ...], str]] = []
            best: dict[str, tuple[tuple[int, ...], VisibleFeature[F]]] = {}
            for position, key, found in self._candidates():
                present = best.get(key)
                if present is None or (present[1].fallback and not found.fallback):
                    best[key] = position, found
            positions = sorted((position, key) for key, (position, _) in best.items())
            self._positions = positions
            self._visible = {key: best[key][1] for _, key in positions}
        return self._visible

    def _candidates(self) -> Iterator[tuple[tuple[int, ...], str, VisibleFeature[F]]]:
        for number in self._order:
            key = self._keys[number]
            yield (0, number), key, VisibleFeature(self.by_key[key], key in self._fallbacks)
        for index, mounted in enumerate(self.parts, 1):
            features = mounted.features
            shown = features._visible_features()
            for position, inner in features._positions:
                key, found = mounted.prefix + inner, shown[inner]
                taken = key in self.disabled and key not in self._fallbacks  # a disabled feature keeps its key
                if key not in self._hidden and not taken:
                    yield (index, *position), key, VisibleFeature(found.feature, found.fallback, mounted.part, inner)

    def __iter__(self) -> Iterator[F]:
        return (feature for _, feature in self.items())

    def __len__(self) -> int:
        return len(self._visible_features()) if self.parts else len(self._order)


class _Holder(NamedTuple):
    """The server whose feature has a key."""

    server: str
    """The name of the part; empty if the set itself has the feature."""
    fallback: bool


class MountedFeatures(Generic[F]):
    """Shows the features of a part in its parent: names under `prefix`, or URIs unchanged (`prefix=None`).

    Raises:
        ValueError: a name is taken in the parent, or is not valid with the prefix.
    """

    def __init__(
        self, part: Part, features: Features[F], parent: Features[F], parent_name: str, *, prefix: str | None = None
    ) -> None:
        self.part = part
        self.features = features
        self.parent = parent
        self.prefix = prefix or ""
        self._parent_name = parent_name
        self._has_names = prefix is not None
        for key, fallback in features.taken():
            self.check(key, fallback)

    def show(self) -> None:
        """Begin to show the part's features."""
        self.parent.parts.append(self)
        self.features.parents.append(self)
        self.parent._touch()

    def check(self, key: str, fallback: bool) -> None:
        """Check the key of a feature that is about to be added to the part.

        Raises:
            ValueError: its name is taken in the parent, or is not valid with the prefix.
        """
        name = self.prefix + key
        if self._has_names and not _NAME.fullmatch(name):
            raise ValueError(
                f"{self._parent_name!r} and {self.part.name!r}: {name!r} is not a valid name: "
                "pass a shorter prefix=, of letters, digits, '_', '-' and '.'."
            )
        holder = self.parent.holder(name)
        if holder is not None and not holder.fallback and not fallback:
            advice = "include one with another prefix=" if self._has_names else "remove one"
            servers = f"{holder.server or self._parent_name!r} and {self.part.name!r}"
            raise ValueError(f"{servers} both have the {self.parent.kind} {name!r}: {advice}.")
        for mounted in self.parent.parents:
            mounted.check(name, fallback)

    def forget(self, key: str) -> None:
        """Called when the part has removed a feature."""
        self.parent.forget(self.prefix + key)
