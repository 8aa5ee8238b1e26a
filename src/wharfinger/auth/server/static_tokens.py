"""`StaticTokens`: tokens that this server issues itself, in a file that holds their digests.

A token is `wf_ID_SECRET`. The id finds the record in the file, and the SHA-256 digest of the whole token is compared
with that of the record in constant time. The secret has 256 random bits, so the digest reveals nothing about it. The
file is checked at most once a second, and read again when it has changed, so a revoked token stops working without a
restart.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import msgspec

from wharfinger.auth.server.token_verifier import InvalidToken, VerifierUnavailable
from wharfinger.errors import WharfingerError
from wharfinger.private_files import replace_privately
from wharfinger.protocol.principal import Principal

__all__ = ["IssuedToken", "StaticTokens", "TokenFileError", "create_token", "read_tokens", "revoke_token"]

PREFIX = "wf_"
CHECK_INTERVAL_SECONDS = 1.0
MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_NAME_CHARACTERS = 256

_is_digest = re.compile("[0-9a-f]{64}").fullmatch
_NO_DIGEST = "0" * 64
"""Compared with the digest of an unknown token, so that this takes as long as for a known one."""


class TokenFileError(WharfingerError):
    """A file of tokens cannot be used; the message says why, and what to do."""

    exit_code = 2


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The record of one token in a file. Times are in seconds since 1970."""

    id: str
    digest: str
    """SHA-256 of the token, in hexadecimal digits."""
    sub: str
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    created: float
    expires: float | None = None


class _TokenFile(msgspec.Struct, forbid_unknown_fields=True):
    tokens: tuple[IssuedToken, ...] = ()


class StaticTokens:
    """Verifies tokens with a file that `wharfinger token create` has written.

    Raises:
        TokenFileError: the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._clock = clock
        self._on_change: list[Callable[[], None]] = []
        self._checked_at = clock()
        self._version: Version | None
        self._version, self._tokens = _load(self.path)
        self._fault = ""
        """Why the file cannot be used, or an empty string."""

    trusted_seconds = CHECK_INTERVAL_SECONDS
    """Seconds after which a verified token is verified again."""

    @property
    def issuers(self) -> tuple[str, ...]:
        """Empty, because no authorization server issues these tokens."""
        return ()

    def on_change(self, forget: Callable[[], None]) -> None:
        """Call `forget` when the file has changed."""
        self._on_change.append(forget)

    def refresh(self) -> None:
        """Read the file again if it has changed. If it can no longer be used, no token is accepted.

        Raises:
            VerifierUnavailable: the file cannot be used.
        """
        now = self._clock()
        if 0 <= now - self._checked_at < CHECK_INTERVAL_SECONDS:  # negative if the clock was set back
            if self._fault:
                raise VerifierUnavailable(self._fault)
            return
        self._checked_at = now
        try:
            if _version(self.path) != self._version:
                self._version, self._tokens = _load(self.path)
                self._fault = ""
                self._forget_verified()
        except TokenFileError as error:
            self._version, self._tokens, self._fault = None, {}, str(error)
            self._forget_verified()
            raise VerifierUnavailable(self._fault) from None

    def _forget_verified(self) -> None:
        for forget in self._on_change:
            forget()

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token; None if it is not in the file.

        Raises:
            InvalidToken: the token has expired.
            VerifierUnavailable: the file can no longer be used.
        """
        self.refresh()
        if not token.startswith(PREFIX):
            return None
        record = self._tokens.get(token.split("_", 2)[1])
        digest = hashlib.sha256(token.encode()).hexdigest()
        same = hmac.compare_digest(digest, _NO_DIGEST if record is None else record.digest)
        if record is None or not same:
            return None
        if record.expires is not None and record.expires <= self._clock():
            raise InvalidToken("The token has expired.")
        return Principal(
            subject=record.sub,
            scopes=frozenset(record.scopes),
            claims={"groups": list(record.groups)},
            expires=record.expires,
        )


