"""A client's end of one connection: it matches responses and notifications to requests. Does no I/O.

Call `request` or `cancel` and send the bytes that it returns. Pass each incoming message to `receive` and handle the
events that it returns (see `events`). No message of a server raises an exception: an unexpected response is
ignored, and an unreadable message is an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Generic, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.errors import InvalidRequest, MethodNotFound, ParseError, ProtocolError
from wharfinger.protocol.events import (
    Cancellation,
    Malformed,
    NotAMessage,
    Notification,
    Reply,
    Response,
    ServerRequest,
    UnattributedError,
    W,
)
from wharfinger.protocol.jsonrpc import (
    Id,
    Message,
    decode,
    encode,
    encode_error,
    encode_notification,
    encode_result,
)
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import Revision

__all__ = ["ClientPeer", "Event"]

Event = (
    Response[W]
    | Malformed[W]
    | UnattributedError[W]
    | Notification[W]
    | Reply
    | ServerRequest
    | Cancellation
    | NotAMessage
)


class _Code(msgspec.Struct, gc=False):
    code: int = 0


class _Entry(msgspec.Struct, gc=False):
    """An entry of a large batch. Such a batch is checked before it is split, because the entries of `[1,1,…]` take
    thirty times the memory of the batch."""

    jsonrpc: str


class _NullId(msgspec.Struct, gc=False):
    """An error response with the id null: the server could not read the message (2024-11-05 to 2025-06-18; later
    revisions omit the id)."""

    id: None
    error: Raw


class _NotificationMeta(msgspec.Struct, gc=False):
    subscription: Id | UnsetType = msgspec.field(name="io.modelcontextprotocol/subscriptionId", default=UNSET)


class _Routing(msgspec.Struct, gc=False):
    """The members of a notification's params that name the request to which it belongs."""

    progress: Id | UnsetType = msgspec.field(name="progressToken", default=UNSET)
    request: Id | UnsetType = msgspec.field(name="requestId", default=UNSET)
    meta: _NotificationMeta | UnsetType = msgspec.field(name="_meta", default=UNSET)


_decode_null_id = msgspec.json.Decoder(_NullId).decode
_decode_code = msgspec.json.Decoder(_Code).decode
_check_batch = msgspec.json.Decoder(list[_Entry]).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
_decode_routing = msgspec.json.Decoder(_Routing).decode

_LEADING_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
"""Finds the id at the start of a response that cannot be decoded. Bytes that are no response may match too: then a call
fails, but only a call to the server that sent them."""

CODES_WITHOUT_ID = frozenset((ParseError.code, InvalidRequest.code))
"""The codes of errors that may have no id, because the server could not read it (JSON-RPC 2.0, §5)."""

MAX_BATCH_MESSAGES = 4096
UNCHECKED_BATCH_COMMAS = 100_000
"""A batch with more commas is refused if an entry is not a message; with fewer, such an entry is skipped."""
TASK_PROGRESS_PREFIX = "task-"
"""Prefix of the progress tokens of tasks (2025-11-25), which outlive their request and belong to the connection."""

_NO_EVENTS: tuple[Any, ...] = ()


