"""One HTTP/1.1 connection: uvicorn's httptools protocol with the bounds it lacks and a shorter way through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from wharfinger.errors import InvalidRequest, Overloaded, ProtocolError
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.jsonrpc import encode_error
from wharfinger.protocol.shares import Crowd, name_owner
from wharfinger.transports.http_server.asgi_response import STOPS, ClientGone

__all__ = ["PIPELINED", "Connection"]

log = logging.getLogger("wharfinger.transports.http")

_REFUSED = 32
"""Connections beyond the limit that get an answer at a time; more are cut. They use descriptors that files need too."""
_LINGER = 2.0
"""Seconds in which what a refused client still sends is thrown away: a reset could destroy its unread answer."""
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_CHUNK_FRAMING = 16
"""Bytes of a chunk besides its content that are not counted: its size in hexadecimal and two line ends."""
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding")
PIPELINED = 100
"""Requests of one connection that wait for the answers to earlier ones; a client that sends more is disconnected."""


class Clock(Protocol):
    """What a connection needs of its server."""

    now: float
    date: bytes
    crowd: Crowd[Connection]
    most_connections: int

    def soon(self, callback: Callable[[], object]) -> None:
        """Call this in one of the next turns of the loop."""
        ...


class Connection(HttpToolsProtocol):
    """One connection: reads requests, bounds their heads in size, count and time, and answers in order.

    uvicorn has no bound for a head and none for time; it also starts a timer per answer, for keep-alive. Here one
    sweeper of the server looks at all connections.
    """

    parser: Any
    owner: str

    def __init__(self, config: Config, server_state: ServerState, clock: Clock, limits: HttpLimits) -> None:
        super().__init__(config, server_state, {}, None)
        self.logger = log
        self.clock = clock
        self.limits = limits
        self.serving: Exchange | None = None
        """The request that is being served."""
        self.reading: Exchange | None = None
        """The one whose body comes, or came last."""
        self.waiting: list[Exchange] = []  # pipelined behind the one that is served
        self.in_head = False
        self.upgrading = self.replaying = False
        self.head_since = clock.now
        self.head_size = 0
        self.chunk_size = 0
        self.framing_size = 0
        """Bytes after the head that are neither content nor the plain framing of a chunk: extensions and trailers."""
        self.trailer_count = 0
        self.idle_since = clock.now
        self.first = True
        self.stalled_since = 0.0
        self.lingering_since = 0.0
        self.refusal: ProtocolError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; beyond the limit it is told so."""
        self.transport = transport
        self.flow = FlowControl(transport)
        self.server = get_local_addr(transport)
        self.client = get_remote_addr(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        self.connections.add(self)
        self.owner = name_owner("", self.client[0] if self.client else "")
        if not self._find_room():
            self.refuse(Overloaded("Too many connections are open: try again later."))
            if len(self.connections) > self.clock.most_connections + _REFUSED:
                transport.abort()

    def _find_room(self) -> bool:
        """Become one of the connections; if there are too many, in place of one of the largest owner's."""
        clock = self.clock
        if clock.crowd.shares.total >= clock.most_connections:
            victim = clock.crowd.find_victim(self.owner, lambda connection: connection.busy)
            if victim is None:
                return False
            clock.crowd.discard(victim.owner, victim)
            victim.transport.abort()
        clock.crowd.add(self.owner, self)
        return True

    @property
    def busy(self) -> bool:
        """Whether a request comes or is being served."""
        return self.in_head or (self.serving is not None and not self.serving.complete)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self.connections.discard(self)
        self.clock.crowd.discard(self.owner, self)
        for exchange in (self.serving, *self.waiting):
            if exchange is not None and not exchange.complete:
                exchange.disconnected = True
                self.clock.soon(exchange.wake)
        self.waiting.clear()
        self.flow.resume_writing()
        # Whatever refers back to this connection: its memory is freed now, not by the next run of the collector.
        self.parser = self.serving = self.reading = None

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more: the connection is closed, but not all that end at once in the same turn."""
        if self.scheme == "https":  # TLS knows no half-closed connections: the transport closes
            return False
        self.clock.soon(self.transport.close)
        return True

    # -- reading

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        if self.lingering_since:
            return
        self.chunk_size = len(data)
        self.framing_size += len(data)
        if self.in_head:
            self.head_size += len(data)
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._go_on(data, upgrade.args[0])
        except httptools.HttpParserError:
            self.refuse(self.refusal or InvalidRequest("This is not a well-formed HTTP/1.1 request."))
            return
        # httptools keeps an unfinished header or trailer itself, without a bound.
        if self.in_head:
            if self.head_size > self.limits.header_size:
                self.refuse(_head_too_large())
        elif self.framing_size > self.limits.header_size:
            self.refuse(_framing_too_large())
        elif self.framing_size < 0:
            self.framing_size = 0  # bytes saved in one read are no credit for the next

    def _go_on(self, data: bytes, end: int) -> None:
        """Nothing here can be upgraded to, so the request is served as it is (RFC 9110 §7.8).

        The parser stops at the end of such a head and takes no body, although some clients offer HTTP/2 with every
        POST: a new parser is given the same framing headers, and goes on. Pipelined requests may do so again.
        """
        rest = memoryview(data)
        while True:
            rest = rest[end:]
            framing = b"".join(b"%b: %b\r\n" % pair for pair in self.headers if pair[0] in _FRAMING_HEADERS)
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.replaying, self.upgrading = True, False
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                end = upgrade.args[0]
            else:
                return

    def on_message_begin(self) -> None:
        """A request begins."""
        if self.replaying:
            return
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self.in_head = True
        self.first = False
        self.head_since = self.clock.now
        self.head_size = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, complete; or a trailer, which is dropped.

        httptools reports both alike. A trailer that became a header could be an identity that no proxy checked
        (RFC 9110 §6.5.1).
        """
        if self.in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))
        elif not self.replaying:
            self.trailer_count += 1
            if self.trailer_count > self.limits.header_count:
                self.refusal = _framing_too_large()
                raise ValueError  # the parser stops, and data_received refuses

    def on_chunk_header(self) -> None:
        """The size of a chunk is there."""
        self.framing_size -= _CHUNK_FRAMING

    def on_headers_complete(self) -> None:
        """The head is there: serve the request, behind those before it."""
        if self.replaying:
            self.replaying = False
            return
        self.in_head = False
        self.framing_size = self.trailer_count = 0
        self._check_head()
        parser, url = self.parser, self.url
        self.upgrading = parser.should_upgrade()
        version = parser.get_http_version()
        if url == b"/mcp":
            path, raw_path, query = "/mcp", url, b""
        else:
            parsed = httptools.parse_url(url)
            raw_path = parsed.path or b"/"
            path, query = unquote(raw_path.decode("ascii")), parsed.query or b""
        method = parser.get_method().decode("ascii")
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": self.headers,
            "method": method,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
        }
        exchange = Exchange(self, scope, version != "1.0" and parser.should_keep_alive(), method == "HEAD")
        before, self.reading = self.serving, exchange
        if before is None or before.complete:
            self.start(exchange)
        else:
            self.flow.pause_reading()
            self.waiting.append(exchange)
            if len(self.waiting) > PIPELINED:
                raise ValueError  # the parser stops, and data_received refuses

    def _check_head(self) -> None:
        limits = self.limits
        # A head that came in one small chunk is small: only others are measured.
        if len(self.headers) > limits.header_count or (
            (self.head_size or self.chunk_size > limits.header_size)
            and len(self.url) + sum(len(n) + len(v) + 4 for n, v in self.headers) > limits.header_size
        ):
            self.refusal = _head_too_large()
            raise ValueError  # the parser stops, and data_received refuses

    def start(self, exchange: Exchange) -> None:
        """Run the application for this request."""
        self.serving = exchange
        exchange.paused = self.flow.write_paused
        exchange.task = task = self.loop.create_task(exchange.run(self.app))
        self.tasks.add(task)

    def on_body(self, body: bytes) -> None:
        """A part of the body of the request that was read last."""
        self.framing_size -= len(body)
        exchange = self.reading
        if exchange is not None and exchange.body is not None and not exchange.complete:
            if exchange.body:
                exchange.hold(body)
            else:
                exchange.body = body
            if len(exchange.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            exchange.wake()

    def on_message_complete(self) -> None:
        """The body is there."""
        exchange = self.reading
        if exchange is not None and not self.upgrading:
            exchange.more_body = False
            exchange.wake()

    # -- writing

    def on_response_complete(self) -> None:
        """An answer is written: the next request, or an idle connection."""
        self.server_state.total_requests += 1
        transport = self.transport
        if transport.is_closing():
            return
        exchange = self.serving
        if exchange is not None and not exchange.keep_alive:
            self.hang_up(exchange.more_body)
            return
        self.idle_since = self.clock.now
        if self.waiting:
            self.start(self.waiting.pop(0))
        if not self.waiting:
            self.flow.resume_reading()

    def hang_up(self, unread: bool) -> None:
        """Close; where the client is still sending, after it had the time to read our answer."""
        if unread and self.transport.can_write_eof():
            self.transport.write_eof()
            self.lingering_since = self.clock.now
            self.flow.resume_reading()
        else:
            self.transport.close()

    def refuse(self, error: ProtocolError) -> None:
        """Answer what cannot be a request, and close. Nothing that the client sent is repeated."""
        if self.lingering_since or self.transport.is_closing():
            return
        exchange = self.serving
        if exchange is not None and not exchange.complete:
            if exchange.started or exchange is not self.reading:
                self.transport.close()  # the answer to something else is on its way: this connection is lost
                return
            exchange.leave()
        elif exchange is not None and exchange is self.reading and exchange.more_body:
            self.hang_up(unread=True)  # it is answered already: a second answer would belong to nothing
            return
        body = encode_error(None, error)
        self.transport.write(
            b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (STATUS_LINE[error.http_status], self.clock.date, len(body), body)
        )
        self.hang_up(unread=True)

    def shutdown(self) -> None:
        """The server ends: this connection takes no further request."""
        self.waiting.clear()
        if self.serving is None or self.serving.complete:
            self.transport.close()
        else:
            self.serving.keep_alive = False

    def pause_writing(self) -> None:
        """The client takes no bytes at the moment."""
        self.stalled_since = self.clock.now
        super().pause_writing()
        if self.serving is not None:
            self.serving.paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self.stalled_since = 0.0
        super().resume_writing()
        if self.serving is not None:
            self.serving.paused = False

    def sweep(self, now: float) -> None:
        """Close what is over one of its times."""
        limits = self.limits
        if self.lingering_since:
            if self.lingering_since < now - _LINGER:
                self.transport.abort()
        elif self.stalled_since and self.stalled_since < now - limits.stalled_time:
            self.transport.abort()
        elif self.in_head:
            if self.head_since < now - limits.header_time:
                self.refuse(
                    InvalidRequest("The headers did not arrive in time (--limit header_time).", http_status=408)
                )
        elif (self.serving is None or self.serving.complete) and self.idle_since < now - (
            limits.header_time if self.first else limits.keep_alive
        ):
            self.transport.close()


class Exchange:
    """One request and its answer: the `receive` and `send` of one ASGI call."""

    __slots__ = (
        "body",
        "chunked",
        "complete",
        "connection",
        "disconnected",
        "head",
        "head_only",
        "keep_alive",
        "more_body",
        "paused",
        "scope",
        "started",
        "task",
        "transport",
        "waiter",
    )

    def __init__(self, connection: Connection, scope: Any, keep_alive: bool, head_only: bool) -> None:
        self.connection = connection
        self.transport = connection.transport
        self.paused = False
        """The client takes no bytes at the moment. Kept here since a notice to ten thousand then looks at less."""
        self.scope = scope
        self.keep_alive = keep_alive
        self.head_only = head_only
        self.body: bytes | bytearray | None = b""
        """What has arrived and was not received yet; None when everything was."""
        self.more_body = True
        self.waiter: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.head = b""
        self.started = self.chunked = self.complete = self.disconnected = False

    async def run(self, app: Any) -> None:
        """Call the application; an answer that it does not finish costs the connection."""
        connection = self.connection
        try:
            await app(self.scope, self.receive, self)
        except asyncio.CancelledError:
            pass
        except BaseException:
            log.exception("The HTTP application failed")
        finally:
            if self.task is not None:
                connection.tasks.discard(self.task)
                self.task = None
            if not self.complete and not self.disconnected:
                self.complete = True
                connection.transport.close()

    def hold(self, body: bytes) -> None:
        """Keep a part of the body until it is received; a thousand tiny parts cost no more than a large one."""
        if not isinstance(self.body, bytearray):
            self.body = bytearray(self.body or b"")
        self.body += body

    def wake(self) -> None:
        """There is something to receive."""
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def leave(self) -> None:
        """The client is gone."""
        if not self.complete:
            self.disconnected = True
        self.wake()

    async def receive(self) -> dict[str, Any]:
        """ASGI's receive: the body in parts, then the end."""
        connection = self.connection
        while not self.disconnected and not self.complete:
            body = self.body
            if body is not None and (body or not self.more_body):
                more = self.more_body
                self.body = b"" if more else None
                if more:
                    connection.flow.resume_reading()
                return {"type": "http.request", "body": body if type(body) is bytes else bytes(body), "more_body": more}
            if connection.expect_100_continue and body is not None and not self.started:
                connection.expect_100_continue = False
                connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.flow.resume_reading()
            self.waiter = connection.loop.create_future()
            await self.waiter
        return {"type": "http.disconnect"}

    def write_at_once(self, body: bytes) -> bool:
        """Send a part of a stream that has begun; False if the connection takes nothing now and `send` would wait."""
        if self.disconnected or self.complete:
            return True
        if self.paused:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(body), body) if self.chunked else body)
        return True

    async def __call__(self, message: dict[str, Any]) -> None:
        """ASGI's send. Only this package's application is served here, and what it sends is in order."""
        connection = self.connection
        if connection.flow.write_paused and not self.disconnected:
            await connection.flow.drain()
        if self.disconnected and STOPS in message:
            raise ClientGone
        if self.disconnected or self.complete:
            return
        if not self.started:
            self._start(message)
            return
        body, more = message["body"], message.get("more_body", False)
        transport = connection.transport
        if self.head_only:
            body = b""
        elif self.chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                body += b"0\r\n\r\n"
        if self.head:  # one write for a head and its body
            body, self.head = self.head + body, b""
        if body:
            transport.write(body)
        if not more:
            self.complete = True
            self.wake()
            connection.on_response_complete()

    def _start(self, message: dict[str, Any]) -> None:
        self.started = True
        connection = self.connection
        lines = [STATUS_LINE[message["status"]], connection.clock.date]
        streamed = message["status"] != 204
        for name, value in message["headers"]:
            if name == b"connection":
                self.keep_alive = False
                continue
            if name == b"content-length":
                streamed = False
            lines.append(b"%b: %b\r\n" % (name, value))
        if streamed:
            self.chunked = self.scope["http_version"] != "1.0"
            if self.chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False  # the end of the connection is the end of the body
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        if streamed:
            connection.transport.write(b"".join(lines))
        else:
            self.head = b"".join(lines)


def _framing_too_large() -> ProtocolError:
    message = "The request's chunk extensions or trailers are too large (--limit header_size, header_count)."
    return InvalidRequest(message, http_status=431)


def _head_too_large() -> ProtocolError:
    return InvalidRequest("The request's headers are too large (--limit header_size, header_count).", http_status=431)
