"""Issuers on real sockets: where their metadata is, and keys that are slow, absent, rotated or poisoned (A19, A20)."""

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
        """By path: a document, bytes, or a function that answers."""
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        page = self.pages.get(request.path)
        if page is None:
            raise web.HTTPNotFound
        if callable(page):
            answered: web.StreamResponse = await page(request)
            return answered
        return web.Response(body=page if isinstance(page, bytes) else json.dumps(page).encode())


@contextlib.asynccontextmanager
async def site(tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    served = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        served.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        yield served
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def published(
    path: str = "", metadata: str = OAUTH, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Site, Issuer]]:
    """Serve an issuer with its metadata at one well-known path and its keys at `/keys`."""
    async with site(tls) as served:
        issuer = Issuer(served.url + path)
        served.pages[metadata] = {"issuer": issuer.name, "jwks_uri": f"{served.url}/keys"}
        served.pages["/keys"] = issuer.published()
        yield served, issuer


def signed(issuer: Issuer, *key: Any, **changes: Any) -> str:
    return issuer.sign(*key, **{"iss": issuer.name, "aud": AUDIENCE} | changes)


def verifier(issuer: Issuer, **options: Any) -> JWTVerifier:
    return JWTVerifier(issuer=issuer.name, audience=AUDIENCE, **options)


async def authenticate(auth: TokenAuth, token: str) -> Principal:
    found = auth.authenticate("POST", AUDIENCE, {b"authorization": b"Bearer " + token.encode()})
    return found if isinstance(found, Principal) else await found


# -- metadata


@pytest.mark.parametrize(
    ("path", "metadata", "asked"),
    [("", OAUTH, 1), ("", OPENID, 2), ("/tenant/a", f"{OAUTH}/tenant/a", 1), ("/tenant/a", f"{OPENID}/tenant/a", 2),
     ("/tenant/a", f"/tenant/a{OPENID}", 3)],
)  # fmt: skip
def test_metadata_is_read_from_each_well_known_url_of_an_issuer(path: str, metadata: str, asked: int) -> None:
    async def main() -> None:
        async with published(path, metadata) as (served, issuer):
            principal = await verifier(issuer).verify(signed(issuer))
            assert principal is not None
            assert principal.issuer == served.url + path
            assert served.asked[-2:] == [metadata, "/keys"]
            assert len(served.asked) == asked + 1

    asyncio.run(main())


def test_metadata_of_another_tenant_is_not_used() -> None:
    async def main() -> None:
        async with published("/tenant/a", f"{OAUTH}/tenant/a") as (served, issuer):
            served.pages[f"{OAUTH}/tenant/a"]["issuer"] = f"{served.url}/tenant/b"
            with pytest.raises(VerifierUnavailable, match="names the issuer"):
                await verifier(issuer).verify(signed(issuer))
            assert "/keys" not in served.asked

    asyncio.run(main())


@pytest.mark.parametrize(
    "where", ["http://169.254.169.254/keys", "https://10.0.0.1/keys", "file:///etc/passwd", "/keys"]
)
def test_keys_are_not_fetched_from_private_addresses_or_over_plain_http(where: str) -> None:
    async def main() -> None:
        async with published() as (served, issuer):
            served.pages[OAUTH]["jwks_uri"] = where
            with pytest.raises(VerifierUnavailable, match="is not requested"):
                await verifier(issuer).verify(signed(issuer))

    asyncio.run(main())


def test_a_redirect_to_other_keys_is_not_followed() -> None:
    async def main() -> None:
        async with site() as evil, published() as (served, issuer):
            evil.pages["/keys"] = issuer.published()

            async def redirect(request: web.Request) -> web.Response:
                raise web.HTTPFound(f"{evil.url}/keys")

            served.pages["/keys"] = redirect
            with pytest.raises(VerifierUnavailable, match="302"):
                await verifier(issuer).verify(signed(issuer))
            assert evil.asked == []

    asyncio.run(main())


def test_key_urls_and_keys_in_token_headers_are_ignored() -> None:
    async def main() -> None:
        async with site() as evil, published() as (_, issuer):
            own = jwk.generate_key("RSA", 2048, {"kid": issuer.keys[0].kid})
            evil.pages["/keys"] = {"keys": [own.as_dict(private=False)]}
            evil.pages["/certificate"] = own.as_pem(private=False)
            verify = verifier(issuer).verify
            for header in (
                {"jku": f"{evil.url}/keys"},
                {"x5u": f"{evil.url}/certificate"},
                {"jwk": own.as_dict(private=False)},
                {"x5c": ["MIIB"]},
                {"kid": f"{evil.url}/keys"},
                {"kid": None, "jku": f"{evil.url}/keys"},
            ):
                with pytest.raises(InvalidToken):
                    await verify(signed(issuer, own, header=header))
            assert evil.asked == []

    asyncio.run(main())


