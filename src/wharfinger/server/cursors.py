"""What clients carry for the server: cursors and states, sealed so that they can neither be made up nor changed.

Nothing is kept here. What a cursor of a list holds is decided in `features.listing`, which opens it; what a key of a
source holds, in the source.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import msgspec

from wharfinger.errors import InvalidParams

__all__ = ["CURSOR", "STATE", "Keys", "Kind"]


class Kind(NamedTuple):
    """One kind of sealed text: how it is sealed, and the error for one that does not open."""

    mac: int
    """Bytes of the seal."""
    longest: int
    """Characters that it may have."""
    refusal: str


CURSOR = Kind(12, 48 * 1024, "This cursor is not valid here: list again from the start, without a cursor.")
"""96 bits, for something that opens the next page only; a cursor that holds the longest URI is shorter."""
STATE = Kind(
    32,
    4 * 1024 * 1024,
    "This requestState is not valid here: send the request again without it, and without inputResponses.",
)
"""What a call remembers between its runs (2026-07-28, multi round-trip requests); `Limits.state` is the real bound."""


class Keys:
    """The key ring that cursors and states derive from.

    `secret` is shared by every process that serves the same clients (`WHARFINGER_SECRET`); without one it is `random`,
    and what is sealed is good for this process only.
    """

    def __init__(self, secret: str | bytes | None = None) -> None:
        given = secret or os.environ.get("WHARFINGER_SECRET")
        self.random = not given
        """Whether the key is random, so that no other process can open what this one seals."""
        given = given or os.urandom(32)
        self._secret = given.encode() if isinstance(given, str) else given

    def seal(self, purpose: str, value: Any, kind: Kind = CURSOR) -> str:
        """Text for a JSON value; `purpose` separates cursors of different lists, and states of different calls."""
        body = msgspec.json.encode(value)
        return _text(self._mac(purpose, body, kind) + body)

    def open(self, purpose: str, sealed: str, kind: Kind = CURSOR, type: Any = Any) -> Any:
        """The value of `seal`, as `type`.

        Raises:
            InvalidParams: it was not sealed here, or for another purpose.
        """
        data = _data(sealed) if len(sealed) <= kind.longest else None
        if data is None or not _equal(data[: kind.mac], self._mac(purpose, data[kind.mac :], kind)):
            raise InvalidParams(kind.refusal)
        return msgspec.json.decode(data[kind.mac :], type=type)

    def _mac(self, purpose: str, body: bytes, kind: Kind) -> bytes:
        import hmac  # first page that has a next one: 4 ms of OpenSSL

        return hmac.digest(self._secret, purpose.encode() + b"\0" + body, "sha256")[: kind.mac]


def _equal(one: bytes, other: bytes) -> bool:
    import hmac

    return hmac.compare_digest(one, other)


def _text(data: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _data(text: str) -> bytes | None:
    import base64

    if not text.isascii():
        return None
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
