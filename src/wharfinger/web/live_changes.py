"""`LiveChanges`: watches the resources that a tab shows, and reports which have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from wharfinger.errors import RemoteError, RemoteResourceNotFound, WharfingerError
from wharfinger.web.server_connections import ServerConnections

__all__ = ["MAX_WATCHED", "LiveChanges"]

log = logging.getLogger("wharfinger.web")

MAX_WATCHED = 200
"""Maximum number of resources of one server that one tab watches: those in open folders, and the one that is shown."""
SETTLE_SECONDS = 0.2
"""Time after the last action of the visitor before the watched resources are replaced."""
RETRY_SECONDS = 5.0


class LiveChanges:
    """The watches of one tab.

    `changed` is called with the server and the URI of a change. `began` is called with the server whenever a watch on
    that server has begun: changes before that, including those between two watches, are not reported.
    """

    def __init__(
        self,
        connections: ServerConnections,
        changed: Callable[[str, str], Awaitable[None]],
        began: Callable[[str], Awaitable[None]],
    ) -> None:
        self._connections = connections
        self._changed = changed
        self._began = began
        self._requested: dict[str, tuple[str, ...]] = {}
        self._tasks: dict[str, tuple[tuple[str, ...], asyncio.Task[None]]] = {}
        """By server, the URIs that are watched, and the task that watches them."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def watch(self, visible: Mapping[str, Sequence[str]], chosen: tuple[str, str] | None) -> None:
        """Watch these URIs of each server from now on; `chosen` is the server and URI of the resource that is shown."""
        requested = {server: list(uris[: MAX_WATCHED - 1]) for server, uris in visible.items()}
        if chosen is not None:
            uris = requested.setdefault(chosen[0], [])
            uris.insert(0, chosen[1])
        self._requested = {server: tuple(dict.fromkeys(uris)) for server, uris in requested.items()}
        if self._timer is not None:
            self._timer.cancel()
        if self._closed:  # the tree may still be read while its watches end
            return
        self._timer = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._replace_tasks)

    def _replace_tasks(self) -> None:
        for server in {*self._tasks, *self._requested}:
            uris = self._requested.get(server, ())
            if server in self._tasks:
                watched, task = self._tasks[server]
                if watched == uris and not task.done():
                    continue
                task.cancel()
                del self._tasks[server]
            if uris:
                self._tasks[server] = uris, asyncio.get_running_loop().create_task(self._follow(server, uris))

    async def _follow(self, server: str, uris: tuple[str, ...]) -> None:
        """Watch until cancelled, without URIs that the server refuses to watch.

        If the server does not name the URI that it refuses, only the first URI is watched. If that fails too, all are
        tried again.
        """
        watched = uris
        while watched:
            upstream = self._connections.server(server)
            if upstream is None:
                return
            try:
                async with upstream.client.watch(*watched) as changes:
                    await self._began(server)
                    async for change in changes:
                        await self._changed(server, change.uri)
            except WharfingerError as error:
                log.debug("%s: %s", server, error)
                if isinstance(error, RemoteResourceNotFound) and error.uri in watched:
                    watched = tuple(uri for uri in watched if uri != error.uri)
                    continue
                watched = watched[:1] if isinstance(error, RemoteError) and len(watched) > 1 else uris
            await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """End all watches, and begin no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
