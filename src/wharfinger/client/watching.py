"""Watches: which changes were asked for, in either era, and what is known to have changed since; reads no resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, Literal, Protocol

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import (
    ConnectionLost,
    InvalidResponse,
    RemoteMethodNotFound,
    RemoteResourceNotFound,
    RequestTimeout,
    WharfingerError,
)
from wharfinger.protocol.era import told
from wharfinger.protocol.interfaces import Link
from wharfinger.protocol.jsonrpc import Message

__all__ = ["Change", "Connection", "Watch", "Watches"]

MOST_PENDING = 1024
"""Different changes that wait to be taken; beyond it they become one change of the whole."""

Kind = Literal["resource", "resources", "tools", "prompts"]


class Change(msgspec.Struct, frozen=True):
    """Something has changed: a hint to read or list it again, never what it is now."""

    kind: Kind
    """A single resource, or the list of resources, tools or prompts."""
    uri: str = ""
    """Which resource, for `resource`; it may lie below the one that is watched."""


_LIST_CHANGES: dict[str, Change] = {
    f"notifications/{kind}/list_changed": Change(kind) for kind in ("resources", "tools", "prompts")
}
_UPDATED = "notifications/resources/updated"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_CANCELLED = "notifications/cancelled"

_decode_updated = msgspec.json.Decoder(t.ResourceUpdatedNotificationParams).decode
_decode_acknowledged = msgspec.json.Decoder(t.SubscriptionsAcknowledgedNotificationParams).decode


class Connection(Link, Protocol):
    """What a client needs of its transport beyond a `Link`."""

    name: str
    mirrors: Any
    rules: Any
    unasked: Callable[[Message], None] | None
    lost: Callable[[WharfingerError], None] | None

    async def listen_in(self, timeout: float | None) -> None:
        """Be ready for notifications that belong to no request."""
        ...


class _Feed:
    """Changes that wait to be taken, each at most once, and how it ends."""

    __slots__ = ("_ready", "end", "listening", "lists", "pending", "uris")

    def __init__(self, uris: tuple[str, ...], lists: bool) -> None:
        self.uris = uris
        self.lists = lists
        self.pending: dict[Change, None] = {}
        self.end: WharfingerError | Literal[False] | None = False
        """False while it runs; None after a close; else why it ended."""
        self.listening: asyncio.Task[Message] | None = None
        """The open `subscriptions/listen` (stateless era)."""
        self._ready = asyncio.Event()

    def put(self, change: Change) -> None:
        if len(self.pending) >= MOST_PENDING and change not in self.pending:
            self.pending = dict.fromkeys(Change("resource", uri) for uri in self.uris)
        self.pending[change] = None
        self._ready.set()

    def finish(self, end: WharfingerError | None) -> None:
        if self.end is False:
            self.end = end
            self._ready.set()

    async def take(self) -> Change:
        while not self.pending:
            if self.end is None:
                raise StopAsyncIteration
            if self.end is not False:
                raise self.end
            self._ready.clear()
            await self._ready.wait()
        change = next(iter(self.pending))
        del self.pending[change]
        return change


class Watch:
    """Changes of resources, or of lists, as they are told: `async for change in watch`.

    It begins with the first wait; `async with` and `await` begin it at once, and return only after the server has
    acknowledged it: what changes from then on is seen. What changes twice before it is taken is told once.
    """

    def __init__(self, open: Callable[[], Awaitable[tuple[Watches, _Feed]]]) -> None:
        self._open = open
        self._opened: tuple[Watches, _Feed] | None = None
        self._closed = False

    async def start(self) -> Watch:
        """Begin; returns when the server has acknowledged it. Does nothing the second time.

        Raises:
            ResourceNotFound: the server has no such resource, or does not acknowledge a watch on it.
        """
        if self._opened is None and not self._closed:
            self._opened = await self._open()
        return self

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
            ConnectionLost: the connection, or the server's side of the watch, has ended.
        """
        await self.start()
        if self._opened is None:
            raise StopAsyncIteration
        return await self._opened[1].take()

    async def close(self) -> None:
        """End it; whoever waits for a change gets the end of the iteration."""
        self._closed = True
        if self._opened is not None:
            watches, feed = self._opened
            feed.finish(None)
            await watches.drop(feed)

    def __del__(self) -> None:
        # A loop left by `break` does not say so: the server should not go on for nobody.
        if self._opened is not None and not self._closed:
            self._opened[0].forget(self._opened[1])


