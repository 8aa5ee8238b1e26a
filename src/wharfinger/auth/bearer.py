"""One bearer token that everybody who may come in knows; compared in constant time, never logged and never repeated."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from wharfinger.protocol.http.rules import CLOSE, Refused
from wharfinger.protocol.interfaces import Verify

__all__ = ["static_token"]

_CHALLENGE = (b"www-authenticate", b'Bearer realm="mcp"')
_INVALID = (b"www-authenticate", b'Bearer realm="mcp", error="invalid_token"')


def static_token(token: str, principal: str = "token") -> Verify:
    """A check for `Authorization: Bearer <token>`; whoever has the token is `principal`.

    The check raises `Refused` with status 401 (RFC 6750 §3). Raises ValueError for a token that no header can carry,
    or that is short enough to be guessed.
    """
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("The token needs 16 or more visible ASCII characters, such as those of: openssl rand -hex 32")
    expected = token.encode()

    def verify(headers: Mapping[bytes, bytes]) -> str:
        value = headers.get(b"authorization")
        if value is None:
            raise Refused(401, "Send Authorization: Bearer with the token of this server.", (_CHALLENGE, *CLOSE))
        scheme, _, given = value.partition(b" ")
        # The comparison always runs, so that a wrong scheme takes no less time than a wrong token.
        same = hmac.compare_digest(given.strip(b" \t"), expected)
        if scheme.lower() != b"bearer" or not same:
            raise Refused(401, "The token is not valid.", (_INVALID, *CLOSE))
        return principal

    return verify
