"""Watches: which changes were asked for, in either era and over every connection of a client; reads no resource."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.client.retry import passes
from wharfinger.errors import (
    ConnectionLost,
    InvalidResponse,
    RemoteMethodNotFound,
    RemoteResourceNotFound,
    RequestTimeout,
    WharfingerError,
)
from wharfinger.protocol.interfaces import Link
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.negotiation import told

if TYPE_CHECKING:
    from wharfinger.client.connection import Living

__all__ = ["Change", "Connection", "Watch", "Watches"]

logger = logging.getLogger("wharfinger.client.subscriptions")

MOST_PENDING = 1024
"""Different changes that wait to be taken; beyond it they become one change of the whole."""
LONGEST_URI = 16 * 1024
"""Characters of a URI that a change names; a longer one is a change of the whole, too."""
SILENCES = 2
"""Questions in a row that a silent server may leave unanswered before what is watched is asked for again."""

Kind = Literal["resource", "resources", "tools", "prompts"]


class Change(msgspec.Struct, frozen=True):
    """Something has changed: a hint to read or list it again, never what it is now."""

    kind: Kind
    """A single resource, or the list of resources, tools or prompts."""
    uri: str = ""
    """Which resource, for `resource`; it may lie below the one that is watched."""
    missed: bool = False
    """The server could not be heard for a while: this, and what lies below it, may have changed or may not."""


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


class Connection(Link, Protocol):
    """What a client needs of its transport beyond a `Link`."""

    name: str
    mirrors: Any
    rules: Any
    unasked: Callable[[Message], None] | None
    asked: Callable[[Message], Awaitable[Any]] | None
    lost: Callable[[WharfingerError], None] | None

    @property
    def is_lost(self) -> bool:
        """Whether it is gone."""
        ...

    async def listen_in(self, timeout: float | None) -> None:
        """Be ready for notifications that belong to no request."""
        ...


class _Feed:
    """Changes that wait to be taken, each at most once, and how it ends."""

    __slots__ = (
        "_ready",
        "away",
        "begun",
        "changed",
        "end",
        "interrupted",
        "keeper",
        "listening",
        "lists",
        "on",
        "pending",
        "uris",
    )

    def __init__(self, uris: tuple[str, ...], lists: bool, begun: asyncio.Future[None]) -> None:
        self.uris = uris
        self.lists = lists
        self.changed: Callable[[Kind, str], None] | None = None
        """Told at once of what may have changed unheard."""
        self.interrupted: Callable[[WharfingerError], object] | None = None
        """Told once of each gap, when it begins."""
        self.away = False
        """Whether there is a gap at the moment."""
        self.begun = begun
        """Done when the server has acknowledged it for the first time."""
        self.pending: dict[tuple[Kind, str], bool] = {}
        self.end: WharfingerError | Literal[False] | None = False
        """False while it runs; None after a close; else why it ended."""
        self.keeper: asyncio.Task[None] | None = None
        """Keeps it going through all connections."""
        self.listening: asyncio.Task[Message] | None = None
        """The open `subscriptions/listen` (stateless era)."""
        self.on: Connection | None = None
        """The connection that it is subscribed on (handshake era)."""
        self._ready = asyncio.Event()

    def put(self, kind: Kind, uri: str = "", missed: bool = False) -> None:
        full = len(self.pending) >= MOST_PENDING or len(uri) > LONGEST_URI
        if full and (kind, uri) not in self.pending:
            # Of a change below what is watched, no more is known by then than that there was one.
            was_missed = any(self.pending.values())
            self.pending = {("resource", watched): was_missed for watched in self.uris}
            if len(uri) > LONGEST_URI and self.uris:
                self._ready.set()
                return
        self.pending[kind, uri] = missed or self.pending.get((kind, uri), False)
        self._ready.set()

    def miss(self) -> None:
        """All that is watched may have changed unheard."""
        for uri in self.uris:
            self._miss("resource", uri)
        for kind in _LIST_CHANGES.values() if self.lists else ():
            self._miss(kind, "")

    def _miss(self, kind: Kind, uri: str) -> None:
        if self.changed is not None:
            self.changed(kind, uri)
        self.put(kind, uri, True)

    def began(self) -> None:
        """The server has acknowledged it: the first time its opener goes on, later ones follow a gap."""
        self.away = False
        if self.begun.done():
            self.miss()
        else:
            self.begun.set_result(None)

    def interrupt(self, error: WharfingerError) -> None:
        """A gap begins, unless one goes on."""
        if self.away:
            return
        self.away = True
        if self.interrupted is not None:
            self.interrupted(error)

    def finish(self, end: WharfingerError | None) -> None:
        if self.end is False:
            self.end = end
            self._ready.set()

    async def take(self) -> Change:
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
    """Changes of resources, or of lists, as they are told: `async for change in watch`.

    It begins with the first wait; `async with` and `await` begin it at once, and return only after the server has
    acknowledged it: what changes from then on is seen. What changes twice before it is taken is told once.

    It goes on when the connection is lost and opened again, when a session ends, and when the server ends its side of
    it. As nobody knows what has changed meanwhile, all that is watched is then told with `missed`. `interrupted`, if
    you set it, is called with the reason when such a gap begins.
    """

    interrupted: Callable[[WharfingerError], object] | None = None

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
            self._opened[1].interrupted = self.interrupted
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
            ConnectionLost, ConnectionFailed: the server has gone, and did not come back in time.
            ResourceNotFound: it came back without the resource.
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
    """Every watch of one client, over all its connections; the loop's, as those are."""

    def __init__(self, living: Living, timeout: float) -> None:
        self.changed: Callable[[Kind, str], None] | None = None
        """Told of each change at once, before any watch is."""
        self._living = living
        self._timeout = timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._feeds: set[_Feed] = set()
        self._on: Connection | None = None
        """The connection whose subscriptions are counted."""
        self._gone: asyncio.Future[WharfingerError] | None = None
        """Done when that connection is lost."""
        self._subscribed: dict[str, int] = {}
        """How many feeds want each URI (handshake era: the server knows one subscription per connection and URI)."""
        self._order = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None

    async def open(self, uris: tuple[str, ...], lists: bool) -> tuple[Watches, _Feed]:
        """Begin to watch, and wait for the acknowledgement."""
        self._loop = loop = asyncio.get_running_loop()
        feed = _Feed(uris, lists, loop.create_future())
        feed.changed = self.changed
        self._feeds.add(feed)
        feed.keeper = loop.create_task(self._keep(feed))
        self._beat()
        try:
            await feed.begun
        except BaseException:
            self._feeds.discard(feed)
            feed.keeper.cancel()
            await asyncio.wait((feed.keeper,))
            raise
        return self, feed

    async def drop(self, feed: _Feed) -> None:
        """End what only this feed wanted."""
        if feed not in self._feeds or feed.keeper is None:
            return
        self._feeds.discard(feed)
        self._rest()
        feed.keeper.cancel()
        await asyncio.wait((feed.keeper,))
        if feed.on is not None:
            for uri in feed.uris:
                await self._unsubscribe(feed.on, uri)

    def forget(self, feed: _Feed) -> None:
        """`drop` for a watch that nobody holds any more; callable from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._forget, feed)

    def _forget(self, feed: _Feed) -> None:
        if feed in self._feeds:
            self._in_background(self.drop(feed))

    def close(self) -> list[asyncio.Task[None]]:
        """The client closes: every watch comes to its end; the tasks that end with them."""
        feeds, self._feeds = self._feeds, set()
        keepers: list[asyncio.Task[None]] = [] if self._beating is None else [self._beating]
        self._rest()
        for feed in feeds:
            feed.finish(None)
            if feed.keeper is not None:
                feed.keeper.cancel()
                keepers.append(feed.keeper)
        return keepers

    def lost(self, link: Connection, error: WharfingerError) -> None:
        """A connection is gone."""
        if link is self._on and self._gone is not None and not self._gone.done():
            self._gone.set_result(error)

    # One watch, over all connections.

    async def _keep(self, feed: _Feed) -> None:
        end: WharfingerError | None = None  # as after a close
        try:
            end = await self._go_on(feed)
        except WharfingerError as error:
            end = error
        except Exception:
            logger.exception("a watch has failed")
            end = ConnectionLost("A watch has failed; the log says how.")
        finally:
            self._feeds.discard(feed)
            feed.finish(end)
            if not feed.begun.done():
                feed.begun.set_exception(ConnectionLost("This client was closed.") if end is None else end)
                feed.begun.exception()

    async def _go_on(self, feed: _Feed) -> WharfingerError:
        """Follow what is watched until that is of no use any more; why not."""
        living, retry, clock = self._living, self._living.settings.retry, self._living.settings.clock
        backoff = living.new_backoff()
        while True:
            link = await living.ready(retry.watching if feed.begun.done() else None)
            since = clock()
            error = await self._follow(feed, link)
            backoff.lasted(clock() - since)
            if not feed.begun.done() or backoff.failures >= retry.watching or not _may_come_back(error):
                return error
            logger.debug("a watch is begun again: %s", error)
            feed.interrupt(error)
            delay = backoff.next()
            if living.link is link:  # else it is the next connection that is waited for
                await living.settings.sleep(delay)

    async def _follow(self, feed: _Feed, link: Connection) -> WharfingerError:
        """Watch over one connection; what has ended it."""
        try:
            if link.rules.era == "stateless":
                return await self._listen(feed, link)
            return await self._subscribe(feed, link)
        except WharfingerError as error:
            return error

    # The stateless era.

    async def _listen(self, feed: _Feed, link: Connection) -> WharfingerError:
        wanted = t.SubscriptionFilter(resource_subscriptions=list(feed.uris) or UNSET)
        if feed.lists:
            wanted.resources_list_changed = wanted.tools_list_changed = wanted.prompts_list_changed = True
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[t.SubscriptionFilter] = loop.create_future()
        agreed = self._living.agreed
        assert agreed is not None
        params = t.SubscriptionsListenRequestParams(notifications=wanted, meta=agreed.meta)
        ended = f"{link.name} has ended the watch."

        def take(message: Message) -> None:
            if message.method == _CANCELLED:
                listening.cancel()
            else:
                self._told(feed, link, granted, message)

        listening = feed.listening = loop.create_task(
            link.request("subscriptions/listen", params, timeout=None, notified=take)
        )
        try:
            await asyncio.wait((granted, listening), timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if granted.done():
                _check_granted(feed, granted.result())
                feed.began()
            elif not listening.done():
                raise RequestTimeout(f"{link.name} did not acknowledge a watch within {self._timeout:g} s.")
            await asyncio.wait((listening,))
        finally:
            granted.cancel()
            if not listening.done():
                listening.cancel()
                await asyncio.wait((listening,))
        if listening.cancelled():
            return ConnectionLost(ended)
        answer = listening.result()
        if answer.error is not UNSET:
            return told(answer)
        if granted.cancelled():
            return InvalidResponse("The server ended a watch without having acknowledged it.")
        return ConnectionLost(ended)

    def _told(
        self, feed: _Feed, link: Connection, granted: asyncio.Future[t.SubscriptionFilter], message: Message
    ) -> None:
        if message.method != _ACKNOWLEDGED:
            self._put((feed,), message, tagged=True)
        elif not granted.done() and message.params is not UNSET:
            try:
                granted.set_result(_decode_acknowledged(message.params).notifications)
            except msgspec.MsgspecError:
                granted.set_exception(InvalidResponse(f"{link.name} sent an acknowledgement that cannot be read."))

    # The handshake era.

    async def _subscribe(self, feed: _Feed, link: Connection) -> WharfingerError:
        gone = self._gone
        if self._on is not link or gone is None:
            self._on, self._subscribed = link, {}
            gone = self._gone = asyncio.get_running_loop().create_future()
        if self._living.link is not link:
            raise ConnectionLost(f"The connection to {link.name} is gone.")
        await link.listen_in(self._timeout)
        done: list[str] = []
        try:
            for uri in feed.uris:
                async with self._order:
                    if self._on is not link:
                        raise ConnectionLost(f"The connection to {link.name} is gone.")
                    if not self._subscribed.get(uri):
                        params = t.SubscribeRequestParams(uri=uri)
                        answer = await link.request("resources/subscribe", params, timeout=self._timeout)
                        if answer.error is not UNSET:
                            raise told(answer)
                    self._subscribed[uri] = self._subscribed.get(uri, 0) + 1
                    done.append(uri)
        except BaseException:
            for uri in done:
                self._in_background(self._unsubscribe(link, uri))
            raise
        feed.on = link
        feed.began()
        await asyncio.wait((gone,))
        feed.on = None
        return gone.result()

    async def _unsubscribe(self, link: Connection, uri: str) -> None:
        async with self._order:
            if link is not self._on:
                return
            left = self._subscribed.pop(uri, 1) - 1
            if left:
                self._subscribed[uri] = left
            elif link is self._living.link:
                try:
                    params = t.UnsubscribeRequestParams(uri=uri)
                    await link.request("resources/unsubscribe", params, timeout=self._timeout)
                except WharfingerError:
                    pass  # nobody waits for its changes: that they may go on is no fault of the caller's

    # A server that has gone without a word.

    def _beat(self) -> None:
        heartbeat = self._living.settings.retry.heartbeat
        if heartbeat and self._living.remote and (self._beating is None or self._beating.done()):
            self._beating = self._in_background(self._ask_regularly(heartbeat))

    def _rest(self) -> None:
        if not self._feeds and self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def _ask_regularly(self, heartbeat: float) -> None:
        """A connection that nothing is sent on may be broken for hours unseen: ask now and then."""
        settings, silences = self._living.settings, 0
        while self._feeds:
            await settings.sleep(heartbeat * (0.75 + settings.chance() / 2))
            link = self._living.link
            if link is None:
                continue
            try:
                await self._living.check(link, self._timeout)
                silences = 0
            except WharfingerError as error:
                logger.debug("%s does not answer as it should: %s", link.name, error)
                silences = silences + 1 if _may_come_back(error) else 0
            if silences >= SILENCES:
                silences = 0
                self._begin_again(link)

    def _begin_again(self, link: Connection) -> None:
        if link.rules.era == "stateless":
            for feed in self._feeds:
                if feed.listening is not None:
                    feed.listening.cancel()
        else:
            self._living.give_up(link)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_seen)
        return task

    # What is told.

    def hear_lists(self) -> Callable[[], bool] | None:
        """Tells whether each change of a list was heard since now (handshake era); None where they are not heard."""
        link = self._living.link
        for feed in self._feeds:
            if feed.lists and feed.on is not None and feed.on is link:
                return lambda: feed.on is link and feed in self._feeds
        return None

    def unasked(self, message: Message) -> None:
        """A notification that belongs to no request: in the stateless era none of ours."""
        agreed = self._living.agreed
        if agreed is not None and agreed.rules.era == "handshake":
            self._put(self._feeds, message, tagged=False)

    def missed(self) -> None:
        """Notifications that belong to no request may have been lost on their way (handshake era)."""
        for feed in self._feeds:
            if feed.on is not None:
                feed.miss()

    def _put(self, feeds: Iterable[_Feed], message: Message, *, tagged: bool) -> None:
        kind = _LIST_CHANGES.get(message.method) if isinstance(message.method, str) else None
        if kind is not None:
            if self.changed is not None:
                self.changed(kind, "")
            for feed in feeds:
                if feed.lists:
                    feed.put(kind)
        elif message.method == _UPDATED and message.params is not UNSET:
            try:
                uri = _decode_updated(message.params).uri
            except msgspec.MsgspecError:
                return
            if self.changed is not None:
                self.changed("resource", uri)
            for feed in feeds:
                if (tagged and feed.uris) or any(_covers(watched, uri) for watched in feed.uris):
                    feed.put("resource", uri)


def _may_come_back(error: WharfingerError) -> bool:
    return passes(error) or isinstance(error, RequestTimeout)


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


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
