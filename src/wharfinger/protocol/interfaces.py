"""The shapes at which layers meet: what a transport serves, and the ways back and forth between the two ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from wharfinger.protocol.exchange import Channel, Request, Stamps
from wharfinger.protocol.handshake import Outlet, Session
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import Revision
from wharfinger.types import Implementation, ServerCapabilities

__all__ = ["Channel", "Handler", "Link", "Notified", "Outlet", "Service", "Verify"]

Handler = Callable[[Request], Awaitable[Any]]
"""Serves one method: the result is a struct of `types`, or `msgspec.Raw` holding a JSON object; era-free either way."""

Notified = Callable[[Session | None, Any], None]
"""Takes one notification of the client: its session, if there is one, and its decoded params. Must not wait."""

Verify = Callable[[Mapping[bytes, bytes]], str]
"""HTTP headers (lower-case names) to a principal; raises `auth.Refused` to answer 401 or 403."""


class Service(Protocol):
    """What a transport serves: a mapping from method to handler, with identity and capabilities.

    A server is one; so is a gateway. A method that is not in `handlers` is not found, so that the mapping alone says
    which capabilities are declared.
    """

    @property
    def info(self) -> Implementation: ...
    @property
    def instructions(self) -> str | None: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def notified(self) -> Mapping[str, Notified]: ...
    @property
    def stamps(self) -> Stamps: ...

    def capabilities(self, rules: Revision) -> ServerCapabilities:
        """What is declared to a caller of this revision."""
        ...

    async def start(self) -> None:
        """Enter the lifespan; does nothing the second time."""
        ...

    def drain(self) -> None:
        """End every long request with its final result; nothing new is to come."""
        ...

    async def close(self) -> None:
        """Leave the lifespan; does nothing the second time."""
        ...


class Link(Protocol):
    """A client's way to a server."""

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None,
        notified: Callable[[Message], None] | None = None,
    ) -> Message:
        """Send a request and wait for its answer; cancelling the waiting task cancels the request.

        Raises:
            ConnectionLost: the connection ended first.
            RequestTimeout: no answer in time.
        """
        ...

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        ...

    async def close(self) -> None:
        """End the connection; what waits fails with ConnectionLost. Does nothing the second time."""
        ...
