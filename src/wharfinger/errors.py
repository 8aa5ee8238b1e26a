"""The errors of the package; some modules add subclasses. The numbers are the JSON-RPC error code and the HTTP status.

    WharfingerError
    ├── ProtocolError                      local: a request is refused or fails, and the peer gets the error
    │   ├── ParseError                     -32700  400
    │   ├── InvalidRequest                 -32600  400
    │   │   └── InsufficientScope          -32600  403   the caller's token lacks scopes
    │   ├── MethodNotFound                 -32601  404
    │   ├── InvalidParams                  -32602  200
    │   │   └── InvalidArgument            -32602  200   raised by handlers
    │   ├── InternalError                  -32603  200
    │   │   ├── HandlerFailed              -32603  200   a handler failed; for tools a result with `isError`
    │   │   └── Overloaded                 -32603  503
    │   │       └── RateLimited            -32603  429   a limit of the caller is reached
    │   ├── HeaderMismatch                 -32020  400
    │   ├── MissingClientCapability        -32021  400
    │   ├── UnsupportedVersion             -32022  400
    │   ├── ResourceNotFound               -32602  200   raised by handlers; -32002 in the handshake era
    │   ├── PermissionDenied               -32602  200   raised by handlers; a ResourceNotFound for a resource
    │   ├── URLElicitationRequired         -32042  200   raised by handlers; a request for input in the stateless era
    │   └── NoAnswer                       -32603  200   also a ToolError: the client gave no usable answer
    │       ├── Declined                   -32603  200   the user said no
    │       └── Cancelled                  -32603  200   the user closed the question
    ├── ToolError                          a tool's own failure: a result with `isError`, on both ends
    ├── RemoteError                        remote: the peer answered a request with an error
    │   ├── RemoteMethodNotFound           also a MethodNotFound
    │   ├── RemoteInvalidParams            also an InvalidParams
    │   └── RemoteResourceNotFound         also a ResourceNotFound
    ├── InvalidResponse                    remote: the peer's response breaks the protocol
    │   └── NotVerified                    remote: a file of a skill does not match its manifest
    ├── NotMCP                             remote: the other end does not speak MCP                   exit code 3
    ├── UnsupportedRevision                remote: no revision in common                              exit code 3
    ├── ConnectionFailed (ConnectionError) the server could not be reached or started                 exit code 3
    │   └── NotAuthorized                  the server requires credentials, or rejects those it got   exit code 4
    ├── ConnectionLost (ConnectionError)   the connection ended while a request waited                exit code 3
    ├── RequestTimeout (TimeoutError)      no response in time                                        exit code 1
    ├── StoreUnusable                      the file of a store cannot be opened, read or written      exit code 1
    └── MissingExtra (ImportError)         an optional dependency is not installed                    exit code 1

If a handler raises a `ProtocolError`, the client gets it, unless its `remote` is true: the messages of another server
are not passed on. Every other exception becomes an `InternalError` without its text. For tools, `ToolError`,
`InvalidArgument`, `PermissionDenied` and `ResourceNotFound` become a result with `isError` and the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

__all__ = [
    "Cancelled",
    "ConnectionFailed",
    "ConnectionLost",
    "Declined",
    "HandlerFailed",
    "HeaderMismatch",
    "InsufficientScope",
    "InternalError",
    "InvalidArgument",
    "InvalidParams",
    "InvalidRequest",
    "InvalidResponse",
    "MethodNotFound",
    "MissingClientCapability",
    "MissingExtra",
    "NoAnswer",
    "NotAuthorized",
    "NotMCP",
    "NotVerified",
    "Overloaded",
    "ParseError",
    "PermissionDenied",
    "ProtocolError",
    "RateLimited",
    "RemoteError",
    "RemoteInvalidParams",
    "RemoteMethodNotFound",
    "RemoteResourceNotFound",
    "RequestTimeout",
    "ResourceNotFound",
    "StoreUnusable",
    "ToolError",
    "URLElicitationRequired",
    "UnsupportedRevision",
    "UnsupportedVersion",
    "WharfingerError",
    "remote_error",
]


class WharfingerError(Exception):
    """Base class of all errors of this package; `str()` says what is wrong and what to do about it.

    `exit_code` is the exit code of the command line; `remote` is true if the other end caused or reported the error.
    """

    exit_code: ClassVar[int] = 1
    remote: ClassVar[bool] = False


class ProtocolError(WharfingerError):
    """A request was refused or failed, and the peer gets this error (JSON-RPC 2.0, §5.1).

    The class has defaults for `code` and `http_status`, which an instance can override. `data` is any JSON value or
    None. `id` is the id of the message that caused the error, None if it could not be read.
    """

    code: int = -32603
    http_status: int = 200
    id: str | int | None = None
    message: str
    data: Any

    def __init__(
        self,
        message: str = "",
        *,
        data: Any = None,
        code: int | None = None,
        http_status: int | None = None,
        id: str | int | None = None,
    ) -> None:
        self.message = message or self.default_message
        self.data = data
        if code is not None:
            self.code = code
        if http_status is not None:
            self.http_status = http_status
        if id is not None:
            self.id = id
        Exception.__init__(self, self.message)

    default_message: ClassVar[str] = "The request failed."


class ParseError(ProtocolError):
    """The bytes are not one JSON text in UTF-8 (JSON-RPC 2.0, §5.1)."""

    code = -32700
    http_status = 400
    default_message = "Not valid JSON: send one JSON-RPC 2.0 object in UTF-8."


class InvalidRequest(ProtocolError):
    """Valid JSON, but not a valid JSON-RPC message, or not allowed here (JSON-RPC 2.0, §5.1)."""

    code = -32600
    http_status = 400
    default_message = 'Not a JSON-RPC 2.0 message: send {"jsonrpc": "2.0", "id": …, "method": …, "params": {…}}.'


class InsufficientScope(InvalidRequest):
    """The caller's token lacks scopes (2025-11-25 and 2026-07-28, authorization).

    Over HTTP the caller gets 403 with a challenge that names all `scopes` that the operation needs, so that its client
    can ask the user for a token that has them. `requiredScopes` in `data` has the same names.
    """

    http_status = 403

    def __init__(self, scopes: Sequence[str]) -> None:
        self.scopes = tuple(scopes)
        names = " ".join(self.scopes)
        super().__init__(f"The token needs the scope {names}.", data={"requiredScopes": list(self.scopes)})


class MethodNotFound(ProtocolError):
    """The method is unknown in this revision, or needs a server capability that is not declared."""

    code = -32601
    http_status = 404
    default_message = "Method not found: call only what the server's capabilities declare."


class InvalidParams(ProtocolError):
    """The params do not match the method. Raise it with `http_status=400` if fields of `_meta` are missing."""

    code = -32602
    default_message = "Invalid params: send those that the specification defines for this method."


class InvalidArgument(InvalidParams):
    """Raised by handlers: an argument cannot be used. The caller gets the message."""

    default_message = "Invalid argument."


class InternalError(ProtocolError):
    """An error of the server itself. The message must not contain the text of the underlying exception."""

    code = -32603
    default_message = "Internal error: the server's log has the details."


class HandlerFailed(InternalError):
    """A handler raised an unexpected exception, or took too long.

    The caller of a tool gets a result with `isError` instead, because a model can react to it.
    """


class Overloaded(InternalError):
    """A limit of the server is reached. Nothing was done: the same request may be sent again later."""

    http_status = 503
    default_message = "The server is overloaded: try again later."


class RateLimited(Overloaded):
    """A limit of the caller is reached. Nothing was done: send the request again after `retry_after` seconds.

    Over HTTP the caller gets 429 with `Retry-After`. `retryAfter` in `data` has the same number.
    """

    http_status = 429

    def __init__(self, message: str, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(message, data={"retryAfter": retry_after})


class HeaderMismatch(ProtocolError):
    """An HTTP header is missing, malformed or differs from the body (2026-07-28, Streamable HTTP)."""

    code = -32020
    http_status = 400
    default_message = "The request's headers do not match its body: send both with the same values."


class MissingClientCapability(ProtocolError):
    """The request needs a capability that its client did not declare (2026-07-28, error codes).

    `required` is a ClientCapabilities object, such as `{"sampling": {}}`.
    """

    code = -32021
    http_status = 400

    def __init__(self, required: Mapping[str, Any], message: str = "") -> None:
        names = ", ".join(required)
        super().__init__(
            message or f"This request needs a client capability that was not declared: {names}.",
            data={"requiredCapabilities": dict(required)},
        )


class UnsupportedVersion(ProtocolError):
    """The request names a revision that this server does not speak (2026-07-28, error codes)."""

    code = -32022
    http_status = 400

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"Protocol version {requested!r} is not supported: use one of {', '.join(supported)}.",
            data={"supported": list(supported), "requested": requested},
        )


class ResourceNotFound(ProtocolError):
    """Raised by handlers: there is no resource with this URI, or none that the caller may know about.

    `code` is the code of the stateless era. Each response is sent with the code of its revision.
    """

    code = -32602
    uri: str

    near: tuple[str, ...] = ()
    """URIs that may have been meant, the nearest first."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(f"Resource not found: {uri}", data={"uri": uri})

    def suggest(self, uris: Iterable[str]) -> None:
        """Ask in the message whether one of these URIs was meant, instead of those that were suggested before."""
        bare = self.message.removesuffix(self.advice)
        self.near = tuple(uris)
        self.message = bare + self.advice
        self.args = (self.message,)

    @property
    def advice(self) -> str:
        """A suggestion such as `. Did you mean file:///a?`, or an empty string if `near` is empty."""
        return f". Did you mean {' or '.join(self.near)}?" if self.near else ""


