"""Issuers on real sockets: the URL of their metadata, and keys that are slow, absent, rotated or invalid (A19, A20)."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import ipaddress
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwk

from tests.auth.server.keys import Issuer
from wharfinger.auth import (
    HttpRefusal,
    IntrospectionVerifier,
    InvalidToken,
    JWTVerifier,
    Principal,
    TokenAuth,
    VerifierUnavailable,
)
from wharfinger.auth.client.sign_in_fetch import MAX_BODY_BYTES
from wharfinger.auth.server import introspection, jwt_verifier, key_set

AUDIENCE = "http://127.0.0.1:9/mcp"
OAUTH, OPENID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """A web site that records the path of each request."""

    def __init__(self) -> None:
        self.url = ""
        self.pages: dict[str, Any] = {}
        """Documents, bytes or request handlers by path."""
        self.requested_paths: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requested_paths.append(request.path)
        page = self.pages.get(request.path)
        if page is None:
            raise web.HTTPNotFound
        if callable(page):
            response: web.StreamResponse = await page(request)
            return response
        return web.Response(body=page if isinstance(page, bytes) else json.dumps(page).encode())


@contextlib.asynccontextmanager
async def serve_site(tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        site.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        yield site
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def serve_issuer(
    path: str = "", metadata: str = OAUTH, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Site, Issuer]]:
    """Serve an issuer with its metadata at one well-known path and its keys at `/keys`."""
    async with serve_site(tls) as site:
        issuer = Issuer(site.url + path)
        site.pages[metadata] = {"issuer": issuer.name, "jwks_uri": f"{site.url}/keys"}
        site.pages["/keys"] = issuer.key_set()
        yield site, issuer


def sign_token(issuer: Issuer, *key: Any, **changes: Any) -> str:
    return issuer.sign(*key, **{"iss": issuer.name, "aud": AUDIENCE} | changes)


def verifier(issuer: Issuer, **options: Any) -> JWTVerifier:
    return JWTVerifier(issuer=issuer.name, audience=AUDIENCE, **options)


async def authenticate(auth: TokenAuth, token: str) -> Principal:
    result = auth.authenticate("POST", AUDIENCE, {b"authorization": b"Bearer " + token.encode()})
    return result if isinstance(result, Principal) else await result


# -- metadata


@pytest.mark.parametrize(
    ("path", "metadata", "requests"),
    [("", OAUTH, 1), ("", OPENID, 2), ("/tenant/a", f"{OAUTH}/tenant/a", 1), ("/tenant/a", f"{OPENID}/tenant/a", 2),
     ("/tenant/a", f"/tenant/a{OPENID}", 3)],
)  # fmt: skip
async def test_metadata_is_read_from_each_well_known_url_of_an_issuer(path: str, metadata: str, requests: int) -> None:
    async with serve_issuer(path, metadata) as (site, issuer):
        principal = await verifier(issuer).verify(sign_token(issuer))
        assert principal is not None
        assert principal.issuer == site.url + path
        assert site.requested_paths[-2:] == [metadata, "/keys"]
        assert len(site.requested_paths) == requests + 1


async def test_keys_that_were_fetched_before_are_not_fetched_for_a_token() -> None:
    async with serve_issuer() as (site, issuer):
        fetched = verifier(issuer)
        await fetched.fetch_keys()
        assert site.requested_paths == [OAUTH, "/keys"]
        assert await fetched.verify(sign_token(issuer))
        await verifier(issuer, keys=issuer.key_set()).fetch_keys()
        assert site.requested_paths == [OAUTH, "/keys"]


async def test_metadata_of_another_tenant_is_not_used() -> None:
    async with serve_issuer("/tenant/a", f"{OAUTH}/tenant/a") as (site, issuer):
        site.pages[f"{OAUTH}/tenant/a"]["issuer"] = f"{site.url}/tenant/b"
        with pytest.raises(VerifierUnavailable, match="names the issuer"):
            await verifier(issuer).verify(sign_token(issuer))
        assert "/keys" not in site.requested_paths


@pytest.mark.parametrize(
    "jwks_uri", ["http://169.254.169.254/keys", "https://10.0.0.1/keys", "file:///etc/passwd", "/keys"]
)
async def test_keys_are_not_fetched_from_private_addresses_or_over_plain_http(jwks_uri: str) -> None:
    async with serve_issuer() as (site, issuer):
        site.pages[OAUTH]["jwks_uri"] = jwks_uri
        with pytest.raises(VerifierUnavailable, match="is not requested"):
            await verifier(issuer).verify(sign_token(issuer))


async def test_a_redirect_to_other_keys_is_not_followed() -> None:
    async with serve_site() as attacker_site, serve_issuer() as (site, issuer):
        attacker_site.pages["/keys"] = issuer.key_set()

        async def redirect(request: web.Request) -> web.Response:
            raise web.HTTPFound(f"{attacker_site.url}/keys")

        site.pages["/keys"] = redirect
        with pytest.raises(VerifierUnavailable, match="302"):
            await verifier(issuer).verify(sign_token(issuer))
        assert attacker_site.requested_paths == []


async def test_key_urls_and_keys_in_token_headers_are_ignored() -> None:
    async with serve_site() as attacker_site, serve_issuer() as (_, issuer):
        forged_key = jwk.generate_key("RSA", 2048, {"kid": issuer.keys[0].kid})
        attacker_site.pages["/keys"] = {"keys": [forged_key.as_dict(private=False)]}
        attacker_site.pages["/certificate"] = forged_key.as_pem(private=False)
        verify = verifier(issuer).verify
        for header in (
            {"jku": f"{attacker_site.url}/keys"},
            {"x5u": f"{attacker_site.url}/certificate"},
            {"jwk": forged_key.as_dict(private=False)},
            {"x5c": ["MIIB"]},
            {"kid": f"{attacker_site.url}/keys"},
            {"kid": None, "jku": f"{attacker_site.url}/keys"},
        ):
            with pytest.raises(InvalidToken):
                await verify(sign_token(issuer, forged_key, header=header))
        assert attacker_site.requested_paths == []


# -- concurrent requests


async def test_concurrent_requests_fetch_the_keys_once() -> None:
    async with serve_issuer() as (site, issuer):
        auth = TokenAuth(verifier(issuer))
        tokens = [sign_token(issuer, jti=str(number)) for number in range(50)]
        principals = await asyncio.gather(*(authenticate(auth, token) for token in tokens))
        assert {principal.subject for principal in principals} == {"ann"}
        assert site.requested_paths == [OAUTH, "/keys"]


async def test_unknown_key_ids_do_not_fetch_the_keys_again() -> None:
    async with serve_issuer() as (site, issuer):
        auth = TokenAuth(verifier(issuer))
        await authenticate(auth, sign_token(issuer))
        for number in range(50):
            with pytest.raises(HttpRefusal):
                await authenticate(auth, sign_token(issuer, header={"kid": f"forged-{number}"}))
        assert site.requested_paths == [OAUTH, "/keys"]


async def test_tokens_of_the_old_key_are_refused_after_a_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_set, "COOLDOWN_SECONDS", 0.0)

    async with serve_issuer() as (site, issuer):
        auth = TokenAuth(verifier(issuer))
        old, cached = sign_token(issuer, jti="1"), sign_token(issuer, jti="2")
        await authenticate(auth, cached)
        issuer.rotate()
        site.pages["/keys"] = issuer.key_set()
        principals = await asyncio.gather(*(authenticate(auth, sign_token(issuer, jti=str(n))) for n in range(50)))
        assert len(principals) == 50
        assert site.requested_paths.count("/keys") == 2
        for token in (old, cached):
            with pytest.raises(HttpRefusal, match="signature"):
                await authenticate(auth, token)


# -- slow or unreachable issuers


async def never_answer(request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def answer_without_end(request: web.Request) -> web.StreamResponse:
    """Send a byte every 20 ms."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("page", [OAUTH, "/keys"])
