"""`ClientCredentials`: tokens for a program, without a person (RFC 6749 §4.4; private keys: RFC 7523)."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wharfinger.auth.client.discovery import AuthServer
from wharfinger.auth.client.grants import Grant, resource_and_scope, take_tokens
from wharfinger.auth.client.registration import RegisteredClient
from wharfinger.auth.client.sign_in_fetch import fetch_for
from wharfinger.auth.client.steps import Trace, TraceStep, run
from wharfinger.auth.client.token_manager import TokenManager
from wharfinger.auth.client.token_store import MemoryTokens
from wharfinger.errors import MissingExtra, NotAuthorized
from wharfinger.protocol.interfaces import Fetch

__all__ = ["ClientCredentials"]

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 120
"""How long a signed assertion is valid."""


class ClientCredentials:
    """Authorizes a program by its own secret or private key: `Client(url, auth=ClientCredentials("id", secret=…))`.

    The object keeps its tokens in memory.
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
        allow_private_networks: bool = False,
        fetch: Callable[[str], Fetch] | None = None,
    ) -> None:
        """Give `secret`, or `private_key` (PEM) with the `algorithm` to sign with (needs the extra `auth`).

        `issuer` is the authorization server that issued the credentials: they are sent to no other. Without it, they
        are sent only to the first one that each MCP server names. `scopes`, `allow_private_networks` and `fetch` are
        those of `SignIn`.

        Raises:
            MissingExtra: a key was given, but the extra `auth` is not installed.
            ValueError: both or neither of secret and key were given, or the key is not valid for the algorithm.
        """
        if (secret is None) == (private_key is None):
            raise ValueError("Client credentials need either a secret or a private_key.")
        self._client_id = client_id
        self._secret = secret
        self._sign = None if private_key is None else _signer(client_id, private_key, algorithm)
        self._issuer = issuer
        self._issuers: dict[str, str] = {}
        """By server: the first issuer that it named, to which the credentials are bound."""
        self._manager = TokenManager(
            self._obtain,
            MemoryTokens(),
            fetch or (lambda server: fetch_for(server, allow_private_networks=allow_private_networks)),
            scopes=scopes,
            issuer=issuer,
        )

    async def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers with the token for the server at this URL; see `Authorize.headers`."""
        return await self._manager.headers(url)

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """Get a token; see `Authorize.refused`."""
        return await self._manager.refused(url, status, headers, sent)

    def trace(self, url: str) -> tuple[TraceStep, ...]:
        """Return the steps of the last attempt and their results. They contain no secrets."""
        return tuple(self._manager.traces.get(url, ()))

    async def _obtain(self, auth_server: AuthServer, scopes: tuple[str, ...], fetch: Fetch, trace: Trace) -> Grant:
        expected = self._issuer or self._issuers.setdefault(auth_server.server, auth_server.issuer)
        if auth_server.issuer != expected:
            raise NotAuthorized(
                f"{auth_server.server} names {auth_server.issuer}; these credentials are for {expected} only."
            )
        methods = auth_server.metadata.auth_methods
        basic = "client_secret_basic" in methods or "client_secret_post" not in methods
        method = "client_secret_basic" if basic else "client_secret_post"
        if self._sign is not None:
            method = "private_key_jwt"
        client = RegisteredClient(
            issuer=auth_server.issuer, client_id=self._client_id, client_secret=self._secret, method=method
        )
        form = {"grant_type": "client_credentials", **resource_and_scope(auth_server.resource, scopes)}
        now = time.time()
        if self._sign is not None:
            form |= {"client_assertion_type": ASSERTION, "client_assertion": self._sign(auth_server.issuer, now)}
        return await run(take_tokens(auth_server, client, form, scopes, now, trace), fetch)


def _signer(client_id: str, pem: str, algorithm: str) -> Callable[[str, float], str]:
    """Return a function that signs an assertion for an authorization server (RFC 7523 §3)."""
    try:
        from joserfc import jwk, jwt
        from joserfc.errors import JoseError, SecurityWarning
    except ImportError:
        raise MissingExtra("auth", "Signing with a private key") from None
    key_types: dict[str, Any] = {"ES": jwk.ECKey, "RS": jwk.RSAKey, "PS": jwk.RSAKey, "Ed": jwk.OKPKey}
    if algorithm[:2] not in key_types:
        raise ValueError(f"{algorithm!r} does not sign with a private key: use ES256, RS256, PS256 or EdDSA.")

    def sign(audience: str, now: float) -> str:
        claims = {
            "iss": client_id,
            "sub": client_id,
            "aud": audience,
            "jti": secrets.token_urlsafe(16),
            "iat": int(now),
            "exp": int(now) + ASSERTION_SECONDS,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # about EdDSA, the older name of Ed25519
            return jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, key, algorithms=[algorithm])

    try:
        key = key_types[algorithm[:2]].import_key(pem)
        sign("", 0)  # a key that is public, or does not fit the algorithm, fails only here
    except TypeError:
        raise ValueError("The private key is encrypted: decrypt it first.") from None
    except (JoseError, ValueError, KeyError) as error:
        raise ValueError(f"The private key is not valid for {algorithm}: {type(error).__name__}.") from None
    return sign
