"""Client credentials: a program without a user signs in to a real authorization server."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.auth.authority import protected_server
from tests.conftest import absent
from wharfinger import Client
from wharfinger.auth import ClientCredentials
from wharfinger.errors import NotAuthorized
from wharfinger.protocol.interfaces import HttpResponse


async def test_a_secret_obtains_a_token_and_missing_scopes_are_requested_later() -> None:
    async with protected_server() as (server, authority):
        auth = ClientCredentials("nightly", secret="hidden")
        async with Client(server.url, auth=auth) as client:
            assert (await client.call_tool("write", {})).text == "written"
        assert authority.request_names() == ["client_credentials", "client_credentials"]
        first, second = (row for _, row in authority.requests)
        assert first["authorization"] == "Basic " + base64.b64encode(b"nightly:hidden").decode()
        assert first["resource"] == server.url
        assert (first["scope"], second["scope"]) == ("read", "read write")
        assert "client_secret" not in first


async def test_a_private_key_signs_an_assertion_for_the_issuer() -> None:
    try:
        from joserfc import jwk, jwt
    except ImportError:
        absent("joserfc")
    key = jwk.ECKey.generate_key("P-256")

    async with protected_server() as (server, authority):
        auth = ClientCredentials("nightly", private_key=key.as_pem(private=True).decode())
        async with Client(server.url, auth=auth) as client:
            await client.list_tools()
        form = authority.requests[0][1]
        assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        claims = jwt.decode(form["client_assertion"], key, algorithms=["ES256"]).claims
        assert (claims["iss"], claims["sub"], claims["aud"]) == ("nightly", "nightly", authority.url)
        assert 0 < claims["exp"] - time.time() <= 120
        assert "authorization" not in form or not form["authorization"]


@pytest.mark.parametrize(("private", "algorithm"), [(False, "ES256"), (True, "ES384")])
def test_a_key_that_cannot_sign_is_refused_by_the_constructor(private: bool, algorithm: str) -> None:
    """A public key, and a key of a curve that the algorithm does not use."""
    try:
        from joserfc import jwk
    except ImportError:
        absent("joserfc")
    key = jwk.ECKey.generate_key("P-256").as_pem(private=private).decode()
    with pytest.raises(ValueError, match=f"The private key is not valid for {algorithm}"):
        ClientCredentials("nightly", private_key=key, algorithm=algorithm)


def test_an_encrypted_key_is_refused_by_the_constructor() -> None:
    """A bug: the constructor raised a TypeError."""
    try:
        from joserfc import jwk
    except ImportError:
        absent("joserfc")
    key = jwk.ECKey.generate_key("P-256").as_pem(private=True, password="p").decode()
    with pytest.raises(ValueError, match="encrypted"):
        ClientCredentials("nightly", private_key=key)


async def test_credentials_are_sent_only_to_their_issuer() -> None:
    async with protected_server() as (server, authority):
        auth = ClientCredentials("nightly", secret="hidden", issuer="https://as.example")
        with pytest.raises(NotAuthorized, match="only"):
            async with Client(server.url, auth=auth):
                pass
        assert authority.requests == []


@pytest.mark.parametrize(
    "options",
    [{}, {"secret": "s", "private_key": "k"}, {"private_key": "no key"}, {"private_key": "k", "algorithm": "HS256"}],
)
def test_invalid_credentials_are_refused_by_the_constructor(options: dict[str, Any]) -> None:
    if "private_key" in options:
        try:
            import joserfc  # noqa: F401
        except ImportError:
            absent("joserfc")
    with pytest.raises(ValueError, match=r"key|secret"):
        ClientCredentials("nightly", **options)


def test_one_object_is_used_in_several_event_loops() -> None:
    """A bug: in a second `asyncio.run`, a call that waited for another one raised a RuntimeError."""
    url, issuer = "https://harbour.example/mcp", "https://as.example"
    documents: dict[str, Any] = {
        "https://harbour.example/.well-known/oauth-protected-resource/mcp": {
            "resource": url, "authorization_servers": [issuer],
        },
        f"{issuer}/.well-known/oauth-authorization-server": {"issuer": issuer, "token_endpoint": f"{issuer}/token"},
    }  # fmt: skip
    tokens = iter("ab")

    async def fetch(verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        await asyncio.sleep(0)  # the other call waits for the lock meanwhile
        document = documents.get(url) or {"access_token": next(tokens), "token_type": "Bearer"}
        return HttpResponse(200, {}, json.dumps(document).encode())

    auth = ClientCredentials("nightly", secret="s", fetch=lambda server: fetch)

    async def ask_for(scope: str) -> Mapping[str, str]:
        sent = await auth.headers(url)
        challenge = {"www-authenticate": f'Bearer scope="{scope}"'}
        assert await asyncio.gather(*[auth.refused(url, 401, challenge, sent) for _ in range(3)]) == [True] * 3
        return await auth.headers(url)

    assert asyncio.run(ask_for("read")) == {"Authorization": "Bearer a"}
    assert asyncio.run(ask_for("write")) == {"Authorization": "Bearer b"}
