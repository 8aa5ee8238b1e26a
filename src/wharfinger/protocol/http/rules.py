"""The rules of Streamable HTTP as functions of headers and messages. Does no I/O.

The order (2026-07-28, Streamable HTTP): `read_headers` → `HostOriginPolicy.check` → credentials → HTTP method →
`check_post` → body → JSON → `kind_of_post` → `open_request` (`prefer_header_error` if it fails) →
`check_standard_headers` → method → handler. Everything is decided before the first byte of the response, because the
status cannot change later. A refusal is a `ProtocolError` with its HTTP status. Its message says what to
send, or which setting would allow the request, and never quotes the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger.errors import HeaderMismatch, InvalidRequest, ProtocolError, UnsupportedVersion
from wharfinger.protocol.http.headers import decode_value
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.revisions import HANDSHAKE, REVISIONS, STATELESS

if TYPE_CHECKING:
    from wharfinger.protocol.request import Request

__all__ = [
    "ACCEPTS_EVENTS",
    "ACCEPTS_JSON",
    "CLOSE_HEADERS",
    "ENDPOINTS",
    "EVENT_STREAM",
    "HANDSHAKE_VERSIONS",
    "JSON",
    "LAST_EVENT",
    "METHOD",
    "NAME",
    "SESSION",
    "STATELESS_VERSIONS",
    "VERSION",
    "HttpLimits",
    "HttpRefusal",
    "PostKind",
    "accepted_types",
    "check_post",
    "check_session_version",
    "check_standard_headers",
    "check_stream",
    "check_version",
    "kind_of_post",
    "prefer_header_error",
    "read_headers",
    "too_large",
]

Headers = Mapping[bytes, bytes]
Pairs = tuple[tuple[bytes, bytes], ...]

VERSION, METHOD, NAME, SESSION = b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id"
LAST_EVENT = b"last-event-id"
JSON, EVENT_STREAM = b"application/json", b"text/event-stream"
ENDPOINTS = frozenset({"/mcp", "/mcp/"})

CLOSE_HEADERS: Pairs = ((b"connection", b"close"),)
"""For refusals that leave a body unread: close, so that the rest is not read as the next request."""


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one HTTP server, besides the `Limits` of its service. Times are in seconds, sizes in bytes."""

    header_size: int = 32 * 1024
    """Request line and headers."""
    header_count: int = 100
    """Headers of one request; also trailers of one body."""
    header_time: float = 20.0
    """From the first byte of a request, or from the connection's start, to the end of its headers."""
    body_time: float = 20.0
    """Time for a body to arrive, in addition to what `body_rate` allows."""
    body_rate: int = 64 * 1024
    """Bytes per second: a body that arrives at this rate gets more time."""
    unfinished: int = 64 * 1024 * 1024
    """Bytes of all incomplete bodies. Once reached, only callers with less than an equal share may send more."""
    connections: int = 10_000
    """Open connections. Beyond it, the caller with the most loses one, an idle one if possible."""
    sessions: int = 10_000
    """Sessions of the handshake era. Beyond it, the caller with the most loses one, if possible the one that is idle
    longest. A caller who has the most, all of them busy, gets no new one."""
    session_time: float = 1800.0
    """A session ends after this time without a request, a response or an open stream."""
    session_requests: int = 16_384
    """Running requests of all sessions, including those whose connection was closed. Once reached, only callers with
    less than an equal share may send more."""
    streams: int = 10_000
    """Open listen, GET and HTTP+SSE streams of all clients. Once reached, only callers with less than an equal share
    may open more."""
    streams_per_client: int = 1024
    """Open streams of one principal, or of one address (IPv6: one /64) of anonymous callers."""
    replay_events: int = 256
    """Events of one session that are kept for a client that reconnects."""
    replay_size: int = 1024 * 1024
    """The limit of these events in bytes; a single larger response is not kept."""
    replay_total: int = 64 * 1024 * 1024
    """The limit in bytes for all sessions. Beyond it, the caller whose sessions keep the most loses the oldest."""
    comment_time: float = 15.0
    """An idle stream gets a comment line after this time, so that proxies keep it open."""
    stalled_time: float = 60.0
    """A connection is closed if its client reads so slowly that nothing more can be written for this time."""
    keep_alive: float = 65.0
    """An idle connection is closed after this time. It is longer than common client pools keep connections."""
    watch_after: float = 0.05
    """A stateless request that has run for this time is cancelled if its client disconnects."""
    sweep_time: float = 1.0
    """The interval of the timer that enforces the other times, and so their precision."""
    drain: float = 3.0
    """Time from the signal to stop until every connection is closed."""
    backlog: int = 2048
    """Connections that wait to be accepted (`socket.listen`)."""


class HttpRefusal(InvalidRequest):
    """Refuses an HTTP request with this status. A `Verify` function raises it with 401 or 403.

    `headers` are sent with the response, such as the WWW-Authenticate challenge of a 401.
    """

    headers: Pairs

    def __init__(self, status: int, message: str, headers: Pairs = ()) -> None:
        super().__init__(message, http_status=status)
        self.headers = headers


