"""The server's requests to its client (handshake era), which pause the deadline of the client's own request."""

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
from wharfinger.transports.timeouts import Pauses

__all__ = ["PendingRequests", "deliver"]

log = logging.getLogger("wharfinger.transports.outbound_requests")


def deliver(service: Service, session: Session, event: Notification[Any] | Response[Any]) -> None:
    """Pass a notification to its listener, or a response to the handler that waits for it.

    Exceptions are logged and not raised, so that the messages after this one are still read.
    """
    try:
        if isinstance(event, Response):
            if not event.waiter.done():
                event.waiter.set_result(event.message)
        elif listener := service.notification_handlers.get(event.message.method):  # type: ignore[arg-type]  # it has a method
            listener(session, event.params)
    except Exception:
        log.exception("%s failed", "A response" if isinstance(event, Response) else event.message.method)


class PendingRequests:
    """The server's requests to the client of one connection that wait for a response. Only this client can answer."""

    __slots__ = ("_now", "_paused", "_peer")

    def __init__(self, peer: ServerPeer, now: Callable[[], float]) -> None:
        """`now` is the clock of `Request.started_at`."""
        self._peer = peer
        self._now = now
        self._paused: dict[Request, tuple[Pauses, float]] = {}
        """The client's own requests whose handlers wait for a response: their pauses, and when each request started."""

    async def send(self, request: Request, method: str, params: Any, write: Callable[[bytes], bool]) -> Message:
        """Send a request on behalf of the handler of `request`, and wait for the response: a result or an error.

        In the meantime the deadline of `request` is paused: people need time to answer.

        Raises:
            ConnectionLost: `request` is over, or its client is gone.
            Overloaded: `write` did not accept the message.
            RequestTimeout: no response within `Limits.answer_time`.
        """
        peer = self._peer
        if peer.in_flight.get(request.id) is not request:
            raise ConnectionLost("The request has ended, so its client cannot be asked any more.")
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        id, data = peer.request(method, params, response)
        pauses, started_at = self._paused.setdefault(request, (Pauses(), request.started_at))
        pauses.begin(self._now())
        request.started_at = math.inf
        reason = "The request was cancelled."
        try:
            if not write(data):
                peer.forget(id)  # it was not sent, so there is nothing to cancel
                raise Overloaded("The client cannot be asked: it has no open stream for requests, or does not read.")
            async with asyncio.timeout(peer.limits.answer_time):
                return await response
        except TimeoutError:
            reason = "There was no answer in time."
            raise RequestTimeout(f"The client did not answer {method} in {peer.limits.answer_time:g} s.") from None
        finally:
            if peer.forget(id):  # there is no response yet
                cancelled = t.CancelledNotificationParams(request_id=id, reason=reason)
                write(encode_notification("notifications/cancelled", cancelled))
            if (paused_for := pauses.end(self._now())) is not None:
                del self._paused[request]
                request.started_at = started_at + paused_for

    def close(self) -> None:
        """Fail every waiting request, because the client is gone."""
        for response in self._peer.forget_all():
            if not response.done():
                response.set_exception(ConnectionLost("The client is gone."))
                response.exception()  # mark as retrieved, or asyncio logs it if the waiting task is cancelled
