"""Encode and decode JSON-RPC 2.0 messages. The decoder is strict: it never repairs or guesses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger.errors import InvalidRequest, ParseError, ProtocolError
from wharfinger.protocol.limits import Limits

__all__ = [
    "Id",
    "Message",
    "decode",
    "decode_batch",
    "encode",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "refuse_duplicates",
]

Id = int | str


class Message(msgspec.Struct, gc=False):
    """One JSON-RPC 2.0 message: a request, a notification or a response, depending on which members are set."""

    jsonrpc: str | UnsetType = UNSET
    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _OnlyId(msgspec.Struct, gc=False):
    id: Id | UnsetType = UNSET


encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(Message).decode
_decode_entries = msgspec.json.Decoder(list[Raw]).decode
_decode_id = msgspec.json.Decoder(_OnlyId).decode

MAX_ID = 2**63 - 1

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A JSON string, or an unclosed one up to the end; possessive, so that it takes linear time."""
_ID_OR_METHOD = re.compile(
    rb'"(id|method)"[ \t\r\n]*+:[ \t\r\n]*+(-?[0-9]{1,19}+(?![0-9.eE])|"[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL
)
"""A member called `id` or `method` at any level, with its value if that is an integer or a string."""
_MIN_MEMBER_BYTES = len(b'"":0,')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NESTING_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def decode(data: bytes, limits: Limits, *, from_server: bool = False) -> Message:
    """Decode one message. `params`, `result` and `error` stay raw, but are checked to be well-formed JSON in UTF-8.

    A member that decides how a message is routed must not occur twice, or two readers could see two different
    messages (security: J07, J08). The checks for this cost nanoseconds on a plain message; only a message that may have
    such a member twice takes the slow path. With `from_server` these checks and the limit on members do not apply: a
    server's documents may have members of any name.

    Raises:
        ParseError: not JSON, or not UTF-8.
        InvalidRequest: not a valid message, or over a limit; its `id` is set if it could be read.
    """
    if len(data) > limits.message:
        raise InvalidRequest(f"The message has {len(data)} bytes, the limit is {limits.message}: send less at once.")
    # msgspec does not check UTF-8 in parts that stay raw.
    if not data.isascii():
        refuse_bad_utf8(data)
    # The cheap tests come first: the size, then the number of colons.
    if (
        not from_server
        and len(data) > _MIN_MEMBER_BYTES * limits.members
        and data.count(b":") > limits.members
        and count_members(data) > limits.members
    ):
        raise InvalidRequest(
            f"The message has more than {limits.members} members: send less at once.",
            id=_readable_id(data) if b'"method"' in data else None,
        )
    # The cheap tests come first: the size, then the number of brackets. msgspec's own limit is the interpreter's stack.
    if (
        len(data) > 2 * limits.depth
        and data.count(b"[") + data.count(b"{") > limits.depth
        and depth(data) > limits.depth
    ):
        raise InvalidRequest(_too_deep("message", limits), id=next(_request_ids(data, 1, limits), None))
    try:
        message = _decode_message(data)
    except msgspec.ValidationError:
        raise InvalidRequest(id=_readable_id(data)) from None
    except (msgspec.DecodeError, RecursionError):
        raise ParseError from None
    id = message.id
    # Three counts cost 0.3 µs, a loop over them twice that. They would miss an escaped name such as "\u006dethod".
    if not from_server and (
        data.count(b'"method"') > 1
        or data.count(b'"id"') > 1
        or data.count(b'"params"') > 1
        or (b"\\" in data and b"\\u00" in data)
    ):
        refuse_duplicates(data, _id_or_none(id))
    if type(id) is int:
        if not -MAX_ID <= id <= MAX_ID:
            raise InvalidRequest("An id may have at most 64 bits.")
    elif type(id) is str and len(id) > limits.id_length:
        raise InvalidRequest(f"An id may have at most {limits.id_length} characters.")
    if message.jsonrpc != "2.0":
        raise InvalidRequest(id=_id_or_none(id))
    if message.method is UNSET:
        if (message.result is UNSET) == (message.error is UNSET):
            raise InvalidRequest(id=_id_or_none(id))
    elif message.result is not UNSET or message.error is not UNSET:
        raise InvalidRequest("A message has either a method or a result, not both.", id=_id_or_none(id))
    return message


def decode_batch(data: bytes, limits: Limits) -> list[Message | ProtocolError] | None:
    """Decode an array of messages (JSON-RPC 2.0, §6); None if `data` is not an array.

    An entry that is not a valid message is returned as the error to send for it.

    Raises:
        ParseError: not JSON.
        InvalidRequest: the array is empty, is too large, has more than `Limits.batch` messages, or is nested too deeply
            and has no request that could be refused.
    """
    if not data.lstrip(b" \t\r\n").startswith(b"["):
        return None
    if len(data) > limits.message:
        raise InvalidRequest(f"The batch has {len(data)} bytes, the limit is {limits.message}: send less at once.")
    if data.count(b"[") + data.count(b"{") > limits.depth and depth(data) > limits.depth + 1:
        refused = [InvalidRequest(_too_deep("batch", limits), id=id) for id in _request_ids(data, 2, limits)]
        if not 0 < len(refused) <= limits.batch:
            raise InvalidRequest(_too_deep("batch", limits))
        return [*refused]
    try:
        entries = _decode_entries(data)
    except (msgspec.MsgspecError, RecursionError):
        raise ParseError from None
    if not entries or len(entries) > limits.batch:
        raise InvalidRequest(f"A batch has 1 to {limits.batch} messages.")
    messages: list[Message | ProtocolError] = []
    for entry in entries:
        try:
            messages.append(decode(bytes(entry), limits))
        except ProtocolError as error:
            messages.append(error)
    return messages


