"""Our questions to the client of one connection: who waits for which answer, while its request's time stands still."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from wharfinger import types as t
from wharfinger.errors import ConnectionLost, Overloaded, RequestTimeout
from wharfinger.protocol.events import Notification, Response
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message, encode_notification
from wharfinger.protocol.request import Request
from wharfinger.protocol.server_peer import ServerPeer

__all__ = ["Question", "Questions", "take_notice"]

log = logging.getLogger("wharfinger.transports.outbound_requests")

Send = Callable[[bytes], bool]


class Question:
    """One question that waits: the waiter of its `Response`."""

    __slots__ = ("_answer", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self._answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def take(self, message: Message) -> None:
        """The answer, unless nobody waits for it any more."""
        if not self._answer.done():
            self._answer.set_result(message)

    def lose(self) -> None:
        """No answer can come any more."""
        if not self._answer.done():
            self._answer.set_exception(ConnectionLost("The client is gone."))
            self._answer.exception()  # where the waiting task is cancelled too, nobody else looks at it

    async def wait(self, seconds: float) -> Message:
        """The answer. Raises TimeoutError or ConnectionLost."""
        async with asyncio.timeout(seconds):
            return await self._answer


def take_notice(service: Service, session: Session, event: Notification[Any] | Response[Any]) -> None:
    """Give what wants no answer to who waits for it; what that raises is logged and must not lose other messages."""
    try:
        if isinstance(event, Response):
            event.waiter.take(event.message)
        elif taker := service.notified.get(event.message.method):  # type: ignore[arg-type]  # it has one
            taker(session, event.params)
    except Exception:
        log.exception("%s failed", "A response" if isinstance(event, Response) else event.message.method)


class Questions:
    """The questions of one connection. The owner of a question is its connection's peer: no other can answer it."""

    __slots__ = ("_now", "_open", "_peer")

    def __init__(self, peer: ServerPeer, now: Callable[[], float]) -> None:
        self._peer = peer
        self._now = now
        """The clock by which `Request.started_at` is kept."""
        self._open: dict[Request, tuple[int, float, float]] = {}
        """How many wait in each request, when it started, and since when its time stands still."""

    async def put(self, request: Request, method: str, params: Any, send: Send) -> Message:
        """Ask, and wait for the answer: a result or an error.

        Raises:
            ConnectionLost: the request is over, or its client gone.
            Overloaded: `send` did not take the question.
            RequestTimeout: no answer within `Limits.answer_time`.
        """
        peer = self._peer
        if peer.in_flight.get(request.id) is not request:
            raise ConnectionLost("The request is over: nobody can be asked for it.")
        question = Question(request)
        id, data = peer.request(method, params, question)
        self._pause(request)
        try:
            if not send(data):
                raise Overloaded("The client cannot be asked: it has no stream open that takes a question.")
            return await question.wait(peer.limits.answer_time)
        except TimeoutError:
            raise RequestTimeout(f"The client did not answer {method} in {peer.limits.answer_time:g} s.") from None
        finally:
            if peer.forget(id):  # it waits no more, and has no answer
                gone = t.CancelledNotificationParams(request_id=id, reason="The question is withdrawn.")
                send(encode_notification("notifications/cancelled", gone))
            self._resume(request)

    def _pause(self, request: Request) -> None:
        count, started_at, since = self._open.get(request, (0, request.started_at, self._now()))
        self._open[request] = (count + 1, started_at, since)
        request.started_at = math.inf

    def _resume(self, request: Request) -> None:
        count, started_at, since = self._open.pop(request)
        if count > 1:
            self._open[request] = (count - 1, started_at, since)
        elif request.started_at == math.inf:
            request.started_at = started_at + self._now() - since

    def close(self) -> None:
        """The connection is gone: nothing waits any more."""
        for question in self._peer.forget_all():
            question.lose()