# --- headers ---------------------------------------------------------------------------------------------------------

_UNIQUE_HEADERS = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"last-event-id",
        b"origin",
        b"transfer-encoding",
    }
)


def read_headers(pairs: Sequence[Sequence[bytes]]) -> dict[bytes, bytes]:
    """Return the headers by lower-case name. Repeated headers are joined (RFC 9110 §5.3) or, if not allowed, refused.

    Raises:
        HeaderMismatch: a routing header occurs twice, so that two readers could route differently.
        HttpRefusal: 400, another header that must be unique occurs twice.
    """
    headers: dict[bytes, bytes] = dict(pairs)  # type: ignore[arg-type]  # ASGI: pairs, as tuples or lists
    if len(headers) == len(pairs):
        return headers
    values: dict[bytes, list[bytes]] = {}  # joined at the end: linear time for many headers of one name
    for name, value in pairs:
        if name not in values:
            values[name] = [value]
        elif name.startswith(b"mcp-"):
            raise HeaderMismatch("A routing header occurs twice in the request: send each Mcp-… header once.")
        elif name in _UNIQUE_HEADERS:
            raise HttpRefusal(
                400, f"The header {name.decode('ascii', 'replace')} occurs twice: send it once.", CLOSE_HEADERS
            )
        else:
            values[name].append(value)
    return {name: (b"; " if name == b"cookie" else b", ").join(found) for name, found in values.items()}


# --- content types and lengths ---------------------------------------------------------------------------------------

ACCEPTS_JSON, ACCEPTS_EVENTS = 1, 2


@lru_cache(64)
def accepted_types(accept: bytes | None) -> int:
    """Return what an Accept header allows: ACCEPTS_JSON, ACCEPTS_EVENTS, their sum, or 0.

    Without a header, both are allowed. Of the ranges that match a type, the most specific one decides, and `q=0` means
    that it is not accepted (RFC 9110 §12.5.1).
    """
    if accept is None:
        return ACCEPTS_JSON | ACCEPTS_EVENTS
    allowed: dict[bytes, bool] = {}
    for entry in accept[:4096].lower().split(b","):
        kind, *parameters = entry.replace(b" ", b"").replace(b"\t", b"").split(b";")
        refused = any(parameter.startswith(b"q=") and not parameter[2:].strip(b"0.") for parameter in parameters)
        allowed[kind] = allowed.get(kind, False) or not refused
    accepted = 0
    for flag, ranges in (
        (ACCEPTS_JSON, (JSON, b"application/*", b"*/*")),
        (ACCEPTS_EVENTS, (EVENT_STREAM, b"text/*", b"*/*")),
    ):
        accepted |= flag if next((allowed[kind] for kind in ranges if kind in allowed), False) else 0
    return accepted


def check_post(headers: Headers, limit: int) -> int:
    """Check the headers of a POST that describe its body and the response. Returns the result of `accepted_types`.

    A client should accept both content types. One that accepts only JSON gets no notifications.

    Raises:
        HttpRefusal: 406 if JSON is not accepted; 415 for another content type, charset or content encoding; 400 for
            contradicting lengths; 413 for more than `limit` bytes.
    """
    kind = headers.get(b"content-type")
    if kind != JSON and not _is_json(kind):
        raise HttpRefusal(415, "The body must be JSON in UTF-8: send Content-Type: application/json.", CLOSE_HEADERS)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise HttpRefusal(415, "The body must not be compressed.", (*CLOSE_HEADERS, (b"accept-encoding", b"identity")))
    length = headers.get(b"content-length")
    if length is not None:
        # RFC 9112 §6.1: a message with both headers may be an attempt at request smuggling.
        if b"transfer-encoding" in headers or not length.isdigit():
            raise HttpRefusal(400, "Send one Content-Length, or Transfer-Encoding: chunked.", CLOSE_HEADERS)
        if len(length) > 18 or int(length) > limit:
            raise too_large(limit)
    accepted = accepted_types(headers.get(b"accept"))
    if not accepted & ACCEPTS_JSON:
        raise HttpRefusal(406, "Send Accept: application/json, text/event-stream.", CLOSE_HEADERS)
    return accepted


def too_large(limit: int) -> HttpRefusal:
    """Return the refusal of a body over the limit."""
    return HttpRefusal(
        413, f"The body has more than {limit} bytes, the limit of this server (--limit message).", CLOSE_HEADERS
    )


def _is_json(kind: bytes | None) -> bool:
    if kind is None:
        return False
    name, *parameters = kind.lower().replace(b" ", b"").replace(b"\t", b"").split(b";")
    charset = [p[8:].strip(b'"') for p in parameters if p.startswith(b"charset=")]
    return name == JSON and all(c in (b"utf-8", b"utf8", b"us-ascii") for c in charset)


def check_stream(headers: Headers) -> None:
    """Raise HttpRefusal: 406 if the client does not accept an event stream."""
    if not accepted_types(headers.get(b"accept")) & ACCEPTS_EVENTS:
        raise HttpRefusal(406, "The response is a stream: send Accept: text/event-stream.")


