"""Requests to a server without a transport: one at a time, or as the lines of a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
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


def line(method: str, params: dict[str, Any] | None = None, id: Any = None, revision: str = STATELESS) -> bytes:
    """Return a message as a line of this revision. Without an id, it is a notification."""
    params = dict(params or {})
    if revision == STATELESS and id is not None:
        meta = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}
        params["_meta"] = meta | params.get("_meta", {})
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if id is not None:
        message["id"] = id
    return json.dumps(message).encode() + b"\n"


def initialize_params(revision: str) -> dict[str, Any]:
    """Return the params of `initialize`."""
    return {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class RecordingChannel:
    """A channel that records the messages of a handler. It refuses them if `full` is true."""

    multiplexed = False

    def __init__(self, full: bool = False) -> None:
        self.full = full
        self.sent: list[Any] = []

    def send(self, request: Request, message: bytes) -> bool:
        """Record the decoded message."""
        if not self.full:
            self.sent.append(json.loads(message))
        return not self.full

    def ask(self, request: Request, method: str, params: Any) -> None:
        """Send nothing: no answer can arrive during the call, as in a stateless request."""
        return


def make_principal(subject: str | Principal) -> Principal:
    """Return the principal with this name: the anonymous one if it is empty. A principal is returned unchanged."""
    if isinstance(subject, Principal):
        return subject
    return Principal(subject=subject) if subject else ANONYMOUS


def session_of(server: Server, revision: str, principal: str | Principal = "") -> Session:
    """Return a session after its handshake."""
    session = Session(make_principal(principal))
    open_request(
        decode(line("initialize", initialize_params(revision), 0, revision), server.limits),
        session,
        make_principal(principal),
    )
    session.advance("notifications/initialized")
    return session


def make_request(
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
    request = open_request(
        decode(line(method, params, id, revision), server.limits), session, make_principal(principal)
    )
    request.channel = RecordingChannel() if channel is None else channel
    assert request.caller.rules is REVISIONS[revision]
    return request


async def ask(
    server: Server, method: str, params: dict[str, Any] | None = None, revision: str = STATELESS, **options: Any
) -> Any:
    """Send a request, and return the decoded response, with `result` or `error`."""
    request = make_request(server, method, params, revision, **options)
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


async def list_all(server: Server, method: str = "resources/list", revision: str = STATELESS) -> list[Any]:
    """Return the entries of all pages of a list."""
    member = {"resources/list": "resources", "resources/templates/list": "resourceTemplates"}[method]
    entries: list[Any] = []
    params: dict[str, Any] = {}
    while True:
        result = (await ask(server, method, params, revision))["result"]
        entries += result[member]
        if "nextCursor" not in result:
            return entries
        params = {"cursor": result["nextCursor"]}


class Wire(asyncio.WriteTransport):
    """A client of one revision that is connected directly to a `StreamServer`."""

    def __init__(self, server: Server, revision: str = STATELESS, principal: str | Principal = "") -> None:
        super().__init__()
        self.revision = revision
        self.stream = StreamServer(server, principal=make_principal(principal))
        self.stream.connection_made(self)
        self.chunks: list[bytes] = []
        """The bytes of each write."""
        self.answers: dict[Any, Any] = {}
        self.notifications: list[Any] = []
        """The notifications, in order of arrival."""
        self._received = asyncio.Event()
        self._incomplete = b""
        self._next = 100

    async def __aenter__(self) -> Wire:
        if self.revision != STATELESS:
            await self.ask("initialize", initialize_params(self.revision))
            self.notify("notifications/initialized")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [request.task for request in self.stream.peer.in_flight.values()]
        self.stream.connection_lost(None)
        await asyncio.gather(self.stream.ended, *tasks, return_exceptions=True)

    def write(self, data: Any) -> None:
        """Receive bytes of the server."""
        self.chunks.append(bytes(data))
        *lines, self._incomplete = (self._incomplete + bytes(data)).split(b"\n")
        for message in map(json.loads, lines):
            if "method" in message:
                self.notifications.append(message)
            else:
                key = message.get("id")
                self.answers[type(key), key] = message
        self._received.set()

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        self.stream.data_received(line(method, params, None, self.revision))

    def send_request(self, method: str, params: dict[str, Any] | None = None, id: Any = None) -> Any:
        """Send a request, and return its id."""
        if id is None:
            self._next += 1
            id = self._next
        self.stream.data_received(line(method, params, id, self.revision))
        return id

    async def ask(self, method: str, params: dict[str, Any] | None = None, id: Any = None) -> Any:
        """Send a request and wait for its answer."""
        id = self.send_request(method, params, id)
        return await self.answer(id)

    async def answer(self, id: Any) -> Any:
        """Wait for the answer to the request with this id."""
        await self.wait_until(lambda: (type(id), id) in self.answers)
        return self.answers[type(id), id]

    async def wait_for_notifications(self, number: int = 1) -> list[Any]:
        """Wait until there are this many notifications, and return all."""
        await self.wait_until(lambda: len(self.notifications) >= number)
        return self.notifications

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true. It is checked after each write."""
        while not condition():
            self._received.clear()
            await self._received.wait()

    async def watch(self, *uris: str, lists: tuple[str, ...] = (), id: Any = None) -> Any:
        """Watch URIs and lists. Return the id of the acknowledged `subscriptions/listen`, or a session's answers."""
        if self.revision != STATELESS:
            return [await self.ask("resources/subscribe", {"uri": uri}) for uri in uris]
        filter: dict[str, Any] = {f"{name}ListChanged": True for name in lists}
        if uris:
            filter["resourceSubscriptions"] = list(uris)
        before = len(self.notifications)
        id = self.send_request("subscriptions/listen", {"notifications": filter}, id)
        await self.wait_for_notifications(before + 1)
        return id
