"""Streamable HTTP as one ASGI application: one path for the stateless era and for handshake sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypedDict
from urllib.parse import parse_qs

from msgspec import UNSET

from wharfinger.errors import InternalError, InvalidRequest, Overloaded, ProtocolError
from wharfinger.protocol.http.headers import HeaderParam, check_arguments
from wharfinger.protocol.http.host_origin import HostOriginPolicy
from wharfinger.protocol.http.rules import (
    CLOSE,
    ENDPOINTS,
    SESSION,
    STATELESS_VERSIONS,
    VERSION,
    HttpLimits,
    Pairs,
    Refused,
    check_header_params,
    check_post,
    check_stream,
    check_version,
    find_era,
    rank,
    read_headers,
    too_large,
)
from wharfinger.protocol.interfaces import Service, Verify
from wharfinger.protocol.jsonrpc import Message, decode, encode_error
from wharfinger.protocol.request import (
    ChunkedMessage,
    Request,
    input_needed,
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
from wharfinger.transports.http_server.open_calls import Call, Calls, CancelReason
from wharfinger.transports.http_server.sessions import HttpSessions, answer_for, stopped
from wharfinger.transports.stream_server import LARGE

__all__ = ["Contents", "HttpApp", "HttpOptions", "Page"]

Page = Callable[[], tuple[str, bytes] | Awaitable[tuple[str, bytes]]]
"""One page for people: its content type and body, or what they are awaited from, asked for each time."""
Contents = Callable[[str], Awaitable[tuple[str, bytes]]]
"""What a resource holds, given its URI, for people: a content type that a browser may show, and bytes.