@pytest.mark.parametrize("answer", [never_answer, answer_without_end])
async def test_requests_to_a_slow_issuer_time_out(page: str, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_verifier, "FETCH_SECONDS", 0.3)

    async with serve_issuer() as (site, issuer):
        site.pages[page] = answer
        auth = TokenAuth(verifier(issuer))
        start = time.monotonic()
        errors = await asyncio.gather(
            *(authenticate(auth, sign_token(issuer, jti=str(n))) for n in range(20)), return_exceptions=True
        )
        assert time.monotonic() - start < 20
        assert {error.http_status for error in errors if isinstance(error, HttpRefusal)} == {503}
        assert len(errors) == 20
        assert site.requested_paths.count(page) == 1


async def test_known_keys_remain_valid_while_the_issuer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_set, "COOLDOWN_SECONDS", 0.0)

    async with serve_issuer() as (_, issuer):
        known = verifier(issuer)
        assert await known.verify(sign_token(issuer)) is not None
    with pytest.raises(VerifierUnavailable, match="cannot be reached"):
        await verifier(issuer).verify(sign_token(issuer))
    assert await known.verify(sign_token(issuer)) is not None
    with pytest.raises(InvalidToken):
        await known.verify(sign_token(issuer, header={"kid": "new"}))


# -- invalid key sets

