"""Serves an `HttpApp` on a port: binds, sweeps the connections once a second, and ends soon after a signal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from wharfinger.errors import WharfingerError
from wharfinger.net import is_loopback
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.interfaces import Authenticator, Service, Verify
from wharfinger.transports.accepting import AddressInUse, CannotListen, Exhaustion
from wharfinger.transports.http_server.app import Contents, HttpApp, Page, Site
from wharfinger.transports.http_server.certificate import Certificate
from wharfinger.transports.http_server.garbage_collection import Collector
from wharfinger.transports.http_server.http_connection import Connections, HttpConnection

__all__ = ["HttpServer", "RunnableApp", "UnsafeBind", "check_local", "find_loop_factory", "run_in_loop", "serve_http"]

log = logging.getLogger("wharfinger.transports.http")

T = TypeVar("T")

_ACCEPTED_PER_TURN = 100
"""The maximum number of connections that are accepted in one turn of the loop."""
_SPARE_DESCRIPTORS = 128
"""File descriptors that are kept free for files, databases, watches and the search index."""
GOODBYE_SECONDS = 0.5
"""Seconds at the end for TLS clients to close their side too; many never do."""


class UnsafeBind(WharfingerError):
    """Other machines can reach the address, and there is neither `auth` nor `verify` nor `insecure`."""

    exit_code = 2


async def serve_http(
    service: Service,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    verify: Verify | None = None,
    auth: Authenticator | None = None,
    insecure: bool = False,
    allow_hosts: Iterable[str] = (),
    allow_origins: Iterable[str] = (),
    public_url: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    limits: HttpLimits | None = None,
    pages: Mapping[str, Page] | None = None,
    contents: Contents | None = None,
    site: Site | None = None,
    sse: bool = True,
    on_ready: Callable[[str], None] | None = None,
) -> signal.Signals | None:
    """Serve until SIGINT or SIGTERM, and return that signal; a second one ends everything at once.

    `on_ready` is called with the base URL, which has the real port if `port` is 0, when the service runs and accepts
    connections. Errors of starting the service are raised. Cancelling the task ends the server gracefully too.
    `sse=False` turns off HTTP+SSE, which clients of 2024-11-05 use.

    Raises:
        UnsafeBind: other machines can reach `host`, and there is neither `auth` nor `verify` nor `insecure`.
        AddressInUse, CannotListen: the address cannot be bound, or the certificate cannot be used.
        ValueError: a host, an origin or a URL is malformed, or there is a key without its certificate.
    """
    if verify is None and auth is None and not insecure:
        check_local(host)
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
        auth=auth,
        limits=limits,
        pages=pages,
        contents=contents,
        site=site,
        sse=sse,
        separates_trailers=True,
    )
    server = HttpServer(app, host, port, limits, tls_cert, tls_key)
    await server.listen()
    try:
        return await server.run_until_signal(on_ready)
    finally:
        await server.end()


def check_local(host: str) -> None:
    """Check that only this machine can reach an address.

    Raises:
        UnsafeBind: others can.
    """
    if not is_loopback(host):
        raise UnsafeBind(
            f"{host or 'every address'} is reached from other machines: "
            "set a token with --token-env NAME (auth in Python), or allow access without one with --insecure "
            "(insecure=True)."
        )


def run_in_loop(serving: Coroutine[Any, Any, T]) -> T:
    """Run `serve_http(…)`, or another coroutine, in a new event loop: uvloop's if that is installed."""
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        return runner.run(serving)


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loop if that is installed, or None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class RunnableApp(Protocol):
    """An ASGI application that the server starts and ends: `HttpApp`, or another."""

    async def __call__(self, scope: Any, receive: Any, send: Any, /) -> None: ...

    @property
    def session_count(self) -> int:
        """The number of sessions that are open."""
        ...

    @property
    def service(self) -> Any:
        """The service. If it is a `Server`, its policy is read again at SIGHUP."""
        ...

    async def start(self) -> None:
        """Start, or raise the error that prevents it."""
        ...

    async def drain(self, seconds: float) -> None:
        """Refuse new work, and let the rest finish within this time."""
        ...

    async def aclose(self, seconds: float | None = None) -> None:
        """End all work, within this time if it is given, and close the service."""
        ...


