"""A small service on a real HTTP server in its own thread, and a client that sends raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import uvicorn
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.auth import static_token
from wharfinger.errors import ResourceNotFound, WharfingerError
from wharfinger.protocol import lifecycle, subscriptions
from wharfinger.protocol.interfaces import Handler, NotificationHandler
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import InputNeeded, Request, ResultMeta, notify
from wharfinger.protocol.revisions import Revision
from wharfinger.transports.http_server.app import HttpApp
from wharfinger.transports.http_server.runner import HttpServer, find_loop_factory, serve_http

STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
BIG = bytes(range(256)) * 4096
T = TypeVar("T")


class SampleService:
    """A service with resources `test://<name>`, which `read` handles."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.info = t.Implementation(name="harbour", version="1")
        self.instructions: str | None = None
        self.limits = limits or Limits()
        self.result_meta = ResultMeta(self.info)
        self.handlers: dict[str, Handler] = lifecycle.handlers(self)
        self.handlers |= {
            "resources/read": self.read,
            "resources/subscribe": self.subscribe,
            "subscriptions/listen": self.listen,
        }
        self.notification_handlers: dict[str, NotificationHandler] = {}
        self.starts = self.closes = 0
        self.fail_start = False
        self.detached = False
        """Whether the last read of `test://detach` could close its stream."""
        self.arrived = threading.Semaphore(0)
        """Released when a handler starts to wait: for its gate, for the client's answer or as a listener."""
        self.ended = threading.Semaphore(0)
        """Released when such a handler is cancelled, and when a listener ends."""
        self.gates: list[asyncio.Event] = []
        """Setting one finishes a read that waits."""
        self.ends: set[asyncio.Future[None]] = set()
        self.listeners: dict[int, Request] = {}
        self.sessions: list[Any] = []

    def capabilities(self, rules: Revision) -> t.ServerCapabilities:
        return t.ServerCapabilities(resources=t.ResourcesCapability(subscribe=True))

    async def start(self, holder: object = None) -> None:
        if self.fail_start:
            raise RuntimeError("secret reason")
        self.starts += 1

    def drain(self) -> None:
        for end in self.ends:
            if not end.done():
                end.set_result(None)

    async def close(self, holder: object = None) -> None:
        self.closes += 1

    async def read(self, request: Request) -> Any:
        uri: str = request.params.uri
        match uri.removeprefix("test://"):
            case "missing":
                raise ResourceNotFound(uri)
            case "exit":
                raise SystemExit(3)
            case "boom":
                raise ValueError("secret /etc/path")
            case "cancel":
                raise asyncio.CancelledError
            case "surrogate":
                return text(uri, "\ud800")
            case "surrogate-in-error":
                raise ResourceNotFound(f"{uri} \udcff")
            case "big":
                return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, blob=BIG)])
            case "lines":
                return Raw(b'{"contents":\n[]\r\n}')
            case "progress" | "progress-exit":
                for step in range(3):
                    notify(
                        request, "notifications/progress", {"progressToken": 1, "progress": step, "message": "a\n\nb"}
                    )
                if uri.endswith("exit"):
                    raise SystemExit
                await asyncio.sleep(0)
            case "wait" | "wait-progress":
                await self.wait(request)
            case "flood":
                params = {"progressToken": 1, "progress": 1, "message": "a" * 900}
                for _ in range(20_000):
                    notify(request, "notifications/progress", params)
                await self.wait(request)
            case "stubborn":
                try:
                    await self.wait(request)
                except asyncio.CancelledError:
                    assert not notify(request, "notifications/progress", {"progressToken": 1, "progress": 1})
            case "wait-progress-big":
                await self.wait(request)
                return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, blob=BIG)])
            case "ask":
                return text(uri, await self.ask(request))
            case "progress-ask":
                notify(request, "notifications/progress", {"progressToken": 1, "progress": 1})
                return text(uri, await self.ask(request))
            case "detach":
                await self.detach_and_wait(request)
            case "input-required":
                raise BaseExceptionGroup("input is needed", [InputNeeded({"resultType": "input_required"})])
            case "principal":
                return text(uri, request.caller.principal.subject)
        return text(uri, uri)

    async def wait(self, request: Request) -> None:
        """Wait until the test sets the gate of this read."""
        if "progress" in request.params.uri:
            notify(request, "notifications/progress", {"progressToken": 1, "progress": 1})
        gate = asyncio.Event()
        self.gates.append(gate)
        self.arrived.release()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.ended.release()
            raise

    async def ask(self, request: Request) -> str:
        """Request the roots of the client, and return its answer."""
        answer = request.channel.ask(request, "roots/list", {})
        if answer is None:
            return "nobody"
        self.arrived.release()
        try:
            message = await answer
        except WharfingerError as error:
            return type(error).__name__
        except asyncio.CancelledError:
            self.ended.release()
            raise
        return bytes(message.error if message.result is UNSET else message.result).decode()

    async def detach_and_wait(self, request: Request) -> None:
        """Close the stream of the call, send two notifications, and wait."""
        self.detached = request.channel.detach(request, 7)
        for step in range(2):
            notify(request, "notifications/progress", {"progressToken": 1, "progress": step})
        await self.wait(request)

    async def subscribe(self, request: Request) -> t.EmptyResult:
        self.sessions.append(request.session)
        return t.EmptyResult()

    async def listen(self, request: Request) -> Any:
        tag = subscriptions.meta_of(request.id)
        uris = request.params.notifications.resource_subscriptions
        honoured = subscriptions.acknowledgement([], [] if uris is UNSET else uris)
        notify(request, "notifications/subscriptions/acknowledged", {"notifications": honoured, "_meta": tag})
        end = asyncio.get_running_loop().create_future()
        self.ends.add(end)
        self.listeners[id(request)] = request
        self.arrived.release()
        try:
            await end
        finally:
            self.ends.discard(end)
            del self.listeners[id(request)]
            self.ended.release()
        return subscriptions.listen_result(request.id)

    def notify(self, uri: str) -> list[bool]:
        """Send an update to every listener, and return for each whether it was sent. Call this on the loop."""
        notification_with_tag = subscriptions.updated(uri)
        return [
            request.channel.send(request, notification_with_tag(encode(subscriptions.meta_of(request.id))))
            for request in self.listeners.values()
        ]