EC, RSA = jwk.generate_key("EC", "P-256", {"kid": "same"}), jwk.generate_key("RSA", 2048, {"kid": "same"})
PADDING = "x" * MAX_BODY_BYTES


async def send_compressed(request: web.Request) -> web.Response:
    data = gzip.compress(json.dumps({"keys": [], "x": " " * (1 << 24)}).encode())
    return web.Response(body=data, headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("page", "reason"),
    [({"keys": [], "x": PADDING}, "sent more than"), (b"<html>", "no set of keys"), (b"", "no set of keys"),
     (b"\xff\xfe", "no set of keys"), (b"[" * 100_000, "no set of keys"), (send_compressed, "sent more than"),
     ({"keys": [EC.as_dict(private=False) | {"kty": "RSA"}]}, "no key"),
     ({"keys": [EC.as_dict(private=False) | {"kty": "oct", "k": "c2VjcmV0"}]}, "no key"),
     ({"keys": [EC.as_dict(private=False) | {"crv": "P-521"}]}, "no key"),
     ({"keys": [RSA.as_dict(private=False) | {"n": "AQAB"}]}, "no key"),
     ({"keys": {"same": EC.as_dict(private=False)}}, "no key"), ({"keys": [[EC.as_dict(private=False)]]}, "no key")],
)  # fmt: skip
async def test_invalid_key_sets_are_refused(page: Any, reason: str) -> None:
    async with serve_issuer() as (site, issuer):
        site.pages["/keys"] = page
        with pytest.raises(VerifierUnavailable, match=reason):
            await verifier(issuer).verify(sign_token(issuer))


async def test_a_key_set_of_the_maximum_size_is_accepted() -> None:
    async with serve_issuer() as (site, issuer):
        small = json.dumps(issuer.key_set() | {"x": ""}).encode()
        site.pages["/keys"] = issuer.key_set() | {"x": "x" * (MAX_BODY_BYTES - len(small))}
        assert await verifier(issuer).verify(sign_token(issuer)) is not None


async def test_keys_with_the_same_id_are_distinguished_by_their_type() -> None:
    async with serve_issuer() as (site, issuer):
        site.pages["/keys"] = {"keys": [EC.as_dict(private=False), RSA.as_dict(private=False)]}
        verify = verifier(issuer).verify
        for key in (EC, RSA):
            assert await verify(sign_token(issuer, key)) is not None
        other = jwk.generate_key("EC", "P-256", {"kid": "same"})
        with pytest.raises(InvalidToken):
            await verify(sign_token(issuer, other))


async def test_only_the_public_part_of_a_published_private_key_is_kept() -> None:
    async with serve_issuer() as (site, issuer):
        site.pages["/keys"] = {"keys": [key.as_dict(private=True) for key in issuer.keys]}
        key_verifier = verifier(issuer)
        assert await key_verifier.verify(sign_token(issuer)) is not None
        cached = [key for keys in key_verifier._remote_keys._keys.values() for key in keys]
        assert [key.is_private for key in cached] == [False]


