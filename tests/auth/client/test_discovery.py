"""Discovery of the authorization server of an MCP server, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from wharfinger.auth.client.challenge import Challenge
from wharfinger.auth.client.discovery import AuthServer, discover
from wharfinger.auth.client.explain import explain
from wharfinger.auth.client.registration import ClientIdentity
from wharfinger.auth.client.steps import Trace, run
from wharfinger.errors import ConnectionFailed, NotAuthorized
from wharfinger.protocol.interfaces import HttpResponse

SERVER = "https://harbour.example/mcp"
RESOURCE_METADATA_URL = "https://harbour.example/.well-known/oauth-protected-resource"
ISSUER = "https://as.example/one"
ISSUER_METADATA_URL = "https://as.example/.well-known/oauth-authorization-server/one"
RESOURCE = {"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["read"]}
AUTHORITY = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://login.example/authorize",
    "token_endpoint": "https://as.example/token",
    "code_challenge_methods_supported": ["S256"],
    "more": {"than": "we know"},
}
EMPTY_CHALLENGE = Challenge("bearer", {})


class StubWeb:
    """Serves documents by URL, and 404 for every other URL."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.requested_urls: list[str] = []

    async def __call__(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        self.requested_urls.append(url)
        document = self.documents.get(url)
        if document is None:
            return HttpResponse(404, {}, b"")
        if isinstance(document, Exception):
            raise document
        if isinstance(document, HttpResponse):
            return document
        return HttpResponse(200, {}, document if isinstance(document, bytes) else msgspec.json.encode(document))


def discover_server(
    web: StubWeb, challenge: Challenge = EMPTY_CHALLENGE, known_issuers: tuple[str, ...] = (), server: str = SERVER
) -> AuthServer:
    trace: Trace = []
    return asyncio.run(run(discover(server, challenge, known_issuers, trace), web))


def test_the_shortest_discovery_requests_two_documents() -> None:
    web = StubWeb({"https://harbour.example/prm": RESOURCE, ISSUER_METADATA_URL: AUTHORITY})
    challenge = Challenge("bearer", {"resource_metadata": "https://harbour.example/prm", "scope": "write"})
    auth_server = discover_server(web, challenge)
    assert web.requested_urls == ["https://harbour.example/prm", ISSUER_METADATA_URL]
    assert (auth_server.issuer, auth_server.resource, auth_server.scopes, auth_server.assumed) == (
        ISSUER,
        SERVER,
        ("write",),
        False,
    )


def test_published_scopes_are_used_if_the_challenge_has_none() -> None:
    assert discover_server(
        StubWeb({f"{RESOURCE_METADATA_URL}/mcp": RESOURCE, ISSUER_METADATA_URL: AUTHORITY})
    ).scopes == ("read",)


@pytest.mark.parametrize(
    "document",
    [
        b"<!doctype html>",
        b'{"x":' + b"[" * 100_000,
        b"{",
        b"[]",
        b'{"resource": 1}',
        b'{"resource": "\xff"}',
        HttpResponse(302, {"location": "https://evil"}, b""),
    ],
)
def test_an_invalid_metadata_document_is_skipped(document: Any) -> None:
    web = StubWeb(
        {f"{RESOURCE_METADATA_URL}/mcp": document, RESOURCE_METADATA_URL: RESOURCE, ISSUER_METADATA_URL: AUTHORITY}
    )
    assert discover_server(web).issuer == ISSUER
    assert web.requested_urls[:2] == [f"{RESOURCE_METADATA_URL}/mcp", RESOURCE_METADATA_URL]
    assert not any("evil" in url for url in web.requested_urls)


def test_a_known_issuer_is_preferred() -> None:
    resource = RESOURCE | {"authorization_servers": ["https://other.example", ISSUER]}
    web = StubWeb({f"{RESOURCE_METADATA_URL}/mcp": resource, ISSUER_METADATA_URL: AUTHORITY})
    assert discover_server(web, known_issuers=(ISSUER,)).issuer == ISSUER
    with pytest.raises(NotAuthorized, match=r"other\.example publishes no metadata"):
        discover_server(web)


@pytest.mark.parametrize(
    ("resource", "authority", "message"),
    [
        ({"resource": "https://evil.example/mcp"}, {}, "does not cover"),
        ({"authorization_servers": []}, {}, "names no authorization server"),
        ({"authorization_servers": ["http://as.example"]}, {}, "not https"),
        ({"authorization_servers": ["https://10.0.0.1"]}, {}, "private"),
        ({"authorization_servers": ["http://127.0.0.1:9"]}, {}, "on this machine"),
        ({}, {"issuer": ISSUER + "/"}, "exactly the same"),
        ({}, {"issuer": "https://AS.example/one"}, "exactly the same"),
        ({}, {"token_endpoint": "http://as.example/token"}, "token_endpoint"),
        ({}, {"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
        ({}, {"registration_endpoint": "https://192.168.0.1/"}, "registration_endpoint"),
    ],
)
def test_invalid_metadata_ends_the_discovery(resource: dict[str, Any], authority: dict[str, Any], message: str) -> None:
    web = StubWeb({f"{RESOURCE_METADATA_URL}/mcp": RESOURCE | resource, ISSUER_METADATA_URL: AUTHORITY | authority})
    with pytest.raises(NotAuthorized, match=message):
        discover_server(web)


def test_metadata_is_not_requested_from_the_root_of_an_issuer_with_a_path() -> None:
    web = StubWeb(
        {
            f"{RESOURCE_METADATA_URL}/mcp": RESOURCE,
            "https://as.example/.well-known/oauth-authorization-server": AUTHORITY,
        }
    )
    with pytest.raises(NotAuthorized):
        discover_server(web)
    assert "https://as.example/.well-known/oauth-authorization-server" not in web.requested_urls


def test_a_server_without_metadata_is_its_own_authorization_server() -> None:
    root = "https://harbour.example"
    document = AUTHORITY | {"issuer": root}
    auth_server = discover_server(StubWeb({f"{root}/.well-known/oauth-authorization-server": document}))
    assert (auth_server.issuer, auth_server.resource, auth_server.assumed) == (root, None, False)
    fallback = discover_server(StubWeb({}))
    assert fallback.metadata.registration_endpoint == f"{root}/register"
    assert (fallback.issuer, fallback.resource, fallback.assumed) == (root, None, True)


def test_a_remote_server_without_tls_gets_no_token() -> None:
    with pytest.raises(NotAuthorized, match="sent encrypted"):
        discover_server(StubWeb({}), server="http://harbour.example/mcp")


def test_an_unreachable_server_is_reported_by_name() -> None:
    with pytest.raises(ConnectionFailed, match="no route"):
        discover_server(StubWeb({f"{RESOURCE_METADATA_URL}/mcp": ConnectionFailed("no route")}))


def explain_sign_in(web: StubWeb) -> tuple[list[tuple[str, bool | None]], bool]:
    trace, good = asyncio.run(explain(SERVER, ClientIdentity(), web))
    return [(step.what, step.good) for step in trace], good


def test_a_complete_explanation_says_that_sign_in_is_possible() -> None:
    header = {"www-authenticate": f'Bearer resource_metadata="{RESOURCE_METADATA_URL}/mcp"'}
    authority = AUTHORITY | {"registration_endpoint": "https://as.example/register"}
    steps, good = explain_sign_in(
        StubWeb(
            {
                SERVER: HttpResponse(401, header, b""),
                f"{RESOURCE_METADATA_URL}/mcp": RESOURCE,
                ISSUER_METADATA_URL: authority,
            }
        )
    )
    assert good
    assert all(mark for _, mark in steps)
    assert [what for what, _ in steps] == [
        f"POST {SERVER}",
        f"{RESOURCE_METADATA_URL}/mcp",
        ISSUER_METADATA_URL,
        "registration",
        "PKCE",
        "scopes",
        "resource",
        "renewal",
    ]


def test_an_explanation_reports_problems_and_continues_if_possible() -> None:
    authority = AUTHORITY | {"code_challenge_methods_supported": ["plain"]}
    steps, good = explain_sign_in(
        StubWeb({SERVER: HttpResponse(401, {}, b""), RESOURCE_METADATA_URL: RESOURCE, ISSUER_METADATA_URL: authority})
    )
    assert not good
    assert [what for what, mark in steps if mark is False] == [f"POST {SERVER}", "registration", "PKCE"]


def test_an_explanation_ends_with_the_step_that_failed() -> None:
    steps, good = explain_sign_in(StubWeb({SERVER: HttpResponse(401, {"www-authenticate": "Basic"}, b"")}))
    assert (steps, good) == ([(f"POST {SERVER}", False)], False)
    steps, good = explain_sign_in(StubWeb({SERVER: ConnectionFailed("no route")}))
    assert (steps, good) == ([("sign-in", False)], False)


def test_an_issuer_with_control_characters_is_shown_without_them() -> None:
    metadata = RESOURCE | {"authorization_servers": ["\x1b]0;title\x07" + "x" * 1000]}
    with pytest.raises(NotAuthorized) as raised:
        discover_server(StubWeb({f"{RESOURCE_METADATA_URL}/mcp": metadata}))
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500
