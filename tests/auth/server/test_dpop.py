"""DPoP proofs: each field of a proof is checked, and each proof is accepted once."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any

import pytest
from joserfc import jwk, jwt

from tests.clock import FakeClock
from wharfinger.auth import InvalidToken, VerifierUnavailable
from wharfinger.auth.server import dpop
from wharfinger.auth.server.dpop import MAX_PROOF_CHARACTERS, PROOF_SECONDS, UsedProofs, check_proof
from wharfinger.store.memory import MemoryStore

URL = "https://docs.example/mcp"
TOKEN = "the-token"
NOW = 2_000_000_000.0
KEY = jwk.generate_key("EC", "P-256")


def ath(token: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()


def proof(key: Any = KEY, header: dict[str, Any] | None = None, **changes: Any) -> str:
    claims = {"htm": "POST", "htu": URL, "iat": NOW, "jti": "1", "ath": ath(TOKEN)} | changes
    head = {"alg": "ES256", "typ": "dpop+jwt", "jwk": key.as_dict(private=False)} | (header or {})
    return jwt.encode(
        {name: value for name, value in head.items() if value is not None},
        {name: value for name, value in claims.items() if value is not None},
        key,
        algorithms=["ES256", "HS256", "RS256", "PS512"],
    )


def check(text: str, thumbprint: str | None = None, **changes: Any) -> str:
    options = {"method": "POST", "url": URL, "token": TOKEN, "now": NOW} | changes
    return check_proof(text, thumbprint=thumbprint or KEY.thumbprint(), **options)


def test_a_valid_proof_returns_its_id() -> None:
    assert check(proof(jti="abc")) == "abc"


@pytest.mark.parametrize("algorithm", ["RS256", "PS512"])
def test_a_proof_may_be_made_with_an_rsa_key(algorithm: str) -> None:
    """A bug: a header of more than 512 characters was refused, and that of each RSA key is longer."""
    key = jwk.generate_key("RSA", 3072)
    assert check(proof(key, {"alg": algorithm}), key.thumbprint()) == "1"


@pytest.mark.parametrize(
    "htu", [URL, "HTTPS://DOCS.example/mcp", "https://docs.example:443/mcp", URL + "?a=b", URL + "#c"]
)
def test_urls_are_normalized_before_they_are_compared(htu: str) -> None:
    assert check(proof(htu=htu)) == "1"


@pytest.mark.parametrize(
    "changes",
    [{"htm": "GET"}, {"htm": None}, {"htm": "post"}, {"htu": "https://docs.example/other"}, {"htu": None},
     {"htu": "https://evil.example/mcp"}, {"htu": "http://docs.example/mcp"}, {"htu": "https://docs.example/MCP"},
     {"iat": None}, {"iat": "now"}, {"iat": 10**400}, {"iat": float("nan")},
     {"jti": None}, {"jti": ""}, {"jti": "x" * 257}, {"jti": 7},
     {"ath": None}, {"ath": ath("another-token")}],
)  # fmt: skip
def test_a_proof_with_a_missing_or_wrong_claim_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken, match="The DPoP proof is not valid"):
        check(proof(**changes))


def test_the_longest_id_is_accepted() -> None:
    assert check(proof(jti="x" * 256)) == "x" * 256


@pytest.mark.parametrize(("seconds", "accepted"), [(PROOF_SECONDS, True), (PROOF_SECONDS + 1, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_time_of_a_proof_may_differ_by_a_minute(seconds: float, accepted: bool, sign: int) -> None:
    text = proof(iat=NOW + sign * seconds)
    if accepted:
        assert check(text) == "1"
    else:
        with pytest.raises(InvalidToken, match="iat"):
            check(text)


@pytest.mark.parametrize(
    "header",
    [{"typ": "JWT"}, {"typ": None}, {"jwk": None}, {"jwk": KEY.as_dict(private=True)},
     {"jwk": {"kty": "oct", "k": "AA"}},
     {"jwk": {"kty": "EC"}}, {"jwk": jwk.generate_key("EC", "P-256").as_dict(private=False)}],
)  # fmt: skip
def test_a_proof_with_an_invalid_header_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        check(proof(header=header))


def test_a_proof_of_another_key_is_refused() -> None:
    other = jwk.generate_key("EC", "P-256")
    with pytest.raises(InvalidToken, match="not the one that the token is bound to"):
        check(proof(other))


@pytest.mark.parametrize("text", ["", "a.b", "é.é.é", "x" * (MAX_PROOF_CHARACTERS + 1)])
def test_text_that_is_not_a_proof_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        check(text)


@pytest.mark.parametrize("shared", [True, False])
async def test_a_proof_is_accepted_once(shared: bool) -> None:
    proofs = UsedProofs(MemoryStore() if shared else None, time.time)
    await proofs.use("key", "1")
    await proofs.use("key", "2")
    await proofs.use("other key", "1")
    with pytest.raises(InvalidToken, match="used before"):
        await proofs.use("key", "1")


async def test_a_proof_used_in_one_process_is_refused_by_another() -> None:
    store = MemoryStore()
    await UsedProofs(store).use("key", "1")
    with pytest.raises(InvalidToken, match="used before"):
        await UsedProofs(store).use("key", "1")


async def test_a_used_proof_is_forgotten_after_it_has_expired() -> None:
    clock = FakeClock(NOW)
    proofs = UsedProofs(None, clock)
    await proofs.use("key", "1")
    clock.now += 2 * PROOF_SECONDS
    with pytest.raises(InvalidToken):
        await proofs.use("key", "1")
    clock.now += 0.001
    await proofs.use("key", "1")


async def test_proofs_beyond_the_limit_are_refused_as_temporarily_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpop, "MAX_PROOFS", 2)

    clock = FakeClock(NOW)
    proofs = UsedProofs(None, clock)
    await proofs.use("key", "1")
    await proofs.use("key", "2")
    with pytest.raises(VerifierUnavailable):
        await proofs.use("key", "3")
    clock.now += 2 * PROOF_SECONDS + 0.001
    await proofs.use("key", "3")
