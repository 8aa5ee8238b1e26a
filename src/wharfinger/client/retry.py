"""Decides which calls a client sends a second time; `Retry` also configures how it reconnects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UnsetType

from wharfinger import types as t
from wharfinger.client.calls import Call, Next
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    NotAuthorized,
    NotMCP,
    RemoteError,
    UnsupportedRevision,
    WharfingerError,
)
from wharfinger.protocol.methods import Method
from wharfinger.protocol.negotiation import supported_in

if TYPE_CHECKING:
    from wharfinger.client.connection import ConnectionManager

__all__ = ["NEVER", "READ_METHODS", "Retry", "RetryStep", "is_transient", "wait_named_by"]

READ_METHODS = frozenset(
    {
        "completion/complete",
        "ping",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
"""Methods that change nothing, so that they may be served twice."""

UNAVAILABLE_STATUSES = frozenset({502, 503, 504})
"""HTTP statuses of a proxy that cannot reach its server at the moment."""
MAY_BE_OTHER_ERA = frozenset({400, 404, 405})
"""HTTP statuses without a message, which may mean that a different server now answers at this URL."""
MAX_SECONDS = 1e9
"""A longer wait is as good as none."""
TOO_MANY_REQUESTS = 429
"""The HTTP status of a request that was not served because of a limit (RFC 6585 §4)."""
MAX_TOOLS = 10_000
"""Tools to remember as harmless to call twice."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How a client recovers from a lost connection: how often it reconnects, and what it sends again.

    Before the n-th attempt in a row it waits for a random time of at most `initial_delay * 2**n` seconds, and at most
    `max_delay`, so that the clients of one server do not all reconnect at once.
    """

    attempts: int = 5
    """Attempts to connect that one call waits for; 0 never connects again."""
    watch_attempts: int = 50
    """Failures in a row after which a watch ends with the error; about ten minutes with the other defaults."""
    initial_delay: float = 0.1
    max_delay: float = 30.0
    reset_after: float = 10.0
    """Seconds that a connection must last before failures are counted from zero again."""
    heartbeat: float = 60.0
    """Seconds between pings of a server that is silent while something is watched; 0 sends none."""
    retry_reads: bool = True
    """Whether requests that only read are sent again after their connection was lost."""
    trust_hints: bool = False
    """Whether to send calls of tools with a read-only or idempotent hint again. Only for servers that you trust."""


NEVER = Retry(attempts=0, watch_attempts=0, retry_reads=False, heartbeat=0)
"""Never connects again, and sends nothing twice."""


def is_transient(error: BaseException) -> bool:
    """Return whether another attempt may succeed.

    It cannot if the server is of the wrong kind, or refuses the credentials.
    """
    if isinstance(error, NotAuthorized | NotMCP | UnsupportedRevision):
        return False
    if isinstance(error, ConnectionFailed):
        return error.status is None or error.status in UNAVAILABLE_STATUSES
    return isinstance(error, ConnectionLost)


def wait_named_by(error: BaseException) -> float | None:
    """Return the seconds after which a server that has not served a request wants it again; None if it names no time.

    A server names them in `retryAfter` of the error's data, a proxy in the header `Retry-After` of a 429.
    """
    seconds: Any = None
    if isinstance(error, RemoteError) and isinstance(error.data, dict):
        seconds = cast("dict[str, Any]", error.data).get("retryAfter")
    elif isinstance(error, ConnectionFailed) and error.status == TOO_MANY_REQUESTS:
        seconds = error.retry_after
    usable = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds <= MAX_SECONDS
    return float(seconds) if usable else None


class RetryStep:
    """Sends a call again: one over a limit later, and one whose connection was lost, or whose server changed its
    revision, once.

    A server over whose limit a call is says when to send it again. The client waits so long, if that is at most
    `Retry.max_delay` and within the call's time, up to `Retry.attempts` times.

    A call whose connection is lost may have been served. It is sent again only if that does no harm: the request never
    left, its method only reads, its caller allowed it, or a trusted server lists its tool as harmless.
    """

    def __init__(self, connections: ConnectionManager) -> None:
        self._connections = connections
        self._settings = connections.settings
        self._harmless: set[str] = set()

    def applies_to(self, row: Method) -> bool:
        """Return True: it applies to every call."""
        return True

    async def __call__(self, call: Call, next: Next) -> Any:
        for attempt in itertools.count():
            try:
                return await next(call)
            except WharfingerError as error:
                wait = self._wait_before_repeating(call, error, attempt)
                if wait is None:
                    if not await self._should_retry(call, error):
                        raise
                    break
            await self._settings.sleep(wait)
        await self._settings.sleep(self._settings.retry.initial_delay * self._settings.random())
        return await next(call)

    def _wait_before_repeating(self, call: Call, error: WharfingerError, attempt: int) -> float | None:
        """Return the seconds to wait before a call that was over a limit is sent again; None if it is not."""
        named, retry = wait_named_by(error), self._settings.retry
        if named is None or attempt >= retry.attempts or named > retry.max_delay or call.retry is False:
            return None
        wait = named + retry.initial_delay * self._settings.random()  # so that all that wait do not come at once
        left = call.left(asyncio.get_running_loop().time())
        return wait if left is None or wait < left else None

    def learn(self, tools: Iterable[t.Tool]) -> None:
        """Remember which of the listed tools may be called twice, if the server's hints are trusted."""
        if not self._settings.retry.trust_hints:
            return
        for tool in tools:  # in place: copying the set for each page of a long list would be quadratic
            self._harmless.discard(tool.name)
            hints = tool.annotations
            if isinstance(hints, UnsetType) or not (hints.read_only_hint is True or hints.idempotent_hint is True):
                continue
            if len(self._harmless) < MAX_TOOLS:
                self._harmless.add(tool.name)

    async def _should_retry(self, call: Call, error: WharfingerError) -> bool:
        connections, retry = self._connections, self._settings.retry
        if not connections.is_open:
            return False
        if isinstance(error, RemoteError):
            supported, agreed = supported_in(error), connections.agreed
            if supported is None or agreed is None or not retry.attempts:
                return False
            # A server may refuse a revision that it lists as its own: the request is worth a second attempt (spec:
            # §2.4).
            return agreed.rules.name in supported or await connections.renegotiate()
        if isinstance(error, ConnectionFailed) and error.status in MAY_BE_OTHER_ERA:
            return await connections.renegotiate()
        if not is_transient(error) or not retry.attempts:
            return False
        if isinstance(error, ConnectionLost) and error.unsent:
            return True
        if call.retry is not None:
            return call.retry
        if call.method == "tools/call":
            return call.params.name in self._harmless
        return retry.retry_reads and call.method in READ_METHODS