class PermissionDenied(ProtocolError):
    """Raised by handlers: the caller may not do this.

    For a resource, the caller gets a `ResourceNotFound`, so that the refusal does not reveal what exists.
    """

    code = -32602
    default_message = "Permission denied."


class ToolError(WharfingerError):
    """A tool failed, with a text for its caller, often a model (tools/call, `isError`).

    Raised by handlers on a server. A client raises it for a result with `isError`, which is then in `result`.
    """

    text: str
    result: Any

    def __init__(self, text: str = "The tool failed.", *, result: Any = None) -> None:
        self.text = text
        self.result = result
        super().__init__(text)


class NoAnswer(ToolError, ProtocolError):
    """A request to the client got no usable answer: an error, nothing in time, or not what was asked for.

    If a tool does not catch it, the tool fails with this text; any other request fails with this error.
    """

    default_message = "The client's answer cannot be used."

    def __init__(self, text: str = "") -> None:
        super().__init__(text or self.default_message)


class Declined(NoAnswer):
    """The user, or a program acting for them, declined (2026-07-28, elicitation: `decline`)."""

    default_message = "The user declined."


class Cancelled(NoAnswer):
    """The user closed the question without an answer (2026-07-28, elicitation: `cancel`)."""

    default_message = "The user cancelled."


