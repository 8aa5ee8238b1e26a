"""A server that is a part of another one, as the features of the whole see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wharfinger import types as t
from wharfinger.protocol.request import Request

if TYPE_CHECKING:
    from wharfinger.server.features.resources import Resources

__all__ = ["Part"]


class Part(Protocol):
    """What the whole asks of a part."""

    @property
    def name(self) -> str:
        """The part's own name."""
        ...

    @property
    def resources(self) -> Resources:
        """Its resources."""
        ...

    async def read(self, request: Request) -> t.ReadResourceResult:
        """Read what one of its sources has."""
        ...

    def completes(self, ref: t.CompletionReference) -> bool:
        """Whether what a completion is for came from it."""
        ...

    async def complete(self, request: Request) -> t.CompleteResult:
        """Complete, in its own names."""
        ...

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    def attach(self, uri: str | None) -> None: ...
    def detach(self, uri: str | None) -> None: ...
