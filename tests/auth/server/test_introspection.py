"""Opaque tokens, which are verified by the introspection endpoint of the authorization server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import pytest

from wharfinger.auth import IntrospectionVerifier, InvalidToken, Principal, VerifierUnavailable
from wharfinger.auth.server.token_verifier import LEEWAY_SECONDS
from wharfinger.errors import ConnectionFailed
from wharfinger.protocol.interfaces import HttpResponse

ISSUER = "https://id.example"


class Endpoint:
    """An introspection endpoint with one answer, which records its requests."""

    def __init__(self, answer: Any, status: int = 200) -> None:
        self.answer = answer
        self.status = status
        self.headers: Mapping[str, str] = {}
        self.form: dict[str, list[str]] = {}

    async def __call__(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        self.headers, self.form = headers, parse_qs((body or b"").decode())
        if isinstance(self.answer, Exception):
            raise self.answer
        body = self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode()
        return HttpResponse(self.status, {}, body)


def verify(endpoint: Endpoint, token: str = "opaque", **options: Any) -> Principal | None:
    settings = {"issuer": ISSUER, "client_id": "docs", "client_secret": "s3:c ret", "fetch": endpoint} | options
    return asyncio.run(IntrospectionVerifier(f"{ISSUER}/introspect", **settings).verify(token))


ACTIVE_TOKEN = {
    "active": True,
    "sub": "ann",
    "scope": "read",
    "client_id": "editor",
    "exp": 4e9,
    "aud": "https://d.example",
}


def test_an_active_token_gives_a_principal_with_its_subject() -> None:
    endpoint = Endpoint(ACTIVE_TOKEN)
    principal = verify(endpoint, "a+b")
    assert principal is not None
    assert (principal.subject, principal.client, principal.scopes, principal.expires) == (
        "ann", "editor", frozenset({"read"}), 4e9 + LEEWAY_SECONDS,
    )  # fmt: skip
    assert endpoint.form["token"] == ["a+b"]
    credentials = base64.b64decode(endpoint.headers["Authorization"].removeprefix("Basic "))
    assert credentials == b"docs:s3%3Ac+ret"


@pytest.mark.parametrize("answer", [{"active": False}, {}, {"active": "true", "sub": "ann"}, {"active": 1}])
def test_an_inactive_token_gives_no_principal(answer: Any) -> None:
    assert verify(Endpoint(answer)) is None


@pytest.mark.parametrize(
    "change", [{"iss": "https://evil.example"}, {"sub": None, "username": None}, {"sub": ""}, {"sub": 7}]
)
def test_a_token_without_a_subject_or_of_another_issuer_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        verify(Endpoint(ACTIVE_TOKEN | change))


@pytest.mark.parametrize(("aud", "accepted"), [("https://d.example", True), (["x", "https://d.example"], True),
                                           ("https://d.example/", False), (None, False), ([7], False)])  # fmt: skip
def test_a_token_must_name_the_configured_audience(aud: Any, accepted: bool) -> None:
    endpoint = Endpoint(ACTIVE_TOKEN | {"aud": aud})
    if accepted:
        assert verify(endpoint, audience="https://d.example") is not None
    else:
        with pytest.raises(InvalidToken, match="another server"):
            verify(endpoint, audience="https://d.example")


@pytest.mark.parametrize(
    "endpoint",
    [Endpoint(ConnectionFailed("down")), Endpoint(ACTIVE_TOKEN, 500), Endpoint({}, 401), Endpoint(b"<html>"),
     Endpoint([1]), Endpoint(b"[" * 5000)],
)  # fmt: skip
def test_tokens_cannot_be_verified_while_the_endpoint_fails(endpoint: Endpoint) -> None:
    with pytest.raises(VerifierUnavailable):
        verify(endpoint)


def test_an_introspection_url_that_is_not_https_is_refused() -> None:
    for url, issuer in ((f"http{ISSUER[5:]}/introspect", ISSUER), (f"{ISSUER}/introspect", "http://id.example")):
        with pytest.raises(ValueError, match="https"):
            IntrospectionVerifier(url, issuer=issuer, client_id="a", client_secret="b")