class Watches:
    """Every watch of one connection; the loop's, as the connection is."""

    def __init__(self, link: Connection, meta: Any, timeout: float) -> None:
        self._link = link
        self._meta = meta
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._feeds: set[_Feed] = set()
        self._subscribed: dict[str, int] = {}
        """How many feeds want each URI (handshake era: the server knows one subscription per connection and URI)."""
        self._order = asyncio.Lock()
        self._ended: WharfingerError | Literal[False] | None = False
        link.unasked = self._unasked
        link.lost = self._lost

    async def open(self, uris: tuple[str, ...], lists: bool) -> tuple[Watches, _Feed]:
        """Begin to watch, and wait for the acknowledgement."""
        feed = _Feed(uris, lists)
        if self._ended is not False:
            raise ConnectionLost(f"The connection to {self._link.name} is closed.")
        self._feeds.add(feed)
        try:
            if self._link.rules.era == "stateless":
                await self._listen(feed)
            else:
                await self._subscribe(feed)
        except BaseException:
            self._feeds.discard(feed)
            if feed.listening is not None:
                feed.listening.cancel()
            raise
        return self, feed

    async def drop(self, feed: _Feed) -> None:
        """End what only this feed wanted."""
        if feed not in self._feeds:
            return
        self._feeds.discard(feed)
        if feed.listening is not None:
            feed.listening.cancel()
            await asyncio.wait((feed.listening,))
            return
        for uri in feed.uris:
            await self._unsubscribe(uri)

    def forget(self, feed: _Feed) -> None:
        """`drop` for a watch that nobody holds any more; callable from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._forget, feed)

    def _forget(self, feed: _Feed) -> None:
        if feed in self._feeds:
            task = self._loop.create_task(self.drop(feed))
            task.add_done_callback(_seen)

    def close(self) -> None:
        """The client closes: every watch comes to its end."""
        self._finish(None)

    def _lost(self, error: WharfingerError) -> None:
        self._finish(error)

    def _finish(self, end: WharfingerError | None) -> None:
        if self._ended is not False:
            return
        self._ended = end
        for feed in self._feeds:
            feed.finish(end)
            if feed.listening is not None:
                feed.listening.cancel()
        self._feeds.clear()

    # The stateless era.

    async def _listen(self, feed: _Feed) -> None:
        wanted = t.SubscriptionFilter(resource_subscriptions=list(feed.uris) or UNSET)
        if feed.lists:
            wanted.resources_list_changed = wanted.tools_list_changed = wanted.prompts_list_changed = True
        granted: asyncio.Future[t.SubscriptionFilter] = self._loop.create_future()
        params = t.SubscriptionsListenRequestParams(notifications=wanted, meta=self._meta)

        def take(message: Message) -> None:
            self._told(feed, granted, message)

        feed.listening = self._loop.create_task(
            self._link.request("subscriptions/listen", params, timeout=None, notified=take)
        )
        feed.listening.add_done_callback(lambda task: self._stopped(feed, task))
        await asyncio.wait((granted, feed.listening), timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        if not granted.done():
            if feed.listening.done():
                _raise_refusal(feed.listening.result())
            raise RequestTimeout(f"{self._link.name} did not acknowledge a watch within {self._timeout:g} s.")
        _check_granted(feed, granted.result())

    def _told(self, feed: _Feed, granted: asyncio.Future[t.SubscriptionFilter], message: Message) -> None:
        if message.method == _ACKNOWLEDGED:
            if not granted.done() and message.params is not UNSET:
                try:
                    granted.set_result(_decode_acknowledged(message.params).notifications)
                except msgspec.MsgspecError:
                    reason = f"{self._link.name} sent an acknowledgement that cannot be read."
                    granted.set_exception(InvalidResponse(reason))
        elif message.method == _CANCELLED:
            feed.finish(ConnectionLost(f"{self._link.name} has ended the watch."))
        else:
            self._put((feed,), message, tagged=True)

    def _stopped(self, feed: _Feed, task: asyncio.Task[Message]) -> None:
        """The listen request is over: the server has ended it, or the connection is gone."""
        if task.cancelled():
            feed.finish(None)
            return
        error = task.exception()
        if error is None and task.result().error is not UNSET:
            error = told(task.result())
        end = error if isinstance(error, WharfingerError) else ConnectionLost(f"{self._link.name} has ended the watch.")
        feed.finish(end)

    # The handshake era.

    async def _subscribe(self, feed: _Feed) -> None:
        await self._link.listen_in(self._timeout)
        done: list[str] = []
        try:
            for uri in feed.uris:
                async with self._order:
                    if not self._subscribed.get(uri):
                        params = t.SubscribeRequestParams(uri=uri)
                        answer = await self._link.request("resources/subscribe", params, timeout=self._timeout)
                        if answer.error is not UNSET:
                            raise told(answer)
                    self._subscribed[uri] = self._subscribed.get(uri, 0) + 1
                    done.append(uri)
        except BaseException:
            for uri in done:
                self._loop.create_task(self._unsubscribe(uri)).add_done_callback(_seen)
            raise

    async def _unsubscribe(self, uri: str) -> None:
        async with self._order:
            left = self._subscribed.pop(uri, 1) - 1
            if left:
                self._subscribed[uri] = left
            elif self._ended is False:
                try:
                    params = t.UnsubscribeRequestParams(uri=uri)
                    await self._link.request("resources/unsubscribe", params, timeout=self._timeout)
                except WharfingerError:
                    pass  # nobody waits for its changes: that they may go on is no fault of the caller's

    # What is told.

    def _unasked(self, message: Message) -> None:
        if self._link.rules is not None and self._link.rules.era == "handshake":
            self._put(self._feeds, message, tagged=False)

    def _put(self, feeds: Iterable[_Feed], message: Message, *, tagged: bool) -> None:
        change = _LIST_CHANGES.get(message.method) if isinstance(message.method, str) else None
        if change is not None:
            for feed in feeds:
                if feed.lists:
                    feed.put(change)
        elif message.method == _UPDATED and message.params is not UNSET:
            try:
                uri = _decode_updated(message.params).uri
            except msgspec.MsgspecError:
                return
            for feed in feeds:
                if (tagged and feed.uris) or any(_covers(watched, uri) for watched in feed.uris):
                    feed.put(Change("resource", uri))


def _covers(watched: str, uri: str) -> bool:
    """Whether a change of `uri` concerns who watches `watched`: it is that, or a sub-resource of it."""
    if not uri.startswith(watched):
        return False
    return len(uri) == len(watched) or watched.endswith("/") or uri[len(watched)] in "/?#"


def _check_granted(feed: _Feed, granted: t.SubscriptionFilter) -> None:
    uris = () if granted.resource_subscriptions is UNSET else granted.resource_subscriptions
    for uri in feed.uris:
        if uri not in uris:
            message = f"The server does not let {uri} be watched: it is not there, or may not be read."
            raise RemoteResourceNotFound(RemoteResourceNotFound.code, message, {"uri": uri})
    if feed.lists and not (
        granted.resources_list_changed is True
        or granted.tools_list_changed is True
        or granted.prompts_list_changed is True
    ):
        raise RemoteMethodNotFound(RemoteMethodNotFound.code, "The server does not tell when its lists change.")


def _raise_refusal(answer: Message) -> None:
    if answer.error is not UNSET:
        raise told(answer)
    raise InvalidResponse("The server ended a watch without having acknowledged it.")


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
