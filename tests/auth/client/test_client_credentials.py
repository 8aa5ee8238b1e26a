"""A program signs in with its own credentials at a real authorization server."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.auth.authority import harbour
from tests.conftest import absent
from wharfinger import Client
from wharfinger.auth import ClientCredentials
from wharfinger.errors import NotAuthorized


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_a_secret_gets_a_token_and_required_scopes_are_added() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            auth = ClientCredentials("nightly", secret="hidden")
            async with Client(guarded.url, auth=auth) as client:
                assert (await client.call_tool("write", {})).text == "written"
            assert authority.paths() == ["client_credentials", "client_credentials"]
            first, second = (row for _, row in authority.asked)
            assert first["authorization"] == "Basic " + base64.b64encode(b"nightly:hidden").decode()
            assert first["resource"] == guarded.url
            assert (first["scope"], second["scope"]) == ("read", "read write")
            assert "client_secret" not in first

    run(test())


def test_a_key_signs_an_assertion_for_this_issuer() -> None:
    try:
        from joserfc import jwk, jwt
    except ImportError:
        absent("joserfc")
    key = jwk.ECKey.generate_key("P-256")

    async def test() -> None:
        async with harbour() as (guarded, authority):
            auth = ClientCredentials("nightly", private_key=key.as_pem(private=True).decode())
            async with Client(guarded.url, auth=auth) as client:
                await client.list_tools()
            form = authority.asked[0][1]
            assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            claims = jwt.decode(form["client_assertion"], key, algorithms=["ES256"]).claims
            assert (claims["iss"], claims["sub"], claims["aud"]) == ("nightly", "nightly", authority.url)
            assert 0 < claims["exp"] - time.time() <= 120
            assert "authorization" not in form or not form["authorization"]

    run(test())


def test_credentials_are_sent_only_to_their_issuer() -> None:
    async def test() -> None:
        async with harbour() as (guarded, authority):
            auth = ClientCredentials("nightly", secret="hidden", issuer="https://as.example")
            with pytest.raises(NotAuthorized, match="only"):
                async with Client(guarded.url, auth=auth):
                    pass
            assert authority.asked == []

    run(test())


@pytest.mark.parametrize(
    "given",
    [{}, {"secret": "s", "private_key": "k"}, {"private_key": "no key"}, {"private_key": "k", "algorithm": "HS256"}],
)
def test_unusable_credentials_are_refused_at_once(given: dict[str, Any]) -> None:
    if "private_key" in given:
        try:
            import joserfc  # noqa: F401
        except ImportError:
            absent("joserfc")
    with pytest.raises(ValueError, match=r"key|secret"):
        ClientCredentials("nightly", **given)
