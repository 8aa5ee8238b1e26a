"""The server's end of one message stream as a state machine: one message in, one event out; it moves no bytes."""

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
    """Several messages that came as one (2025-03-26): `events` are theirs, and `answered` makes one array of answers.

    Answers are told together when the last one is there, and nothing where there is none (JSON-RPC 2.0, §6).
    """

    __slots__ = ("answers", "events", "left")

    def __init__(self, events: list[Any]) -> None:
        gone = {id(event.request) for event in events if isinstance(event, Cancellation)}
        ours = {id(event) for event in events if isinstance(event, Request)}
        self.events: list[Any] = []
        """In their order, without what is cancelled in the batch that it came in: that is never begun."""
        for event in events:
            unbegun = isinstance(event, Cancellation) and id(event.request) in ours
            if not (event is None or isinstance(event, Reply) or unbegun or id(event) in gone):
                self.events.append(event)
        self.answers: list[bytes | ChunkedMessage] = [event.data for event in events if isinstance(event, Reply)]
        """Those that are there."""
        self.left = sum(isinstance(event, Request) for event in self.events)
        """Requests that have no answer yet."""

    def answered(self, data: bytes | ChunkedMessage | None) -> ChunkedMessage | None:
        """One request is over, without an answer where it was cancelled: the array when it was the last, else None."""
        self.left -= 1
        if data is not None:
            self.answers.append(data)
        return None if self.left else self.array()

    def array(self) -> ChunkedMessage | None:
        """The answers as one message; None where there are none."""
        if not self.answers:
            return None
        parts: list[Any] = []
        for answer in self.answers:
            parts.append(b"," if parts else b"[")
            parts += answer.parts if isinstance(answer, ChunkedMessage) else (answer,)
        return ChunkedMessage((*parts, b"]"))


Event = Request | Reply | Cancellation[Request] | Notification[Any] | Response[Any] | Batch | None


class ServerPeer:
    """Keeps what one connection has in flight: its requests being served, and ours that it has not answered.

    Receiving never raises: it answers, ignores what the protocol says to ignore, and carries on. A fault of ours, or of
    an extension's params, goes to `report`, which logs it and returns the answer; the messages after it are still
    served.
    """

    __slots__ = ("_awaited", "_next_id", "in_flight", "limits", "refusing", "report", "session", "stamps")

    def __init__(
        self,
        session: Session,
        stamps: ResultMeta,
        limits: Limits,
        report: Callable[[Exception], ProtocolError] = lambda error: InternalError(),
    ) -> None:
        self.report = report
        self.session = session
        self.stamps = stamps
        self.limits = limits
        self.in_flight: dict[Id, Request] = {}
        """By id, with its type: 1 and "1" are two requests."""
        self.refusing = False
        """Whether its client does not read its answers, so that nothing new may be begun."""
        self._awaited: dict[Id, Any] = {}
        self._next_id = 0

    def receive(self, line: bytes | Literal[Overlong.LINE]) -> Event:
        """Take one message; None where there is nothing to do."""
        if line is OVERLONG:
            return Reply(encode_error(None, InvalidRequest(f"A message may have {self.limits.message} bytes.")))
        try:
            message = decode(line, self.limits)
        except ProtocolError as error:
            if not line.strip(b" \t\r"):  # looked at last: it costs every message something
                return None
            return self.take_batch(line) or Reply(encode_error(error.id, error))
        except Exception as error:
            return Reply(encode_error(None, self.report(error)), 500)
        return self.take(message)

    def take_batch(self, data: bytes) -> Batch | Reply | None:
        """Take an array of messages, where the session's revision has such; None where it is none."""
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
        return self.take(message)

    def take(self, message: Message) -> Event:
        """Take one message that is decoded already."""
        id = message.id
        try:
            if message.method is UNSET:
                return self._answered(message)
            if id is UNSET:
                return self._notified(message)
            if id in self.in_flight:
                # Refused without the id, which is the first's: its caller must get its own answer (security: J18).
                return Reply(encode_error(None, InvalidRequest("This id is in flight: use another.")))
            if self.refusing:
                raise Overloaded("Answers are waiting to be read: read them first.")
            if len(self.in_flight) >= self.limits.in_flight:
                raise Overloaded(f"{self.limits.in_flight} requests are in flight: wait for answers.")
            request = self.in_flight[id] = open_request(message, self.session, self.session.principal)
        except ProtocolError as error:
            answer, status = error, error.http_status
        except Exception as error:
            answer, status = self.report(error), 500
        else:
            return request
        if isinstance(id, UnsetType) or message.method is UNSET:
            return None
        return Reply(encode_error(id, answer), status)

    def _notified(self, message: Message) -> Event:
        row = METHODS.get(message.method)  # type: ignore[arg-type]
        if row is None or not row.notification or row.sender == "server":
            return None
        try:
            params = row.decode_params(b"{}" if message.params is UNSET else message.params)
        except msgspec.MsgspecError:
            return None  # a notification has no answer, not even to a bad one (JSON-RPC 2.0, §4.1)
        if row.name == "notifications/cancelled":
            return self._cancelled(params.request_id)
        if row.name == "notifications/initialized" and not self.session.advance(row.name):
            return None
        return Notification(None, message, params)

    def _cancelled(self, id: Id) -> Event:
        request = self.in_flight.get(id)
        # `initialize` must not be cancelled (lifecycle); an id that is not in flight is a race, and ignored.
        if request is None or request.method == "initialize":
            return None
        del self.in_flight[id]
        return Cancellation(request)

    def _answered(self, message: Message) -> Event:
        # Late, doubled and invented answers find nothing awaited.
        missing = object()
        waiter = self._awaited.pop(message.id, missing)  # type: ignore[arg-type]  # decode saw to an id or None
        return None if waiter is missing else Response(waiter, message)

    def respond(self, request: Request, result: Any) -> bytes | ChunkedMessage | None:
        """Seal the answer and take the id out of flight; None where the request was cancelled meanwhile."""
        if self.in_flight.get(request.id) is not request:
            return None
        data = seal_result(request, result, self.stamps)
        del self.in_flight[request.id]
        return data

    def fail(self, request: Request, error: ProtocolError) -> bytes | ChunkedMessage | None:
        """Seal an error and take the id out of flight; None where the request was cancelled meanwhile."""
        if self.in_flight.get(request.id) is not request:
            return None
        data = seal_error(request, error, self.stamps)
        del self.in_flight[request.id]
        return data

    def request(self, method: str, params: Any, waiter: Any) -> tuple[Id, bytes]:
        """Take a new id for a request to the client (handshake era): the id and the bytes to send."""
        data = encode_request(self._next_id + 1, method, params)
        self._next_id += 1
        self._awaited[self._next_id] = waiter
        return self._next_id, data

    def forget(self, id: Id) -> bool:
        """Stop waiting for one answer; False where it has come, or nobody waits."""
        missing = object()
        return self._awaited.pop(id, missing) is not missing

    def forget_all(self) -> list[Any]:
        """Stop waiting for every answer: the tokens of those that have not come."""
        tokens = list(self._awaited.values())
        self._awaited.clear()
        return tokens

    def close(self) -> list[Request]:
        """The connection is gone: what was in flight, to be cancelled; `forget_all` gives the questions of the rest."""
        requests = list(self.in_flight.values())
        self.in_flight.clear()
        self.session.close()
        return requests