class URLElicitationRequired(ProtocolError):
    """Raised by handlers: the user must open a URL before this request can be served, for example to sign in.

    A client of 2025-11-25 gets this error (-32042) and sends the request again after the user has opened the URL. A
    client of 2026-07-28 gets a request to open the URL and sends the original request again. Other clients get an
    error. Pass `elicitation_id` to `Server.elicitation_complete` when the user is done.
    """

    code = -32042

    def __init__(self, message: str, url: str, *, elicitation_id: str | None = None) -> None:
        self.url = url
        self.elicitation_id = elicitation_id
        elicitation = {"mode": "url", "message": message, "url": url, "elicitationId": elicitation_id or url}
        super().__init__(message, data={"elicitations": [elicitation]})


class RemoteError(WharfingerError):
    """The peer answered a request with an error; `code`, `message` and `data` are those of its error."""

    remote = True
    code: int
    message: str
    data: Any

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        Exception.__init__(self, f"{message or 'The server gave no reason'} (error {code})")


class RemoteMethodNotFound(RemoteError, MethodNotFound):
    """The peer does not know the method, or did not declare its capability."""


class RemoteInvalidParams(RemoteError, InvalidParams):
    """The peer refused the params."""


class RemoteResourceNotFound(RemoteError, ResourceNotFound):
    """The peer has no such resource; `uri` is the URI that it named, or empty."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.uri = _uri_of(data) or ""


def _uri_of(data: Any) -> str | None:
    uri = cast("dict[str, object]", data).get("uri") if isinstance(data, dict) else None
    return uri if isinstance(uri, str) else None


_HANDSHAKE_RESOURCE_NOT_FOUND = -32002
_REMOTE: Mapping[int, type[RemoteError]] = {
    _HANDSHAKE_RESOURCE_NOT_FOUND: RemoteResourceNotFound,
    MethodNotFound.code: RemoteMethodNotFound,
    InvalidParams.code: RemoteInvalidParams,
}


def remote_error(code: int, message: str, data: Any = None) -> RemoteError:
    """Return the exception for an error object that a peer sent.

    In the stateless era a missing resource is an "invalid params" error with `data.uri`. The codes of both eras are
    accepted from every peer (2026-07-28, resources).
    """
    if code == InvalidParams.code and _uri_of(data) is not None:
        return RemoteResourceNotFound(code, message, data)
    return _REMOTE.get(code, RemoteError)(code, message, data)


class InvalidResponse(WharfingerError):
    """The peer's response breaks the protocol, for example with a result of the wrong shape, or exceeds a limit."""

    remote = True


