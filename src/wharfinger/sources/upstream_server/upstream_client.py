"""Requests to another server: one client, opened when it is needed.

After a failure, requests fail immediately, and a ping is sent in the background, less and less often, until the server
answers (`protocol.breaker`). Failures become errors that callers of this server may read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from wharfinger.client import Client
from wharfinger.content.redaction import redacted_text
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InternalError,
    InvalidArgument,
    NotMCP,
    RemoteError,
    RemoteInvalidParams,
    RemoteResourceNotFound,
    RequestTimeout,
    ResourceNotFound,
    UnsupportedRevision,
    WharfingerError,
)
from wharfinger.protocol.breaker import Breaker
from wharfinger.transports.background import retrieve
from wharfinger.upstreams.upstream import UpstreamUnreachable

__all__ = ["UpstreamClient"]

log = logging.getLogger("wharfinger.sources.upstream_server")

T = TypeVar("T")

RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
"""The first and the longest delay before an unreachable server is pinged. Each failure doubles it."""
PING_SECONDS = 10.0
"""Timeout of a ping."""
MAX_REQUESTS = 64
"""Maximum number of requests in flight; others wait. This also stops servers that publish each other in a circle."""
MAX_MESSAGE_LENGTH = 300
"""Maximum number of characters of another server's error message that are passed on."""
CLOSING = "this server is closing."
UNREACHABLE_ERRORS = (ConnectionFailed, ConnectionLost, RequestTimeout, NotMCP, UnsupportedRevision)


class UpstreamClient:
    """Calls a server through the client that `make()` returns. Use it in one event loop until it is closed.

    `name` is the server's name in errors. `on_state` is called when the server becomes unreachable or reachable again:
    see `down_reason`.
    """

    def __init__(self, name: str, make: Callable[[], Client], on_state: Callable[[], None]) -> None:
        self.closed = False
        """Whether calls are refused."""
        self.opened = False
        self._name = name
        self._make = make
        self._on_state = on_state
        self._client: Client | None = None
        self._opening: asyncio.Task[Client] | None = None
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._breaker = Breaker(time.monotonic, initial_delay=RETRY_SECONDS, max_delay=MAX_RETRY_SECONDS)
        self._pinging: asyncio.Task[None] | None = None

    @property
    def down_reason(self) -> str:
        """Why the server cannot be reached; empty while it can be, or before the first attempt."""
        return self._breaker.reason

    async def call(self, request: Callable[[Client], Awaitable[T]], uri: str = "") -> T:
        """Make a request with the client, and return its result.

        Raises:
            ResourceNotFound: the server has no resource with this URI.
            InvalidArgument: the server refuses the request; the message is its own.
            UpstreamUnreachable: the server cannot be reached, or could not be reached a moment ago.
            InternalError: the request failed, or its result cannot be used.
        """
        if self.closed or self._breaker.down:
            raise self._unreachable()
        began = time.monotonic()
        try:
            async with self._slots:
                result = await request(await self.client())
        except UNREACHABLE_ERRORS as error:
            self.failed(error, began)
            raise self._unreachable() from None
        except RemoteError as error:
            self.succeeded()
            if isinstance(error, RemoteResourceNotFound):
                raise ResourceNotFound(uri) from None
            message = f"{self._name} says: {_brief(error.message or 'no reason')}"
            raise (InvalidArgument if isinstance(error, RemoteInvalidParams) else InternalError)(message) from None
        except WharfingerError as error:
            raise InternalError(f"{self._name} sent a result that cannot be used: {_brief(error)}") from None
        self.succeeded()
        return result

    async def client(self) -> Client:
        """Return the open client. Concurrent calls share one attempt to open it. Cancelling a call does not stop it.

        Raises what `Client.open` raises, and ConnectionLost if this is closed, or was closed meanwhile.
        """
        if self.closed:
            raise ConnectionLost(CLOSING, unsent=True)
        if self.opened and self._client is not None:
            return self._client
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(retrieve)
        opening = self._opening
        await asyncio.wait((opening,))
        if opening.cancelled():
            raise ConnectionLost(CLOSING, unsent=True)
        return opening.result()

    async def _open(self) -> Client:
        client = self._client = self._make()
        await client.open()
        self.opened = True
        return client

    async def close(self) -> None:
        """Close the client. Once `closed` is set to False again, the next call opens a new one."""
        self.closed = True
        opening, self._opening = self._opening, None
        client, self._client = self._client, None
        pinging, self._pinging = self._pinging, None
        self.opened = False
        self._breaker.succeeded()
        self._slots = asyncio.Semaphore(MAX_REQUESTS)  # the next start may be in another loop
        for task in (opening, pinging):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait((task,))
        if client is not None:
            with contextlib.suppress(WharfingerError):
                await client.close()

    def failed(self, error: WharfingerError, began: float | None = None) -> None:
        """Record an error of a request that began at `began`, if the error means that the server cannot be reached."""
        if self.closed or not isinstance(error, UNREACHABLE_ERRORS):
            return
        was_down = self._breaker.down
        self._breaker.failed(_brief(error) or type(error).__name__, began)
        if not was_down:
            log.warning("%s cannot be reached: %s", self._name, self.down_reason)
            if self._pinging is not None:  # it may still wait, although the server was reachable in between
                self._pinging.cancel()
            self._pinging = asyncio.get_running_loop().create_task(self._keep_pinging())
            self._pinging.add_done_callback(retrieve)
            self._on_state()

    def succeeded(self) -> None:
        """Record that the server answered."""
        if self._breaker.down:
            self._breaker.succeeded()
            log.info("%s is reachable again", self._name)
            self._on_state()

    async def _keep_pinging(self) -> None:
        """Ping the server until it answers."""
        while self._breaker.down:
            await asyncio.sleep(self._breaker.probe_in())
            if not self._breaker.try_probe():
                continue
            began = time.monotonic()
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await (await self.client()).ping()
            except RemoteError:  # it answers
                self.succeeded()
            except (WharfingerError, TimeoutError) as error:
                self._breaker.failed(_brief(str(error)) or "it does not answer", began)
            else:
                self.succeeded()

    def _unreachable(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(f"{self._name} cannot be reached: {self.down_reason or CLOSING}")


def _brief(error: WharfingerError | str) -> str:
    """Return the start of another server's message as one line, without control characters and secrets."""
    text = redacted_text(" ".join(str(error)[: 4 * MAX_MESSAGE_LENGTH].split()))
    text = "".join(character for character in text if character.isprintable())
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[: MAX_MESSAGE_LENGTH - 1] + "…"
