"""What a server sees of a server that is mounted in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from wharfinger.protocol.request import Request

__all__ = ["Part"]


class Part(Protocol):
    """A mounted server. Its features stay its own; the whole looks through to them."""

    @property
    def name(self) -> str:
        """The server's own name."""
        ...

    @property
    def direct(self) -> Mapping[str, bool]:
        """By method, whether a feature may be called as it is: no middleware has to run around it."""
        ...

    async def serve(self, request: Request, **own: Any) -> Any:
        """Serve a request by the part's own handler, with `own` in its params: the names that the part knows."""
        ...

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    def watch(self, uri: str | None) -> None:
        """The whole has its first watcher of this URI, or (None) of the list of resources."""
        ...

    def unwatch(self, uri: str | None) -> None:
        """The whole has lost its last watcher of this URI, or (None) of the list of resources."""
        ...
