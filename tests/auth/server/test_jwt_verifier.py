"""JWT access tokens: valid tokens are accepted, and forged or misdirected tokens are refused (security: A19, A20)."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest
from joserfc import jwk
from joserfc.errors import SecurityWarning

from tests.auth.server.keys import AUDIENCE, ISSUER, Issuer, claims
from tests.clock import FakeClock
from wharfinger.auth import InvalidToken, JWTVerifier, Principal, VerifierUnavailable
from wharfinger.auth.server.key_set import COOLDOWN_SECONDS, FRESH_SECONDS, MAX_KEYS, STALE_SECONDS, RemoteKeys
from wharfinger.auth.server.token_verifier import LEEWAY_SECONDS
from wharfinger.protocol.interfaces import HttpResponse


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def verifier(issuer: Issuer, /, **options: Any) -> JWTVerifier:
    return JWTVerifier(**{"issuer": ISSUER, "audience": AUDIENCE, "fetch": issuer.fetch} | options)


def verify(issuer: Issuer, token: str, **options: Any) -> Principal | None:
    return asyncio.run(verifier(issuer, **options).verify(token))


def segment(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# -- valid tokens


def test_a_valid_token_gives_a_principal_with_its_subject_client_and_scopes(issuer: Issuer) -> None:
    token = issuer.sign(scope="docs.read docs.write", client_id="editor", groups=["staff"])
    principal = verify(issuer, token)
    assert principal is not None
    assert (principal.subject, principal.issuer, principal.client) == ("ann", ISSUER, "editor")
    assert principal.scopes == {"docs.read", "docs.write"}
    assert principal.claims["groups"] == ["staff"]
    assert principal.expires == principal.claims["exp"] + LEEWAY_SECONDS


@pytest.mark.parametrize("kind", ["EC", "RSA", "OKP"])
def test_each_kind_of_key_is_accepted(issuer: Issuer, kind: str) -> None:
    issuer.rotate(kind)
    assert verify(issuer, issuer.sign()) is not None


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None])
def test_the_types_of_access_tokens_are_accepted(issuer: Issuer, typ: str | None) -> None:
    assert verify(issuer, issuer.sign(header={"typ": typ})) is not None


@pytest.mark.parametrize("header", [{"pi.atm": "2"}, {"x5c": ["A" * 1000]}])
def test_unknown_and_long_headers_are_accepted(issuer: Issuer, header: dict[str, Any]) -> None:
    """A bug: unknown parameters, which must be ignored (RFC 7515 §4), and more than 512 characters were refused."""
    assert verify(issuer, issuer.sign(header=header)) is not None


def test_one_of_several_audiences_is_enough(issuer: Issuer) -> None:
    assert verify(issuer, issuer.sign(aud=["https://other.example", AUDIENCE])) is not None
    assert verify(issuer, issuer.sign(aud="b"), audience=["a", "b"]) is not None


@pytest.mark.parametrize(
    ("changes", "scopes"),
    [({"scope": None, "scp": ["a", "b"]}, {"a", "b"}), ({"scope": None, "scp": "a b"}, {"a", "b"}),
     ({"scope": ""}, set()), ({"scope": 7}, set()), ({"scope": None, "scp": ["a", 7]}, {"a"})],
)  # fmt: skip
def test_scopes_are_read_in_every_form_that_issuers_use(
    issuer: Issuer, changes: dict[str, Any], scopes: set[str]
) -> None:
    principal = verify(issuer, issuer.sign(**changes))
    assert principal is not None
    assert principal.scopes == scopes


def test_a_token_without_a_key_id_is_tried_with_each_key(issuer: Issuer) -> None:
    signing_key = issuer.keys[0]
    issuer.keys = [issuer.rotate("RSA"), jwk.generate_key("EC", "P-256", {"kid": "x"}), signing_key]
    assert verify(issuer, issuer.sign(signing_key, header={"kid": None})) is not None


def test_configured_keys_are_used_without_a_fetch(issuer: Issuer) -> None:
    assert verify(issuer, issuer.sign(), keys=issuer.key_set()) is not None
    assert issuer.requested_urls == []


# -- tokens that are refused (A19)


def _make_unsigned_token(issuer: Issuer) -> str:
    return f"{segment({'alg': 'none', 'typ': 'at+jwt'})}.{segment(claims())}."


def _sign_with_public_key(issuer: Issuer) -> str:
    secret = issuer.rotate("RSA").as_pem(private=False)
    signed = f"{segment({'alg': 'HS256', 'kid': issuer.keys[0].kid})}.{segment(claims())}"
    return f"{signed}.{segment(hmac.digest(secret, signed.encode(), 'sha256'))}"


def _add_own_key_to_header(issuer: Issuer) -> str:
    own_key = jwk.generate_key("EC", "P-256", {"kid": "mine"})
    return issuer.sign(own_key, header={"jwk": own_key.as_dict(private=False), "jku": "https://evil.example/keys"})


def _replace_payload(issuer: Issuer) -> str:
    head, _, signature = issuer.sign().split(".")
    return f"{head}.{segment(claims(sub='root'))}.{signature}"


def _sign_with_another_key(issuer: Issuer) -> str:
    return issuer.sign(jwk.generate_key("EC", "P-256", {"kid": issuer.keys[0].kid}))


REFUSED_TOKENS = {
    "alg none": _make_unsigned_token,
    "the public key used as an HMAC secret": _sign_with_public_key,
    "a key of its own in the header": _add_own_key_to_header,
    "another payload": _replace_payload,
    "another key with the same id": _sign_with_another_key,
    "an unknown key id": lambda issuer: issuer.sign(header={"kid": "unknown"}),
    "a key id that is a path": lambda issuer: issuer.sign(header={"kid": "../../etc/passwd"}),
    "the audience of another server": lambda issuer: issuer.sign(aud="https://other.example/mcp"),
    "an audience that begins with ours": lambda issuer: issuer.sign(aud=AUDIENCE + "/more"),
    "an audience that ours begins with": lambda issuer: issuer.sign(aud=AUDIENCE[:-1]),
    "audiences that hold ours as a part": lambda issuer: issuer.sign(aud=[f"x {AUDIENCE} y"]),
    "no audience": lambda issuer: issuer.sign(aud=None),
    "an audience that is an object": lambda issuer: issuer.sign(aud={AUDIENCE: True}),
    "no expiry": lambda issuer: issuer.sign(exp=None),
    "an expiry that is a text": lambda issuer: issuer.sign(exp="9999999999"),
    "an expiry that is true": lambda issuer: issuer.sign(exp=True),
    "an infinite expiry": lambda issuer: issuer.sign(exp=2**53),
    "an expiry in the past": lambda issuer: issuer.sign(exp=1),
    "a start in the future": lambda issuer: issuer.sign(nbf=2**40),
    "no subject": lambda issuer: issuer.sign(sub=None),
    "an empty subject": lambda issuer: issuer.sign(sub=""),
    "a subject that is a number": lambda issuer: issuer.sign(sub=7),
    "the type of another document": lambda issuer: issuer.sign(header={"typ": "dpop+jwt"}),
    "a logout token": lambda issuer: issuer.sign(header={"typ": "logout+jwt"}),
}


@pytest.mark.parametrize("name", REFUSED_TOKENS)
def test_a_forged_or_misdirected_token_is_refused(issuer: Issuer, name: str) -> None:
    token = REFUSED_TOKENS[name](issuer)
    with pytest.raises(InvalidToken) as refusal:
        verify(issuer, token)
    assert "ann" not in str(refusal.value)
    assert not any("evil" in url for url in issuer.requested_urls), "key URLs in a token are not requested"


def test_a_critical_extension_is_refused(issuer: Issuer) -> None:
    head, payload, signature = issuer.sign().split(".")
    fields = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))) | {"crit": ["b64"], "b64": False}
    with pytest.raises(InvalidToken, match="not an access token"):
        verify(issuer, f"{segment(fields)}.{payload}.{signature}")


@pytest.mark.parametrize(
    "token",
    ["", "a", "a.b", "a.b.c.d", "é.b.c", "..", f"{segment([])}.{segment({})}.x", f"{segment(b'[' * 5000)}.x.x",
     "x" * 100_000, f"{segment({'alg': 'ES256'})}.{segment(b'{' * 9000)}.x", f"{segment({'alg': 'ES256'})}.%%.x"],
)  # fmt: skip
def test_text_that_is_not_a_jwt_is_left_to_other_verifiers(issuer: Issuer, token: str) -> None:
    assert verify(issuer, token) is None


@pytest.mark.parametrize("iss", [ISSUER + "/", ISSUER.upper(), "https://id.example.evil", None, ["https://id.example"]])
def test_a_token_of_another_issuer_is_left_to_other_verifiers(issuer: Issuer, iss: Any) -> None:
    assert verify(issuer, issuer.sign(iss=iss)) is None


def test_times_may_differ_by_at_most_the_leeway(issuer: Issuer) -> None:
    now = 2_000_000_000.0

    def is_valid(**times: float) -> bool:
        token = issuer.sign(**{"exp": now + 60, "iat": now} | times)
        try:
            return verify(issuer, token, clock=lambda: now) is not None
        except InvalidToken:
            return False

    assert [is_valid(exp=now - LEEWAY_SECONDS + 1), is_valid(exp=now - LEEWAY_SECONDS)] == [True, False]
    assert [is_valid(nbf=now + LEEWAY_SECONDS), is_valid(nbf=now + LEEWAY_SECONDS + 1)] == [True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"issuer": "http://id.example"}, "not https"), ({"issuer": "id"}, "not an http"), ({"audience": ""}, "audience"),
     ({"audience": []}, "audience"), ({"algorithms": ["HS256"]}, "HS256"), ({"algorithms": ["none"]}, "none"),
     ({"algorithms": []}, "needs an algorithm"),
     ({"jwks_url": "http://id.example/keys"}, "not https")],
)  # fmt: skip
def test_unsafe_or_empty_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verifier(Issuer(), **options)


# -- the keys of the issuer (A20)


async def wait_for_fetch(keys: RemoteKeys) -> None:
    """Wait for the fetch that runs in the background."""
    if keys._fetching is not None:
        await asyncio.wait((keys._fetching,))


async def test_only_tokens_with_an_unknown_key_wait_for_the_fetch(issuer: Issuer) -> None:
    clock, released = FakeClock(1000.0), asyncio.Event()

    async def slow_fetch(verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        await released.wait()
        return await issuer.fetch(verb, url, headers, body)

    keys = RemoteKeys(ISSUER, slow_fetch, clock=clock)
    old = issuer.keys[0]
    released.set()
    assert await keys.find(old.kid)
    released.clear()
    new = issuer.rotate()
    issuer.keys.append(old)
    clock.now += COOLDOWN_SECONDS + 0.001
    waiting = [asyncio.create_task(keys.find(new.kid)) for _ in range(50)]
    await asyncio.sleep(0)
    assert len(await keys.find(old.kid)) == 1
    assert not any(task.done() for task in waiting)
    released.set()
    assert all(await asyncio.gather(*waiting))
    assert issuer.requested_urls.count(f"{ISSUER}/keys") == 2


async def test_the_keys_are_fetched_once_for_many_tokens_at_the_same_time(issuer: Issuer) -> None:
    jwt_verifier = verifier(issuer)
    assert all(await asyncio.gather(*(jwt_verifier.verify(issuer.sign()) for _ in range(20))))
    assert issuer.requested_urls == [f"{ISSUER}/.well-known/oauth-authorization-server", f"{ISSUER}/keys"]


async def test_a_rotated_key_is_fetched_and_verified_tokens_are_dropped(issuer: Issuer) -> None:
    clock, rotations = FakeClock(1000.0), []
    keys = RemoteKeys(ISSUER, issuer.fetch, clock=clock)
    keys.on_rotation.append(lambda: rotations.append(True))
    old = issuer.keys[0].kid
    assert await keys.find(old)
    assert rotations == []
    new = issuer.rotate().kid
    clock.now += COOLDOWN_SECONDS
    assert await keys.find(new) == [], "forged key ids must not make this server send requests"
    clock.now += 0.001
    assert len(await keys.find(new)) == 1
    assert await keys.find(old) == []
    assert rotations == [True]


@pytest.mark.parametrize("kind", ["EC", "RSA", "OKP"])
@pytest.mark.parametrize("id", ["same", None])
async def test_a_replaced_key_is_noticed_if_the_new_one_has_the_same_id_or_none(
    issuer: Issuer, kind: str, id: str | None
) -> None:
    """A bug: verified tokens of the old key were still trusted, since only ids were compared."""

    def publish() -> None:
        key = issuer.rotate(kind).as_dict(private=False)
        del key["kid"]
        key |= {"kid": id} if id else {}
        issuer.documents[f"{ISSUER}/keys"] = json.dumps({"keys": [key]}).encode()

    clock, rotations = FakeClock(1000.0), []
    keys = RemoteKeys(ISSUER, issuer.fetch, clock=clock)
    keys.on_rotation.append(lambda: rotations.append(True))
    publish()
    for _ in range(2):
        assert await keys.find(id)
        await wait_for_fetch(keys)
        clock.now += FRESH_SECONDS + 0.001
    assert rotations == [], "the same key was fetched again"
    publish()
    assert await keys.find(id)
    await wait_for_fetch(keys)
    assert rotations == [True]


async def test_old_keys_are_fetched_again_and_remain_in_use_while_the_issuer_is_down(issuer: Issuer) -> None:
    clock = FakeClock(1000.0)
    keys = RemoteKeys(ISSUER, issuer.fetch, clock=clock)
    kid = issuer.keys[0].kid
    assert await keys.find(kid)
    requests = len(issuer.requested_urls)
    clock.now += FRESH_SECONDS
    assert await keys.find(kid)
    assert len(issuer.requested_urls) == requests
    issuer.down = True
    clock.now += 0.001
    assert await keys.find(kid), "the known keys are used"
    await wait_for_fetch(keys)
    assert len(issuer.requested_urls) == requests + 1
    clock.now = 1000.0 + STALE_SECONDS
    assert await keys.find(kid)
    await wait_for_fetch(keys)
    clock.now += COOLDOWN_SECONDS + 1
    with pytest.raises(VerifierUnavailable):
        await keys.find(kid)
    with pytest.raises(VerifierUnavailable, match="a moment ago"):
        await keys.find(kid)


def test_tokens_cannot_be_verified_if_the_issuer_is_unreachable(issuer: Issuer) -> None:
    issuer.down = True
    with pytest.raises(VerifierUnavailable, match="did not answer"):
        verify(issuer, issuer.sign())


@pytest.mark.parametrize(
    ("url", "document", "message"),
    [("/.well-known/oauth-authorization-server", {"issuer": "https://evil.example", "jwks_uri": ISSUER + "/keys"},
      "names the issuer 'https://evil.example'"),
     ("/.well-known/oauth-authorization-server", {"issuer": ISSUER}, "no jwks_uri"),
     ("/.well-known/oauth-authorization-server", [], "not the metadata"),
     ("/keys", {"keys": []}, "no key"), ("/keys", {"keys": 7}, "no key"), ("/keys", [], "no set of keys"),
     ("/keys", {}, "no set of keys"), ("/keys", {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, "no key"),
     ("/keys", {"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, 7, {"kty": []}]}, "no key")],
)  # fmt: skip
def test_tokens_cannot_be_verified_if_the_metadata_or_keys_are_invalid(
    issuer: Issuer, url: str, document: Any, message: str
) -> None:
    issuer.documents[ISSUER + url] = json.dumps(document).encode()
    with pytest.raises(VerifierUnavailable, match=message):
        verify(issuer, issuer.sign())


def test_a_key_for_encryption_does_not_verify_signatures(issuer: Issuer) -> None:
    token = issuer.sign()
    key_set = {"keys": [issuer.keys[0].as_dict(private=False, use="enc")]}
    issuer.documents[f"{ISSUER}/keys"] = json.dumps(key_set).encode()
    with pytest.raises(VerifierUnavailable, match="no key"):
        verify(issuer, token)


def test_a_key_is_used_with_its_own_algorithm_only(issuer: Issuer) -> None:
    key = issuer.rotate("RSA")
    key_set = {"keys": [key.as_dict(private=False, alg="RS256")]}
    issuer.documents[f"{ISSUER}/keys"] = json.dumps(key_set).encode()
    assert verify(issuer, issuer.sign(key)) is not None
    with pytest.raises(InvalidToken, match="signature"):
        verify(issuer, issuer.sign(key, header={"alg": "PS256"}))


def test_a_short_rsa_key_is_not_used(issuer: Issuer) -> None:
    with pytest.warns(SecurityWarning):
        issuer.rotate("RSA", size=1024)
    with pytest.raises(VerifierUnavailable, match="no key"):
        verify(issuer, issuer.sign())


def test_keys_beyond_the_limit_are_ignored(issuer: Issuer) -> None:
    signing_key = issuer.keys[0]
    others = [jwk.generate_key("EC", "P-256", {"kid": str(n)}) for n in range(MAX_KEYS)]
    issuer.keys = [*others[1:], signing_key]
    assert verify(issuer, issuer.sign(signing_key)) is not None
    issuer.keys = [*others, signing_key]
    with pytest.raises(InvalidToken, match="signature"):
        verify(issuer, issuer.sign(signing_key))
