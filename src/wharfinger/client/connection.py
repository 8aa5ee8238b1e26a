"""Opens the connection of a client, and opens it again after it was lost.

A client has at most one connection at a time, and outlives it. A call gets the connection from the
`ConnectionManager`; if there is none, it waits for the next one.

    closed → connecting → connected → lost → connecting → …

A lost connection is opened again by the next call, or at once while something is watched; all waiting calls share one
attempt. The delay before an attempt grows with the number of failures in a row, counted over all calls (`Backoff`).
After a connection is lost, its resources, such as a child process, are released in the background. The next child is
started only after that, because it may need the same lock or port.

A `ConnectionObserver` receives these events for caches, watches and logs.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client.calls import PROGRESS, Call
from wharfinger.client.connect import CheckedTarget, Connection, Negotiated, connect
from wharfinger.client.results import decode_result
from wharfinger.client.retry import is_transient
from wharfinger.client.settings import Settings
from wharfinger.errors import ConnectionLost, RequestTimeout, WharfingerError
from wharfinger.protocol.backoff import Backoff
from wharfinger.protocol.interfaces import Link, LinkEvents
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.negotiation import ProtocolCache, to_remote_error
from wharfinger.transports.background import BackgroundTasks, retrieve
from wharfinger.types.task_extension import EXTENSION as TASKS

__all__ = ["NOT_OPEN", "ConnectionManager", "ConnectionObserver"]

log = logging.getLogger("wharfinger.client.connection")

NOT_OPEN = "This client is not open: use it inside `async with`, or call open()."


class ConnectionObserver(Protocol):
    """Receives the events of one client's connections."""

    def connection_made(self, link: Connection, agreed: Negotiated) -> None:
        """Called when a connection was opened, before any call is sent on it."""
        ...

    def connection_lost(self, link: Connection, error: WharfingerError) -> None:
        """Called when the connection is lost."""
        ...

    def notification_received(self, message: Message) -> None:
        """Called with each notification, except for progress that a call handles itself (`on_notification`)."""
        ...

    def notifications_missed(self) -> None:
        """Called when notifications may have been lost."""
        ...


