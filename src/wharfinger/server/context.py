"""What a handler may ask of the request that it serves; one object per call, made only for handlers that take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, cast

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.protocol.exchange import Caller, Request, notify
from wharfinger.protocol.jsonrpc import Id

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from wharfinger.server.app import Server
    from wharfinger.server.source import Hit

    State = TypeVar("State", default=Any)
else:
    from typing import TypeVar

    State = TypeVar("State")

__all__ = ["Context"]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Syslog severities, least first (RFC 5424)."""


class Context(Generic[State]):
    """The request being served. Annotate a parameter with `Context` or `Context[YourState]` to get it.

    `Context[S]` types `state`, which is what the server's `lifespan` yielded.
    """

    __slots__ = ("_progress", "request", "server")

    def __init__(self, server: Server, request: Request) -> None:
        self.server = server
        self.request = request
        self._progress: float | None = None

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
        notify(self.request, "notifications/message", params)

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
        notify(self.request, "notifications/progress", params)

    # -- using the server's own features, as this caller

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """Read a resource of this server, as if the caller had asked for it.

        Raises:
            ResourceNotFound: there is none, or the caller may not know of it.
        """
        return await self.server.resources.read(self._derived("resources/read", t.ReadResourceRequestParams(uri=uri)))

    async def list_resources(self, cursor: str | None = None) -> t.ListResourcesResult:
        """One page of this server's resources, as the caller would see it."""
        return await self.server.resources.page(cursor)

    async def search(self, query: str, limit: int = 20) -> list[Hit]:
        """Search every source and the registered resources; best first."""
        return await self.server.resources.search(self.request, query, limit)

    def _derived(self, method: str, params: Any) -> Request:
        request = self.request
        derived = Request(request.id, method, request.row, params, request.raw_params, request.caller, request.session)
        derived.channel = request.channel
        derived.headers = request.headers
        return derived
