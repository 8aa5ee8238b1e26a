"""Serves the page of `wharfinger browse` on this machine only, and checks Host and Origin like an MCP server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from wharfinger.errors import ProtocolError
from wharfinger.protocol.http.host_origin import HostOriginPolicy
from wharfinger.protocol.http.rules import HttpLimits, read_headers
from wharfinger.transports.http_server.app import refuse
from wharfinger.transports.http_server.runner import HttpServer, check_local, find_loop_factory
from wharfinger.web.browse_site import BrowseSite

__all__ = ["PageApp", "run_page"]


class PageApp:
    """The application of the page, as `HttpServer` runs it. It has no sessions of MCP, and no service.

    It refuses requests by the headers Host and Origin, and passes the others on to the site.
    """

    session_count = 0
    service: Any = None

    def __init__(self, site: BrowseSite, host: str) -> None:
        self._site = site
        self._hosts = HostOriginPolicy(host)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI call of the type http."""
        try:
            self._hosts.check(read_headers(scope["headers"]))
        except ProtocolError as error:
            await refuse(send, error)
            return
        await self._site(scope, receive, send)

    async def start(self) -> None:
        """Start the site."""
        await self._site.start()

    async def drain(self, seconds: float) -> None:
        """Close the site with its tabs."""
        await self._site.close()

    async def aclose(self, seconds: float | None = None) -> None:
        """Close the site, if `drain` has not, or end its connections if `drain` was cancelled."""
        await self._site.close()


def run_page(site: BrowseSite, host: str, port: int, on_ready: Callable[[str], None]) -> Any:
    """Serve the page until SIGINT or SIGTERM, and return that signal. `on_ready` gets the URL, with its token.

    Raises:
        UnsafeBind: other machines can reach the address.
        AddressInUse, CannotListen: the address cannot be bound.
    """
    check_local(host)

    async def serve() -> Any:
        limits = HttpLimits()
        server = HttpServer(PageApp(site, host), host, port, limits, "", "")
        await server.listen()
        try:
            return await server.run_until_signal(lambda url: on_ready(url + site.entry))
        finally:
            await server.end()

    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        return runner.run(serve())
