"""Watching at another server what is watched here, through everything that happens to it; reads nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from wharfinger.client.subscriptions import Change, Watch
from wharfinger.errors import (
    RemoteError,
    RemoteInvalidParams,
    RemoteMethodNotFound,
    RemoteResourceNotFound,
    WharfingerError,
)
from wharfinger.source import Changed
from wharfinger.sources.upstream_server.upstream_client import UpstreamClient

__all__ = ["UpstreamWatch"]

log = logging.getLogger("wharfinger.sources.upstream_server")

WATCHES = 100
"""Watches at once: each may be a stream of its own. One holds all URIs that came together."""
AGAIN, LONGEST_AGAIN = 1.0, 30.0
"""Seconds until a watch that ended is begun again: twice as long each time."""
EVERY = 1.0
"""Seconds between two changes of the list that are told: a server may say so as often as it likes."""


class UpstreamWatch:
    """What is watched, in bundles: one watch at the other server for all URIs that came in one turn of the loop.

    `missed(uri)` is asked when a watch has begun: whether the URI may have changed since its watcher came.
    """

    def __init__(self, reach: UpstreamClient, name: str, missed: Callable[[str], Awaitable[bool]]) -> None:
        self.list_changed: Callable[[], Awaitable[None]] | None = None
        """Awaited before the watcher of the list is told."""
        self._reach = reach
        self._name = name
        self._missed = missed
        self._wanted: dict[str | None, Changed] = {}
        self._new: list[str] = []
        self._bundles: dict[asyncio.Task[None], tuple[str, ...]] = {}
        self._list: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Watch a URI, or (None) the list."""
        self._wanted[uri] = changed
        if uri is None:
            if self._list is None:
                self._list = self._go((None,))
        else:
            self._new.append(uri)
            if len(self._new) == 1:
                asyncio.get_running_loop().call_soon(self._begin_new)

    def unwatch(self, uri: str | None) -> None:
        """Watch it no more."""
        self._wanted.pop(uri, None)
        if uri is None and self._list is not None:
            self._list.cancel()
            self._list = None
        for task, uris in tuple(self._bundles.items()):
            if uri in uris and not any(one in self._wanted for one in uris):
                task.cancel()
                del self._bundles[task]

    async def close(self) -> None:
        """Watch nothing any more."""
        self._wanted.clear()
        self._list = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._bundles.clear()

    def _begin_new(self) -> None:
        watched = {uri for uris in self._bundles.values() for uri in uris}
        uris = tuple(uri for uri in dict.fromkeys(self._new) if uri in self._wanted and uri not in watched)
        self._new.clear()
        self._begin(uris)

    def _begin(self, uris: tuple[str, ...]) -> None:
        if not uris:
            return
        if len(self._bundles) >= WATCHES:
            log.warning("%s: %d watches are open: %s is not watched there", self._name, WATCHES, uris[0])
            return
        self._bundles[self._go(uris)] = uris

    def _go(self, uris: tuple[str | None, ...]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._keep(uris))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._bundles.pop(task, None)
        if self._list is task:
            self._list = None
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: a watch has failed", self._name, exc_info=task.exception())

    async def _keep(self, uris: tuple[str | None, ...]) -> None:
        """Watch, and begin again when it ends, for as long as somebody wants it."""
        late, delay = False, AGAIN
        while any(uri in self._wanted for uri in uris):
            try:
                client = await self._reach.client()
                watch = client.watch_lists() if uris[0] is None else client.watch(*[uri for uri in uris if uri])
                async with watch:
                    delay = AGAIN
                    self._reach.works()
                    await self._begun(uris, late)
                    await self._tell(watch, uris)
            except (RemoteResourceNotFound, RemoteInvalidParams, RemoteMethodNotFound) as error:
                self._refused(uris, error)
                return
            except WharfingerError as error:
                self._reach.failed(error)
                log.debug("%s: a watch ended, and is begun again: %s", self._name, error)
            late = True
            await asyncio.sleep(delay)
            delay = min(LONGEST_AGAIN, delay * 2)

    def _refused(self, uris: tuple[str | None, ...], error: RemoteError) -> None:
        """One of several that is not there must not keep the others from being watched."""
        log.info("%s does not let %s be watched: %s", self._name, uris[0] or "its lists", error)
        if len(uris) > 1:
            for uri in uris:
                if uri is not None and uri in self._wanted:
                    self._begin((uri,))

    async def _begun(self, uris: tuple[str | None, ...], late: bool) -> None:
        for uri in uris:
            if late or (uri is not None and uri in self._wanted and await self._missed(uri)):
                await self._say(uri)

    async def _tell(self, watch: Watch, uris: tuple[str | None, ...]) -> None:
        async for change in watch:
            for uri in uris:
                if _concerns(change, uri):
                    await self._say(uri)
            if uris[0] is None:
                await asyncio.sleep(EVERY)

    async def _say(self, uri: str | None) -> None:
        if uri is None and self.list_changed is not None:
            await self.list_changed()
        changed = self._wanted.get(uri)
        if changed is not None:
            changed(uri)


def _concerns(change: Change, uri: str | None) -> bool:
    """Whether a change is one of the list of resources, or of a resource, or of what lies below it."""
    if uri is None:
        return change.kind == "resources"
    return change.kind == "resource" and (change.uri == uri or change.uri.startswith(uri))
