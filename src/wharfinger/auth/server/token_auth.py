"""`TokenAuth`: an MCP server as an OAuth 2.1 resource server (2025-11-25 and 2026-07-28, authorization).

1. A request without a token gets 401. `WWW-Authenticate` names the metadata of this server (RFC 9728), the metadata
   names the authorization servers, and those give the client a token.
2. The verifiers try a token in turn, until one accepts or refuses it. A verified token is remembered for the
   `trusted_seconds` of its verifier, so that most requests cost one look-up. All tokens are forgotten when the issuer
   of a verifier has withdrawn a key, or its file of tokens has changed.
3. A token that is bound to a key (DPoP, RFC 9449) is accepted only with a proof of that key for this request.
4. A token that lacks a required scope gets 403, with the names of all required scopes.

All of this happens before the body is read. Messages never quote the token.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from wharfinger.auth.server.dpop import ALGORITHMS, PROOF_HEADER, UsedProofs, check_proof
from wharfinger.auth.server.token_verifier import InvalidToken, TokenVerifier, VerifierUnavailable
from wharfinger.errors import StoreUnusable
from wharfinger.protocol.http.rules import CLOSE_HEADERS, HttpRefusal
from wharfinger.protocol.interfaces import Store
from wharfinger.protocol.principal import Principal

__all__ = ["TokenAuth", "as_token_auth", "metadata_url"]

log = logging.getLogger("wharfinger.auth")

MAX_REMEMBERED_TOKENS = 10_000
MAX_TOKEN_BYTES = 16 * 1024
MAX_PLAIN_HEADER_BYTES = 2 * 1024
"""A longer header `Authorization` is remembered by its digest, which takes longer, but bounds the memory."""
WARN_SECONDS = 60.0
"""Minimum time between two log messages that tokens cannot be verified."""
MAX_VERIFYING = 64
"""The maximum number of tokens that one verifier verifies at a time; further requests wait."""

_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
"""`token68` (RFC 9110 §11.2)."""


class _Remembered(NamedTuple):
    """A token that was verified."""

    principal: Principal
    until: float
    """When to verify it again."""
    no_proof_until: float
    """Until when the token is accepted without a proof: `until`, or minus infinity if each request needs a proof."""

    @property
    def is_bound(self) -> bool:
        """Whether each request needs a proof."""
        return self.no_proof_until != self.until


class TokenAuth:
    """Finds the principal of each HTTP request by its bearer token.

    Every request needs the scopes `require_scopes`. The metadata publishes them and `scopes` as the supported ones. The
    ids of used proofs (DPoP) are kept in `store`, which all processes that serve one address must share. Without a
    `store`, they are kept in memory.

    Raises:
        ValueError: there is no verifier.
    """

    def __init__(
        self,
        *verifiers: TokenVerifier,
        require_scopes: Sequence[str] = (),
        scopes: Sequence[str] = (),
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not verifiers:
            raise ValueError("TokenAuth() needs a verifier, such as StaticTokens(file) or JWTVerifier(issuer=…).")
        self.verifiers = verifiers
        self.require_scopes = tuple(require_scopes)
        self.scopes = tuple(dict.fromkeys((*require_scopes, *scopes)))
        self.issuers = tuple(dict.fromkeys(issuer for verifier in verifiers for issuer in verifier.issuers))
        self._clock = clock
        self._proofs = UsedProofs(store, clock)
        self._slots = [asyncio.Semaphore(MAX_VERIFYING) for _ in verifiers]
        """One semaphore for each verifier, so that a slow authorization server does not delay the tokens of those that
        are tried before."""
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        """The tokens that were verified, by the whole header `Authorization`, so that none has to be parsed again."""
        self._warned_at = float("-inf")
        self._generation = 0
        """The number of calls of `forget`. A token whose verification began before such a call is not remembered."""
        for verifier in verifiers:
            verifier.on_change(self.forget)

    def forget(self) -> None:
        """Verify every token again, also those that are being verified now."""
        self._generation += 1
        self._remembered.clear()

    @property
    def rule_issuers(self) -> tuple[str, ...]:
        """The issuers that rules can name; the empty string means tokens that this server issued itself."""
        has_own_tokens = any(not verifier.issuers for verifier in self.verifiers)
        return (*self.issuers, "") if has_own_tokens else self.issuers

    def find_verified(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Return the principal of a token that was verified before and needs no proof; None if it must be checked.

        This is the fast path of `authenticate`, tried for every request. It does not find the tokens of long headers.
        """
        remembered = self._remembered.get(headers.get(b"authorization", b""))
        return remembered.principal if remembered is not None and remembered.no_proof_until >= self._clock() else None

    def authenticate(self, method: str, url: str, headers: Mapping[bytes, bytes]) -> Principal | Awaitable[Principal]:
        """Return the principal of a request to the endpoint `url`, or an awaitable of it.

        Raises:
            HttpRefusal: 401 if there is no valid token, 403 if it lacks a scope, 503 if it cannot be verified now.
        """
        value = headers.get(b"authorization")
        if value is None:
            raise self._unauthorized(url, "", "Send the header Authorization: Bearer with a token for this server.")
        key = value if len(value) <= MAX_PLAIN_HEADER_BYTES else hashlib.sha256(value).digest()
        remembered = self._remembered.get(key)
        if remembered is not None and remembered.until < self._clock():
            remembered = None
        if remembered is not None and not remembered.is_bound:
            return remembered.principal
        scheme, _, given = value.partition(b" ")
        scheme, given = scheme.lower(), given.strip(b" \t")
        if scheme not in (b"bearer", b"dpop"):
            raise self._unauthorized(url, "", "Send the header Authorization: Bearer with a token for this server.")
        if len(given) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(given):
            raise self._unauthorized(
                url, "invalid_token", "Send the header Authorization: Bearer with a well-formed token."
            )
        if remembered is None:
            return self._verify(method, url, headers, scheme, given.decode(), key)
        return self._require_proof(method, url, headers, scheme, given.decode(), remembered.principal)

    async def _verify(
        self, method: str, url: str, headers: Mapping[bytes, bytes], scheme: bytes, token: str, key: bytes
    ) -> Principal:
        generation = self._generation
        principal: Principal | None = None
        trusted_seconds = 0.0
        unavailable: VerifierUnavailable | None = None
        for verifier, slots in zip(self.verifiers, self._slots, strict=True):
            try:
                async with slots:
                    principal = await verifier.verify(token)
            except InvalidToken as error:
                raise self._unauthorized(url, "invalid_token", str(error)) from None
            except VerifierUnavailable as error:
                unavailable = error  # the next verifier may know the token
            if principal is not None:
                trusted_seconds = verifier.trusted_seconds
                break
        if principal is None and unavailable is not None:
            raise self._unavailable(unavailable) from None
        if principal is None:
            raise self._unauthorized(url, "invalid_token", "This server does not accept the token.")
        now = self._clock()
        if principal.expires is not None and principal.expires <= now:
            raise self._unauthorized(url, "invalid_token", "The token has expired.")
        if missing := [scope for scope in self.require_scopes if scope not in principal.scopes]:
            raise self.insufficient_scope(url, missing)
        is_bound = scheme == b"dpop" or principal.claims.get("cnf") is not None
        if is_bound:
            await self._require_proof(method, url, headers, scheme, token, principal)
        if generation != self._generation:
            # Do not remember it: in the meantime a key was withdrawn, perhaps the one that signed this token.
            return principal
        until = now + trusted_seconds
        until = until if principal.expires is None else min(until, principal.expires)
        self._remembered[key] = _Remembered(principal, until, -math.inf if is_bound else until)
        while len(self._remembered) > MAX_REMEMBERED_TOKENS:
            self._remembered.popitem(last=False)
        return principal

    async def _require_proof(
        self, method: str, url: str, headers: Mapping[bytes, bytes], scheme: bytes, token: str, principal: Principal
    ) -> Principal:
        """Return the principal if the request proves that its sender holds the key of the token (RFC 9449 §7)."""
        cnf = principal.claims.get("cnf")
        thumbprint = cast("dict[str, Any]", cnf).get("jkt") if isinstance(cnf, dict) else None
        try:
            if cnf is None:
                raise InvalidToken("The token is not bound to a key: send it as Authorization: Bearer.")
            if not isinstance(thumbprint, str):
                raise InvalidToken(
                    "The token is bound to a key in a way that this server cannot check: it checks only DPoP (jkt)."
                )
            if scheme != b"dpop":
                raise InvalidToken("The token is bound to a key: send it as Authorization: DPoP, with a proof.")
            proof = headers.get(PROOF_HEADER, b"").decode("latin-1")
            id = check_proof(proof, method=method, url=url, token=token, thumbprint=thumbprint, now=self._clock())
            await self._proofs.use(thumbprint, id)
        except InvalidToken as error:
            code = "invalid_token" if scheme != b"dpop" else "invalid_dpop_proof"
            raise self._unauthorized(url, code, str(error), scheme="DPoP") from None
        except (StoreUnusable, VerifierUnavailable) as error:
            raise self._unavailable(error) from None
        return principal

    def _unauthorized(self, url: str, code: str, message: str, *, scheme: str = "Bearer") -> HttpRefusal:
        """Return a 401 with a challenge; `code` is empty without a bearer token (RFC 6750 §3.1)."""
        metadata = metadata_url(url) if self.issuers else ""  # the metadata is useless without issuers
        fields = {"error": code, "resource_metadata": metadata, "scope": " ".join(self.require_scopes)}
        if scheme == "DPoP":
            fields["algs"] = " ".join(ALGORITHMS)  # RFC 9449 §7.1
        challenge = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value)
        return HttpRefusal(
            401, message, ((b"www-authenticate", f"{scheme} {challenge}".strip().encode()), *CLOSE_HEADERS)
        )

    def _unavailable(self, error: Exception) -> HttpRefusal:
        """Return the 503 for a token that cannot be verified now. The reason, which may name hosts, is for the log."""
        if abs(self._clock() - self._warned_at) >= WARN_SECONDS:  # the clock may have been set back
            self._warned_at = self._clock()
            log.warning("Tokens cannot be verified now: %s", error)
        fields = ((b"retry-after", b"5"), *CLOSE_HEADERS)
        return HttpRefusal(503, "The token cannot be verified now: try again soon.", fields)

    def insufficient_scope(self, url: str, scopes: Sequence[str]) -> HttpRefusal:
        """Return the 403 for an operation that needs these scopes (RFC 6750 §3.1, RFC 9728 §5.1)."""
        needed = " ".join(dict.fromkeys((*self.require_scopes, *scopes)))
        challenge = f'Bearer error="insufficient_scope", scope="{needed}", resource_metadata="{metadata_url(url)}"'
        return HttpRefusal(
            403, f"The token needs the scope {needed}.", ((b"www-authenticate", challenge.encode()), *CLOSE_HEADERS)
        )

    def metadata(self, url: str) -> bytes:
        """Return the metadata of the resource at `url` (RFC 9728 §2) as JSON."""
        document = {
            "resource": url,
            "authorization_servers": list(self.issuers),
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": list(ALGORITHMS),
            **({"scopes_supported": list(self.scopes)} if self.scopes else {}),
        }
        if not self.issuers:
            del document["authorization_servers"], document["dpop_signing_alg_values_supported"]
        return msgspec.json.encode(document)


def metadata_url(url: str) -> str:
    """Return the well-known URL of the metadata of the resource at `url` (RFC 9728 §3.1)."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}/.well-known/oauth-protected-resource{slash}{path}"


def as_token_auth(auth: TokenAuth | TokenVerifier | Sequence[TokenVerifier], store: Store | None = None) -> TokenAuth:
    """Return a `TokenAuth` for one or more verifiers, with this store. A `TokenAuth` is returned unchanged."""
    if isinstance(auth, TokenAuth):
        return auth
    verifiers = auth if isinstance(auth, Sequence) else (auth,)
    return TokenAuth(*verifiers, store=store)
