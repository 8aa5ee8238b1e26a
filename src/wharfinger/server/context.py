"""What a handler may ask of the request that it serves; one object per call, made only for handlers that take it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import PermissionDenied, ResourceNotFound
from wharfinger.protocol.exchange import Caller, Request
from wharfinger.protocol.jsonrpc import Id, encode_notification
from wharfinger.protocol.methods import METHODS

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from wharfinger.server.app import Server
    from wharfinger.server.source import Hits

    State = TypeVar("State", default=Any)
else:
    from typing import TypeVar

    State = TypeVar("State")

__all__ = ["Context", "reading"]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Syslog severities, least first (RFC 5424)."""


class Context(Generic[State]):
    """The request being served. Annotate a parameter with `Context` or `Context[YourState]` to get it.

    `Context[S]` types `state`, which is what the server's `lifespan` yielded.
    """

    __slots__ = ("_loop", "_progress", "_thread", "request", "server")

    def __init__(self, server: Server, request: Request) -> None:
        self.server = server
        self.request = request
        self._progress: float | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def state(self) -> State:
        """What the server's `lifespan` yielded; None without one."""
        return cast("State", self.server.state)

    @property
    def caller(self) -> Caller:
        """Who asks: `principal`, and what the client says of itself."""
        return self.request.caller

    @property
    def request_id(self) -> Id:
        """The JSON-RPC id of the request."""
        return self.request.id

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The HTTP headers of the request, names in lower case; empty over other transports."""
        return self.request.headers or {}

    # -- telling the caller

    def debug(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message of level `debug`; see `log`."""
        self.log("debug", data, logger=logger)

    def info(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message of level `info`; see `log`."""
        self.log("info", data, logger=logger)

    def warning(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message of level `warning`; see `log`."""
        self.log("warning", data, logger=logger)

    def error(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message of level `error`; see `log`."""
        self.log("error", data, logger=logger)

    def log(self, level: t.LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message on the request's stream, if the client wants this level (`notifications/message`).

        The stateless era sends none unless this request asked for them; a session gets all until it sets a level.
        """
        least = self._least_level()
        if least is None or LEVELS.index(level) < LEVELS.index(least):
            return
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=UNSET if logger is None else logger)
        self._notify("notifications/message", params)

    def _least_level(self) -> str | None:
        if not self.request.caller.rules.logs_by_request:
            session = self.request.session
            return (session and session.log_level) or LEVELS[0]
        meta = self.request.params.meta
        return None if meta is UNSET or meta.log_level is UNSET else meta.log_level

    def report_progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how far the request has come, if its caller asked (`notifications/progress`).

        Values that do not grow are not sent: progress must increase with every notification.
        """
        meta = self.request.params.meta
        if meta is UNSET or meta.progress_token is UNSET or (self._progress is not None and done <= self._progress):
            return
        self._progress = done
        params = t.ProgressNotificationParams(
            progress_token=meta.progress_token,
            progress=done,
            total=UNSET if total is None else total,
            message=message if message is not None and self.request.caller.rules.progress_message else UNSET,
        )
        self._notify("notifications/progress", params)

    def _notify(self, method: str, params: Any) -> None:
        """Send on the request's stream, which is the loop's; a plain function runs in a thread."""
        request, message = self.request, encode_notification(method, params)
        if threading.get_ident() == self._thread:
            request.channel.send(request, message)
            return
        with suppress(RuntimeError):  # the server has ended, and the thread goes on
            self._loop.call_soon_threadsafe(request.channel.send, request, message)

    # -- using the server's own features, as this caller

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """Read a resource of this server, as if the caller had asked for it.

        Raises:
            ResourceNotFound: there is none, or the caller may not know of it.
        """
        try:
            return await self.server.resources.read(reading(self.request, uri))
        except PermissionDenied:
            raise ResourceNotFound(uri) from None

    async def list_resources(self, cursor: str | None = None) -> t.ListResourcesResult:
        """One page of this server's resources, as the caller would see it."""
        return await self.server.resources.page(self.request, cursor)

    async def search(self, query: str, limit: int = 20) -> Hits:
        """Search every source and the registered resources; best first, and `cut` says why there may be more."""
        return await self.server.resources.search(self.request, query, limit)


def reading(request: Request, uri: str) -> Request:
    """A `resources/read` on behalf of another request: the same caller and stream, but no progress of its own."""
    meta = request.params.meta
    params = t.ReadResourceRequestParams(
        uri=uri, meta=meta if meta is UNSET else msgspec.structs.replace(meta, progress_token=UNSET)
    )
    return msgspec.structs.replace(
        request, method="resources/read", row=METHODS["resources/read"], params=params, channel=_Stream(request)
    )


class _Stream:
    """The stream of the request that a nested one works for: a transport knows no other."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    @property
    def shared(self) -> bool:
        return self._request.channel.shared

    def send(self, request: Request, message: bytes) -> bool:
        return self._request.channel.send(self._request, message)