# --- the kind of a POST ----------------------------------------------------------------------------------------------

PostKind = Literal["stateless", "session", "opening"]
"""How a POST is served: by the rules of the stateless era, in a session of the handshake era, or as an `initialize`
that opens a session."""

_ENCODED_VERSIONS = {name: name.encode() for name in REVISIONS}
STATELESS_VERSIONS = frozenset(name.encode() for name in STATELESS)
HANDSHAKE_VERSIONS = frozenset(name.encode() for name in HANDSHAKE)
_VERSION_KEY = b"protocolVersion"


class _Meta(msgspec.Struct):
    version: Any = msgspec.field(default=UNSET, name="io.modelcontextprotocol/protocolVersion")


class _WithMeta(msgspec.Struct):
    meta: _Meta | UnsetType | None = msgspec.field(default=UNSET, name="_meta")


_decode_meta = msgspec.json.Decoder(_WithMeta).decode


def kind_of_post(headers: Headers, message: Message) -> PostKind:
    """Return how to serve this POST: stateless, in a session, or as an `initialize` that opens a session.

    A version header of the stateless era, or an unknown one outside a session, means stateless even without `_meta`:
    the stateless rules then report what is missing (2026-07-28, backward compatibility).

    Raises:
        HttpRefusal: 400 for a message of the handshake era without a session.
    """
    version = headers.get(VERSION, b"").strip()
    if version in STATELESS_VERSIONS or _names_version(message):
        return "stateless"
    if SESSION in headers:
        return "session"
    if version and version not in HANDSHAKE_VERSIONS:
        return "stateless"
    if message.method == "initialize" and message.id is not UNSET:
        return "opening"
    raise HttpRefusal(
        400,
        'This request names no session: send "initialize" first and repeat the Mcp-Session-Id of its answer, '
        "or send the MCP-Protocol-Version header and params._meta of 2026-07-28.",
    )


def _names_version(message: Message) -> bool:
    raw = message.params
    if raw is UNSET:
        return False
    data = bytes(raw)
    if _VERSION_KEY not in data and b"\\u00" not in data:  # quicker than decoding; the name may be escaped
        return False
    try:
        meta = _decode_meta(raw).meta
    except msgspec.MsgspecError:
        return False
    return isinstance(meta, _Meta) and meta.version is not UNSET


def check_session_version(headers: Headers) -> None:
    """Raise HttpRefusal (400) if a session's version header is unknown (2025-06-18, §2.7). The header is optional."""
    version = headers.get(VERSION)
    if version is not None and version.strip() not in HANDSHAKE_VERSIONS:
        raise HttpRefusal(400, f"MCP-Protocol-Version must be one of {', '.join(HANDSHAKE)} in this session.")


# --- headers against body --------------------------------------------------------------------------------------------


def check_version(headers: Headers) -> None:
    """Raise HeaderMismatch if a stateless request has no version header."""
    if VERSION not in headers:
        raise HeaderMismatch("Send the MCP-Protocol-Version header with the version of params._meta.")


def check_standard_headers(headers: Headers, request: Request) -> None:
    """Compare version, method and name in the headers with the body, because a proxy may have routed by them.

    Raises:
        HeaderMismatch: they differ (2026-07-28, Streamable HTTP, standard headers).
    """
    version, expected = headers.get(VERSION), _ENCODED_VERSIONS[request.caller.rules.name]
    if version != expected and (version or b"").strip() != expected:
        raise HeaderMismatch("The MCP-Protocol-Version header and the version in params._meta differ.")
    method = headers.get(METHOD)
    if method != request.method.encode():
        _check_method(method, request.method)
    row = request.row
    if row is not None and row.name_param:
        name: str = getattr(request.params, row.name_param)
        value = headers.get(NAME)
        if value is None:
            raise HeaderMismatch("Send the Mcp-Name header with the name or URI of the body.")
        # Decode the value if it differs from the name, or looks encoded: a name that looks encoded must be encoded.
        if (value != name.encode() or value.startswith(b"=?")) and decode_value(value) != name:
            raise HeaderMismatch("The Mcp-Name header and the name or URI of the body differ.")


def _check_method(header: bytes | None, method: str) -> None:
    if header is None:
        raise HeaderMismatch("Send the Mcp-Method header with the method of the body.")
    if header.strip(b" \t") != method.encode():
        raise HeaderMismatch("The Mcp-Method header and the method of the body differ.")


def prefer_header_error(headers: Headers, message: Message, error: ProtocolError) -> ProtocolError:
    """Return the error to send if `open_request` failed: a header that differs from the body takes precedence."""
    if isinstance(error, UnsupportedVersion):
        if headers.get(VERSION, b"").strip() != error.data["requested"].encode("utf-8", "replace"):
            return HeaderMismatch("The MCP-Protocol-Version header and the version in params._meta differ.")
    elif error.http_status == 200 and isinstance(message.method, str):
        try:
            _check_method(headers.get(METHOD), message.method)
        except HeaderMismatch as mismatch:
            return mismatch
    return error
