"""From the Authorization header to a principal: challenges, scopes, cached tokens, and proofs of keys (DPoP)."""

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
    MAX_KEY_BYTES,
    MAX_TOKEN_BYTES,
    MAX_VERIFYING,
    WARN_SECONDS,
    as_token_auth,
    metadata_url,
)
from wharfinger.auth.server.token_verifier import LEEWAY_SECONDS

URL = "https://docs.example/mcp"


class Clock:
    """A clock that is set by hand."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class TableVerifier:
    """A verifier that knows some tokens, and counts its calls."""

    trusted_seconds = 60.0

    def __init__(self, *issuers: str, **known: Principal | Exception) -> None:
        self.issuers = issuers
        self.known: dict[str, Principal | Exception] = dict(known)
        self.calls = 0
        self.forget: Callable[[], None] = lambda: None

    async def verify(self, token: str) -> Principal | None:
        self.calls += 1
        found = self.known.get(token)
        if isinstance(found, Exception):
            raise found
        return found

    def on_change(self, forget: Callable[[], None]) -> None:
        self.forget = forget


def jwt_verifier(issuer: Issuer, **options: Any) -> JWTVerifier:
    return JWTVerifier(issuer=ISSUER, audience=AUDIENCE, fetch=issuer.fetch, **options)


ANN = Principal(subject="ann", issuer="https://id.example", scopes=frozenset({"read"}))


def authenticate(auth: TokenAuth, value: str | None, method: str = "POST", **headers: str) -> Principal:
    async def main() -> Principal:
        fields: dict[bytes, bytes] = {name.encode(): text.encode("latin-1") for name, text in headers.items()}
        if value is not None:
            fields[b"authorization"] = value.encode("latin-1")
        found = auth.authenticate(method, URL, fields)
        return found if isinstance(found, Principal) else await found

    return asyncio.run(main())


def refusal(auth: TokenAuth, value: str | None, **headers: str) -> tuple[int, str, str]:
    """Return the status, the challenge and the message of a refused request."""
    with pytest.raises(HttpRefusal) as refused:
        authenticate(auth, value, **headers)
    error = refused.value
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


def test_without_an_authorization_server_the_challenge_has_no_metadata_url() -> None:
    assert refusal(TokenAuth(TableVerifier()), None)[:2] == (401, "Bearer")


@pytest.mark.parametrize("value", ["Bearer other", "Bearer", "Bearer ", "Basic good", "good", "Bearer a b", "Bearer é",
                                   "Bearer good, Bearer good", 'Bearer "good"', "Bearer \0"])  # fmt: skip
def test_an_invalid_header_gets_invalid_token_and_is_not_repeated(value: str) -> None:
    status, challenge, message = refusal(TokenAuth(TableVerifier(good=ANN)), value)
    assert (status, challenge) == (401, 'Bearer error="invalid_token"')
    assert "other" not in message


def test_the_longest_token_is_verified_and_a_longer_one_is_not() -> None:
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


def test_another_verifier_may_accept_a_token_while_one_is_down() -> None:
    down = VerifierUnavailable("down")
    auth = TokenAuth(TableVerifier(a=down, b=down), TableVerifier(a=ANN))
    assert authenticate(auth, "Bearer a") is ANN
    assert refusal(auth, "Bearer b")[0] == 503


def test_the_reason_of_an_outage_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
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


def test_a_verified_token_is_cached_for_as_long_as_its_verifier_allows() -> None:
    clock, table = Clock(), TableVerifier(good=ANN)
    auth = TokenAuth(table, clock=clock)
    authenticate(auth, "Bearer good")
    clock.now += table.trusted_seconds
    authenticate(auth, "Bearer good")
    assert table.calls == 1
    clock.now += 0.001
    authenticate(auth, "Bearer good")
    assert table.calls == 2


@pytest.mark.parametrize("length", [MAX_KEY_BYTES, MAX_KEY_BYTES + 1])
def test_a_long_token_is_cached_in_bounded_memory(length: int) -> None:
    token = "x" * (length - len("Bearer "))
    table = TableVerifier(**{token: ANN})
    auth = TokenAuth(table)
    for _ in range(2):
        assert authenticate(auth, f"Bearer {token}") is ANN
    assert (auth.known({b"authorization": f"Bearer {token}".encode()}) is ANN) == (length <= MAX_KEY_BYTES)
    assert table.calls == 1
    assert all(len(key) <= MAX_KEY_BYTES for key in auth._remembered)


def test_a_cached_token_ends_at_its_expiry() -> None:
    clock = Clock()
    table = TableVerifier(good=Principal(subject="ann", expires=clock.now + 10))
    auth = TokenAuth(table, clock=clock)
    authenticate(auth, "Bearer good")
    clock.now += 10.001
    assert refusal(auth, "Bearer good")[2] == "The token has expired."


def test_a_token_whose_verifier_reports_a_change_is_verified_again() -> None:
    table = TableVerifier(good=ANN)
    auth = TokenAuth(table)
    authenticate(auth, "Bearer good")
    table.known.clear()
    assert authenticate(auth, "Bearer good") is ANN
    table.forget()
    assert refusal(auth, "Bearer good")[0] == 401


def test_a_token_verified_before_a_change_is_not_cached_after_it() -> None:
    """The issuer withdraws a key while a token that it signed is being verified."""

    class Slow(TableVerifier):
        def __init__(self) -> None:
            super().__init__(good=ANN)
            self.began, self.released = asyncio.Event(), asyncio.Event()

        async def verify(self, token: str) -> Principal | None:
            found = await super().verify(token)
            self.began.set()
            await self.released.wait()
            return found

    async def main() -> None:
        table = Slow()
        auth = TokenAuth(table)
        request = {b"authorization": b"Bearer good"}

        async def ask() -> Principal:
            found = auth.authenticate("POST", URL, request)
            return found if isinstance(found, Principal) else await found

        first = asyncio.create_task(ask())
        await table.began.wait()
        table.known.clear()
        table.forget()
        table.released.set()
        assert await first is ANN
        with pytest.raises(HttpRefusal):
            await ask()

    asyncio.run(main())


def test_a_slow_verifier_delays_only_its_own_tokens() -> None:
    class Slow(TableVerifier):
        most = now = 0

        async def verify(self, token: str) -> Principal | None:
            self.now += 1
            self.most = max(self.most, self.now)
            await released.wait()
            self.now -= 1
            return None

    released = asyncio.Event()

    async def main() -> None:
        quick, slow = TableVerifier(good=ANN), Slow()
        auth = TokenAuth(quick, slow)

        async def ask(token: str) -> Principal:
            found = auth.authenticate("POST", URL, {b"authorization": f"Bearer {token}".encode()})
            return found if isinstance(found, Principal) else await found

        waiting = [asyncio.create_task(ask(f"x{number}")) for number in range(MAX_VERIFYING + 10)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert slow.now == MAX_VERIFYING
        assert await asyncio.wait_for(ask("good"), 5) is ANN
        released.set()
        refused = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(error, HttpRefusal) for error in refused)
        assert slow.most == MAX_VERIFYING

    asyncio.run(main())


def test_a_change_reaches_each_server_that_shares_a_verifier(tmp_path: Path) -> None:
    issuer = Issuer()
    token, record = create_token(tmp_path / "tokens", "ann")
    clock = Clock()
    files = StaticTokens(tmp_path / "tokens", clock=clock)
    for verifier, given in ((files, token), (jwt_verifier(issuer), issuer.sign())):
        both = [TokenAuth(verifier), TokenAuth(verifier)]
        for auth in both:
            authenticate(auth, f"Bearer {given}")
            assert auth._remembered
        if verifier is files:
            revoke_token(tmp_path / "tokens", record.id)
            clock.now += 1.001
            refusal(both[0], f"Bearer {token}x")
        else:
            for forget in verifier._remote.on_rotation:  # type: ignore[attr-defined]
                forget()
        assert not any(auth._remembered for auth in both)


@pytest.mark.parametrize("leeway", [0.0, LEEWAY_SECONDS])
def test_a_token_and_its_cached_result_end_after_the_same_leeway(leeway: float) -> None:
    issuer, clock = Issuer(), Clock()
    auth = TokenAuth(jwt_verifier(issuer, clock=clock, leeway=leeway), clock=clock)
    token = issuer.sign(exp=clock.now + 10, iat=clock.now)
    later = issuer.sign(exp=clock.now + 10, iat=clock.now, jti="2")
    authenticate(auth, f"Bearer {token}")
    clock.now += 10 + leeway - 0.001
    for given in (token, later):
        assert authenticate(auth, f"Bearer {given}").subject == "ann"
    clock.now += 0.002
    for given in (token, later):
        assert refusal(auth, f"Bearer {given}")[2] == "The token has expired."


def test_accepted_tokens_are_cached_up_to_a_limit_and_refused_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
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
BOUND = Principal(subject="ann", claims={"cnf": {"jkt": KEY.thumbprint()}})


def proof(clock: Clock, id: str, **changes: Any) -> str:
    ath = base64.urlsafe_b64encode(hashlib.sha256(b"bound").digest()).rstrip(b"=").decode()
    claims = {"htm": "POST", "htu": URL, "iat": clock.now, "jti": id, "ath": ath} | changes
    head = {"alg": "ES256", "typ": "dpop+jwt", "jwk": KEY.as_dict(private=False)}
    return jwt.encode(head, claims, KEY)


def test_a_bound_token_needs_a_new_proof_for_each_request() -> None:
    clock = Clock()
    auth = TokenAuth(TableVerifier(bound=BOUND), clock=clock)
    assert authenticate(auth, "DPoP bound", dpop=proof(clock, "1")) is BOUND
    assert authenticate(auth, "DPoP bound", dpop=proof(clock, "2")) is BOUND
    status, challenge, message = refusal(auth, "DPoP bound", dpop=proof(clock, "2"))
    assert (status, challenge) == (401, f'DPoP error="invalid_dpop_proof", algs="{" ".join(ALGORITHMS)}"')
    assert "used before" in message


def test_a_bound_token_is_not_accepted_as_a_plain_one_even_if_cached() -> None:
    clock = Clock()
    auth = TokenAuth(TableVerifier(bound=BOUND), clock=clock)
    assert refusal(auth, "Bearer bound")[:2] == (401, f'DPoP error="invalid_token", algs="{" ".join(ALGORITHMS)}"')
    authenticate(auth, "DPoP bound", dpop=proof(clock, "1"))
    assert refusal(auth, "Bearer bound")[:2] == (401, f'DPoP error="invalid_token", algs="{" ".join(ALGORITHMS)}"')
    assert refusal(auth, "DPoP bound")[:2] == (401, f'DPoP error="invalid_dpop_proof", algs="{" ".join(ALGORITHMS)}"')


def test_a_plain_token_is_not_accepted_with_a_proof() -> None:
    clock = Clock()
    auth = TokenAuth(TableVerifier(bound=ANN), clock=clock)
    assert "not bound to a key" in refusal(auth, "DPoP bound", dpop=proof(clock, "1"))[2]


def test_a_proof_is_valid_for_one_method_and_url() -> None:
    clock = Clock()
    auth = TokenAuth(TableVerifier(bound=BOUND), clock=clock)
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
    one, other = TableVerifier(), TableVerifier()
    assert as_token_auth(one).verifiers == (one,)
    assert as_token_auth([one, other]).verifiers == (one, other)
    auth = TokenAuth(one)
    assert as_token_auth(auth) is auth
    with pytest.raises(ValueError, match="needs a verifier"):
        as_token_auth([])
