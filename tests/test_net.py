"""Loopback and public addresses, proxies, and the limit of a body."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.errors import ConnectionFailed
from wharfinger.net import (
    connection_failure,
    is_address,
    is_http_url,
    is_loopback,
    is_public,
    join_headers,
    make_resolver,
    origin_of,
    page_host,
    proxy_for,
    read_limited,
    seconds_to_wait,
    unix_time,
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"), "Connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (OSError("Multiple exceptions"), "Multiple exceptions"),
    ],
)
def test_the_reason_for_a_failed_connection_is_not_its_address(error: OSError, expected: str) -> None:
    assert connection_failure(error) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True),
        ("app.localhost", True), ("localhost.evil.test", False), ("::ffff:127.0.0.1", True),
         ("::1", True), ("[::1]", True),
        ("0.0.0.0", False), ("", False), ("::", False), ("192.168.0.1", False), ("127.evil.test", False),
        ("127.0.0.1.evil.test", False), ("128.0.0.1", False), ("127.0.0.256", False), ("127.0.0.²", False),
    ],
)  # fmt: skip
def test_loopback_names_and_addresses_are_recognized(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.255", True), ("127.0.0.0", True), ("127.0.0", False), ("127.0.0.0.1", False), ("127.0.0.-1", False),
        ("LOCALHOST", True), ("127.256.0.1", False), ("126.0.0.1", False), ("127...1", False),
    ],
)  # fmt: skip
def test_loopback_ipv4_addresses_have_four_octets(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("localhost", False),
        ("", False),
        ("1.2.3.example", False),
        ("1.2.3", True),
        ("2130706433", True),
        ("127.0.0.1.", True),
    ],
)
def test_addresses_are_distinguished_from_names(host: str, expected: bool) -> None:
    assert is_address(host) is expected


NOT_PUBLIC = [
    # IANA IPv4 special-purpose registry: not globally reachable, or deprecated
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.2.1",
    "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "240.0.0.1",
    "255.255.255.255", "224.0.0.1", "239.255.255.255",
    # IANA IPv6 special-purpose registry
    "::", "::1", "64:ff9b:1::1", "64:ff9b:1:ffff::8.8.8.8", "100::1", "100:0:0:1::1", "2001:2::1", "2001:10::1",
    "2001:db8::1", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1", "fe80::1%eth0", "ff02::1", "ff0e::1",
    # deprecated site-local (RFC 3879), and unallocated addresses
    "fec0::1", "feff::1", "4000::1", "e000::1",
    # embedded IPv4: mapped, compatible, translated, NAT64, 6to4, Teredo (server, client)
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1", "::192.168.0.1",
    "::ffff:0:10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
    "2002:a00:1::1", "2002:c0a8:1::1", "2001:0:7f00:1::f7f7:f7f7", "2001:0:808:808::f5ff:fffe",
    # not addresses
    "nonsense", "", "127.1", "0x7f000001", "2130706433", "[::1]", "8.8.8.8/32",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.0.0.1", "128.0.0.1",
    "172.15.0.1", "172.32.0.1", "192.0.0.9", "192.0.0.10", "192.0.1.1", "192.31.196.1", "192.52.193.1", "192.175.48.1",
    "198.17.0.1", "198.20.0.1", "223.255.255.255", "2001:1::1", "2001:1::2", "2001:1::3", "2001:3::1",
    "2001:4:112::1", "2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2620:4f:8000::1", "2a00::1",
    "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "2001:0:808:808::f7f7:f7f7",
]  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_a_special_purpose_address_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_globally_reachable_address_is_public(address: str) -> None:
    assert is_public(address)


def set_proxies(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("scheme", "host", "expected"),
    [
        ("http", "harbour.test", "http://one.test:1"),
        ("https", "harbour.test", "http://two.test:2"),
        ("http", "quay.inner.test", None),
        ("http", "localhost", None),
        ("http", "127.0.0.1", None),
        ("http", "::1", None),
    ],
)
def test_the_proxy_comes_from_the_environment(
    scheme: str, host: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxies(monkeypatch, http_proxy="http://one.test:1", https_proxy="two.test:2", no_proxy=".inner.test")
    assert proxy_for(scheme, host) == expected


def test_a_socks_proxy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_proxies(monkeypatch, all_proxy="socks5://one.test:1")
    with pytest.raises(ConnectionFailed, match="socks5 proxy"):
        proxy_for("http", "harbour.test")


def test_a_resolver_returns_allowed_addresses_only() -> None:
    checked: list[tuple[str, str]] = []

    def refuse(host: str, address: str) -> bool:
        checked.append((host, address))
        return False

    allowed = make_resolver(lambda host, address: address == "127.0.0.1", "")
    refused = make_resolver(refuse, "{host} is not for you")
    assert [row["host"] for row in asyncio.run(allowed.resolve("127.0.0.1", 80))] == ["127.0.0.1"]
    with pytest.raises(OSError, match=r"127\.0\.0\.1 is not for you"):
        asyncio.run(refused.resolve("127.0.0.1", 80))
    assert checked == [("127.0.0.1", "127.0.0.1")]


def test_repeated_headers_are_joined() -> None:
    assert join_headers([("X-A", "1"), ("x-b", "2"), ("x-a", "3")]) == {"x-a": "1, 3", "x-b": "2"}


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_a_body_over_the_limit_is_refused() -> None:
    async def read(*parts: bytes) -> bytes | None:
        return await read_limited(chunks(*parts), 4)

    assert asyncio.run(read(b"ab", b"cd")) == b"abcd"
    assert asyncio.run(read(b"ab", b"cde")) is None
    assert asyncio.run(read()) == b""


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Harbour.Example:443/x", "https://harbour.example"),
        ("http://[::1]:80/", "http://[::1]"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://user@harbour.example/", None),
        ("https://harbour.example:99999/", None),
        ("https:///x", None),
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
        ("https://harbour.example/a b", None),
        ("https://harbour.example/\r\nHost: x", None),
        ("https://hárbour.example/", None),
        ("https://x/" + "y" * 10_000, None),
    ],
)
def test_an_origin_is_normalized_or_refused(url: str, origin: str | None) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://a", True),
        ("https://a/mcp", True),
        ("ftp://a", False),
        ("http:/a", False),
        ("a http://b", False),
        ("", False),
    ],
)
def test_a_url_of_http_has_one_of_its_two_schemes(text: str, expected: bool) -> None:
    assert is_http_url(text) is expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("0", 0.0), ("12", 12.0), ("1.5", 1.5), ("-1", None), ("soon", None),
     ("9" * 9, 999_999_999.0), ("9" * 10, None), ("\u0663", None), (".", None),
     ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0)],
)  # fmt: skip
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert seconds_to_wait(text, 10.0) == seconds


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="needs time.tzset")
def test_a_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The obsolete form of ANSI C (RFC 9110, §5.6.7). A bug: it was in the zone of this machine."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert unix_time("Sun Nov  6 08:49:37 1994") == unix_time("Sun, 06 Nov 1994 08:49:37 GMT") == 784_111_777
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_date_becomes_unix_time() -> None:
    assert unix_time("Fri, 20 Nov 2026 09:30:00 GMT") == 1_795_167_000
    assert unix_time("") is unix_time("soon") is unix_time("Fri, 20 Nov 2026 09:30:00 GMT" + " " * 60) is None


@given(st.text(max_size=100))
def test_any_retry_after_is_read_without_an_error(text: str) -> None:
    seconds = seconds_to_wait(text, 0.0)
    assert seconds is None or 0 <= seconds < 1e12


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://bank.test@evil.test/", "evil.test"),
        ("http://a.test:80/", "a.test"),
        ("HTTPS://A.test", "a.test"),
        ("https://evil.test\\@bank.test/", ""),
        ("javascript:alert(1)", ""),
        ("file:///etc/passwd", ""),
        ("https://", ""),
        ("http://[", ""),
        ("data:text/html,x", ""),
    ],
)
def test_the_host_of_a_page_is_the_one_that_a_browser_goes_to(url: str, host: str) -> None:
    assert page_host(url) == host
