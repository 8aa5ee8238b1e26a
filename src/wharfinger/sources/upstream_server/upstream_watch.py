"""Watches the URIs at another server that clients watch here, across lost connections and restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from wharfinger.client.subscriptions import Change, Watch
from wharfinger.errors import RemoteInvalidParams, RemoteMethodNotFound, RemoteResourceNotFound, WharfingerError
from wharfinger.protocol.backoff import Backoff
from wharfinger.protocol.subscriptions import covers
from wharfinger.source import Changed
from wharfinger.sources.upstream_server.upstream_client import UpstreamClient
from wharfinger.transports.background import BackgroundTasks

__all__ = ["UpstreamWatch"]

log = logging.getLogger("wharfinger.sources.upstream_server")

MAX_WATCHES = 100
"""Maximum number of watches that are open at once. Each covers all URIs that were watched together."""
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0
"""The first and the longest delay before a watch that ended is reopened. Each failure doubles it."""
LIST_INTERVAL_SECONDS = 1.0
"""Minimum time between two notifications of a changed list, even if the server reports more."""


class _Bundle(NamedTuple):
    """URIs that share one upstream watch, and those of them that are watched here now."""

    uris: tuple[str, ...]
    watched: set[str]


class UpstreamWatch:
    """Watches URIs in bundles: URIs whose watch began in the same iteration of the event loop share one upstream watch.

    Args:
        client: Connects to the server.
        name: The server's name in the log.
        find_changed: Called with URIs when their watch has begun. Returns those whose resources may have changed since
            their last `stat`.
        list_changed: Awaited before the watcher of the list is notified.
    """

    def __init__(
        self,
        client: UpstreamClient,
        name: str,
        find_changed: Callable[[Sequence[str]], Awaitable[Sequence[str]]],
        list_changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._name = name
        self._find_changed = find_changed
        self._list_changed = list_changed
        self._watchers: dict[str | None, Changed] = {}
        self._new: list[str] = []
        self._bundles: dict[asyncio.Task[None], _Bundle] = {}
        self._task_of: dict[str, asyncio.Task[None]] = {}
        """The task of the bundle with a URI, which may no longer be watched."""
        self._waiting: dict[str, None] = {}
        """URIs that are watched as soon as one of `MAX_WATCHES` watches has ended."""
        self._list_task: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Watch a URI, or the list if `uri` is None, and call `changed` after each change."""
        self._watchers[uri] = changed
        if uri is None:
            if self._list_task is None:
                self._list_task = self._start_task((None,))
        else:
            self._watch_soon((uri,))

    def _watch_soon(self, uris: Iterable[str]) -> None:
        if not self._new:
            asyncio.get_running_loop().call_soon(self._watch_new)
        self._new += uris

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI, or the list if `uri` is None."""
        self._watchers.pop(uri, None)
        if uri is None and self._list_task is not None:
            self._list_task.cancel()
            self._list_task = None
        if uri is not None:
            self._waiting.pop(uri, None)
        if uri is not None and (task := self._task_of.get(uri)) is not None:
            watched = self._bundles[task].watched
            watched.discard(uri)
            if not watched:
                task.cancel()
                self._forget(task)

    async def close(self) -> None:
        """Stop watching everything."""
        self._watchers.clear()
        self._waiting.clear()
        self._list_task = None
        await self._tasks.cancel()
        self._bundles.clear()
        self._task_of.clear()

    def _watch_new(self) -> None:
        uris = [uri for uri in dict.fromkeys(self._new) if uri in self._watchers]
        self._new.clear()
        # These were unwatched and are watched again. Their bundles stayed open, because other URIs of them are watched.
        if again := [uri for uri in uris if uri in self._task_of]:
            for uri in again:
                self._bundles[self._task_of[uri]].watched.add(uri)
            self._tasks.start(self._notify_changed(again))
        if new := tuple(uri for uri in uris if uri not in self._task_of):
            self._start_bundle(new)

    def _start_bundle(self, uris: tuple[str, ...]) -> None:
        if len(self._bundles) >= MAX_WATCHES:
            log.warning("%s is not watched at %s yet: %d watches are open there", uris[0], self._name, MAX_WATCHES)
            self._waiting.update(dict.fromkeys(uris))
            return
        task = self._start_task(uris)
        self._bundles[task] = _Bundle(uris, set(uris))
        self._task_of.update(dict.fromkeys(uris, task))

    def _forget(self, task: asyncio.Task[None]) -> None:
        bundle = self._bundles.pop(task, None)
        if bundle is None:
            return
        for uri in bundle.uris:
            if self._task_of.get(uri) is task:  # the URI may be in a later bundle
                del self._task_of[uri]
        if self._waiting:
            self._watch_soon(self._waiting)
            self._waiting.clear()

    def _start_task(self, uris: tuple[str | None, ...]) -> asyncio.Task[None]:
        task = self._tasks.start(self._keep_watching(uris))
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._forget(task)
        if self._list_task is task:
            self._list_task = None
        if not task.cancelled() and task.exception() is not None:
            log.error("A watch at %s has failed", self._name, exc_info=task.exception())

    async def _keep_watching(self, uris: tuple[str | None, ...]) -> None:
        """Watch, and reopen the watch when it ends, as long as one of the URIs is watched here."""
        reopened, backoff = False, Backoff(RETRY_SECONDS, MAX_RETRY_SECONDS)
        while any(uri in self._watchers for uri in uris):
            try:
                client = await self._client.client()
                watch = client.watch_lists() if uris[0] is None else client.watch(*[uri for uri in uris if uri])
                async with watch:
                    backoff.succeeded()
                    self._client.succeeded()
                    if reopened:
                        for uri in uris:
                            await self._notify(uri)
                    else:
                        await self._notify_changed(uri for uri in uris if uri is not None)
                    await self._pass_on(watch, uris)
            except (RemoteResourceNotFound, RemoteInvalidParams, RemoteMethodNotFound) as error:
                if len(uris) == 1 or isinstance(error, RemoteMethodNotFound):
                    log.info("%s does not let %s be watched: %s", self._name, uris[0] or "its lists", error)
                    return
                # One missing resource must not end the watch of the others.
                watched = tuple(uri for uri in uris if uri is not None and uri in self._watchers)
                middle = len(watched) // 2
                if (own_task := asyncio.current_task()) is not None:
                    self._forget(own_task)  # so that there is room for one of the halves
                for half in (watched[:middle], watched[middle:]):
                    if half:
                        self._start_bundle(half)
                return
            except WharfingerError as error:
                self._client.failed(error)
                log.debug("A watch at %s ended, and is reopened: %s", self._name, error)
            reopened = True
            await asyncio.sleep(backoff.failed())

    async def _notify_changed(self, uris: Iterable[str]) -> None:
        """Notify the watchers of those URIs whose resources may have changed before the watch began."""
        for uri in await self._find_changed([uri for uri in uris if uri in self._watchers]):
            await self._notify(uri)

    async def _pass_on(self, watch: Watch, uris: tuple[str | None, ...]) -> None:
        async for change in watch:
            for uri in uris:
                if _concerns(change, uri):
                    await self._notify(uri)
            if uris[0] is None:
                await asyncio.sleep(LIST_INTERVAL_SECONDS)

    async def _notify(self, uri: str | None) -> None:
        if uri is None:
            await self._list_changed()
        changed = self._watchers.get(uri)
        if changed is not None:
            changed(uri)


def _concerns(change: Change, uri: str | None) -> bool:
    """Return whether a change is about this resource or one below it, or about the list if `uri` is None."""
    if uri is None:
        return change.kind == "resources"
    return change.kind == "resource" and covers(uri, change.uri)
