"""The interface of a mounted server to the server that it is mounted in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from wharfinger.protocol.request import Request

__all__ = ["Part"]


class Part(Protocol):
    """A mounted server. Its parent, the server in which it is mounted, shows its features without copying them."""

    @property
    def name(self) -> str:
        """The server's own name."""
        ...

    @property
    def direct(self) -> Mapping[str, bool]:
        """By method, whether the parent may call a feature directly: nothing in the part is around the handler."""
        ...

    async def serve(self, request: Request, **own: object) -> Any:
        """Serve a request with the part's handler. `own` has the params that differ in the part, such as a name."""
        ...

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    def watch(self, uri: str | None) -> None:
        """Watch a URI, or (None) the list of resources. Called when the parent has its first watcher of it."""
        ...

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI, or (None) the list of resources. Called when the parent has no more watchers of it."""
        ...