class ConnectionManager:
    """Connects and reconnects. Any task of its event loop may use and close it."""

    def __init__(
        self,
        target: CheckedTarget,
        settings: Settings,
        observer: ConnectionObserver,
        answer: Callable[[Message], Awaitable[Any]] | None = None,
    ) -> None:
        """`answer` answers requests of the server (handshake era)."""
        self.settings = settings
        self.agreed: Negotiated | None = None
        """The result of the negotiation for the current connection, or for the last one if it is lost."""
        self.link: Connection | None = None
        """The connection, or None if the client is not connected."""
        self.is_open = False
        """Whether the client is open, so that a lost connection is opened again."""
        self._target = target
        self._observer = observer
        self._events = LinkEvents(answer, self._notified, self._missed, self._lost)
        extensions = settings.capabilities.extensions
        self._takes_tasks = not isinstance(extensions, UnsetType) and TASKS in extensions
        self._protocols = ProtocolCache(time.monotonic, max_servers=1, max_age=float("inf"))
        self._name = "the server"
        retry = settings.retry
        self._backoff = Backoff(retry.initial_delay, retry.max_delay, random.random, reset_after=retry.reset_after)
        self._connecting: asyncio.Task[None] | None = None
        self._context = contextvars.Context()
        """The context in which the client was opened. Every connection is opened in a copy of it, so that its tasks do
        not get the variables of the call that reconnects."""
        self._disposals = BackgroundTasks()
        self._loop_time: Callable[[], float] = time.monotonic
        """The clock of the running loop: asking for the loop costs a system call before Python 3.12."""
        self._connected_at = 0.0
        self._was_connected = False
        """Whether the client has connected at least once since it was opened."""
        self._negotiating = asyncio.Lock()
        self._renegotiated_at = float("-inf")

    # Opening and closing.

    async def open(self) -> None:
        """Connect for the first time; does nothing if the client is open.

        Raises what `connect` raises, and ConnectionLost if the client is closed meanwhile.
        """
        if self._was_connected:
            return
        self._loop_time = asyncio.get_running_loop().time
        if not self.is_open:
            self.is_open = True
            self._context = contextvars.copy_context()
            self._connecting = self._start_connecting(0.0)
        connecting = self._connecting
        assert connecting is not None
        try:
            await asyncio.wait((connecting,))
        except BaseException:
            await self.close()
            raise
        error = None if connecting.cancelled() else connecting.exception()
        if error is not None:
            if self._connecting is connecting:
                self.is_open = False
            raise error.with_traceback(None)
        if self._connecting is not connecting:
            raise ConnectionLost("The client was closed while it was opening.", unsent=True)
        self._was_connected = True

    async def close(self) -> None:
        """Close the connection at once; calls that wait get ConnectionLost."""
        self.is_open = self._was_connected = False
        link, self.link = self.link, None
        connecting, self._connecting = self._connecting, None
        if connecting is not None and not connecting.done():
            connecting.cancel()
            await asyncio.wait((connecting,))
        if link is not None:
            self._dispose(link)
        await self._disposals.finished()

    @property
    def name(self) -> str:
        """The server's name for error messages."""
        return self._name

    @property
    def is_remote(self) -> bool:
        """Whether the connection may break unnoticed; a connection to a process of this machine cannot."""
        return isinstance(self._target, str)

    async def get(self, attempts: int | None = None) -> Connection:
        """Return the connection. If it was lost, try to open it again, `attempts` times (default: as configured).

        Raises:
            ConnectionLost: the client is closed, or may not connect again.
            WharfingerError: connecting failed; see `connect`.
        """
        if self.link is not None:
            return self.link
        remaining = self.settings.retry.attempts if attempts is None else attempts
        while self.is_open:
            if remaining <= 0:
                raise ConnectionLost(f"The connection to {self._name} is gone.", unsent=True)
            remaining -= 1
            error = await self._attempt()
            link: Connection | None = self.link
            if link is not None:
                return link
            if error is not None and (not remaining or not is_transient(error)):
                raise error.with_traceback(None)
        raise ConnectionLost(NOT_OPEN, unsent=True)

    # Calls.

    async def send(self, call: Call) -> Any:
        """Send one request and return its result, decoded; the last step of every call.

        Raises:
            ConnectionLost, ConnectionFailed, RequestTimeout, NotMCP, UnsupportedRevision: there was no response.
            InvalidResponse: the response breaks the protocol.
            RemoteError: the response is an error.
        """
        timeout = call.left(self._loop_time())
        link = self.link
        if link is None:
            link = await self._get_within(call, timeout)
            timeout = call.left(self._loop_time())
        agreed = self.agreed
        assert agreed is not None
        row, params = call.row, call.params
        if params.meta is not agreed.meta:
            if params.meta is UNSET:
                params.meta = agreed.meta
            else:
                params = _with_agreed_meta(params, agreed.meta)
        on_notification = call.on_notification
        if on_notification is not None:
            on_notification = partial(self._notify_call, on_notification)
        answer = await link.request(row.name, params, timeout=timeout, on_notification=on_notification)
        call.raw = raw = answer.result
        if isinstance(raw, UnsetType):
            raise to_remote_error(answer)
        try:
            result = row.decode_result(raw)
            kind = getattr(result, "result_type", UNSET)
            if kind == "complete" or kind is UNSET:
                return result
        except msgspec.MsgspecError:
            pass
        return decode_result(row, raw, stateless=agreed.rules.asks_by_result, tasks=self._takes_tasks)

    def _notify_call(self, on_notification: Callable[[Message], None], message: Message) -> None:
        on_notification(message)
        if message.method != PROGRESS and self.is_open:
            self._observer.notification_received(message)

    async def ping(self, link: Connection, timeout: float) -> None:
        """Return when the server has sent any response. Raises what `Link.request` raises."""
        assert self.agreed is not None
        method = "ping" if self.agreed.rules.era == "handshake" else "server/discover"
        await link.request(method, t.RequestParams(meta=self.agreed.meta), timeout=timeout)

    def give_up(self, link: Connection) -> None:
        """Treat this connection as lost, because the server does not respond."""
        self._lost(link, ConnectionLost(f"{self._name} does not answer any more."))

    async def renegotiate(self) -> bool:
        """Negotiate the revision with the server at a URL again. Returns whether it has changed.

        If it has, the client continues with a new connection, and the old one is closed.
        """
        seen = self.agreed
        async with self._negotiating:
            before, link = self.agreed, self.link
            if before is not seen:
                return True
            now, retry = time.monotonic(), self.settings.retry
            too_soon = now - self._renegotiated_at < retry.reset_after
            if before is None or link is None or too_soon or not retry.attempts or not isinstance(self._target, str):
                return False
            self._renegotiated_at = now
            try:
                other, agreed = await self._connect_once()
            except WharfingerError:
                return False
            if agreed.rules is before.rules or self.link is not link:
                await other.close()
                return False
            # Before the new connection is reported: observers take the last event for the state.
            self._observer.connection_lost(link, ConnectionLost(f"{self._name} now speaks another revision."))
            self._use(other, agreed)
            self._dispose(link)
            return True

    # Internal.

    async def _get_within(self, call: Call, timeout: float | None) -> Connection:
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                return await self.get()
        except TimeoutError:
            if not scope.expired():
                raise
            message = f"{call.method}: not connected to {self._name} again within {timeout:g} s."
            raise RequestTimeout(message) from None

    async def _attempt(self) -> BaseException | None:
        """Wait for one attempt to connect, and return its exception, if any. The attempt outlives a cancelled wait."""
        if self._connecting is None or self._connecting.done():
            self._connecting = self._start_connecting(self._backoff.failed())
        connecting = self._connecting
        await asyncio.wait((connecting,))
        return None if connecting.cancelled() else connecting.exception()

    def _start_connecting(self, delay: float) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._connect(delay), context=self._context.copy())
        task.add_done_callback(retrieve)
        return task

    async def _connect(self, delay: float) -> None:
        if delay:
            await asyncio.sleep(delay)
        await self._disposals.finished()  # after that, the locks and ports of the last child are free
        self._use(*await connect(self._target, self.settings, self._events, self._protocols))

    async def _connect_once(self) -> tuple[Connection, Negotiated]:
        """Open another connection, in a copy of the client's context as all connections are."""
        work = connect(self._target, self.settings, self._events, self._protocols)
        connecting = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        try:
            await asyncio.wait((connecting,))
        except BaseException:
            connecting.cancel()
            await asyncio.wait((connecting,))
            if not connecting.cancelled() and connecting.exception() is None:  # it was just opened
                self._dispose(connecting.result()[0])
            raise
        return connecting.result()

    def _use(self, link: Connection, agreed: Negotiated) -> None:
        """Use this connection from now on."""
        if not self.is_open:
            self._dispose(link)
            return
        self.link, self.agreed, self._name = link, agreed, link.name
        self._connected_at = time.monotonic()
        self._observer.connection_made(link, agreed)
        if link.is_lost:  # it was lost after the last response of the negotiation
            self._lost(link, ConnectionLost(f"The connection to {self._name} is gone."))

    # Events of links. A link that is still being opened, or was replaced, is ignored.

    def _notified(self, link: Link, message: Message) -> None:
        if link is self.link:
            self._observer.notification_received(message)

    def _missed(self, link: Link) -> None:
        if link is self.link:
            self._observer.notifications_missed()

    def _lost(self, lost: Link, error: WharfingerError) -> None:
        link = self.link
        if link is None or link is not lost:
            return
        log.debug("the connection to %s is lost: %s", self._name, error)
        self.link = None
        self._backoff.succeeded(time.monotonic() - self._connected_at)
        self._dispose(link)
        self._observer.connection_lost(link, error)

    def _dispose(self, link: Connection) -> None:
        """Close a connection, and release its resources, such as a child's process group, in the background."""
        self._disposals.start(link.close())


def _with_agreed_meta(params: Any, meta: t.RequestMeta | UnsetType) -> Any:
    """Return the params with the `_meta` of the agreed revision; they may have been made before a reconnection."""
    own: t.RequestMeta = params.meta
    new = t.RequestMeta() if isinstance(meta, UnsetType) else meta
    if own.protocol_version == new.protocol_version is not UNSET:
        return params
    combined = msgspec.structs.replace(
        own,
        protocol_version=new.protocol_version,
        client_info=new.client_info,
        client_capabilities=new.client_capabilities,
        log_level=new.log_level,
    )
    return msgspec.structs.replace(params, meta=UNSET if combined == t.RequestMeta() else combined)
