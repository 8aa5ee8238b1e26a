"""Streamable HTTP as an ASGI application: one endpoint for stateless requests and for sessions of the handshake era."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypedDict
from urllib.parse import parse_qs

from msgspec import UNSET, UnsetType

from wharfinger.errors import InternalError, InvalidRequest, Overloaded, ProtocolError
from wharfinger.protocol.http.headers import HeaderParam, check_arguments
from wharfinger.protocol.http.host_origin import HostOriginPolicy
from wharfinger.protocol.http.rules import (
    CLOSE_HEADERS,
    ENDPOINTS,
    METHOD,
    NAME,
    SESSION,
    STATELESS_VERSIONS,
    VERSION,
    HttpLimits,
    HttpRefusal,
    check_post,
    check_standard_headers,
    check_stream,
    check_version,
    kind_of_post,
    prefer_header_error,
    read_headers,
    too_large,
)
from wharfinger.protocol.interfaces import Authenticator, Service, ToolHeaders, Verify
from wharfinger.protocol.jsonrpc import Id, Message, decode, encode_error
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.request import (
    ChunkedMessage,
    Request,
    ResultMeta,
    call_on_answer,
    no_such_method,
    open_request,
    seal_error,
    seal_result,
)
from wharfinger.protocol.shares import Shares
from wharfinger.transports.http_server.asgi_response import (
    JSON_TYPE,
    Receive,
    Send,
    send_body,
    send_empty,
    send_json,
)
from wharfinger.transports.http_server.legacy_sse import MESSAGES, SSE, SseSessions
from wharfinger.transports.http_server.open_calls import HttpCall, OpenCalls
from wharfinger.transports.http_server.sessions import HttpSessions
from wharfinger.transports.serving import PART_BYTES, CancelReason, answer_exception, report, report_refusal

__all__ = ["Contents", "HttpApp", "HttpOptions", "Page", "Site"]

Page = Callable[[], tuple[str, bytes] | Awaitable[tuple[str, bytes]]]
"""Makes a page for people each time it is requested: returns its content type and body, or an awaitable of them."""
Contents = Callable[[str], Awaitable[tuple[str, bytes]]]
"""Reads a resource by its URI for people: returns a content type that a browser may show, and the bytes.

