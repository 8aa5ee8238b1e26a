"""Discovery as steps, without a network: each request and the answer to it."""

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
PRM = "https://harbour.example/.well-known/oauth-protected-resource"
ISSUER = "https://as.example/one"
OAUTH = "https://as.example/.well-known/oauth-authorization-server/one"
RESOURCE = {"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["read"]}
AUTHORITY = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://login.example/authorize",
    "token_endpoint": "https://as.example/token",
    "code_challenge_methods_supported": ["S256"],
    "more": {"than": "we know"},
}
NONE = Challenge("bearer", {})


class Web:
    """Documents by address; everything else is 404."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.requested: list[str] = []

    async def __call__(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        self.requested.append(url)
        document = self.documents.get(url)
        if document is None:
            return HttpResponse(404, {}, b"")
        if isinstance(document, Exception):
            raise document
        if isinstance(document, HttpResponse):
            return document
        return HttpResponse(200, {}, document if isinstance(document, bytes) else msgspec.json.encode(document))


def find(web: Web, challenge: Challenge = NONE, known: tuple[str, ...] = (), server: str = SERVER) -> AuthServer:
    trace: Trace = []
    return asyncio.run(run(discover(server, challenge, known, trace), web))


def test_the_shortest_discovery_requests_two_documents() -> None:
    web = Web({"https://harbour.example/prm": RESOURCE, OAUTH: AUTHORITY})
    challenge = Challenge("bearer", {"resource_metadata": "https://harbour.example/prm", "scope": "write"})
    found = find(web, challenge)
    assert web.requested == ["https://harbour.example/prm", OAUTH]
    assert (found.issuer, found.resource, found.scopes, found.assumed) == (ISSUER, SERVER, ("write",), False)


def test_published_scopes_are_used_if_the_challenge_has_none() -> None:
    assert find(Web({f"{PRM}/mcp": RESOURCE, OAUTH: AUTHORITY})).scopes == ("read",)


@pytest.mark.parametrize(
    "other",
    [
        b"<!doctype html>",
        b'{"x":' + b"[" * 100_000,
        b"{",
        b"[]",
        b'{"resource": 1}',
        HttpResponse(302, {"location": "https://evil"}, b""),
    ],
)
def test_an_invalid_document_is_skipped(other: Any) -> None:
    web = Web({f"{PRM}/mcp": other, PRM: RESOURCE, OAUTH: AUTHORITY})
    assert find(web).issuer == ISSUER
    assert web.requested[:2] == [f"{PRM}/mcp", PRM]
    assert not any("evil" in url for url in web.requested)


def test_a_known_issuer_is_preferred() -> None:
    resource = RESOURCE | {"authorization_servers": ["https://other.example", ISSUER]}
    web = Web({f"{PRM}/mcp": resource, OAUTH: AUTHORITY})
    assert find(web, known=(ISSUER,)).issuer == ISSUER
    with pytest.raises(NotAuthorized, match=r"other\.example publishes no metadata"):
        find(web)


@pytest.mark.parametrize(
    ("resource", "authority", "message"),
    [
        ({"resource": "https://evil.example/mcp"}, {}, "does not cover"),
        ({"authorization_servers": []}, {}, "names no authorization server"),
        ({"authorization_servers": ["http://as.example"]}, {}, "not https"),
        ({"authorization_servers": ["https://10.0.0.1"]}, {}, "private"),
        ({"authorization_servers": ["http://127.0.0.1:9"]}, {}, "on this machine"),
        ({}, {"issuer": ISSUER + "/"}, "same text"),
        ({}, {"issuer": "https://AS.example/one"}, "same text"),
        ({}, {"token_endpoint": "http://as.example/token"}, "token_endpoint"),
        ({}, {"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
        ({}, {"registration_endpoint": "https://192.168.0.1/"}, "registration_endpoint"),
    ],
)
def test_invalid_metadata_ends_the_discovery(resource: dict[str, Any], authority: dict[str, Any], message: str) -> None:
    web = Web({f"{PRM}/mcp": RESOURCE | resource, OAUTH: AUTHORITY | authority})
    with pytest.raises(NotAuthorized, match=message):
        find(web)


def test_metadata_is_not_requested_from_the_root_of_an_issuer_with_a_path() -> None:
    web = Web({f"{PRM}/mcp": RESOURCE, "https://as.example/.well-known/oauth-authorization-server": AUTHORITY})
    with pytest.raises(NotAuthorized):
        find(web)
    assert "https://as.example/.well-known/oauth-authorization-server" not in web.requested


def test_a_server_without_metadata_is_its_own_authorization_server() -> None:
    root = "https://harbour.example"
    document = AUTHORITY | {"issuer": root}
    found = find(Web({f"{root}/.well-known/oauth-authorization-server": document}))
    assert (found.issuer, found.resource, found.assumed) == (root, None, False)
    assumed = find(Web({}))
    assert assumed.metadata.registration_endpoint == f"{root}/register"
    assert (assumed.issuer, assumed.resource, assumed.assumed) == (root, None, True)


def test_a_remote_server_without_tls_gets_no_token() -> None:
    with pytest.raises(NotAuthorized, match="sent unencrypted"):
        find(Web({}), server="http://harbour.example/mcp")


def test_an_unreachable_server_is_reported_by_name() -> None:
    with pytest.raises(ConnectionFailed, match="no route"):
        find(Web({f"{PRM}/mcp": ConnectionFailed("no route")}))


def explained(web: Web) -> tuple[list[tuple[str, bool | None]], bool]:
    trace, good = asyncio.run(explain(SERVER, ClientIdentity(), web))
    return [(step.what, step.good) for step in trace], good


def test_a_complete_explanation_says_that_sign_in_is_possible() -> None:
    header = {"www-authenticate": f'Bearer resource_metadata="{PRM}/mcp"'}
    authority = AUTHORITY | {"registration_endpoint": "https://as.example/register"}
    steps, good = explained(Web({SERVER: HttpResponse(401, header, b""), f"{PRM}/mcp": RESOURCE, OAUTH: authority}))
    assert good
    assert all(mark for _, mark in steps)
    assert [what for what, _ in steps] == [
        f"POST {SERVER}", f"{PRM}/mcp", OAUTH, "registration", "PKCE", "scopes", "resource", "renewal"
    ]  # fmt: skip


def test_an_explanation_reports_problems_and_continues_if_possible() -> None:
    authority = AUTHORITY | {"code_challenge_methods_supported": ["plain"]}
    steps, good = explained(Web({SERVER: HttpResponse(401, {}, b""), PRM: RESOURCE, OAUTH: authority}))
    assert not good
    assert [what for what, mark in steps if mark is False] == [f"POST {SERVER}", "registration", "PKCE"]


def test_an_explanation_that_ends_early_names_the_last_step() -> None:
    steps, good = explained(Web({SERVER: HttpResponse(401, {"www-authenticate": "Basic"}, b"")}))
    assert (steps, good) == ([(f"POST {SERVER}", False)], False)
    steps, good = explained(Web({SERVER: ConnectionFailed("no route")}))
    assert (steps, good) == ([("sign-in", False)], False)
