"""Registration, authorization and tokens of a client, without a network."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from wharfinger.auth.client.discovery import AuthServer
from wharfinger.auth.client.grants import (
    Attempt,
    Grant,
    UnrelatedRedirect,
    authorization_url,
    exchange_code,
    read_redirect,
    renew,
    scopes_to_ask,
)
from wharfinger.auth.client.metadata import AuthServerMetadata
from wharfinger.auth.client.registration import ClientIdentity, RegisteredClient, register
from wharfinger.auth.client.steps import Steps, run
from wharfinger.errors import NotAuthorized
from wharfinger.protocol.interfaces import HttpResponse

ISSUER = "https://as.example"
ATTEMPT = Attempt("v" * 64, "the state", "http://127.0.0.1:1/callback")
CLIENT = RegisteredClient(issuer=ISSUER, client_id="harbour", method="none", redirect_uri=ATTEMPT.redirect_uri)


def auth_server(resource: str | None = "https://harbour.example", **metadata: Any) -> AuthServer:
    fields: dict[str, Any] = {
        "issuer": ISSUER,
        "token_endpoint": f"{ISSUER}/token",
        "authorization_endpoint": f"{ISSUER}/authorize",
        "registration_endpoint": f"{ISSUER}/register",
        "code_challenge_methods_supported": ("S256",),
    }
    return AuthServer(
        server="https://harbour.example/mcp",
        resource=resource,
        scopes=("read",),
        metadata=AuthServerMetadata(**fields | metadata),
    )


def run_steps(steps: Steps[Any], status: int = 200, body: Any = b"") -> tuple[Any, dict[str, Any]]:
    """Run steps that send at most one request, and return their result and that request."""
    request: dict[str, Any] = {}

    async def fetch(verb: str, url: str, headers: Mapping[str, str], sent: bytes | None) -> HttpResponse:
        assert not request
        text = (sent or b"").decode()
        form = {name: values[0] for name, values in parse_qs(text, strict_parsing=True).items()} if "=" in text else {}
        request.update(verb=verb, url=url, headers=headers, form=form, body=text)
        return HttpResponse(status, {}, body if isinstance(body, bytes) else msgspec.json.encode(body))

    return asyncio.run(run(steps, fetch)), request


# Registration.


@pytest.mark.parametrize(
    ("identity", "metadata", "client_id", "method"),
    [
        (ClientIdentity(client_id="old", issuer=ISSUER), {}, "old", "none"),
        (ClientIdentity(client_id="old", client_secret="s", issuer=ISSUER), {}, "old", "client_secret_basic"),
        (
            ClientIdentity(client_id="old", client_secret="s", issuer=ISSUER),
            {"token_endpoint_auth_methods_supported": ("client_secret_post",)},
            "old",
            "client_secret_post",
        ),
        (
            ClientIdentity(metadata_url="https://me.example/client"),
            {"client_id_metadata_document_supported": True},
            "https://me.example/client",
            "none",
        ),
        (ClientIdentity(metadata_url="https://me.example/client"), {}, "new", "none"),
        (ClientIdentity(client_id="old", issuer="https://other.example"), {}, "new", "none"),
        (ClientIdentity(), {}, "new", "none"),
    ],
)
def test_a_known_client_precedes_a_metadata_document_and_a_registration(
    identity: ClientIdentity, metadata: dict[str, Any], client_id: str, method: str
) -> None:
    client, request = run_steps(register(auth_server(**metadata), identity, "http://127.0.0.1:1/callback", []), 201,
                          {"client_id": "new"})  # fmt: skip
    assert (client.client_id, client.method, client.issuer) == (client_id, method, ISSUER)
    assert bool(request) is (client_id == "new")


@pytest.mark.parametrize("url", ["http://me.example/client", "https://me.example", "https://me.example/#c", "me"])
def test_a_metadata_url_that_cannot_be_a_client_id_is_refused(url: str) -> None:
    with pytest.raises(NotAuthorized, match="client id"):
        run_steps(
            register(auth_server(client_id_metadata_document_supported=True), ClientIdentity(metadata_url=url), "", [])
        )


def test_without_registration_the_error_suggests_a_client_id() -> None:
    with pytest.raises(NotAuthorized, match="Ask its operator for a client id"):
        run_steps(register(auth_server(registration_endpoint=None), ClientIdentity(), "", []))


def test_a_refused_registration_is_reported() -> None:
    refusal = {"error": "invalid_redirect_uri", "error_description": "no\x1b[31m loopback"}
    with pytest.raises(NotAuthorized, match=r"invalid_redirect_uri: no\?\[31m loopback"):
        run_steps(register(auth_server(), ClientIdentity(), "", []), 400, refusal)


def test_a_refusal_that_is_not_utf_8_is_reported_by_its_status() -> None:
    with pytest.raises(NotAuthorized, match=r"was refused with 400\. "):
        run_steps(register(auth_server(), ClientIdentity(), "", []), 400, b'{"error": "\xff"}')


def test_a_registration_is_reused_only_for_the_same_redirect_uri() -> None:
    client, request = run_steps(register(auth_server(), ClientIdentity(), CLIENT.redirect_uri, [], CLIENT))
    assert (client, request) == (CLIENT, {})
    other, _ = run_steps(
        register(auth_server(), ClientIdentity(), "http://127.0.0.1:2/callback", [], CLIENT), 201, {"client_id": "n"}
    )
    assert other.client_id == "n"


def test_a_registration_with_null_for_what_does_not_apply_is_used() -> None:
    answer = {"client_id": "n", "client_secret": None, "client_secret_expires_at": None}
    client, _ = run_steps(register(auth_server(), ClientIdentity(), CLIENT.redirect_uri, []), 201, answer)
    assert (client.client_id, client.secret_expires_at) == ("n", 0)


# The authorization URL and the redirect.


def test_the_authorization_url_has_the_published_resource_and_the_code_challenge() -> None:
    url = authorization_url(auth_server(), CLIENT, ATTEMPT, ("read", "write"))
    query = parse_qs(urlsplit(url).query)
    assert query["resource"] == ["https://harbour.example"]
    assert query["scope"] == ["read write"]
    assert query["code_challenge_method"] == ["S256"]
    assert ATTEMPT.verifier not in url
    assert "scope" not in parse_qs(urlsplit(authorization_url(auth_server(), CLIENT, ATTEMPT, ())).query)
    with_query = authorization_url(auth_server(authorization_endpoint=f"{ISSUER}/a?tenant=1"), CLIENT, ATTEMPT, ())
    assert with_query.startswith(f"{ISSUER}/a?tenant=1&response_type=code")
    with_empty_query = authorization_url(auth_server(authorization_endpoint=f"{ISSUER}/a?"), CLIENT, ATTEMPT, ())
    assert parse_qs(urlsplit(with_empty_query).query)["response_type"] == ["code"]


def test_offline_access_is_requested_only_if_listed_and_never_alone() -> None:
    with_offline_access = auth_server(scopes_supported=("read", "offline_access"))
    assert scopes_to_ask(with_offline_access, (), (), offline=True) == ("read", "offline_access")
    assert scopes_to_ask(with_offline_access, ("old",), ("more",), offline=False) == ("old", "read", "more")
    assert scopes_to_ask(auth_server(), (), (), offline=True) == ("read",)
    without_scopes = msgspec.structs.replace(with_offline_access, scopes=())
    assert scopes_to_ask(without_scopes, (), (), offline=True) == ()


REDIRECT_QUERY = {"code": "c", "state": "the state", "iss": ISSUER}


def test_the_code_of_a_matching_redirect_is_accepted() -> None:
    assert read_redirect(urlencode(REDIRECT_QUERY), auth_server(), ATTEMPT) == "c"
    without_issuer = {name: value for name, value in REDIRECT_QUERY.items() if name != "iss"}
    assert read_redirect(urlencode(without_issuer), auth_server(), ATTEMPT) == "c"


@pytest.mark.parametrize(
    "query",
    ["", "code=c", "code=c&state=other", "code=c&state=the+state&state=the+state", "%ff", "state=%C3%A9", "&" * 99],
)
def test_an_unrelated_redirect_is_refused(query: str) -> None:
    with pytest.raises(UnrelatedRedirect):
        read_redirect(query, auth_server(), ATTEMPT)


@pytest.mark.parametrize("issuer", [f"{ISSUER}/", "https://AS.example", "https://as.example:443", "", "https://evil"])
def test_the_issuer_is_compared_exactly(issuer: str) -> None:
    with pytest.raises(NotAuthorized, match="another issuer"):
        read_redirect(urlencode(REDIRECT_QUERY | {"iss": issuer}), auth_server(), ATTEMPT)


def test_the_issuer_parameter_is_required_if_the_metadata_announces_it() -> None:
    without_issuer = {name: value for name, value in REDIRECT_QUERY.items() if name != "iss"}
    with pytest.raises(NotAuthorized, match="announces"):
        read_redirect(
            urlencode(without_issuer), auth_server(authorization_response_iss_parameter_supported=True), ATTEMPT
        )


# Tokens.

TOKENS = {"access_token": "secret-token", "token_type": "bearer", "expires_in": 60}


def exchange(client: RegisteredClient = CLIENT, status: int = 200, body: Any = TOKENS) -> tuple[Grant, dict[str, Any]]:
    return run_steps(exchange_code(auth_server(), client, ATTEMPT, "c", ("read",), 1000.0, []), status, body)


def test_a_code_is_exchanged_for_a_token_with_scopes_and_expiry() -> None:
    grant, request = exchange(body=TOKENS | {"scope": "read more", "refresh_token": "r"})
    assert (grant.access_token, grant.refresh_token, grant.expires_at) == ("secret-token", "r", 1060.0)
    assert grant.scope == ("read", "more")
    assert request["form"] == {
        "grant_type": "authorization_code",
        "code": "c",
        "redirect_uri": ATTEMPT.redirect_uri,
        "code_verifier": ATTEMPT.verifier,
        "resource": "https://harbour.example",
        "client_id": "harbour",
    }


@pytest.mark.parametrize(
    ("method", "credentials", "posted_secret"),
    [("client_secret_basic", "a%3Ab:p%26+%C3%A9", None), ("client_secret_post", None, "p& é"), ("none", None, None)],
)
def test_a_client_authenticates_with_its_registered_method(
    method: str, credentials: str | None, posted_secret: str | None
) -> None:
    client = RegisteredClient(issuer=ISSUER, client_id="a:b", client_secret="p& é", method=method)
    _, request = exchange(client)
    header = request["headers"].get("Authorization")
    assert header == (None if credentials is None else "Basic " + base64.b64encode(credentials.encode()).decode())
    assert request["form"].get("client_secret") == posted_secret
    assert ("client_id" in request["form"]) is (credentials is None)


@pytest.mark.parametrize(
    "body",
    [
        TOKENS | {"token_type": "mac"},
        TOKENS | {"access_token": ""},
        TOKENS | {"access_token": "secret-token\r\nX: y"},
        TOKENS | {"access_token": "secret-tokén"},
        TOKENS | {"access_token": "secret-token" * 2000},
        {"access_token": 5, "token_type": "secret-token"},
        b"secret-token",
        b'{"access_token": "secret-token\xff", "token_type": "bearer"}',
    ],
)
def test_an_invalid_token_is_refused_and_not_quoted(body: Any) -> None:
    with pytest.raises(NotAuthorized) as raised:
        exchange(body=body)
    assert "secret-token" not in str(raised.value)


@pytest.mark.parametrize(
    ("seconds", "expires_at"), [("60", 1060.0), (-5, None), ("soon", None), (None, None), (1e300, None)]
)
def test_an_invalid_expiry_is_ignored(seconds: Any, expires_at: float | None) -> None:
    assert exchange(body=TOKENS | {"expires_in": seconds})[0].expires_at == expires_at


def test_a_refresh_keeps_the_fields_that_are_not_in_the_response() -> None:
    grant, _ = exchange(body=TOKENS | {"refresh_token": "r"})
    new_grant, request = run_steps(renew(grant, 2000.0), body=TOKENS | {"access_token": "next"})
    assert (new_grant.access_token, new_grant.refresh_token, new_grant.expires_at) == ("next", "r", 2060.0)
    assert request["form"]["resource"] == "https://harbour.example"
    for refusal in ({"error": "invalid_grant"}, {"error": "invalid_grant", "error_description": None}):
        assert run_steps(renew(grant, 2000.0), 400, refusal)[0] is None
    with pytest.raises(NotAuthorized, match="503"):
        run_steps(renew(grant, 2000.0), 503)
    assert run_steps(renew(msgspec.structs.replace(grant, refresh_token=None), 0.0)) == (None, {})