async def test_keys_and_introspection_on_this_machine_are_used_for_an_issuer_elsewhere() -> None:
    """A bug: the constructors accepted such URLs, but each request was refused."""
    async with serve_site() as site:
        issuer = Issuer()
        site.pages["/keys"] = issuer.key_set()
        site.pages["/introspect"] = {"active": True, "sub": "ann"}
        assert await verifier(issuer, jwks_url=f"{site.url}/keys").verify(sign_token(issuer)) is not None
        url = site.url.replace("127.0.0.1", "localhost") + "/introspect"
        opaque = IntrospectionVerifier(url, issuer=issuer.name, client_id="a", client_secret="b")
        assert await opaque.verify("opaque") is not None


# -- introspection


async def test_introspection_results_are_cached() -> None:
    async with serve_site() as site:
        forms: list[Any] = []

        async def introspect(request: web.Request) -> web.Response:
            forms.append((dict(await request.post()), request.headers["Authorization"]))
            return web.json_response({"active": True, "sub": "ann", "aud": AUDIENCE, "scope": "read"})

        site.pages["/introspect"] = introspect
        auth = TokenAuth(
            IntrospectionVerifier(
                f"{site.url}/introspect", issuer=site.url, client_id="a", client_secret="b", audience=AUDIENCE
            )
        )
        for token in ("one", "two", "one", "two"):
            assert (await authenticate(auth, token)).scopes == {"read"}
        assert [form["token"] for form, _ in forms] == ["one", "two"]
        assert {authorization for _, authorization in forms} == {"Basic YTpi"}


async def redirect_introspection(request: web.Request) -> web.Response:
    raise web.HTTPTemporaryRedirect("http://127.0.0.1:9/introspect")


@pytest.mark.parametrize(
    "page",
    [never_answer, answer_without_end, redirect_introspection, b"<html>", {"active": True, "x": PADDING}, [1], None],
)
async def test_tokens_cannot_be_verified_while_the_introspection_endpoint_fails(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "FETCH_SECONDS", 0.3)

    async with serve_site() as site:
        site.pages["/introspect"] = page
        auth = TokenAuth(
            IntrospectionVerifier(f"{site.url}/introspect", issuer=site.url, client_id="a", client_secret="b")
        )
        start = time.monotonic()
        with pytest.raises(HttpRefusal) as raised:
            await authenticate(auth, "opaque")
        assert raised.value.http_status == 503
        assert time.monotonic() - start < 20


# -- certificates


def create_certificates(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Create a certificate authority, and return its file and the TLS context of a server at 127.0.0.1."""
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("authority", "issuer")}
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in names}
    now = datetime.datetime.now(datetime.UTC)
    # Python 3.13 verifies with VERIFY_X509_STRICT, which requires the key usage and key identifier extensions.
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(keys["authority"].public_key())
    for name, subject in names.items():
        is_authority = name == "authority"
        signed_certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(names["authority"])
            .public_key(keys[name].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(keys[name].public_key()), critical=False)
            .add_extension(signer, critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=is_authority,
                    crl_sign=is_authority,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .sign(keys["authority"], hashes.SHA256())
        )
        (folder / name).write_bytes(signed_certificate.public_bytes(serialization.Encoding.PEM))
    private = keys["issuer"].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "issuer", folder / "key")
    return folder / "authority", context


VERIFY = """
import asyncio, sys
from wharfinger.auth import JWTVerifier, VerifierUnavailable

try:
    print(asyncio.run(JWTVerifier(issuer=sys.argv[1], audience=sys.argv[2]).verify(sys.argv[3])).subject)
except VerifierUnavailable as error:
    print(error)
"""


async def test_an_https_issuer_needs_a_trusted_certificate(tmp_path: Path) -> None:
    """The environment variable SSL_CERT_FILE adds a private certificate authority, as OpenSSL documents it."""
    authority, context = create_certificates(tmp_path)

    async with serve_issuer(tls=context) as (site, issuer):

        async def run_verifier(**environment: str) -> str:
            command = [sys.executable, "-c", VERIFY, issuer.name, AUDIENCE, sign_token(issuer)]
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, **environment}
            )
            return (await process.communicate())[0].decode()

        assert "TLS failed" in await run_verifier()
        assert site.requested_paths == []
        assert await run_verifier(SSL_CERT_FILE=str(authority)) == "ann\n"
