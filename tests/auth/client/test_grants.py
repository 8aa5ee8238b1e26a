"""Registration, authorization and tokens as steps: structs and bytes in, structs and bytes out."""

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
from wharfinger.auth.client.metadata import ServerMetadata
from wharfinger.auth.client.registration import ClientIdentity, RegisteredClient, register
from wharfinger.auth.client.steps import Steps, run
from wharfinger.errors import NotAuthorized
from wharfinger.protocol.interfaces import HttpResponse

ISSUER = "https://as.example"
ATTEMPT = Attempt("v" * 64, "the state", "http://127.0.0.1:1/callback")
CLIENT = RegisteredClient(issuer=ISSUER, client_id="harbour", method="none", redirect_uri=ATTEMPT.redirect_uri)


def found(resource: str | None = "https://harbour.example", **metadata: Any) -> AuthServer:
    row: dict[str, Any] = {
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
        metadata=ServerMetadata(**row | metadata),
    )


def drive(steps: Steps[Any], status: int = 200, body: Any = b"") -> tuple[Any, dict[str, Any]]:
    """Return what the steps make of one answer, and their requests for it."""
    asked: dict[str, Any] = {}

    async def fetch(verb: str, url: str, headers: Mapping[str, str], sent: bytes | None) -> HttpResponse:
        assert not asked
        text = (sent or b"").decode()
        form = {name: values[0] for name, values in parse_qs(text, strict_parsing=True).items()} if "=" in text else {}
        asked.update(verb=verb, url=url, headers=headers, form=form, body=text)
        return HttpResponse(status, {}, body if isinstance(body, bytes) else msgspec.json.encode(body))

    return asyncio.run(run(steps, fetch)), asked


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
    client, asked = drive(register(found(**metadata), identity, "http://127.0.0.1:1/callback", []), 201,
                          {"client_id": "new"})  # fmt: skip
    assert (client.client_id, client.method, client.issuer) == (client_id, method, ISSUER)
    assert bool(asked) is (client_id == "new")


@pytest.mark.parametrize("url", ["http://me.example/client", "https://me.example", "https://me.example/#c", "me"])
def test_a_document_that_cannot_be_a_client_id_is_refused(url: str) -> None:
    with pytest.raises(NotAuthorized, match="client id"):
        drive(register(found(client_id_metadata_document_supported=True), ClientIdentity(metadata_url=url), "", []))


def test_if_no_registration_is_possible_the_error_says_what_to_request() -> None:
    with pytest.raises(NotAuthorized, match="Ask its operator for a client id"):
        drive(register(found(registration_endpoint=None), ClientIdentity(), "", []))


def test_a_refused_registration_is_reported() -> None:
    refusal = {"error": "invalid_redirect_uri", "error_description": "no\x1b[31m loopback"}
    with pytest.raises(NotAuthorized, match=r"invalid_redirect_uri: no\?\[31m loopback"):
        drive(register(found(), ClientIdentity(), "", []), 400, refusal)


def test_an_earlier_registration_serves_the_same_redirect_only() -> None:
    client, asked = drive(register(found(), ClientIdentity(), CLIENT.redirect_uri, [], CLIENT))
    assert (client, asked) == (CLIENT, {})
    other, _ = drive(
        register(found(), ClientIdentity(), "http://127.0.0.1:2/callback", [], CLIENT), 201, {"client_id": "n"}
    )
    assert other.client_id == "n"


# The page and its answer.


def test_the_authorization_url_has_the_published_resource_and_the_code_challenge() -> None:
    url = authorization_url(found(), CLIENT, ATTEMPT, ("read", "write"))
    query = parse_qs(urlsplit(url).query)
    assert query["resource"] == ["https://harbour.example"]
    assert query["scope"] == ["read write"]
    assert query["code_challenge_method"] == ["S256"]
    assert ATTEMPT.verifier not in url
    assert "scope" not in parse_qs(urlsplit(authorization_url(found(), CLIENT, ATTEMPT, ())).query)
    joined = authorization_url(found(authorization_endpoint=f"{ISSUER}/a?tenant=1"), CLIENT, ATTEMPT, ())
    assert joined.startswith(f"{ISSUER}/a?tenant=1&response_type=code")


def test_offline_access_is_requested_only_if_listed_and_never_alone() -> None:
    listed = found(scopes_supported=("read", "offline_access"))
    assert scopes_to_ask(listed, (), (), offline=True) == ("read", "offline_access")
    assert scopes_to_ask(listed, ("old",), ("more",), offline=False) == ("old", "read", "more")
    assert scopes_to_ask(found(), (), (), offline=True) == ("read",)
    nothing = msgspec.structs.replace(listed, scopes=())
    assert scopes_to_ask(nothing, (), (), offline=True) == ()


