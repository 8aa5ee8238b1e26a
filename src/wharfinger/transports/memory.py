"""A client and a service in one process: the same bytes as over stdio, without a pipe."""

from __future__ import annotations

import asyncio
from typing import Any

from wharfinger.errors import ConnectionLost
from wharfinger.protocol.interfaces import LinkEvents, Service
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.principal import LOCAL, Principal
from wharfinger.transports.stream_client import StreamLink
from wharfinger.transports.stream_server import StreamServer

__all__ = ["MemoryLink", "MemoryTarget"]


class MemoryLink(StreamLink):
    """A `Link` to a service of this process. It starts the service, and uses it until the link is closed.

    Closing the link ends the service only if nothing else, such as an HTTP server, uses it.
    """

    transport = "memory"

    def __init__(
        self, service: Service, limits: Limits, events: LinkEvents | None = None, principal: Principal = LOCAL
    ) -> None:
        super().__init__(f"server {service.info.name!r}", limits, events)
        self._service = service
        self._principal = principal
        self._server: StreamServer | None = None

    async def open(self) -> None:
        """Start the service, and connect to it."""
        try:
            await self._service.start(self)
        except asyncio.CancelledError:
            await self._service.close(self)
            raise
        self._server = server = StreamServer(self._service, principal=self._principal)
        server.connection_made(_ToClient(self))
        self.write = server.data_received

    async def disconnect(self) -> None:
        """Disconnect from the service, which cancels the requests of this client."""
        if self._server is None:
            return
        self._server.connection_lost(None)
        await asyncio.wait((self._server.ended,), timeout=self._service.limits.drain)
        await self._service.close(self)


class _ToClient(asyncio.WriteTransport):
    """The server's transport. It passes bytes directly to the client's link, so the server never has to wait."""

    def __init__(self, link: StreamLink) -> None:
        super().__init__()
        self._link = link

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._link.feed(data if isinstance(data, bytes) else bytes(data))

    def is_closing(self) -> bool:
        return self._link.is_lost

    def close(self) -> None:
        name = self._link.name
        self._link.lose(lambda: ConnectionLost(f"The {name} ended the connection."))

    abort = close


class MemoryTarget:
    """A target for a `Client`: a service of this process, with `principal` as the caller of every connection."""

    def __init__(self, service: Service, principal: Principal) -> None:
        self._service = service
        self._principal = principal

    async def open_link(self, limits: Limits, events: LinkEvents) -> MemoryLink:
        """Open a new connection."""
        link = MemoryLink(self._service, limits, events, self._principal)
        await link.open()
        return link
