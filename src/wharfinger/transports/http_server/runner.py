"""Our own run of uvicorn's server: binding, signals, one sweeper for deadlines, and an end that comes in time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from email.utils import formatdate
from time import time
from typing import Any

from uvicorn.config import Config
from uvicorn.server import Server as UvicornServer

from wharfinger.errors import WharfingerError
from wharfinger.protocol.http.host_origin import is_loopback
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.interfaces import Service, Verify
from wharfinger.protocol.shares import Crowd
from wharfinger.transports.accepting import Exhaustion
from wharfinger.transports.http_server.app import Contents, HttpApp, Page
from wharfinger.transports.http_server.garbage_collection import Collector
from wharfinger.transports.http_server.http_connection import Connection

__all__ = ["AddressInUse", "CannotListen", "UnsafeBind", "run_http", "serve_http"]

log = logging.getLogger("wharfinger.transports.http")


_ACCEPTED = 100
"""Connections that are accepted in one turn of the loop."""
_SPARE = 128
"""Descriptors that are not used for connections: files that are read, a database, watches, the search index."""
GOODBYE = 0.5
"""Seconds in which TLS clients may answer our goodbye at the end; many never do, with nothing left to be sent."""
SLICE = 100
"""Endings of connections in one turn of the loop: some 4 ms, where ten thousand at once would take half a second."""


class CannotListen(WharfingerError):
    """The address cannot be bound; the message says which one and why."""

    exit_code = 3


class AddressInUse(CannotListen):
    """Something listens on this port already."""


class UnsafeBind(WharfingerError):
    """Everybody who reaches this address could use the server, and nobody said that this is meant."""

    exit_code = 2


async def serve_http(
    service: Service,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    verify: Verify | None = None,
    insecure: bool = False,
    allow_hosts: Iterable[str] = (),
    allow_origins: Iterable[str] = (),
    public_url: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    limits: HttpLimits | None = None,
    pages: Mapping[str, Page] | None = None,
    contents: Contents | None = None,
    sse: bool = True,
    on_ready: Callable[[str], None] | None = None,
) -> signal.Signals | None:
    """Serve until SIGINT or SIGTERM, and give that signal; a second one ends everything at once.

    What starting the service raises is raised here. `on_ready` gets the base URL, with the real port where `port` is 0,
    when connections are accepted and the service runs. Cancelling the task ends the server in the same graceful way.
    `sse=False` turns off HTTP+SSE, for clients of 2024-11-05.

    Raises:
        UnsafeBind: `host` is reached from other machines, and there is neither `verify` nor `insecure`.
        AddressInUse, CannotListen: the address cannot be bound, or the certificate not be read.
        ValueError: a host, origin or URL that cannot be one, or a key without its certificate.
    """
    if verify is None and not insecure and not is_loopback(host):
        raise UnsafeBind(
            f"{host or 'every address'} is reached from other machines: "
            "set a token with --token-env NAME (verify=), or say --insecure (insecure=True) to let everybody in."
        )
    if tls_key and not tls_cert:
        raise ValueError("A key alone is not enough for HTTPS: give its certificate too (--tls-cert, tls_cert=).")
    host = host.removeprefix("[").removesuffix("]")
    limits = limits or HttpLimits()
    app = HttpApp(
        service,
        bind=host,
        allow_hosts=allow_hosts,
        allow_origins=allow_origins,
        public_url=public_url,
        verify=verify,
        limits=limits,
        pages=pages,
        contents=contents,
        sse=sse,
        separates_trailers=True,
    )
    server = HttpServer(app, host, port, limits, tls_cert, tls_key)
    await server.listen()
    try:
        return await server.run_until_signal(on_ready)
    finally:
        await server.end()


def run_http(service: Service, host: str = "127.0.0.1", port: int = 8000, **settings: Any) -> signal.Signals | None:
    """`serve_http` in a loop of its own: uvloop's where that is installed."""
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        return runner.run(serve_http(service, host, port, **settings))


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class HttpServer(UvicornServer):
    """uvicorn's server: one sweeper for every connection's deadlines, and an end within `limits.drain`."""

    def __init__(self, app: HttpApp, host: str, port: int, limits: HttpLimits, tls_cert: str, tls_key: str) -> None:
        super().__init__(
            Config(
                app,
                host=host,
                port=port,
                http=Connection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                loop="none",
                log_config=None,
                proxy_headers=False,  # a header must not choose the address that streams are counted by
                server_header=False,
                ssl_certfile=tls_cert or None,
                ssl_keyfile=tls_key or None,
            )
        )
        self.app = app
        self.limits = limits
        self.now = 0.0
        """The loop's time at the last tick."""
        self.date = b""
        """The Date header as a line."""
        self.crowd: Crowd[Connection] = Crowd()
        self.most_connections = limits.connections
        """At a time, as far as there are descriptors for them."""
        self.stopped: asyncio.Future[signal.Signals | None] = asyncio.get_running_loop().create_future()
        self.forced = asyncio.Event()
        self.collector = Collector()
        self._ending: deque[Callable[[], object]] = deque()
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        """The base URL of this server, with its real port."""
        host = self.config.host
        port = self.servers[0].sockets[0].getsockname()[1]
        return f"{'https' if self.config.is_ssl else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    async def listen(self) -> None:
        """Bind and accept. Raises AddressInUse or CannotListen."""
        config = self.config
        where = f"{config.host or '*'}:{config.port}"
        try:
            config.load()
        except OSError as error:
            raise CannotListen(f"The certificate or its key cannot be read: {_unreadable(error)}.") from None
        self.most_connections = min(self.limits.connections, most_sockets())
        self.tick()
        loop = asyncio.get_running_loop()
        try:
            # asyncio tries to accept so many at a time, and without descriptors so often in vain.
            server = await loop.create_server(
                self.connection, config.host or None, config.port, ssl=config.ssl, backlog=_ACCEPTED
            )
            for listener in server.sockets:
                _listen(listener.fileno(), self.limits.backlog)
        except OSError as error:
            self.untick()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(f"Something listens on {where} already: choose another port.") from None
            raise CannotListen(f"Cannot listen on {where}: {_reason(error)}.") from None
        self.servers = [server]
        self.started = True
        self.exhaustion = Exhaustion(loop)

    def connection(self) -> Connection:
        """The protocol of one new connection."""
        self.collector.grew(self.lasting)
        return Connection(self.config, self.server_state, self, self.limits)

    def soon(self, callback: Callable[[], object]) -> None:
        """Call this in one of the next turns of the loop, after others of its kind."""
        if not self._ending:
            asyncio.get_running_loop().call_soon(self._end_some)
        self._ending.append(callback)

    def _end_some(self) -> None:
        ending = [self._ending.popleft() for _ in range(min(SLICE, len(self._ending)))]
        if self._ending:
            asyncio.get_running_loop().call_soon(self._end_some)
        for callback in ending:
            callback()

    @property
    def lasting(self) -> int:
        """Connections and sessions that are there."""
        return len(self.server_state.connections) + len(self.app.sessions)

    async def run_until_signal(self, on_ready: Callable[[str], None] | None = None) -> signal.Signals | None:
        """Wait for SIGINT or SIGTERM; whoever is told that the server is ready may send one."""
        with self.capture_signals(), contextlib.ExitStack() as until_the_end:
            # Now and not with the first request: who runs a server is told what is wrong with it.
            starting = asyncio.ensure_future(self.app.start())
            try:
                await asyncio.wait((starting, self.stopped), return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                    until_the_end.enter_context(self.collector)
                    if on_ready is not None:
                        on_ready(self.url)
                return await asyncio.shield(self.stopped)
            finally:
                starting.cancel()
                # Signals are still ours until the streams have ended: the second one cuts it short.
                await self.end()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Take the signals from the loop, and give back what was there before."""
        loop = asyncio.get_running_loop()
        signals = [s for s in (signal.SIGINT, signal.SIGTERM) if _can_handle(s)]
        before = {s: signal.getsignal(s) for s in signals}
        for number in signals:
            try:
                loop.add_signal_handler(number, self.stop, number)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda n, _: loop.call_soon_threadsafe(self.stop, signal.Signals(n)))
        try:
            yield
        finally:
            for number, handler in before.items():
                with contextlib.suppress(NotImplementedError):
                    loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def stop(self, number: signal.Signals | None = None) -> None:
        """Begin to end; the second call ends at once."""
        if not self.stopped.done():
            self.stopped.set_result(number)
        else:
            self.forced.set()

    async def end(self) -> None:
        """Refuse what is new, end streams with a final result, let requests finish, and cut what is left."""
        if not self.started:
            return
        self.started = False
        self.exhaustion.stop()
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.drain
        connections = self.server_state.connections
        closing = loop.create_task(self.app.drain(self.limits.drain * 0.8))
        for connection in list(connections):
            connection.shutdown()
        # Connections close one by one, and none of them signals the last.
        while (connections or not closing.done()) and loop.time() < deadline and not self.forced.is_set():
            await asyncio.sleep(0.005)
            if closing.done() and self.config.is_ssl:
                deadline = min(deadline, loop.time() + GOODBYE)
        for connection in list(connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()
        closing.cancel()
        await self._close_app()
        self.untick()

    async def _close_app(self) -> None:
        closing = asyncio.get_running_loop().create_task(self.app.aclose(0))
        await asyncio.wait({closing}, timeout=0 if self.forced.is_set() else None)

    def tick(self) -> None:
        """Look at every connection's deadlines, and keep the Date header right."""
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self.date = b"date: %b\r\n" % formatdate(time(), usegmt=True).encode()
        for connection in list(self.server_state.connections):
            connection.sweep(self.now)  # type: ignore[union-attr]
        self.collector.tick(self.lasting)
        if self.started:
            self.exhaustion.look()
        self._ticking = loop.call_later(self.limits.sweep_time, self.tick)

    def untick(self) -> None:
        """Stop the sweeper."""
        if self._ticking is not None:
            self._ticking.cancel()


def _listen(descriptor: int, backlog: int) -> None:
    """Let so many connections wait to be accepted on a socket that listens already."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as listener:  # not on Windows
        listener.listen(backlog)


def most_sockets() -> int:
    """How many sockets this process may have at most, beside the files that it needs otherwise."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else max(most - min(_SPARE, most // 2), 1)


def _can_handle(number: signal.Signals) -> bool:
    """Only the main thread may; and where somebody else ignores a signal (nohup), it stays ignored."""
    import threading

    return threading.current_thread() is threading.main_thread() and signal.getsignal(number) is not signal.SIG_IGN


def _unreadable(error: OSError) -> str:
    """What OpenSSL says of a file that is none of its own tells nobody anything."""
    from ssl import SSLError

    wrong = "they are not PEM files that belong together"
    return wrong if isinstance(error, SSLError) else error.strerror or str(error)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
