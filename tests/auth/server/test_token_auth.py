"""Authentication of requests: challenges, required scopes, cached tokens, and DPoP proofs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk, jwt

from tests.auth.server.keys import AUDIENCE, ISSUER, Issuer
from tests.clock import FakeClock
from wharfinger.auth import (
    HttpRefusal,
    InvalidToken,
    JWTVerifier,
    Principal,
    StaticTokens,
    TokenAuth,
    VerifierUnavailable,
    create_token,
)
from wharfinger.auth.server import token_auth
from wharfinger.auth.server.dpop import ALGORITHMS
from wharfinger.auth.server.static_tokens import revoke_token
from wharfinger.auth.server.token_auth import (
    MAX_PLAIN_HEADER_BYTES,
    MAX_TOKEN_BYTES,
    MAX_VERIFYING,
    WARN_SECONDS,
    as_token_auth,
    metadata_url,
)
from wharfinger.auth.server.token_verifier import LEEWAY_SECONDS

URL = "https://docs.example/mcp"


class TableVerifier:
    """A verifier with a table of tokens, which counts its calls."""

    trusted_seconds = 60.0

    def __init__(self, *issuers: str, **results: Principal | Exception) -> None:
        self.issuers = issuers
        self.results: dict[str, Principal | Exception] = dict(results)
        self.calls = 0
        self.forget: Callable[[], None] = lambda: None

    async def verify(self, token: str) -> Principal | None:
        self.calls += 1
        result = self.results.get(token)
        if isinstance(result, Exception):
            raise result
        return result

    def on_change(self, forget: Callable[[], None]) -> None:
        self.forget = forget


def jwt_verifier(issuer: Issuer, **options: Any) -> JWTVerifier:
    return JWTVerifier(issuer=ISSUER, audience=AUDIENCE, fetch=issuer.fetch, **options)


ANN = Principal(subject="ann", issuer="https://id.example", scopes=frozenset({"read"}))


async def await_principal(auth: TokenAuth, fields: dict[bytes, bytes], method: str = "POST") -> Principal:
    result = auth.authenticate(method, URL, fields)
    return result if isinstance(result, Principal) else await result


def authenticate(auth: TokenAuth, value: str | None, method: str = "POST", **headers: str) -> Principal:
    fields = {name.encode(): text.encode("latin-1") for name, text in headers.items()}
    if value is not None:
        fields[b"authorization"] = value.encode("latin-1")
    return asyncio.run(await_principal(auth, fields, method))


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {token}".encode()}


def refusal(auth: TokenAuth, value: str | None, **headers: str) -> tuple[int, str, str]:
    """Return the status, the challenge and the message of a refused request."""
    with pytest.raises(HttpRefusal) as raised:
        authenticate(auth, value, **headers)
    error = raised.value
    fields: Mapping[bytes, bytes] = dict(error.headers)
    return error.http_status, fields.get(b"www-authenticate", b"").decode(), str(error)


def test_a_known_token_returns_its_principal() -> None:
    auth = TokenAuth(TableVerifier(good=ANN))
    assert authenticate(auth, "Bearer good") is ANN
    assert authenticate(auth, "bearer  good\t") is ANN


def test_a_request_without_a_token_gets_a_challenge_without_an_error_code() -> None:
    status, challenge, _ = refusal(
        TokenAuth(TableVerifier("https://id.example"), require_scopes=["read", "list"]), None
    )
    metadata = "https://docs.example/.well-known/oauth-protected-resource/mcp"
    assert (status, challenge) == (401, f'Bearer resource_metadata="{metadata}", scope="read list"')


@pytest.mark.parametrize("value", ["Basic good", "good", "", "Bearergood x"])
def test_other_credentials_than_a_token_get_a_challenge_without_an_error_code(value: str) -> None:
    """RFC 6750 §3.1: there is no error code for a client that does not know which credentials are needed."""
    assert refusal(TokenAuth(TableVerifier(good=ANN)), value)[:2] == (401, "Bearer")


def test_without_an_authorization_server_the_challenge_has_no_metadata_url() -> None:
    assert refusal(TokenAuth(TableVerifier()), None)[:2] == (401, "Bearer")


@pytest.mark.parametrize("value", ["Bearer other", "Bearer", "Bearer ", "Bearer a b", "Bearer é",
                                   "Bearer good, Bearer good", 'Bearer "good"', "Bearer \0"])  # fmt: skip
def test_an_invalid_header_gets_invalid_token_and_is_not_quoted(value: str) -> None:
    status, challenge, message = refusal(TokenAuth(TableVerifier(good=ANN)), value)
    assert (status, challenge) == (401, 'Bearer error="invalid_token"')
    assert "other" not in message


def test_a_token_is_verified_up_to_the_maximum_length() -> None:
    table = TableVerifier()
    refusal(TokenAuth(table), "Bearer " + "a" * MAX_TOKEN_BYTES)
    assert table.calls == 1
    refusal(TokenAuth(table), "Bearer " + "a" * (MAX_TOKEN_BYTES + 1))
    assert table.calls == 1


def test_verifiers_are_tried_in_order_until_one_accepts_the_token() -> None:
    bob = Principal(subject="bob")
    first, second, third = TableVerifier(a=ANN), TableVerifier(b=bob), TableVerifier(b=ANN)
    auth = TokenAuth(first, second, third)
    assert authenticate(auth, "Bearer b") is bob
    assert (first.calls, second.calls, third.calls) == (1, 1, 0)


def test_the_reason_of_a_verifier_is_sent_to_the_client() -> None:
    auth = TokenAuth(TableVerifier(old=InvalidToken("The token has expired.")))
    assert refusal(auth, "Bearer old") == (401, 'Bearer error="invalid_token"', "The token has expired.")


def test_a_token_that_cannot_be_verified_now_is_refused_without_details() -> None:
    auth = TokenAuth(TableVerifier(some=VerifierUnavailable("10.0.0.1 did not answer")))
    status, challenge, message = refusal(auth, "Bearer some")
    assert (status, challenge) == (503, "")
    assert "10.0.0.1" not in message


def test_a_token_is_accepted_by_a_second_verifier_while_the_first_is_down() -> None:
    outage = VerifierUnavailable("down")
    auth = TokenAuth(TableVerifier(a=outage, b=outage), TableVerifier(a=ANN))
    assert authenticate(auth, "Bearer a") is ANN
    assert refusal(auth, "Bearer b")[0] == 503


def test_the_reason_of_an_outage_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    auth = TokenAuth(TableVerifier(some=VerifierUnavailable("10.0.0.1 did not answer")), clock=clock)
    for seconds in (0.0, WARN_SECONDS - 0.001, 0.001):
        clock.now += seconds
        refusal(auth, "Bearer some")
    assert [record.message for record in caplog.records] == [
        "Tokens cannot be verified now: 10.0.0.1 did not answer"
    ] * 2


def test_a_missing_scope_gets_403_with_all_required_scopes() -> None:
    auth = TokenAuth(TableVerifier("https://id.example", good=ANN), require_scopes=["read", "write"])
    status, challenge, _ = refusal(auth, "Bearer good")
    assert status == 403
    assert challenge.startswith('Bearer error="insufficient_scope", scope="read write", resource_metadata="https://')


def test_a_verified_token_is_cached_for_the_time_that_its_verifier_allows() -> None:
    clock, table = FakeClock(), TableVerifier(good=ANN)
    auth = TokenAuth(table, clock=clock)
    authenticate(auth, "Bearer good")
    clock.now += table.trusted_seconds
    authenticate(auth, "Bearer good")
    assert table.calls == 1
    clock.now += 0.001
    authenticate(auth, "Bearer good")
    assert table.calls == 2


@pytest.mark.parametrize("length", [MAX_PLAIN_HEADER_BYTES, MAX_PLAIN_HEADER_BYTES + 1])
def test_a_long_token_is_cached_in_bounded_memory(length: int) -> None:
    token = "x" * (length - len("Bearer "))
    table = TableVerifier(**{token: ANN})
    auth = TokenAuth(table)
    for _ in range(2):
        assert authenticate(auth, f"Bearer {token}") is ANN
    assert (auth.find_verified(bearer(token)) is ANN) == (length <= MAX_PLAIN_HEADER_BYTES)
    assert table.calls == 1
    assert all(len(key) <= MAX_PLAIN_HEADER_BYTES for key in auth._remembered)


def test_a_cached_token_is_refused_after_its_expiry() -> None:
    clock = FakeClock()
    table = TableVerifier(good=Principal(subject="ann", expires=clock.now + 10))
    auth = TokenAuth(table, clock=clock)
    authenticate(auth, "Bearer good")
    clock.now += 10.001
    assert refusal(auth, "Bearer good")[2] == "The token has expired."


def test_a_cached_token_is_verified_again_after_its_verifier_reports_a_change() -> None:
    table = TableVerifier(good=ANN)
    auth = TokenAuth(table)
    authenticate(auth, "Bearer good")
    table.results.clear()
    assert authenticate(auth, "Bearer good") is ANN
    table.forget()
    assert refusal(auth, "Bearer good")[0] == 401


async def test_a_token_verified_before_a_change_is_not_cached_after_it() -> None:
    """The issuer withdraws a key while a token that it signed is being verified."""

    class SlowVerifier(TableVerifier):
        def __init__(self) -> None:
            super().__init__(good=ANN)
            self.started, self.released = asyncio.Event(), asyncio.Event()

        async def verify(self, token: str) -> Principal | None:
            result = await super().verify(token)
            self.started.set()
            await self.released.wait()
            return result

    table = SlowVerifier()
    auth = TokenAuth(table)
    request = bearer("good")
    first = asyncio.create_task(await_principal(auth, request))
    await table.started.wait()
    table.results.clear()
    table.forget()
    table.released.set()
    assert await first is ANN
    with pytest.raises(HttpRefusal):
        await await_principal(auth, request)


async def test_a_slow_verifier_delays_only_its_own_tokens() -> None:
    class SlowVerifier(TableVerifier):
        active = peak = 0

        async def verify(self, token: str) -> Principal | None:
            self.active += 1
            self.peak = max(self.peak, self.active)
            await released.wait()
            self.active -= 1
            return None

    released = asyncio.Event()
    slow = SlowVerifier()
    auth = TokenAuth(TableVerifier(good=ANN), slow)

    tasks = [asyncio.create_task(await_principal(auth, bearer(f"x{number}"))) for number in range(MAX_VERIFYING + 10)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert slow.active == MAX_VERIFYING
    assert await asyncio.wait_for(await_principal(auth, bearer("good")), 5) is ANN
    released.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, HttpRefusal) for error in errors)
    assert slow.peak == MAX_VERIFYING


def test_a_change_clears_the_cache_of_each_server_that_shares_a_verifier(tmp_path: Path) -> None:
    issuer = Issuer()
    token, record = create_token(tmp_path / "tokens", "ann")
    clock = FakeClock()
    files = StaticTokens(tmp_path / "tokens", clock=clock)
    for verifier, valid_token in ((files, token), (jwt_verifier(issuer), issuer.sign())):
        auths = [TokenAuth(verifier), TokenAuth(verifier)]
        for auth in auths:
            authenticate(auth, f"Bearer {valid_token}")
            assert auth._remembered
        if verifier is files:
            revoke_token(tmp_path / "tokens", record.id)
            clock.now += 1.001
            refusal(auths[0], f"Bearer {token}x")
        else:
            for forget in verifier._remote_keys.on_rotation:  # type: ignore[attr-defined]
                forget()
        assert not any(auth._remembered for auth in auths)


@pytest.mark.parametrize("leeway", [0.0, LEEWAY_SECONDS])
def test_a_token_and_its_cached_result_expire_after_the_same_leeway(leeway: float) -> None:
    issuer, clock = Issuer(), FakeClock()
    auth = TokenAuth(jwt_verifier(issuer, clock=clock, leeway=leeway), clock=clock)
    token = issuer.sign(exp=clock.now + 10, iat=clock.now)
    uncached = issuer.sign(exp=clock.now + 10, iat=clock.now, jti="2")
    authenticate(auth, f"Bearer {token}")
    clock.now += 10 + leeway - 0.001
    for valid_token in (token, uncached):
        assert authenticate(auth, f"Bearer {valid_token}").subject == "ann"
    clock.now += 0.002
    for valid_token in (token, uncached):
        assert refusal(auth, f"Bearer {valid_token}")[2] == "The token has expired."


def test_accepted_tokens_are_cached_up_to_a_limit_and_refused_tokens_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_auth, "MAX_REMEMBERED_TOKENS", 2)
    table = TableVerifier(a=ANN, b=ANN, c=ANN)
    auth = TokenAuth(table)
    refusal(auth, "Bearer x")
    for token in ("a", "b", "c", "b", "c"):
        authenticate(auth, f"Bearer {token}")
    assert table.calls == 4
    authenticate(auth, "Bearer a")
    assert table.calls == 5


# -- tokens that are bound to a key

KEY = jwk.generate_key("EC", "P-256")
BOUND_PRINCIPAL = Principal(subject="ann", claims={"cnf": {"jkt": KEY.thumbprint()}})


def proof(clock: FakeClock, id: str, **changes: Any) -> str:
    ath = base64.urlsafe_b64encode(hashlib.sha256(b"bound").digest()).rstrip(b"=").decode()
    claims = {"htm": "POST", "htu": URL, "iat": clock.now, "jti": id, "ath": ath} | changes
    head = {"alg": "ES256", "typ": "dpop+jwt", "jwk": KEY.as_dict(private=False)}
    return jwt.encode(head, claims, KEY)


def test_a_bound_token_needs_a_new_proof_for_each_request() -> None:
    clock = FakeClock()
    auth = TokenAuth(TableVerifier(bound=BOUND_PRINCIPAL), clock=clock)
    assert authenticate(auth, "DPoP bound", dpop=proof(clock, "1")) is BOUND_PRINCIPAL
    assert authenticate(auth, "DPoP bound", dpop=proof(clock, "2")) is BOUND_PRINCIPAL
    status, challenge, message = refusal(auth, "DPoP bound", dpop=proof(clock, "2"))
    assert (status, challenge) == (401, f'DPoP error="invalid_dpop_proof", algs="{" ".join(ALGORITHMS)}"')
    assert "used before" in message


def test_a_bound_token_is_not_accepted_as_a_bearer_token_even_if_cached() -> None:
    clock = FakeClock()
    auth = TokenAuth(TableVerifier(bound=BOUND_PRINCIPAL), clock=clock)
    assert refusal(auth, "Bearer bound")[:2] == (401, f'DPoP error="invalid_token", algs="{" ".join(ALGORITHMS)}"')
    authenticate(auth, "DPoP bound", dpop=proof(clock, "1"))
    assert refusal(auth, "Bearer bound")[:2] == (401, f'DPoP error="invalid_token", algs="{" ".join(ALGORITHMS)}"')
    assert refusal(auth, "DPoP bound")[:2] == (401, f'DPoP error="invalid_dpop_proof", algs="{" ".join(ALGORITHMS)}"')


def test_a_confirmation_that_is_null_binds_a_token_to_nothing() -> None:
    """A bug: the token was refused, with the advice to send it as Bearer, as it was sent."""
    auth = TokenAuth(TableVerifier(unbound=Principal(subject="ann", claims={"cnf": None})))
    assert authenticate(auth, "Bearer unbound").subject == "ann"


def test_a_bearer_token_is_not_accepted_with_a_proof() -> None:
    clock = FakeClock()
    auth = TokenAuth(TableVerifier(bound=ANN), clock=clock)
    assert "not bound to a key" in refusal(auth, "DPoP bound", dpop=proof(clock, "1"))[2]


def test_a_token_bound_to_a_certificate_is_not_asked_for_as_a_bearer_token() -> None:
    """A bug: the message said to send it as Bearer, as it was sent (RFC 8705 §3.1 binds to a certificate)."""
    auth = TokenAuth(TableVerifier(bound=Principal(subject="ann", claims={"cnf": {"x5t#S256": "A"}})))
    for header in ("Bearer bound", "DPoP bound"):
        assert "this server cannot check" in refusal(auth, header)[2]


def test_a_proof_is_valid_for_one_method_and_url() -> None:
    clock = FakeClock()
    auth = TokenAuth(TableVerifier(bound=BOUND_PRINCIPAL), clock=clock)
    assert refusal(auth, "DPoP bound", dpop=proof(clock, "1", htm="GET"))[0] == 401
    assert refusal(auth, "DPoP bound", dpop=proof(clock, "2", htu="https://docs.example/other"))[0] == 401


# -- metadata


def test_the_metadata_names_the_resource_its_authorization_servers_and_scopes() -> None:
    auth = TokenAuth(TableVerifier("https://a.example"), TableVerifier("https://b.example", "https://a.example"),
                     require_scopes=["read"], scopes=["write", "read"])  # fmt: skip
    assert json.loads(auth.metadata(URL)) == {
        "resource": URL,
        "authorization_servers": ["https://a.example", "https://b.example"],
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": list(ALGORITHMS),
        "scopes_supported": ["read", "write"],
    }


@pytest.mark.parametrize(
    ("url", "metadata"),
    [("https://a.example/mcp", "https://a.example/.well-known/oauth-protected-resource/mcp"),
     ("https://a.example", "https://a.example/.well-known/oauth-protected-resource"),
     ("http://[::1]:8000/x/mcp", "http://[::1]:8000/.well-known/oauth-protected-resource/x/mcp")],
)  # fmt: skip
def test_the_metadata_is_at_the_well_known_url_of_the_resource(url: str, metadata: str) -> None:
    assert metadata_url(url) == metadata


def test_a_verifier_or_a_list_of_verifiers_becomes_a_token_auth() -> None:
    first, second = TableVerifier(), TableVerifier()
    assert as_token_auth(first).verifiers == (first,)
    assert as_token_auth([first, second]).verifiers == (first, second)
    auth = TokenAuth(first)
    assert as_token_auth(auth) is auth
    with pytest.raises(ValueError, match="needs a verifier"):
        as_token_auth([])
