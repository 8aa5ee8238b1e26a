"""A request on a server: `open_request` decodes a message, `seal_result` and `seal_error` encode the response."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.errors import (
    HandlerFailed,
    InternalError,
    InvalidParams,
    InvalidRequest,
    InvalidResponse,
    MethodNotFound,
    PermissionDenied,
    ProtocolError,
    ResourceNotFound,
    UnsupportedVersion,
    URLElicitationRequired,
)
from wharfinger.protocol.downgrade import is_object, without_unknown_blocks
from wharfinger.protocol.handshake import Caller, Phase, Session
from wharfinger.protocol.jsonrpc import Id, Message, encode, encode_error, encode_notification, refuse_duplicates
from wharfinger.protocol.methods import METHODS, Method
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.revisions import REVISIONS, SUPPORTED

__all__ = [
    "Caller",
    "Channel",
    "ChunkedMessage",
    "InputNeeded",
    "Request",
    "ResultMeta",
    "call_on_answer",
    "failure_text",
    "input_needed",
    "name_of_call",
    "no_such_method",
    "notify",
    "open_request",
    "open_result",
    "seal_error",
    "seal_result",
    "to_protocol_error",
    "tool_failure",
]

META_PREFIX = "io.modelcontextprotocol/"
_META_MEMBER = b'"io.modelcontextprotocol/'
_EMPTY = Raw(b"{}")
CHUNKED_BYTES = 64 * 1024
"""Results of this size and more are sent in chunks instead of being joined."""
CHUNK_BYTES = 3 * 64 * 1024
"""Bytes that are encoded in base64 at a time; a multiple of three, so that chunks join without padding."""
LAZY_CHUNK_BYTES = 4 * CHUNK_BYTES
"""Bytes of a stored blob that are read in a thread and encoded at a time, while it is sent."""


class Channel(Protocol):
    """The way back to the caller of one request; implemented by each transport."""

    @property
    def multiplexed(self) -> bool:
        """Whether several requests share the stream, so that one of them is ended by a message, not by closing it."""
        ...

    def send(self, request: Request, message: bytes) -> bool:
        """Send a notification of `request`. Returns False if it is dropped: the request is over, or the reader slow."""
        ...

    def ask(self, request: Request, method: str, params: Any) -> Awaitable[Message] | None:
        """Send a request to the client and wait for its response, a result or an error.

        Returns None if no response can come while the handler waits: a stateless request runs again with the answers.
        The deadline of `request` is paused during the wait. Cancelling the wait cancels the request to the client.
        """
        ...

    def detach(self, request: Request, retry_ms: int) -> bool:
        """Close the connection but keep the stream: the client reconnects after `retry_ms` milliseconds.

        Returns False if the stream cannot outlive its connection, or if no connection reads it.
        """
        ...


class InputNeeded(BaseException):
    """Stops a handler whose request must be sent again with answers; `result` is the response until then.

    It is not an `Exception`, so that `except Exception` in a handler does not catch it.
    """

    result: t.InputRequiredResult

    def __init__(self, result: t.InputRequiredResult) -> None:
        self.result = result
        super().__init__("The request has to be sent again with answers.")


def input_needed(error: BaseException) -> InputNeeded | None:
    """Return the `InputNeeded` that a handler raised, even inside an exception group; None for any other error."""
    if isinstance(error, InputNeeded):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    inside = cast("tuple[BaseException, ...]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
    return next((found for one in inside if (found := input_needed(one)) is not None), None)


class Request(msgspec.Struct, eq=False, weakref=True):
    """One request on a server.

    The transport sets `channel`, `headers`, `peer`, `task`, `started_at` and `accepts_lazy_blobs`. The server and its
    handlers set the other fields that have a default.
    """

    id: Id
    method: str
    row: Method | None
    """The method's row; None if the revision has no such method."""
    params: Any
    raw_params: Raw
    caller: Caller
    session: Session | None
    """The handshake's session; None for a stateless request."""
    channel: Channel = None  # type: ignore[assignment]
    """The way back to the caller."""
    headers: Mapping[bytes, bytes] | None = None
    """HTTP headers, names in lower case; None for other transports."""
    peer: str = ""
    """The network address of the client, or empty. Limits count anonymous callers by address."""
    ttl_ms: int = 0
    """How long the result may be cached; set by the handler, sent in revisions that have caching hints."""
    cache_scope: str = "private"
    task: Any = None
    """The asyncio task that runs the handler, so that the connection can cancel it."""
    started_at: float = 0
    """When the request started, by the transport's clock, for its deadline; infinite while the deadline is paused."""
    accepts_lazy_blobs: bool = False
    """Whether the transport reads `types.StoredBlob`s while it sends them; else they are loaded first."""
    input_state: Any = None
    """The handler's questions, and its data of earlier runs; set by the server for handlers that can ask."""
    wraps: bool = False
    """Whether the tool's output is not an object: revisions that allow only objects get `{"result": …}`."""
    access: Any = None
    """The permissions of the caller (`interfaces.Access`) by the server's policy; None if everything is allowed."""
    decision: Any = None
    """The policy's decision about this request (`interfaces.Decision`); None if there was none."""
    on_answer: tuple[Callable[[int], None], ...] = ()
    """The functions that `when_answered` added."""
    failure: ProtocolError | None = None
    """Why the request failed, until the functions of `when_answered` have been called. The client may get less."""
    nested: bool = False
    """Whether a handler makes this request for its own caller (`nested_requests`)."""
    usage: Any = None
    """Counts this request, and those that its handler makes, against the caller's limits (`policy.limiter.Use`)."""
    observers: tuple[Any, ...] = ()
    """The observers of the servers that serve it (`server.observers.Observers`)."""

    def when_answered(self, callback: Callable[[int], None]) -> None:
        """Call `callback(size)` once before the answer is sent. `size` is in bytes, and 0 if no answer is sent.

        `callback` must not raise. It is not called for a request that a handler makes itself (`nested_requests`),
        whose result is a part of the answer to the client.
        """
        self.on_answer += (callback,)


