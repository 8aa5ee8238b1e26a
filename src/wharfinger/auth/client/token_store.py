"""Storage of tokens and registrations: in memory, or in files that only their owner can read."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from wharfinger.auth.client.grants import Grant
from wharfinger.auth.client.registration import RegisteredClient
from wharfinger.errors import StoreUnusable
from wharfinger.private_files import home_folder, is_private, replace_privately

__all__ = ["FileTokens", "MemoryTokens", "ReplacingTokens", "Tokens", "default_folder"]

T = TypeVar("T")


class Tokens(Protocol):
    """Stores grants by issuer, client, resource and server, and registrations by issuer."""

    async def grant(self, server: str) -> Grant | None:
        """Return the newest grant for the server at this URL; None if there is none."""
        ...

    async def grants(self) -> list[Grant]:
        """Return all grants."""
        ...

    async def keep(self, grant: Grant) -> None:
        """Store a grant in place of an older one with the same key."""
        ...

    async def forget(self, grant: Grant) -> None:
        """Delete a grant, if it exists."""
        ...

    async def client(self, issuer: str) -> RegisteredClient | None:
        """Return the client that is registered at an issuer; None if there is none."""
        ...

    async def keep_client(self, client: RegisteredClient) -> None:
        """Store a registration in place of an older one at the same issuer."""
        ...

    async def forget_client(self, issuer: str) -> None:
        """Delete the registration at an issuer, if it exists."""
        ...


class MemoryTokens:
    """Stores tokens in memory."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._clients: dict[str, RegisteredClient] = {}

    async def grant(self, server: str) -> Grant | None:
        """Return the newest grant for a server."""
        return _newest(server, list(self._grants.values()))

    async def grants(self) -> list[Grant]:
        """Return every grant."""
        return list(self._grants.values())

    async def keep(self, grant: Grant) -> None:
        """Store a grant."""
        self._grants[_key(grant)] = grant

    async def forget(self, grant: Grant) -> None:
        """Delete a grant."""
        self._grants.pop(_key(grant), None)

    async def client(self, issuer: str) -> RegisteredClient | None:
        """Return the client at an issuer."""
        return self._clients.get(issuer)

    async def keep_client(self, client: RegisteredClient) -> None:
        """Store a registration."""
        self._clients[client.issuer] = client

    async def forget_client(self, issuer: str) -> None:
        """Delete a registration."""
        self._clients.pop(issuer, None)


class FileTokens:
    """Stores tokens in files (0600) of a folder that only its owner may enter (0700). Files are replaced atomically.

    Several processes may use one folder. The files are not encrypted: anyone who can read them has the tokens.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        """`folder` is by default `wharfinger/tokens` in `$XDG_DATA_HOME`; it is created when it is needed."""
        self.folder = Path(folder) if folder is not None else default_folder()

    async def grant(self, server: str) -> Grant | None:
        """Return the newest grant for a server.

        Raises:
            StoreUnusable: the folder cannot be read, or others may enter it.
        """
        return _newest(server, await self.grants())

    async def grants(self) -> list[Grant]:
        """Return all grants. Files that cannot be decoded are skipped.

        Raises:
            StoreUnusable: see `grant`.
        """
        return await asyncio.to_thread(self._read_grants)

    async def keep(self, grant: Grant) -> None:
        """Store a grant.

        Raises:
            StoreUnusable: it cannot be written, or others may enter the folder.
        """
        await asyncio.to_thread(self._write, f"grant-{_key(grant)}.json", msgspec.json.encode(grant))

    async def forget(self, grant: Grant) -> None:
        """Delete a grant.

        Raises:
            StoreUnusable: it cannot be deleted.
        """
        await asyncio.to_thread(self._delete, f"grant-{_key(grant)}.json")

    async def client(self, issuer: str) -> RegisteredClient | None:
        """Return the client at an issuer.

        Raises:
            StoreUnusable: see `grant`.
        """
        data = await asyncio.to_thread(self._read, f"client-{_digest(issuer)}.json")
        return None if data is None else _decode(data, RegisteredClient)

    async def keep_client(self, client: RegisteredClient) -> None:
        """Store a registration.

        Raises:
            StoreUnusable: it cannot be written, or others may enter the folder.
        """
        await asyncio.to_thread(self._write, f"client-{_digest(client.issuer)}.json", msgspec.json.encode(client))

    async def forget_client(self, issuer: str) -> None:
        """Delete a registration.

        Raises:
            StoreUnusable: it cannot be deleted.
        """
        await asyncio.to_thread(self._delete, f"client-{_digest(issuer)}.json")

    def _read_grants(self) -> list[Grant]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.startswith("grant-"))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from None
        contents = (self._read(name) for name in names if name.endswith(".json"))
        decoded = (_decode(data, Grant) for data in contents if data is not None)
        return [grant for grant in decoded if grant is not None]

    def _read(self, name: str) -> bytes | None:
        try:
            self._check()
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from None

    def _write(self, name: str, data: bytes) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check()
            replace_privately(self.folder / name, data)
        except OSError as error:
            raise self._unusable(error) from None

    def _delete(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from None

    def _check(self) -> None:
        """Raise StoreUnusable if others may enter the folder: they could read tokens, or replace them."""
        try:
            private = is_private(self.folder)
        except FileNotFoundError:
            return
        if not private:
            raise StoreUnusable(
                f"Tokens are not stored in {self.folder}, because others may enter it. Run: chmod 700 {self.folder}"
            )

    def _unusable(self, error: OSError) -> StoreUnusable:
        return StoreUnusable(f"The tokens in {self.folder} cannot be read or written: {error.strerror or error}.")


class ReplacingTokens(FileTokens):
    """`FileTokens` for a sign-in that replaces the saved grants of its server, which stay until it has succeeded.

    People sign in again to use another account, so `grant` returns no saved grant, and none is renewed.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        super().__init__(folder)
        self._new: dict[str, Grant] = {}

    async def grant(self, server: str) -> Grant | None:
        """Return the new grant for a server."""
        return self._new.get(server)

    async def keep(self, grant: Grant) -> None:
        """Store a grant, and delete all others for its server.

        Raises:
            StoreUnusable: it cannot be written, or another one cannot be deleted.
        """
        await super().keep(grant)
        self._new[grant.server] = grant
        for other in await self.grants():
            if other.server == grant.server and _key(other) != _key(grant):
                await self.forget(other)


def default_folder() -> Path:
    """Return the default folder for tokens (XDG Base Directory).

    Raises:
        StoreUnusable: this user has no home folder.
    """
    data_home = os.environ.get("XDG_DATA_HOME", "")
    try:
        base = Path(data_home) if os.path.isabs(data_home) else home_folder("XDG_DATA_HOME") / ".local" / "share"
    except FileNotFoundError as error:
        raise StoreUnusable(f"Tokens cannot be stored: {error}.") from None
    return base / "wharfinger" / "tokens"


def _key(grant: Grant) -> str:
    return _digest("\n".join((grant.issuer, grant.client.client_id, grant.resource or grant.server, grant.server)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _newest(server: str, grants: list[Grant]) -> Grant | None:
    own = [grant for grant in grants if grant.server == server]
    return max(own, key=lambda grant: grant.taken_at, default=None)


def _decode(data: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        return None
