"""Sealed cursors: a position in a list that a client can carry but neither read nor make up."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from wharfinger.errors import InvalidParams

__all__ = ["Keys"]

MAC = 12
"""Bytes of the seal: 96 bits, for something that opens no door but the next page."""
LONGEST = 48 * 1024
"""Characters of a cursor that are looked at: one that holds the longest URI has fewer."""


class Keys:
    """The key ring that cursors, and later state and task ids, derive from.

    `secret` is shared by every process that serves the same clients (`WHARFINGER_SECRET`); without one it is random,
    and a cursor is good for this process only.
    """

    def __init__(self, secret: str | bytes | None = None) -> None:
        secret = secret or os.environ.get("WHARFINGER_SECRET") or os.urandom(32)
        self._secret = secret.encode() if isinstance(secret, str) else secret

    def seal(self, purpose: str, position: Any) -> str:
        """Text for a JSON value; `purpose` separates cursors of different lists."""
        body = msgspec.json.encode(position)
        return _text(self._mac(purpose, body) + body)

    def open(self, purpose: str, sealed: str) -> Any:
        """The value of `seal`.

        Raises:
            InvalidParams: it is none of ours, or of another list.
        """
        data = _data(sealed)
        if data is None or not _equal(data[:MAC], self._mac(purpose, data[MAC:])):
            raise InvalidParams("This cursor is not valid here: list again from the start, without a cursor.")
        return msgspec.json.decode(data[MAC:])

    def _mac(self, purpose: str, body: bytes) -> bytes:
        import hmac  # first page that has a next one: 4 ms of OpenSSL

        return hmac.digest(self._secret, purpose.encode() + b"\0" + body, "sha256")[:MAC]


def _equal(one: bytes, other: bytes) -> bool:
    import hmac

    return hmac.compare_digest(one, other)


def _text(data: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _data(text: str) -> bytes | None:
    import base64

    if len(text) > LONGEST or not text.isascii():
        return None
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
