"""The rules of Streamable HTTP for headers and messages, and the status and message of each refusal."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec import Raw

from wharfinger.errors import HeaderMismatch, InvalidParams, ProtocolError, UnsupportedVersion
from wharfinger.protocol.http.rules import (
    ACCEPTS_EVENTS,
    ACCEPTS_JSON,
    METHOD,
    NAME,
    SESSION,
    VERSION,
    HttpRefusal,
    accepted_types,
    check_post,
    check_session_version,
    check_standard_headers,
    check_stream,
    check_version,
    kind_of_post,
    prefer_header_error,
    read_headers,
)
from wharfinger.protocol.jsonrpc import Message, decode, encode
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import Request, open_request

STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
POST_HEADERS = {b"content-type": b"application/json", b"accept": b"application/json, text/event-stream"}


def message(method: str = "resources/read", params: dict[str, Any] | None = None, id: int | None = 1) -> Message:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return decode(encode(body | ({} if id is None else {"id": id})), Limits())


def stateless_request(method: str = "resources/read", **params: Any) -> Request:
    return open_request(message(method, {**params, "_meta": META}), None)


def refusal_of(status: int, check: Any, *arguments: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        check(*arguments)
    assert caught.value.http_status == status
    return caught.value


# --- headers


def test_headers_are_read_by_name() -> None:
    assert read_headers([(b"host", b"a"), (b"accept", b"b")]) == {b"host": b"a", b"accept": b"b"}


def test_repeated_list_headers_are_joined() -> None:
    """RFC 9110 §5.3."""
    pairs = [(b"accept", b"a"), (b"accept", b"b"), (b"cookie", b"c"), (b"cookie", b"d")]
    assert read_headers(pairs) == {b"accept": b"a, b", b"cookie": b"c; d"}


@pytest.mark.parametrize("name", [b"host", b"origin", b"authorization", b"content-type", b"content-length"])
def test_a_header_that_must_be_unique_may_not_repeat(name: bytes) -> None:
    """Security H05, A08."""
    refusal_of(400, read_headers, [(name, b"a"), (name, b"a")])


@pytest.mark.parametrize(
    "name", [b"mcp-method", b"mcp-name", b"mcp-protocol-version", b"mcp-session-id", b"mcp-param-x"]
)
def test_a_header_that_proxies_route_by_may_not_repeat(name: bytes) -> None:
    """Security H38: an intermediary may read one of them, and the server another."""
    assert isinstance(refusal_of(400, read_headers, [(name, b"a"), (b"host", b"h"), (name, b"a")]), HeaderMismatch)


# --- the headers of a POST


@pytest.mark.parametrize(
    "content_type",
    [b"application/json", b"Application/JSON", b"application/json; charset=utf-8", b'application/json;charset="UTF-8"'],
)
def test_json_content_types_are_accepted(content_type: bytes) -> None:
    assert check_post(POST_HEADERS | {b"content-type": content_type}, 100) == ACCEPTS_JSON | ACCEPTS_EVENTS


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        b"",
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data",
        b"application/jsonp",
        b"application/json-seq",
        b"application/json; charset=utf-16",
        b"application/json, text/plain",
    ],
)
def test_other_content_types_are_refused(content_type: bytes | None) -> None:
    """Security H08, H09, H11: a web page can send some of them without a preflight request."""
    headers = dict(POST_HEADERS)
    del headers[b"content-type"]
    refusal_of(415, check_post, headers if content_type is None else headers | {b"content-type": content_type}, 100)


def test_compressed_body_is_refused() -> None:
    """Security H11."""
    refusal_of(415, check_post, POST_HEADERS | {b"content-encoding": b"gzip"}, 100)
    check_post(POST_HEADERS | {b"content-encoding": b"identity"}, 100)


@pytest.mark.parametrize("length", [b"101", b"9" * 30])
def test_a_too_large_body_is_refused_by_its_content_length(length: bytes) -> None:
    """Security H12."""
    refusal_of(413, check_post, POST_HEADERS | {b"content-length": length}, 100)


def test_contradicting_or_malformed_lengths_are_refused() -> None:
    """Security H14 (RFC 9112 §6.1)."""
    refusal_of(400, check_post, POST_HEADERS | {b"content-length": b"5", b"transfer-encoding": b"chunked"}, 100)
    refusal_of(400, check_post, POST_HEADERS | {b"content-length": b"+5"}, 100)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, 3),
        (b"*/*", 3),
        (b"application/json, text/event-stream", 3),
        (b"application/json;q=0.5,text/event-stream;q=1", 3),
        (b"application/*", ACCEPTS_JSON),
        (b"application/json", ACCEPTS_JSON),
        (b"text/event-stream", ACCEPTS_EVENTS),
        (b"text/*", ACCEPTS_EVENTS),
        (b"application/json, text/event-stream;q=0", ACCEPTS_JSON),
        (b"text/event-stream;q=0, */*", ACCEPTS_JSON),
        (b"*/*, text/*;q=0", ACCEPTS_JSON),
        (b"application/*;q=0, application/json, text/*", 3),
        (b"*/*;q=0, application/json", ACCEPTS_JSON),
        (b"text/html", 0),
        (b"", 0),
        (b",;q=,;;;", 0),
    ],
)
def test_the_accepted_types_are_read_from_accept(accept: bytes | None, expected: int) -> None:
    assert accepted_types(accept) == expected


def test_a_request_that_does_not_accept_the_response_type_is_refused() -> None:
    """Security H10."""
    for accept in (b"text/html", b"text/event-stream", b""):
        refusal_of(406, check_post, POST_HEADERS | {b"accept": accept}, 100)
    refusal_of(406, check_stream, {b"accept": b"application/json"})
    check_stream({})


# --- the era of a POST


@pytest.mark.parametrize(
    ("headers", "method", "params", "expected"),
    [
        ({VERSION: b"2026-07-28"}, "resources/list", {}, "stateless"),
        ({VERSION: b"2026-07-28"}, "resources/list", {"_meta": META}, "stateless"),
        ({}, "resources/list", {"_meta": META}, "stateless"),
        ({VERSION: b"2025-11-25"}, "initialize", {"_meta": META}, "stateless"),
        ({SESSION: b"s"}, "resources/list", {"_meta": META}, "stateless"),
        ({VERSION: b"1999-01-01"}, "resources/list", {}, "stateless"),
        ({VERSION: b"1999-01-01"}, "initialize", {}, "stateless"),
        ({SESSION: b"s"}, "resources/list", {}, "session"),
        ({SESSION: b"s", VERSION: b"1999-01-01"}, "resources/list", {}, "session"),
        ({SESSION: b"s"}, "initialize", {}, "session"),
        ({}, "initialize", {}, "opening"),
        ({VERSION: b"2025-06-18"}, "initialize", {}, "opening"),
        ({SESSION: b"s"}, "x", {"uri": "io.modelcontextprotocol/protocolVersion"}, "session"),
        (
            {SESSION: b"s"},
            "x",
            {"_meta": {"progressToken": 1}, "a": {"io.modelcontextprotocol/protocolVersion": 1}},
            "session",
        ),
        ({SESSION: b"s"}, "x", {"_meta": None, "a": "protocolVersion"}, "session"),
    ],
)
def test_the_kind_of_a_post_follows_its_meta_then_its_session_then_its_version(
    headers: dict[bytes, bytes], method: str, params: dict[str, Any], expected: str
) -> None:
    """spec 2026-07-28, backward compatibility: `_meta` first, then the session, then an unknown version."""
    assert kind_of_post(headers, message(method, params)) == expected


@pytest.mark.parametrize("headers", [{}, {VERSION: b"2025-11-25"}])
def test_handshake_request_without_a_session_is_refused(headers: dict[bytes, bytes]) -> None:
    """Security H21, L01."""
    assert "initialize" in refusal_of(400, kind_of_post, headers, message("resources/list")).message
    refusal_of(400, kind_of_post, headers, message("initialize", id=None))


def test_the_version_header_of_a_session_is_a_handshake_revision() -> None:
    check_session_version({})
    check_session_version({VERSION: b"2025-03-26"})
    refusal_of(400, check_session_version, {VERSION: b"1999-01-01"})
    refusal_of(400, check_session_version, {VERSION: b"2026-07-28"})


# --- headers that repeat members of the body

READ = {VERSION: b"2026-07-28", METHOD: b"resources/read", NAME: b"file:///a"}


def test_headers_that_match_the_body_are_accepted() -> None:
    check_version(READ)
    check_standard_headers(READ, stateless_request(uri="file:///a"))
    check_standard_headers({VERSION: b" 2026-07-28", METHOD: b"ping\t"}, stateless_request("ping"))
    check_standard_headers(READ | {NAME: b"=?base64?ZmlsZTovLy9h?="}, stateless_request(uri="file:///a"))


@pytest.mark.parametrize(
    "change",
    [
        {VERSION: b"2025-11-25"},
        {VERSION: None},
        {METHOD: b"resources/list"},
        {METHOD: b"Resources/Read"},
        {METHOD: None},
        {NAME: b"file:///b"},
        {NAME: b"FILE:///a"},
        {NAME: b""},
        {NAME: None},
        {NAME: b"=?base64?ZmlsZTovLy9i?="},
        {NAME: b"=?base64?ZmlsZTovLy9h"},
        {NAME: b"=?base64?ZmlsZT!vLy9h?="},
    ],
)
def test_a_header_that_differs_from_the_body_or_is_missing_is_refused(change: dict[bytes, bytes | None]) -> None:
    """Security H36-H39."""
    headers = {name: value for name, value in (READ | change).items() if value is not None}
    error = refusal_of(400, check_standard_headers, headers, stateless_request(uri="file:///a"))
    assert error.code == -32020


def test_name_that_looks_encoded_must_be_encoded() -> None:
    name = "=?base64?eA==?="
    request = stateless_request("tools/call", name=name)
    headers = READ | {METHOD: b"tools/call"}
    refusal_of(400, check_standard_headers, headers | {NAME: name.encode()}, request)
    check_standard_headers(headers | {NAME: b"=?base64?PT9iYXNlNjQ/ZUE9PT89?="}, request)


def test_missing_version_header_is_refused() -> None:
    assert refusal_of(400, check_version, {}).code == -32020


def test_a_header_mismatch_is_reported_before_an_error_in_the_body() -> None:
    unsupported = UnsupportedVersion("2099-01-01", ["2026-07-28"])
    invalid_uri = InvalidParams("Invalid params: uri")
    missing_meta = InvalidParams("_meta", http_status=400)
    matching = {VERSION: b"2099-01-01", METHOD: b"resources/read"}
    differing = {VERSION: b"2026-07-28", METHOD: b"tools/call"}
    assert prefer_header_error(matching, message(), unsupported) is unsupported
    assert prefer_header_error(differing, message(), unsupported).code == -32020
    assert prefer_header_error(matching, message(), invalid_uri) is invalid_uri
    assert prefer_header_error(differing, message(), invalid_uri).code == -32020
    assert prefer_header_error(differing, message(), missing_meta) is missing_meta


def test_many_headers_of_one_name_are_joined_in_linear_time() -> None:
    """Joining each value to all those before it would take quadratic time."""
    pairs = [(b"x-many", b"value")] * 100_000
    began = time.process_time()
    assert len(read_headers(pairs)[b"x-many"]) == 7 * len(pairs) - 2
    assert time.process_time() - began < 1


# --- bounds


def test_accept_is_read_up_to_4096_bytes() -> None:
    for size, expected in ((4096, ACCEPTS_JSON), (4097, 0)):
        accept = b"text/html," + b" " * (size - 26) + b"application/json"
        assert len(accept) == size
        assert accepted_types(accept) == expected


def test_accepted_types_are_a_bit_mask() -> None:
    assert (accepted_types(b"application/json"), accepted_types(b"text/event-stream"), accepted_types(None)) == (
        1,
        2,
        3,
    )


@pytest.mark.parametrize(
    ("parameter", "accepted"), [(b"q=0", 0), (b"q=0.000", 0), (b"Q=0", 0), (b"q=0.001", 1), (b"x=0", 1), (b"q=1", 1)]
)
def test_a_quality_of_zero_refuses_a_type(parameter: bytes, accepted: int) -> None:
    assert accepted_types(b"application/json; " + parameter) == accepted


@pytest.mark.parametrize(
    ("length", "limit", "fits"),
    [
        (b"100", 100, True),
        (b"101", 100, False),
        (b"0", 0, True),
        (b"9" * 18, 10**18, True),
        (b"1" + b"0" * 18, 10**19, False),
        (b"0" * 15 + b"100", 100, True),
    ],
)
def test_length_of_a_body_is_bounded(length: bytes, limit: int, fits: bool) -> None:
    headers = POST_HEADERS | {b"content-length": length}
    if fits:
        assert check_post(headers, limit) == 3
    else:
        assert str(limit) in refusal_of(413, check_post, headers, limit).message


@pytest.mark.parametrize("length", [b"", b"-1", b"1.0", b"0x1", b" 1"])
def test_length_that_is_not_a_number_is_refused(length: bytes) -> None:
    refusal_of(400, check_post, POST_HEADERS | {b"content-length": length}, 100)


def test_a_request_without_params_has_no_version_in_meta() -> None:
    bare = Message("2.0", 1, "initialize")
    assert kind_of_post({}, bare) == "opening"
    assert kind_of_post({SESSION: b"s"}, bare) == "session"


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        (b'{"_meta":{"io.modelcontextprotocol/protocolVersion":null}}', "stateless"),
        (b'{"_meta":{"io.modelcontextprotocol/protocolVersion":5}}', "stateless"),
        (b'{"_meta":{"io.modelcontextprotocol/protocol\\u0056ersion":"2026-07-28"}}', "stateless"),
        (b'{"_meta":null,"protocolVersion":1}', "session"),
        (b'{"_meta":5,"protocolVersion":1}', "session"),
        (b'{"protocolVersion":1}', "session"),
        (b'{"_meta":{},"protocolVersion":1}', "session"),
    ],
)
def test_a_version_in_meta_takes_precedence_even_if_it_is_invalid(params: bytes, kind: str) -> None:
    assert kind_of_post({SESSION: b"s"}, Message("2.0", 1, "a/b", Raw(params))) == kind


def test_a_refusal_has_response_headers() -> None:
    error = refusal_of(415, check_post, POST_HEADERS | {b"content-encoding": b"gzip"}, 100)
    assert isinstance(error, HttpRefusal)
    assert error.headers == ((b"connection", b"close"), (b"accept-encoding", b"identity"))
    assert error.message == str(error) == "The body must not be compressed."
    assert HttpRefusal(401, "no").headers == ()


@pytest.mark.parametrize(
    "name", [b"last-event-id", b"content-encoding", b"transfer-encoding", b"content-type", b"host", b"origin"]
)
def test_repeating_a_header_that_must_be_unique_closes_the_connection(name: bytes) -> None:
    error = refusal_of(400, read_headers, [(b"a", b"b"), (name, b"x"), (name, b"y")])
    assert isinstance(error, HttpRefusal)
    assert error.headers == ((b"connection", b"close"),)
    assert name.decode() in error.message


def test_error_of_a_message_without_a_method_is_reported_unchanged() -> None:
    invalid_uri = InvalidParams("Invalid params: uri")
    assert prefer_header_error({}, Message("2.0", 1), invalid_uri) is invalid_uri
    assert prefer_header_error({}, message(), invalid_uri).code == -32020
    unsupported = UnsupportedVersion("2099-01-01", ["2026-07-28"])
    assert prefer_header_error({VERSION: b" 2099-01-01 "}, message(), unsupported) is unsupported
    assert prefer_header_error({}, message(), unsupported).code == -32020
