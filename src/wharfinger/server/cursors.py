"""Cursors and states that clients send back to the server, sealed so that clients can neither forge nor change them.

The server stores nothing. `features.listing` defines the content of a list's cursor.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import msgspec

from wharfinger.errors import InvalidParams, MissingExtra
from wharfinger.protocol.interfaces import Access
from wharfinger.protocol.request import Request

__all__ = ["CURSOR", "Keys", "Kind", "keys_for", "state_kind"]


class Kind(NamedTuple):
    """One kind of sealed string: its bounds, and the error message for a string that cannot be opened."""

    mac_bytes: int
    """The length of the seal. The keys of `Keys.private` do not use it: AES-GCM has a seal of its own length."""
    max_characters: int
    """The maximum length of a sealed string; the keys of `Keys.private` allow twice as much, because they pad it."""
    refusal: str


CURSOR = Kind(12, 48 * 1024, "This cursor is not valid here: list again from the start, without a cursor.")
"""A seal of 96 bits is enough for a position in a list. A cursor with the longest URI is within the limit."""


def state_kind(max_characters: int) -> Kind:
    """Return the kind for the state of a call between its rounds (2026-07-28, multi round-trip requests)."""
    refusal = "This requestState is not valid here: send the request again without it, and without inputResponses."
    return Kind(32, max_characters, refusal)


class Keys:
    """The secret key that seals cursors and states.

    `secret` is shared by every process that serves the same clients (`WHARFINGER_SECRET`); without it the key is
    random, and only this process can open its sealed values.
    """

    def __init__(self, secret: str | bytes | None = None) -> None:
        key_material = secret or os.environ.get("WHARFINGER_SECRET")
        self.random = not key_material
        """Whether the key is random, so that no other process can open the values that this one seals."""
        key_material = key_material or os.urandom(32)
        self._secret = key_material.encode() if isinstance(key_material, str) else key_material

    def seal(self, purpose: str, value: Any, kind: Kind = CURSOR) -> str:
        """Seal a JSON value as text; `purpose` separates cursors of different lists, and states of different calls."""
        import base64  # on use: this and OpenSSL take 4 ms to import

        body = msgspec.json.encode(value)
        return base64.urlsafe_b64encode(self._mac(purpose, body, kind) + body).rstrip(b"=").decode()

    def open(self, purpose: str, sealed: str, kind: Kind = CURSOR, type: Any = Any) -> Any:
        """Return the value that was sealed, as `type`.

        Raises:
            InvalidParams: it was not sealed here, was sealed for another purpose, or is not of this type.
        """
        import base64
        import hmac

        if len(sealed) > kind.max_characters or not sealed.isascii():
            raise InvalidParams(kind.refusal)
        try:
            data = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raise InvalidParams(kind.refusal) from None
        if not hmac.compare_digest(data[: kind.mac_bytes], self._mac(purpose, data[kind.mac_bytes :], kind)):
            raise InvalidParams(kind.refusal)
        return _decode(data[kind.mac_bytes :], kind, type)

    def private(self, binding: str) -> Keys:
        """Return keys whose sealed texts are also encrypted and padded, and open only with the same binding.

        Under a policy a cursor may contain the URI of an entry that its caller may not see.
        The `seal` and `open` of these keys raise MissingExtra if `cryptography` is not installed (extra `auth`).
        """
        return _PrivateKeys(self._secret, binding)

    def _mac(self, purpose: str, body: bytes, kind: Kind) -> bytes:
        import hmac

        return hmac.digest(self._secret, purpose.encode() + b"\0" + body, "sha256")[: kind.mac_bytes]


def _decode(body: bytes, kind: Kind, type: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.MsgspecError:  # another version of the server sealed it
        raise InvalidParams(kind.refusal) from None


def keys_for(keys: Keys, request: Request) -> Keys:
    """Return the keys that seal a caller's cursors and states; under a policy, only this caller can send them back."""
    access: Access | None = request.access
    return keys if access is None else keys.private(f"{access.key} {request.caller.principal.key}")


NONCE_BYTES = 12
"""The length of a nonce for AES-GCM (NIST SP 800-38D)."""
PADDING_BYTES = 256
"""The plain text is padded to a multiple of this, so that its length reveals little about the hidden entries in it."""


class _PrivateKeys(Keys):
    """Keys for one binding: what a caller may do, under which version of the policy, and who the caller is."""

    def __init__(self, secret: bytes, binding: str) -> None:
        super().__init__(secret)
        self._binding = binding

    def seal(self, purpose: str, value: Any, kind: Kind = CURSOR) -> str:
        """Encrypt a JSON value as text (AES-GCM); `purpose` and the binding are authenticated with it."""
        import base64

        body = msgspec.json.encode(value)
        body += b" " * (-len(body) % PADDING_BYTES)
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + self._cipher().encrypt(nonce, body, self._associated_data(purpose))
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, purpose: str, sealed: str, kind: Kind = CURSOR, type: Any = Any) -> Any:
        """Return the value that was sealed, as `type`.

        Raises:
            InvalidParams: it was not sealed here, was sealed for another purpose, principal or version of the policy,
                or is not of this type.
        """
        import base64

        cipher = self._cipher()
        from cryptography.exceptions import InvalidTag  # after `_cipher`, which checks that it is installed

        if len(sealed) > 2 * kind.max_characters or not sealed.isascii():  # encrypted and padded, it is longer
            raise InvalidParams(kind.refusal)
        try:
            data = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
            body = cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], self._associated_data(purpose))
        except (ValueError, InvalidTag):
            raise InvalidParams(kind.refusal) from None
        return _decode(body, kind, type)

    def _cipher(self) -> Any:
        import hmac

        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise MissingExtra("auth", "Encrypting cursors under a policy") from None
        return AESGCM(hmac.digest(self._secret, b"private cursors", "sha256"))

    def _associated_data(self, purpose: str) -> bytes:
        return f"{purpose}\0{self._binding}".encode()
