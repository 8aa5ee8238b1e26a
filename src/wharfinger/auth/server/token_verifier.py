"""The interface of token verifiers and its errors, and readers of the header and claims of a JWT."""

from __future__ import annotations

import base64
import binascii
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from wharfinger.content.decoded_json import is_list
from wharfinger.errors import WharfingerError
from wharfinger.protocol.principal import Principal

if TYPE_CHECKING:
    from joserfc.jwk import Key

__all__ = [
    "InvalidToken",
    "TokenVerifier",
    "VerifierUnavailable",
    "principal_of",
    "read_claims",
    "read_header",
    "signed_claims",
]

MAX_HEADER_CHARACTERS = 4096
FETCH_SECONDS = 5.0
"""Time for one exchange with an authorization server, while a caller waits."""
LEEWAY_SECONDS = 30.0
"""How long a token is accepted before its `nbf` and after its `exp`, because clocks differ."""


class InvalidToken(WharfingerError):
    """A token is expired, forged, or meant for another server. The message is sent to the client."""


class VerifierUnavailable(WharfingerError):
    """The token cannot be verified now, for example because the authorization server did not answer."""


class TokenVerifier(Protocol):
    """Verifies tokens, and returns their principals."""

    @property
    def issuers(self) -> Sequence[str]:
        """The URLs of the authorization servers that issue these tokens. The metadata of this server lists them."""
        ...

    @property
    def trusted_seconds(self) -> float:
        """Seconds after which a verified token is verified again."""
        ...

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token; None if another verifier may know it.

        Raises:
            InvalidToken: the token must not be accepted.
            VerifierUnavailable: the token cannot be verified now.
        """
        ...

    def on_change(self, forget: Callable[[], None]) -> None:
        """Call `forget` when a token that was accepted may have become invalid."""
        ...


def read_header(token: str) -> dict[str, Any] | None:
    """Return the header of a JWT, unverified; None if the token has no such header, or not three parts."""
    parts = token.split(".", 3)
    if len(parts) != 3 or len(parts[0]) > MAX_HEADER_CHARACTERS:
        return None
    return _json_object(parts[0])


def read_claims(token: str) -> dict[str, Any] | None:
    """Return the claims of a JWT, unverified; None if they are not a JSON object."""
    parts = token.split(".", 3)
    return _json_object(parts[1]) if len(parts) == 3 else None


def signed_claims(token: str, key: Key, algorithm: str) -> dict[str, Any] | None:
    """Return the claims of a JWT; None if this key has not signed it with this algorithm. Needs joserfc."""
    from joserfc import jwt
    from joserfc.errors import JoseError, SecurityWarning
    from joserfc.jws import JWSRegistry

    # joserfc refuses headers of more than 512 characters, such as those with an RSA key, and unknown header parameters,
    # which must be ignored (RFC 7515 §4).
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = MAX_HEADER_CHARACTERS
    try:
        with warnings.catch_warnings():
            # RFC 9864 renames EdDSA to Ed25519, and joserfc warns about the name that most issuers still write.
            warnings.simplefilter("ignore", SecurityWarning)
            return dict(jwt.decode(token, key, registry=registry).claims)
    except (JoseError, ValueError, TypeError, RecursionError):
        return None


def _json_object(part: str) -> dict[str, Any] | None:
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        value: Any = msgspec.json.decode(data)
    except (binascii.Error, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def principal_of(
    claims: dict[str, Any], issuer: str, audiences: Collection[str], *, leeway: float = LEEWAY_SECONDS
) -> Principal:
    """Return the principal of an access token with these verified claims (RFC 9068 §2.2, RFC 7662 §2.2).

    It expires `leeway` seconds after `exp`. Without `audiences` the token may be meant for any server.

    Raises:
        InvalidToken: the token is meant for another server, has neither `sub` nor `username`, or has an `exp` that
            is not a time.
    """
    if audiences and not set(audiences).intersection(_audiences(claims)):
        raise InvalidToken("The token is meant for another server: its aud does not name this one.")
    subject = claims.get("sub", claims.get("username"))
    if not isinstance(subject, str) or not subject:
        raise InvalidToken("The token has no subject (sub).")
    client, expires = claims.get("client_id", claims.get("azp", "")), read_time(claims, "exp")
    return Principal(
        subject=subject,
        issuer=issuer,
        client=client if isinstance(client, str) else "",
        scopes=_scopes(claims),
        claims=claims,
        expires=None if expires is None else expires + leeway,
    )


def read_time(claims: dict[str, Any], name: str) -> float | None:
    """Return the time in a claim, in seconds since 1970 (RFC 7519 §2, NumericDate); None if the claim is missing.

    Raises:
        InvalidToken: it is not a number of a plausible size.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 2**53:
        raise InvalidToken(f"The {name} of the token is not a time.")
    return float(value)


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    """Return the scopes of a token: `scope` separated by spaces (RFC 8693 §4.2), or `scp` as some issuers write it."""
    scopes = claims.get("scope", claims.get("scp", ""))
    return frozenset(scopes.split() if isinstance(scopes, str) else _strings(scopes))


def _audiences(claims: dict[str, Any]) -> list[str]:
    """Return the servers that a token is meant for: `aud` is a string, or a list of them (RFC 7519 §4.1.3)."""
    audience = claims.get("aud")
    return [audience] if isinstance(audience, str) else _strings(audience)


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if is_list(value) else []
