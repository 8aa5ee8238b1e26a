"""What sources have in common whose changes are found by a thread of their own, such as that of `Polling`."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from wharfinger.source import Changed

__all__ = ["Watched"]


class _Watches(Protocol):
    def watch(self, uri: str | None, changed: Changed) -> None: ...

    def unwatch(self, uri: str | None) -> None: ...

    def close(self) -> None: ...


W = TypeVar("W", bound=_Watches)


class Watched(Generic[W]):
    """Makes a source watchable by `_watches`, which the `__init__` of the source sets. List it before `Source`."""

    _watches: W

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed` after each change of this URI, or of the list if it is None."""
        self._watches.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI, or the list if `uri` is None."""
        self._watches.unwatch(uri)

    async def close(self) -> None:
        """End all watches."""
        self._watches.close()