Raises ProtocolError if it cannot be read.
"""

Authenticate = Callable[[Mapping[bytes, bytes]], Awaitable[Principal]]
"""Returns the principal of the credentials in HTTP headers (lower-case names), or raises HttpRefusal."""


class Site(Protocol):
    """Serves web pages for people. It starts and ends with the server."""

    async def __call__(self, scope: Any, receive: Receive, send: Send, authenticate: Authenticate | None, /) -> None:
        """Serve one ASGI call. `authenticate` checks the credentials of visitors; it is None if none are required."""
        ...

    async def start(self) -> None:
        """Start, after the service."""
        ...

    async def close(self) -> None:
        """End, before the service. A second call does nothing."""
        ...


_PAGE_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
_CONTENT_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; sandbox; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_OWN_PAGE = (b"same-origin", b"none")
"""Values of `Sec-Fetch-Site` for a link on a page of this origin, and for a typed address (Fetch Metadata §2.4)."""
_PREFLIGHT = (
    (b"access-control-allow-methods", b"POST, GET, DELETE"),
    (b"access-control-allow-headers", b"*, authorization"),  # `*` does not include it (Fetch §4.9)
    (b"access-control-max-age", b"600"),
)
_ALLOW = ((b"allow", b"POST, GET, DELETE"),)
_POST_ONLY = ((b"allow", b"POST"),)
_GET_ONLY = ((b"allow", b"GET"),)
_GET_OR_HEAD = ((b"allow", b"GET, HEAD"),)
RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
_CACHED = (b"cache-control", b"max-age=3600")
_SAFE = ("GET", "HEAD")
"""The methods of pages: RFC 9110 §9.1 requires both. The HTTP server omits the body of an answer to HEAD (§9.3.2)."""
_NO_CHUNKS = (
    "Send the body with Content-Length. A chunked one may end in trailers, which this ASGI server may mix into the "
    "headers; if it keeps them separate, pass server.asgi(separates_trailers=True)."
)


class HttpOptions(TypedDict, total=False):
    """The options of `HttpApp` except `auth`, for functions that pass them on."""

    bind: str
    allow_hosts: Iterable[str]
    allow_origins: Iterable[str]
    public_url: str
    verify: Verify | None
    limits: HttpLimits | None
    pages: Mapping[str, Page] | None
    contents: Contents | None
    site: Site | None
    sse: bool
    separates_trailers: bool


class HttpApp:
    """An ASGI application for one service. It starts the service with the ASGI server (lifespan), or with the first
    message, and ends it in `aclose`.

    `allow_hosts` and `public_url` are the names that the server is reached by, in addition to the loopback names and
    `bind`; `allow_origins` are the other origins whose web pages may call it (see `HostOriginPolicy`). `auth` requires
    a token of every caller, and publishes how to get one. `verify` is for other credentials: it finds the principal in
    the headers.

    `sse=False` turns off HTTP+SSE (`/sse` and `/messages`), which clients of 2024-11-05 use.

    `separates_trailers` means that the ASGI server keeps the fields after a chunked body (RFC 9110 §6.5) out of
    `scope["headers"]`. If not, chunked bodies are refused (411), because uvicorn with httptools appends those fields
    to the headers, as if a proxy had checked them.

    `pages` maps paths to pages for people; a browser that opens the endpoint gets `/`. `/healthz` answers 200.
    `contents` reads resources for links on these pages, at `/read?uri=…`. It is not used if callers need credentials,
    which a link does not carry. It serves only requests that come from these pages or a typed address (Sec-Fetch-Site).
    `site` takes the place of both: it gets all requests except those for `/healthz` and the protocol's own paths, after
    Host and Origin are checked. It identifies its visitors itself, because a browser sends no token with a link.

    Raises:
        ValueError: a host, an origin or a URL is malformed, or there are both `auth` and `verify`.
    """

    def __init__(
        self,
        service: Service,
        *,
        bind: str = "",
        allow_hosts: Iterable[str] = (),
        allow_origins: Iterable[str] = (),
        public_url: str = "",
        verify: Verify | None = None,
        auth: Authenticator | None = None,
        limits: HttpLimits | None = None,
        pages: Mapping[str, Page] | None = None,
        contents: Contents | None = None,
        site: Site | None = None,
        sse: bool = True,
        separates_trailers: bool = False,
    ) -> None:
        self.service = service
        self.host_policy = HostOriginPolicy(
            bind, allow_hosts=allow_hosts, allow_origins=allow_origins, public_url=public_url
        )
        if auth is not None and verify is not None:
            raise ValueError("auth= and verify= exclude each other: only one can decide who calls.")
        self.auth = auth
        self.verify = verify
        self.protected = auth is not None or verify is not None
        self._public_url = f"{public_url.removesuffix('/').removesuffix('/mcp')}/mcp" if public_url else ""
        self._last_endpoint: tuple[tuple[str, bytes, str], str] = ("", b"", ""), ""
        """The scheme, host and root path of the last request, and the URL of the endpoint for them."""
        self.limits = limits or HttpLimits()
        self.message_limits = service.limits
        """The limits of the service, which are the same on every transport."""
        self.separates_trailers = separates_trailers
        self.header_params: Mapping[str, tuple[HeaderParam, ...]] = {}
        self._hides_tool: Callable[[Request], bool] = lambda request: False
        if isinstance(service, ToolHeaders):
            self.header_params, self._hides_tool = service.header_params, service.hides_tool
        self.pages = {"/": self._default_page, **(pages or {})}
        self.contents = None if self.protected else contents
        self.site = site
        self.calls = OpenCalls(service, self.limits, auth)
        self.sessions = HttpSessions(service, self.limits, self.calls)
        self.calls.sweep_also = self.sessions.sweep
        self.sse = SseSessions(service, self.calls, self.sessions.requests) if sse else None
        self.draining = False
        gauges: dict[str, list[Callable[[], int]]] = getattr(service, "gauges", {})
        gauges.setdefault("streams", []).append(lambda: len(self.calls.streams))
        gauges.setdefault("sessions", []).append(
            lambda: len(self.sessions) + (0 if self.sse is None else len(self.sse))
        )
        self._unfinished = Shares()
        """Bytes that have arrived of incomplete bodies, by owner."""
        self._ready = False
        self._starting: asyncio.Task[None] | None = None

    @property
    def session_count(self) -> int:
        """The number of sessions that are open."""
        return len(self.sessions)

    # -- one call

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one ASGI call (https://asgi.readthedocs.io, HTTP and lifespan)."""
        if scope["type"] != "http":
            await self._serve_lifespan(scope, receive, send)
            return
        principal, headers = ANONYMOUS, dict[bytes, bytes]()
        try:
            headers = read_headers(scope["headers"])  # a copy: some servers append to theirs while the body arrives
            if not self.separates_trailers and b"transfer-encoding" in headers:
                raise HttpRefusal(411, _NO_CHUNKS, CLOSE_HEADERS)
            self.host_policy.check(headers)
            if b"origin" in headers and (origin := self.host_policy.allowed_origin(headers)):
                send = _allow_origin(send, origin)
                if scope["method"] == "OPTIONS":
                    await send_empty(send, 204, _PREFLIGHT)
                    return
            if scope["path"] not in ENDPOINTS and not _is_mounted_endpoint(scope):
                if self.sse is not None and _path(scope) in (SSE, MESSAGES):
                    await self._serve_legacy_sse(self.sse, scope, headers, receive, send)
                else:
                    await self._serve_page(scope, headers, receive, send)
                return
            if self.protected:
                known = None if self.auth is None else self.auth.find_verified(headers)
                if known is None:
                    result = self._authenticate(scope, headers)
                    known = result if isinstance(result, Principal) else await result
                principal = known
            if scope["method"] != "POST":
                await self._get_or_delete(scope, headers, principal, receive, send)
                return
            accepted_types = check_post(headers, self.message_limits.message)
            if not self._ready:
                await self._start()
        except ProtocolError as error:
            client = scope.get("client")
            report_refusal(
                self.service,
                error,
                method=headers.get(METHOD, b"").decode("latin-1"),
                target=headers.get(NAME, b"").decode("latin-1"),
                address=client[0] if client else "",
                principal=principal,
            )
            await refuse(send, error)
            return
        except Exception as error:
            await refuse(send, _report_failure(error))
            return
        await self._post(scope, headers, principal, accepted_types, receive, send)

    def _authenticate(self, scope: Any, headers: Mapping[bytes, bytes]) -> Principal | Awaitable[Principal]:
        """Return the principal of this request, or an awaitable of it. Either step may raise HttpRefusal."""
        if self.auth is not None:
            return self.auth.authenticate(scope["method"], self._endpoint(scope, headers), headers)
        assert self.verify is not None
        return self.verify(headers)

    def _endpoint(self, scope: Any, headers: Mapping[bytes, bytes]) -> str:
        """Return the URL of the MCP endpoint: below `public_url`, else below the host that the client used.

        The host was checked by `host_policy`.
        """
        if self._public_url:
            return self._public_url
        parts = scope.get("scheme", "http"), headers.get(b"host", b""), scope.get("root_path", "")
        if parts != self._last_endpoint[0]:  # most clients use the same name
            scheme, host, root = parts
            self._last_endpoint = parts, f"{scheme}://{host.decode('ascii', 'replace')}{root}/mcp"
        return self._last_endpoint[1]

    async def _post(
        self,
        scope: Any,
        headers: dict[bytes, bytes],
        principal: Principal,
        accepted_types: int,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve one message: body, JSON, era, request, headers, method, handler (order of `protocol.http.rules`)."""
        calls, service = self.calls, self.service
        call = calls.start(receive, send, accepted_types, scope.get("client"), principal)
        message: Message | None = None
        request: Request | None = None
        status = 200
        try:
            event = await receive()
            body = event.get("body", b"")
            if event.get("more_body") or event["type"] != "http.request":
                body = await self._read_body(call, event)
            try:
                message = decode(body, self.message_limits)
            except InvalidRequest:
                if SESSION not in headers or headers.get(VERSION) in STATELESS_VERSIONS:
                    raise
                calls.hand_over(call)  # the body may be a batch
                if not await self.sessions.post_batch(call, headers, principal, body):
                    raise
                return
            if headers.get(VERSION) not in STATELESS_VERSIONS:
                kind = kind_of_post(headers, message)
                if kind != "stateless":
                    calls.hand_over(call)
                    if self.auth is not None:
                        call.endpoint = self._endpoint(scope, headers)
                    await self.sessions.post(call, headers, principal, message, opening=kind == "opening")
                    return
                check_version(headers)
            if message.method is UNSET:
                raise InvalidRequest("A client of this revision sends requests, not answers.")
            if message.id is UNSET:  # over HTTP the core defines no notification that a stateless client sends
                await send_empty(send, 202)
                return
            try:
                request = open_request(message, None, principal)
            except ProtocolError as error:
                raise prefer_header_error(headers, message, error) from None
            check_standard_headers(headers, request)
            if request.row is None or (handler := service.handlers.get(request.method)) is None:
                raise no_such_method(request)
            if request.method == "tools/call" and self.header_params:
                repeated = self.header_params.get(request.params.name)
                # An error would reveal that a hidden tool exists.
                if repeated and not self._hides_tool(request):
                    check_arguments(repeated, headers, request.params.arguments)
            busy = len(calls.fresh) + len(calls.slow) > self.message_limits.in_flight
            if busy or self.draining or request.row.long:
                self._admit(call, request, headers)
                if request.row.long:
                    event, body, message = {}, b"", None  # may take megabytes, and the stream may stay open for long
            request.channel = call
            request.accepts_lazy_blobs = True
            request.headers = headers
            request.peer = call.address
            request.task = call.task
            call.request = request
            data = seal_result(request, await handler(request), service.result_meta)
            call.over = True
        except BaseException as error:
            call.over = True
            if self.auth is not None:
                call.endpoint = self._endpoint(scope, headers)
            answer = self._answer_exception(call, request, message, error)
            if answer is None:
                if request is not None and request.on_answer:
                    call_on_answer(request, None)
                return
            data, status = answer
        finally:
            calls.end(call)
        if type(data) is bytes and len(data) <= PART_BYTES and call.stream is None and not call.headers:
            length = (b"content-length", b"%d" % len(data))
            if request is not None and request.on_answer:
                call_on_answer(request, data)
            await send({"type": "http.response.start", "status": status, "headers": [JSON_TYPE, length]})
            await send({"type": "http.response.body", "body": data})
        else:
            await self._send_answer(call, request, data, status)

    async def _read_body(self, call: HttpCall, event: Any) -> bytes:
        """Return the whole body, whose first part is `event`.

        Raises:
            ProtocolError: it is too large, or all unfinished bodies together are.
            CancelledError: the client has left, or the body took too long.
        """
        limit = self.message_limits.message
        body = bytearray()
        try:
            while True:
                if event["type"] == "http.disconnect":
                    call.cancel_reason = CancelReason.CLIENT_GONE
                    raise asyncio.CancelledError
                body += event.get("body", b"")
                self._unfinished.add(call.owner, len(body) - call.size)
                call.size = len(body)
                if len(body) > limit:
                    raise too_large(limit)
                if not event.get("more_body"):
                    return bytes(body)
                if not self._unfinished.has_room(call.owner, self.limits.unfinished, 0):
                    raise _with_headers(Overloaded("Too many unfinished requests: try again later."), CLOSE_HEADERS)
                event = await call.receive()
        finally:
            self._unfinished.add(call.owner, -call.size)

    def _admit(self, call: HttpCall, request: Request, headers: Mapping[bytes, bytes]) -> None:
        """Check the limits of streams and of a busy server, and whether the server is stopping.

        Raises:
            Overloaded, HttpRefusal: 503, 406 or 429.
        """
        if self.draining:
            raise _with_headers(Overloaded("The server is stopping."), CLOSE_HEADERS)
        if not request.row.long:  # type: ignore[union-attr]
            self.calls.check_share(call)
            return
        check_stream(headers)
        self.calls.admit_stream(call)
        self.calls.watch(call)

    def _answer_exception(
        self, call: HttpCall, request: Request | None, message: Message | None, error: BaseException
    ) -> tuple[bytes | ChunkedMessage, int] | None:
        """Return the answer to a failed request and its HTTP status; None if the client is gone.

        Raises:
            CancelledError: the ASGI server has cancelled the call.
        """
        if isinstance(error, asyncio.CancelledError):
            if call.cancel_reason is not None:
                call.task.uncancel()  # type: ignore[union-attr]
            elif call.task is None or call.task.cancelling():
                if request is not None and request.on_answer:
                    call_on_answer(request, None)
                raise error
            if call.cancel_reason is CancelReason.CLIENT_GONE:
                if call.stream is not None:
                    call.stream.closed = True
                return None
            if call.cancel_reason is CancelReason.BODY_TIMEOUT:
                error = HttpRefusal(408, "The body did not arrive in time (--limit body_time).", CLOSE_HEADERS)
        sealer = _SessionlessEncoder(self.service.result_meta, None if message is None else message.id)
        data, failure = answer_exception(request, error, sealer, self.message_limits, reason=call.cancel_reason)
        assert data is not None
        if failure is None:
            return data, 200
        call.headers = self.calls.headers_of(failure, call)
        if request is None or not request.observers:
            method = message.method if message is not None and message.method is not UNSET else ""
            principal, address = call.principal, call.address
            report_refusal(
                self.service,
                failure,
                request=request,
                method=method,
                principal=principal,
                address=address,
                size=len(data),
            )
        return data, failure.http_status

    async def _send_answer(
        self, call: HttpCall, request: Request | None, data: bytes | ChunkedMessage, status: int
    ) -> None:
        """Send an answer that is large, has headers of its own, or is the last event of a stream."""
        try:
            if status == 429:
                await self.calls.hold_back()
            if len(data) > PART_BYTES:
                try:
                    self.calls.check_unread(call, data)
                except Overloaded as error:
                    data, status = _SessionlessEncoder(self.service.result_meta).fail(request, error), error.http_status
            if request is not None and request.on_answer:
                call_on_answer(request, data)
            if call.stream is not None:
                await call.stream.finish(data)
            else:
                await send_json(call.reply, status, data, call.headers)
        finally:
            if call.unread:
                self.calls.end_unread(call)

    # -- other methods and paths

    async def _get_or_delete(
        self, scope: Any, headers: dict[bytes, bytes], principal: Principal, receive: Receive, send: Send
    ) -> None:
        method = scope["method"]
        if method == "GET" and SESSION not in headers and b"text/html" in headers.get(b"accept", b""):
            if self.site is not None:  # its page has relative links
                await send_empty(send, 303, ((b"location", f"{scope.get('root_path', '')}/".encode()),))
            else:
                await self._send_page("/", send)
            return
        if method not in ("GET", "DELETE"):
            raise HttpRefusal(405, "Send POST, or GET and DELETE within a session.", _ALLOW)
        if headers.get(VERSION) in STATELESS_VERSIONS:
            raise HttpRefusal(405, "This revision supports POST only.", _POST_ONLY)
        if SESSION not in headers:
            raise HttpRefusal(400, "Repeat the Mcp-Session-Id of the answer to initialize.")
        if method == "GET":
            await self.sessions.get(scope, headers, principal, receive, send)
        else:
            await self.sessions.delete(headers, principal, send)

    async def _serve_legacy_sse(
        self, sse: SseSessions, scope: Any, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Serve HTTP+SSE of 2024-11-05."""
        principal = await self._find_principal(scope, headers) if self.protected else ANONYMOUS
        verb, allowed = ("GET", _GET_ONLY) if _path(scope) == SSE else ("POST", _POST_ONLY)
        if scope["method"] != verb:
            raise HttpRefusal(405, f"Send {verb}.", allowed)
        if not self._ready:
            await self._start()
        if verb == "GET":
            await sse.serve_stream(scope, headers, principal, receive, send)
            return
        accepted_types = check_post(headers, self.message_limits.message)
        call = self.calls.start(receive, send, accepted_types, scope.get("client"), principal)
        try:
            sse.receive(scope["query_string"], principal, await self._read_body(call, await receive()))
        except asyncio.CancelledError as error:
            if (answer := self._answer_exception(call, None, None, error)) is None:
                return
            await self._send_answer(call, None, *answer)
            return
        finally:
            call.over = True
            self.calls.end(call)
        await send_empty(send, 202)

    async def _serve_page(self, scope: Any, headers: Mapping[bytes, bytes], receive: Receive, send: Send) -> None:
        path = _path(scope)
        if path == "/healthz":
            if scope["method"] not in _SAFE:
                raise HttpRefusal(405, "Send GET.", _GET_OR_HEAD)
            await send_body(send, 200, b"ok\n", ((b"content-type", b"text/plain"),))
            return
        if self.auth is not None and path.startswith(RESOURCE_METADATA):
            await self._send_metadata(self.auth, scope, path, headers, send)
            return
        if self.site is not None:
            authenticate = partial(self._find_principal, scope) if self.protected else None
            await self.site(scope, receive, send, authenticate)
            return
        if self.protected:
            await self._find_principal(scope, headers)
        if path not in self.pages and (path != "/read" or self.contents is None):
            raise HttpRefusal(404, "Not found: the endpoint is /mcp.")
        if scope["method"] not in _SAFE:
            raise HttpRefusal(405, "Send GET; the endpoint for messages is /mcp.", _GET_OR_HEAD)
        if path in self.pages:
            await self._send_page(path, send)
        else:
            await self._send_content(scope["query_string"], headers, send)

    async def _find_principal(self, scope: Any, headers: Mapping[bytes, bytes]) -> Principal:
        result = self._authenticate(scope, headers)
        return result if isinstance(result, Principal) else await result

    async def _send_metadata(
        self, auth: Authenticator, scope: Any, path: str, headers: Mapping[bytes, bytes], send: Send
    ) -> None:
        """Answer with the OAuth metadata of this server, for every caller and every web page (RFC 9728 §3.2)."""
        if path.removeprefix(RESOURCE_METADATA) not in ("", "/mcp"):
            raise HttpRefusal(404, f"Nothing is here: the metadata is at {RESOURCE_METADATA}/mcp.")
        if scope["method"] not in _SAFE:
            raise HttpRefusal(405, "Send GET.", _GET_OR_HEAD)
        fields = ((b"content-type", b"application/json"), (b"access-control-allow-origin", b"*"), _CACHED)
        await send_body(send, 200, auth.metadata(self._endpoint(scope, headers)), fields)

    async def _send_content(self, query: bytes, headers: Mapping[bytes, bytes], send: Send) -> None:
        """Answer a link to a resource.

        A GET from another site may lack an Origin header, so Sec-Fetch-Site is required.
        """
        assert self.contents is not None
        if headers.get(b"sec-fetch-site") not in _OWN_PAGE:
            raise HttpRefusal(
                403, "Open this from the page of this server in a browser, or run the command that is shown there."
            )
        try:
            (uri,) = parse_qs(query.decode("latin-1"), max_num_fields=1)["uri"]
        except (ValueError, KeyError):
            raise HttpRefusal(400, "Write /read?uri= and one escaped URI.") from None
        kind, body = await self.contents(uri)
        await send_body(send, 200, body, ((b"content-type", kind.encode("latin-1")), *_CONTENT_HEADERS))

    async def _send_page(self, path: str, send: Send) -> None:
        page = self.pages[path]()
        kind, body = page if isinstance(page, tuple) else await page
        await send_body(send, 200, body, ((b"content-type", kind.encode("latin-1")), *_PAGE_HEADERS))

    def _default_page(self) -> tuple[str, bytes]:
        from html import escape

        name = escape(self.service.info.name)
        text = (
            f"<!doctype html><title>{name}</title><h1>{name}</h1><p>An MCP server. Its endpoint is <code>/mcp</code>."
        )
        return "text/html; charset=utf-8", text.encode()

    async def _serve_lifespan(self, scope: Any, receive: Receive, send: Send) -> None:
        """Start and end with the ASGI server; close a WebSocket, which is not supported."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        while True:
            event = await receive()
            try:
                await (self._start() if event["type"] == "lifespan.startup" else self.aclose())
            except ProtocolError as error:
                await send({"type": f"{event['type']}.failed", "message": str(error)})
                return
            await send({"type": f"{event['type']}.complete"})
            if event["type"] == "lifespan.shutdown":
                return

    # -- beginning and end

    async def _start(self) -> None:
        if self.draining:
            raise _with_headers(Overloaded("The server is stopping."), CLOSE_HEADERS)
        try:
            await self.start()
        except Exception as error:
            raise _report_failure(error) from None

    async def start(self) -> None:
        """Start the service, if no other call has done so. If it fails, this raises, and the next call tries again."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start_service())
        starting = self._starting
        try:
            await asyncio.shield(starting)
        except Exception:
            if self._starting is starting:
                self._starting = None
            raise
        self._ready = True

    async def _start_service(self) -> None:
        await self.service.start(self)
        if self.site is not None:
            await self.site.start()

    async def drain(self, seconds: float) -> None:
        """End streams with their final result, refuse new requests, and cancel what still runs after `seconds`."""
        self.draining = True
        if self.site is not None:
            await self.site.close()
        self.service.drain()
        self.sessions.drain()
        if self.sse is not None:
            self.sse.drain()
        end = asyncio.get_running_loop().time() + seconds
        # This polls, because no event is set when the last call ends.
        while (self.calls.busy or self.sessions.running) and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        self.calls.cancel_all(CancelReason.DRAIN)
        self.sessions.close()

    async def aclose(self, seconds: float | None = None) -> None:
        """End all requests and sessions, as `drain` does, and close the service. Without `seconds`, they have
        `HttpLimits.drain` seconds to finish. May be called from any task, and more than once."""
        await self.drain(self.limits.drain if seconds is None else seconds)
        self.calls.stop()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait((self._starting,))
        self._ready = False
        await self.service.close(self)


async def refuse(send: Send, error: ProtocolError) -> None:
    """Answer an HTTP request with an error that names no JSON-RPC request."""
    await send_json(send, error.http_status, encode_error(None, error), getattr(error, "headers", ()))


def _allow_origin(send: Send, origin: bytes) -> Send:
    """Return a `send` whose answers may be read by the pages of an origin (Fetch §3.2)."""
    headers = (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"mcp-session-id, www-authenticate"),
        (b"vary", b"origin"),
    )

    async def send_allowed(event: Any) -> None:
        if event["type"] == "http.response.start":
            event["headers"] = [*event["headers"], *headers]
        await send(event)

    send_allowed.write_at_once = getattr(send, "write_at_once", None)  # type: ignore[attr-defined]
    return send_allowed


