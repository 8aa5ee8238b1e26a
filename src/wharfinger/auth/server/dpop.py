"""DPoP: a proof that the sender of a token has the key that the token is bound to (RFC 9449).

A proof is a JWT with the method, the URL and a digest of the token, which the client signs for each request. Its id
(`jti`) is accepted once, and remembered as long as the proof is valid.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from wharfinger.auth.server.token_verifier import InvalidToken, VerifierUnavailable, read_header, signed_claims
from wharfinger.protocol.interfaces import Store

__all__ = ["PROOF_HEADER", "UsedProofs", "check_proof"]

PROOF_HEADER = b"dpop"
"""The header with the proof."""
MAX_PROOF_CHARACTERS = 8 * 1024
PROOF_SECONDS = 60.0
"""How much the time in a proof may differ from the server's, in both directions."""
MAX_PROOFS = 100_000
"""The maximum number of ids of proofs that one process remembers."""
ALGORITHMS = ("ES256", "ES384", "ES512", "EdDSA", "Ed25519", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")


def check_proof(proof: str, *, method: str, url: str, token: str, thumbprint: str, now: float) -> str:
    """Check everything about a proof except whether it is used twice, and return its id (RFC 9449 §4.3).

    Raises:
        InvalidToken: the proof was not made with this key for this request.
    """
    from joserfc import jwk
    from joserfc.errors import JoseError, SecurityWarning

    def invalid(why: str) -> InvalidToken:
        return InvalidToken(f"The DPoP proof is not valid: {why}.")

    if not proof:
        raise invalid("the DPoP header is missing, or empty")
    header = read_header(proof) if len(proof) <= MAX_PROOF_CHARACTERS else None
    if header is None or header.get("typ") != "dpop+jwt" or "crit" in header:
        raise invalid("it is not a JWT of the type dpop+jwt")
    if header.get("alg") not in ALGORITHMS:
        raise invalid(f"alg must be one of {', '.join(ALGORITHMS)}")
    public = header.get("jwk")
    if not isinstance(public, dict) or "d" in public or "k" in public:
        raise invalid("jwk must be a public key")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # about short keys: the token is bound to this one
            key = jwk.import_key(cast("Any", public))
        proof_thumbprint = key.thumbprint()
    except (JoseError, ValueError, TypeError, KeyError):
        raise invalid("jwk must be a public key") from None
    if not hmac.compare_digest(proof_thumbprint.encode(), thumbprint.encode("utf-8", "replace")):
        raise invalid("its key is not the one that the token is bound to")
    claims = signed_claims(proof, key, header["alg"])
    if claims is None:
        raise invalid("it is not signed with the key in its header")
    if claims.get("htm") != method or _normalize_url(claims.get("htu")) != _normalize_url(url):
        raise invalid(f"htm and htu must be {method} and {url}")
    issued, id = claims.get("iat"), claims.get("jti")
    if not isinstance(issued, (int, float)) or not now - PROOF_SECONDS <= issued <= now + PROOF_SECONDS:
        raise invalid(f"iat must be within {PROOF_SECONDS:g} s of the time of this server")
    digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
    if claims.get("ath") != digest:
        raise invalid("ath must be the SHA-256 digest of the token")
    if not isinstance(id, str) or not 0 < len(id) <= 256:
        raise invalid("jti must be a string of at most 256 characters")
    return id


def _normalize_url(url: Any) -> str:
    """Return a URL for comparison: without query and fragment, and with scheme and host in lower case."""
    bare = str(url).partition("?")[0].partition("#")[0]
    scheme, separator, rest = bare.partition("://")
    host, slash, path = rest.partition("/")
    host = host.lower().removesuffix(":443" if scheme.lower() == "https" else ":80")
    return f"{scheme.lower()}{separator}{host}{slash}{path}"


class UsedProofs:
    """The ids of used proofs, in this process or in a `Store` that several processes share."""

    def __init__(self, store: Store | None, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._used: OrderedDict[str, float] = OrderedDict()

    async def use(self, thumbprint: str, id: str) -> None:
        """Record that a proof is used.

        Raises:
            InvalidToken: the proof was used before.
            VerifierUnavailable: too many proofs are remembered.
            StoreUnusable: the proof cannot be stored.
        """
        key = "dpop/" + hashlib.sha256(f"{thumbprint} {id}".encode("utf-8", "surrogatepass")).hexdigest()
        now = self._clock()
        until = now + 2 * PROOF_SECONDS  # the proof may come from a clock that is ahead
        if self._store is not None:
            new = await self._store.put(key, b"", expires=until, instead_of=None)
        else:
            while self._used and next(iter(self._used.values())) < now:
                self._used.popitem(last=False)
            new = key not in self._used
            if new and len(self._used) >= MAX_PROOFS:
                raise VerifierUnavailable(f"{MAX_PROOFS} DPoP proofs are remembered already.")
            if new:
                self._used[key] = until
        if not new:
            raise InvalidToken("The DPoP proof was used before: make a new one for each request.")
