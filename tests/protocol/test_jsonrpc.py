"""The limits of the JSON-RPC codec, each at its value and one above, and the ids in errors."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, Raw

from wharfinger.errors import InternalError, InvalidRequest, ParseError, ProtocolError
from wharfinger.protocol.jsonrpc import (
    Message,
    count_members,
    decode,
    decode_batch,
    depth,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    refuse_duplicates,
)
from wharfinger.protocol.limits import Limits

LIMITS = Limits(depth=8, batch=4)


def request(id: str, value: str = "1") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{"a":{value}}}}}'.encode()


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def refusal_of(data: bytes, limits: Limits = LIMITS) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode(data, limits)
    return caught.value


def ids(data: bytes, limits: Limits = LIMITS) -> list[Any]:
    """Return the id of each message in a batch. The id of a refused message is in a list."""
    batch = decode_batch(data, limits)
    assert batch is not None
    return [[entry.id] if isinstance(entry, ProtocolError) else entry.id for entry in batch]


def test_a_message_larger_than_the_limit_is_refused() -> None:
    data = request("1")
    assert decode(data, Limits(message=len(data))).id == 1
    error = refusal_of(data, Limits(message=len(data) - 1))
    assert str(len(data)) in error.message
    assert error.id is None


@pytest.mark.parametrize(
    ("id", "fits"),
    [
        (str(2**63 - 1), True),
        (str(1 - 2**63), True),
        (str(2**63), False),
        (str(-(2**63)), False),
        ('"' + "a" * 256 + '"', True),
        ('"' + "a" * 257 + '"', False),
        ('"' + "é" * 256 + '"', True),
    ],
)
def test_an_id_has_at_most_64_bits_or_256_characters(id: str, fits: bool) -> None:
    if fits:
        assert decode(request(id), Limits()).id is not UNSET
    else:
        assert refusal_of(request(id), Limits()).id is None


def test_a_message_deeper_than_the_limit_is_refused_with_its_id() -> None:
    assert decode(request("1", nested(6)), LIMITS).id == 1
    assert refusal_of(request("1", nested(7))).id == 1
    assert refusal_of(b" " + request("1", nested(7))).id == 1
    assert decode(request("1", "[[],[],[],[],[],[],[],[],[],[]]"), LIMITS).id == 1


@pytest.mark.parametrize(
    ("id", "reported"), [('"' + "a" * 256 + '"', True), ('"' + "a" * 257 + '"', False), ("7", True)]
)
def test_the_error_for_a_too_deep_message_has_its_id_up_to_256_characters(id: str, reported: bool) -> None:
    assert (refusal_of(request(id, nested(7))).id is not None) is reported


def test_a_message_with_more_members_than_the_limit_is_refused() -> None:
    small = Limits(members=6)
    two = b'{"jsonrpc":"2.0","id":1,"method":"p","params":{"a":1,"b":2}}'
    three = two.replace(b'"b":2', b'"b":2,"":3')
    assert decode(two, small).id == 1
    assert refusal_of(three, small).id == 1
    assert refusal_of(three.replace(b'"method":"p",', b'"result":1,'), small).id is None
    assert decode(two.replace(b'"b":2', b'"b":"::::"'), small).id == 1


def test_members_and_levels_inside_strings_are_not_counted() -> None:
    for data, levels, members in (
        (b"", 0, 0),
        (b"1", 0, 0),
        (b"[]", 1, 0),
        (b'[{"a":[]},{}]', 3, 1),
        (b'{"[:{":"\\"[{:"}', 1, 1),
        (b'{"a":{"b":{"c":1}}}', 3, 3),
        (b'["[', 1, 0),
    ):
        assert (depth(data), count_members(data)) == (levels, members)


def test_repeated_params_are_refused_only_next_to_an_escaped_ascii_character() -> None:
    """Such an escape may hide the name of a member, so every member is compared."""
    assert decode(request("1", '{"b":"\\n","c":1,"c":2}'), LIMITS).id == 1
    assert decode(request("1", '{"b":"\\u1234","c":1,"c":2}'), LIMITS).id == 1
    assert refusal_of(request("1", '{"b":"\\u0041","c":1,"c":2}')).id == 1


@pytest.mark.parametrize("member", ["method", "id", "params"])
def test_members_of_a_result_may_have_names_of_message_members(member: str) -> None:
    data = f'{{"jsonrpc":"2.0","id":1,"result":{{"{member}":1,"x":{{"{member}":2}}}}}}'.encode()
    assert decode(data, LIMITS, from_server=True).id == 1
    twice = f'{{"jsonrpc":"2.0","id":1,"result":{{"{member}":1,"{member}":2}}}}'.encode()
    assert decode(twice, LIMITS, from_server=True).id == 1
    assert refusal_of(twice).code == -32600


@pytest.mark.parametrize(
    ("data", "id"),
    [
        (b'{"id":1,"a":1,"a":2}', 7),
        (b'{"a":1,"a":2,"id":1,"id":2}', None),
        (b'{"id":1,"id":2}', None),
        (b'[{"a":1},{"b":{"a":1,"b":2,"a":3}}]', 7),
    ],
)
def test_the_error_for_a_repeated_member_has_the_id_if_it_is_unique(data: bytes, id: int | None) -> None:
    with pytest.raises(InvalidRequest, match="twice") as caught:
        refuse_duplicates(data, 7)
    assert caught.value.id == id


def test_members_that_occur_once_are_not_refused() -> None:
    refuse_duplicates(b'{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}],"d":{}}')
    for data in (b"{", b'{"a":1,}', b"[" * 100_000):
        with pytest.raises(ParseError):
            refuse_duplicates(data)


# --- batches


@pytest.mark.parametrize("data", [b"{}", b"1", b'"[1]"', b"", b" ", b"\x0b[1]", request("1", "[1]")])
def test_only_an_array_is_a_batch(data: bytes) -> None:
    assert decode_batch(data, LIMITS) is None


def test_a_batch_may_begin_with_blanks() -> None:
    assert ids(b" \t\r\n[" + request("1") + b"]") == [1]


def test_the_number_and_size_of_messages_in_a_batch_are_limited() -> None:
    for count in (1, 4):
        data = b"[" + b",".join(request(str(n)) for n in range(count)) + b"]"
        assert ids(data) == list(range(count))
        assert ids(data, Limits(message=len(data))) == list(range(count))
        with pytest.raises(InvalidRequest, match="bytes"):
            decode_batch(data, Limits(message=len(data) - 1))
    for count in (0, 5):
        with pytest.raises(InvalidRequest, match="1 to 4 messages"):
            decode_batch(b"[" + b",".join([b"1"] * count) + b"]", LIMITS)


def test_a_batch_may_nest_one_level_deeper_than_a_message() -> None:
    fits, beyond = request("1", nested(6)), request("2", nested(7))
    assert ids(b"[" + fits + b"," + request("3") + b"]") == [1, 3]
    assert ids(b"[" + fits + b"," + beyond + b"]") == [[1], [2]]
    assert ids(b"[" + beyond + b"]") == [[2]]
    wide = request("1", "[[],[],[]]")
    assert ids(b"[" + b",".join([wide] * 4) + b"]") == [1, 1, 1, 1]


def test_each_request_in_a_too_deep_batch_gets_an_error() -> None:
    deep = request('"x"', nested(50))
    notice = b'{"jsonrpc":"2.0","method":"a/b"}'
    inside = b'{"a":' + request("9") + b"}"
    assert ids(b"[" + b",".join([request("1"), deep, notice, inside, request("3")]) + b"]") == [[1], ["x"], [3]]
    assert ids(b" [" + b",".join([request(str(n)) for n in range(3)] + [deep]) + b"]") == [[0], [1], [2], ["x"]]
    for none_or_many in ([notice, nested(50).encode()], [request(str(n)) for n in range(4)] + [deep]):
        with pytest.raises(InvalidRequest, match="batch nests deeper than 8") as caught:
            decode_batch(b"[" + b",".join(none_or_many) + b"]", LIMITS)
        assert caught.value.id is None


def test_a_batch_of_invalid_json_is_a_parse_error() -> None:
    for data in (b"[", b"[1,]", b"[1]x"):
        with pytest.raises(ParseError):
            decode_batch(data, LIMITS)


# --- encoding


@pytest.mark.parametrize("value", [{"a": 1}, Raw(b'{"a":1}')])
def test_a_value_and_its_encoded_json_are_the_same_message(value: Any) -> None:
    assert encode_request(1, "a/b", value) == b'{"jsonrpc":"2.0","id":1,"method":"a/b","params":{"a":1}}'
    assert encode_notification("a/b", value) == b'{"jsonrpc":"2.0","method":"a/b","params":{"a":1}}'
    assert encode_result("x", value) == b'{"jsonrpc":"2.0","id":"x","result":{"a":1}}'


def test_optional_members_are_omitted() -> None:
    assert encode_request(1, "a/b") == b'{"jsonrpc":"2.0","id":1,"method":"a/b"}'
    assert encode_notification("a/b") == b'{"jsonrpc":"2.0","method":"a/b"}'
    error = InternalError("no")
    assert encode_error(None, error) == b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"no"}}'
    assert encode_error(0, error, 5) == b'{"jsonrpc":"2.0","id":0,"error":{"code":5,"message":"no"}}'
    error.data = {"a": 1}
    assert encode_error("", error, 0) == (b'{"jsonrpc":"2.0","id":"","error":{"code":0,"message":"no","data":{"a":1}}}')


def test_decode_returns_the_members_of_a_message() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"result":{}}', LIMITS) == Message("2.0", 1, result=Raw(b"{}"))