def _report_failure(error: Exception) -> ProtocolError:
    """Report a failure outside of handlers, and return the error for the client."""
    return InternalError(report(error, "HTTP").message, http_status=500)


class _SessionlessEncoder:
    """Encodes the answers of requests without a session, and of messages that never became requests."""

    def __init__(self, result_meta: ResultMeta, id: Id | UnsetType | None = None) -> None:
        self.result_meta = result_meta
        self.id = id

    def respond(self, request: Request, result: Any) -> bytes | ChunkedMessage:
        return seal_result(request, result, self.result_meta)

    def fail(self, request: Request | None, error: ProtocolError) -> bytes | ChunkedMessage:
        if request is not None:
            return seal_error(request, error, self.result_meta)
        return encode_error(error.id if self.id is None or self.id is UNSET else self.id, error)


def _with_headers(error: ProtocolError, headers: tuple[tuple[bytes, bytes], ...]) -> ProtocolError:
    error.headers = headers  # type: ignore[attr-defined]
    return error


def _path(scope: Any) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path


def _is_mounted_endpoint(scope: Any) -> bool:
    """Return whether this is the endpoint of a mounted application: `/mcp` below the mount point, or the mount point.

    A GET of the mount point itself does not count.
    """
    if not scope.get("root_path"):
        return False
    path = _path(scope)
    return path in ENDPOINTS or (path in ("", "/") and scope["method"] != "GET")