class HttpServer:
    """Listens, sweeps its connections once a second, and at the end closes them within `limits.drain`."""

    def __init__(self, app: RunnableApp, host: str, port: int, limits: HttpLimits, tls_cert: str, tls_key: str) -> None:
        self.app = app
        self.host = host
        self.port = port
        self.limits = limits
        self.tls = (tls_cert, tls_key) if tls_cert else None
        self.certificate: Certificate | None = None
        self.loop = asyncio.get_running_loop()
        self.connections = Connections(app, limits, min(limits.connections, max_sockets()))
        self.stopped: asyncio.Future[signal.Signals | None] = self.loop.create_future()
        self.forced = asyncio.Event()
        self.collector = Collector()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The base URL of this server, with its real port. Without a host, it has a loopback address."""
        host, port = self.host, self.port
        if self._server is not None:
            listener = self._server.sockets[0]
            port = listener.getsockname()[1]
            if not host:  # every address: with port 0, each family has a port of its own
                host = "::1" if listener.family == socket.AF_INET6 else "127.0.0.1"
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    async def listen(self) -> None:
        """Bind and accept. Raises AddressInUse or CannotListen."""
        address = f"{self.host or '*'}:{self.port}"
        if self.tls is not None:
            self.certificate = Certificate(*self.tls)
        context = None if self.certificate is None else self.certificate.context
        try:
            # In each turn of the loop, asyncio calls accept() up to `backlog` times.
            server = await self.loop.create_server(
                self._accept,
                self.host or None,
                self.port,
                ssl=context,
                # Until its handshake is complete, a connection is not in `connections`, so no sweep closes it.
                ssl_handshake_timeout=None if context is None else self.limits.header_time or None,
                backlog=_ACCEPTED_PER_TURN,
            )
            for listener in server.sockets:
                _set_backlog(listener.fileno(), self.limits.backlog)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(f"Another program listens on {address} already: choose another port.") from None
            raise CannotListen(f"Cannot listen on {address}: {(error.strerror or str(error)).lower()}.") from None
        self._server = server
        self.exhaustion = Exhaustion(self.loop)
        self._tick()

    def _accept(self) -> HttpConnection:
        self.collector.grew(self.open_count)
        return HttpConnection(self.connections)

    @property
    def open_count(self) -> int:
        """The number of connections and sessions."""
        return len(self.connections.open) + self.app.session_count

    async def run_until_signal(self, on_ready: Callable[[str], None] | None = None) -> signal.Signals | None:
        """Start the application, call `on_ready`, and serve until SIGINT or SIGTERM. Raises errors of the start."""
        with self._signals_handled(), contextlib.ExitStack() as stack:
            starting = asyncio.ensure_future(self.app.start())
            try:
                await asyncio.wait((starting, self.stopped), return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                    stack.enter_context(self.collector)
                    if on_ready is not None:
                        on_ready(self.url)
                return await asyncio.shield(self.stopped)
            finally:
                starting.cancel()
                # Still within `_signals_handled`, so that a second signal ends the wait.
                await self.end()

    @contextlib.contextmanager
    def _signals_handled(self) -> Generator[None, None, None]:
        """Let signals call `stop` or `reload` during a block. A signal that is ignored (nohup) stays ignored."""
        loop = self.loop
        handlers: dict[signal.Signals, Callable[[signal.Signals], None]] = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {signal.SIGINT: self.stop, signal.SIGTERM: self.stop}
            if self._may_reload():
                handlers[signal.SIGHUP] = self.reload
        before = {number: signal.getsignal(number) for number in handlers}
        before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
        for number in before:
            try:
                loop.add_signal_handler(number, handlers[number], number)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda n, _: loop.call_soon_threadsafe(self.stop, signal.Signals(n)))
        try:
            yield
        finally:
            for number, handler in before.items():
                with contextlib.suppress(NotImplementedError):
                    loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _may_reload(self) -> bool:
        """Return whether SIGHUP reads files again. At a terminal it means that the terminal was closed."""
        at_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]
        has_files = self.certificate is not None or getattr(self.app.service, "has_policy_file", False)
        return hasattr(signal, "SIGHUP") and has_files and not at_terminal

    def reload(self, number: signal.Signals | None = None) -> None:
        """Read the certificate and the policy again now. (Without a signal, changes are found within a second.)"""
        if self.certificate is not None:
            self.certificate.reload()
        if getattr(self.app.service, "has_policy_file", False):
            self._reloading = self.loop.create_task(self.app.service.reload())

    def stop(self, number: signal.Signals | None = None) -> None:
        """Begin to end the server; a second call ends it at once."""
        if not self.stopped.done():
            self.stopped.set_result(number)
        else:
            self.forced.set()

    async def end(self) -> None:
        """Refuse new requests, end streams with a final result, let requests finish, and close all connections."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self.exhaustion.stop()
        loop, connections = self.loop, self.connections
        deadline = loop.time() + self.limits.drain
        # Requests that still run are cancelled early enough for their answers to be sent.
        closing = loop.create_task(self.app.drain(self.limits.drain * 0.8))
        for connection in list(connections.open):
            connection.shut_down()
        # No event reports that the last connection has ended, so this polls.
        while (connections.open or not closing.done()) and loop.time() < deadline and not self.forced.is_set():
            await asyncio.sleep(0.005)
            if closing.done() and self.tls:
                deadline = min(deadline, loop.time() + GOODBYE_SECONDS)
        for connection in list(connections.open):
            connection.transport.abort()
        for exchange in list(connections.running):
            if exchange.task is not None:
                exchange.task.cancel()
        closing.cancel()
        closing, forcing = loop.create_task(self.app.aclose(0)), loop.create_task(self.forced.wait())
        await asyncio.wait((closing, forcing), return_when=asyncio.FIRST_COMPLETED)
        forcing.cancel()
        self._ticking.cancel()

    def _tick(self) -> None:
        """Sweep the connections, and do the other work that is due once a second."""
        # First, so that an error below does not end the ticks.
        self._ticking = self.loop.call_later(self.limits.sweep_time, self._tick)
        self.connections.sweep()
        if self.certificate is not None and self.certificate.has_changed():
            self.certificate.reload()
        self.collector.tick(self.open_count)
        if self._server is not None:
            self.exhaustion.check()


def _set_backlog(descriptor: int, backlog: int) -> None:
    """Let `backlog` connections wait to be accepted on a socket that listens already."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as listener:  # not on Windows
        listener.listen(backlog)


def max_sockets() -> int:
    """Return how many sockets this process may open and still have descriptors for its files."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize
    file_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        sys.maxsize
        if file_limit == resource.RLIM_INFINITY
        else max(file_limit - min(_SPARE_DESCRIPTORS, file_limit // 2), 1)
    )