def refuse_bad_utf8(data: bytes) -> None:
    """Raise ParseError for bytes that are not UTF-8. They are never replaced by U+FFFD (security: J04, J05)."""
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        raise ParseError("The message is not valid UTF-8.") from None


def depth(data: bytes) -> int:
    """Return the depth to which arrays and objects are nested. Takes linear time for any `data`."""
    return max(accumulate(_nesting_steps(data)), default=0)


def _nesting_steps(data: bytes) -> memoryview[int]:
    """Return 1 for each opening bracket and -1 for each closing one, outside strings."""
    return memoryview(_STRINGS.sub(b"", data).translate(_NESTING_STEPS, _NOT_BRACKETS)).cast("b")


def count_members(data: bytes) -> int:
    """Return the number of members of all objects together. Takes linear time for any `data`."""
    return _STRINGS.sub(b"", data).count(b":")


def refuse_duplicates(data: bytes, id: Id | None = None) -> None:
    """Raise InvalidRequest if an object has a member twice: readers may differ in which they use (RFC 8259, §4).

    The error has this `id`, unless the member that occurs twice is an `id`. Raises ParseError for JSON that cannot be
    read. Takes linear time.
    """
    import json  # the slow path only: 5 ms of import

    try:
        # Numbers become the lengths of their texts, small cached integers, to save memory.
        json.loads(data, object_pairs_hook=_refuse_duplicate_names, parse_int=len, parse_float=len)
    except _DuplicateMember as error:
        raise InvalidRequest(
            "An object of the message has the same member twice.", id=None if error.args == ("id",) else id
        ) from None
    except (ValueError, RecursionError):
        raise ParseError from None


class _DuplicateMember(Exception):
    """An object has a member twice."""


def _refuse_duplicate_names(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) < 2 or len(dict(pairs)) == len(pairs):
        return
    counts = Counter(name for name, _ in pairs)
    raise _DuplicateMember("id" if counts["id"] > 1 else next(name for name in counts if counts[name] > 1))


def _too_deep(kind: str, limits: Limits) -> str:
    return f"The {kind} nests deeper than {limits.depth} arrays and objects."


def _request_ids(data: bytes, level: int, limits: Limits) -> Iterator[Id]:
    """Find the ids of requests at this level of a document that is nested too deeply to be parsed.

    Takes linear time, without recursion. A message with two ids is treated as one without an id. A message without a
    method is not a request.
    """
    current_level = position = 0
    members: dict[bytes, list[bytes | None]] = {}
    for match in _ID_OR_METHOD.finditer(data):
        steps = _nesting_steps(data[position : match.start()])
        if min(accumulate(steps, initial=current_level)) < level:  # another message begins
            yield from _id_of(members, limits)
            members = {}
        current_level += sum(steps)
        position = match.start()
        if current_level == level:
            members.setdefault(match[1], []).append(match[2])
    yield from _id_of(members, limits)


def _id_of(members: dict[bytes, list[bytes | None]], limits: Limits) -> Iterator[Id]:
    """Yield the id of a message, if these members show that it is a request with one id."""
    values = members.get(b"id", ())
    if len(values) == 1 and values[0] is not None and b"method" in members:
        id = _readable_id(b'{"id":%b}' % values[0])
        if id is not None and (type(id) is int or len(str(id)) <= limits.id_length):
            yield id


def _readable_id(data: bytes) -> Id | None:
    try:
        return _id_or_none(_decode_id(data).id)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _id_or_none(id: Id | UnsetType) -> Id | None:
    return None if isinstance(id, UnsetType) else id


def encode_request(id: Id, method: str, params: Any = UNSET) -> bytes:
    """Encode a request; `params` encodes to an object, or is UNSET."""
    return encode(Message("2.0", id, method, _raw(params)))


def encode_notification(method: str, params: Any = UNSET) -> bytes:
    """Encode a notification."""
    return encode(Message("2.0", UNSET, method, _raw(params)))


def encode_result(id: Id, result: Any) -> bytes:
    """Encode a successful response; nothing is added to `result`."""
    return encode(Message("2.0", id, result=_raw(result)))


def encode_error(id: Id | None, error: ProtocolError, code: int | None = None) -> bytes:
    """Encode an error response, with `code` instead of the error's own if it is given.

    Without an id the member is omitted: 2025-11-25 and later forbid null there.
    """
    body: dict[str, Any] = {"code": error.code if code is None else code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return encode(Message("2.0", UNSET if id is None else id, error=_raw(body)))


def _raw(value: Any) -> Raw | UnsetType:
    return value if value is UNSET or type(value) is Raw else Raw(encode(value))
