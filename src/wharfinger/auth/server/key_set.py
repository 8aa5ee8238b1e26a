"""The public keys of an authorization server (RFC 7517), which are fetched again after a rotation.

Their URL comes from the operator, or from the metadata of the issuer that the operator named; never from a token. Keys
are fetched again when they are older than `FRESH_SECONDS`, and when a token names an unknown key, but at most every
`COOLDOWN_SECONDS`, so that forged key ids cannot make this server send many requests. Only tokens of unknown keys wait
for the new keys. The known ones remain in use in the meantime, and for `STALE_SECONDS` if fetching fails.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wharfinger.auth.server.token_verifier import VerifierUnavailable
from wharfinger.auth.urls import auth_server_metadata_urls
from wharfinger.content.decoded_json import is_list
from wharfinger.errors import ConnectionFailed
from wharfinger.protocol.interfaces import Fetch

if TYPE_CHECKING:
    from joserfc.jwk import Key

__all__ = ["RemoteKeys", "import_keys"]

FRESH_SECONDS = 600.0
COOLDOWN_SECONDS = 10.0
STALE_SECONDS = 24 * 3600.0
MAX_KEYS = 100
MIN_RSA_BITS = 2048


class IssuerMetadata(msgspec.Struct, frozen=True):
    """The part of an authorization server's metadata that a resource server needs (RFC 8414 §2)."""

    issuer: str
    jwks_uri: str | None = None


async def fetch_metadata(issuer: str, fetch: Fetch) -> IssuerMetadata:
    """Return the metadata of an issuer, from the first well-known URL that has it (RFC 8414 §3, OpenID Connect).

    Raises:
        VerifierUnavailable: no URL has metadata that names this issuer (RFC 8414 §3.3), or a request got no response.
    """
    problem = "it publishes no metadata"
    for url in auth_server_metadata_urls(issuer):
        try:
            response = await fetch("GET", url, {"Accept": "application/json"}, None)
            if response.status != 200:
                continue
            metadata = msgspec.json.decode(response.body, type=IssuerMetadata)
        except ConnectionFailed as error:
            raise VerifierUnavailable(str(error)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            problem = f"{url} is not the metadata of an authorization server"
            continue
        if metadata.issuer == issuer:
            return metadata
        problem = f"{url} names the issuer {metadata.issuer[:200]!r}: both must be exactly the same"
    raise VerifierUnavailable(f"The keys of {issuer} cannot be found: {problem}.")


class RemoteKeys:
    """The keys at a URL, or at the `jwks_uri` of an issuer."""

    def __init__(
        self, issuer: str, fetch: Fetch, *, url: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.issuer = issuer
        self.on_rotation: list[Callable[[], None]] = []
        """Called when a key has been removed or replaced."""
        self._fetch = fetch
        self._url = url
        self._clock = clock
        self._keys: dict[str, list[Key]] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, id: str | None) -> list[Key]:
        """Return the keys with this id; all keys if `id` is None.

        Raises:
            VerifierUnavailable: no keys are known, or only old ones (`STALE_SECONDS`), and they cannot be fetched now.
        """
        now = self._clock()
        age = now - self._fetched_at
        is_unknown = age > STALE_SECONDS or (id is not None and id not in self._keys)
        if (is_unknown or age > FRESH_SECONDS) and self._fetching is None and now - self._tried_at > COOLDOWN_SECONDS:
            self._tried_at = now
            self._fetching = asyncio.get_running_loop().create_task(self._refresh())
            self._fetching.add_done_callback(self._fetched)
        if is_unknown and self._fetching is not None:  # a known key is used without waiting
            try:
                await asyncio.shield(self._fetching)
            except VerifierUnavailable:
                if age > STALE_SECONDS:
                    raise
        elif age > STALE_SECONDS:
            raise VerifierUnavailable(f"The keys of {self.issuer} could not be fetched a moment ago.")
        if id is not None:
            return self._keys.get(id, [])
        return [key for keys in self._keys.values() for key in keys]

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs the exception if no call has waited for the task

    async def _refresh(self) -> None:
        url = self._url
        if url is None:
            metadata = await fetch_metadata(self.issuer, self._fetch)
            if metadata.jwks_uri is None:
                raise VerifierUnavailable(f"The metadata of {self.issuer} has no jwks_uri.")
            url = metadata.jwks_uri
        try:
            response = await self._fetch("GET", url, {"Accept": "application/jwk-set+json, application/json"}, None)
            if response.status != 200:
                raise VerifierUnavailable(f"{url} answered {response.status}.")
            entries = msgspec.json.decode(response.body, type=dict[str, Any])["keys"]
        except ConnectionFailed as error:
            raise VerifierUnavailable(str(error)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
            raise VerifierUnavailable(f"{url} has no set of keys (RFC 7517 §5).") from None
        keys = import_keys(entries)
        if not keys:
            raise VerifierUnavailable(f"{url} has no key that can verify signatures.")
        removed = _identities(self._keys) - _identities(keys)
        self._keys, self._fetched_at = keys, self._clock()
        if removed:
            for forget in self.on_rotation:
                forget()


def import_keys(entries: Any) -> dict[str, list[Key]]:
    """Return the public signing keys in the list `keys` of a set, by their ids (`kid`, or "").

    Other keys are left out, above all symmetric ones: anyone who reads the public document could sign with them.
    """
    from joserfc import jwk
    from joserfc.errors import JoseError, SecurityWarning

    keys: dict[str, list[Key]] = {}
    for entry in entries[:MAX_KEYS] if is_list(entries) else ():
        if not isinstance(entry, Mapping):
            continue
        fields = {name: value for name, value in cast("Mapping[str, Any]", entry).items() if name not in _SECRET}
        if fields.get("kty") not in ("RSA", "EC", "OKP") or fields.get("use", "sig") != "sig":
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SecurityWarning)  # about short keys, which are left out
                key = jwk.import_key(cast("Any", fields))
            if isinstance(key, jwk.RSAKey) and key.public_key.key_size < MIN_RSA_BITS:
                continue
        except (JoseError, ValueError, TypeError, KeyError, AttributeError):
            continue
        keys.setdefault(str(fields.get("kid", "")), []).append(key)
    return keys


def _identities(keys: Mapping[str, list[Key]]) -> set[tuple[str, str]]:
    """Return the id and RFC 7638 thumbprint of each key: an issuer may replace a key without changing its id."""
    return {(id, key.thumbprint()) for id, group in keys.items() for key in group}


_SECRET = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""The members of a JWK that are secret (RFC 7518 §6)."""