def create_token(
    path: str | os.PathLike[str],
    sub: str,
    *,
    groups: Sequence[str] = (),
    scopes: Sequence[str] = (),
    expires: float | None = None,
) -> tuple[str, IssuedToken]:
    """Add a new token to a file, which is created if it does not exist, and return the token and its record.

    `sub` is the subject of its principal. `expires` is in seconds since 1970.

    Raises:
        TokenFileError: the file cannot be used or written.
        ValueError: `sub`, a group or a scope is empty, too long or unprintable, a scope is not one word in ASCII, or
            `expires` is in the past.
    """
    for name in (sub, *groups, *scopes):
        if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
            raise ValueError(f"{name[:40]!r} is not a name: use 1 to {MAX_NAME_CHARACTERS} printable characters.")
    if any(" " in scope or '"' in scope or "\\" in scope or not scope.isascii() for scope in scopes):
        raise ValueError("A scope is one word of ASCII characters without quotes (RFC 6749 §3.3): repeat --scope.")
    now = time.time()
    if expires is not None and not expires > now:  # NaN too, which the file cannot hold
        raise ValueError("A token cannot expire in the past.")
    file = Path(path)
    id = secrets.token_hex(6)
    token = f"{PREFIX}{id}_{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(token.encode()).hexdigest()
    record = IssuedToken(
        id=id, digest=digest, sub=sub, groups=tuple(groups), scopes=tuple(scopes), created=now, expires=expires
    )
    with _locked(file):
        existing = tuple(_load(file)[1].values()) if file.exists() else ()
        _write(file, (*existing, record))
    return token, record


def read_tokens(path: str | os.PathLike[str]) -> list[IssuedToken]:
    """Return the records of a file in the order of their creation.

    Raises:
        TokenFileError: the file cannot be used.
    """
    return list(_load(Path(path))[1].values())


def revoke_token(path: str | os.PathLike[str], id: str) -> IssuedToken:
    """Remove the token with this id from a file, and return its record.

    Raises:
        TokenFileError: the file cannot be used, or has no such token.
    """
    file = Path(path)
    with _locked(file):
        tokens = _load(file)[1]
        record = tokens.pop(id, None)
        if record is None:
            known = ", ".join(list(tokens)[:5]) or "none"
            raise TokenFileError(f"{file} has no token {id!r}. Its tokens: {known}. See: wharfinger token list {file}")
        _write(file, tuple(tokens.values()))
    return record


Version = tuple[int, int, int]
"""Changes when a file is replaced or written: its inode, size and time of modification."""


def _version(file: Path) -> Version:
    try:
        status = file.stat()
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    if hasattr(os, "getuid") and status.st_mode & 0o022:
        raise _unusable(file, f"others may write to it. Run: chmod 600 {file}")
    return status.st_ino, status.st_size, status.st_mtime_ns


def _load(file: Path) -> tuple[Version, dict[str, IssuedToken]]:
    """Return the version of a file and its tokens by id."""
    version = _version(file)
    if version[1] > MAX_FILE_BYTES:
        raise _unusable(file, f"it has more than {MAX_FILE_BYTES} bytes")
    try:
        content = msgspec.json.decode(file.read_bytes(), type=_TokenFile)
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unusable(file, f"{error}. `wharfinger token create` writes such files") from None
    for record in content.tokens:
        if not _is_digest(record.digest):
            wrong = f"the digest of the token {record.id[:40]!r} is not 64 hexadecimal digits (0-9, a-f)"
            raise _unusable(file, f"{wrong}. Remove its entry, and create another one by `wharfinger token create`")
    return version, {record.id: record for record in content.tokens}


def _write(file: Path, tokens: Sequence[IssuedToken]) -> None:
    """Replace the file atomically: a reader sees the old file or the new one."""
    lines = [msgspec.json.encode(record).decode() for record in tokens]
    text = '{"tokens": [\n' + ",\n".join(lines) + "\n]}\n"
    try:
        replace_privately(file, text.encode())
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None


@contextlib.contextmanager
def _locked(file: Path) -> Generator[None]:
    """Lock a file while it is read and replaced, so that two commands at the same time lose nothing."""
    try:
        import fcntl
    except ImportError:  # on Windows, the last command wins
        yield
        return
    try:
        lock = os.open(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _unusable(file: Path, why: str) -> TokenFileError:
    return TokenFileError(f"The file of tokens {file} cannot be used: {why}.")
