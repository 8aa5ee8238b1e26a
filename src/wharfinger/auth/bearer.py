"""`static_token`: one bearer token for all callers. It is compared in constant time, and never logged."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from wharfinger.protocol.http.rules import CLOSE_HEADERS, HttpRefusal
from wharfinger.protocol.interfaces import Verify
from wharfinger.protocol.principal import Principal

__all__ = ["static_token"]

_CHALLENGE = (b"www-authenticate", b'Bearer realm="mcp"')
_INVALID_TOKEN_CHALLENGE = (b"www-authenticate", b'Bearer realm="mcp", error="invalid_token"')


def static_token(token: str, subject: str = "token") -> Verify:
    """Return a check for `Authorization: Bearer <token>`; callers with the token get a principal with this subject.

    The check raises `HttpRefusal` with status 401 (RFC 6750 §3).

    Raises:
        ValueError: the token is shorter than 16 characters, or cannot be sent in a header.
    """
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("The token needs at least 16 visible ASCII characters. To make one: openssl rand -hex 32")
    expected = token.encode()
    principal = Principal(subject=subject)

    def verify(headers: Mapping[bytes, bytes]) -> Principal:
        scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":  # without an error code, also for another scheme (RFC 6750 §3.1)
            raise HttpRefusal(
                401, "Send the header Authorization: Bearer with this server's token.", (_CHALLENGE, *CLOSE_HEADERS)
            )
        if not hmac.compare_digest(credentials.strip(b" \t"), expected):
            raise HttpRefusal(401, "The token is not valid.", (_INVALID_TOKEN_CHALLENGE, *CLOSE_HEADERS))
        return principal

    return verify
