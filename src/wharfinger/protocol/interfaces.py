"""The interfaces between the layers: services, links, stores and authorization."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger.errors import WharfingerError
from wharfinger.protocol.handshake import SendNotification, Session
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import Channel, Request, ResultMeta
from wharfinger.protocol.revisions import Revision
from wharfinger.types import Implementation, ServerCapabilities

if TYPE_CHECKING:
    from wharfinger.protocol.http.headers import HeaderParam
    from wharfinger.protocol.http.rules import HttpRefusal

__all__ = [
    "MAX_AUTH_RETRIES",
    "Access",
    "AsgiApp",
    "AsgiMessage",
    "Authenticator",
    "Authorize",
    "Authorizer",
    "Channel",
    "Decision",
    "Fetch",
    "Handler",
    "HttpResponse",
    "Link",
    "LinkEvents",
    "NotificationHandler",
    "SendNotification",
    "Service",
    "Store",
    "ToolHeaders",
    "Verify",
]

Handler = Callable[[Request], Awaitable[Any]]
"""Serves one method. The result is a struct of `types` or a JSON object as `msgspec.Raw`, the same in both eras."""

NotificationHandler = Callable[[Session | None, Any], None]
"""Handles a notification of a client: gets the session, or None without one, and the decoded params. Must not block."""

Verify = Callable[[Mapping[bytes, bytes]], Principal | Awaitable[Principal]]
"""Returns the principal for HTTP headers (lower-case names), or an awaitable of it.

Raises `auth.HttpRefusal` to answer 401 or 403.
"""


AsgiMessage = MutableMapping[str, Any]
AsgiApp = Callable[
    [AsgiMessage, Callable[[], Awaitable[AsgiMessage]], Callable[[AsgiMessage], Awaitable[None]]], Awaitable[None]
]
"""An ASGI application, such as one of FastAPI."""


class Authenticator(Protocol):
    """Finds out who sends an HTTP request, and says how to get a token (see `auth.TokenAuth`).

    `url` is the URL of the MCP endpoint as clients know it.
    """

    def find_verified(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Return the principal of credentials that were checked before, and need no check now; None otherwise."""
        ...

    def authenticate(self, method: str, url: str, headers: Mapping[bytes, bytes]) -> Principal | Awaitable[Principal]:
        """Return the principal of a request with these headers (lower-case names), or an awaitable of it.

        Raises:
            HttpRefusal: 401, 403 or 503.
        """
        ...

    def insufficient_scope(self, url: str, scopes: Sequence[str]) -> HttpRefusal:
        """Return the 403 for an operation that needs these scopes, with a challenge that names them."""
        ...

    def metadata(self, url: str) -> bytes:
        """Return the metadata of this resource (RFC 9728 §2) as JSON."""
        ...


class Decision(NamedTuple):
    """Whether an action is allowed, and why."""

    allowed: bool
    rule: str = ""
    """The rule that decided, for the record; empty if none did. A policy refuses an action to which no rule applies."""
    missing_scopes: tuple[str, ...] = ()
    """All scopes that the action needs, if the caller lacks only scopes and may be told so."""


class Access(Protocol):
    """The permissions of one principal. They depend on rules alone, never on whether the target exists.

    An action is `read` (which includes lists, completion, search and watching), `call`, `prompt`, `query` or `inspect`.
    A target is a URI or, for `call` and `prompt`, `tool:NAME`, `prompt:NAME`, or `method:NAME` for a method of an
    extension.
    """

    @property
    def key(self) -> str:
        """A digest of what the decisions depend on. Principals with equal keys may do the same and share caches."""
        ...

    def decide(self, action: str, target: str) -> Decision:
        """Decide about one action. A URI that is not canonical is refused."""
        ...

    def allows(self, action: str, target: str) -> bool:
        """Return whether `decide` allows the action. Called for each entry of a list."""
        ...

    def may_read_below(self, prefix: str) -> bool:
        """Return whether any URI that begins with `prefix` may be allowed; True if that is not known.

        Templates, directories and sources below which nothing is allowed are left out of lists.
        """
        ...

    def reads_all_below(self, prefix: str) -> bool:
        """Return whether every URI that begins with `prefix` is allowed; False if that is not known.

        If so, facts about a directory as a whole, such as its date, reveal nothing.
        """
        ...

    def is_public(self, uri: str) -> bool:
        """Return whether every caller may read a URI, so that shared caches may keep it."""
        ...


class Authorizer(Protocol):
    """Decides what each principal may do: a `policy.Policy`, or an adapter to another engine."""

    @property
    def version(self) -> str:
        """A digest that changes with the rules. Cursors and request states of another version are refused."""
        ...

    def access(self, principal: Principal) -> Access:
        """Return the access of a principal. Called for each request, so remember the result."""
        ...


