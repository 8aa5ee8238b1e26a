"""Sessions of the handshake era over HTTP: whose they are, and what runs in them."""

from __future__ import annotations

import asyncio
from typing import Any

from wharfinger.errors import Overloaded
from wharfinger.protocol.events import Cancellation, Notification, Reply, Response
from wharfinger.protocol.http.rules import (
    ACCEPTS_EVENTS,
    LAST_EVENT,
    SESSION,
    HttpLimits,
    Refused,
    check_session_version,
    check_stream,
)
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.request import (
    ChunkedMessage,
    Request,
    no_such_method,
    seal_error,
)
from wharfinger.protocol.server_peer import Event
from wharfinger.protocol.shares import Crowd, Shares
from wharfinger.transports.http_server.asgi_response import EventStream, Receive, Send, send_empty, send_json
from wharfinger.transports.http_server.open_calls import Call, Calls
from wharfinger.transports.http_server.replay import Rings
from wharfinger.transports.http_server.session_posts import HttpSession, Post, Sealed
from wharfinger.transports.outbound_requests import deliver
from wharfinger.transports.serving import LARGE, CancelReason, answer_exception

__all__ = ["HttpSessions"]

_UNKNOWN = "There is no such session, or it has ended: send initialize without Mcp-Session-Id."


class HttpSessions:
    """All sessions of one application, by (principal, id): an id alone opens nothing.

    A handler's task belongs to its session: the end of the HTTP call that brought the request cancels nothing.
    """

    def __init__(self, service: Service, limits: HttpLimits, calls: Calls) -> None:
        self.service = service
        self.limits = limits
        self.calls = calls
        self.running: dict[Request, Post] = {}
        """Requests being served, and where their answers go."""
        self.rings = Rings(limits)
        self.draining = False
        self._table: dict[tuple[str, bytes], HttpSession] = {}
        self._crowd: Crowd[HttpSession] = Crowd()
        self.requests = Shares()
        """Requests being served, by the owners of their sessions."""

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
            session = self._open(call, principal)
            call.accepted &= ~ACCEPTS_EVENTS  # the session's id goes with the answer's head
        else:
            session = self._find(headers, principal)
            check_session_version(headers)
        event = session.peer.take(message)
        if not isinstance(event, Request):
            refusal = self._settle(session, event)
            await (send_empty(call.reply, 202) if refusal is None else send_json(call.reply, *refusal))
            return
        try:
            self._check_room(session)
        except Overloaded as error:
            session.peer.fail(event, error)
            raise
        post = Post(session, call)
        self._begin(post, event, headers)
        await self._answer(post, opening=opening)

    async def post_batch(self, call: Call, headers: dict[bytes, bytes], principal: str, body: bytes) -> bool:
        """Serve an array of messages; False where it is none, or the session's revision has no such.

        Raises Refused (400, 404) or Overloaded where it cannot be taken.
        """
        session = self._find(headers, principal)
        check_session_version(headers)
        self._check_room(session)
        batch = session.peer.take_batch(body)
        if batch is None:
            return False
        if isinstance(batch, Reply):
            await send_json(call.reply, batch.status, batch.data)
            return True
        post = Post(session, call, batch)
        for event in batch.events:
            if isinstance(event, Request):
                self._begin(post, event, headers)
            else:
                self._settle(session, event)
        if batch.left:
            await self._answer(post)
        elif (array := batch.array()) is not None:
            await send_json(call.reply, 400, array)
        else:
            await send_empty(call.reply, 202)
        return True

    def _check_room(self, session: HttpSession) -> None:
        """Raise Overloaded where no further request may be served: one that asks can wait for long, and for nobody."""
        if self.draining:
            raise Overloaded("The server is stopping.")
        if not self.requests.has_room(session.owner, self.limits.session_requests):
            raise Overloaded("Too many requests are in flight: try again later.")

    def _begin(self, post: Post, request: Request, headers: dict[bytes, bytes]) -> None:
        request.channel = post
        request.accepts_lazy_blobs = post.batch is None  # the answers of a batch are joined
        request.headers = headers
        request.peer = post.call.address
        request.started_at = self.calls.now
        self.running[request] = post
        self.requests.add(post.session.owner)
        post.call.in_session = True
        request.task = asyncio.get_running_loop().create_task(self._serve(request, post))

    async def _answer(self, post: Post, *, opening: bool = False) -> None:
        """Wait for the answer and send it; a stream is sent by whoever emits."""
        call, session = post.call, post.session
        try:
            sealed = await self._hold(call, post)
        finally:
            if post.track is not None:
                post.track.leave(call)
        if sealed is None:
            return
        data, status, served = sealed
        told: tuple[tuple[bytes, bytes], ...] = ()
        if opening and served:
            self._table[session.key] = session
            self._crowd.add(session.owner, session)
            self.calls.keep_time()
            told = ((SESSION, session.key[1]),)
        if data is None:
            await send_empty(call.reply, 202)  # cancelled: nothing may be said for this request any more
        else:
            await send_json(call.reply, status, data, told)

    async def _hold(self, call: Call, post: Post | None = None) -> Sealed | None:
        """The answer of a POST; or, where it becomes a stream, None when one end has ended that."""
        try:
            if post is not None and (sealed := await post.done) is not None:
                return sealed
            while (await call.receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            if call.cancel_reason is None:
                raise
            call.task.uncancel()  # type: ignore[union-attr]
            if call.stream is not None:
                await call.stream.finish(call.final, id=call.final_id)
        finally:
            call.over = True
            if call.stream is not None:
                call.stream.closed = True
        return None

    async def _serve(self, request: Request, post: Post) -> None:
        """Run the handler in the request's own task, and give its answer to the POST that brought the request."""
        peer = post.session.peer
        data: bytes | ChunkedMessage | None
        status, served = 200, False
        try:
            handler = None if request.row is None else self.service.handlers.get(request.method)
            if handler is None:
                raise no_such_method(request)
            data = peer.respond(request, await handler(request))
            if data is not None and (len(data) > LARGE or post.batch is not None):  # small ones join to a large one
                data, status = self._check_unread(post, request, data)
            served = status == 200
        except BaseException as error:
            data, cancelled = None, isinstance(error, asyncio.CancelledError)
            if not cancelled or peer.in_flight.get(request.id) is request:
                reason = error.args[0] if cancelled and error.args else None
                data, failure = answer_exception(request, error, peer, self.service.limits, reason=reason)
                # 404 would mean that the session has ended: other errors of a request are in the body alone.
                if failure is not None and failure.http_status == 503 and not cancelled:
                    status = 503
        del self.running[request]
        self.requests.add(post.session.owner, -1)
        post.answered(request, data, status, served)

    def _check_unread(
        self, post: Post, request: Request, data: bytes | ChunkedMessage
    ) -> tuple[bytes | ChunkedMessage, int]:
        """Count a large answer for the connection that it goes out on; an error in its place if there is no room."""
        call = post.call if post.track is None else post.track.reader
        if call is not None:
            try:
                self.calls.check_unread(call, data)
            except Overloaded as error:
                return seal_error(request, error, self.service.stamps), error.http_status
        return data, 200

    def _stop(self, request: Request, *reason: CancelReason) -> None:
        # In the next turn of the loop: a task that is cancelled before its first step never runs, nor says so.
        asyncio.get_running_loop().call_soon(request.task.cancel, *reason)

    def _settle(self, session: HttpSession, event: Event) -> tuple[int, bytes] | None:
        """Do what an event other than a request asks for; the status and body where it is refused."""
        match event:
            case Reply(data, status):
                return 200 if status == 404 else status, data
            case Cancellation(request):
                self._stop(request)
            case Notification() | Response():
                deliver(self.service, session.peer.session, event)
            case _:
                pass
        return None

    # -- GET and DELETE

    async def get(self, scope: Any, headers: dict[bytes, bytes], principal: str, receive: Receive, send: Send) -> None:
        """Open the session's own stream, or go on with the one that Last-Event-ID names, until one end ends it.

        Raises Refused (400, 404, 406, 409, 429) or Overloaded.
        """
        session = self._find(headers, principal)
        check_session_version(headers)
        check_stream(headers)
        track, after = session.find_track(headers.get(LAST_EVENT, b""))
        if track.reader is not None and after is None:
            raise Refused(409, "This session has a stream open already.")
        if self.draining and track is session.own:
            raise Overloaded("The server is stopping.")
        calls = self.calls
        calls.keep_time()
        call = Call(calls, receive, send, ACCEPTS_EVENTS, scope.get("client"), principal)
        calls.admit_stream(call)
        call.in_session = track is not session.own
        call.stream = EventStream(send, self.service.limits.backlog, calls.now, calls.flushes)
        call.stream.open()
        try:
            track.read_on(call, after, calls.now)
            if track.over:
                await call.stream.finish(None)
            else:
                await self._hold(call)
        finally:
            session.used = calls.now
            track.leave(call)
            calls.end(call)

    async def delete(self, headers: dict[bytes, bytes], principal: str, send: Send) -> None:
        """End a session. Raises Refused: 404."""
        self._end(self._find(headers, principal))
        await send_empty(send, 204)

    # -- the table

    def _open(self, call: Call, principal: str) -> HttpSession:
        if self.draining:
            raise Overloaded("The server is stopping.")
        while len(self._table) >= self.limits.sessions:
            victim = self._crowd.find_victim(call.owner, lambda session: session.busy)
            if victim is None:
                raise Overloaded("Too many sessions are open: try again later.")
            self._end(victim)
        return HttpSession(self.service, principal, call.owner, self.calls, self.rings)

    def _find(self, headers: dict[bytes, bytes], principal: str) -> HttpSession:
        key = (principal, headers[SESSION])
        session = self._table.get(key)
        if session is None:
            raise Refused(404, _UNKNOWN)
        session.used = self.calls.now
        self._crowd.use(session.owner, session)
        return session

    def _end(self, session: HttpSession) -> None:
        """Cancel what runs, close the stream, and let everybody drop what they keep for this session."""
        self._table.pop(session.key, None)
        self._crowd.discard(session.owner, session)
        for request in session.peer.close():
            self._stop(request)
        asyncio.get_running_loop().call_soon(session.pending.close)
        session.ring.clear()
        session.own.finish(None)

    def sweep(self, now: float) -> bool:
        """End the sessions that nobody uses, and the requests that are over their time; false where there are none."""
        oldest = now - self.limits.session_time
        for session in self._crowd.unused(lambda session: session.used <= oldest):
            if session.busy:
                session.used = now
                self._crowd.use(session.owner, session)
            else:
                self._end(session)
        late = now - self.service.limits.handler_time
        for request in self.running:
            if request.started_at < late:
                request.task.cancel(CancelReason.DEADLINE)
        return bool(self._table or self.running)

    def drain(self) -> None:
        """End every open stream, and take no new session."""
        self.draining = True
        for session in self._table.values():
            if session.own.reader is not None:
                session.own.reader.cancel(CancelReason.DRAIN)

    def close(self) -> None:
        """Cancel what still runs and end every session."""
        for request in list(self.running):
            self._stop(request, CancelReason.DRAIN)
        for session in list(self._table.values()):
            if not session.peer.in_flight:
                self._end(session)
