"""How a peer answers every kind of bad message (security: J01 to J41), and that it continues."""

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

SYNTAX, SHAPE, PARAMS = -32700, -32600, -32602
LIMITS = Limits(message=4 * 1024 * 1024, depth=64)

Outcome = int | Literal["served", "ignored"]


class Case(NamedTuple):
    """A message, what the peer does with it, and the id of its answer. `read` is whether the codec accepts it."""

    name: str
    line: bytes
    outcome: Outcome
    id: int | str | None = None
    read: bool = False


def ping(params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + params + b"}"


def with_id(id: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id + b',"method":"ping"}'


def read_of(uri: bytes) -> bytes:
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
    "text behind it": ping(b"{}") + b"x",
    "NUL behind it": ping(b"{}") + b"\x00",
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

WRONG_IDS = {
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
    ("an id that is none", b'{"id":1.5,"method":"ping","params":' + NESTED + b"}", None),
    ("an id of too many characters", b'{"id":"' + b"a" * 257 + b'","method":"ping","params":' + NESTED + b"}", None),
    ("an array", b"[" + NESTED + b"]", None),
]

BLANK = {"nothing": b"", "white space": b"  \t ", "a carriage return": b"\r"}

CASES = [
    *(Case(f"J01 {name}", line, SYNTAX) for name, line in NOT_JSON.items()),
    *(Case(f"J04 {name}", ping(b'{"a":' + value + b"}"), SYNTAX) for name, value in NOT_JSON_IN_PARAMS.items()),
    Case("J04 bad UTF-8 in the method", b'{"jsonrpc":"2.0","id":1,"method":"p\xffng"}', SYNTAX),
    Case("J04 bad UTF-8 in the id", with_id(b'"\xff"'), SYNTAX),
    Case("J04 bad UTF-8 in an unknown member", b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}', SYNTAX),
    # Half a character is not text: it is not read, not repaired, and not passed on.
    Case("J06 lone surrogate in an argument", read_of(b'"a:\\ud800"'), SYNTAX),
    Case("J06 lone surrogate nobody reads", ping(b'{"a":"\\udfff"}'), SYNTAX),
    Case("J06 lone surrogate in the method", b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', SYNTAX),
    Case("J06 lone surrogate in the id", with_id(b'"\\ud800"'), SYNTAX),
    Case("J06 pair of surrogates", ping(b'{"a":"\\ud83d\\ude00"}'), "served", read=True),
    Case("J07 two methods", b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}', SHAPE, 1),
    Case("J07 two methods, one escaped", b'{"jsonrpc":"2.0","id":1,"method":"ping","\\u006dethod":"x"}', SHAPE, 1),
    Case("J07 two ids", b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', SHAPE),
    Case("J07 two params", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}', SHAPE, 1),
    Case("J08 two uris", read_of(b'"a:b","uri":"a:c"'), SHAPE, 1, read=True),
    Case("J08 two uris, one escaped", read_of(b'"a:b","\\u0075ri":"a:c"'), SHAPE, 1),
    Case("J08 two values of one name are no two members", ping(b'{"a":"method","b":"method"}'), "served", read=True),
    Case("J09 Method", b'{"jsonrpc":"2.0","id":1,"Method":"ping"}', SHAPE, 1),
    Case("J09 ID", b'{"jsonrpc":"2.0","ID":1,"method":"ping"}', "ignored", read=True),
    Case("J11 1e400", ping(b'{"a":1e400}'), "served", read=True),
    Case("J12 number of 5,000 digits", ping(b'{"a":' + b"9" * 5000 + b"}"), "served", read=True),
    Case("J12 fraction of 5,000 digits", ping(b'{"a":0.' + b"9" * 5000 + b"}"), "served", read=True),
    *(Case(f"J13 id {name}", with_id(value), SHAPE) for name, value in WRONG_IDS.items()),
    Case("J17 id of 256 characters", with_id(b'"' + b"a" * 256 + b'"'), "served", read=True),
    Case("J20 batch before 2025-03-26 is agreed on", b"[" + ping(b"{}") + b"]", SHAPE),
    Case("J21 empty batch", b"[]", SHAPE),
    *(Case(f"J21 {value!r}", value, SHAPE) for value in (b"null", b"1", b'"ping"', b"true", b"{}")),
    Case("J22 100,000 arrays", DEEP, SHAPE),
    Case("J22 100,000 arrays in params", ping(b'{"a":' + DEEP + b"]" * 100_000 + b"}"), SHAPE, 1),
    *(Case(f"J23 depth {n}", ping(b'{"a":' + b"[" * n + b"]" * n + b"}"), SHAPE, 1) for n in (63, 100, 1000, 3000)),
    *(Case(f"J23 depth {n}", ping(b'{"a":' + b'{"a":' * n + b"1" + b"}" * n + b"}"), SHAPE, 1) for n in (63, 3000)),
    *(Case(f"J23 too deep, {name}", line, SHAPE, id) for name, line, id in TOO_DEEP),
    Case("J23 depth 64", ping(b'{"a":' + b"[" * 62 + b"]" * 62 + b"}"), "served", read=True),
    Case("J23 brackets in a string", ping(b'{"a":"' + b"[{" * 1000 + b'\\"["}'), "served", read=True),
    Case("J24 5 MiB", ping(b'{"a":"' + b"a" * 5 * 1024 * 1024 + b'"}'), SHAPE),
    Case("J26 no jsonrpc", b'{"id":1,"method":"ping"}', SHAPE, 1),
    Case("J26 jsonrpc 1.0", b'{"jsonrpc":"1.0","id":"a","method":"ping"}', SHAPE, "a"),
    Case("J26 jsonrpc a number", b'{"jsonrpc":2.0,"id":1,"method":"ping"}', SHAPE, 1),
    *(
        Case(f"J27 params {value!r}", ping(value), PARAMS, 1, read=True)
        for value in (b"[]", b"[1]", b'"a"', b"5", b"null", b"false")
    ),
    Case("J28 method a number", b'{"jsonrpc":"2.0","id":1,"method":5}', SHAPE, 1),
    Case("J28 method null", b'{"jsonrpc":"2.0","id":1,"method":null}', SHAPE, 1),
    Case("J30 unknown notification", b'{"jsonrpc":"2.0","method":"notifications/none"}', "ignored", read=True),
    Case("J30 request without an id", b'{"jsonrpc":"2.0","method":"ping"}', "ignored", read=True),
    Case("J31 answer to nobody", b'{"jsonrpc":"2.0","id":77,"result":{}}', "ignored", read=True),
    Case("J31 error to nobody", b'{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":""}}', "ignored", read=True),
    Case("J31 error without an id", b'{"jsonrpc":"2.0","error":{"code":1,"message":""}}', "ignored", read=True),
    Case("J32 method and result", b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', SHAPE, 1),
    Case("J32 method and error", b'{"jsonrpc":"2.0","id":1,"method":"ping","error":{}}', SHAPE, 1),
    Case("J32 result and error", b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', SHAPE, 1),
    Case("J32 neither", b'{"jsonrpc":"2.0","id":1}', SHAPE, 1),
    Case("J34 CRLF", ping(b"{}") + b"\r", "served", read=True),
    Case("J35 U+2028 in a string", ping('{"a":"\u2028\u2029\x7f"}'.encode()), "served", read=True),
    Case("J39 __proto__", ping(b'{"__proto__":{"a":1},"constructor":1}'), "served", read=True),
    Case("J40 unknown members", b'{"jsonrpc":"2.0","id":1,"method":"ping","x":{"id":2}}', "served", read=True),
    *(
        Case(f"J40 _meta {value!r}", ping(b'{"_meta":' + value + b"}"), PARAMS, 1, read=True)
        for value in (b"5", b"null", b"[]", b'{"progressToken":{}}', b'{"progressToken":1.5}')
    ),
    Case("J40 token 0", ping(b'{"_meta":{"progressToken":0,"x/y":[null]}}'), "served", read=True),
]


def bare_peer() -> ServerPeer:
    """Return a peer in the middle of a session."""
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


def assert_alive(peer: ServerPeer) -> None:
    request = peer.receive(b'{"jsonrpc":"2.0","id":"alive","method":"ping"}')
    assert isinstance(request, Request)
    assert peer.respond(request, EmptyResult()) == b'{"jsonrpc":"2.0","id":"alive","result":{}}'


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_peer_answers_every_case_and_continues(case: Case) -> None:
    peer = bare_peer()
    began = time.perf_counter()
    event = peer.receive(case.line)
    took = time.perf_counter() - began
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
        assert len(event.data) < 1000, "an answer never repeats what was sent"
    assert took < 1
    assert_alive(peer)


@pytest.mark.parametrize("line", BLANK.values(), ids=BLANK)
def test_empty_input_is_neither_a_message_nor_a_line(line: bytes) -> None:
    """J03: the codec accepts no empty input, since HTTP has a body in every request; a stream ignores an empty line."""
    assert bare_peer().receive(line) is None
    with pytest.raises(ParseError):
        decode(line, LIMITS)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_codec_decodes_a_case_or_reports_the_reason(case: Case) -> None:
    if case.read:
        assert isinstance(decode(case.line, LIMITS), Message)
        return
    with pytest.raises(ProtocolError) as caught:
        decode(case.line, LIMITS)
    assert (caught.value.code, caught.value.id) == (case.outcome, case.id)


def test_blank_lines_between_messages_are_ignored() -> None:
    """J03."""
    stream = b"\n\r\n  \n" + with_id(b"1") + b"\r\n\r\n\t \r\n\n" + with_id(b"2") + b"\n"
    peer = bare_peer()
    events = [peer.receive(line) for line in LineBuffer(LIMITS.message).feed(stream)]
    assert [event.id for event in events if isinstance(event, Request)] == [1, 2]
    assert [event for event in events if isinstance(event, Reply)] == []


def test_second_use_of_an_id_in_flight_is_refused_and_the_first_gets_its_answer() -> None:
    """J18: the refusal has no id, since the id belongs to the first request."""
    peer = bare_peer()
    first, second = peer.receive(ping(b"{}")), peer.receive(ping(b"{}"))
    assert isinstance(first, Request)
    assert isinstance(second, Reply)
    answer = msgspec.json.decode(second.data, type=Answer)
    assert (answer.error.code, answer.id) == (SHAPE, msgspec.UNSET)
    assert peer.respond(first, EmptyResult()) == b'{"jsonrpc":"2.0","id":1,"result":{}}'


def test_the_ids_1_and_text_1_are_different() -> None:
    """J19: each gets its own answer, with its own type."""
    peer = bare_peer()
    number, text = peer.receive(with_id(b"1")), peer.receive(with_id(b'"1"'))
    assert isinstance(number, Request)
    assert isinstance(text, Request)
    assert peer.respond(text, EmptyResult()) == b'{"jsonrpc":"2.0","id":"1","result":{}}'
    assert peer.respond(number, EmptyResult()) == b'{"jsonrpc":"2.0","id":1,"result":{}}'


@pytest.mark.parametrize("id", [b"0", b"-1", b"9007199254740993", b"9223372036854775807", b'""', b'"\xc3\xa9"'])
def test_ids_are_returned_unchanged(id: bytes) -> None:
    peer = bare_peer()
    request = peer.receive(with_id(id))
    assert isinstance(request, Request)
    assert peer.respond(request, EmptyResult()) == b'{"jsonrpc":"2.0","id":' + id + b',"result":{}}'


@pytest.mark.parametrize("digits", [400, 4_299, 4_301, 100_000])
def test_id_of_many_digits_is_served_or_refused(digits: int) -> None:
    """J12 and J17: Python refuses to convert integers of more than 4,300 digits."""
    peer = bare_peer()
    event = peer.receive(with_id(b"9" * digits))
    assert isinstance(event, Request | Reply)
    if isinstance(event, Reply):
        assert len(event.data) < 1000
    assert_alive(peer)


def members_of(count: int) -> bytes:
    return b",".join(b'"m%d":0' % n for n in range(count))


def test_200_000_members_are_decoded_in_bounded_time() -> None:
    """J37; the escape sends it through the slow path too."""
    for params in (b"{" + members_of(200_000) + b"}", b"{" + members_of(200_000) + b',"x":"\\u0041"}'):
        began = time.perf_counter()
        assert isinstance(bare_peer().receive(ping(params)), Request)
        assert time.perf_counter() - began < 5


def test_the_limit_of_members_is_exact_and_the_refusal_has_the_id() -> None:
    """Regression: members were not bounded. Four are in the params, and a colon in a string does not count."""
    spare = LIMITS.members - 4
    for params in (b"{" + members_of(spare) + b"}", b"{" + members_of(spare - 1) + b',"s":"' + b":" * 1000 + b'"}'):
        assert isinstance(bare_peer().receive(ping(params)), Request)
    refused = bare_peer().receive(ping(b"{" + members_of(spare + 1) + b"}"))
    assert isinstance(refused, Reply)
    answer = msgspec.json.decode(refused.data, type=Answer)
    assert (answer.error.code, answer.id) == (SHAPE, 1)
    assert "250000 members" in answer.error.message
    small = Limits(members=8)
    assert isinstance(decode(ping(b"{" + members_of(4) + b"}"), small), Message)
    with pytest.raises(InvalidRequest):
        decode(ping(b"{" + members_of(5) + b"}"), small)
    # What a server answers is a document, and is bounded by its bytes alone.
    answer_of = b'{"jsonrpc":"2.0","id":1,"result":{' + members_of(9) + b"}}"
    assert isinstance(decode(answer_of, small, from_server=True), Message)


@pytest.mark.parametrize("where", ["params", "message", "small objects"])
def test_100_000_duplicates_are_refused_in_bounded_time(where: str) -> None:
    """Regression: the time grew with the square of their number: 20,000 took up to 13 s."""
    twice = members_of(50_000) + b"," + members_of(50_000)
    line = {
        "params": ping(b"{" + twice + b',"x":"\\u0041"}'),
        "message": b'{"jsonrpc":"2.0","id":1,"method":"ping",' + twice + b',"\\u0041":1}',
        "small objects": ping(b'{"x":[' + b'{"a":0,"b":1},' * 100_000 + b'{"a":1,"\\u0061":1}]}'),
    }[where]
    began = time.perf_counter()
    refused = bare_peer().receive(line)
    assert time.perf_counter() - began < 2
    assert isinstance(refused, Reply)
    answer = msgspec.json.decode(refused.data, type=Answer)
    assert (answer.error.code, answer.id) == (SHAPE, 1)


@pytest.mark.parametrize("unit", [b"[]", b"{}", b"0", b"1.5", b'"abc"', b'"\\u0061"', b'{"id":0}', b'{"":[""]}'])
def test_the_slow_path_takes_time_and_memory_in_proportion_to_the_message(unit: bytes) -> None:
    def cost(count: int, end: bytes) -> tuple[float, int]:
        line = ping(b'{"a":[' + (unit + b",") * count + end + b"]}")
        began = time.thread_time()
        bare_peer().receive(line)
        took = time.thread_time() - began
        tracemalloc.start()
        try:
            bare_peer().receive(line)
            return took, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    for end in (b'"\\u0041"', b"[" * 100 + b"]" * 100):
        few, many = 1_000, 100_000
        (first, small), (last, large) = cost(few, end), cost(many, end)
        assert last < 10 * (many / few) * max(first, 0.0005)
        assert large < 3 * (many / few) * max(small, 10_000)


def test_id_is_free_again_after_its_answer() -> None:
    """J38."""
    peer = bare_peer()
    for _ in range(2):
        request = peer.receive(ping(b"{}"))
        assert isinstance(request, Request)
        assert peer.respond(request, EmptyResult()) == b'{"jsonrpc":"2.0","id":1,"result":{}}'


def test_mutated_messages_never_raise_and_every_answer_is_json() -> None:
    """J41."""
    choose = random.Random(41)
    sources = [case.line for case in CASES if len(case.line) < 300]
    peer = bare_peer()
    for _ in range(2_000):
        event = peer.receive(mutated(choose, sources))
        if isinstance(event, Reply):
            msgspec.json.decode(event.data, type=Answer)
        elif isinstance(event, Request):
            peer.respond(event, EmptyResult())
    assert_alive(peer)


def mutated(choose: random.Random, sources: list[bytes]) -> bytes:
    line = bytearray(choose.choice(sources))
    for _ in range(choose.randint(1, 4)):
        place = choose.randint(0, len(line))
        match choose.randrange(4):
            case 0:
                line[place:place] = bytes([choose.randrange(256)])
            case 1:
                del line[place : place + choose.randint(1, 8)]
            case 2:
                line[place : place + 1] = choose.choice(b'{}[]",:\\0eE-u').to_bytes()
            case _:
                other = choose.choice(sources)
                line[place:place] = other[: choose.randint(0, len(other))]
    return bytes(line)
