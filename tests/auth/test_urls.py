"""The URLs that a sign-in may request, and the order of the metadata URLs."""

from __future__ import annotations

import pytest

from wharfinger.auth.urls import (
    auth_server_metadata_urls,
    covers,
    forbidden_reason,
    resource_metadata_urls,
)

SERVER = "https://harbour.example/api/mcp"
LOCAL_SERVER = "http://localhost:8000/mcp"


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
        ("javascript:alert(1)", SERVER, "not an http"),
        ("https://as.example/token#x", SERVER, "fragment"),
        ("http://127.0.0.1:9/token", LOCAL_SERVER, None),
        ("http://as.example/token", LOCAL_SERVER, "not https"),
        ("https://as.example/token", LOCAL_SERVER, None),
    ],
)
def test_a_server_may_refer_only_to_public_https_urls_or_its_own_host(url: str, server: str, fault: str | None) -> None:
    reason = forbidden_reason(url, server)
    assert reason is None if fault is None else reason is not None and fault in reason


def test_the_metadata_url_of_the_challenge_precedes_the_well_known_urls() -> None:
    metadata_url = "https://harbour.example/.well-known/oauth-protected-resource"
    assert resource_metadata_urls(SERVER, "https://harbour.example/prm") == [
        "https://harbour.example/prm",
        f"{metadata_url}/api/mcp",
        metadata_url,
    ]
    assert resource_metadata_urls("https://harbour.example", None) == [metadata_url]
    assert resource_metadata_urls("https://harbour.example/", metadata_url) == [metadata_url]


@pytest.mark.parametrize(
    "url", ["https://evil.example/prm", "http://harbour.example/prm", "https://harbour.example:444/", "x"]
)
def test_a_metadata_url_on_another_origin_is_not_followed(url: str) -> None:
    assert url not in resource_metadata_urls(SERVER, url)


def test_the_oauth_metadata_url_precedes_the_openid_urls() -> None:
    assert auth_server_metadata_urls("https://as.example/one/") == [
        "https://as.example/.well-known/oauth-authorization-server/one",
        "https://as.example/.well-known/openid-configuration/one",
        "https://as.example/one/.well-known/openid-configuration",
    ]
    assert auth_server_metadata_urls("https://as.example") == [
        "https://as.example/.well-known/oauth-authorization-server",
        "https://as.example/.well-known/openid-configuration",
    ]
    assert auth_server_metadata_urls("https://as.example/?x") == []


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
def test_a_resource_covers_urls_below_it_on_its_origin(resource: str, covered: bool) -> None:
    assert covers(resource, SERVER) is covered


@pytest.mark.parametrize(
    ("query", "covered"), [("", True), ("?project=1", True), ("?project=2", False), ("?project=1#x", False)]
)
def test_a_resource_covers_a_url_with_the_same_query_or_without_one(query: str, covered: bool) -> None:
    """A bug: metadata with exactly the server's URL was refused if that had a query."""
    assert covers(SERVER + query, f"{SERVER}?project=1") is covered