def call_on_answer(request: Request, data: bytes | ChunkedMessage | None) -> None:
    """Pass the size of an answer to the functions in `request.on_answer`. A transport calls this if there are any."""
    callbacks, request.on_answer = request.on_answer, ()
    size = 0 if data is None else len(data)
    for callback in callbacks:
        callback(size)
    request.failure = None  # its traceback refers to the request


def open_request(message: Message, session: Session | None, principal: Principal = ANONYMOUS) -> Request:
    """Decode the params once, and find out who is calling: from `_meta`, or from the session's handshake.

    If the revision has no such method, `row` is None. The request is refused later, since HTTP must look at headers
    first (2026-07-28, Streamable HTTP).

    Raises:
        InvalidParams: the params have the wrong shape, or lack required fields of `_meta`.
        InvalidRequest: the method is not allowed in this phase of the session, the session uses another revision, a
            string of the params has an invalid escape, or an object has the same member twice.
        UnsupportedVersion: the revision in `_meta` is unknown, or begins with a handshake.
    """
    method: str = message.method  # type: ignore[assignment]  # the caller has checked that there is one
    raw = _EMPTY if message.params is UNSET else message.params
    row = METHODS.get(method)
    if row is not None and row.is_notification:  # with an id it is a request, and no request has that name
        row = None
    try:
        params = (_UNKNOWN_METHOD if row is None else row).decode_params(raw)
    except msgspec.ValidationError as error:
        params = None if row is None else _params_of_another_revision(row, raw, session)
        if params is None:
            problem = str(error).replace("`$", "`params")  # in one line, without the value
            status = 400 if "`params._meta" in problem else None
            raise InvalidParams(f"Invalid params: {problem}", http_status=status) from None
        row = None
    except msgspec.DecodeError:
        raise InvalidRequest("A string of the params has an invalid escape.") from None
    # No helper functions here: each call would slow down every request.
    meta = params.meta
    name_count = 1  # how often a member "name" was decoded
    if meta is UNSET or meta.protocol_version is UNSET:
        if session is None:
            raise InvalidParams(f'Put "{META_PREFIX}protocolVersion" into params._meta.', http_status=400)
        caller = (
            session.caller
            if session.phase is Phase.OPEN and method != "initialize"
            else session.admit("" if row is None else method)
        )
    else:
        session = None
        rules = REVISIONS.get(meta.protocol_version)
        info: Any = meta.client_info
        if rules is None or rules.era != "stateless":
            raise UnsupportedVersion(meta.protocol_version[:64], SUPPORTED)
        if meta.client_capabilities is UNSET:
            raise InvalidParams(
                f'Put "{META_PREFIX}clientCapabilities" into params._meta; {{}} is fine.', http_status=400
            )
        meta_count = 2 + (meta.log_level is not UNSET)  # how many of the protocol's members of `_meta` were decoded
        if info is UNSET:
            info = None
        else:
            meta_count, name_count = meta_count + 1, 2  # `clientInfo` has a "name" too
        caller = Caller(rules, info, meta.client_capabilities, principal)
        # A name that occurs more often than it was decoded may be a member that occurs twice: look closely.
        if bytes(raw).count(_META_MEMBER) > meta_count:
            refuse_duplicates(bytes(raw), message.id)  # type: ignore[arg-type]
    if row is not None:
        if row.routed_member and bytes(raw).count(row.routed_member) > (name_count if row.name_param == "name" else 1):
            refuse_duplicates(bytes(raw), message.id)  # type: ignore[arg-type]
        if not row.first <= caller.rules.order <= row.last:
            row = None
        elif session is not None and method == "initialize":
            session.agree(params)
            caller = session.caller
    return Request(message.id, method, row, params, raw, caller, session)  # type: ignore[arg-type]