class Service(Protocol):
    """The object that a transport serves, such as a `Server`: a handler for each method, identity and capabilities.

    A method that is not in `handlers` is not found. A service may also have the members of `ToolHeaders`.
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
    def notification_handlers(self) -> Mapping[str, NotificationHandler]: ...
    @property
    def result_meta(self) -> ResultMeta: ...

    def capabilities(self, rules: Revision) -> ServerCapabilities:
        """Return the capabilities that are declared to a caller of this revision."""
        ...

    async def start(self, holder: object = None) -> None:
        """Enter the lifespan, if it is not open. It stays open until every `holder`, such as a link, has closed it."""
        ...

    def drain(self) -> None:
        """End every long request with its final result, before the transport stops."""
        ...

    async def close(self, holder: object = None) -> None:
        """Leave the lifespan, unless another holder still needs it."""
        ...


@runtime_checkable
class ToolHeaders(Protocol):
    """The members of a `Service` with which HTTP checks the `Mcp-Param-…` headers of calls (2026-07-28, x-mcp-header).

    Without them, these headers are not checked.
    """

    @property
    def header_params(self) -> Mapping[str, tuple[HeaderParam, ...]]:
        """The arguments that headers repeat, by the name of the tool."""
        ...

    def hides_tool(self, request: Request) -> bool:
        """Return whether the caller must not learn that the tool of this call exists.

        If so, the headers of the call are not checked.
        """
        ...


class Store(Protocol):
    """A key-value store: string keys and values of bytes, each with its own expiry.

    Every method may raise StoreUnusable. `shared` says whether other processes may use the same store.
    """

    shared: bool

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, or None if the key is missing or has expired."""
        ...

    async def put(
        self, key: str, value: bytes, *, expires: float | None = None, instead_of: bytes | UnsetType | None = UNSET
    ) -> bool:
        """Set a key until `expires` (seconds since 1970; None for no expiry). The value is stored when this returns.

        If `instead_of` is given, the key is set only if its value now is `instead_of`; None stands for a missing key.
        Returns whether the key was set.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove a key, if it exists."""
        ...

    async def scan(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """Return at most `limit` keys with this prefix and their values, in order, starting after the key `after`."""
        ...

    async def usage(self, prefix: str) -> tuple[int, int]:
        """Return the number of keys with this prefix, and the bytes of their values."""
        ...

    async def close(self) -> None:
        """Release files and threads. The next use opens them again."""
        ...


class Link(Protocol):
    """A client's connection to a server."""

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None,
        on_notification: Callable[[Message], None] | None = None,
    ) -> Message:
        """Send a request and wait for its response; cancelling the waiting task cancels the request.

        `on_notification` is called with each notification that belongs to the request.

        Raises:
            ConnectionLost: the connection ended first.
            RequestTimeout: there was no response in time.
        """
        ...

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        ...

    async def close(self) -> None:
        """End the connection; waiting requests fail with ConnectionLost. Does nothing the second time."""
        ...


class LinkEvents(msgspec.Struct):
    """Callbacks for the events of a link, except for the answers to requests. Passed to the link when it is created."""

    on_request: Callable[[Message], Awaitable[Any]] | None = None
    """Answers a request of the server (handshake era); without it the server gets an error."""
    on_notification: Callable[[Link, Message], None] = lambda link, message: None
    """Called with each notification that belongs to no request."""
    on_missed: Callable[[Link], None] = lambda link: None
    """Called when notifications that belong to no request may have been lost."""
    on_lost: Callable[[Link, WharfingerError], None] = lambda link, error: None
    """Called once, when the connection has ended, whichever side ended it."""


class HttpResponse(msgspec.Struct, frozen=True):
    """One HTTP response: the status, headers by lower-case name (repeated ones joined by `, `), the whole body.

    `url` is the URL that answered, after redirects; empty if it is not known.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str = ""


class Fetch(Protocol):
    """Sends one HTTP request, limited in time and in the size of the response. Does not follow redirects."""

    async def __call__(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        """Send a request and return the response, of any status.

        Raises:
            ConnectionFailed: there was no response within the limits, or the address is not allowed.
        """
        ...


class Authorize(Protocol):
    """Authorizes a client: provides headers for its HTTP requests, and reacts when they are refused."""

    async def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers for a request to this URL, such as `Authorization`, or an empty mapping before sign-in.

        Raises:
            NotAuthorized: the credentials have expired and cannot be renewed.
        """
        ...

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """Handle a 401 or 403 with these headers (lower-case names); `sent` is what the method `headers` returned.

        Returns True if the request should be repeated with new headers, at most `MAX_AUTH_RETRIES` times. This may wait
        for a person: pause the request's deadline in the meantime.

        Raises:
            NotAuthorized: authorization failed; the message says at which step, and what to do.
        """
        ...


MAX_AUTH_RETRIES = 3
"""The maximum number of repetitions of a request after `Authorize.refused` (2025-11-25, authorization: few retries)."""
