"""HTTP/1.1 on one connection: httptools parses the requests, an ASGI application answers them.

`data_received` feeds the parser, which calls the `on_…` methods as it finds the parts of a request. When the head is
complete, the request becomes an `Exchange`: the `receive` and `send` of one ASGI call, which runs in a task. One
exchange is served at a time. Requests that arrive before its answer wait, and reading pauses. Reading also pauses while
more than 64 KiB of a body wait for `receive`.

The parser does not limit an unfinished line. So `overhead` counts the bytes of a head while it arrives, and afterwards
those of chunk extensions and trailers.

A connection has no timer: `Connections.sweep` checks the deadlines of all connections once a second.

Bytes that are not a valid request get an error in JSON. Then the connection closes its sending side, and drops what
arrives for `LINGER_SECONDS`. If bytes were left unread, the system would send a reset, which could destroy the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from math import inf
from time import time
from typing import Any
from urllib.parse import unquote

import httptools

from wharfinger.errors import InvalidRequest, Overloaded, ProtocolError
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.jsonrpc import encode_error
from wharfinger.protocol.shares import FairTable, name_owner
from wharfinger.transports.http_server.asgi_response import ABORTABLE, ClientGone

__all__ = ["MAX_PIPELINED_REQUESTS", "Connections", "Exchange", "HttpConnection"]

log = logging.getLogger("wharfinger.transports.http")

MAX_PIPELINED_REQUESTS = 100
"""The maximum number of requests of one connection that wait for the answers to earlier ones; a client that sends more
is disconnected."""
MAX_REFUSED_CONNECTIONS = 32
"""The maximum number of connections beyond the limit that may wait for their error; more are closed at once, to keep
descriptors free."""
CONNECTIONS_PER_TURN = 100
"""The maximum number of connections that end in one turn of the event loop, in about 4 ms. Ten thousand would take half
a second."""
LINGER_SECONDS = 2.0
"""Seconds for which a refused client may continue to send."""
_MAX_BUFFERED_BYTES = 64 * 1024
"""The maximum number of bytes of a body that wait for `receive`; with more, reading pauses."""
_CHUNK_HEAD_BYTES = 16
"""Bytes of each chunk that `overhead` does not count: its size in hexadecimal, and two line ends."""
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding")
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES = {n: f"HTTP/1.1 {n} {_PHRASES.get(n, '')}\r\n".encode() for n in range(200, 600)}


class Connections:
    """The open connections of one server, and what they share: the application, limits, a clock."""

    now: float
    """The loop's time at the last sweep."""
    date: bytes
    """The Date header, as a line."""

    def __init__(self, app: Callable[..., Awaitable[None]], limits: HttpLimits, limit: int) -> None:
        self.app = app
        self.limits = limits
        self.limit = limit
        """The maximum number of connections that are served at a time."""
        self.open: set[HttpConnection] = set()
        """Connections that are served or being refused."""
        self.served: FairTable[HttpConnection] = FairTable()
        self.running: set[Exchange] = set()
        self.loop = asyncio.get_running_loop()
        self._callbacks: deque[Callable[[], object]] = deque()
        self.sweep()

    def sweep(self) -> None:
        """Read the clock, and close each connection that has passed one of its deadlines."""
        self.now = self.loop.time()
        self.date = b"date: %b\r\n" % formatdate(time(), usegmt=True).encode()
        for connection in list(self.open):
            connection.check_deadlines(self.now)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call this in one of the next turns of the loop, at most `CONNECTIONS_PER_TURN` callbacks in each."""
        if not self._callbacks:
            self.loop.call_soon(self._call_some)
        self._callbacks.append(callback)

    def _call_some(self) -> None:
        callbacks = [self._callbacks.popleft() for _ in range(min(CONNECTIONS_PER_TURN, len(self._callbacks)))]
        if self._callbacks:
            self.loop.call_soon(self._call_some)
        for callback in callbacks:
            callback()

    def admit(self, connection: HttpConnection) -> bool:
        """Serve a connection. If there are too many, close another for it, or return False if none can be closed."""
        if self.served.shares.total >= self.limit:
            victim = self.served.find_victim(connection.owner, lambda other: other.busy)
            if victim is None:
                return False
            self.served.discard(victim.owner, victim)
            victim.transport.abort()
        self.served.add(connection.owner, connection)
        return True


class HttpConnection(asyncio.Protocol):
    """One connection of a client."""

    transport: asyncio.Transport
    parser: Any
    owner: str

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.limits = connections.limits
        self.parser = _new_parser(self)
        self.serving: Exchange | None = None
        """The request that is being answered."""
        self.reading: Exchange | None = None
        """The request whose body is being read, or was read last."""
        self.waiting: list[Exchange] = []
        self.in_head = False
        self.upgrading = False
        """Whether a head offered an upgrade, which stops the parser, and no new parser has taken over yet."""
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.read_size = 0
        """Bytes of the read that is being parsed."""
        self.overhead = 0
        """Bytes of the unfinished head, or of chunk extensions and trailers (see the docstring of this module)."""
        self.trailer_count = 0
        self.reading_paused = False
        self.drained: asyncio.Event | None = None
        """Set when the client takes bytes again; None while it takes them."""
        self.lingering = False
        """Whether the connection ends after the answer, and drops what still arrives."""
        self.deadline = connections.now + self.limits.header_time
        """When the head must be complete, the next request must have begun, or a refused client must have closed its
        side."""
        self.write_deadline = inf
        """When a client that takes no bytes is disconnected."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve a client, or refuse it if there are too many."""
        self.transport = transport
        self.server, self.client = (_address(transport, name) for name in ("sockname", "peername"))
        self.scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self.owner = name_owner("", self.client[0] if self.client else "")
        connections = self.connections
        connections.open.add(self)
        if not connections.admit(self):
            self.refuse(Overloaded("Too many connections are open: try again later."))
            if len(connections.open) > connections.limit + MAX_REFUSED_CONNECTIONS:
                transport.abort()

    @property
    def busy(self) -> bool:
        """Whether a request arrives or is being answered."""
        return self.in_head or self.serving is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the client is gone."""
        self.connections.open.discard(self)
        self.connections.served.discard(self.owner, self)
        for exchange in (self.serving, *self.waiting):
            if exchange is not None:
                exchange.disconnected = True
                self.connections.call_soon(exchange.wake)
        self.waiting.clear()
        if self.drained is not None:
            self.drained.set()
        # These refer back to this connection. Without them its memory is freed now, not by the garbage collector.
        self.parser = self.serving = self.reading = None

    def eof_received(self) -> bool:
        """Close, because the client sends nothing more. If many end at once, this takes several turns of the loop."""
        if self.scheme == "https":  # TLS has no half-closed connections: the transport closes
            return False
        self.connections.call_soon(self.transport.close)
        return True

    # -- reading

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        if self.lingering:
            return
        self.read_size = len(data)
        self.overhead += len(data)
        rest: bytes | memoryview = data
        try:
            while True:
                try:
                    self.parser.feed_data(rest)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    rest = memoryview(rest)[upgrade.args[0] :]
                    self._replace_parser()
        except httptools.HttpParserError as error:
            refusal = error.__context__  # raised by one of the `on_…` methods
            if not isinstance(refusal, ProtocolError):
                refusal = InvalidRequest("This is not a well-formed HTTP/1.1 request.")
            self.refuse(refusal)
            return
        if self.overhead > self.limits.header_size:
            self.refuse(_head_too_large() if self.in_head else _framing_too_large())
        elif self.overhead < 0:
            self.overhead = 0  # `on_headers_complete` set it to 0, and then `on_body` subtracted the body

    def _replace_parser(self) -> None:
        """Continue after a head that offered an upgrade; the request is served without it (RFC 9110 §7.8).

        The parser stops after such a head, but some clients offer HTTP/2 with every POST. A new parser gets the headers
        that say where the body ends, and reads the body.
        """
        framing = b"".join(b"%b: %b\r\n" % pair for pair in self.headers if pair[0] in _FRAMING_HEADERS)
        self.parser = _new_parser(self)
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)

    def on_message_begin(self) -> None:
        """Called by the parser when a request begins."""
        if self.upgrading:
            return
        self.url = b""
        self.headers = []
        self.in_head = True
        self.overhead = 0
        self.deadline = self.connections.now + self.limits.header_time

    def on_url(self, url: bytes) -> None:
        """Called with a part of the request's target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Drop a trailer, which is reported here too but is not a header (RFC 9110 §6.5.1)."""
        if self.in_head:
            self.headers.append((name.lower(), value))
        elif not self.upgrading:
            self.trailer_count += 1
            if self.trailer_count > self.limits.header_count:
                raise _framing_too_large()

    def on_headers_complete(self) -> None:
        """Serve the request, after those that came before it."""
        if self.upgrading:
            self.upgrading = False
            return
        headers, url, parser, limits = self.headers, self.url, self.parser, self.limits
        # A head that arrived within one small read is small: do not measure it.
        if len(headers) > limits.header_count or (
            (self.overhead or self.read_size > limits.header_size)
            and len(url) + sum(len(name) + len(value) + 4 for name, value in headers) > limits.header_size
        ):
            raise _head_too_large()
        self.in_head = False
        self.deadline = inf
        self.overhead = self.trailer_count = 0
        self.upgrading = parser.should_upgrade()
        version = parser.get_http_version()
        if url == b"/mcp":
            path, raw_path, query = "/mcp", url, b""
        else:
            parsed = httptools.parse_url(url)
            raw_path = parsed.path or b"/"
            path, query = unquote(raw_path.decode("ascii")), parsed.query or b""
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": headers,
            "method": parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
        }
        self.reading = exchange = Exchange(self, scope, version != "1.0" and parser.should_keep_alive())
        if self.serving is None:
            self.serve(exchange)
            return
        self.pause_reading()
        self.waiting.append(exchange)
        if len(self.waiting) > MAX_PIPELINED_REQUESTS:
            # This only ends the parsing: `refuse` closes without this text, because an answer is under way.
            raise InvalidRequest("Too many requests were sent before the answers to earlier ones.")

    def serve(self, exchange: Exchange) -> None:
        """Run the application for this request."""
        self.serving = exchange
        exchange.paused = self.drained is not None
        self.connections.running.add(exchange)
        exchange.task = self.connections.loop.create_task(exchange.run())

    def on_chunk_header(self) -> None:
        """Called when the size of a chunk has been read."""
        self.overhead -= _CHUNK_HEAD_BYTES

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body until `receive` returns it; drop it if the answer is complete."""
        self.overhead -= len(body)
        exchange = self.reading
        if exchange is None or exchange.complete:
            return
        if not exchange.body:
            exchange.body = body
        else:
            if isinstance(exchange.body, bytes):  # appending to bytes would copy them for each part
                exchange.body = bytearray(exchange.body)
            exchange.body += body
        if len(exchange.body) > _MAX_BUFFERED_BYTES:
            self.pause_reading()
        exchange.wake()

    def on_message_complete(self) -> None:
        """Called when the body is complete."""
        if self.reading is not None and not self.upgrading:
            self.reading.more_body = False
            self.reading.wake()

    def pause_reading(self) -> None:
        """Stop reading: what the client sends waits in the system's buffers."""
        if not self.reading_paused:
            self.reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read. From now on, the client has the full time for a head of which a part has arrived."""
        if self.reading_paused:
            self.reading_paused = False
            if self.in_head:
                self.deadline = self.connections.now + self.limits.header_time
            self.transport.resume_reading()

    # -- writing

    def pause_writing(self) -> None:
        """Called by the transport when the client is slow."""
        self.write_deadline = self.connections.now + self.limits.stalled_time
        self.drained = asyncio.Event()
        if self.serving is not None:
            self.serving.paused = True

    def resume_writing(self) -> None:
        """Called by the transport when the client has caught up."""
        self.write_deadline = inf
        if self.drained is not None:
            self.drained.set()
            self.drained = None
        if self.serving is not None:
            self.serving.paused = False

    def finish(self, exchange: Exchange) -> None:
        """Continue after an answer: serve the next request, or become idle."""
        self.serving = None
        if self.transport.is_closing():
            return
        if not exchange.keep_alive:
            self.hang_up(exchange.more_body or self.lingering)
            return
        if self.waiting:
            self.serve(self.waiting.pop(0))
        elif not self.in_head:
            self.deadline = self.connections.now + self.limits.keep_alive
        if not self.waiting:
            self.resume_reading()

    def hang_up(self, still_sending: bool) -> None:
        """Close. Except over TLS, first give a client that may be `still_sending` time to read the answer."""
        if still_sending and self.transport.can_write_eof():
            self.transport.write_eof()
            self.lingering = True
            self.deadline = self.connections.now + LINGER_SECONDS
            self.resume_reading()
        else:
            self.transport.close()

    def refuse(self, error: ProtocolError) -> None:
        """Answer with an error, which quotes nothing that the client sent, and close."""
        if self.lingering or self.transport.is_closing():
            return
        exchange = self.serving
        if exchange is not None:
            if exchange is self.reading and not exchange.more_body:  # a later request is refused: answer only this one
                self.lingering = True
                self.in_head = exchange.keep_alive = False
                self.deadline = inf
                return
            if exchange.started or exchange is not self.reading:
                self.transport.close()  # a part of this answer was sent, or an earlier request has no answer yet
                return
            exchange.disconnected = True
            exchange.wake()
        elif self.reading is not None and self.reading.more_body:
            self.hang_up(still_sending=True)  # the request whose body arrives was answered already
            return
        body = encode_error(None, error)
        self.transport.write(
            b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (_STATUS_LINES[error.http_status], self.connections.date, len(body), body)
        )
        self.hang_up(still_sending=True)

    def shut_down(self) -> None:
        """Accept no further request, because the server ends."""
        self.waiting.clear()
        if self.serving is None:
            self.transport.close()
        else:
            self.serving.keep_alive = False

    def check_deadlines(self, now: float) -> None:
        """Close if the client is too late in reading or in sending."""
        if self.write_deadline == inf and self.transport.is_closing():  # bytes are left that the client does not take
            self.write_deadline = now + self.limits.stalled_time
        if self.write_deadline < now or (self.lingering and self.deadline < now):
            self.transport.abort()
        elif self.deadline < now and not self.reading_paused:
            if self.in_head:
                message = "The headers did not arrive in time (--limit header_time)."
                self.refuse(InvalidRequest(message, http_status=408))
            else:
                self.transport.close()


class Exchange:
    """One request and its answer: calls the application with `receive` and with itself as `send`.

    The application is this package's own, so the order of its messages is not checked.
    """

    __slots__ = (
        "body", "chunked", "complete", "connection", "continued", "disconnected", "head", "head_only", "keep_alive",
        "more_body", "paused", "scope", "started", "task", "transport", "waiter",
    )  # fmt: skip

    def __init__(self, connection: HttpConnection, scope: dict[str, Any], keep_alive: bool) -> None:
        self.connection = connection
        self.transport = connection.transport
        self.paused = False
        """Whether the client takes no bytes now. Copied here because `write_at_once` runs for each of many streams."""
        self.scope = scope
        self.keep_alive = keep_alive
        self.head_only = scope["method"] == "HEAD"
        self.body: bytes | bytearray | None = b""
        """The part of the body that has arrived, but was not returned by `receive` yet; None after the last part."""
        self.more_body = True
        self.waiter: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.head = b""
        """The head of the answer, until the first part of the body is written with it."""
        self.continued = False
        """Whether `100 Continue` was sent, if the client expects it (RFC 9110 §10.1.1)."""
        self.started = self.chunked = self.complete = self.disconnected = False

    async def run(self) -> None:
        """Call the application. Close the connection if it does not finish the answer."""
        connections = self.connection.connections
        try:
            await connections.app(self.scope, self.receive, self)
        except asyncio.CancelledError:
            pass
        except BaseException:
            log.exception("The HTTP application failed")
        finally:
            connections.running.discard(self)
            if not self.complete and not self.disconnected:
                self.complete = True
                self.transport.close()

    def wake(self) -> None:
        """Wake up a waiting `receive`."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def receive(self) -> dict[str, Any]:
        """Return the next event, as ASGI's `receive`: the body in parts, then `http.disconnect`."""
        connection = self.connection
        while not self.disconnected and not self.complete:
            body, more = self.body, self.more_body
            if body is not None and (body or not more):
                self.body = b"" if more else None
                if more:
                    connection.resume_reading()
                return {"type": "http.request", "body": bytes(body), "more_body": more}
            if body is not None and not (self.continued or self.started):
                self.continued = True
                if any(name == b"expect" and value.lower() == b"100-continue" for name, value in self.scope["headers"]):
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.resume_reading()
            self.waiter = connection.connections.loop.create_future()
            await self.waiter
        return {"type": "http.disconnect"}

    async def __call__(self, message: dict[str, Any]) -> None:
        """Send an event, as ASGI's `send`."""
        connection = self.connection
        if connection.drained is not None and not self.disconnected:
            await connection.drained.wait()
        if self.disconnected and ABORTABLE in message:
            raise ClientGone
        if self.disconnected or self.complete:
            return
        if not self.started:
            self._start(message["status"], message["headers"])
            return
        body, more = message["body"], message.get("more_body", False)
        if self.head_only:
            body = b""
        elif self.chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                body += b"0\r\n\r\n"
        if self.head:  # one write for a head and its body
            body, self.head = self.head + body, b""
        if body:
            self.transport.write(body)
        if not more:
            self.complete = True
            self.wake()
            connection.finish(self)

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        lines = [_STATUS_LINES[status], self.connection.connections.date]
        streamed = status != 204
        for name, value in headers:
            if name == b"connection":
                self.keep_alive = False
                continue
            if name == b"content-length":
                streamed = False
            lines.append(b"%b: %b\r\n" % (name, value))
        if streamed and self.scope["http_version"] != "1.0":
            self.chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        elif streamed:
            self.keep_alive = False  # the end of the connection is the end of the body
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
            raise ValueError("A header of the answer contains a line end.")
        self.started = True
        if streamed:
            self.transport.write(head)
        else:
            self.head = head

    def write_at_once(self, body: bytes) -> bool:
        """Send a part of a stream that has begun; False if `send` would have to wait for the client."""
        if self.disconnected or self.complete:
            return True
        if self.paused:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(body), body) if self.chunked else body)
        return True


def _new_parser(connection: HttpConnection) -> Any:
    parser = httptools.HttpRequestParser(connection)
    # Without it, a request after one with `Connection: close` is an error, and the earlier one loses its answer.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    address: tuple[str, int] | str | None = transport.get_extra_info(name)
    return address[:2] if isinstance(address, tuple) else None  # IPv6 adds a flow label and a scope


def _framing_too_large() -> ProtocolError:
    message = "The request's chunk extensions or trailers are too large (--limit header_size, header_count)."
    return InvalidRequest(message, http_status=431)


def _head_too_large() -> ProtocolError:
    return InvalidRequest("The request's headers are too large (--limit header_size, header_count).", http_status=431)
