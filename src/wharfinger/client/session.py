"""Composes the parts of a client into a chain of steps for each method, and passes on the events of its connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client.cache import Cache, CacheStep
from wharfinger.client.callbacks import CallbackQueue
from wharfinger.client.calls import Middleware, Next, ProgressStep, Step, check_middleware, compose
from wharfinger.client.connect import CheckedTarget, Connection, Negotiated
from wharfinger.client.connection import NOT_OPEN, ConnectionManager
from wharfinger.client.input_handlers import InputHandlers
from wharfinger.client.multi_round import MultiRoundStep, URLCompletions
from wharfinger.client.retry_step import RetryStep
from wharfinger.client.settings import Settings
from wharfinger.client.subscriptions import Watches
from wharfinger.client.task_polling import CALL_AS_TASK, TaskStep
from wharfinger.client.tools import KnownTools
from wharfinger.errors import ConnectionLost, WharfingerError
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.methods import METHODS, Method
from wharfinger.transports.background import BackgroundTasks
from wharfinger.types.task_extension import EXTENSION as TASKS

if TYPE_CHECKING:
    from wharfinger.client.web_resources import WebResourceStep

__all__ = ["ClientSession"]

log = logging.getLogger("wharfinger.client")

SET_LEVEL_SECONDS = 5.0
"""Timeout in seconds for setting the log level on a new connection."""

_SET_LEVEL = METHODS["logging/setLevel"]
_decode_log = msgspec.json.Decoder(t.LoggingMessageNotificationParams).decode


class ClientSession:
    """The parts of one `Client`, composed once. It is also the `ConnectionObserver` of its connections."""

    def __init__(self, target: CheckedTarget, settings: Settings) -> None:
        """Raises TypeError if a handler or middleware is not a function."""
        self._handlers = handlers = InputHandlers(
            elicitation=settings.elicitation,
            consent=settings.consent,
            sampling=settings.sampling,
            sampling_tools=settings.sampling_tools,
            roots=settings.roots,
        )
        capabilities = handlers.capabilities
        if settings.tasks:
            capabilities.extensions = {TASKS: {}}
        for middleware in settings.middleware:
            check_middleware(middleware)
        self._middleware = settings.middleware
        self._web: WebResourceStep | None = None
        if settings.fetch_web_resources:
            from wharfinger.client.web_resources import WebResourceStep  # imported on use: a web client, 5 ms

            self._web = WebResourceStep()
        auth = settings.auth
        self._cache: CacheStep | None = None
        cache = Cache() if settings.cache is True else settings.cache
        if isinstance(cache, Cache):
            self._cache = CacheStep(
                cache, target, settings.headers, capabilities, lambda: self.watches.track_list_changes()
            )
            auth = None if auth is None else self._cache.observe(auth)
        settings = msgspec.structs.replace(settings, capabilities=capabilities, auth=auth)
        answer = handlers.answer_request if handlers.has_any else None
        self.connections = ConnectionManager(target, settings, self, answer)
        changed = self._cache.changed if self._cache is not None else _ignore_change
        self.watches = Watches(self.connections, settings.timeout, changed)
        self._log = None if settings.log is None else CallbackQueue(settings.log)
        self._log_level: t.LoggingLevel | UnsetType = settings.requested_log_level
        self.connection_observers: list[Callable[[WharfingerError | None], object]] = []
        """Called with None when a connection is made, and with the reason when it is lost."""
        self._background = BackgroundTasks()
        self._url_completions = URLCompletions()
        self._tasks = TaskStep(handlers, settings.tasks)
        retry = RetryStep(self.connections)
        self.tools = KnownTools(retry, tasks=settings.tasks, validate=settings.validate)
        self._steps: list[Step] = [
            *([] if self._web is None else [self._web]),
            self._tasks,
            MultiRoundStep(handlers, settings.limits.rounds, self._url_completions),
            *([] if self._cache is None else [self._cache]),
            ProgressStep(handlers, lambda: self.agreed.rules.asks_by_result, lambda: self.connections.name),
            retry,
        ]
        self.chains: Mapping[Method, Next] = {
            row: self.compose(row) for row in (*METHODS.values(), CALL_AS_TASK) if row.sender != "server"
        }
        """By method, the chain of steps that a call goes through."""

    def compose(self, row: Method) -> Next:
        """Return the chain of steps of a method: middleware, and the steps that apply to it."""
        steps: list[Middleware] = [step for step in self._steps if step.applies_to(row)]
        return compose([*self._middleware, *steps], self.connections.send)

    # Opening and closing.

    async def open(self) -> None:
        """Connect; does nothing if the client is open. Raises what `Client.open` raises."""
        await self.connections.open()

    async def close(self) -> None:
        """Close the connection: waiting calls get ConnectionLost, and watches end."""
        if self._log is not None:
            self._log.stop()
        if self._cache is not None:
            self._cache.closed()
        ending = self.watches.close()
        await self.connections.close()
        self._handlers.end_waits()
        if self._web is not None:
            await self._web.close()
        if ending:
            await asyncio.wait(ending)

    @property
    def agreed(self) -> Negotiated:
        """The result of the negotiation. Raises ConnectionLost before the first connection."""
        if self.connections.agreed is None:
            raise ConnectionLost(NOT_OPEN)
        return self.connections.agreed

    @property
    def link(self) -> Connection:
        """The current connection. Raises ConnectionLost if there is none."""
        if self.connections.link is None:
            raise ConnectionLost(NOT_OPEN)
        return self.connections.link

    def learn_tools(self, tools: list[t.Tool]) -> list[t.Tool]:
        """Remember the listed tools. Returns those that can be called."""
        return self.tools.learn(tools, self.agreed)

    def set_log_level(self, level: t.LoggingLevel) -> bool:
        """Set the lowest level of log messages. Returns whether `logging/setLevel` must be sent."""
        agreed, self._log_level = self.agreed, level
        if agreed.rules.era == "handshake":
            return True
        if not isinstance(agreed.meta, UnsetType):
            agreed.meta.log_level = level
        return False

    # Events of the connection: `ConnectionObserver`.

    def connection_made(self, link: Connection, agreed: Negotiated) -> None:
        """Apply the client's state to a new connection."""
        self.tools.connection_made(link)
        self._report_connection(None)
        if self._cache is not None:
            self._cache.connection_made(agreed.rules, agreed.capabilities)
        level = self._log_level
        if isinstance(level, UnsetType):
            return
        if not isinstance(agreed.meta, UnsetType):
            agreed.meta.log_level = level
        elif agreed.capabilities.logging is not UNSET:
            params = t.SetLevelRequestParams(level=level)
            self._background.start(link.request(_SET_LEVEL.name, params, timeout=SET_LEVEL_SECONDS))

    def _report_connection(self, error: WharfingerError | None) -> None:
        for observer in self.connection_observers:
            try:
                observer(error)
            except Exception:
                log.exception("A function that observes the connection failed")

    def connection_lost(self, link: Connection, error: WharfingerError) -> None:
        """Report the loss to the watches and the observers."""
        self.watches.connection_lost(link, error)
        self._report_connection(error)

    def notifications_missed(self) -> None:
        """Report to the watches that notifications may have been lost."""
        self.watches.notifications_missed()

    def notification_received(self, message: Message) -> None:
        """Pass a notification to the parts of the client that handle it."""
        self.watches.notification_received(message)
        if message.method == "notifications/elicitation/complete":
            self._url_completions.handle(message)
        self._tasks.notification_received(message)
        if message.method != "notifications/message" or self._log is None or isinstance(message.params, UnsetType):
            return
        try:
            self._log.put(_decode_log(message.params), size=len(memoryview(message.params)))
        except msgspec.MsgspecError:
            log.debug("skipped a malformed log message: %.100r", bytes(message.params))


def _ignore_change(kind: str, uri: str) -> None:
    """Do nothing: without a cache, only watches use changes."""