def text(uri: str, value: str) -> t.ReadResourceResult:
    return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type="text/plain", text=value)])


class ServerThread:
    """A server of a service on a real socket in its own thread."""

    def __init__(self, service: SampleService | None = None, **settings: Any) -> None:
        self.service = service or SampleService()
        self.settings = settings
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)  # a thread that hangs must not block the test run
        self.port = 0
        self.stopped = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
                runner.run(self.serve())
        except BaseException as error:
            self.error = error
        finally:
            self.ready.set()

    async def serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(
            serve_http(self.service, "127.0.0.1", 0, on_ready=self.set_port, **self.settings)
        )
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    def set_port(self, url: str) -> None:
        self.port = int(url.rpartition(":")[2])
        self.ready.set()

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run a function on the loop of the server, and return its result."""

        async def run() -> Any:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def open_gates(self) -> None:
        """Finish all reads that wait."""
        self.call(lambda: [gate.set() for gate in self.service.gates])

    def __enter__(self) -> ServerThread:
        self.thread.start()
        assert self.ready.wait(20)
        if self.error is not None:
            raise self.error
        return self

    def stop(self) -> None:
        """Start the shutdown, as a signal does."""
        if not self.stopped:
            self.stopped = True
            self.loop.call_soon_threadsafe(self.task.cancel)

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()
        assert self.error is None, self.error

    def connect(self) -> RawClient:
        """Open a connection to the server."""
        return RawClient(self.port)


class UvicornThread:
    """An application in an unmodified uvicorn with httptools, in its own thread."""

    def __init__(self, app: HttpApp, **options: Any) -> None:
        self.server = uvicorn.Server(
            uvicorn.Config(app, **{"log_config": None, "http": "httptools", "ws": "none"} | options)
        )
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.listener])), daemon=True)

    def __enter__(self) -> UvicornThread:
        self.thread.start()
        return self

    def stop(self) -> None:
        self.server.should_exit = True

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(20)
        self.listener.close()
        assert not self.thread.is_alive()

    def connect(self) -> RawClient:
        """Open a connection to the server."""
        return RawClient(self.port)


def find_app(http: ServerThread) -> HttpApp:
    """Return the application of a server thread."""
    (app,) = [app for app in find_objects(HttpApp) if app.service is http.service]
    return app


def find_server(http: ServerThread) -> HttpServer:
    """Return the HTTP server of a server thread."""
    (server,) = [server for server in find_objects(HttpServer) if server.app.service is http.service]
    return server


def find_objects(kind: type[T]) -> list[T]:
    """Return all instances of a class. The runner has no accessor for its parts."""
    gc.unfreeze()  # frozen objects are not listed, and the runner freezes lasting ones
    return [thing for thing in gc.get_objects() if isinstance(thing, kind)]


class Reply:
    """One HTTP response."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def error(self) -> int:
        code: int = self.json["error"]["code"]
        return code

    @property
    def text(self) -> str:
        value: str = self.json["result"]["contents"][0]["text"]
        return value

    @property
    def events(self) -> list[Any]:
        assert self.headers["content-type"] == "text/event-stream"
        blocks = [block for block in self.body.split(b"\n\n") if block and not block.startswith(b":")]
        texts = [block.partition(b"data: ")[2].replace(b"\ndata: ", b"\n") for block in blocks]
        return [json.loads(text) for text in texts if text]


