"""Ways to drive a real server without a transport of its own: one request at a time, or a stream of lines."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine
from typing import Any

from wharfinger.errors import ProtocolError
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import decode
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.request import (
    Request,
    no_such_method,
    open_request,
    seal_error,
    seal_result,
    to_protocol_error,
)
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.server.app import Server
from wharfinger.transports.stream_server import StreamServer

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
ALL = (*HANDSHAKE, STATELESS)
ERAS = ("2025-11-25", STATELESS)
META = "io.modelcontextprotocol/"


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 20))

    return run


def line(method: str, params: dict[str, Any] | None = None, id: Any = None, revision: str = STATELESS) -> bytes:
    """Return one message as a client of this revision writes it; a notification without an id."""
    params = dict(params or {})
    if revision == STATELESS and id is not None:
        own = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}
        params["_meta"] = own | params.get("_meta", {})
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if id is not None:
        message["id"] = id
    return json.dumps(message).encode() + b"\n"


def hello(revision: str) -> dict[str, Any]:
    """Return the params of `initialize`."""
    return {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Recorder:
    """A channel that keeps what a handler sends before its answer; with `full` it refuses to."""

    multiplexed = False

    def __init__(self, full: bool = False) -> None:
        self.full = full
        self.sent: list[Any] = []

    def send(self, request: Request, message: bytes) -> bool:
        """Keep the message, decoded."""
        if not self.full:
            self.sent.append(json.loads(message))
        return not self.full

    def ask(self, request: Request, method: str, params: Any) -> None:
        """Send nothing: no answer can arrive during the call, as in a stateless request."""
        return


def named(subject: str | Principal) -> Principal:
    """Return a new principal with this name, the anonymous one without a name, or a principal as it is."""
    if isinstance(subject, Principal):
        return subject
    return Principal(subject=subject) if subject else ANONYMOUS


def session_of(server: Server, revision: str, principal: str | Principal = "") -> Session:
    """Return a session after its handshake."""
    session = Session(named(principal))
    open_request(decode(line("initialize", hello(revision), 0, revision), server.limits), session, named(principal))
    session.advance("notifications/initialized")
    return session


def opened(
    server: Server,
    method: str,
    params: dict[str, Any] | None = None,
    revision: str = STATELESS,
    *,
    id: Any = 1,
    principal: str | Principal = "",
    channel: Any = None,
) -> Request:
    """Return the request that a transport would open for this message."""
    session = None if revision == STATELESS else session_of(server, revision, principal)
    request = open_request(decode(line(method, params, id, revision), server.limits), session, named(principal))
    request.channel = Recorder() if channel is None else channel
    assert request.caller.rules is REVISIONS[revision]
    return request


async def ask(
    server: Server, method: str, params: dict[str, Any] | None = None, revision: str = STATELESS, **options: Any
) -> Any:
    """Send one request, and return the whole answer, decoded: with `result`, or with `error`."""
    request = opened(server, method, params, revision, **options)
    try:
        handler = server.handlers.get(method) if request.row is not None else None
        if handler is None:
            raise no_such_method(request)
        answer = seal_result(request, await handler(request), server.result_meta)
    except ProtocolError as error:
        answer = seal_error(request, error, server.result_meta)
    except Exception as error:
        answer = seal_error(request, to_protocol_error(error, "0"), server.result_meta)
    return json.loads(b"".join(answer) if not isinstance(answer, bytes) else answer)


async def read(server: Server, uri: str, revision: str = STATELESS, **options: Any) -> Any:
    """Read a resource, and return its contents or the error."""
    answer = await ask(server, "resources/read", {"uri": uri}, revision, **options)
    return answer["result"]["contents"] if "result" in answer else answer["error"]


async def listed(server: Server, method: str = "resources/list", revision: str = STATELESS) -> list[Any]:
    """Return the entries of every page of a list."""
    member = {"resources/list": "resources", "resources/templates/list": "resourceTemplates"}[method]
    shown: list[Any] = []
    params: dict[str, Any] = {}
    while True:
        result = (await ask(server, method, params, revision))["result"]
        shown += result[member]
        if "nextCursor" not in result:
            return shown
        params = {"cursor": result["nextCursor"]}


class Wire(asyncio.WriteTransport):
    """A client of one revision at the other end of a `StreamServer`, with nothing between them."""

    def __init__(self, server: Server, revision: str = STATELESS, principal: str = "") -> None:
        super().__init__()
        self.revision = revision
        self.stream = StreamServer(server, principal=named(principal))
        self.stream.connection_made(self)
        self.chunks: list[bytes] = []
        """What each write was given."""
        self.answers: dict[Any, Any] = {}
        self.notices: list[Any] = []
        """Notifications, in the order in which they came."""
        self._came = asyncio.Event()
        self._begun = b""
        self._next = 100

    async def __aenter__(self) -> Wire:
        if self.revision != STATELESS:
            await self.ask("initialize", hello(self.revision))
            self.notify("notifications/initialized")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [request.task for request in self.stream.peer.in_flight.values()]
        self.stream.connection_lost(None)
        await asyncio.gather(self.stream.ended, *tasks, return_exceptions=True)

    def write(self, data: Any) -> None:
        """Receive bytes of the server."""
        self.chunks.append(bytes(data))
        *lines, self._begun = (self._begun + bytes(data)).split(b"\n")
        for message in map(json.loads, lines):
            if "method" in message:
                self.notices.append(message)
            else:
                key = message.get("id")
                self.answers[type(key), key] = message
        self._came.set()

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        self.stream.data_received(line(method, params, None, self.revision))

    def put(self, method: str, params: dict[str, Any] | None = None, id: Any = None) -> Any:
        """Send a request, and return its id."""
        if id is None:
            self._next += 1
            id = self._next
        self.stream.data_received(line(method, params, id, self.revision))
        return id

    async def ask(self, method: str, params: dict[str, Any] | None = None, id: Any = None) -> Any:
        """Send a request and wait for its answer."""
        id = self.put(method, params, id)
        return await self.answer(id)

    async def answer(self, id: Any) -> Any:
        """Wait for the answer to the request with this id."""
        await self.until(lambda: (type(id), id) in self.answers)
        return self.answers[type(id), id]

    async def notice(self, number: int = 1) -> list[Any]:
        """Wait until this many notifications came."""
        await self.until(lambda: len(self.notices) >= number)
        return self.notices

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until a condition about the messages holds."""
        while not true():
            self._came.clear()
            await self._came.wait()

    async def watch(self, *uris: str, lists: tuple[str, ...] = (), id: Any = None) -> Any:
        """Watch URIs and lists, and return the id of the acknowledged `subscriptions/listen`, or else the answers."""
        if self.revision != STATELESS:
            return [await self.ask("resources/subscribe", {"uri": uri}) for uri in uris]
        wanted: dict[str, Any] = {f"{name}ListChanged": True for name in lists}
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        before = len(self.notices)
        id = self.put("subscriptions/listen", {"notifications": wanted}, id)
        await self.notice(before + 1)
        return id
