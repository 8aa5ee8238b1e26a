"""Every kind of invalid message (security: J01 to J41) gets the right answer, and the peer still works after it."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Literal, NamedTuple

import msgspec
import pytest

from wharfinger.errors import InvalidRequest, ParseError, ProtocolError
from wharfinger.protocol.events import Reply
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import Message, decode
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.lines import LineBuffer
from wharfinger.protocol.request import Request, ResultMeta
from wharfinger.protocol.server_peer import ServerPeer
from wharfinger.types import EmptyResult, Implementation

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS = -32700, -32600, -32602
LIMITS = Limits(message=4 * 1024 * 1024, depth=64)

Outcome = int | Literal["served", "ignored"]


class Case(NamedTuple):
    """A message, what the peer does with it, and the id of its answer. `decodable` is whether the codec accepts it."""

    name: str
    line: bytes
    outcome: Outcome
    id: int | str | None = None
    decodable: bool = False


def ping(params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + params + b"}"


def ping_with_id(id: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id + b',"method":"ping"}'


def read_request(uri: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":' + uri + b"}}"


NOT_JSON = {
    "text": b"hello",
    "truncated": b'{"jsonrpc":"2.0","id":1,"method":"pi',
    "truncated after a member": b'{"jsonrpc":"2.0","id":1,',
    "truncated in params": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[1,2',
    "trailing comma": b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    "single quotes": b"{'jsonrpc':'2.0','id':1,'method':'ping'}",
    "names without quotes": b'{jsonrpc:"2.0",id:1,method:"ping"}',
    "comment": b'{"jsonrpc":"2.0","id":1,"method":"ping"/* */}',
    "text after the message": ping(b"{}") + b"x",
    "NUL after the message": ping(b"{}") + b"\x00",
    "two documents": ping(b"{}") + ping(b"{}"),
    "two documents with a space": ping(b"{}") + b" " + ping(b"{}"),
    "BOM": b"\xef\xbb\xbf" + ping(b"{}"),
    "UTF-16": ping(b"{}").decode().encode("utf-16-le"),
}

NOT_JSON_IN_PARAMS = {
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "-Infinity": b"-Infinity",
    "leading zero": b"01",
    "leading plus": b"+1",
    "leading point": b".5",
    "trailing point": b"1.",
    "no exponent": b"1e",
    "hexadecimal": b"0x10",
    "half a word": b"tru",
    "wrong case": b"True",
    "tab in a string": b'"\t"',
    "NUL in a string": b'"\x00"',
    "invalid escape": b'"\\x41"',
    "half an escape": b'"\\u12"',
    "trailing comma": b"[1,]",
    "bad UTF-8": b'"\xff\xfe"',
    "lone continuation byte": b'"\x80"',
    "truncated UTF-8": b'"\xe2\x82"',
    "overlong slash": b'"\xc0\xaf"',
    "overlong NUL": b'"\xc0\x80"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "beyond U+10FFFF": b'"\xf4\x90\x80\x80"',
}

INVALID_IDS = {
    "null": b"null",
    "fraction": b"1.5",
    "whole fraction": b"1.0",
    "exponent": b"1e3",
    "true": b"true",
    "object": b"{}",
    "array": b"[1]",
    "1 MiB": b'"' + b"a" * (1024 * 1024) + b'"',
}

DEEP = b"[" * 100_000

NESTED = b'{"id":2,"method":"x","a":' + b"[" * 3000 + b'{"id":3,"method":"x"}' + b"]" * 3000 + b"}"
TOO_DEEP: list[tuple[str, bytes, int | str | None]] = [
    ("with the id at its end", b'{"method":"ping","params":' + NESTED + b',"jsonrpc":"2.0","id" : "a\\u0062"}', "ab"),
    ("with the id in the middle", b'{"params":' + NESTED + b',"id":-7,"method":"ping","x":' + NESTED + b"}", -7),
    ("with brackets in strings", b'{"a":"[{\\"[","id":1,"method":"ping","params":' + NESTED + b"}", 1),
    ("with two ids", b'{"id":1,"method":"ping","params":' + NESTED + b',"id":2}', None),
    ("without an id", b'{"method":"ping","params":' + NESTED + b"}", None),
    ("an answer", b'{"id":1,"result":' + NESTED + b"}", None),
    ("an invalid id", b'{"id":1.5,"method":"ping","params":' + NESTED + b"}", None),
    ("an id of too many characters", b'{"id":"' + b"a" * 257 + b'","method":"ping","params":' + NESTED + b"}", None),
    ("an array", b"[" + NESTED + b"]", None),
]

BLANK = {"nothing": b"", "white space": b"  \t ", "a carriage return": b"\r"}

CASES = [
    *(Case(f"J01 {name}", line, PARSE_ERROR) for name, line in NOT_JSON.items()),
    *(Case(f"J04 {name}", ping(b'{"a":' + value + b"}"), PARSE_ERROR) for name, value in NOT_JSON_IN_PARAMS.items()),
    Case("J04 bad UTF-8 in the method", b'{"jsonrpc":"2.0","id":1,"method":"p\xffng"}', PARSE_ERROR),
    Case("J04 bad UTF-8 in the id", ping_with_id(b'"\xff"'), PARSE_ERROR),
    Case("J04 bad UTF-8 in an unknown member", b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}', PARSE_ERROR),
    # A lone surrogate is not a character: the message is refused, not repaired or forwarded.
    Case("J06 lone surrogate in an argument", read_request(b'"a:\\ud800"'), PARSE_ERROR),
    Case("J06 lone surrogate in an unknown param", ping(b'{"a":"\\udfff"}'), PARSE_ERROR),
    Case("J06 lone surrogate in the method", b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', PARSE_ERROR),
    Case("J06 lone surrogate in the id", ping_with_id(b'"\\ud800"'), PARSE_ERROR),
    Case("J06 pair of surrogates", ping(b'{"a":"\\ud83d\\ude00"}'), "served", decodable=True),
    Case("J07 two methods", b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}', INVALID_REQUEST, 1),
    Case(
        "J07 two methods, one escaped",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","\\u006dethod":"x"}',
        INVALID_REQUEST,
        1,
    ),
    Case("J07 two ids", b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', INVALID_REQUEST),
    Case("J07 two params", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}', INVALID_REQUEST, 1),
    Case("J08 two uris", read_request(b'"a:b","uri":"a:c"'), INVALID_REQUEST, 1, decodable=True),
    Case("J08 two uris, one escaped", read_request(b'"a:b","\\u0075ri":"a:c"'), INVALID_REQUEST, 1),
    Case("J08 two values equal to a member name", ping(b'{"a":"method","b":"method"}'), "served", decodable=True),
    Case("J09 Method", b'{"jsonrpc":"2.0","id":1,"Method":"ping"}', INVALID_REQUEST, 1),
    Case("J09 ID", b'{"jsonrpc":"2.0","ID":1,"method":"ping"}', "ignored", decodable=True),
    Case("J11 1e400", ping(b'{"a":1e400}'), "served", decodable=True),
    Case("J12 number of 5,000 digits", ping(b'{"a":' + b"9" * 5000 + b"}"), "served", decodable=True),
    Case("J12 fraction of 5,000 digits", ping(b'{"a":0.' + b"9" * 5000 + b"}"), "served", decodable=True),
    *(Case(f"J13 id {name}", ping_with_id(value), INVALID_REQUEST) for name, value in INVALID_IDS.items()),
    Case("J17 id of 256 characters", ping_with_id(b'"' + b"a" * 256 + b'"'), "served", decodable=True),
    Case("J20 batch before 2025-03-26 is agreed on", b"[" + ping(b"{}") + b"]", INVALID_REQUEST),
    Case("J21 empty batch", b"[]", INVALID_REQUEST),
    *(Case(f"J21 {value!r}", value, INVALID_REQUEST) for value in (b"null", b"1", b'"ping"', b"true", b"{}")),
    Case("J22 100,000 arrays", DEEP, INVALID_REQUEST),
    Case("J22 100,000 arrays in params", ping(b'{"a":' + DEEP + b"]" * 100_000 + b"}"), INVALID_REQUEST, 1),
    *(
        Case(f"J23 depth {n}", ping(b'{"a":' + b"[" * n + b"]" * n + b"}"), INVALID_REQUEST, 1)
        for n in (63, 100, 1000, 3000)
    ),
    *(
        Case(f"J23 depth {n}", ping(b'{"a":' + b'{"a":' * n + b"1" + b"}" * n + b"}"), INVALID_REQUEST, 1)
        for n in (63, 3000)
    ),
    *(Case(f"J23 too deep, {name}", line, INVALID_REQUEST, id) for name, line, id in TOO_DEEP),
    Case("J23 depth 64", ping(b'{"a":' + b"[" * 62 + b"]" * 62 + b"}"), "served", decodable=True),
    Case("J23 brackets in a string", ping(b'{"a":"' + b"[{" * 1000 + b'\\"["}'), "served", decodable=True),
    Case("J24 5 MiB", ping(b'{"a":"' + b"a" * 5 * 1024 * 1024 + b'"}'), INVALID_REQUEST),
    Case("J26 no jsonrpc", b'{"id":1,"method":"ping"}', INVALID_REQUEST, 1),
    Case("J26 jsonrpc 1.0", b'{"jsonrpc":"1.0","id":"a","method":"ping"}', INVALID_REQUEST, "a"),
    Case("J26 jsonrpc a number", b'{"jsonrpc":2.0,"id":1,"method":"ping"}', INVALID_REQUEST, 1),
    *(
        Case(f"J27 params {value!r}", ping(value), INVALID_PARAMS, 1, decodable=True)
        for value in (b"[]", b"[1]", b'"a"', b"5", b"null", b"false")
    ),
    Case("J28 method a number", b'{"jsonrpc":"2.0","id":1,"method":5}', INVALID_REQUEST, 1),
    Case("J28 method null", b'{"jsonrpc":"2.0","id":1,"method":null}', INVALID_REQUEST, 1),
    Case("J30 unknown notification", b'{"jsonrpc":"2.0","method":"notifications/none"}', "ignored", decodable=True),
    Case("J30 request without an id", b'{"jsonrpc":"2.0","method":"ping"}', "ignored", decodable=True),
    Case("J31 response to an unknown request", b'{"jsonrpc":"2.0","id":77,"result":{}}', "ignored", decodable=True),
    Case(
        "J31 error for an unknown request",
        b'{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":""}}',
        "ignored",
        decodable=True,
    ),
    Case("J31 error without an id", b'{"jsonrpc":"2.0","error":{"code":1,"message":""}}', "ignored", decodable=True),
    Case("J32 method and result", b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', INVALID_REQUEST, 1),
    Case("J32 method and error", b'{"jsonrpc":"2.0","id":1,"method":"ping","error":{}}', INVALID_REQUEST, 1),
    Case("J32 result and error", b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', INVALID_REQUEST, 1),
    Case("J32 neither", b'{"jsonrpc":"2.0","id":1}', INVALID_REQUEST, 1),
    Case("J34 CRLF", ping(b"{}") + b"\r", "served", decodable=True),
    Case("J35 U+2028 in a string", ping('{"a":"\u2028\u2029\x7f"}'.encode()), "served", decodable=True),
    Case("J39 __proto__", ping(b'{"__proto__":{"a":1},"constructor":1}'), "served", decodable=True),
    Case("J40 unknown members", b'{"jsonrpc":"2.0","id":1,"method":"ping","x":{"id":2}}', "served", decodable=True),
    *(
        Case(f"J40 _meta {value!r}", ping(b'{"_meta":' + value + b"}"), INVALID_PARAMS, 1, decodable=True)
        for value in (b"5", b"null", b"[]", b'{"progressToken":{}}', b'{"progressToken":1.5}')
    ),
    Case("J40 token 0", ping(b'{"_meta":{"progressToken":0,"x/y":[null]}}'), "served", decodable=True),
]


def open_peer() -> ServerPeer:
    """Return a peer after its handshake."""
    peer = ServerPeer(Session(), ResultMeta(Implementation(name="quay", version="1")), LIMITS)
    initialize = peer.receive(
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
    )
    assert isinstance(initialize, Request)
    peer.respond(initialize, EmptyResult())
    peer.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    return peer


class Error(msgspec.Struct):
    code: int
    message: str


class Answer(msgspec.Struct):
    jsonrpc: str
    error: Error
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET


def assert_ping_is_answered(peer: ServerPeer) -> None:
    request = peer.receive(b'{"jsonrpc":"2.0","id":"alive","method":"ping"}')
    assert isinstance(request, Request)
    assert peer.respond(request, EmptyResult()) == b'{"jsonrpc":"2.0","id":"alive","result":{}}'


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_case_gets_its_answer_and_the_next_request_is_served(case: Case) -> None:
    peer = open_peer()
    began = time.thread_time()
    event = peer.receive(case.line)
    seconds = time.thread_time() - began
    if case.outcome == "ignored":
        assert event is None
    elif case.outcome == "served":
        assert isinstance(event, Request)
        assert peer.respond(event, EmptyResult()) is not None
    else:
        assert isinstance(event, Reply)
        answer = msgspec.json.decode(event.data, type=Answer)
        expected = msgspec.UNSET if case.id is None else case.id
        assert (answer.jsonrpc, answer.error.code, answer.id) == ("2.0", case.outcome, expected)
        assert len(event.data) < 1000, "the answer repeats the message"
    assert seconds < 1
    assert_ping_is_answered(peer)


@pytest.mark.parametrize("line", BLANK.values(), ids=BLANK)
def test_an_empty_line_is_ignored_but_an_empty_body_is_refused(line: bytes) -> None:
    """J03: a stream ignores an empty line. The codec refuses it, because an HTTP request must have a body."""
    assert open_peer().receive(line) is None
    with pytest.raises(ParseError):
        decode(line, LIMITS)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_codec_decodes_a_case_or_raises_the_same_error(case: Case) -> None:
    if case.decodable:
        assert isinstance(decode(case.line, LIMITS), Message)
        return
    with pytest.raises(ProtocolError) as caught:
        decode(case.line, LIMITS)
    assert (caught.value.code, caught.value.id) == (case.outcome, case.id)


def test_blank_lines_between_messages_are_ignored() -> None:
    """J03."""
    stream = b"\n\r\n  \n" + ping_with_id(b"1") + b"\r\n\r\n\t \r\n\n" + ping_with_id(b"2") + b"\n"
    peer = open_peer()
    events = [peer.receive(line) for line in LineBuffer(LIMITS.message).feed(stream)]
    assert [event.id for event in events if isinstance(event, Request)] == [1, 2]
    assert [event for event in events if isinstance(event, Reply)] == []


def test_a_duplicate_id_in_flight_is_refused_and_the_first_request_is_answered() -> None:
    """J18: the refusal has no id, since the id belongs to the first request."""
    peer = open_peer()
    first, second = peer.receive(ping(b"{}")), peer.receive(ping(b"{}"))
    assert isinstance(first, Request)
    assert isinstance(second, Reply)
    answer = msgspec.json.decode(second.data, type=Answer)
    assert (answer.error.code, answer.id) == (INVALID_REQUEST, msgspec.UNSET)
    assert peer.respond(first, EmptyResult()) == b'{"jsonrpc":"2.0","id":1,"result":{}}'


def test_the_number_1_and_the_string_1_are_different_ids() -> None:
    """J19: each gets its own answer, with its own type."""
    peer = open_peer()
    number, text = peer.receive(ping_with_id(b"1")), peer.receive(ping_with_id(b'"1"'))
    assert isinstance(number, Request)
    assert isinstance(text, Request)
    assert peer.respond(text, EmptyResult()) == b'{"jsonrpc":"2.0","id":"1","result":{}}'
    assert peer.respond(number, EmptyResult()) == b'{"jsonrpc":"2.0","id":1,"result":{}}'


@pytest.mark.parametrize("id", [b"0", b"-1", b"9007199254740993", b"9223372036854775807", b'""', b'"\xc3\xa9"'])
def test_ids_are_returned_unchanged(id: bytes) -> None:
    peer = open_peer()
    request = peer.receive(ping_with_id(id))
    assert isinstance(request, Request)
    assert peer.respond(request, EmptyResult()) == b'{"jsonrpc":"2.0","id":' + id + b',"result":{}}'


@pytest.mark.parametrize("digits", [400, 4_299, 4_301, 100_000])
def test_an_id_of_many_digits_is_served_or_refused(digits: int) -> None:
    """J12 and J17: Python refuses to convert integers of more than 4,300 digits."""
    peer = open_peer()
    event = peer.receive(ping_with_id(b"9" * digits))
    assert isinstance(event, Request | Reply)
    if isinstance(event, Reply):
        assert len(event.data) < 1000
    assert_ping_is_answered(peer)


def members(count: int) -> bytes:
    return b",".join(b'"m%d":0' % n for n in range(count))


def test_200_000_members_are_decoded_in_bounded_time() -> None:
    """J37. The escape in the second message requires the slow path."""
    for params in (b"{" + members(200_000) + b"}", b"{" + members(200_000) + b',"x":"\\u0041"}'):
        began = time.thread_time()
        assert isinstance(open_peer().receive(ping(params)), Request)
        assert time.thread_time() - began < 5


def test_one_member_over_the_limit_is_refused_with_the_id() -> None:
    """Regression: members were not limited.

    Each message has four members besides those of its params. A colon in a string is not a member.
    """
    spare = LIMITS.members - 4
    for params in (b"{" + members(spare) + b"}", b"{" + members(spare - 1) + b',"s":"' + b":" * 1000 + b'"}'):
        assert isinstance(open_peer().receive(ping(params)), Request)
    reply = open_peer().receive(ping(b"{" + members(spare + 1) + b"}"))
    assert isinstance(reply, Reply)
    answer = msgspec.json.decode(reply.data, type=Answer)
    assert (answer.error.code, answer.id) == (INVALID_REQUEST, 1)
    assert "250000 members" in answer.error.message
    small = Limits(members=8)
    assert isinstance(decode(ping(b"{" + members(4) + b"}"), small), Message)
    with pytest.raises(InvalidRequest):
        decode(ping(b"{" + members(5) + b"}"), small)
    # A response of a server may have any number of members: only its size is limited.
    response = b'{"jsonrpc":"2.0","id":1,"result":{' + members(9) + b"}}"
    assert isinstance(decode(response, small, from_server=True), Message)


@pytest.mark.parametrize("location", ["params", "message", "small objects"])
def test_duplicates_among_100_000_members_are_refused_in_bounded_time(location: str) -> None:
    """Regression: the time grew with the square of the number of duplicates: 20,000 took up to 13 s."""
    duplicates = members(50_000) + b"," + members(50_000)
    line = {
        "params": ping(b"{" + duplicates + b',"x":"\\u0041"}'),
        "message": b'{"jsonrpc":"2.0","id":1,"method":"ping",' + duplicates + b',"\\u0041":1}',
        "small objects": ping(b'{"x":[' + b'{"a":0,"b":1},' * 100_000 + b'{"a":1,"\\u0061":1}]}'),
    }[location]
    began = time.thread_time()
    reply = open_peer().receive(line)
    assert time.thread_time() - began < 2
    assert isinstance(reply, Reply)
    answer = msgspec.json.decode(reply.data, type=Answer)
    assert (answer.error.code, answer.id) == (INVALID_REQUEST, 1)


@pytest.mark.parametrize("unit", [b"[]", b"{}", b"0", b"1.5", b'"abc"', b'"\\u0061"', b'{"id":0}', b'{"":[""]}'])
def test_the_slow_path_takes_time_and_memory_in_proportion_to_the_message(unit: bytes) -> None:
    def cost(count: int, end: bytes) -> tuple[float, int]:
        line = ping(b'{"a":[' + (unit + b",") * count + end + b"]}")
        began = time.thread_time()
        open_peer().receive(line)
        seconds = time.thread_time() - began
        tracemalloc.start()
        try:
            open_peer().receive(line)
            return seconds, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    for end in (b'"\\u0041"', b"[" * 100 + b"]" * 100):
        few, many = 1_000, 100_000
        (few_seconds, few_bytes), (many_seconds, many_bytes) = cost(few, end), cost(many, end)
        assert many_seconds < 10 * (many / few) * max(few_seconds, 0.0005)
        assert many_bytes < 3 * (many / few) * max(few_bytes, 10_000)


def test_an_id_may_be_used_again_after_its_answer() -> None:
    """J38."""
    peer = open_peer()
    for _ in range(2):
        request = peer.receive(ping(b"{}"))
        assert isinstance(request, Request)
        assert peer.respond(request, EmptyResult()) == b'{"jsonrpc":"2.0","id":1,"result":{}}'


def test_mutated_messages_never_raise_and_every_answer_is_json() -> None:
    """J41."""
    rng = random.Random(41)
    messages = [case.line for case in CASES if len(case.line) < 300]
    peer = open_peer()
    for _ in range(2_000):
        event = peer.receive(mutate(rng, messages))
        if isinstance(event, Reply):
            msgspec.json.decode(event.data, type=Answer)
        elif isinstance(event, Request):
            peer.respond(event, EmptyResult())
    assert_ping_is_answered(peer)


def mutate(rng: random.Random, messages: list[bytes]) -> bytes:
    line = bytearray(rng.choice(messages))
    for _ in range(rng.randint(1, 4)):
        position = rng.randint(0, len(line))
        match rng.randrange(4):
            case 0:
                line[position:position] = bytes([rng.randrange(256)])
            case 1:
                del line[position : position + rng.randint(1, 8)]
            case 2:
                line[position : position + 1] = rng.choice(b'{}[]",:\\0eE-u').to_bytes()
            case _:
                other = rng.choice(messages)
                line[position:position] = other[: rng.randint(0, len(other))]
    return bytes(line)
