"""The caller of a request, as the transport identified it by its credentials."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

__all__ = ["ANONYMOUS", "LOCAL", "Principal"]


class Principal(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The caller that a token, or another credential, identifies.

    Issuer and subject together identify a caller: two issuers may use the same subject for different people. `key` is
    a digest of both. Everything that belongs to a caller (sessions, tasks, limits) belongs to this key, so the caller
    keeps it with a new token.
    """

    subject: str
    """The person or service (`sub`), as the issuer names it."""
    issuer: str = ""
    """The authorization server (`iss`), or an empty string for callers that this server itself identified."""
    client: str = ""
    """The OAuth client that uses the token (`client_id` or `azp`), if known."""
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = MappingProxyType({})
    """All other information about the caller, such as `groups` or `email`."""
    expires: float | None = None
    """The time at which the credential expires (seconds since 1970); None if it does not expire."""
    inspector: str = ""
    """The subject of the administrator who sees the server as this principal (`Inspection.view_as`), for the record.
    Empty if the principal itself calls."""
    key: str = ""
    """A digest of issuer and subject. With an `inspector`, it is a digest of both principals, so that the inspector's
    requests count apart. ANONYMOUS and LOCAL have no key: they are identified by address or connection."""

    def __post_init__(self) -> None:
        if not self.key and self.subject:
            text = f"{len(self.issuer)} {self.issuer} {self.subject}"  # the length shows where the issuer ends
            key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
            msgspec.structs.force_setattr(self, "key", key)

    def __repr__(self) -> str:
        """Leave out the claims: they may be personal data, and the text may appear in a log."""
        return f"Principal(subject={self.subject!r}, issuer={self.issuer!r}, client={self.client!r})"


ANONYMOUS = Principal(subject="")
"""A caller without credentials."""

LOCAL = Principal(subject="local")
"""The caller over stdio or on a Unix socket: the user who started the server, or who may open the socket."""
msgspec.structs.force_setattr(LOCAL, "key", "")