# -- concurrent requests


def test_concurrent_requests_fetch_the_keys_once() -> None:
    async def main() -> None:
        async with published() as (served, issuer):
            auth = TokenAuth(verifier(issuer))
            tokens = [signed(issuer, jti=str(number)) for number in range(50)]
            found = await asyncio.gather(*(authenticate(auth, token) for token in tokens))
            assert {principal.subject for principal in found} == {"ann"}
            assert served.asked == [OAUTH, "/keys"]

    asyncio.run(main())


def test_unknown_key_ids_do_not_fetch_the_keys_again() -> None:
    async def main() -> None:
        async with published() as (served, issuer):
            auth = TokenAuth(verifier(issuer))
            await authenticate(auth, signed(issuer))
            for number in range(50):
                with pytest.raises(HttpRefusal):
                    await authenticate(auth, signed(issuer, header={"kid": f"forged-{number}"}))
            assert served.asked == [OAUTH, "/keys"]

    asyncio.run(main())


def test_tokens_of_the_old_key_are_refused_after_a_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_set, "COOLDOWN_SECONDS", 0.0)

    async def main() -> None:
        async with published() as (served, issuer):
            auth = TokenAuth(verifier(issuer))
            old, remembered = signed(issuer, jti="1"), signed(issuer, jti="2")
            await authenticate(auth, remembered)
            issuer.rotate()
            served.pages["/keys"] = issuer.published()
            found = await asyncio.gather(*(authenticate(auth, signed(issuer, jti=str(n))) for n in range(50)))
            assert len(found) == 50
            assert served.asked.count("/keys") == 2
            for token in (old, remembered):
                with pytest.raises(HttpRefusal, match="signature"):
                    await authenticate(auth, token)

    asyncio.run(main())


# -- slow or unreachable issuers