_UNKNOWN_METHOD = Method("", "client", t.RequestParams)


def _params_of_another_revision(row: Method, raw: msgspec.Raw, session: Session | None) -> Any:
    """Return invalid params with only `_meta` decoded, if the caller's revision has no such method; else None.

    Such a request is refused because of its method, whatever its params are.
    """
    try:
        params = _UNKNOWN_METHOD.decode_params(raw)
    except msgspec.ValidationError:
        return None
    if params.meta is not UNSET and params.meta.protocol_version is not UNSET:
        rules = REVISIONS.get(params.meta.protocol_version)
    else:
        rules = None if session is None or session.phase is not Phase.OPEN else session.caller.rules
    return None if rules is None or row.within(rules) else params


def to_protocol_error(error: BaseException, reference: str) -> ProtocolError:
    """Return the error that the caller gets.

    A `ProtocolError` of this server is returned unchanged. Any other error becomes a `HandlerFailed` that refers to the
    log.
    """
    if isinstance(error, ProtocolError) and not error.remote:
        return error
    return HandlerFailed(f"Internal error (reference {reference}): the server's log has the details.")


_PACKAGE_PREFIX = __file__.rpartition("protocol")[0]
LIBRARIES = (_PACKAGE_PREFIX, traceback.__file__.rpartition("traceback")[0], "<frozen ")
"""Path prefixes of this package and of the standard library."""


def name_of_call(request: Request) -> str:
    """Return the method and the name or URI of a request, for the log."""
    name_param = "" if request.row is None else request.row.name_param
    name = getattr(request.params, name_param, None) if name_param else None
    return f"{request.method} {name!r}" if isinstance(name, str) else request.method


def failure_text(subject: str, error: BaseException, reference: str = "") -> str:
    """Return the log message that `subject` failed, with the error and the innermost line outside of libraries."""
    location = ""
    for raised in (error.__cause__, error):
        for frame in () if raised is None else traceback.extract_tb(raised.__traceback__):
            if not frame.filename.startswith(LIBRARIES) and "site-packages" not in frame.filename:
                location = f" at {frame.filename}:{frame.lineno}, in {frame.name}"
    message = "".join(traceback.format_exception_only(error)).strip()
    return f"{subject} failed{location}: {message}" + (f" (reference {reference})" if reference else "")


class ResultMeta:
    """The members that the stateless era adds to results, encoded once: `resultType`, caching hints, server info."""

    __slots__ = ("_info", "openings")

    def __init__(self, info: t.Implementation) -> None:
        self._info = Raw(encode(info))
        self.openings: dict[tuple[Method | None, int, str], bytes] = {}
        """The encoded first members by method, ttl and scope; filled by `encode_opening`."""

    def encode_opening(self, request: Request, own_meta: Any = UNSET, kind: Any = UNSET) -> bytes:
        """Return the first members of a result, from `{` to before the next member; `kind` is its `resultType`."""
        row = request.row
        members: dict[str, Any] = {"resultType": "complete" if kind is UNSET else kind}
        if row is not None and row.cacheable and kind is UNSET:  # requests for input are not (2026-07-28, caching)
            members |= {"ttlMs": request.ttl_ms, "cacheScope": request.cache_scope}
        meta: dict[str, Any] = {f"{META_PREFIX}serverInfo": self._info} | ({} if own_meta is UNSET else own_meta)
        opening = encode(members | {"_meta": meta})[:-1]
        # Bounded, because a handler may compute another ttl for each read.
        if own_meta is UNSET and kind is UNSET and len(self.openings) < 1024:
            self.openings[row, request.ttl_ms, request.cache_scope] = opening
        return opening


