"""The headers Host and Origin: names are compared as a whole, and a refusal names the setting that would allow it."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.protocol.http.host_origin import HostOriginPolicy
from wharfinger.protocol.http.rules import HttpRefusal


def refusal_of(status: int, headers: dict[bytes, bytes]) -> HttpRefusal:
    with pytest.raises(HttpRefusal) as caught:
        HostOriginPolicy().check(headers)
    assert caught.value.http_status == status
    return caught.value


def status_for(policy: HostOriginPolicy, host: str | None, origin: str | None = None) -> int:
    headers = {} if host is None else {b"host": host.encode("latin-1")}
    if origin is not None:
        headers[b"origin"] = origin.encode("latin-1")
    statuses = set()
    for _ in range(2):  # the second answer may come from the cache
        try:
            policy.check(headers)
            statuses.add(200)
        except HttpRefusal as error:
            statuses.add(error.http_status)
    (status,) = statuses
    return status


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]", "[::1]:8000", " localhost:8000 "]
)
def test_loopback_names_are_accepted_on_any_port(host: str) -> None:
    assert status_for(HostOriginPolicy("127.0.0.1"), host) == 200


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
    """Security H03, H04, A14: names are compared as a whole."""
    assert status_for(HostOriginPolicy("127.0.0.1"), host) == 403


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
    assert status_for(HostOriginPolicy("127.0.0.1"), host) == 400


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
def test_a_page_may_call_only_its_own_origin(origin: str, status: int) -> None:
    """Security H01, H02, H04, H06."""
    assert status_for(HostOriginPolicy("127.0.0.1"), "localhost:8000", origin) == status


def test_a_missing_port_is_the_default_port_of_the_scheme() -> None:
    policy = HostOriginPolicy(allow_hosts=["wharf.test"])
    assert status_for(policy, "wharf.test", "https://wharf.test") == 200
    assert status_for(policy, "wharf.test:443", "https://wharf.test") == 200
    assert status_for(policy, "wharf.test", "http://wharf.test:8080") == 403


def test_the_bind_address_is_an_accepted_host() -> None:
    assert status_for(HostOriginPolicy("192.0.2.7"), "192.0.2.7:8000") == 200
    assert status_for(HostOriginPolicy("2001:db8::7"), "[2001:db8::7]:8000") == 200


def test_settings_allow_hosts_and_origins() -> None:
    policy = HostOriginPolicy(
        allow_hosts=["a.test", "b.test:81"],
        allow_origins=["https://page.test"],
        public_url="https://public.test:8443/base/mcp",
    )
    assert status_for(policy, "a.test:1234") == 200
    assert status_for(policy, "b.test:81") == 200
    assert status_for(policy, "b.test:82") == 403
    assert status_for(policy, "public.test") == 200
    assert status_for(policy, "localhost", "https://page.test") == 200
    assert status_for(policy, "localhost", "https://page.test:444") == 403
    assert status_for(policy, "localhost", "https://public.test:8443") == 200


@pytest.mark.parametrize("port", [80, 443])
def test_an_allowed_host_with_a_default_port_is_also_allowed_without_it(port: int) -> None:
    """Browsers leave out the default port in the Host header (RFC 9110 §7.2, RFC 3986 §6.2.3)."""
    policy = HostOriginPolicy(allow_hosts=[f"wharf.test:{port}"])
    assert status_for(policy, f"wharf.test:{port}") == 200
    assert status_for(policy, "wharf.test") == 200
    assert status_for(policy, f"wharf.test:{port + 1}") == 403
    assert status_for(policy, "other.test") == 403
    assert status_for(HostOriginPolicy(allow_hosts=[f"wharf.test:{port + 1}"]), "wharf.test") == 403


def test_star_allows_every_host_or_origin_but_not_a_malformed_host() -> None:
    assert status_for(HostOriginPolicy(allow_hosts=["*"]), "any.test") == 200
    assert status_for(HostOriginPolicy(allow_hosts=["*"]), "any.test", "http://other.test") == 403
    assert status_for(HostOriginPolicy(allow_hosts=["*"]), "a b") == 400
    assert status_for(HostOriginPolicy(allow_origins=["*"]), "localhost", "null") == 200


def test_a_refusal_names_the_setting_but_not_the_received_value() -> None:
    error = refusal_of(403, {b"host": b"evil.test"})
    assert "--allow-host" in error.message
    assert "evil" not in error.message
    error = refusal_of(403, {b"host": b"localhost", b"origin": b"http://evil.test"})
    assert "--allow-origin" in error.message
    assert "evil" not in error.message


@pytest.mark.parametrize(
    "settings",
    [{"allow_hosts": ["a b"]}, {"allow_origins": ["a.test"]}, {"public_url": "a.test"}, {"allow_hosts": ["https://a"]}],
)
def test_an_invalid_setting_raises_value_error(settings: Any) -> None:
    with pytest.raises(ValueError, match="is not a"):
        HostOriginPolicy(**settings)


def test_cached_hosts_and_origins_are_bounded() -> None:
    policy = HostOriginPolicy()
    for port in range(1000):
        status_for(policy, f"localhost:{port}", f"http://localhost:{port}")
    assert len(policy._known_hosts) <= 64
    assert len(policy._known_pairs) <= 64


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("[0123456789abcdef:.]", 200),
        ("[::1]:", 200),
        ("[::1]:12345", 200),
        ("[::1]:123456", 400),
        ("[::1]:8x", 400),
        ("[::1]8", 400),
        ("[x::1]", 400),
        ("[:x:1]", 400),
        ("[::x]", 400),
        ("[:x]", 400),
        ("[::1", 400),
        ("a.test:", 200),
        ("a.test:12345", 200),
        ("a.test:123456", 400),
        ("a.test:²", 400),
        ("a_b-c.test", 200),
        (":80", 400),
    ],
)
def test_the_syntax_of_a_host_is_checked_even_if_every_host_is_allowed(host: str, status: int) -> None:
    assert status_for(HostOriginPolicy(allow_hosts=["*"]), host) == status


def test_the_bind_address_may_have_brackets() -> None:
    for bind in ("2001:db8::7", "[2001:db8::7]"):
        assert status_for(HostOriginPolicy(bind), "[2001:db8::7]:8000") == 200
    with pytest.raises(ValueError, match="is not a host"):
        HostOriginPolicy("[::1")


def test_port_of_a_bracketed_host_is_compared() -> None:
    policy = HostOriginPolicy(allow_hosts=["[2001:db8::7]:81"])
    assert status_for(policy, "[2001:db8::7]:81") == 200
    assert status_for(policy, "[2001:db8::7]:82") == 403
    assert status_for(policy, "[2001:db8::7]") == 403


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("wharf.test:80", "http://wharf.test", 200),
        ("wharf.test", "http://wharf.test:80", 200),
        ("wharf.test:81", "http://wharf.test", 403),
        ("wharf.test", "http://wharf.test:81", 403),
        ("wharf.test:443", "https://wharf.test", 200),
        ("wharf.test", "https://wharf.test:443", 200),
        ("wharf.test:444", "https://wharf.test", 403),
        ("wharf.test", "https://wharf.test:444", 403),
        ("wharf.test:0", "app://wharf.test", 403),
        ("wharf.test", "app://wharf.test", 403),
        ("localhost", "http://wharf.test", 403),
        ("wharf.test", "http://localhost", 403),
        ("127.0.0.1:8000", "http://[::1]:8000", 200),
        ("wharf.test", "ht tp://wharf.test", 403),
        ("wharf.test", "http:wharf.test", 403),
        ("wharf.test", "://wharf.test", 403),
    ],
)
def test_an_origin_is_allowed_if_its_name_and_port_equal_those_of_the_host(host: str, origin: str, status: int) -> None:
    """A missing port is the default port of the scheme."""
    assert status_for(HostOriginPolicy(allow_hosts=["wharf.test"]), host, origin) == status


def test_origin_of_a_scheme_without_a_known_port_is_compared_literally() -> None:
    policy = HostOriginPolicy(allow_origins=["vscode-webview+x.y://page/"])
    assert status_for(policy, "localhost", "vscode-webview+x.y://page") == 200
    assert status_for(policy, "localhost", "vscode-webview+x.y://page:1") == 403
    assert status_for(policy, "localhost", "http://page") == 403


def test_responses_are_shared_only_with_the_allowed_origins() -> None:
    policy = HostOriginPolicy(allow_origins=["https://page.test"])
    assert policy.allowed_origin({b"origin": b" https://page.test\t"}) == b"https://page.test"
    assert policy.allowed_origin({b"origin": b"http://localhost"}) == b""
    assert policy.allowed_origin({b"origin": b"null"}) == b""
    assert policy.allowed_origin({}) == b""
    assert HostOriginPolicy(allow_origins=["*"]).allowed_origin({}) == b"*"


@pytest.mark.parametrize(
    ("host", "origin", "value"),
    [
        (b"127.0.0.1:8000", b"http://localhost:8000", b"http://localhost:8000"),
        (b"localhost:8000", b"http://[::1]:8000", b"http://[::1]:8000"),
        (b"LOCALHOST:8000", b"http://localhost:8000", b""),
        (b"127.0.0.1:8000", b"http://localhost:8001", b""),
        (b"wharf.test", b"http://wharf.test", b""),
    ],
)
def test_responses_are_shared_with_the_other_loopback_names_of_the_server(
    host: bytes, origin: bytes, value: bytes
) -> None:
    """A browser takes `localhost` and `127.0.0.1` for two origins, although `check` lets the page call."""
    assert HostOriginPolicy().allowed_origin({b"host": host, b"origin": origin}) == value


def test_the_first_64_accepted_values_are_cached_and_refused_ones_are_not() -> None:
    policy = HostOriginPolicy()
    for port in range(65):
        status_for(policy, f"localhost:{port}", f"http://localhost:{port}")
        status_for(policy, f"evil.test:{port}")
        status_for(policy, "localhost", f"http://evil.test:{port}")
        status_for(policy, "localhost")
    assert policy._known_hosts == {b"localhost", *(b"localhost:%d" % port for port in range(63))}
    pairs = {(b"localhost:%d" % port, b"http://localhost:%d" % port) for port in range(64)}
    assert policy._known_pairs == pairs
    assert status_for(policy, "localhost:64", "http://localhost:64") == 200


def test_a_cached_origin_is_allowed_for_its_own_host_only() -> None:
    policy = HostOriginPolicy()
    assert status_for(policy, "localhost:1", "http://localhost:1") == 200
    assert status_for(policy, "localhost:2", "http://localhost:1") == 403
