"""A client's connection to a server on a Unix socket; the messages are lines, as on stdio."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

from wharfinger.errors import ConnectionFailed, ConnectionLost, NotMCP, WharfingerError
from wharfinger.protocol.interfaces import LinkEvents
from wharfinger.protocol.limits import Limits
from wharfinger.transports.stream_client import BLOCKED_BYTES, StreamLink, show_bytes

__all__ = ["UnixLink"]

_REASONS = {
    "FileNotFoundError": "there is no such socket",
    "ConnectionRefusedError": "no server listens there: it has ended, or the file is not a socket",
    "PermissionError": "this user may not connect to it",
}


class UnixLink(StreamLink):
    """A `Link` to a server that listens on a Unix socket."""

    transport = "unix socket"

    def __init__(self, path: str | os.PathLike[str], limits: Limits, events: LinkEvents | None = None) -> None:
        self._path = os.fspath(path)
        super().__init__(f"unix:{self._path}", limits, events)
        self._connection = _SocketProtocol(self)

    async def open(self) -> None:
        """Connect.

        Raises:
            ConnectionFailed: no server listens there, this user may not connect, or the platform has no Unix sockets.
        """
        connect = getattr(self._loop, "create_unix_connection", None)
        if connect is None:  # pragma: no cover  # Windows
            raise ConnectionFailed(f"Cannot connect to {self.name}: this platform has no Unix sockets.")
        try:
            await connect(lambda: self._connection, self._path)
        except (OSError, NotImplementedError, ValueError) as error:
            reason = _REASONS.get(type(error).__name__) or getattr(error, "strerror", None) or str(error)
            raise ConnectionFailed(f"Cannot connect to {self.name}: {reason}.") from None

    async def disconnect(self) -> None:
        """Close the socket after the last messages are sent, or after some seconds."""
        await self._connection.end()

    def why_lost(self) -> WharfingerError:
        """Return the error for the waiting requests after the server has ended the connection."""
        if self.garbage and self.rules is None:
            return NotMCP(f"{self.name} is not MCP: the first bytes were {show_bytes(self.garbage)}.")
        return ConnectionLost(f"{self.name} ended the connection.")


class _SocketProtocol(asyncio.Protocol):
    """The asyncio protocol of the socket."""

    CLOSE_SECONDS = 2.0
    """Seconds for the last messages to be sent."""

    def __init__(self, link: UnixLink) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pause_writing = link.pause_writing  # type: ignore[method-assign]
        self.resume_writing = link.resume_writing  # type: ignore[method-assign]
        self.data_received = link.feed  # type: ignore[method-assign]  # saves a call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(high=BLOCKED_BYTES)
        cast("Any", self._link).write = made.write

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        self._link.lose(self._link.why_lost)

    async def end(self) -> None:
        if self._transport is None:
            return
        self._transport.close()
        done, _ = await asyncio.wait((self._gone,), timeout=self.CLOSE_SECONDS)
        if not done:
            self._transport.abort()
