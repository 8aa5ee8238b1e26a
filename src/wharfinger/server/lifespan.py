"""How a server starts and ends, in which order, and for whom it goes on; knows no request and no transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from wharfinger.protocol.request import described
from wharfinger.server.life import Life

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["Running"]

log = logging.getLogger("wharfinger.server")


class Running:
    """The time in which one server runs: from the first start until it was closed for all who hold it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._life: Life | None = None
        self._holders: set[object] = set()

    def __bool__(self) -> bool:
        return self._life is not None

    async def begin(self, holder: object) -> None:
        """Start, or wait for who started first; raises what starting raised."""
        self._holders.add(holder)
        if self._life is None:
            self._life = Life(self._live())
        life = self._life
        try:
            await life.begun()
        except BaseException:
            if life.failed and self._life is life:
                self._life = None
                self._holders.clear()
            raise

    async def end(self, holder: object) -> None:
        """End, unless others hold it; raises what ending raised."""
        self._holders.discard(holder)
        if self._holders:
            return
        life, self._life = self._life, None
        if life is None:
            return
        server = self._server
        server.drain()
        if server.own_tasks is not None:
            await server.own_tasks.end()
        server.watching.stop()
        try:
            await life.end()
        finally:
            server.pool.close()

    @asynccontextmanager
    async def _live(self) -> AsyncGenerator[None]:
        server = self._server
        async with AsyncExitStack() as stack:
            if server.lifespan is not None:
                server.state = await stack.enter_async_context(_explaining(server))
            stack.push_async_callback(server.feeds.end)
            for source in server.resources.sources:
                await source.start()
            if server.resources.index is not None:
                await server.resources.index.start()
            stack.push_async_callback(self._close_index)
            stack.push_async_callback(self._close_parts)
            for mount in server.mounts:
                await mount.start()
            if server.own_tasks is not None:
                await server.own_tasks.begin_serving()
            server.watching.start(asyncio.get_running_loop())
            yield

    async def _close_index(self) -> None:
        """Close the index, which may have come when the server ran already."""
        if self._server.resources.index is not None:
            await self._server.resources.index.close()

    async def _close_parts(self) -> None:
        """Close the servers that are parts of this one, the last one first, whatever one of them raises."""
        async with AsyncExitStack() as stack:
            for mount in self._server.mounts:
                stack.push_async_callback(mount.close)


@asynccontextmanager
async def _explaining(server: Server) -> AsyncGenerator[Any]:
    """Enter the server's lifespan; the log has the file and line at which it fails."""
    assert server.lifespan is not None
    try:
        async with _manager(server.lifespan(server)) as state:
            yield state
    except Exception as error:
        log.error("%s", described(f"The lifespan of the server {server.info.name!r}", error))
        raise


def _manager(made: object) -> Any:
    """What a lifespan made, if it can be entered.

    Raises:
        TypeError: it is none of what `@asynccontextmanager` makes.
    """
    if not hasattr(type(made), "__aenter__"):
        raise TypeError("lifespan= takes an async context manager: put @contextlib.asynccontextmanager before it.")
    return made
