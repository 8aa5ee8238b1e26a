"""The shapes at which layers meet: what a transport serves, and the ways back and forth between the two ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger.errors import WharfingerError
from wharfinger.protocol.handshake import SendNotification, Session
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import Channel, Request, ResultMeta
from wharfinger.protocol.revisions import Revision
from wharfinger.types import Implementation, ServerCapabilities

__all__ = [
    "MAX_AUTH_RETRIES",
    "Authorize",
    "Channel",
    "Fetch",
    "Fetched",
    "Handler",
    "Link",
    "LinkEvents",
    "Notified",
    "SendNotification",
    "Service",
    "Store",
    "Verify",
]

Handler = Callable[[Request], Awaitable[Any]]
"""Serves one method: the result is a struct of `types`, or `msgspec.Raw` holding a JSON object; era-free either way."""

Notified = Callable[[Session | None, Any], None]
"""Takes one notification of the client: its session, if there is one, and its decoded params. Must not wait."""

Verify = Callable[[Mapping[bytes, bytes]], str]
"""HTTP headers (lower-case names) to a principal; raises `auth.Refused` to answer 401 or 403."""


class Service(Protocol):
    """What a transport serves: a mapping from method to handler, with identity and capabilities.

    Where it also has `mirrors`, a mapping from the name of a tool to its `Mirror`s, HTTP checks the `Mcp-Param-…`
    headers of its calls by them (2026-07-28, `x-mcp-header`).

    A server is one; so is a gateway. A method that is not in `handlers` is not found, so that the mapping alone says
    which capabilities are declared.
    """

    @property
    def info(self) -> Implementation: ...
    @property
    def instructions(self) -> str | None: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def notified(self) -> Mapping[str, Notified]: ...
    @property
    def stamps(self) -> ResultMeta: ...

    def capabilities(self, rules: Revision) -> ServerCapabilities:
        """What is declared to a caller of this revision."""
        ...

    async def start(self, holder: object = None) -> None:
        """Enter the lifespan; does nothing the second time. It stays open until it is closed for every holder."""
        ...

    def drain(self) -> None:
        """End every long request with its final result; nothing new is to come."""
        ...

    async def close(self, holder: object = None) -> None:
        """Leave the lifespan, unless another holder still needs it; does nothing the second time."""
        ...


class Store(Protocol):
    """What must outlive a request: bytes by key, each with an end of its own. Keys are text, and in its order.

    Every method may raise StoreUnusable. `shared` says whether other processes may use the same one.
    """

    shared: bool

    async def get(self, key: str) -> bytes | None:
        """The value of a key; None where there is none, or it has expired."""
        ...

    async def put(
        self, key: str, value: bytes, *, expires: float | None = None, instead_of: bytes | UnsetType | None = UNSET
    ) -> bool:
        """Set a key, until `expires` (seconds since 1970; None: for ever). It is kept when this returns.

        With `instead_of` only where that is its value now (None: where it has none); False where it was not set.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove a key; nothing happens where there is none."""
        ...

    async def scan(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """At most `limit` keys that begin with `prefix`, in order, behind the key `after`, with their values."""
        ...

    async def usage(self, prefix: str) -> tuple[int, int]:
        """How many keys begin with `prefix`, and the bytes of their values."""
        ...

    async def close(self) -> None:
        """Let go of files and threads; the next use takes them again."""
        ...


class Link(Protocol):
    """A client's way to a server."""

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None,
        notified: Callable[[Message], None] | None = None,
    ) -> Message:
        """Send a request and wait for its answer; cancelling the waiting task cancels the request.

        Raises:
            ConnectionLost: the connection ended first.
            RequestTimeout: no answer in time.
        """
        ...

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        ...

    async def close(self) -> None:
        """End the connection; what waits fails with ConnectionLost. Does nothing the second time."""
        ...


class LinkEvents(msgspec.Struct):
    """What to call with what a link reports beside the answers to requests. The link gets it when it is made."""

    answer: Callable[[Message], Awaitable[Any]] | None = None
    """Answers a request of the server (handshake era); without it the server gets an error."""
    notified: Callable[[Link, Message], None] = lambda link, message: None
    """A notification came that belongs to no request."""
    missed: Callable[[Link], None] = lambda link: None
    """Such notifications may have been lost on their way."""
    lost: Callable[[Link, WharfingerError], None] = lambda link, error: None
    """The connection ended, whoever ended it; called once."""


class Fetched(msgspec.Struct, frozen=True):
    """One HTTP answer: the status, headers by lower-case name (repeated ones joined by `, `), the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Fetch(Protocol):
    """One small HTTP exchange with a bound on its time and its body; a redirect is an answer, and is not followed."""

    async def __call__(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Fetched:
        """Ask, and return what was answered, whatever its status.

        Raises:
            ConnectionFailed: there was no answer, or none within the bounds, or the address may not be asked.
        """
        ...


class Authorize(Protocol):
    """What gets a client in: headers for its HTTP requests, and what to do where they are refused."""

    async def headers(self, url: str) -> Mapping[str, str]:
        """The headers that go with a request to this URL, such as `Authorization`; empty where there are none yet.

        Raises:
            NotAuthorized: what there was has ended and cannot be renewed.
        """
        ...

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """A request got 401 or 403 with these headers (lower-case names); `sent` is what `headers` gave for it.

        Returns True if the caller should get `headers` again and repeat the request, at most `MAX_AUTH_RETRIES` times.
        May wait for a person: pause the request's deadline meanwhile.

        Raises:
            NotAuthorized: getting in failed; says at which step and what to do.
        """
        ...


MAX_AUTH_RETRIES = 3
"""How often one request is sent again after `Authorize.refused` (2025-11-25, authorization: few retries)."""