CacheableT = TypeVar("CacheableT", bound=t.CacheableResult)


def take_hints(request: Request, result: CacheableT) -> CacheableT:
    """Move the caching hints of a result to its request, since only the stateless era may get them."""
    is_complete = result.result_type == "complete"  # the default: removed, as if it were absent
    if result.ttl_ms is UNSET and result.cache_scope is UNSET and not is_complete:
        return result
    if result.ttl_ms is not UNSET:
        request.ttl_ms = result.ttl_ms
    if result.cache_scope is not UNSET:
        request.cache_scope = result.cache_scope
    kind = UNSET if is_complete else result.result_type
    return msgspec.structs.replace(result, ttl_ms=UNSET, cache_scope=UNSET, result_type=kind)


def seal_result(request: Request, result: Any, result_meta: ResultMeta) -> bytes | ChunkedMessage:
    """Encode one JSON-RPC response. The members that the revision adds come before those of `result`.

    A large result becomes a `ChunkedMessage`, which avoids another copy of its body.

    Raises:
        UnicodeEncodeError, TypeError, ValueError: the result cannot be encoded as JSON in UTF-8.
    """
    if result is None:
        raise TypeError("The result is None: middleware must end with `return await next(call)`")
    id = encode(request.id)
    opening = b"{"
    comma = b""
    if request.caller.rules.adds_result_meta:
        comma = b","
        own_meta = getattr(result, "meta", UNSET)
        kind = getattr(result, "result_type", UNSET)
        if own_meta is UNSET and kind is UNSET:
            key = (request.row, request.ttl_ms, request.cache_scope)
            opening = result_meta.openings.get(key) or result_meta.encode_opening(request)
        else:
            opening = result_meta.encode_opening(request, own_meta, kind)
            result = msgspec.structs.replace(result, meta=UNSET, result_type=UNSET)
    else:
        rules = request.caller.rules
        if rules.unknown_blocks:
            result = without_unknown_blocks(result, rules.unknown_blocks)
        if type(result) is t.CallToolResult and result.structured_content is not UNSET:
            structured = result.structured_content
            if request.wraps or (type(structured) is not dict and not is_object(structured)):
                wrapped = (
                    Raw(b'{"result":%b}' % bytes(structured)) if type(structured) is Raw else {"result": structured}
                )
                result = msgspec.structs.replace(result, structured_content=wrapped)
    if type(result) is t.ReadResourceResult:
        for content in result.contents:
            if content.blob is not UNSET and len(content.blob) >= CHUNKED_BYTES:
                return _contents_in_parts(b'{"jsonrpc":"2.0","id":%b,"result":%b%b' % (id, opening, comma), result)
    body = bytes(result) if type(result) is Raw else encode(result)
    if not comma and len(body) < CHUNKED_BYTES:
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, body)
    if body == b"{}":
        comma = b""
    start = b'{"jsonrpc":"2.0","id":%b,"result":%b%b' % (id, opening, comma)
    if len(body) < CHUNKED_BYTES:
        return b"%b%b}" % (start, body[1:])
    return ChunkedMessage((start, memoryview(body)[1:], b"}"))


def _contents_in_parts(start: bytes, result: t.ReadResourceResult) -> ChunkedMessage:
    """Encode the response with each blob left unencoded until it is sent."""
    parts: list[bytes | memoryview | Base64] = []
    text = start + b'"contents":['
    for number, content in enumerate(result.contents):
        text += b"," if number else b""
        if content.blob is not UNSET:
            members = encode(msgspec.structs.replace(content, blob=UNSET))
            parts += (text + members[:-1] + b',"blob":"', Base64(content.blob))
            text = b'"}'
        else:
            text += encode(content)
    text += b"]"
    if result.meta is not UNSET:
        text += b',"_meta":' + encode(result.meta)
    return ChunkedMessage((*parts, text + b"}}"))