class NotVerified(InvalidResponse):
    """A file of a skill does not match the manifest, or the manifest does not list it: the file must not be used."""


class NotMCP(WharfingerError):
    """The other end does not speak MCP: check the URL, or what the command prints on its standard output."""

    exit_code = 3
    remote = True


class UnsupportedRevision(WharfingerError):
    """The two ends have no revision of the protocol in common; `supported` has the revisions of the server."""

    exit_code = 3
    remote = True
    supported: tuple[str, ...]

    def __init__(self, message: str, supported: Sequence[str] = ()) -> None:
        self.supported = tuple(supported)
        super().__init__(message)


class ConnectionFailed(WharfingerError, ConnectionError):
    """The server could not be reached or started; the message names the host, the URL or the command.

    `stderr` has the last lines that a child process wrote there, and is part of `str()`. `status` is the status of an
    HTTP answer that was not a message, else None. `retry_after` is its `Retry-After` in seconds, if it has one.
    """

    exit_code = 3
    stderr: str
    status: int | None = None
    retry_after: int | None = None

    def __init__(self, message: str, *, stderr: str = "") -> None:
        self.stderr = stderr.rstrip()
        super().__init__(f"{message}\n{self.stderr}" if self.stderr else message)


class NotAuthorized(ConnectionFailed):
    """The server requires credentials, or rejects those it got (HTTP 401 and 403)."""

    exit_code = 4
    remote = True


class ConnectionLost(WharfingerError, ConnectionError):
    """The connection ended while a request waited for its response, or before the request could be sent.

    `stderr` has the last lines that a child process wrote there, as in `ConnectionFailed`. `unsent` is true if the
    server cannot have acted on the request.
    """

    exit_code = 3
    stderr: str

    def __init__(
        self, message: str = "The connection to the server is closed.", *, stderr: str = "", unsent: bool = False
    ) -> None:
        self.stderr = stderr.rstrip()
        self.unsent = unsent
        super().__init__(f"{message}\n{self.stderr}" if self.stderr else message)


class RequestTimeout(WharfingerError, TimeoutError):
    """There was no response in time; a request that was sent is cancelled."""


class StoreUnusable(WharfingerError):
    """The file of a store cannot be opened, read or written; the message names it and says what to do."""


class MissingExtra(WharfingerError, ImportError):
    """An optional dependency is not installed; the message has the commands that install it."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the extra {extra!r}. "
            f"Run pip install 'wharfinger[{extra}]', or uvx --from 'wharfinger[{extra}]' wharfinger"
        )
