"""The rules of Streamable HTTP on bare headers and messages: what is refused, with which status, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.errors import HeaderMismatch, InvalidParams, ProtocolError, UnsupportedVersion
from wharfinger.protocol.exchange import Request, open_request
from wharfinger.protocol.http import (
    METHOD,
    NAME,
    SESSION,
    TAKES_EVENTS,
    TAKES_JSON,
    VERSION,
    Doors,
    Refused,
    check_mirrors,
    check_post,
    check_session_version,
    check_stream,
    check_version,
    find_era,
    is_loopback,
    rank,
    read_headers,
    takes,
)
from wharfinger.protocol.jsonrpc import Message, decode, encode
from wharfinger.protocol.limits import Limits

STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
POST = {b"content-type": b"application/json", b"accept": b"application/json, text/event-stream"}


def message(method: str = "resources/read", params: dict[str, Any] | None = None, id: int | None = 1) -> Message:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return decode(encode(body | ({} if id is None else {"id": id})), Limits())


def opened(method: str = "resources/read", **params: Any) -> Request:
    return open_request(message(method, {**params, "_meta": META}), None)


def refused(status: int, check: Any, *arguments: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        check(*arguments)
    assert caught.value.http_status == status
    return caught.value


# --- headers


def test_headers_are_read_by_name() -> None:
    assert read_headers([(b"host", b"a"), (b"accept", b"b")]) == {b"host": b"a", b"accept": b"b"}


def test_list_headers_that_repeat_are_joined() -> None:
    """RFC 9110 §5.3."""
    pairs = [(b"accept", b"a"), (b"accept", b"b"), (b"cookie", b"c"), (b"cookie", b"d")]
    assert read_headers(pairs) == {b"accept": b"a, b", b"cookie": b"c; d"}


@pytest.mark.parametrize("name", [b"host", b"origin", b"authorization", b"content-type", b"content-length"])
def test_header_that_decides_may_not_repeat(name: bytes) -> None:
    """Security H05, A08."""
    refused(400, read_headers, [(name, b"a"), (name, b"a")])


@pytest.mark.parametrize(
    "name", [b"mcp-method", b"mcp-name", b"mcp-protocol-version", b"mcp-session-id", b"mcp-param-x"]
)
def test_routing_header_may_not_repeat(name: bytes) -> None:
    """Security H38: an intermediary may read the other one."""
    assert isinstance(refused(400, read_headers, [(name, b"a"), (b"host", b"h"), (name, b"a")]), HeaderMismatch)


# --- Host and Origin


def knock(doors: Doors, host: str | None, origin: str | None = None) -> int:
    headers = {} if host is None else {b"host": host.encode("latin-1")}
    if origin is not None:
        headers[b"origin"] = origin.encode("latin-1")
    statuses = set()
    for _ in range(2):  # the second look may come from what is remembered
        try:
            doors.check(headers)
            statuses.add(200)
        except Refused as error:
            statuses.add(error.http_status)
    (status,) = statuses
    return status


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]", "[::1]:8000", " localhost:8000 "]
)
def test_loopback_names_are_hosts_on_any_port(host: str) -> None:
    assert knock(Doors("127.0.0.1"), host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "localhost.evil.test",
        "localhostx",
        "127.0.0.1.evil.test",
        "127.0.0.10",
        "127.1",
        "0.0.0.0",
        "localhost.",
        "[::2]",
        "xn--lcalhost-54a",
    ],
)
def test_other_hosts_are_forbidden(host: str) -> None:
    """Security H03, H04, A14: names are compared whole."""
    assert knock(Doors("127.0.0.1"), host) == 403


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "a b",
        "localhost:80:80",
        "localhost:x",
        "localhost:123456",
        "[::1",
        "[::1]x",
        "u@localhost",
        "localhost/x",
        "loc\xe4lhost",
    ],
)
def test_missing_or_malformed_host_is_a_bad_request(host: str | None) -> None:
    """Security H05."""
    assert knock(Doors("127.0.0.1"), host) == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 200),
        ("http://127.0.0.1:8000", 200),
        ("http://localhost:8001", 403),
        ("http://localhost", 403),
        ("http://localhost:80001", 403),
        ("http://localhost:8000.evil.test", 403),
        ("http://localhost.evil.test:8000", 403),
        ("http://evil.test", 403),
        ("file://localhost:8000", 403),
        ("null", 403),
        ("", 403),
        ("http://localhost:8000/x", 403),
        ("http://u@localhost:8000", 403),
    ],
)
def test_page_may_call_its_own_origin_only(origin: str, status: int) -> None:
    """Security H01, H02, H04, H06."""
    assert knock(Doors("127.0.0.1"), "localhost:8000", origin) == status


def test_default_ports_are_understood() -> None:
    doors = Doors(allow_hosts=["wharf.test"])
    assert knock(doors, "wharf.test", "https://wharf.test") == 200
    assert knock(doors, "wharf.test:443", "https://wharf.test") == 200
    assert knock(doors, "wharf.test", "http://wharf.test:8080") == 403


def test_the_literal_bind_address_is_a_host() -> None:
    assert knock(Doors("192.0.2.7"), "192.0.2.7:8000") == 200
    assert knock(Doors("2001:db8::7"), "[2001:db8::7]:8000") == 200


def test_settings_open_doors() -> None:
    doors = Doors(
        allow_hosts=["a.test", "b.test:81"],
        allow_origins=["https://page.test"],
        public_url="https://public.test:8443/base/mcp",
    )
    assert knock(doors, "a.test:1234") == 200
    assert knock(doors, "b.test:81") == 200
    assert knock(doors, "b.test:82") == 403
    assert knock(doors, "public.test") == 200
    assert knock(doors, "localhost", "https://page.test") == 200
    assert knock(doors, "localhost", "https://page.test:444") == 403
    assert knock(doors, "localhost", "https://public.test:8443") == 200


def test_star_allows_every_host_or_origin_but_not_a_malformed_host() -> None:
    assert knock(Doors(allow_hosts=["*"]), "any.test") == 200
    assert knock(Doors(allow_hosts=["*"]), "any.test", "http://other.test") == 403
    assert knock(Doors(allow_hosts=["*"]), "a b") == 400
    assert knock(Doors(allow_origins=["*"]), "localhost", "null") == 200


def test_refusal_names_the_setting_and_repeats_nothing() -> None:
    error = refused(403, Doors().check, {b"host": b"evil.test"})
    assert "--allow-host" in error.message
    assert "evil" not in error.message
    error = refused(403, Doors().check, {b"host": b"localhost", b"origin": b"http://evil.test"})
    assert "--allow-origin" in error.message
    assert "evil" not in error.message


@pytest.mark.parametrize(
    "settings",
    [{"allow_hosts": ["a b"]}, {"allow_origins": ["a.test"]}, {"public_url": "a.test"}, {"allow_hosts": ["https://a"]}],
)
def test_setting_that_cannot_be_right_is_an_error_at_the_start(settings: Any) -> None:
    with pytest.raises(ValueError, match="is not a"):
        Doors(**settings)


def test_remembered_hosts_are_bounded() -> None:
    doors = Doors()
    for port in range(1000):
        knock(doors, f"localhost:{port}", f"http://localhost:{port}")
    assert len(doors._known_hosts) <= 64
    assert len(doors._known_pairs) <= 64


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("[::1]", True),
        ("0.0.0.0", False), ("", False), ("::", False), ("192.168.0.1", False), ("127.evil.test", False),
        ("127.0.0.1.evil.test", False), ("128.0.0.1", False), ("127.0.0.256", False),
    ],
)  # fmt: skip
def test_loopback_addresses_are_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


# --- what a POST must look like


@pytest.mark.parametrize(
    "kind",
    [b"application/json", b"Application/JSON", b"application/json; charset=utf-8", b'application/json;charset="UTF-8"'],
)
def test_json_is_taken(kind: bytes) -> None:
    assert check_post(POST | {b"content-type": kind}, 100) == TAKES_JSON | TAKES_EVENTS


@pytest.mark.parametrize(
    "kind",
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
def test_other_content_types_are_refused(kind: bytes | None) -> None:
    """Security H08, H09, H11: what a web page can send without a preflight must not be served."""
    headers = dict(POST)
    del headers[b"content-type"]
    refused(415, check_post, headers if kind is None else headers | {b"content-type": kind}, 100)


def test_compressed_body_is_refused() -> None:
    """Security H11."""
    refused(415, check_post, POST | {b"content-encoding": b"gzip"}, 100)
    check_post(POST | {b"content-encoding": b"identity"}, 100)


@pytest.mark.parametrize("length", [b"101", b"9" * 30])
def test_too_long_a_body_is_refused_by_its_length_alone(length: bytes) -> None:
    """Security H12."""
    refused(413, check_post, POST | {b"content-length": length}, 100)


def test_contradicting_lengths_are_refused() -> None:
    """Security H14 (RFC 9112 §6.1)."""
    refused(400, check_post, POST | {b"content-length": b"5", b"transfer-encoding": b"chunked"}, 100)
    refused(400, check_post, POST | {b"content-length": b"+5"}, 100)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, 3),
        (b"*/*", 3),
        (b"application/json, text/event-stream", 3),
        (b"application/json;q=0.5,text/event-stream;q=1", 3),
        (b"application/*", TAKES_JSON),
        (b"application/json", TAKES_JSON),
        (b"text/event-stream", TAKES_EVENTS),
        (b"text/*", TAKES_EVENTS),
        (b"application/json, text/event-stream;q=0", TAKES_JSON),
        (b"text/html", 0),
        (b"", 0),
        (b",;q=,;;;", 0),
    ],
)
def test_accept_is_read(accept: bytes | None, expected: int) -> None:
    assert takes(accept) == expected


def test_post_that_does_not_take_json_is_not_acceptable() -> None:
    """Security H10."""
    for accept in (b"text/html", b"text/event-stream", b""):
        refused(406, check_post, POST | {b"accept": accept}, 100)
    refused(406, check_stream, {b"accept": b"application/json"})
    check_stream({})


# --- which era


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
def test_era_of_a_post(headers: dict[bytes, bytes], method: str, params: dict[str, Any], expected: str) -> None:
    """spec 2026-07-28, backward compatibility: `_meta` first, then the session, then an unknown version."""
    assert find_era(headers, message(method, params)) == expected


@pytest.mark.parametrize("headers", [{}, {VERSION: b"2025-11-25"}])
def test_handshake_request_without_a_session_is_refused(headers: dict[bytes, bytes]) -> None:
    """Security H21, L01."""
    assert "initialize" in refused(400, find_era, headers, message("resources/list")).message
    refused(400, find_era, headers, message("initialize", id=None))


def test_version_header_of_a_session() -> None:
    check_session_version({})
    check_session_version({VERSION: b"2025-03-26"})
    refused(400, check_session_version, {VERSION: b"1999-01-01"})
    refused(400, check_session_version, {VERSION: b"2026-07-28"})


# --- headers against body

READ = {VERSION: b"2026-07-28", METHOD: b"resources/read", NAME: b"file:///a"}


def test_headers_like_the_body_pass() -> None:
    check_version(READ)
    check_mirrors(READ, opened(uri="file:///a"))
    check_mirrors({VERSION: b" 2026-07-28", METHOD: b"ping\t"}, opened("ping"))
    check_mirrors(READ | {NAME: b"=?base64?ZmlsZTovLy9h?="}, opened(uri="file:///a"))


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
def test_header_unlike_the_body_is_refused(change: dict[bytes, bytes | None]) -> None:
    """Security H36-H39."""
    headers = {name: value for name, value in (READ | change).items() if value is not None}
    error = refused(400, check_mirrors, headers, opened(uri="file:///a"))
    assert error.code == -32020


def test_name_that_looks_encoded_must_be_encoded() -> None:
    name = "=?base64?eA==?="
    request = opened("tools/call", name=name)
    headers = READ | {METHOD: b"tools/call"}
    refused(400, check_mirrors, headers | {NAME: name.encode()}, request)
    check_mirrors(headers | {NAME: b"=?base64?PT9iYXNlNjQ/ZUE9PT89?="}, request)


def test_missing_version_header_is_refused() -> None:
    assert refused(400, check_version, {}).code == -32020


def test_mismatch_is_told_before_what_is_wrong_in_the_body() -> None:
    unsupported = UnsupportedVersion("2099-01-01", ["2026-07-28"])
    shape = InvalidParams("Invalid params: uri")
    missing = InvalidParams("_meta", http_status=400)
    same = {VERSION: b"2099-01-01", METHOD: b"resources/read"}
    other = {VERSION: b"2026-07-28", METHOD: b"tools/call"}
    assert rank(same, message(), unsupported) is unsupported
    assert rank(other, message(), unsupported).code == -32020
    assert rank(same, message(), shape) is shape
    assert rank(other, message(), shape).code == -32020
    assert rank(other, message(), missing) is missing
