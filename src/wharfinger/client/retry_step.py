"""Sends a failed call again, if that may help and does no harm."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterable
from typing import Any

from msgspec import UnsetType

from wharfinger import types as t
from wharfinger.client.calls import Call, Next
from wharfinger.client.connection import ConnectionManager
from wharfinger.client.retry import is_transient, requested_wait
from wharfinger.errors import ConnectionFailed, ConnectionLost, RemoteError, WharfingerError
from wharfinger.protocol.methods import Method
from wharfinger.protocol.negotiation import supported_in

__all__ = ["READ_METHODS", "RetryStep"]

READ_METHODS = frozenset(
    {
        "completion/complete",
        "ping",
        "prompts/list",
        "resources/directory/read",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "skills/get",
        "skills/list",
        "tasks/get",
        "tasks/result",
        "tools/list",
    }
)
"""Methods that change nothing, so that they may be served twice."""
MAY_BE_OTHER_ERA = frozenset({400, 404, 405})
"""Statuses of HTTP responses that are not messages. They may mean that a different server now answers at this URL."""
MAX_TOOLS = 10_000
"""The maximum number of tools that are remembered as harmless to call twice."""


class RetryStep:
    """Sends calls again that exceeded a limit, whose connection was lost, or whose server has changed its revision.

    If a call exceeds a limit, the server says when to send it again. The client waits that long, if this is at most
    `Retry.max_delay` and within the call's timeout, up to `Retry.attempts` times. In the other cases, the call is sent
    again once.

    A call whose connection is lost may have been served. It is sent again only if that does no harm: the server cannot
    have acted on it, its method only reads, its caller allowed it, or a trusted server lists its tool as harmless.
    """

    def __init__(self, connections: ConnectionManager) -> None:
        self._connections = connections
        self._retry = connections.settings.retry
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
            await asyncio.sleep(wait)
        await asyncio.sleep(self._retry.initial_delay * random.random())  # noqa: S311
        return await next(call)

    def _wait_before_repeating(self, call: Call, error: WharfingerError, attempt: int) -> float | None:
        """Return the seconds to wait before a call that exceeded a limit is sent again; None if it must not be."""
        seconds, retry = requested_wait(error), self._retry
        if seconds is None or attempt >= retry.attempts or seconds > retry.max_delay or call.retry is False:
            return None
        # The random time is there so that clients do not all return at once.
        wait = seconds + retry.initial_delay * random.random()  # noqa: S311
        remaining = call.left(asyncio.get_running_loop().time())
        return wait if remaining is None or wait < remaining else None

    def learn(self, tools: Iterable[t.Tool]) -> None:
        """Remember which of the listed tools may be called twice, if the server's hints are trusted."""
        if not self._retry.trust_hints:
            return
        for tool in tools:  # in place: copying the set for each page of a long list would be quadratic
            self._harmless.discard(tool.name)
            hints = tool.annotations
            if isinstance(hints, UnsetType) or not (hints.read_only_hint is True or hints.idempotent_hint is True):
                continue
            if len(self._harmless) < MAX_TOOLS:
                self._harmless.add(tool.name)

    async def _should_retry(self, call: Call, error: WharfingerError) -> bool:
        connections, retry = self._connections, self._retry
        if not connections.is_open:
            return False
        if isinstance(error, RemoteError):
            supported, agreed = supported_in(error), connections.agreed
            if supported is None or agreed is None or not retry.attempts:
                return False
            # Some servers refuse a revision that they list as their own: the request is worth a second attempt.
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
