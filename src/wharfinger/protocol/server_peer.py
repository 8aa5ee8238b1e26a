"""A server's end of one connection as a state machine: one message in, one event out. Does no I/O.

Pass each incoming message to `receive` and handle the event that it returns (see `events`). Call `respond` or `fail`
once for each `Request`, and send the bytes that they return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger.errors import InternalError, InvalidRequest, Overloaded, ProtocolError
from wharfinger.protocol.events import Cancellation, Notification, Reply, Response
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import Id, Message, decode, decode_batch, encode_error, encode_request
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.lines import OVERLONG, Overlong
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.request import ChunkedMessage, Request, ResultMeta, open_request, seal_error, seal_result

__all__ = ["Batch", "Event", "ServerPeer"]


class Batch:
    """A JSON-RPC batch (2025-03-26): the `events` of its messages, whose responses are sent as one array.

    Call `record_answer` after each request of the batch. After the last one it returns the array, or None if no message
    of the batch has a response (JSON-RPC 2.0, §6).
    """

    __slots__ = ("answers", "events", "pending_count")

    def __init__(self, events: list[Any]) -> None:
        cancelled = {id(event.request) for event in events if isinstance(event, Cancellation)}
        own_requests = {id(event) for event in events if isinstance(event, Request)}
        self.events: list[Any] = []
        """In order, without requests that the batch itself cancels: they never start."""
        for event in events:
            cancels_own = isinstance(event, Cancellation) and id(event.request) in own_requests
            if not (event is None or isinstance(event, Reply) or cancels_own or id(event) in cancelled):
                self.events.append(event)
        self.answers: list[bytes | ChunkedMessage] = [event.data for event in events if isinstance(event, Reply)]
        """The responses so far."""
        self.pending_count = sum(isinstance(event, Request) for event in self.events)
        """The number of requests without a response."""

    def record_answer(self, data: bytes | ChunkedMessage | None) -> ChunkedMessage | None:
        """Record the response of one request, None if it was cancelled. Returns the array after the last request."""
        self.pending_count -= 1
        if data is not None:
            self.answers.append(data)
        return None if self.pending_count else self.join_answers()

    def join_answers(self) -> ChunkedMessage | None:
        """Return the responses as one message; None if there are none."""
        if not self.answers:
            return None
        parts: list[Any] = []
        for answer in self.answers:
            parts.append(b"," if parts else b"[")
            parts += answer.parts if isinstance(answer, ChunkedMessage) else (answer,)
        return ChunkedMessage((*parts, b"]"))


Event = Request | Reply | Cancellation | Notification[Any] | Response[Any] | Batch | None


class ServerPeer:
    """The requests of one connection that are being served, and the server's own requests to its client.

    `receive` never raises. An unexpected exception goes to `report`, which logs it and returns the error for the
    client; the messages after it are still served.
    """

    __slots__ = ("_awaited", "_next_id", "in_flight", "limits", "refusing", "report", "result_meta", "session")

    def __init__(
        self,
        session: Session,
        result_meta: ResultMeta,
        limits: Limits,
        report: Callable[[Exception], ProtocolError] = lambda error: InternalError(),
    ) -> None:
        self.report = report
        self.session = session
        self.result_meta = result_meta
        self.limits = limits
        self.in_flight: dict[Id, Request] = {}
        """By id, with its type: 1 and "1" are two requests."""
        self.refusing = False
        """Whether new requests are refused, because the client does not read its responses."""
        self._awaited: dict[Id, Any] = {}
        self._next_id = 0

    def receive(self, line: bytes | Literal[Overlong.LINE]) -> Event:
        """Return the event of one incoming message; None if there is nothing to do."""
        if line is OVERLONG:
            return Reply(encode_error(None, InvalidRequest(f"The message is over {self.limits.message} bytes.")))
        try:
            message = decode(line, self.limits)
        except ProtocolError as error:
            if not line.strip(b" \t\r"):  # checked last, because it would slow down every message
                return None
            return self.take_batch(line) or Reply(encode_error(error.id, error))
        except Exception as error:
            return Reply(encode_error(None, self.report(error)), 500)
        return self.take(message)

    def take_batch(self, data: bytes) -> Batch | Reply | None:
        """Return the batch, or the reply to an array that is not a valid batch.

        Returns None if `data` is not an array, or if the session's revision has no batches.
        """
        if not self.session.caller.rules.batches:
            return None
        try:
            messages = decode_batch(data, self.limits)
        except ProtocolError as error:
            return Reply(encode_error(error.id, error))
        return None if messages is None else Batch([self._take_entry(message) for message in messages])

    def _take_entry(self, message: Message | ProtocolError) -> Event:
        if isinstance(message, ProtocolError):
            return Reply(encode_error(message.id, message))
        if message.method == "initialize" and message.id is not UNSET:  # 2025-03-26, lifecycle
            refused = InvalidRequest("initialize must not be part of a batch.")
            return Reply(encode_error(message.id, refused))
        event = self.take(message)
        if isinstance(event, Request) and event.session is None:  # over HTTP, the headers must repeat its params
            del self.in_flight[event.id]
            refused = InvalidRequest(f"A request of {event.caller.rules.name} must not be part of a batch.")
            return Reply(encode_error(event.id, refused))
        return event

    def take(self, message: Message) -> Event:
        """Return the event of a message that is already decoded."""
        id = message.id
        try:
            if message.method is UNSET:
                # Ignore late, repeated and unexpected responses.
                if id not in self._awaited:
                    return None
                return Response(self._awaited.pop(id), message)  # pyright: ignore[reportArgumentType]  # it is a key
            if id is UNSET:
                return self._take_notification(message)
            if id in self.in_flight:
                # Refused without the id: a response with it would be taken for that of the first request.
                return Reply(encode_error(None, InvalidRequest("This id is in flight: use another.")))
            if self.refusing:
                raise Overloaded("Responses are waiting to be read: read them first.")
            if len(self.in_flight) >= self.limits.in_flight:
                raise Overloaded(f"{self.limits.in_flight} requests are in flight: wait for their responses.")
            request = self.in_flight[id] = open_request(message, self.session, self.session.principal)
        except ProtocolError as error:
            refusal, status = error, error.http_status
        except Exception as error:
            refusal, status = self.report(error), 500
        else:
            return request
        if isinstance(id, UnsetType) or message.method is UNSET:
            return None
        return Reply(encode_error(id, refusal), status)

    def _take_notification(self, message: Message) -> Event:
        row = METHODS.get(message.method)  # type: ignore[arg-type]
        if row is None or not row.is_notification or row.sender == "server":
            return None
        try:
            params = row.decode_params(b"{}" if message.params is UNSET else message.params)
        except msgspec.MsgspecError:
            return None  # a notification gets no response, even if it is invalid (JSON-RPC 2.0, §4.1)
        if row.name == "notifications/cancelled":
            request = self.in_flight.get(params.request_id)
            # `initialize` must not be cancelled (lifecycle). A request that is not in flight was answered already.
            if request is None or request.method == "initialize":
                return None
            del self.in_flight[params.request_id]
            return Cancellation(request)
        if row.name == "notifications/initialized" and not self.session.advance(row.name):
            return None
        return Notification(None, message, params)

    def respond(self, request: Request, result: Any) -> bytes | ChunkedMessage | None:
        """Encode the response and free the id. Returns None if the request was cancelled in the meantime.

        Raises:
            UnicodeEncodeError, TypeError, ValueError: as for `seal_result`. The request is still in flight then.
        """
        if self.in_flight.get(request.id) is not request:
            return None
        data = seal_result(request, result, self.result_meta)
        del self.in_flight[request.id]
        return data

    def fail(self, request: Request, error: ProtocolError) -> bytes | ChunkedMessage | None:
        """Encode the error response and free the id. Returns None if the request was cancelled in the meantime."""
        if self.in_flight.get(request.id) is not request:
            return None
        data = seal_error(request, error, self.result_meta)
        del self.in_flight[request.id]
        return data

    def request(self, method: str, params: Any, waiter: Any) -> tuple[Id, bytes]:
        """Register a request to the client (handshake era). Returns its id and the bytes to send."""
        data = encode_request(self._next_id + 1, method, params)
        self._next_id += 1
        self._awaited[self._next_id] = waiter
        return self._next_id, data

    def forget(self, id: Id) -> bool:
        """Stop waiting for one response. Returns False if it has arrived, or was not expected."""
        missing = object()
        return self._awaited.pop(id, missing) is not missing

    def forget_all(self) -> list[Any]:
        """Stop waiting for all responses. Returns the waiters that got none."""
        waiters = list(self._awaited.values())
        self._awaited.clear()
        return waiters

    def close(self) -> list[Request]:
        """End the connection. Returns the requests in flight, to be cancelled; `forget_all` returns the waiters."""
        requests = list(self.in_flight.values())
        self.in_flight.clear()
        self.session.close()
        return requests
