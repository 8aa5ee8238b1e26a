"""The sessions of the handshake era over HTTP.

`initialize` opens a session, and every later request repeats its id. A request runs in a task of its session, not of
the HTTP call, so that a client that lost its connection can reconnect and get the answer. The parts:

    HttpSessions     this module: finds or opens the session of a call, starts handlers and waits for answers. Ends
                     sessions that are unused or deleted. While the table is full, each new session ends another one,
                     or is refused.
    HttpSession      one session: a `ServerPeer`, and its streams (`replay`).
    PostChannel      one POST, as the channel of its handler. The answer is JSON unless the handler sends something
                     first; then its future `done` has the result None, and the answer is the last event of a stream.
    HttpCall         the ASGI call, which waits in `_wait` while the session works. It ends when there is an answer. A
                     call that sends events ends when its client disconnects (the session keeps the stream, for a
                     client that reconnects), or when the session cancels it (`CancelReason.STREAM_ENDED`). A GET also
                     ends when its token expires. The GET of the session's own stream also ends when the server stops.

The running requests of all sessions are bounded (`requests`), because one that asks for input may wait for long.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from wharfinger.errors import InsufficientScope, Overloaded, RateLimited
from wharfinger.protocol.events import Cancellation, Notification, Reply, Response
from wharfinger.protocol.http.rules import (
    ACCEPTS_EVENTS,
    LAST_EVENT,
    SESSION,
    HttpLimits,
    HttpRefusal,
    Pairs,
    check_session_version,
    check_stream,
)
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import (
    ChunkedMessage,
    Request,
    call_on_answer,
    no_such_method,
    seal_error,
)
from wharfinger.protocol.server_peer import Event
from wharfinger.protocol.shares import FairTable, Shares
from wharfinger.transports.http_server.asgi_response import EventStream, Receive, Send, send_empty, send_json
from wharfinger.transports.http_server.open_calls import HttpCall, OpenCalls
from wharfinger.transports.http_server.replay import ReplayBuffers
from wharfinger.transports.http_server.session_posts import HttpSession, PostAnswer, PostChannel
from wharfinger.transports.outbound_requests import deliver
from wharfinger.transports.serving import PART_BYTES, CancelReason, answer_exception, report_refusal

__all__ = ["HttpSessions"]

_UNKNOWN = "There is no such session, or it has ended: send initialize without Mcp-Session-Id."


class HttpSessions:
    """The sessions of one application, by principal and id: the id alone gives no access."""

    def __init__(self, service: Service, limits: HttpLimits, calls: OpenCalls) -> None:
        self.service = service
        self.limits = limits
        self.calls = calls
        self.running: dict[Request, PostChannel] = {}
        """The requests that run, and the channels of their answers."""
        self.replay_buffers = ReplayBuffers(limits)
        self.draining = False
        self._table: dict[tuple[str, bytes], HttpSession] = {}
        self._fair: FairTable[HttpSession] = FairTable()
        """The same sessions by owner (the principal, or the client's network if there is none).

        It chooses which session ends if the table is full.
        """
        self.requests = Shares()
        """The number of requests that run, by the owners of their sessions."""

    def __len__(self) -> int:
        return len(self._table)

    # -- POST

    async def post(
        self, call: HttpCall, headers: dict[bytes, bytes], principal: Principal, message: Message, *, opening: bool
    ) -> None:
        """Serve one message of a session, or the `initialize` that opens one.

        Raises:
            HttpRefusal, Overloaded: the message cannot be accepted (400, 404, 503).
        """
        if opening:
            session = self._open(call, principal)
            call.accepted_types &= ~ACCEPTS_EVENTS  # the session id is a header: no event may come first
        else:
            session = self._find(headers, principal)
            check_session_version(headers)
        event = session.peer.take(message)
        if not isinstance(event, Request):
            refusal = self._dispatch(session, event)
            await (send_empty(call.reply, 202) if refusal is None else send_json(call.reply, *refusal))
            return
        try:
            self._check_room(session)
        except Overloaded as error:
            session.peer.fail(event, error)
            raise
        post = PostChannel(session, call)
        self._begin(post, event, headers)
        await self._answer(post, opening=opening)

    async def post_batch(self, call: HttpCall, headers: dict[bytes, bytes], principal: Principal, body: bytes) -> bool:
        """Serve an array of messages. Returns False if `body` is no array, or the session's revision has no batches.

        Raises:
            HttpRefusal, Overloaded: it cannot be accepted (400, 404, 503).
        """
        session = self._find(headers, principal)
        check_session_version(headers)
        batch = session.peer.take_batch(body)
        if batch is None:
            return False
        if isinstance(batch, Reply):
            await send_json(call.reply, batch.status, batch.data)
            return True
        requests = [event for event in batch.events if isinstance(event, Request)]
        try:
            if requests:
                self._check_room(session, len(requests))
        except Overloaded as error:  # only its requests are refused: one that runs may wait for a response in it
            for event in batch.events:
                if isinstance(event, Request):
                    session.peer.fail(event, error)
                else:
                    self._dispatch(session, event)
            raise
        post = PostChannel(session, call, batch)
        for event in batch.events:
            if isinstance(event, Request):
                self._begin(post, event, headers)
            else:
                self._dispatch(session, event)
        if batch.pending_count:
            await self._answer(post)
        elif (array := batch.join_answers()) is not None:
            await send_json(call.reply, 400, array)
        else:
            await send_empty(call.reply, 202)
        return True

    def _check_room(self, session: HttpSession, count: int = 1) -> None:
        """Raise Overloaded unless `count` more requests may run."""
        if self.draining:
            raise Overloaded("The server is stopping.")
        if not self.requests.has_room(session.owner, self.limits.session_requests, count):
            raise Overloaded("Too many requests are in flight: try again later.")

    def _begin(self, post: PostChannel, request: Request, headers: dict[bytes, bytes]) -> None:
        request.channel = post
        request.accepts_lazy_blobs = post.batch is None  # the answers of a batch are joined
        request.headers = headers
        request.peer = post.call.address
        request.started_at = self.calls.now
        self.running[request] = post
        self.requests.add(post.session.owner)
        post.call.in_session = True
        request.task = asyncio.get_running_loop().create_task(self._serve(request, post))

    async def _answer(self, post: PostChannel, *, opening: bool = False) -> None:
        """Wait for the answer and send it, unless it has become a stream."""
        call, session = post.call, post.session
        try:
            answer = await self._wait(call, post)
        finally:
            if post.stream is not None:
                post.stream.leave(call)
        if answer is None:
            return
        data, status, is_result, headers = answer
        if opening and is_result:
            try:
                self._make_room(session.owner)  # again: others have opened since this `initialize` began
            except Overloaded:
                self._end(session)
                raise
            self._table[session.key] = session
            self._fair.add(session.owner, session)
            self.calls.keep_time()
            headers = ((SESSION, session.key[1]),)
        if data is None:
            await send_empty(call.reply, 202)  # cancelled: no answer may be sent for this request
        else:
            if status == 429:
                await self.calls.hold_back()
            await send_json(call.reply, status, data, headers)

    async def _wait(self, call: HttpCall, post: PostChannel | None = None) -> PostAnswer | None:
        """Return the answer to a POST. For a stream, return None when the client or the server has ended it."""
        try:
            if post is not None and (answer := await post.done) is not None:
                return answer
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

    async def _serve(self, request: Request, post: PostChannel) -> None:
        """Run the handler in the request's own task, and pass its answer to the POST of the request."""
        peer = post.session.peer
        data: bytes | ChunkedMessage | None
        status, is_result = 200, False
        headers: Pairs = ()
        try:
            handler = None if request.row is None else self.service.handlers.get(request.method)
            if handler is None:
                raise no_such_method(request)
            data = peer.respond(request, await handler(request))
            if data is not None and (
                len(data) > PART_BYTES or post.batch is not None
            ):  # small answers of a batch add up
                data, status = self._check_unread(post, request, data)
            is_result = status == 200
        except BaseException as error:
            data, cancelled = None, isinstance(error, asyncio.CancelledError)
            if not cancelled or peer.in_flight.get(request.id) is request:
                reason = error.args[0] if cancelled and error.args else None  # the argument of `task.cancel`
                data, failure = answer_exception(request, error, peer, self.service.limits, reason=reason)
                # A 404 would mean that the session has ended. So the HTTP status is 200, except for 503 and for errors
                # that were raised with an HTTP status, such as a 403 with the missing scopes.
                if isinstance(failure, HttpRefusal | InsufficientScope | RateLimited) and post.batch is None:
                    status, headers = failure.http_status, self.calls.headers_of(failure, post.call)
                elif failure is not None and failure.http_status == 503 and not cancelled:
                    status = 503
                if failure is not None and not request.observers:
                    report_refusal(self.service, failure, request=request, size=0 if data is None else len(data))
        del self.running[request]
        self.requests.add(post.session.owner, -1)
        if request.on_answer:
            call_on_answer(request, data)
        post.finish(request, data, status, is_result, headers)

    def _check_unread(
        self, post: PostChannel, request: Request, data: bytes | ChunkedMessage
    ) -> tuple[bytes | ChunkedMessage, int]:
        """Count the bytes of a large answer as unread until its connection has sent them.

        Returns the answer and 200, or an error and its status if too much is unread.
        """
        call = post.call if post.stream is None else post.stream.reader
        if call is not None:
            try:
                self.calls.check_unread(call, data)
            except Overloaded as error:
                return seal_error(request, error, self.service.result_meta), error.http_status
        return data, 200

    def _stop(self, request: Request, *reason: CancelReason) -> None:
        # Cancel in the next turn of the loop: a task that is cancelled before its first step never runs its `except`.
        asyncio.get_running_loop().call_soon(request.task.cancel, *reason)

    def _dispatch(self, session: HttpSession, event: Event) -> tuple[int, bytes] | None:
        """Handle an event that is not a request. Returns the status and body of the answer if it is refused."""
        match event:
            case Reply(data, status):
                return 200 if status == 404 else status, data  # a 404 would mean that the session has ended
            case Cancellation(request):
                self._stop(request)
            case Notification() | Response():
                deliver(self.service, session.peer.session, event)
            case _:
                pass
        return None

    # -- GET and DELETE

    async def get(
        self, scope: Any, headers: dict[bytes, bytes], principal: Principal, receive: Receive, send: Send
    ) -> None:
        """Serve the session's own stream, or the rest of the stream that Last-Event-ID names, until it is ended.

        Raises:
            HttpRefusal, Overloaded: 400, 404, 406, 409, 429, 503.
        """
        session = self._find(headers, principal)
        check_session_version(headers)
        check_stream(headers)
        stream, after = session.find_stream(headers.get(LAST_EVENT, b""))
        if stream.reader is not None and after is None:
            raise HttpRefusal(409, "This session has a stream open already.")
        if self.draining and stream is session.own_stream:
            raise Overloaded("The server is stopping.")
        calls = self.calls
        calls.keep_time()
        call = HttpCall(calls, receive, send, ACCEPTS_EVENTS, scope.get("client"), principal)
        calls.admit_stream(call)
        call.in_session = stream is not session.own_stream
        call.stream = EventStream(send, self.service.limits.backlog, calls.now, calls.flushes)
        try:
            call.stream.open()
            stream.resume(call, after, calls.now)
            if stream.over:
                call.over = True  # so that nothing cancels it while the kept events are sent
                await call.stream.finish(None)
            else:
                await self._wait(call)
        finally:
            session.used_at = calls.now
            stream.leave(call)
            calls.end(call)

    async def delete(self, headers: dict[bytes, bytes], principal: Principal, send: Send) -> None:
        """End a session. Raises HttpRefusal (404) if it does not exist."""
        self._end(self._find(headers, principal))
        await send_empty(send, 204)

    # -- the table

    def _open(self, call: HttpCall, principal: Principal) -> HttpSession:
        if self.draining:
            raise Overloaded("The server is stopping.")
        self._make_room(call.owner)
        return HttpSession(self.service, principal, call.owner, self.calls, self.replay_buffers)

    def _make_room(self, owner: str) -> None:
        """End sessions until the table has room for one of `owner`. Raise Overloaded if none may be ended."""
        while len(self._table) >= self.limits.sessions:
            victim = self._fair.find_victim(owner, lambda session: session.busy)
            if victim is None:
                raise Overloaded("Too many sessions are open: try again later.")
            self._end(victim)

    def _find(self, headers: dict[bytes, bytes], principal: Principal) -> HttpSession:
        key = (principal.key, headers[SESSION])
        session = self._table.get(key)
        if session is None:
            raise HttpRefusal(404, _UNKNOWN)
        session.peer.session.renew(principal)
        session.used_at = self.calls.now
        self._fair.use(session.owner, session)
        return session

    def _end(self, session: HttpSession) -> None:
        """Cancel the requests of a session, close its stream, and drop everything that is kept for it."""
        self._table.pop(session.key, None)
        self._fair.discard(session.owner, session)
        for request in session.peer.close():
            self._stop(request)
        asyncio.get_running_loop().call_soon(session.pending.close)
        session.buffer.clear()
        session.own_stream.finish(None)

    def sweep(self, now: float) -> bool:
        """End the sessions that are unused, and cancel the requests that take too long.

        Returns whether any session or request is left.
        """
        oldest = now - self.limits.session_time
        for session in self._fair.find_old(lambda session: session.used_at <= oldest):
            if session.busy:
                session.used_at = now
                self._fair.use(session.owner, session)
            else:
                self._end(session)
        late = now - self.service.limits.handler_time
        for request in self.running:
            if request.started_at < late:
                request.started_at = math.inf  # cancelled once only, so that the handler's `finally` can end
                request.task.cancel(CancelReason.DEADLINE)
        return bool(self._table or self.running)

    def drain(self) -> None:
        """End the own stream of every session, and accept no new session or request."""
        self.draining = True
        for session in self._table.values():
            if session.own_stream.reader is not None:
                session.own_stream.reader.cancel(CancelReason.DRAIN)

    def close(self) -> None:
        """Cancel every request that runs, and end every session without such a request."""
        for request in list(self.running):
            self._stop(request, CancelReason.DRAIN)
        for session in list(self._table.values()):
            if not session.peer.in_flight:
                self._end(session)
