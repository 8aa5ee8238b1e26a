"""Handlers of the methods with which clients of both eras subscribe to changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.errors import InvalidParams, Overloaded, ResourceNotFound
from wharfinger.protocol import subscriptions
from wharfinger.protocol.handshake import Phase, Session
from wharfinger.protocol.jsonrpc import encode_notification
from wharfinger.protocol.request import Channel, Request, notify
from wharfinger.server.features.resource import check_uri
from wharfinger.server.owners import share_owner_of
from wharfinger.server.subscriptions.watching import ListenWatcher, SessionWatcher
from wharfinger.transports.background import BackgroundTasks

if TYPE_CHECKING:
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.services import Services
    from wharfinger.server.subscriptions.visible_changes import VisibleChanges
    from wharfinger.server.tasks.task_extension import Tasks

__all__ = ["Listening"]

log = logging.getLogger("wharfinger.server.subscriptions.listening")


class Listening:
    """Serves `resources/subscribe`, `resources/unsubscribe` and `subscriptions/listen` for one server."""

    def __init__(
        self, services: Services, resources: Resources, changes: VisibleChanges, tasks: Callable[[], Tasks | None]
    ) -> None:
        self._changes = changes
        self._remembering = BackgroundTasks(report_failures=True)
        self._services = services
        self._watching = services.watching
        self._resources = resources
        self._tasks = tasks
        self._first_requests: dict[Session, Request] = {}
        """The first subscription of each observed session. It is passed to observers when the session ends."""
        self.open_listens: dict[Channel, set[asyncio.Future[None]]] = {}
        """The open listens by stream; a listen ends when its future is done."""

    async def subscribe(self, request: Request) -> t.EmptyResult:
        """Handle `resources/subscribe` (handshake era).

        Raises:
            InvalidParams: the URI is not valid, or the session watches too many URIs.
            ResourceNotFound: the resource does not exist, or the caller may not read it.
            Overloaded: the server watches too many URIs, and this caller has used up its share of them.
        """
        uri, watcher = request.params.uri, self._session_watcher(request)
        check_uri(uri)
        if not await self._may_read(request, uri):
            raise ResourceNotFound(uri)
        if self._watching.count(watcher) >= self._services.limits.watched:
            limit = self._services.limits.watched
            raise InvalidParams(f"A session may watch {limit} resources: unsubscribe from some.")
        owner = share_owner_of(request)
        self._check_total(owner, 1)
        if watcher.session.phase is Phase.CLOSED:  # it was closed while this waited, so nothing would drop the watcher
            return t.EmptyResult()
        self._drop_on_close(watcher)
        if request.observers:
            self._first_requests.setdefault(watcher.session, request)
        is_new = not self._watching.watches(watcher, uri, False)
        self._watching.watch(watcher, uri, owner)
        try:
            await self._changes.remember(watcher, uri, False)
        except BaseException:
            if is_new:  # the client gets an error, so it must get no updates
                self._watching.unwatch(watcher, uri)
            raise
        return t.EmptyResult()

    def _check_total(self, owner: str, added: int) -> None:
        if not self._watching.shares.has_room(owner, self._services.limits.watched_total, added):
            raise Overloaded("Too many resources are watched: unsubscribe from some, or try again later.")

    async def unsubscribe(self, request: Request) -> t.EmptyResult:
        """Handle `resources/unsubscribe` (handshake era)."""
        self._watching.unwatch(self._session_watcher(request), request.params.uri)
        return t.EmptyResult()

    def _session_watcher(self, request: Request) -> SessionWatcher:
        assert request.session is not None  # the methods exist in the handshake era only
        return SessionWatcher(request.session)

    def initialized(self, session: Session | None, params: Any) -> None:
        """Handle `notifications/initialized` (handshake era): from now on, the session is notified of list changes."""
        assert session is not None
        watcher = SessionWatcher(session)
        self._drop_on_close(watcher)
        for name in self._served_lists():
            self._watching.watch_list(watcher, name)
            if self._services.restricts:
                self._remembering.start(self._changes.remember(watcher, name, True))

    def _drop_on_close(self, watcher: SessionWatcher) -> None:
        """Drop the watcher when its session ends.

        Call this before the watcher watches anything: only the first call has an effect. That is usually the call in
        `initialized`; if a client subscribes before it confirms the handshake, it is the one in `subscribe`.
        """
        if not self._watching.is_watching(watcher):
            watcher.session.on_close.append(self._drop)

    def _drop(self, session: Session) -> None:
        watcher = SessionWatcher(session)
        request = self._first_requests.pop(session, None)
        if request is not None and (uris := self._watching.watched_by(watcher)):
            for observers in request.observers:
                observers.unwatched(request, uris)
        self._watching.drop(watcher)

    async def listen(self, request: Request) -> t.SubscriptionsListenResult:
        """Handle `subscriptions/listen`: acknowledge what it watches, and stay open until either side ends it.

        Raises:
            InvalidParams: too many URIs and tasks, or too many open listens on this stream.
            Overloaded: the server watches too many URIs, and this caller has used up its share of them; or the stream
                is too full for the acknowledgement.
            MissingClientCapability: the request names tasks and does not declare the extension.
        """
        requested: t.SubscriptionFilter = request.params.notifications
        uris = list(dict.fromkeys(requested.resource_subscriptions or ()))
        # The request may stay open for hours, and its params may have megabytes: keep only the URIs and ids.
        ids = list(dict.fromkeys(requested.task_ids or ()))
        requested.resource_subscriptions = requested.task_ids = UNSET
        request.raw_params = Raw(b"{}")
        if len(uris) + len(ids) > self._services.limits.watched:
            raise InvalidParams(f"One listen may watch {self._services.limits.watched} resources and tasks: split it.")
        owner = share_owner_of(request)
        self._check_total(owner, len(uris))
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if len(self.open_listens.get(request.channel, ())) >= self._services.limits.listens:
            raise InvalidParams(f"{self._services.limits.listens} listens are open on this connection: cancel some.")
        open_here = self.open_listens.setdefault(request.channel, set())
        open_here.add(ended)
        watcher = ListenWatcher(request)
        try:
            lists = [name for name in subscriptions.lists_of(requested) if name in self._served_lists()]
            honoured = [uri for uri in uris if await self._may_watch(request, uri)]
            for name in lists:
                self._watching.watch_list(watcher, name)
                await self._changes.remember(watcher, name, True)
            for uri in honoured:
                self._check_total(owner, 1)  # others may have begun to watch more during any `await`
                self._watching.watch(watcher, uri, owner)
                await self._changes.remember(watcher, uri, False)
            tasks = self._tasks()
            ids = await tasks.watch(request, watcher, ids) if ids and tasks is not None else []
            acknowledged = t.SubscriptionsAcknowledgedNotificationParams(
                meta=subscriptions.meta_of(request.id),
                notifications=subscriptions.acknowledgement(lists, honoured, ids),
            )
            if not notify(request, "notifications/subscriptions/acknowledged", acknowledged):
                raise Overloaded("The stream is too full for a subscription: read from it first.")
            watcher.acknowledged()
            allowed = set(honoured) if request.observers else ()
            for observers in request.observers:
                observers.watched(request, honoured, [uri for uri in uris if uri not in allowed])
            del uris  # a client may have sent megabytes of URIs that it may not watch
            if ids and tasks is not None:
                await tasks.catch_up(watcher)
            await ended
            # Send both: the specification requires a notification for cancellation, and a result for subscriptions.
            if request.channel.multiplexed:
                cancelled = t.CancelledNotificationParams(
                    request_id=request.id, reason="The server ends the subscription."
                )
                request.channel.send(request, encode_notification("notifications/cancelled", cancelled))
            return subscriptions.listen_result(request.id)
        finally:
            self._watching.drop(watcher)
            if (tasks := self._tasks()) is not None:
                tasks.unwatch(watcher)
            open_here.discard(ended)
            if not open_here:
                self.open_listens.pop(request.channel, None)

    async def _may_watch(self, request: Request, uri: str) -> bool:
        if "resources/read" not in self._services.methods.handlers:
            return False
        try:
            return await self._may_read(request, uri)
        except Exception:  # the other URIs of the same listen must not fail
            log.exception("Cannot find out whether %s exists", uri)
            return False

    async def _may_read(self, request: Request, uri: str) -> bool:
        allowed = request.access is None or request.access.allows("read", uri)
        return allowed and await self._resources.exists(request, uri)

    def _served_lists(self) -> list[str]:
        return [name for name in subscriptions.LISTS if f"{name}/list" in self._services.methods.handlers]

    def drain(self) -> None:
        """End every open listen with its final result."""
        for open_here in list(self.open_listens.values()):
            for ended in open_here:
                if not ended.done():
                    ended.set_result(None)