async def silence(request: web.Request) -> web.Response:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def drip(request: web.Request) -> web.StreamResponse:
    """Send a byte every 20 ms without end."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("page", [OAUTH, "/keys"])
@pytest.mark.parametrize("answer", [silence, drip])
def test_requests_to_a_slow_issuer_time_out(page: str, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_verifier, "FETCH_SECONDS", 0.3)

    async def main() -> None:
        async with published() as (served, issuer):
            served.pages[page] = answer
            auth = TokenAuth(verifier(issuer))
            began = time.monotonic()
            refused = await asyncio.gather(
                *(authenticate(auth, signed(issuer, jti=str(n))) for n in range(20)), return_exceptions=True
            )
            assert time.monotonic() - began < 5
            assert {error.http_status for error in refused if isinstance(error, HttpRefusal)} == {503}
            assert len(refused) == 20
            assert served.asked.count(page) == 1

    asyncio.run(main())


def test_known_keys_remain_valid_while_the_issuer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_set, "COOLDOWN_SECONDS", 0.0)

    async def main() -> None:
        async with published() as (_, issuer):
            known = verifier(issuer)
            assert await known.verify(signed(issuer)) is not None
        with pytest.raises(VerifierUnavailable, match="cannot be reached"):
            await verifier(issuer).verify(signed(issuer))
        assert await known.verify(signed(issuer)) is not None
        with pytest.raises(InvalidToken):
            await known.verify(signed(issuer, header={"kid": "new"}))

    asyncio.run(main())


# -- invalid key sets

EC, RSA = jwk.generate_key("EC", "P-256", {"kid": "same"}), jwk.generate_key("RSA", 2048, {"kid": "same"})
PADDING = "x" * MAX_BODY_BYTES


async def compressed(request: web.Request) -> web.Response:
    data = gzip.compress(json.dumps({"keys": [], "x": " " * (1 << 24)}).encode())
    return web.Response(body=data, headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("page", "reason"),
    [({"keys": [], "x": PADDING}, "sent more than"), (b"<html>", "no set of keys"), (b"", "no set of keys"),
     (b"\xff\xfe", "no set of keys"), (b"[" * 100_000, "no set of keys"), (compressed, "sent more than"),
     ({"keys": [EC.as_dict(private=False) | {"kty": "RSA"}]}, "no key"),
     ({"keys": [EC.as_dict(private=False) | {"kty": "oct", "k": "c2VjcmV0"}]}, "no key"),
     ({"keys": [EC.as_dict(private=False) | {"crv": "P-521"}]}, "no key"),
     ({"keys": [RSA.as_dict(private=False) | {"n": "AQAB"}]}, "no key"),
     ({"keys": {"same": EC.as_dict(private=False)}}, "no key"), ({"keys": [[EC.as_dict(private=False)]]}, "no key")],
)  # fmt: skip
def test_invalid_key_sets_are_refused(page: Any, reason: str) -> None:
    async def main() -> None:
        async with published() as (served, issuer):
            served.pages["/keys"] = page
            with pytest.raises(VerifierUnavailable, match=reason):
                await verifier(issuer).verify(signed(issuer))

    asyncio.run(main())


def test_a_key_set_of_the_maximum_size_is_accepted() -> None:
    async def main() -> None:
        async with published() as (served, issuer):
            small = json.dumps(issuer.published() | {"x": ""}).encode()
            served.pages["/keys"] = issuer.published() | {"x": "x" * (MAX_BODY_BYTES - len(small))}
            assert await verifier(issuer).verify(signed(issuer)) is not None

    asyncio.run(main())


def test_keys_with_the_same_id_are_distinguished_by_their_type() -> None:
    async def main() -> None:
        async with published() as (served, issuer):
            served.pages["/keys"] = {"keys": [EC.as_dict(private=False), RSA.as_dict(private=False)]}
            verify = verifier(issuer).verify
            for key in (EC, RSA):
                assert await verify(signed(issuer, key)) is not None
            other = jwk.generate_key("EC", "P-256", {"kid": "same"})
            with pytest.raises(InvalidToken):
                await verify(signed(issuer, other))

    asyncio.run(main())


def test_a_published_private_key_is_used_as_its_public_one() -> None:
    async def main() -> None:
        async with published() as (served, issuer):
            served.pages["/keys"] = {"keys": [key.as_dict(private=True) for key in issuer.keys]}
            checking = verifier(issuer)
            assert await checking.verify(signed(issuer)) is not None
            kept = [key for keys in checking._remote._keys.values() for key in keys]
            assert [key.is_private for key in kept] == [False]

    asyncio.run(main())


# -- introspection


def test_introspection_results_are_cached() -> None:
    async def main() -> None:
        async with site() as served:
            forms: list[Any] = []

            async def introspect(request: web.Request) -> web.Response:
                forms.append((dict(await request.post()), request.headers["Authorization"]))
                return web.json_response({"active": True, "sub": "ann", "aud": AUDIENCE, "scope": "read"})

            served.pages["/introspect"] = introspect
            auth = TokenAuth(
                IntrospectionVerifier(
                    f"{served.url}/introspect", issuer=served.url, client_id="a", client_secret="b", audience=AUDIENCE
                )
            )
            for token in ("one", "two", "one", "two"):
                assert (await authenticate(auth, token)).scopes == {"read"}
            assert [form["token"] for form, _ in forms] == ["one", "two"]
            assert {authorization for _, authorization in forms} == {"Basic YTpi"}

    asyncio.run(main())


async def redirect_away(request: web.Request) -> web.Response:
    raise web.HTTPTemporaryRedirect("http://127.0.0.1:9/introspect")


@pytest.mark.parametrize("page", [silence, drip, redirect_away, b"<html>", {"active": True, "x": PADDING}, [1], None])
def test_a_failing_introspection_endpoint_refuses_all_tokens(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "FETCH_SECONDS", 0.3)

    async def main() -> None:
        async with site() as served:
            served.pages["/introspect"] = page
            auth = TokenAuth(
                IntrospectionVerifier(f"{served.url}/introspect", issuer=served.url, client_id="a", client_secret="b")
            )
            began = time.monotonic()
            with pytest.raises(HttpRefusal) as refused:
                await authenticate(auth, "opaque")
            assert refused.value.http_status == 503
            assert time.monotonic() - began < 5

    asyncio.run(main())


# -- certificates


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a certificate authority for 127.0.0.1, and the TLS context of a server that it certifies."""
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("authority", "issuer")}
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in names}
    now = datetime.datetime.now(datetime.UTC)
    # Python 3.13 requires the usage of an authority's key, and that certificates name the keys (VERIFY_X509_STRICT).
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(keys["authority"].public_key())
    for name, subject in names.items():
        is_authority = name == "authority"
        built = (
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
        (folder / name).write_bytes(built.public_bytes(serialization.Encoding.PEM))
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


def test_an_issuer_over_tls_needs_a_trusted_certificate(tmp_path: Path) -> None:
    """SSL_CERT_FILE names a private certificate authority, as for other programs that use OpenSSL."""
    authority, context = certificate(tmp_path)

    async def main() -> None:
        async with published(tls=context) as (served, issuer):

            async def printed(**environment: str) -> str:
                command = [sys.executable, "-c", VERIFY, issuer.name, AUDIENCE, signed(issuer)]
                process = await asyncio.create_subprocess_exec(
                    *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, **environment}
                )
                return (await process.communicate())[0].decode()

            assert "TLS failed" in await printed()
            assert served.asked == []
            assert await printed(SSL_CERT_FILE=str(authority)) == "ann\n"

    asyncio.run(main())