class ClientPeer(Generic[W]):
    """The requests of one connection that wait for a response, and the events of its incoming messages.

    Set `rules` as soon as the revision is agreed on. Before that, and in the handshake era, the server may send
    requests; in the stateless era its requests are ignored.
    """

    __slots__ = (
        "_ids",
        "_initialize_id",
        "_last_id",
        "_last_id_at_one_way",
        "_limits",
        "awaited",
        "handles_requests",
        "rules",
    )

    def __init__(self, limits: Limits, ids: Iterator[int] | None = None) -> None:
        """Over HTTP, each request has a `ClientPeer` of its own; those of one session share `ids`."""
        self.awaited: dict[Id, W] = {}
        """The waiters of requests that have no response yet, oldest first."""
        self.rules: Revision | None = None
        self.handles_requests = False
        """Whether requests of the server become events. If not, they are refused. `ping` is answered in either case."""
        self._limits = limits
        self._ids = count(1) if ids is None else ids
        self._initialize_id = 0
        self._last_id = 0
        """The id of the last request."""
        self._last_id_at_one_way = -1
        """The value of `_last_id` when a message that gets no response was last sent. Nothing shows whether the server
        has read such a message."""

    def request(self, method: str, params: Any, waiter: W, *, progress: bool = False) -> tuple[int, bytes]:
        """Register a request and return its id and the bytes to send. `progress` asks for progress notifications."""
        number = next(self._ids)
        if progress:
            params = _with_progress_token(params, number)
        data = encode(Message("2.0", number, method, params))
        self.awaited[number] = waiter
        self._last_id = number
        if method == "initialize":
            self._initialize_id = number
        return number, data

    def receive(self, data: bytes) -> tuple[Event[W], ...]:
        """Return the events of one incoming message; only a batch (2025-03-26) has several."""
        try:
            message = decode(data, self._limits, from_server=True)
        except ProtocolError as error:
            return self._receive_unreadable(data, error)
        if message.method is UNSET:
            if message.id is UNSET:
                return self._receive_error_without_id(message)
            waiter = self.awaited.pop(message.id, None)
            # Ignore a late, repeated or unexpected response.
            return (Response(waiter, message),) if waiter is not None else _NO_EVENTS
        if message.id is UNSET:
            return self._receive_notification(message)
        return self._receive_request(message)

    def cancel(self, id: int, reason: str) -> bytes | None:
        """Stop waiting for a response. Returns the notification to send.

        Returns None if the response has arrived, and for `initialize`, which must not be cancelled.
        """
        if self.awaited.pop(id, None) is None:
            return None
        self.record_one_way()
        if id == self._initialize_id:
            return None
        return encode_notification(
            "notifications/cancelled", t.CancelledNotificationParams(request_id=id, reason=reason)
        )

    def record_one_way(self) -> None:
        """Record that a message was sent that gets no response: a notification or a response."""
        self._last_id_at_one_way = self._last_id

    def close(self) -> list[W]:
        """End the connection. Returns the waiters that got no response."""
        waiters = list(self.awaited.values())
        self.awaited.clear()
        self.record_one_way()
        return waiters

    def _receive_error_without_id(self, message: Message) -> tuple[Event[W], ...]:
        """Return the event of an error without an id. It may be about any message, so no call fails yet."""
        if message.error is UNSET:
            return _NO_EVENTS
        return (UnattributedError(self._find_suspect(message.error), message),)

    def _find_suspect(self, error: Raw) -> W | None:
        """Return the waiter of the one request that this error can be about; None if there is none, or several.

        The server reads messages in order: if a request has a response, everything sent before it was read.
        """
        try:
            if _decode_code(error).code not in CODES_WITHOUT_ID:
                return None
        except (msgspec.MsgspecError, RecursionError):
            return None
        newest = self._last_id
        # Only the newest request can be unread if the one before it has a response, and nothing one-way was sent since.
        if newest not in self.awaited or newest - 1 in self.awaited or self._last_id_at_one_way >= newest - 1:
            return None
        return self.awaited[newest]

    def _receive_notification(self, message: Message) -> tuple[Event[W], ...]:
        if message.params is UNSET:
            return (Notification(None, message),)
        try:
            routing = _decode_routing(message.params)
        except msgspec.MsgspecError:
            return _NO_EVENTS
        if message.method == "notifications/progress":
            waiter = self._find_waiter(routing.progress)
            of_task = isinstance(routing.progress, str) and routing.progress.startswith(TASK_PROGRESS_PREFIX)
            return (Notification(waiter, message),) if waiter is not None or of_task else _NO_EVENTS
        if message.method == "notifications/cancelled":
            if self.handles_requests and not self._is_stateless and not isinstance(routing.request, UnsetType):
                # The server cancels a request of its own: the ids of the two directions are independent.
                return (Cancellation(routing.request),)
            waiter = self._find_waiter(routing.request)
            return (Notification(waiter, message),) if waiter is not None else _NO_EVENTS
        if isinstance(routing.meta, UnsetType) or isinstance(routing.meta.subscription, UnsetType):
            return (Notification(None, message),)
        # A notification of a subscription that has ended must not reach another subscription.
        waiter = self._find_waiter(routing.meta.subscription)
        return (Notification(waiter, message),) if waiter is not None else _NO_EVENTS

    def _find_waiter(self, id: Id | UnsetType) -> W | None:
        if isinstance(id, UnsetType):
            return None
        # Some servers repeat our integer as a string.
        if isinstance(id, str) and id.isascii() and id.isdigit() and len(id) <= 18:
            return self.awaited.get(int(id))
        return self.awaited.get(id)

    @property
    def _is_stateless(self) -> bool:
        return self.rules is not None and self.rules.era == "stateless"

    def _receive_request(self, message: Message) -> tuple[Event[W], ...]:
        if isinstance(message.id, UnsetType) or self._is_stateless:
            return _NO_EVENTS
        if message.method == "ping":
            return (Reply(encode_result(message.id, t.EmptyResult())),)
        if self.handles_requests:
            return (ServerRequest(message),)
        error = MethodNotFound("This client declares no capability for that method.")
        return (Reply(encode_error(message.id, error)),)

    def _receive_unreadable(self, data: bytes, error: ProtocolError) -> tuple[Event[W], ...]:
        """Return the events of bytes that `decode` refused: a batch, an error with the id null, or a bad response."""
        start = data.lstrip()[:1]
        if start == b"[" and self.rules is not None and self.rules.batches:
            return self._receive_batch(data)
        if isinstance(error, ParseError) or start != b"{":
            waiter = self._pop_waiter(data, None) if start == b"{" else None
            return (NotAMessage(data),) if waiter is None else (Malformed(waiter, error.message),)
        if isinstance(error, InvalidRequest) and b"null" in data:
            try:
                response = _decode_null_id(data)
            except (msgspec.MsgspecError, RecursionError):  # it may be nested too deeply
                pass
            else:
                return self._receive_error_without_id(Message("2.0", error=response.error))
        waiter = self._pop_waiter(data, error.id)
        return (NotAMessage(data),) if waiter is None else (Malformed(waiter, error.message),)

    def _pop_waiter(self, data: bytes, id: Id | None) -> W | None:
        """Return the waiter of a bad response, by its id or, if that is None, by the id that `data` begins with."""
        if id is None:
            found = _LEADING_ID.match(data)
            return self.awaited.pop(int(found[1]), None) if found else None
        return self.awaited.pop(id, None)

    def _receive_batch(self, data: bytes) -> tuple[Event[W], ...]:
        """Return the events of all messages of a batch. Arrays in the batch are skipped."""
        if len(data) > self._limits.message or data.count(b'"jsonrpc"') > MAX_BATCH_MESSAGES:
            return (NotAMessage(data),)
        try:
            if data.count(b",") > UNCHECKED_BATCH_COMMAS:
                _check_batch(data)
            messages = _decode_batch(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return (NotAMessage(data),)
        return tuple(
            event for message in messages if bytes(message)[:1] != b"[" for event in self.receive(bytes(message))
        )


def _with_progress_token(params: Any, id: int) -> Any:
    if isinstance(params, Mapping):
        members = cast("Mapping[str, Any]", params)
        return {**members, "_meta": {**members.get("_meta", {}), "progressToken": id}}
    meta = t.RequestMeta() if params.meta is UNSET else params.meta
    return msgspec.structs.replace(params, meta=msgspec.structs.replace(meta, progress_token=id))
