"""A client's end of one connection: ids awaited, answers and notifications routed to who asked; no I/O, no clock.

Bytes in, events out; bytes to send come back from the call that makes them. Nothing here raises for what a server
sends: an answer nobody awaits is ignored, what cannot be read is an event, and what the server asks is answered.
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
    | Cancellation[Id]
    | NotAMessage
)


class _Code(msgspec.Struct, gc=False):
    code: int = 0


class _Entry(msgspec.Struct, gc=False):
    """What is read of a large batch before it is taken apart: `[1,1,…]` would take thirty times its bytes."""

    jsonrpc: str


class _NullId(msgspec.Struct, gc=False):
    """The error that 2024-11-05 to 2025-06-18 answer to what they cannot read; later ones leave the id out."""

    id: None
    error: Raw


class _NoticeMeta(msgspec.Struct, gc=False):
    subscription: Id | UnsetType = msgspec.field(name="io.modelcontextprotocol/subscriptionId", default=UNSET)


class _Routing(msgspec.Struct, gc=False):
    """What tells which request a notification belongs to."""

    progress: Id | UnsetType = msgspec.field(name="progressToken", default=UNSET)
    request: Id | UnsetType = msgspec.field(name="requestId", default=UNSET)
    meta: _NoticeMeta | UnsetType = msgspec.field(name="_meta", default=UNSET)


_decode_null_id = msgspec.json.Decoder(_NullId).decode
_decode_code = msgspec.json.Decoder(_Code).decode
_check_batch = msgspec.json.Decoder(list[_Entry]).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
_decode_routing = msgspec.json.Decoder(_Routing).decode

_HEAD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
"""The id of an answer that is too hostile to decode; a wrong guess harms only a call to the server that sent it."""

UNREAD = frozenset((ParseError.code, InvalidRequest.code))
"""The only errors that may leave the id out: they are for messages whose id could not be read (JSON-RPC 2.0, §5)."""

MAX_BATCH_MESSAGES = 4096
"""Messages of one batch."""
UNCHECKED_BATCH_ENTRIES = 100_000
"""Commas of a batch up to which entries that are no messages do no harm, and the others are read."""
TASK_PROGRESS_PREFIX = "task-"
"""How the progress tokens of tasks begin (2025-11-25): they outlive their request, and belong to the connection."""

_NOTHING: tuple[Any, ...] = ()


class ClientPeer(Generic[W]):
    """Ids in use, what they wait for, and what a message that comes in means for them.

    Set `rules` as soon as the revision is agreed on: before that and in the handshake era the server may ask (it is
    answered to `ping`, and refused the rest); in the stateless era it may not, and is ignored.
    """

    __slots__ = ("_ids", "_last", "_limits", "_never_cancelled", "_unanswerable", "answers", "awaited", "rules")

    def __init__(self, limits: Limits, ids: Iterator[int] | None = None) -> None:
        """`ids` is shared by the peers of one session where each has a stream of its own."""
        self.awaited: dict[Id, W] = {}
        """Requests without an answer yet, oldest first."""
        self.rules: Revision | None = None
        self.answers = False
        """Whether what the server asks becomes events; else all but `ping` is refused."""
        self._limits = limits
        self._ids = count(1) if ids is None else ids
        self._never_cancelled = 0
        self._last = 0
        """The id of the last request that was sent."""
        self._unanswerable = -1
        """`_last` when something was sent that has no answer, such as a notification: was it read?"""

    def request(self, method: str, params: Any, waiter: W, *, progress: bool = False) -> tuple[int, bytes]:
        """Take a new id for a request; its bytes are to be sent. With `progress` the server is asked to tell of it."""
        number = next(self._ids)
        if progress:
            params = _with_token(params, number)
        data = encode(Message("2.0", number, method, params))
        self.awaited[number] = waiter
        self._last = number
        if method == "initialize":
            self._never_cancelled = number
        return number, data

    def receive(self, data: bytes) -> tuple[Event[W], ...]:
        """What one incoming message means; several events only for a batch (2025-03-26)."""
        try:
            message = decode(data, self._limits, from_server=True)
        except ProtocolError as error:
            return self._unreadable(data, error)
        if message.method is UNSET:
            if message.id is UNSET:
                return self._unattributed(message)
            waiter = self.awaited.pop(message.id, None)
            # Late, repeated, or never asked for.
            return (Response(waiter, message),) if waiter is not None else _NOTHING
        if message.id is UNSET:
            return self._notice(message)
        return self._asked(message)

    def cancel(self, id: int, reason: str) -> bytes | None:
        """Stop waiting for an answer. The bytes that tell the server, None where it must not or need not be told."""
        if self.awaited.pop(id, None) is None:
            return None
        self.sent_otherwise()
        if id == self._never_cancelled:
            return None
        return encode_notification(
            "notifications/cancelled", t.CancelledNotificationParams(request_id=id, reason=reason)
        )

    def sent_otherwise(self) -> None:
        """Something was sent that has no answer: a notification, or the answer to a question of the server's."""
        self._unanswerable = self._last

    def close(self) -> list[W]:
        """Nothing more will come; whoever still waits."""
        waiters = list(self.awaited.values())
        self.awaited.clear()
        self.sent_otherwise()
        return waiters

    def _unattributed(self, message: Message) -> tuple[Event[W], ...]:
        """An error without an id fails no call: anybody's message may be meant, or nobody's."""
        if message.error is UNSET:
            return _NOTHING
        return (UnattributedError(self._suspect(message.error), message),)

    def _suspect(self, error: Raw) -> W | None:
        """The one request that the server may have been unable to read; None if that cannot be told.

        Messages are read in their order: whatever was sent before a request that has its answer was read.
        """
        try:
            if _decode_code(error).code not in UNREAD:
                return None
        except (msgspec.MsgspecError, RecursionError):
            return None
        newest = self._last
        if newest not in self.awaited or newest - 1 in self.awaited or self._unanswerable >= newest - 1:
            return None
        return self.awaited[newest]

    def _notice(self, message: Message) -> tuple[Event[W], ...]:
        if message.params is UNSET:
            return (Notification(None, message),)
        try:
            routing = _decode_routing(message.params)
        except msgspec.MsgspecError:
            return _NOTHING
        if message.method == "notifications/progress":
            waiter = self._waiting(routing.progress)
            of_task = isinstance(routing.progress, str) and routing.progress.startswith(TASK_PROGRESS_PREFIX)
            return (Notification(waiter, message),) if waiter is not None or of_task else _NOTHING
        if message.method == "notifications/cancelled":
            if self.answers and not self._stateless and not isinstance(routing.request, UnsetType):
                # Its own request: ids of the two directions have nothing in common.
                return (Cancellation(routing.request),)
            waiter = self._waiting(routing.request)
            return (Notification(waiter, message),) if waiter is not None else _NOTHING
        if isinstance(routing.meta, UnsetType) or isinstance(routing.meta.subscription, UnsetType):
            return (Notification(None, message),)
        # Tagged for a subscription that is no more: it must not reach another one.
        waiter = self._waiting(routing.meta.subscription)
        return (Notification(waiter, message),) if waiter is not None else _NOTHING

    def _waiting(self, id: Id | UnsetType) -> W | None:
        if isinstance(id, UnsetType):
            return None
        # Some servers repeat our integer as a string.
        if isinstance(id, str) and id.isascii() and id.isdigit() and len(id) <= 18:
            return self.awaited.get(int(id))
        return self.awaited.get(id)

    @property
    def _stateless(self) -> bool:
        return self.rules is not None and self.rules.era == "stateless"

    def _asked(self, message: Message) -> tuple[Event[W], ...]:
        if isinstance(message.id, UnsetType) or self._stateless:
            return _NOTHING
        if message.method == "ping":
            return (Reply(encode_result(message.id, t.EmptyResult())),)
        if self.answers:
            return (ServerRequest(message),)
        error = MethodNotFound("This client declares no capability for that method.")
        return (Reply(encode_error(message.id, error)),)

    def _unreadable(self, data: bytes, error: ProtocolError) -> tuple[Event[W], ...]:
        start = data.lstrip()[:1]
        if start == b"[" and self.rules is not None and self.rules.batches:
            return self._batch(data)
        if isinstance(error, ParseError) or start != b"{":
            waiter = self._guilty(data, None) if start == b"{" else None
            return (NotAMessage(data),) if waiter is None else (Malformed(waiter, error.message),)
        if isinstance(error, InvalidRequest) and b"null" in data:
            try:
                answered = _decode_null_id(data)
            except (msgspec.MsgspecError, RecursionError):  # it may be here because it nests too deeply
                pass
            else:
                return self._unattributed(Message("2.0", error=answered.error))
        waiter = self._guilty(data, error.id)
        return (NotAMessage(data),) if waiter is None else (Malformed(waiter, error.message),)

    def _guilty(self, data: bytes, id: Id | None) -> W | None:
        if id is None:
            head = _HEAD.match(data)
            return self.awaited.pop(int(head[1]), None) if head else None
        return self.awaited.pop(id, None)

    def _batch(self, data: bytes) -> tuple[Event[W], ...]:
        if len(data) > self._limits.message or data.count(b'"jsonrpc"') > MAX_BATCH_MESSAGES:
            return (NotAMessage(data),)
        try:
            if data.count(b",") > UNCHECKED_BATCH_ENTRIES:
                _check_batch(data)
            messages = _decode_batch(data)
        except (msgspec.MsgspecError, RecursionError):
            return (NotAMessage(data),)
        return tuple(
            event for message in messages if bytes(message)[:1] != b"[" for event in self.receive(bytes(message))
        )


def _with_token(params: Any, id: int) -> Any:
    if isinstance(params, Mapping):
        members = cast("Mapping[str, Any]", params)
        return {**members, "_meta": {**members.get("_meta", {}), "progressToken": id}}
    meta = t.RequestMeta() if params.meta is UNSET else params.meta
    return msgspec.structs.replace(params, meta=msgspec.structs.replace(meta, progress_token=id))
