"""The way to another server: one client, opened when it is needed, and left alone for a while after it failed.

Refuses to know what is asked. What goes wrong becomes an error that a caller here may read.
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
from wharfinger.transports.background import retrieve

__all__ = ["UpstreamClient", "UpstreamUnreachable"]

log = logging.getLogger("wharfinger.sources.upstream_server")

T = TypeVar("T")

REST, LONGEST_REST = 1.0, 60.0
"""Seconds for which a server that failed is not asked: twice as long each time, up to a minute."""
AT_ONCE = 64
"""Questions on their way; others wait. It is also what ends a circle of servers that publish each other."""
TOLD = 300
"""Characters of another server's words that are passed on."""
DOWN = (ConnectionFailed, ConnectionLost, RequestTimeout, NotMCP, UnsupportedRevision)


class UpstreamUnreachable(InternalError):
    """The other server cannot be asked now; the message says which one, and why."""


class UpstreamClient:
    """Asks the server behind `make`, which is called `name` in errors. Belongs to one loop between two `close`."""

    def __init__(self, name: str, make: Callable[[], Client]) -> None:
        self.down = ""
        """Why it cannot be asked; empty while it can, or as long as nobody has tried."""
        self.turned: Callable[[], None] | None = None
        """Called when it cannot be asked any more, and when it can be again: `down` says which."""
        self.closed = False
        """Whether it is not to be asked any more."""
        self.opened = False
        self._name = name
        self._make = make
        self._client: Client | None = None
        self._opening: asyncio.Task[Client] | None = None
        self._places = asyncio.Semaphore(AT_ONCE)
        self._rest = REST
        self._until = 0.0

    async def ask(self, call: Callable[[Client], Awaitable[T]], uri: str = "") -> T:
        """What the call of the client returns.

        Raises:
            ResourceNotFound: it has no resource of this URI.
            InvalidArgument: it refuses what is asked, in its words.
            Unreachable: it cannot be reached, or could not a moment ago.
            InternalError: it failed.
        """
        if self.closed or (self.down and time.monotonic() < self._until):
            raise self._unreachable()
        try:
            async with self._places:
                answer = await call(await self.client())
        except DOWN as error:
            self.failed(error)
            raise self._unreachable() from None
        except RemoteError as error:
            self.works()
            raise self._told(error, uri) from None
        except WharfingerError as error:
            raise InternalError(f"{self._name} gives no answer that can be used: {_brief(error)}") from None
        self.works()
        return answer

    async def client(self) -> Client:
        """The client, opened: once for all who wait, whichever of them goes away meanwhile."""
        if self.opened and self._client is not None:
            return self._client
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(retrieve)
        return await asyncio.shield(self._opening)

    async def _open(self) -> Client:
        client = self._client = self._make()
        await client.open()
        self.opened = True
        return client

    async def close(self) -> None:
        """Close the client; the next question opens another one."""
        self.closed = True
        opening, self._opening = self._opening, None
        client, self._client = self._client, None
        self.opened, self.down, self._rest = False, "", REST
        self._places = asyncio.Semaphore(AT_ONCE)  # the next start may be in another loop
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.wait((opening,))
        if client is not None:
            with contextlib.suppress(WharfingerError):
                await client.close()

    def failed(self, error: WharfingerError) -> None:
        """Take note of an error, which may say that the server cannot be reached."""
        if not isinstance(error, DOWN):
            return
        was = self.down
        self._rest = min(LONGEST_REST, self._rest * 2) if was else REST
        self.down, self._until = _brief(error), time.monotonic() + self._rest
        if not was:
            log.warning("%s cannot be reached: %s", self._name, self.down)
            self._tell()

    def works(self) -> None:
        """The server has answered."""
        was, self.down, self._rest = self.down, "", REST
        if was:
            log.info("%s is reached again", self._name)
            self._tell()

    def _tell(self) -> None:
        if self.turned is not None:
            self.turned()

    def _unreachable(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(f"{self._name} cannot be reached: {self.down or 'this server ends.'}")

    def _told(self, error: RemoteError, uri: str) -> WharfingerError:
        if isinstance(error, RemoteResourceNotFound):
            return ResourceNotFound(uri)
        said = f"{self._name} says: {_brief(error.message or 'no reason')}"
        return InvalidArgument(said) if isinstance(error, RemoteInvalidParams) else InternalError(said)


def _brief(error: WharfingerError | str) -> str:
    """The beginning of another's words, in one line without control characters and secrets."""
    text = redacted_text(" ".join(str(error)[: 4 * TOLD].split()))
    text = "".join(character for character in text if character.isprintable())
    return text if len(text) <= TOLD else text[: TOLD - 1] + "…"
