"""Watches of resources and lists, in both eras, which continue over all connections of a client.

A watch is an `_OpenWatch` with a task. The task waits for a connection, subscribes there, waits until the connection
ends, and starts over, until the watch or the client is closed or the server is gone for too long. In the stateless era
a subscription is one long request (`subscriptions/listen`), whose stream brings its changes. In the handshake era it is
a short request for each URI (`resources/subscribe`), and the changes come as notifications of the connection. There,
all watches of a URI share one request, so the client counts them, and unsubscribes when the last one ends.

Equal pending changes are kept once, and their number is bounded. Until a watch has subscribed again, changes are lost.
After such a gap, everything that it watches is reported with `missed`. A change is a hint to read again, without the
new content.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.client.connect import Connection
from wharfinger.client.connection import ConnectionManager
from wharfinger.client.retry import is_transient, requested_wait
from wharfinger.errors import (
    ConnectionLost,
    InvalidResponse,
    RemoteMethodNotFound,
    RemoteResourceNotFound,
    RequestTimeout,
    WharfingerError,
)
from wharfinger.protocol.backoff import Backoff
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.negotiation import to_remote_error
from wharfinger.protocol.subscriptions import covers
from wharfinger.transports.background import BackgroundTasks

__all__ = ["Change", "Watch", "Watches"]

log = logging.getLogger("wharfinger.client.subscriptions")

MAX_PENDING_CHANGES = 1024
"""The maximum number of different pending changes; beyond it, they become one change of each watched URI."""
MAX_URI_CHARACTERS = 16 * 1024
"""The maximum number of characters of a URI in a change. Longer ones, too, become one change of each watched URI."""
MAX_SILENCES = 2
"""After this many unanswered pings in a row, the watches of a server begin again."""

Kind = Literal["resource", "resources", "tools", "prompts"]


class Change(msgspec.Struct, frozen=True):
    """A resource or list has changed: a hint to read or list it again, without its new content."""

    kind: Kind
    """A single resource, or the list of resources, tools or prompts."""
    uri: str = ""
    """The resource, if `kind` is `resource`; it may lie below the watched one."""
    missed: bool = False
    """Whether notifications may have been lost: this resource or list, or a resource below it, may have changed."""


_LIST_CHANGES: dict[str, Kind] = {
    "notifications/resources/list_changed": "resources",
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
}
_UPDATED = "notifications/resources/updated"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_CANCELLED = "notifications/cancelled"

_decode_updated = msgspec.json.Decoder(t.ResourceUpdatedNotificationParams).decode
_decode_acknowledged = msgspec.json.Decoder(t.SubscriptionsAcknowledgedNotificationParams).decode


class _OpenWatch:
    """One watch: its URIs and lists, its pending changes, and how it ended."""

    def __init__(
        self,
        uris: tuple[str, ...],
        lists: bool,
        begun: asyncio.Future[None],
        changed: Callable[[Kind, str], None] = lambda kind, uri: None,
    ) -> None:
        """`changed` is called at once with each resource or list whose changes may have been missed."""
        self.uris = uris
        self.lists = lists
        """Whether the lists of resources, tools and prompts are watched."""
        self.begun = begun
        """Done as soon as the server has acknowledged the watch for the first time."""
        self.on_interruption: Callable[[WharfingerError], object] | None = None
        """Called with the reason when a gap begins."""
        self.in_gap = False
        """Whether the server reports no changes now, because the connection was lost or the server ended the watch."""
        self.pending: dict[tuple[Kind, str], bool] = {}
        """The pending changes; True if notifications were missed, so that the resource or list may be unchanged."""
        self.end: WharfingerError | Literal[False] | None = False
        """False while it runs; None after it was closed; otherwise the error that ended it."""
        self.runner: asyncio.Task[None] | None = None
        """The task that continues it over all connections."""
        self.listening: asyncio.Task[Message] | None = None
        """The open `subscriptions/listen` (stateless era)."""
        self.link: Connection | None = None
        """The connection that it is subscribed on (handshake era)."""
        self._changed = changed
        self._ready = asyncio.Event()

    def put(self, kind: Kind, uri: str = "", missed: bool = False) -> None:
        """Add a change."""
        full = len(self.pending) >= MAX_PENDING_CHANGES or len(uri) > MAX_URI_CHARACTERS
        if full and (kind, uri) not in self.pending:
            # Keep only the watched URIs: all changes below such a URI become one change of this URI.
            was_missed = any(self.pending.values())
            self.pending = {("resource", watched): was_missed for watched in self.uris}
            if len(uri) > MAX_URI_CHARACTERS and self.uris:
                self._ready.set()
                return
        self.pending[kind, uri] = missed or self.pending.get((kind, uri), False)
        self._ready.set()

    def report_missed(self) -> None:
        """Report everything that is watched as missed."""
        for uri in self.uris:
            self._changed("resource", uri)
            self.put("resource", uri, missed=True)
        for kind in _LIST_CHANGES.values() if self.lists else ():
            self._changed(kind, "")
            self.put(kind, missed=True)

    def acknowledged(self) -> None:
        """Called when the server has acknowledged it: for the first time, or at the end of a gap."""
        self.in_gap = False
        if self.begun.done():
            self.report_missed()
        else:
            self.begun.set_result(None)

    def interrupt(self, error: WharfingerError) -> None:
        """Begin a gap, unless there is one already."""
        if not self.in_gap and self.on_interruption is not None:
            self.on_interruption(error)
        self.in_gap = True

    def finish(self, end: WharfingerError | None) -> None:
        """End it, unless it has ended."""
        if self.end is False:
            self.end = end
            self._ready.set()

    async def take(self) -> Change:
        """Wait for a change. Raises the error that it ended with, or StopAsyncIteration after a close."""
        while not self.pending:
            if self.end is None:
                raise StopAsyncIteration
            if self.end is not False:
                raise self.end.with_traceback(None)
            self._ready.clear()
            await self._ready.wait()
        kind, uri = key = next(iter(self.pending))
        return Change(kind, uri, self.pending.pop(key))


class Watch:
    """Reports changes of resources or of lists: `async for change in watch`.

    The first iteration begins it; `async with` and `await` begin it at once, and return when the server has
    acknowledged it. Every change after that is reported. Several changes of a resource may be reported as one.

    It continues after the connection or session is lost, and after the server has ended the watch. Changes in such a
    gap are lost, so everything that is watched is then reported with `missed`. Set `on_interruption` before the watch
    begins to a function that is called with the reason when a gap begins.
    """

    on_interruption: Callable[[WharfingerError], object] | None = None

    def __init__(self, open: Callable[[], Awaitable[tuple[Watches, _OpenWatch]]]) -> None:
        self._open = open
        self._opened: tuple[Watches, _OpenWatch] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    async def start(self) -> Watch:
        """Begin, and return when the server has acknowledged it. Does nothing the second time.

        Raises:
            ResourceNotFound: the server has no such resource, or does not acknowledge a watch on it.
            MethodNotFound: the server reports no changes of its lists.
            ConnectionLost, ConnectionFailed, RequestTimeout: the server cannot be reached, or does not answer in time.
        """
        async with self._starting:
            if self._opened is None and not self._closed:
                self._opening = asyncio.create_task(self._begin())
                try:
                    await self._opening
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():  # otherwise `close` was called
                        raise
                finally:
                    self._opening = None
        return self

    async def _begin(self) -> None:
        self._opened = await self._open()
        self._opened[1].on_interruption = self.on_interruption

    def __await__(self) -> Generator[Any, None, Watch]:
        return self.start().__await__()

    async def __aenter__(self) -> Watch:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change; the iteration ends when the watch or its client is closed.

        Raises:
            ConnectionLost, ConnectionFailed: the connection was lost, and could not be opened again in time.
            ResourceNotFound: the server does not have the resource any more.
        """
        await self.start()
        if self._opened is None:
            raise StopAsyncIteration
        return await self._opened[1].take()

    async def close(self) -> None:
        """End it, and with it the iteration; if it has not begun, `start` returns."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._opened is not None:
            watches, watch = self._opened
            watch.finish(None)
            await watches.end(watch)

    def __del__(self) -> None:
        # `break` in an `async for` does not close the watch, and the server should stop sending.
        if self._opened is not None and not self._closed:
            self._opened[0].forget(self._opened[1])


class Watches:
    """The watches of one client, over all its connections. Use it on their event loop only."""

    def __init__(
        self,
        connections: ConnectionManager,
        timeout: float,
        changed: Callable[[Kind, str], None] = lambda kind, uri: None,
    ) -> None:
        """`changed` is called with each change before any watch gets it."""
        self._connections = connections
        self._timeout = timeout
        self._changed = changed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open_watches: set[_OpenWatch] = set()
        self._link: Connection | None = None
        """The connection to which `_counts` belongs (handshake era)."""
        self._lost: asyncio.Future[WharfingerError] | None = None
        """Done when the connection `_link` is lost."""
        self._counts: dict[str, int] = {}
        """The number of watches of each URI (handshake era: there is one subscription per connection and URI)."""
        self._requesting = asyncio.Lock()
        """Held by the task that subscribes to a URI or unsubscribes from it: one task at a time."""
        self._background = BackgroundTasks()
        self._heartbeat: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """The number of open watches."""
        return len(self._open_watches)

    async def begin(self, uris: tuple[str, ...], lists: bool) -> tuple[Watches, _OpenWatch]:
        """Begin to watch, and wait for the acknowledgement. Returns what a `Watch` needs to take changes and to end."""
        self._loop = loop = asyncio.get_running_loop()
        watch = _OpenWatch(uris, lists, loop.create_future(), self._changed)
        self._open_watches.add(watch)
        watch.runner = loop.create_task(self._run(watch))
        heartbeat = self._connections.settings.retry.heartbeat
        if heartbeat and self._connections.is_remote and (self._heartbeat is None or self._heartbeat.done()):
            self._heartbeat = self._background.start(self._ping_regularly(heartbeat))
        try:
            await watch.begun
        except BaseException:
            await self.end(watch)
            raise
        return self, watch

    async def end(self, watch: _OpenWatch) -> None:
        """End a watch, and unsubscribe from URIs that no other one watches."""
        if watch not in self._open_watches or watch.runner is None:
            return
        self._open_watches.discard(watch)
        self._stop_heartbeat()
        watch.runner.cancel()
        await asyncio.wait((watch.runner,))
        if watch.link is not None:
            for uri in watch.uris:
                await self._unsubscribe(watch.link, uri)

    def forget(self, watch: _OpenWatch) -> None:
        """End a watch whose `Watch` was garbage collected. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._forget, watch)

    def _forget(self, watch: _OpenWatch) -> None:
        if watch in self._open_watches:
            self._background.start(self.end(watch))

    def close(self) -> list[asyncio.Task[None]]:
        """End every watch. Returns the tasks to wait for."""
        watches, self._open_watches = self._open_watches, set()
        ending: list[asyncio.Task[None]] = [] if self._heartbeat is None else [self._heartbeat]
        self._stop_heartbeat()
        for watch in watches:
            watch.finish(None)
            if watch.runner is not None:
                watch.runner.cancel()
                ending.append(watch.runner)
        return ending

    def connection_lost(self, link: Connection, error: WharfingerError) -> None:
        """Called when a connection is lost."""
        if link is self._link and self._lost is not None and not self._lost.done():
            self._lost.set_result(error)

    # One watch, over all connections.

    async def _run(self, watch: _OpenWatch) -> None:
        """Watch over one connection after another, until an error ends the watch or it is closed."""
        connections, retry = self._connections, self._connections.settings.retry
        backoff = Backoff(retry.initial_delay, retry.max_delay, random.random, reset_after=retry.reset_after)
        end: WharfingerError | None = None  # None if the watch is closed
        try:
            while True:
                link = await connections.get(retry.watch_attempts if watch.begun.done() else None)
                started_at = time.monotonic()
                try:
                    follow = self._listen if link.rules.era == "stateless" else self._subscribe
                    error = await follow(watch, link)
                except WharfingerError as failure:
                    error = failure
                backoff.succeeded(time.monotonic() - started_at)
                if not watch.begun.done() or backoff.failures >= retry.watch_attempts or not _may_recover(error):
                    end = error
                    break
                log.debug("a watch begins again: %s", error)
                watch.interrupt(error)
                delay = max(backoff.failed(), min(requested_wait(error) or 0.0, retry.max_delay))
                if connections.link is link:  # otherwise `get` waits for the next connection
                    await asyncio.sleep(delay)
        except WharfingerError as error:
            end = error
        except Exception:
            log.exception("a watch has failed")
            end = ConnectionLost("A watch has failed; the log has the details.")
        finally:
            self._open_watches.discard(watch)
            watch.finish(end)
            if not watch.begun.done():
                watch.begun.set_exception(ConnectionLost("This client was closed.") if end is None else end)
                watch.begun.exception()

    # The stateless era.

    async def _listen(self, watch: _OpenWatch, link: Connection) -> WharfingerError:
        """Watch over one connection by `subscriptions/listen`. Returns the error that ended it."""
        requested = t.SubscriptionFilter(resource_subscriptions=list(watch.uris) or UNSET)
        if watch.lists:
            requested.resources_list_changed = requested.tools_list_changed = requested.prompts_list_changed = True
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[t.SubscriptionFilter] = loop.create_future()
        agreed = self._connections.agreed
        assert agreed is not None
        params = t.SubscriptionsListenRequestParams(notifications=requested, meta=agreed.meta)
        end_message = f"{link.name} has ended the watch."

        def handle(message: Message) -> None:
            if message.method == _CANCELLED:
                listening.cancel()
            elif message.method != _ACKNOWLEDGED:
                self._put((watch,), message, tagged=True)
            elif not granted.done() and message.params is not UNSET:
                try:
                    granted.set_result(_decode_acknowledged(message.params).notifications)
                except msgspec.MsgspecError:
                    granted.set_exception(InvalidResponse(f"{link.name} sent a malformed acknowledgement."))

        listening = watch.listening = loop.create_task(
            link.request("subscriptions/listen", params, timeout=None, on_notification=handle)
        )
        try:
            await asyncio.wait((granted, listening), timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if granted.done():
                _check_granted(watch, granted.result())
                watch.acknowledged()
            elif not listening.done():
                raise RequestTimeout(f"{link.name} did not acknowledge a watch within {self._timeout:g} s.")
            await asyncio.wait((listening,))
        finally:
            granted.cancel()  # has no effect if the server has acknowledged the watch
            if not listening.done():
                listening.cancel()
                await asyncio.wait((listening,))
        if listening.cancelled():
            return ConnectionLost(end_message)
        answer = listening.result()
        if answer.error is not UNSET:
            error = to_remote_error(answer)
            # After an acknowledgement, the end counts as temporary, for example because the token expired. If it is
            # not, the next attempt fails.
            return error if granted.cancelled() else ConnectionLost(f"{end_message[:-1]}: {error}")
        if granted.cancelled():
            return InvalidResponse("The server ended a watch before it had acknowledged it.")
        return ConnectionLost(end_message)

    # The handshake era.

    async def _subscribe(self, watch: _OpenWatch, link: Connection) -> WharfingerError:
        """Watch over one connection by `resources/subscribe`. Returns the error that ended it."""
        lost = self._lost
        if self._link is not link or lost is None:
            self._link, self._counts = link, {}
            lost = self._lost = asyncio.get_running_loop().create_future()
        if self._connections.link is not link:
            raise ConnectionLost(f"The connection to {link.name} is gone.")
        await link.open_session_stream(self._timeout)
        subscribed: list[str] = []
        try:
            for uri in watch.uris:
                async with self._requesting:
                    if self._link is not link:
                        raise ConnectionLost(f"The connection to {link.name} is gone.")
                    if not self._counts.get(uri):
                        params = t.SubscribeRequestParams(uri=uri)
                        answer = await link.request("resources/subscribe", params, timeout=self._timeout)
                        if answer.error is not UNSET:
                            raise to_remote_error(answer)
                    self._counts[uri] = self._counts.get(uri, 0) + 1
                    subscribed.append(uri)
        except BaseException:
            for uri in subscribed:
                self._background.start(self._unsubscribe(link, uri))
            raise
        watch.link = link
        watch.acknowledged()
        await asyncio.wait((lost,))
        watch.link = None
        return lost.result()

    async def _unsubscribe(self, link: Connection, uri: str) -> None:
        async with self._requesting:
            if link is not self._link:
                return
            remaining = self._counts.pop(uri, 1) - 1
            if remaining:
                self._counts[uri] = remaining
            elif link is self._connections.link:
                try:
                    params = t.UnsubscribeRequestParams(uri=uri)
                    await link.request("resources/unsubscribe", params, timeout=self._timeout)
                except WharfingerError:
                    pass  # changes that still come are ignored

    # Detection of broken connections.

    def _stop_heartbeat(self) -> None:
        if not self._open_watches and self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None

    async def _ping_regularly(self, interval: float) -> None:
        """Ping the server regularly, since a broken connection may go unnoticed while nothing is sent."""
        silences = 0
        while self._open_watches:
            await asyncio.sleep(interval * (0.75 + random.random() / 2))  # noqa: S311
            link = self._connections.link
            if link is None:
                continue
            try:
                await self._connections.ping(link, self._timeout)
                silences = 0
            except WharfingerError as error:
                log.debug("%s does not answer a ping: %s", link.name, error)
                silences = silences + 1 if _may_recover(error) else 0
            if silences < MAX_SILENCES:
                continue
            silences = 0
            if link.rules.era == "handshake":
                self._connections.give_up(link)
                continue
            for watch in self._open_watches:
                if watch.listening is not None:
                    watch.listening.cancel()

    # Notifications.

    def track_list_changes(self) -> Callable[[], bool] | None:
        """Return a function that returns whether all list changes after this call were reported (handshake era).

        Returns None if no watch reports them.
        """
        link = self._connections.link
        for watch in self._open_watches:
            if watch.lists and watch.link is not None and watch.link is link:
                return lambda: watch.link is link and watch in self._open_watches
        return None

    def notification_received(self, message: Message) -> None:
        """Handle a notification of the connection. In the stateless era, `_listen` handles those for watches."""
        agreed = self._connections.agreed
        if agreed is not None and agreed.rules.era == "handshake":
            self._put(self._open_watches, message, tagged=False)

    def notifications_missed(self) -> None:
        """Called when notifications that belong to no request may have been lost (handshake era)."""
        for watch in self._open_watches:
            if watch.link is not None:
                watch.report_missed()

    def _put(self, watches: Iterable[_OpenWatch], message: Message, *, tagged: bool) -> None:
        """Add the change in a notification to those of the watches that it concerns.

        With `tagged`, the server sent the notification for exactly these watches.
        """
        kind = _LIST_CHANGES.get(message.method) if isinstance(message.method, str) else None
        if kind is not None:
            self._changed(kind, "")
            for watch in watches:
                if watch.lists:
                    watch.put(kind)
        elif message.method == _UPDATED and message.params is not UNSET:
            try:
                uri = _decode_updated(message.params).uri
            except msgspec.MsgspecError:
                return
            self._changed("resource", uri)
            for watch in watches:
                if (tagged and watch.uris) or any(covers(watched, uri) for watched in watch.uris):
                    watch.put("resource", uri)


def _may_recover(error: WharfingerError) -> bool:
    return is_transient(error) or isinstance(error, RequestTimeout) or requested_wait(error) is not None


def _check_granted(watch: _OpenWatch, granted: t.SubscriptionFilter) -> None:
    uris = () if granted.resource_subscriptions is UNSET else granted.resource_subscriptions
    for uri in watch.uris:
        if uri not in uris:
            message = f"The server does not allow a watch of {uri}: it does not exist, or may not be read."
            raise RemoteResourceNotFound(RemoteResourceNotFound.code, message, {"uri": uri})
    if watch.lists and not (
        granted.resources_list_changed is True
        or granted.tools_list_changed is True
        or granted.prompts_list_changed is True
    ):
        raise RemoteMethodNotFound(RemoteMethodNotFound.code, "The server does not report changes of its lists.")
