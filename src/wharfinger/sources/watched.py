"""`Watched`, a base class of sources that find changes in a thread of their own, such as that of `Polling`."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from wharfinger.source import Changed

__all__ = ["Watched"]


class _Watcher(Protocol):
    def watch(self, uri: str | None, changed: Changed) -> None: ...

    def unwatch(self, uri: str | None) -> None: ...

    def close(self) -> None: ...


W = TypeVar("W", bound=_Watcher)


class Watched(Generic[W]):
    """Implements `watch`, `unwatch` and `close` of a source by its `_watches`, which its `__init__` must set.

    Name it before `Source` in the bases of a class: these methods do nothing in `Source`.
    """

    _watches: W
    """Finds the changes, such as a `Polling`."""

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed` after each change of this URI, or of the list if it is None."""
        self._watches.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI, or the list if `uri` is None."""
        self._watches.unwatch(uri)

    async def close(self) -> None:
        """End all watches."""
        self._watches.close()
