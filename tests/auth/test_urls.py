"""Which addresses are asked, in which order, and which never."""

from __future__ import annotations

import pytest

from wharfinger.auth.urls import (
    covers,
    forbidden_reason,
    is_public,
    origin_of,
    resource_metadata_urls,
    server_metadata_urls,
)

SERVER = "https://harbour.example/api/mcp"
HERE = "http://localhost:8000/mcp"


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
def test_an_origin_has_one_spelling(url: str, origin: str | None) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    ("url", "server", "fault"),
    [
        ("https://as.example/token", SERVER, None),
        ("http://as.example/token", SERVER, "not https"),
        ("http://127.0.0.1:9/token", SERVER, "on this machine"),
        ("http://localhost:9/token", SERVER, "on this machine"),
        ("http://[::1]/token", SERVER, "on this machine"),
        ("http://[::ffff:127.0.0.1]/token", SERVER, "on this machine"),
        ("https://10.0.0.1/token", SERVER, "private"),
        ("https://169.254.169.254/latest", SERVER, "private"),
        ("https://[fd00::1]/token", SERVER, "private"),
        ("https://[2002:0a00:0001::]/token", SERVER, "private"),
        ("https://10.0.0.1/token", "https://10.0.0.1/mcp", None),
        ("https://8.8.8.8/token", SERVER, None),
        ("javascript:alert(1)", SERVER, "no http"),
        ("https://as.example/token#x", SERVER, "fragment"),
        ("http://127.0.0.1:9/token", HERE, None),
        ("http://as.example/token", HERE, "not https"),
        ("https://as.example/token", HERE, None),
    ],
)
def test_an_address_is_asked_only_where_a_server_may_send_us(url: str, server: str, fault: str | None) -> None:
    found = forbidden_reason(url, server)
    assert found is None if fault is None else found is not None and fault in found


NOT_PUBLIC = [
    # IANA IPv4 special-purpose registry: not globally reachable, or deprecated
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.2.1",
    "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "240.0.0.1",
    "255.255.255.255", "224.0.0.1", "239.255.255.255",
    # IANA IPv6 special-purpose registry
    "::", "::1", "64:ff9b:1::1", "64:ff9b:1:ffff::8.8.8.8", "100::1", "100:0:0:1::1", "2001:2::1", "2001:10::1",
    "2001:db8::1", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1", "fe80::1%eth0", "ff02::1", "ff0e::1",
    # deprecated site-local (RFC 3879), and what nobody was given
    "fec0::1", "feff::1", "4000::1", "e000::1",
    # IPv4 inside: mapped, compatible, translated, NAT64, 6to4, Teredo (its server, its client)
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1", "::192.168.0.1",
    "::ffff:0:10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
    "2002:a00:1::1", "2002:c0a8:1::1", "2001:0:7f00:1::f7f7:f7f7", "2001:0:808:808::f5ff:fffe",
    # no addresses
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
def test_what_is_not_of_the_internet_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


def test_the_servers_metadata_is_looked_for_in_this_order() -> None:
    known = "https://harbour.example/.well-known/oauth-protected-resource"
    assert resource_metadata_urls(SERVER, "https://harbour.example/prm") == [
        "https://harbour.example/prm",
        f"{known}/api/mcp",
        known,
    ]
    assert resource_metadata_urls("https://harbour.example", None) == [known]
    assert resource_metadata_urls("https://harbour.example/", f"{known}") == [known]


@pytest.mark.parametrize(
    "named", ["https://evil.example/prm", "http://harbour.example/prm", "https://harbour.example:444/", "x"]
)
def test_a_header_that_leads_elsewhere_is_not_followed(named: str) -> None:
    assert named not in resource_metadata_urls(SERVER, named)


def test_the_authorization_servers_metadata_is_looked_for_in_this_order() -> None:
    assert server_metadata_urls("https://as.example/one/") == [
        "https://as.example/.well-known/oauth-authorization-server/one",
        "https://as.example/.well-known/openid-configuration/one",
        "https://as.example/one/.well-known/openid-configuration",
    ]
    assert server_metadata_urls("https://as.example") == [
        "https://as.example/.well-known/oauth-authorization-server",
        "https://as.example/.well-known/openid-configuration",
    ]
    assert server_metadata_urls("https://as.example/?x") == []


@pytest.mark.parametrize(
    ("resource", "covered"),
    [
        ("https://harbour.example/api/mcp", True),
        ("https://HARBOUR.example:443/api/mcp/", True),
        ("https://harbour.example/api", True),
        ("https://harbour.example", True),
        ("https://harbour.example/", True),
        ("https://harbour.example/api/mcp/more", False),
        ("https://harbour.example/ap", False),
        ("https://harbour.example/other", False),
        ("http://harbour.example/api/mcp", False),
        ("https://harbour.example.evil/api/mcp", False),
        ("https://harbour.example/api/mcp#x", False),
        ("urn:harbour", False),
    ],
)
def test_a_resource_covers_what_is_under_it_on_its_origin(resource: str, covered: bool) -> None:
    assert covers(resource, SERVER) is covered
