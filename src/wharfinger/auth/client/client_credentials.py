"""A program's own credentials for its tokens (client credentials, RFC 7523): nobody is asked; knows no transport."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wharfinger.auth.client.discovery import AuthServer
from wharfinger.auth.client.fetching import fetch_for
from wharfinger.auth.client.grants import Grant, take_tokens
from wharfinger.auth.client.registration import Registered
from wharfinger.auth.client.steps import Trace, TraceStep, run
from wharfinger.auth.client.token_manager import TokenManager
from wharfinger.auth.client.token_store import MemoryTokens
from wharfinger.errors import MissingExtra, NotAuthorized
from wharfinger.protocol.interfaces import Fetch

__all__ = ["ClientCredentials"]

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_TIME = 120
"""Seconds that a signed proof is good for."""


class ClientCredentials:
    """Gets a program in by its own credentials: a secret, or a private key to sign with.

    `Client(url, auth=ClientCredentials("nightly", secret=...))`. Tokens are kept while the object lives.
    """

    def __init__(
        self,
        client_id: str,
        *,
        secret: str | None = None,
        private_key: str | None = None,
        algorithm: str = "ES256",
        issuer: str | None = None,
        scopes: Iterable[str] = (),
        private: bool = False,
        fetch: Callable[[str], Fetch] | None = None,
    ) -> None:
        """Give `secret`, or `private_key` (PEM) with the `algorithm` to sign by (needs the extra `auth`).

        `issuer` is who gave them out; they are shown to no other, and without it to the first that a server names.
        `scopes`, `private` and `fetch` as for `SignIn`.

        Raises:
            MissingExtra: there is a key, and nothing to sign with.
            ValueError: both a secret and a key, or neither; or the key cannot be read.
        """
        if (secret is None) == (private_key is None):
            raise ValueError("Client credentials need either a secret or a private_key.")
        self._client_id = client_id
        self._secret = secret
        self._sign = None if private_key is None else _signer(client_id, private_key, algorithm)
        self._issuer = issuer
        self._bound: dict[str, str] = {}
        self._holding = TokenManager(
            self._obtain,
            MemoryTokens(),
            fetch or (lambda server: fetch_for(server, private=private)),
            scopes=scopes,
            issuer=issuer,
        )

    async def headers(self, url: str) -> Mapping[str, str]:
        """The token for the server at this URL, as `Authorize.headers`."""
        return await self._holding.headers(url)

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """Get a token, as `Authorize.refused`."""
        return await self._holding.refused(url, status, headers, sent)

    def trail(self, url: str) -> tuple[TraceStep, ...]:
        """What the last attempt asked and found, step by step; it holds no secret."""
        return tuple(self._holding.trails.get(url, ()))

    async def _obtain(self, found: AuthServer, scopes: tuple[str, ...], fetch: Fetch, trail: Trace) -> Grant:
        expected = self._issuer or self._bound.setdefault(found.server, found.issuer)
        if found.issuer != expected:
            raise NotAuthorized(f"{found.server} names {found.issuer}; these credentials are for {expected} only.")
        methods = found.metadata.auth_methods
        basic = "client_secret_basic" in methods or "client_secret_post" not in methods
        method = "private_key_jwt" if self._sign else "client_secret_basic" if basic else "client_secret_post"
        client = Registered(issuer=found.issuer, client_id=self._client_id, client_secret=self._secret, method=method)
        form = {"grant_type": "client_credentials"}
        if scopes:
            form["scope"] = " ".join(scopes)
        if found.resource is not None:
            form["resource"] = found.resource
        now = time.time()
        if self._sign is not None:
            form |= {"client_assertion_type": ASSERTION, "client_assertion": self._sign(found.issuer, now)}
        return await run(take_tokens(found, client, form, scopes, now, trail), fetch)


def _kind(jwk: Any, algorithm: str) -> Any:
    """The class of key that an algorithm signs by."""
    kinds = {"ES": jwk.ECKey, "RS": jwk.RSAKey, "PS": jwk.RSAKey, "Ed": jwk.OKPKey}
    if algorithm[:2] not in kinds:
        raise ValueError(f"{algorithm!r} signs with no private key: use ES256, RS256, PS256 or EdDSA.")
    return kinds[algorithm[:2]]


def _signer(client_id: str, pem: str, algorithm: str) -> Callable[[str, float], str]:
    """What signs a proof of who the client is, for one authorization server (RFC 7523 §3)."""
    try:
        from joserfc import jwk, jwt
        from joserfc.errors import JoseError
    except ImportError:
        raise MissingExtra("auth", "Signing with a private key") from None
    kind = _kind(jwk, algorithm)
    try:
        key = kind.import_key(pem)
    except (JoseError, ValueError, KeyError) as error:
        raise ValueError(f"The private key cannot be read for {algorithm}: {type(error).__name__}.") from None

    def sign(audience: str, now: float) -> str:
        claims = {
            "iss": client_id,
            "sub": client_id,
            "aud": audience,
            "jti": secrets.token_urlsafe(16),
            "iat": int(now),
            "exp": int(now) + ASSERTION_TIME,
        }
        return jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, key, algorithms=[algorithm])

    return sign
