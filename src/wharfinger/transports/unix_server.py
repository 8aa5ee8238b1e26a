"""A server on a Unix socket, for every client that may open it; the messages are lines, as on stdio."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.shares import Shares
from wharfinger.transports.accepting import AddressInUse, CannotListen, Exhaustion
from wharfinger.transports.stream_server import StreamServer

__all__ = ["MAX_CONNECTIONS", "UnixServer", "serve_unix"]

log = logging.getLogger("wharfinger.transports.unix_server")

MAX_CONNECTIONS = 256
"""The maximum number of clients at a time; further connections are closed."""
MODE = 0o600
"""Permissions of the socket: only this user may connect."""
BACKLOG = 128


def serve_unix(
    service: Service,
    path: str | os.PathLike[str],
    *,
    mode: int = MODE,
    connections: int = MAX_CONNECTIONS,
    on_ready: Callable[[], None] | None = None,
) -> bool:
    """Serve until Ctrl-C or SIGTERM. Returns True after Ctrl-C.

    `mode` is the mode of the socket's file: users who may write to it may connect. `on_ready` is called when clients
    can connect.

    Raises:
        AddressInUse: another server listens there, or the file is not a socket, or belongs to another user.
        CannotListen: the socket cannot be created there.
    """
    try:
        with asyncio.Runner() as runner:
            runner.run(_serve(UnixServer(service, path, mode=mode, connections=connections), on_ready))
    except KeyboardInterrupt:  # the usual way to end: no traceback
        return True
    return False


async def _serve(server: UnixServer, on_ready: Callable[[], None] | None) -> None:
    import signal

    ending = asyncio.Event()
    with suppress(NotImplementedError, RuntimeError):  # Windows; a thread that is not the main one
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    await server.start()
    try:
        if on_ready is not None:
            on_ready()
        await ending.wait()
    finally:
        await server.close()


class UnixServer:
    """Serves a service at a path of the file system."""

    def __init__(
        self, service: Service, path: str | os.PathLike[str], *, mode: int = MODE, connections: int = MAX_CONNECTIONS
    ) -> None:
        self.path = os.fspath(path)
        self._service = service
        self._mode = mode
        self._max_connections = connections
        self._open: set[_ClientConnection] = set()
        self._unread = Shares()
        self._server: asyncio.AbstractServer | None = None
        self._exhaustion: Exhaustion | None = None
        self._socket_identity: tuple[int, int] | None = None
        """Device and inode of the file that this server created and will remove."""

    async def start(self) -> None:
        """Start the service, and listen.

        Raises:
            AddressInUse, CannotListen: as for `serve_unix`; the service is not started then.
        """
        listener = _listen(self.path, self._mode)
        status = os.stat(self.path)
        self._socket_identity = (status.st_dev, status.st_ino)
        try:
            await self._service.start(self)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._connected, sock=listener, backlog=BACKLOG)
            self._exhaustion = Exhaustion(loop)
        except BaseException:
            listener.close()
            self._remove()
            raise

    async def close(self) -> None:
        """Accept no more clients, let requests finish and clients read their answers, and close every connection.

        Requests have `Limits.drain` seconds to finish, and slow readers as many seconds more.
        """
        self._remove()
        if self._server is not None:
            self._server.close()
        if self._exhaustion is not None:
            self._exhaustion.stop()
        self._service.drain()
        await asyncio.sleep(0)  # the final results of long requests are sent before the connections drain
        streams = list(self._open)
        for stream in streams:
            stream.drain()
        if streams:
            await asyncio.wait([stream.gone for stream in streams], timeout=2 * self._service.limits.drain)
        for stream in streams:
            stream.finish()
            stream.leave(abort=True)
        await self._service.close(self)

    def _connected(self) -> asyncio.Protocol:
        if len(self._open) >= self._max_connections:
            log.warning("%s has %d clients: another connection was closed.", self.path, self._max_connections)
            return _RefusedConnection()
        return _ClientConnection(self._service, self._open, self._unread)

    def _remove(self) -> None:
        """Remove the file, unless another server has replaced it."""
        with suppress(OSError):
            status = os.stat(self.path)
            if self._socket_identity == (status.st_dev, status.st_ino):
                os.unlink(self.path)
        self._socket_identity = None


class _ClientConnection(StreamServer):
    """The connection of one client; `gone` is done when it is closed."""

    def __init__(self, service: Service, connections: set[_ClientConnection], unread: Shares) -> None:
        """While it is open, the connection is in `connections`."""
        super().__init__(service, unread=unread, owner=f"connection {id(self)}")
        self._connections = connections
        self.gone: asyncio.Future[None] = self.loop.create_future()
        self.ended.add_done_callback(lambda _: self.leave())

    def connection_made(self, transport: Any) -> None:
        """Called when the client has connected."""
        super().connection_made(transport)
        self._socket = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the client is gone."""
        self._connections.discard(self)
        super().connection_lost(exc)
        if not self.gone.done():
            self.gone.set_result(None)

    def leave(self, abort: bool = False) -> None:
        """Close the connection after everything is written, or at once with `abort`."""
        (self._socket.abort if abort else self._socket.close)()


class _RefusedConnection(asyncio.Protocol):
    """Closes the connection of a client over the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _listen(path: str, mode: int) -> socket.socket:
    """Return a socket that listens at `path`; a socket that no server listens on is replaced.

    It listens at once, before the service starts: until then another server would take it for abandoned. Clients that
    connect early wait. The mode is set by the umask, so that no other user can open the socket in between.

    Raises:
        AddressInUse, CannotListen: as for `serve_unix`.
    """
    if sys.platform == "win32" or not hasattr(socket, "AF_UNIX"):  # Windows
        raise CannotListen("This platform has no Unix sockets for asyncio.")
    _remove_abandoned(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    before = os.umask(0o777 & ~mode)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(f"Cannot listen on {path}: {error.strerror or error}.") from None
    finally:
        os.umask(before)
    return listener


def _remove_abandoned(path: str) -> None:
    """Remove a socket on which no server listens.

    Raises:
        AddressInUse: a server listens there, or the file is not a socket, or belongs to another user.
        CannotListen: no file can be there, or the socket cannot be removed.
    """
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"Cannot listen on {path}: {error.strerror}.") from None
    if not stat.S_ISSOCK(kind):
        raise AddressInUse(f"{path} exists and is not a socket: choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise CannotListen(f"Cannot remove the socket {path}: {error.strerror}.") from None
            return
        except OSError:
            pass  # a server listens and its queue is full, or the socket belongs to another user
    raise AddressInUse(f"Another server listens on {path} already, or the socket belongs to another user.")
