"""`JWTVerifier`: verifies access tokens that are signed JWTs (RFC 9068), which most authorization servers issue."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.auth.server.key_set import RemoteKeys, import_keys
from wharfinger.auth.server.token_verifier import (
    FETCH_SECONDS,
    LEEWAY_SECONDS,
    InvalidToken,
    principal_of,
    read_claims,
    read_header,
    read_time,
    signed_claims,
)
from wharfinger.auth.urls import forbidden_reason
from wharfinger.errors import MissingExtra
from wharfinger.protocol.interfaces import Fetch
from wharfinger.protocol.principal import Principal

if TYPE_CHECKING:
    from joserfc.jwk import Key

__all__ = ["JWTVerifier"]

ALGORITHMS = ("RS256", "ES256", "EdDSA", "Ed25519", "PS256", "RS384", "RS512", "ES384", "ES512", "PS384", "PS512")
"""Asymmetric signatures only: `none` and HMAC are never accepted (RFC 8725 §3.1, §3.2)."""
TYPES = frozenset({"at+jwt", "application/at+jwt", "jwt", ""})
"""RFC 9068 requires `at+jwt`, but most servers write `JWT` or nothing. Types of other documents are refused."""
MAX_KEYS_TRIED = 5
"""The maximum number of keys that are tried for one token."""


class JWTVerifier:
    """Verifies access tokens of one issuer, which are signed JWTs.

    `audience` is the issuer's name for this server, usually its MCP URL (RFC 8707). If there are several, a token must
    name one of them. The keys come from the issuer's metadata, or from `jwks_url` or `keys` (a JWK set). A token is
    accepted `leeway` seconds before its `nbf` and after its `exp`, because clocks differ. Needs the extra `auth`.

    `algorithms` are the signatures that are accepted. `fetch` sends the HTTP requests; by default they go only to the
    issuer's host, to an IP address or `localhost` in `jwks_url`, and to public addresses. With `allow_private_networks`
    they also go to names with private addresses.

    Raises:
        ValueError: `issuer` or `jwks_url` is neither an https URL nor on this machine, there is no audience or no
            algorithm, or an algorithm is not accepted.
        MissingExtra: joserfc is not installed.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        algorithms: Sequence[str] = ALGORITHMS,
        jwks_url: str | None = None,
        keys: Mapping[str, Any] | None = None,
        leeway: float = LEEWAY_SECONDS,
        allow_private_networks: bool = False,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        try:
            import joserfc  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError:
            raise MissingExtra("auth", "Verifying signed tokens") from None
        self.issuer = issuer
        self.audiences = frozenset((audience,) if isinstance(audience, str) else audience)
        self.algorithms = tuple(algorithms)
        self.leeway = leeway
        if not self.algorithms:
            raise ValueError(f"JWTVerifier() needs an algorithm: use {', '.join(ALGORITHMS)}.")
        if not self.audiences or "" in self.audiences:
            raise ValueError("JWTVerifier() needs the audience: the URL of this server as the issuer knows it.")
        if unknown := [name for name in self.algorithms if name not in ALGORITHMS]:
            raise ValueError(f"JWTVerifier() does not accept {', '.join(unknown)}: use {', '.join(ALGORITHMS)}.")
        for url in (issuer, *([jwks_url] if jwks_url else [])):
            if fault := forbidden_reason(url, url):
                raise ValueError(f"JWTVerifier() cannot use {url!r}: {fault}.")
        self._clock = clock
        self._fixed_keys = None if keys is None else import_keys(keys.get("keys"))
        if fetch is None:
            from wharfinger.auth.client.sign_in_fetch import fetch_for

            # The operator has named `jwks_url`, so it may be an address that the issuer could not name.
            named = jwks_url if jwks_url and forbidden_reason(jwks_url, issuer) else issuer
            fetch = fetch_for(named, allow_private_networks=allow_private_networks, timeout=FETCH_SECONDS)
        self._remote_keys = RemoteKeys(issuer, fetch, url=jwks_url)

    trusted_seconds = 60.0
    """Seconds after which a verified token is verified again."""

    @property
    def issuers(self) -> tuple[str, ...]:
        """The issuer."""
        return (self.issuer,)

    def on_change(self, forget: Callable[[], None]) -> None:
        """Call `forget` when the issuer has withdrawn a key."""
        self._remote_keys.on_rotation.append(forget)

    async def fetch_keys(self) -> None:
        """Fetch the keys of the issuer unless they are known, so that the first token does not wait for them.

        Raises:
            VerifierUnavailable: they cannot be fetched now. A token that arrives later causes another attempt.
        """
        if self._fixed_keys is None:
            await self._remote_keys.find(None)

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token; None if it is not a JWT of this issuer.

        Raises:
            InvalidToken: the token is expired, forged, or meant for another server.
            VerifierUnavailable: the keys of the issuer cannot be fetched.
        """
        header = read_header(token)
        if header is None:
            return None
        unverified = read_claims(token)
        if unverified is None or unverified.get("iss") != self.issuer:
            return None
        if header.get("alg") not in self.algorithms:
            raise InvalidToken(f"The token is signed with an algorithm that is not accepted: use {self.algorithms[0]}.")
        if "crit" in header or not isinstance(kind := header.get("typ", ""), str) or kind.lower() not in TYPES:
            raise InvalidToken("The token is not an access token (RFC 9068).")
        claims = self._verify_signature(token, header["alg"], await self._find_keys(header.get("kid")))
        now = self._clock()
        expires = read_time(claims, "exp")
        if expires is None or expires + self.leeway <= now:
            raise InvalidToken("The token has no exp." if expires is None else "The token has expired.")
        if (read_time(claims, "nbf") or 0) > now + self.leeway:
            raise InvalidToken("The token is not valid yet (nbf).")
        read_time(claims, "iat")  # raises InvalidToken if it is not a time
        return principal_of(claims, self.issuer, self.audiences, leeway=self.leeway)

    async def _find_keys(self, id: Any) -> list[Key]:
        if id is not None and not isinstance(id, str):
            raise InvalidToken("The kid of the token is not a string.")
        if self._fixed_keys is None:
            return await self._remote_keys.find(id)
        if id is not None:
            return self._fixed_keys.get(id, [])
        return [key for keys in self._fixed_keys.values() for key in keys]

    def _verify_signature(self, token: str, algorithm: str, keys: list[Key]) -> dict[str, Any]:
        """Return the claims if the signature is that of one of the keys; otherwise raise InvalidToken."""
        kind = {"R": "RSA", "P": "RSA"}.get(algorithm[0], "OKP" if algorithm.startswith("Ed") else "EC")
        candidates = [key for key in keys if key.key_type == kind and key.get("alg") in (None, algorithm)]
        for key in candidates[:MAX_KEYS_TRIED]:
            if (claims := signed_claims(token, key, algorithm)) is not None:
                return claims
        raise InvalidToken("The signature of the token is not that of its issuer.")