class RawClient:
    """A TCP connection that sends raw bytes and reads responses."""

    def __init__(self, port: int, timeout: float = 10) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = port
        self.buffered = b""
        self.unread = b""
        """The part of a stream's body after the last event that was read."""
        self.last_id = ""
        self.retry = 0
        self.comments = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Add received bytes to the buffer and return them, or nothing at the end."""
        data = self.socket.recv(1 << 16)
        self.buffered += data
        return data

    def read_until(self, separator: bytes) -> bytes:
        """Read up to and including the separator."""
        while separator not in self.buffered:
            if not self.receive():
                raise EOFError(self.buffered)
        found, _, self.buffered = self.buffered.partition(separator)
        return found + separator

    def read_exactly(self, size: int) -> bytes:
        while len(self.buffered) < size:
            if not self.receive():
                raise EOFError(self.buffered)
        found, self.buffered = self.buffered[:size], self.buffered[size:]
        return found

    def is_closed_by_server(self) -> bool:
        """Return whether the server closes the connection instead of sending data."""
        try:
            return not self.buffered and not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def head(self) -> tuple[int, dict[str, str]]:
        """Read the status and the headers of a response."""
        lines = self.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(lines[0].split(" ")[1]), headers

    def chunk(self) -> bytes:
        """Read one chunk of a chunked body."""
        size = int(self.read_until(b"\r\n"), 16)
        data = self.read_exactly(size)
        self.read_until(b"\r\n")
        return data

    def chunks(self) -> Iterator[bytes]:
        while data := self.chunk():
            yield data

    def event(self) -> Any:
        """Read the next event of a stream and return its message, or None at the end. Skip comments."""
        while b"\n\n" not in self.unread:
            data = self.chunk()
            if not data:
                return None
            self.unread += data
        block, _, self.unread = self.unread.partition(b"\n\n")
        if block.startswith(b":"):
            self.comments += 1
            return self.event()
        for line in block.split(b"\n"):
            if line.startswith(b"id: "):
                self.last_id = line[4:].decode()
            elif line.startswith(b"retry: "):
                self.retry = int(line[7:])
        text = block.partition(b"data: ")[2]
        return json.loads(text) if text else self.event()

    def reply(self) -> Reply:
        """Read a whole response."""
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(self.chunks())
        else:
            body = self.read_exactly(int(headers.get("content-length", 0)))
        return Reply(status, headers, body)

    def request(self, verb: str, path: str = "/mcp", body: bytes | None = None, **headers: str | None) -> None:
        """Send a request. A header that is None is left out, and `_` stands for `-`."""
        all_headers: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}"}
        if body is not None:
            all_headers |= {
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "content-length": str(len(body)),
            }
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{verb} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in all_headers.items() if v is not None)]
        self.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    def fetch(self, verb: str, path: str = "/mcp", body: bytes | None = None, **headers: str | None) -> Reply:
        """Send a request and read the response."""
        self.request(verb, path, body, **headers)
        return self.reply()

    def post(self, message: Any, **headers: str | None) -> None:
        """Send a message, or bytes as they are."""
        self.request("POST", body=message if isinstance(message, bytes) else json.dumps(message).encode(), **headers)

    def send_stateless(self, method: str, params: Any = None, id: Any = 1, **headers: str | None) -> None:
        """Send a request of the stateless era."""
        params = {**(params or {}), "_meta": META}
        routing = {"mcp_protocol_version": STATELESS, "mcp_method": method}
        if method == "resources/read":
            routing["mcp_name"] = params["uri"]
        self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": params}, **{**routing, **headers})

    def call(self, method: str, params: Any = None, id: Any = 1, **headers: str | None) -> Reply:
        """Send a request of the stateless era and read the response."""
        self.send_stateless(method, params, id, **headers)
        return self.reply()

    def read(self, name: str, id: Any = 1, **headers: str | None) -> Reply:
        """Read the resource `test://<name>` in the stateless era."""
        return self.call("resources/read", {"uri": f"test://{name}"}, id, **headers)

    def listen(self, *uris: str, id: Any = 1, **headers: str | None) -> Any:
        """Open a listen stream and return its acknowledgement."""
        self.send_stateless(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": list(uris)}}, id, **headers
        )
        status, received_headers = self.head()
        assert (status, received_headers["content-type"]) == (200, "text/event-stream")
        return self.event()

    # the handshake era

    def initialize(self, **headers: str | None) -> str:
        """Open a session and return its id."""
        reply = self.call_in_session("", "initialize", INITIALIZE, 0, **headers)
        assert reply.status == 200, reply.body
        session = reply.headers["mcp-session-id"]
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, mcp_session_id=session, **headers)
        assert self.reply().status == 202
        return session

    def send_in_session(
        self, session: str, method: str, params: Any = None, id: Any = 1, **headers: str | None
    ) -> None:
        """Send a request in a session, or without one if `session` is empty."""
        session_headers = {} if not session else {"mcp_session_id": session, "mcp_protocol_version": HANDSHAKE}
        self.post(
            {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}, **{**session_headers, **headers}
        )

    def call_in_session(
        self, session: str, method: str, params: Any = None, id: Any = 1, **headers: str | None
    ) -> Reply:
        """Send a request in a session and read the response."""
        self.send_in_session(session, method, params, id, **headers)
        return self.reply()

    def read_in_session(self, session: str, name: str, id: Any = 1) -> Reply:
        return self.call_in_session(session, "resources/read", {"uri": f"test://{name}"}, id)

    def open_stream(self, session: str) -> None:
        """Open the stream of a session, and read its head."""
        self.request("GET", accept="text/event-stream", mcp_session_id=session)
        status, headers = self.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")


def call_tool(client: RawClient, name: str, **meta: Any) -> Reply:
    """Call a tool in the stateless era without arguments, with `meta` added to the `_meta` of the request."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": META | meta}}
    client.post(message, mcp_protocol_version=STATELESS, mcp_method="tools/call", mcp_name=name)
    return client.reply()


INITIALIZE = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}

ALICE_TOKEN, BOB_TOKEN = "alice-0123456789", "bob-0123456789ab"


def verify_alice_or_bob(headers: Mapping[bytes, bytes]) -> Any:
    """Return the principal whose token is sent, or refuse the request."""
    is_bob = headers.get(b"authorization", b"").endswith(BOB_TOKEN.encode())
    return (static_token(BOB_TOKEN, "bob") if is_bob else static_token(ALICE_TOKEN, "alice"))(headers)