ANSWER = {"code": "c", "state": "the state", "iss": ISSUER}


def test_the_code_of_a_matching_redirect_is_accepted() -> None:
    assert read_redirect(urlencode(ANSWER), found(), ATTEMPT) == "c"
    without = {name: value for name, value in ANSWER.items() if name != "iss"}
    assert read_redirect(urlencode(without), found(), ATTEMPT) == "c"


@pytest.mark.parametrize(
    "query",
    ["", "code=c", "code=c&state=other", "code=c&state=the+state&state=the+state", "%ff", "state=%C3%A9", "&" * 99],
)
def test_an_unrelated_redirect_is_refused(query: str) -> None:
    with pytest.raises(UnrelatedRedirect):
        read_redirect(query, found(), ATTEMPT)


@pytest.mark.parametrize("issuer", [f"{ISSUER}/", "https://AS.example", "https://as.example:443", "", "https://evil"])
def test_the_issuer_is_compared_exactly(issuer: str) -> None:
    with pytest.raises(NotAuthorized, match="another issuer"):
        read_redirect(urlencode(ANSWER | {"iss": issuer}), found(), ATTEMPT)


def test_an_announced_issuer_parameter_must_be_present() -> None:
    without = {name: value for name, value in ANSWER.items() if name != "iss"}
    with pytest.raises(NotAuthorized, match="promises"):
        read_redirect(urlencode(without), found(authorization_response_iss_parameter_supported=True), ATTEMPT)


# Tokens.

TOKENS = {"access_token": "secret-token", "token_type": "bearer", "expires_in": 60}


def exchange(client: RegisteredClient = CLIENT, status: int = 200, body: Any = TOKENS) -> tuple[Grant, dict[str, Any]]:
    return drive(exchange_code(found(), client, ATTEMPT, "c", ("read",), 1000.0, []), status, body)


def test_a_code_becomes_a_token_with_its_scopes_and_end() -> None:
    grant, asked = exchange(body=TOKENS | {"scope": "read more", "refresh_token": "r"})
    assert (grant.access_token, grant.refresh_token, grant.expires_at) == ("secret-token", "r", 1060.0)
    assert grant.scope == ("read", "more")
    assert asked["form"] == {
        "grant_type": "authorization_code",
        "code": "c",
        "redirect_uri": ATTEMPT.redirect_uri,
        "code_verifier": ATTEMPT.verifier,
        "resource": "https://harbour.example",
        "client_id": "harbour",
    }


@pytest.mark.parametrize(
    ("method", "basic", "posted"),
    [("client_secret_basic", "a%3Ab:p%26+%C3%A9", None), ("client_secret_post", None, "p& é"), ("none", None, None)],
)
def test_a_client_authenticates_with_its_registered_method(method: str, basic: str | None, posted: str | None) -> None:
    client = RegisteredClient(issuer=ISSUER, client_id="a:b", client_secret="p& é", method=method)
    _, asked = exchange(client)
    header = asked["headers"].get("Authorization")
    assert header == (None if basic is None else "Basic " + base64.b64encode(basic.encode()).decode())
    assert asked["form"].get("client_secret") == posted
    assert ("client_id" in asked["form"]) is (basic is None)


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
    ],
)
def test_a_token_that_cannot_be_used_is_refused_and_not_repeated(body: Any) -> None:
    with pytest.raises(NotAuthorized) as raised:
        exchange(body=body)
    assert "secret-token" not in str(raised.value)


@pytest.mark.parametrize(("seconds", "end"), [("60", 1060.0), (-5, None), ("soon", None), (None, None), (1e300, None)])
def test_an_absurd_expiry_is_ignored(seconds: Any, end: float | None) -> None:
    assert exchange(body=TOKENS | {"expires_in": seconds})[0].expires_at == end


def test_a_refresh_keeps_the_fields_that_are_not_in_the_response() -> None:
    grant, _ = exchange(body=TOKENS | {"refresh_token": "r"})
    renewed, asked = drive(renew(grant, 2000.0), body=TOKENS | {"access_token": "next"})
    assert (renewed.access_token, renewed.refresh_token, renewed.expires_at) == ("next", "r", 2060.0)
    assert asked["form"]["resource"] == "https://harbour.example"
    assert drive(renew(grant, 2000.0), 400, {"error": "invalid_grant"})[0] is None
    with pytest.raises(NotAuthorized, match="503"):
        drive(renew(grant, 2000.0), 503)
    assert drive(renew(msgspec.structs.replace(grant, refresh_token=None), 0.0)) == (None, {})