Raises a ProtocolError for what cannot be read.
"""

_PAGE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
_CONTENT_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_OWN_PAGE = (b"same-origin", b"none")
"""Values of `Sec-Fetch-Site` for a link on a page of this origin, and for what a person types (Fetch Metadata §2.4)."""
_PREFLIGHT = (
    (b"access-control-allow-methods", b"POST, GET, DELETE"),
    (b"access-control-allow-headers", b"*, authorization"),  # the star does not cover that one (Fetch §4.9)
    (b"access-control-max-age", b"600"),
)
_ALLOW = ((b"allow", b"POST, GET, DELETE"),)
_POST_ONLY = ((b"allow", b"POST"),)
_GET_ONLY = ((b"allow", b"GET"),)
_GET_OR_HEAD = ((b"allow", b"GET, HEAD"),)
_SAFE = ("GET", "HEAD")
"""Methods of pages (RFC 9110 §9.1 demands both); the HTTP server leaves the body of an answer to HEAD out (§9.3.2)."""
_NO_CHUNKS = (
    "Send the body with Content-Length. A chunked one may end in trailers, which this ASGI server may mix into the "
    "headers; if it keeps them apart, say so: server.asgi(separates_trailers=True)."
)


class HttpOptions(TypedDict, total=False):
    """The options of `HttpApp`, for those who pass them on."""

    bind: str
    allow_hosts: Iterable[str]
    allow_origins: Iterable[str]
    public_url: str
    verify: Verify | None
    limits: HttpLimits | None
    pages: Mapping[str, Page] | None
    contents: Contents | None
    sse: bool
    separates_trailers: bool


class HttpApp:
    """Serves one service over HTTP. Starts it at the first request; `await aclose()` ends it.

    `allow_hosts`, `allow_origins` and `public_url` are those of `HostOriginPolicy`, beside loopback names and `bind`.
    `sse=False` turns off HTTP+SSE (`/sse` and `/messages`), for clients of 2024-11-05.
    `separates_trailers` says that the ASGI server keeps the fields after a chunked body (RFC 9110 §6.5) out of
    `scope["headers"]`. Without it chunked bodies are refused with 411, since uvicorn with httptools appends those
    fields to the headers, where they pass for what a proxy has checked.
    `pages` are for people: path to page; `/` is also what a browser gets on the endpoint. `/healthz` answers 200.
    `contents` reads resources for the links of such a page, at `/read?uri=…`; never if there is `verify`, since a link
    carries no credentials, and only for requests whose browser says that no other site caused them.

    Raises:
        ValueError: a host, origin or URL that cannot be one.
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
        limits: HttpLimits | None = None,
        pages: Mapping[str, Page] | None = None,
        contents: Contents | None = None,
        sse: bool = True,
        separates_trailers: bool = False,
    ) -> None:
        self.service = service
        self.doors = HostOriginPolicy(bind, allow_hosts=allow_hosts, allow_origins=allow_origins, public_url=public_url)
        self.verify = verify
        self.limits = limits or HttpLimits()
        self.separates_trailers = separates_trailers
        self.mirrors: Mapping[str, tuple[HeaderParam, ...]] = getattr(service, "mirrors", {})
        self.pages = {"/": self._default_page, **(pages or {})}
        self.contents = contents if verify is None else None
        self.calls = Calls(service, self.limits)
        self.sessions = HttpSessions(service, self.limits, self.calls)
        self.calls.sweep_also = self.sessions.sweep
        self.sse = SseSessions(service, self.calls, self.sessions.requests) if sse else None
        self.draining = False
        self._unfinished = Shares()
        """Bytes of bodies that have not arrived completely."""
        self._ready = False
        self._starting: asyncio.Task[None] | None = None

    # -- one call

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one ASGI call (https://asgi.readthedocs.io, HTTP and lifespan)."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        try:
            headers = read_headers(scope["headers"])  # a copy: some servers add to theirs while the body arrives
            if not self.separates_trailers and b"transfer-encoding" in headers:
                raise Refused(411, _NO_CHUNKS, CLOSE)
            self.doors.check(headers)
            if b"origin" in headers and (origin := self.doors.shared_with(headers)):
                send = _shared(send, origin)
                if scope["method"] == "OPTIONS":
                    await send_empty(send, 204, _PREFLIGHT)
                    return
            if scope["path"] not in ENDPOINTS and not _mounted(scope):
                if self.sse is not None and _path(scope) in (SSE, MESSAGES):
                    await self._old(self.sse, scope, headers, receive, send)
                else:
                    await self._page(scope, headers, send)
                return
            verify = self.verify
            principal = "" if verify is None else verify(headers)
            if scope["method"] != "POST":
                await self._stream_or_end(scope, headers, principal, receive, send)
                return
            accepted = check_post(headers, self.service.limits.message)
            if not self._ready:
                await self._start()
        except ProtocolError as error:
            await refuse(send, error)
            return
        except Exception as error:
            await refuse(send, _fault(error))
            return
        await self._post(scope, headers, principal, accepted, receive, send)

    async def _post(
        self, scope: Any, headers: dict[bytes, bytes], principal: str, accepted: int, receive: Receive, send: Send
    ) -> None:
        calls = self.calls
        call = calls.start(receive, send, accepted, scope.get("client"), principal)
        request: Request | None = None
        message: Message | None = None
        try:
            event = await receive()
            body = event.get("body", b"")
            if event.get("more_body") or event["type"] != "http.request":
                body = await self._rest(call, event, receive)
            try:
                message = decode(body, self.service.limits)
            except InvalidRequest:
                if SESSION not in headers or headers.get(VERSION) in STATELESS_VERSIONS:
                    raise
                calls.hand_over(call)
                if not await self.sessions.post_batch(call, headers, principal, body):
                    raise
                return
            if headers.get(VERSION) not in STATELESS_VERSIONS:
                era = find_era(headers, message)
                if era != "stateless":
                    calls.hand_over(call)
                    await self.sessions.post(call, headers, principal, message, opening=era == "opening")
                    return
                check_version(headers)
            if message.method is UNSET or message.id is UNSET:
                await self._one_way(message, send)
                return
            try:
                request = open_request(message, None, principal)
            except ProtocolError as error:
                raise rank(headers, message, error) from None
            check_header_params(headers, request)
            row = request.row
            if row is None or (handler := self.service.handlers.get(request.method)) is None:
                raise no_such_method(request)
            if self.mirrors and request.method == "tools/call":
                check_arguments(self.mirrors.get(request.params.name, ()), headers, request.params.arguments)
            if self.draining or row.long or len(calls.fresh) + len(calls.slow) > self.service.limits.in_flight:
                self._admit(call, request, headers)
                if row.long:
                    event, body, message = {}, b"", None  # it stays open for long, and they may have megabytes
            request.channel = call
            request.accepts_lazy_blobs = True
            request.headers = headers
            request.peer = call.address
            request.task = call.task
            call.request = request
            data = seal_result(request, await handler(request), self.service.stamps)
            call.over = True
            status = 200
        except asyncio.CancelledError:
            call.over = True
            if call.cancel_reason is not None:
                call.task.uncancel()  # type: ignore[union-attr]
            elif call.task is None or call.task.cancelling():
                raise  # the ASGI server's own doing
            if call.cancel_reason is CancelReason.CLIENT_GONE:
                if call.stream is not None:
                    call.stream.closed = True
                return
            answer = self._cancellation_error(call, request)
            data, status = self._sealed(request, answer), answer.http_status
            call.headers = getattr(answer, "headers", ())
        except BaseException as error:  # sys.exit() in a handler is that call's error, and nobody else's
            call.over = True
            data, status, call.headers = self._failed(request, message, error)
        finally:
            calls.end(call)
        if len(data) > LARGE:
            await self._send_large(call, request, data, status)
        elif call.stream is not None:
            await call.stream.finish(data)
        elif type(data) is bytes and not call.headers:
            length = (b"content-length", b"%d" % len(data))
            await send({"type": "http.response.start", "status": status, "headers": [JSON_TYPE, length]})
            await send({"type": "http.response.body", "body": data})
        else:
            await send_json(send, status, data, call.headers)

    async def _send_large(self, call: Call, request: Request | None, data: bytes | ChunkedMessage, status: int) -> None:
        """Send what takes memory until its reader has taken it."""
        calls = self.calls
        try:
            calls.check_unread(call, data)
        except Overloaded as error:
            data, status = self._sealed(request, error), error.http_status
        try:
            if call.stream is not None:
                await call.stream.finish(data)
            else:
                await send_json(call.reply, status, data, call.headers)
        finally:
            calls.end_unread(call)

    def _failed(
        self, request: Request | None, message: Message | None, error: BaseException
    ) -> tuple[bytes | ChunkedMessage, int, Pairs]:
        """The answer to what failed, or the questions that a handler stopped with; its status and further headers."""
        if request is not None and (stop := input_needed(error)):
            try:
                return seal_result(request, stop.result, self.service.stamps), 200, ()
            except Exception as unsealed:
                error = unsealed
        answer = answer_for(request, error)
        if request is None and message is not None and message.id is not UNSET:
            answer.id = message.id
        return self._sealed(request, answer), answer.http_status, getattr(answer, "headers", ())

    def _sealed(self, request: Request | None, error: ProtocolError) -> bytes | ChunkedMessage:
        return encode_error(error.id, error) if request is None else seal_error(request, error, self.service.stamps)

    async def _rest(self, call: Call, event: Any, receive: Receive) -> bytes:
        """The whole body, within its own limit and the budget that all unfinished ones share."""
        limit = self.service.limits.message
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
                    raise _with_headers(Overloaded("Too many unfinished requests: try again later."), CLOSE)
                event = await receive()
        finally:
            self._unfinished.add(call.owner, -call.size)

    def _cancellation_error(self, call: Call, request: Request | None) -> ProtocolError:
        if call.cancel_reason is CancelReason.BODY_TIMEOUT:
            return _with_headers(Refused(408, "The body did not arrive in time (--limit body_time)."), CLOSE)
        return stopped(request, call.cancel_reason, limits=self.service.limits)

    async def _one_way(self, message: Message, send: Send) -> None:
        """A stateless client has nothing to answer and, over HTTP, nothing to notify that the core defines."""
        if message.method is UNSET:
            raise InvalidRequest("A client of this revision sends requests, not answers.")
        await send_empty(send, 202)

    def _admit(self, call: Call, request: Request, headers: Mapping[bytes, bytes]) -> None:
        """Bounds that most requests never come near.

        Raises Overloaded, or Refused: 406, 429.
        """
        if self.draining:
            raise _with_headers(Overloaded("The server is stopping."), CLOSE)
        if not request.row.long:  # type: ignore[union-attr]
            self.calls.check_part(call)
            return
        check_stream(headers)
        self.calls.admit_stream(call)
        self.calls.watch(call)

    # -- other methods and paths

    async def _stream_or_end(
        self, scope: Any, headers: dict[bytes, bytes], principal: str, receive: Receive, send: Send
    ) -> None:
        method = scope["method"]
        if method == "GET" and SESSION not in headers and b"text/html" in headers.get(b"accept", b""):
            await self._send_page("/", send)
            return
        if method not in ("GET", "DELETE"):
            raise Refused(405, "Send POST, or GET and DELETE within a session.", _ALLOW)
        if headers.get(VERSION) in STATELESS_VERSIONS:
            raise Refused(405, "This revision has POST only.", _POST_ONLY)
        if SESSION not in headers:
            raise Refused(400, "Repeat the Mcp-Session-Id of the answer to initialize.")
        if method == "GET":
            await self.sessions.get(scope, headers, principal, receive, send)
        else:
            await self.sessions.delete(headers, principal, send)

    async def _old(
        self, sse: SseSessions, scope: Any, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """HTTP+SSE of 2024-11-05."""
        principal = "" if self.verify is None else self.verify(headers)
        verb, allowed = ("GET", _GET_ONLY) if _path(scope) == SSE else ("POST", _POST_ONLY)
        if scope["method"] != verb:
            raise Refused(405, f"Send {verb}.", allowed)
        if not self._ready:
            await self._start()
        if verb == "GET":
            await sse.get(scope, headers, principal, receive, send)
            return
        accepted = check_post(headers, self.service.limits.message)
        call = self.calls.start(receive, send, accepted, scope.get("client"), principal)
        try:
            sse.take(scope["query_string"], principal, await self._rest(call, await receive(), receive))
        except asyncio.CancelledError:
            if call.cancel_reason is None:
                raise
            call.task.uncancel()  # type: ignore[union-attr]
            if call.cancel_reason is CancelReason.CLIENT_GONE:
                return
            raise self._cancellation_error(call, None) from None
        finally:
            call.over = True
            self.calls.end(call)
        await send_empty(send, 202)

    async def _page(self, scope: Any, headers: Mapping[bytes, bytes], send: Send) -> None:
        path = _path(scope)
        if path == "/healthz":
            if scope["method"] not in _SAFE:
                raise Refused(405, "Send GET.", _GET_OR_HEAD)
            await send_body(send, 200, b"ok\n", ((b"content-type", b"text/plain"),))
            return
        if self.verify is not None:
            self.verify(headers)
        if path not in self.pages and (path != "/read" or self.contents is None):
            raise Refused(404, "Nothing is here: the endpoint is /mcp.")
        if scope["method"] not in _SAFE:
            raise Refused(405, "Send GET; the endpoint for messages is /mcp.", _GET_OR_HEAD)
        if path in self.pages:
            await self._send_page(path, send)
        else:
            await self._send_content(scope["query_string"], headers, send)

    async def _send_content(self, query: bytes, headers: Mapping[bytes, bytes], send: Send) -> None:
        """Answer a link to a resource. Any page can cause a GET without an Origin: the browser must say who did."""
        assert self.contents is not None
        if headers.get(b"sec-fetch-site") not in _OWN_PAGE:
            raise Refused(
                403, "Open this from the page of this server in a browser, or run the command that stands there."
            )
        try:
            (uri,) = parse_qs(query.decode("latin-1"), max_num_fields=1)["uri"]
        except (ValueError, KeyError):
            raise Refused(400, "Write /read?uri= and one URI, with escapes.") from None
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

    async def _other(self, scope: Any, receive: Receive, send: Send) -> None:
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
            raise _with_headers(Overloaded("The server is stopping."), CLOSE)
        try:
            await self.start()
        except Exception as error:
            raise _fault(error) from None

    async def start(self) -> None:
        """Start the service once, whoever comes first; raises what that raises, and tries again the next time."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self.service.start())
        starting = self._starting
        try:
            await asyncio.shield(starting)
        except Exception:
            if self._starting is starting:
                self._starting = None
            raise
        self._ready = True

    async def drain(self, seconds: float) -> None:
        """End streams with their final result, refuse what is new, let the rest run for `seconds`, then cancel it."""
        self.draining = True
        self.service.drain()
        self.sessions.drain()
        if self.sse is not None:
            self.sse.drain()
        end = asyncio.get_running_loop().time() + seconds
        while (self.calls.busy or self.sessions.running) and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110  # none signals the last
            await asyncio.sleep(0.005)
        self.calls.cancel_all(CancelReason.DRAIN)
        self.sessions.close()

    async def aclose(self, seconds: float | None = None) -> None:
        """End everything and the service itself; does nothing the second time. May be called from any task."""
        await self.drain(self.limits.drain if seconds is None else seconds)
        self.calls.stop()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait((self._starting,))
        self._ready = False
        await self.service.close()


async def refuse(send: Send, error: ProtocolError, id: int | str | None = None) -> None:
    """Answer with an error that needs no request."""
    await send_json(send, error.http_status, encode_error(id, error), getattr(error, "headers", ()))


def _shared(send: Send, origin: bytes) -> Send:
    """Let the pages of an allowed origin read the answers (Fetch §3.2)."""
    headers = (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"mcp-session-id, www-authenticate"),
        (b"vary", b"origin"),
    )

    async def shared(event: Any) -> None:
        if event["type"] == "http.response.start":
            event["headers"] = [*event["headers"], *headers]
        await send(event)

    shared.write_at_once = getattr(send, "write_at_once", None)  # type: ignore[attr-defined]
    return shared


def _fault(error: Exception) -> ProtocolError:
    """What is told when it was not a handler that failed."""
    return InternalError(answer_for(None, error).message, http_status=500)


def _with_headers(error: ProtocolError, headers: tuple[tuple[bytes, bytes], ...]) -> ProtocolError:
    error.headers = headers  # type: ignore[attr-defined]
    return error


def _path(scope: Any) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path


def _mounted(scope: Any) -> bool:
    """Inside another application: its mount point is the endpoint too, unless a browser asks there for the page."""
    if not scope.get("root_path"):
        return False
    path = _path(scope)
    return path in ENDPOINTS or (path in ("", "/") and scope["method"] != "GET")