class Base64:
    """Bytes that are encoded in base64 while they are sent. A `StoredBlob` is read at that time too."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | t.StoredBlob) -> None:
        self.data = data

    def __len__(self) -> int:
        return (len(self.data) + 2) // 3 * 4

    def __iter__(self) -> Iterator[bytes]:
        from pybase64 import b64encode  # imported on use

        data = self.data
        if isinstance(data, t.StoredBlob):
            for start in range(0, len(data), LAZY_CHUNK_BYTES):
                yield b64encode(data.read(start, LAZY_CHUNK_BYTES))
            return
        view = memoryview(data)
        for start in range(0, len(view), CHUNK_BYTES):
            yield b64encode(view[start : start + CHUNK_BYTES])

    async def read(self) -> AsyncIterator[bytes]:
        """Iterate over the chunks, like `__iter__`, but read each chunk of a stored blob in a thread."""
        parts = iter(self)
        run = self.data.run if isinstance(self.data, t.StoredBlob) else None
        try:
            while (part := next(parts, b"") if run is None else await run(next, parts, b"")) != b"":
                yield part
        except OSError as error:  # its frames and a future refer to each other: without this, files would stay open
            traceback.clear_frames(error.__traceback__)
            raise


class ChunkedMessage:
    """One encoded message in parts, to be written one after the other; `len()` is its size in bytes.

    Use `async for` to iterate without blocking the event loop while stored blobs are read.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[bytes | memoryview | Base64, ...]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def memory(self) -> int:
        """The length of the message without the blobs that are read while it is sent."""
        stored = (part for part in self.parts if isinstance(part, Base64) and isinstance(part.data, t.StoredBlob))
        return len(self) - sum(map(len, stored))

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for part in self.parts:
            if isinstance(part, Base64):
                yield from part
            else:
                yield part

    async def __aiter__(self) -> AsyncIterator[bytes | memoryview]:
        for part in self.parts:
            if isinstance(part, Base64):
                async for piece in part.read():
                    yield piece
            else:
                yield part


def tool_failure(error: HandlerFailed) -> t.CallToolResult:
    """Return the result of a tool that raised an exception.

    It is a result with `isError`, which hosts show to the model: after a JSON-RPC error, they end the agent's run.
    """
    return t.CallToolResult(content=[t.TextContent(text=error.message)], is_error=True)


def seal_error(request: Request, error: ProtocolError, result_meta: ResultMeta) -> bytes | ChunkedMessage:
    """Encode one error response, with the error code of the caller's revision.

    A tool that failed gets a result with `isError` instead.
    """
    if request.on_answer:
        request.failure = request.failure or error
    if isinstance(error, URLElicitationRequired) and not request.caller.rules.url_required:
        error = InternalError(f"The user must open a URL first: {error.message} {error.url}")
    if isinstance(error, HandlerFailed) and request.method == "tools/call":
        return seal_result(request, tool_failure(error), result_meta)
    if isinstance(error, ResourceNotFound):
        return encode_error(request.id, error, request.caller.rules.resource_not_found)
    if isinstance(error, PermissionDenied) and request.row is not None and request.row.name_param == "uri":
        # A refusal must not reveal what exists: respond as for a missing resource.
        return seal_error(request, ResourceNotFound(request.params.uri), result_meta)
    return encode_error(request.id, error)


def notify(request: Request, method: str, params: Any) -> bool:
    """Send a notification on the request's stream. Returns False if it was dropped."""
    return request.channel.send(request, encode_notification(method, params))


def no_such_method(request: Request) -> MethodNotFound:
    """Return the error for a method that is unknown, not in this revision, or of a capability that is not declared."""
    return MethodNotFound(f"This server has no method {request.method[:64]!r} in {request.caller.rules.name}.")


def open_result(row: Method, raw: Raw | bytes) -> Any:
    """Decode the result of a response that a client received.

    Raises:
        InvalidResponse: it does not have the shape of the method's result, or its `resultType` is unknown.
    """
    try:
        result = row.decode_result(raw)
    except msgspec.MsgspecError as error:
        raise InvalidResponse(f"The server's answer to {row.name} breaks the protocol: {error}") from None
    kind = getattr(result, "result_type", UNSET)
    if kind is not UNSET and kind != "complete":
        raise InvalidResponse(f"The server's answer to {row.name} has the unknown resultType {kind!r}.")
    return result
