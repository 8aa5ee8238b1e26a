"""`BrowseSite`: the page as one ASGI application, whose requests all pass `PageGate`.

NiceGUI keeps its state in the process, so a process has one site. The site runs in our own HTTP server, with socket.io
over plain HTTP requests (long polling), so that the same checks apply to every request, and no second server is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from wharfinger.client import ClientOptions
from wharfinger.errors import MissingExtra, Overloaded, PermissionDenied
from wharfinger.protocol.inspection import Inspection
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.transports.http_server.app import Authenticate
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.page_gate import PageGate
from wharfinger.web.visitors import Visitor, Visitors

try:
    import markdown_it  # noqa: F401  # pyright: ignore[reportUnusedImport]  # used by markdown_html
    import nh3  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from fastapi import FastAPI
    from nicegui import Client, app, core, ui
    from starlette.requests import Request
except ImportError:
    raise MissingExtra("browse", "The page") from None

from wharfinger.web.server_connections import ServerConnections
from wharfinger.web.workbench import Workbench

__all__ = ["BrowseSite"]

log = logging.getLogger("wharfinger.web")

MAX_TABS = 100
"""Maximum number of open tabs of all visitors; each has a tree and watches of its own."""
VIEW_SECONDS = 10.0
"""Longest wait for a server when it is shown as another principal sees it."""
CONNECT_SECONDS = 60.0
"""Longest wait for the connection of a tab, after the browser has got its HTML."""
CLOSE_SECONDS = 2.0
"""Longest wait for the tabs to end when the site closes."""
RECONNECT_SECONDS = 10.0
"""Time for which a tab that lost its connection keeps its state."""

ConfigsFor = Callable[[Principal], Sequence[ServerConfig]]
"""Returns the servers for a visitor who is this principal."""


class BrowseSite:
    """The page that shows some servers.

    `configs_for` returns the servers for each visitor. If `shared`, all visitors use the same connections, which are
    opened when the site starts; otherwise each tab has connections of its own.
    """

    def __init__(
        self,
        configs_for: ConfigsFor,
        *,
        name: str,
        shared: bool = True,
        inspection: Inspection | None = None,
        directory: Path | None = None,
        asks_for_token: bool = False,
        options: ClientOptions | None = None,
    ) -> None:
        """`asks_for_token` says whether visitors sign in with a token of the server; `directory` is for `Visitors`.

        `options` are for the clients that connect to the servers.
        """
        self.name = name
        self.inspection = inspection
        self.shelf = ContentShelf()
        self.visitors = Visitors(directory)
        self._configs_for = configs_for
        self._options = options
        self._shared_connections: ServerConnections | None = None
        self._is_shared = shared
        self._asks_for_token = asks_for_token
        self._ends: set[asyncio.Event] = set()
        """One event for each open tab, which is set when the tab has ended."""
        self._started = False
        self._stack = AsyncExitStack()
        application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        app.config.socket_io_js_transports = ["polling"]
        ui.page("/", title=name, dark=None, reconnect_timeout=RECONNECT_SECONDS)(self._page)
        ui.run_with(
            application,
            title=name,
            dark=None,
            language="en-US",
            tailwind=False,
            binding_refresh_interval=None,
            gzip_middleware_factory=None,
            reconnect_timeout=RECONNECT_SECONDS,
            message_history_length=200,
            show_welcome_message=False,
        )
        self._application = application
        self._gate = PageGate(application, self.visitors, self.shelf, name=name)
        self._style = (Path(__file__).parent / "page.css").read_text("utf-8")

    @property
    def entry(self) -> str:
        """The path that opens the page the first time, with its token; `/` if the token is no longer needed."""
        token = "" if self._asks_for_token else self.visitors.token
        return f"/?token={token}" if token else "/"

    async def __call__(self, scope: Any, receive: Any, send: Any, authenticate: Authenticate | None = None) -> None:
        """Serve one request; see `transports.http_server.app.Site`."""
        await self._gate(scope, receive, send, authenticate)

    async def start(self) -> None:
        """Start NiceGUI, and connect to shared servers."""
        self._started = True
        await self._stack.enter_async_context(self._application.router.lifespan_context(self._application))
        if self._is_shared:
            self._shared_connections = await self._stack.enter_async_context(
                ServerConnections(self._configs_for(ANONYMOUS), options=self._options)
            )

    async def close(self) -> None:
        """Close every tab, and end the connections. After a call that was cancelled, end the connections at once."""
        if self._started:
            self._started = False
            for client in list(Client.instances.values()):
                client.delete()
            with suppress(KeyError):  # a connection that ends by itself meanwhile
                if core.sio.eio.sockets:  # without any, engineio raises ValueError
                    await core.sio.eio.disconnect()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await asyncio.gather(*(ended.wait() for ended in self._ends))
        await self._stack.aclose()

    async def view_as(self, viewer: Principal, principal: Principal) -> ServerConnections:
        """Return the server as another principal sees it. Call `__aexit__` of the result to end the connections.

        Raises:
            PermissionDenied: the viewer may not inspect the server, or the servers run in other processes.
        """
        if self.inspection is None:
            raise PermissionDenied("These servers run in other processes.")
        target = self.inspection.view_as(viewer, principal)
        connections = ServerConnections([ServerConfig(name=self.name, target=target)], read_only=True)
        await connections.__aenter__()
        await connections.upstreams.ready(VIEW_SECONDS)
        return connections

    async def _page(self, client: Client, request: Request) -> None:
        """Build the page of one tab, and keep it until the tab is closed."""
        visitor: Visitor = request.scope["wharfinger.visitor"]
        if len(self._ends) >= MAX_TABS:
            raise Overloaded(f"{MAX_TABS} tabs are open: close one, and reload.")
        ui.add_css(self._style)
        deleted, ended = asyncio.Event(), asyncio.Event()
        client.on_delete(deleted.set)
        self._ends.add(ended)
        try:
            async with AsyncExitStack() as stack:
                connections = self._shared_connections
                if connections is None:
                    connections = await stack.enter_async_context(
                        ServerConnections(self._configs_for(visitor.principal), options=self._options)
                    )
                bench = Workbench(client, self, visitor, connections)
                stack.push_async_callback(bench.close)
                bench.build()
                await client.connected(timeout=CONNECT_SECONDS)
                await bench.start()
                await deleted.wait()
        finally:
            self._ends.discard(ended)
            ended.set()
