"""Sessions of the handshake era over HTTP: whose they are, what runs in them, and the one stream of each."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from typing import Any

from wharfinger.errors import InternalError, Overloaded, ProtocolError
from wharfinger.protocol.exchange import Pieces, Request, no_such_method, told
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.http import SESSION, TAKES_EVENTS, HttpLimits, Refused, check_session_version, check_stream
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.peer import Answer, Cancelled, Notification, Refusal, ServerPeer
from wharfinger.transports.http_calls import Call, Calls
from wharfinger.transports.http_streams import EventStream, Receive, Send, send_empty, send_json

log = logging.getLogger("wharfinger.transports.http")

__all__ = ["HttpSession", "HttpSessions"]

_BACKLOG = 64
"""Messages kept for a client that has no stream open at the moment, such as between two GETs."""
_UNKNOWN = "There is no such session, or it has ended: send initialize without Mcp-Session-Id."


Sealed = tuple[bytes | Pieces | None, int, bool]
"""An answer, or None where the request was cancelled; its HTTP status; whether it is a result."""


class HttpSession:
    """One session: its peer, and its one stream for what belongs to no request."""

    __slots__ = ("backlog", "call", "key", "peer", "used")

    def __init__(self, service: Service, principal: str, now: float) -> None:
        # 192 random bits; nothing in it tells what is behind it (2025-11-25, session management).
        self.key = (principal, secrets.token_urlsafe(24).encode())
        self.peer = ServerPeer(Session(principal, self.push), service.stamps, service.limits)
        self.used = now
        self.call: Call | None = None
        """The GET that is open."""
        self.backlog: dict[bytes, None] = {}

    def push(self, message: bytes) -> bool:
        """`Outlet`: to the open stream, else kept for the next one as far as the backlog goes."""
        call = self.call
        if call is not None and call.stream is not None:
            return call.stream.push(message, call.calls.now)
        if len(self.backlog) >= _BACKLOG:
            return False
        self.backlog[message] = None
        return True


class HttpSessions:
    """All sessions of one application, by (principal, id): an id alone opens nothing.

    A handler's task belongs to its session: the end of the HTTP call that brought the request cancels nothing.
    """

    def __init__(self, service: Service, limits: HttpLimits, calls: Calls) -> None:
        self.service = service
        self.limits = limits
        self.calls = calls
        self.running: dict[Request, tuple[float, asyncio.Future[Sealed]]] = {}
        """Requests being served, oldest first: since when, and where their sealed answers go."""
        self.draining = False
        self._table: dict[tuple[str, bytes], HttpSession] = {}  # the least recently used first

    def __len__(self) -> int:
        return len(self._table)

    # -- POST

    async def post(
        self, call: Call, headers: dict[bytes, bytes], principal: str, message: Message, *, opening: bool
    ) -> None:
        """Serve one message of a session, or the `initialize` that opens one.

        Raises Refused (400, 404) or Overloaded where the message cannot be taken.
        """
        if opening:
            session = self._open(principal)
        else:
            session = self._find(headers, principal)
            check_session_version(headers)
        event = session.peer.take(message)
        if not isinstance(event, Request):
            await self._settle(session, event, call)
            return
        if self.draining:
            session.peer.fail(event, Overloaded("The server is stopping."))
            raise Overloaded("The server is stopping.")
        event.channel = call
        event.headers = headers
        event.peer = call.address
        call.request = event
        done: asyncio.Future[Sealed] = asyncio.get_running_loop().create_future()
        self.running[event] = (self.calls.now, done)
        event.task = asyncio.get_running_loop().create_task(self._serve(session, event))
        try:
            data, status, served = await done
        finally:
            call.over = True
        told: tuple[tuple[bytes, bytes], ...] = ()
        if opening and served:
            self._table[session.key] = session
            self.calls.keep_time()
            told = ((SESSION, session.key[1]),)
        if call.stream is not None:
            await call.stream.finish(data)
        elif data is None:
            await send_empty(call.reply, 202)  # cancelled: nothing may be said for this request any more
        else:
            await send_json(call.reply, status, data, told)

    async def _serve(self, session: HttpSession, request: Request) -> None:
        """Run the handler; the only place in a session where its exception becomes an error on the wire."""
        peer = session.peer
        data: bytes | Pieces | None
        status, served = 200, False
        try:
            handler = None if request.row is None else self.service.handlers.get(request.method)
            if handler is None:
                raise no_such_method(request)
            data = peer.respond(request, await handler(request))
            served = True
        except asyncio.CancelledError as error:
            data = None
            if peer.in_flight.get(request.id) is request:
                data = peer.fail(request, stopped(request, *error.args[:1], limits=self.service.limits))
        except BaseException as error:  # sys.exit() in a handler is that call's error, and nobody else's
            answer = answer_for(request, error)
            status = _status(answer)
            data = peer.fail(request, answer)
        _, done = self.running.pop(request)
        if not done.done():
            done.set_result((data, status, served))

    async def _settle(
        self, session: HttpSession, event: Refusal | Cancelled | Notification | Answer | None, call: Call
    ) -> None:
        match event:
            case Refusal(data, status):
                await send_json(call.reply, 200 if status == 404 else status, data)
                return
            case Cancelled(request):
                request.task.cancel()
            case Notification(method, params):
                if taker := self.service.notified.get(method):
                    taker(session.peer.session, params)
            case Answer(token, message):
                if not token.done():
                    token.set_result(message)
            case None:
                pass
        await send_empty(call.reply, 202)

    # -- GET and DELETE

    async def get(self, scope: Any, headers: dict[bytes, bytes], principal: str, receive: Receive, send: Send) -> None:
        """Open the session's stream and hold it until one end ends it.

        Raises Refused (400, 404, 406, 409, 429) or Overloaded.
        """
        session = self._find(headers, principal)
        check_session_version(headers)
        check_stream(headers)
        if session.call is not None:
            raise Refused(409, "This session has a stream open already.")
        if self.draining:
            raise Overloaded("The server is stopping.")
        calls = self.calls
        calls.keep_time()
        call = Call(calls, receive, send, TAKES_EVENTS, scope.get("client"))
        calls.admit_stream(call, principal)
        session.call = call
        stream = call.stream = EventStream(send, self.service.limits.backlog, calls.now)
        stream.open()
        for message in session.backlog:
            stream.push(message, calls.now)
        session.backlog.clear()
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
            stream.closed = True
        except asyncio.CancelledError:
            if not call.why:
                raise
            call.task.uncancel()  # type: ignore[union-attr]
            await stream.finish(None)
        finally:
            session.used = calls.now
            session.call = None
            calls.end(call)

    async def delete(self, headers: dict[bytes, bytes], principal: str, send: Send) -> None:
        """End a session. Raises Refused: 404."""
        self._end(self._find(headers, principal))
        await send_empty(send, 204)

    # -- the table

    def _open(self, principal: str) -> HttpSession:
        limits, table = self.limits, self._table
        if self.draining:
            raise Overloaded("The server is stopping.")
        if len(table) >= limits.sessions:
            oldest = next(iter(table.values()))
            if self._busy(oldest) or oldest.used > self.calls.now - limits.session_spare:
                raise Overloaded("Too many sessions are open: try again later.")
            self._end(oldest)
        return HttpSession(self.service, principal, self.calls.now)

    def _find(self, headers: dict[bytes, bytes], principal: str) -> HttpSession:
        key = (principal, headers[SESSION])
        session = self._table.pop(key, None)
        if session is None:
            raise Refused(404, _UNKNOWN)
        session.used = self.calls.now
        self._table[key] = session  # now the most recently used
        return session

    def _busy(self, session: HttpSession) -> bool:
        return session.call is not None or bool(session.peer.in_flight)

    def _end(self, session: HttpSession, why: str = "") -> None:
        """Cancel what runs, close the stream, and let everybody drop what they keep for this session."""
        self._table.pop(session.key, None)
        for request in session.peer.close():
            request.task.cancel()
        if session.call is not None:
            session.call.cancel("ended")

    def sweep(self, now: float) -> bool:
        """End the sessions that nobody uses, and the requests that are over their time; false where there are none."""
        oldest = now - self.limits.session_time
        for session in list(self._table.values()):
            if session.used > oldest:
                break
            if self._busy(session):
                session.used = now
                self._table[session.key] = self._table.pop(session.key)
            else:
                self._end(session)
        late = now - self.service.limits.handler_time
        for request, (since, _) in self.running.items():
            if since >= late:
                break
            request.task.cancel("deadline")
        return bool(self._table or self.running)

    def drain(self) -> None:
        """End every open stream, and take no new session."""
        self.draining = True
        for session in self._table.values():
            if session.call is not None:
                session.call.cancel("drain")

    def close(self) -> None:
        """Cancel what still runs and end every session."""
        for request in list(self.running):
            request.task.cancel("drain")
        for session in list(self._table.values()):
            if not session.peer.in_flight:
                self._end(session)


def answer_for(request: Request | None, error: BaseException) -> ProtocolError:
    """What the caller is told; what was not raised on purpose goes to the log under a reference."""
    reference = os.urandom(4).hex()
    answer = told(error, reference)
    if answer is not error:
        log.error("%s failed (reference %s)", request.method if request else "HTTP", reference, exc_info=error)
    return answer


def stopped(request: Request | None, why: str = "", *, limits: Limits) -> ProtocolError:
    """What the caller of a cancelled handler is told: our reason, or that the handler cancelled itself."""
    if why == "deadline":
        return InternalError(f"The request was cancelled: it took longer than {limits.handler_time:g} s.")
    if why == "drain":
        return Overloaded("The server is stopping.")
    return answer_for(request, RuntimeError("the handler's own task was cancelled"))


def _status(error: ProtocolError) -> int:
    """404 would tell the client that its session has ended; other errors of a request are told in the body alone."""
    return error.http_status if error.http_status == 503 else 200
