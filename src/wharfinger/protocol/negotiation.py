"""Decides from a server's answers which revision of the protocol to use. Does no I/O.

For a server that it does not know yet, a client proceeds like this:

1. `first_step`: send `server/discover` in the newest stateless revision.
2. `decide_discover`: a `DiscoverResult` means the stateless era. After an error that only a stateless server sends, the
   client gives up. An error -32022 lists the server's revisions: one that both support is tried once. Anything else,
   even no answer in time, means a server of the handshake era.
3. Handshake: send `initialize`. `decide_initialize` checks the revision that the server chose; `decide_refusal` handles
   an error, which may reveal a stateless server after all.

Each decision is a value: the next request to send (`Discover`, `Initialize`), or the end (`Stateless`, `GiveUp`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal

import msgspec

from wharfinger import types as t
from wharfinger.content.text import printable
from wharfinger.errors import (
    HeaderMismatch,
    MissingClientCapability,
    RemoteError,
    UnsupportedRevision,
    UnsupportedVersion,
    WharfingerError,
    remote_error,
)
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.revisions import HANDSHAKE, REVISIONS, STATELESS, SUPPORTED

__all__ = [
    "Discover",
    "GiveUp",
    "Initialize",
    "NextStep",
    "ProtocolCache",
    "ServerProtocol",
    "Stateless",
    "Step",
    "decide_discover",
    "decide_initialize",
    "decide_refusal",
    "first_step",
    "read_error",
    "supported_in",
    "to_remote_error",
]


class Discover(msgspec.Struct, frozen=True):
    """Next: send `server/discover` in this stateless revision."""

    revision: str
    again: bool = False
    """Whether the server has already refused one revision. If it refuses this one too, only the handshake is left."""


class Initialize(msgspec.Struct, frozen=True):
    """Next: open with the handshake and ask for this revision."""

    revision: str


class Stateless(msgspec.Struct, frozen=True):
    """Decided: the server is stateless, and both ends use `revision`."""

    revision: str
    discovered: t.DiscoverResult


class GiveUp(msgspec.Struct, frozen=True):
    """Decided: this server cannot be used; raise `error`."""

    error: WharfingerError


Step = Discover | Initialize
NextStep = Discover | Initialize | Stateless | GiveUp


class _Supported(msgspec.Struct):
    """The part of the data of error -32022 that is read."""

    supported: list[str]


_STATELESS_CODES = frozenset({HeaderMismatch.code, MissingClientCapability.code})
"""Errors that only a stateless server sends: falling back to the handshake would hide the cause."""

_decode_error = msgspec.json.Decoder(t.ErrorObject).decode
_decode_discovered = msgspec.json.Decoder(t.DiscoverResult).decode


ServerProtocol = Literal["stateless", "handshake", "sse"]
"""The protocol that a server speaks: an era, or the handshake era over HTTP+SSE of 2024-11-05."""


class ProtocolCache:
    """Remembers the protocol of each server (2026-07-28, versioning: the era belongs to the server).

    An entry expires after `max_age` seconds, because the server may have been updated.
    """

    def __init__(self, clock: Callable[[], float], max_servers: int = 1024, max_age: float = 3600.0) -> None:
        self._clock = clock
        self._max_servers = max_servers
        self._max_age = max_age
        self._protocols: dict[Hashable, tuple[ServerProtocol, float]] = {}

    def get(self, server: Hashable) -> ServerProtocol | None:
        """Return the protocol of a server; None if there is no entry, or it has expired."""
        protocol, when = self._protocols.get(server, (None, 0.0))
        return protocol if protocol is not None and self._clock() - when < self._max_age else None

    def put(self, server: Hashable, protocol: ServerProtocol) -> None:
        """Remember the protocol of a server; the oldest entry is dropped if there are too many."""
        self._protocols.pop(server, None)
        if len(self._protocols) >= self._max_servers:
            del self._protocols[next(iter(self._protocols))]
        self._protocols[server] = protocol, self._clock()

    def forget(self, server: Hashable) -> None:
        """Drop the entry of a server, because it was wrong."""
        self._protocols.pop(server, None)

    def clear(self) -> None:
        """Forget every server."""
        self._protocols.clear()


def first_step(pinned: str | None = None, known: ServerProtocol | None = None) -> Step:
    """Return the first request: `server/discover` in the newest revision, or the first request of the pinned revision.

    A server that is `known` to speak the handshake era gets `initialize` at once.

    Raises:
        UnsupportedRevision: the pinned revision is unknown.
    """
    if pinned is None:
        return Discover(STATELESS[0]) if known in (None, "stateless") else Initialize(HANDSHAKE[0])
    if pinned not in REVISIONS:
        raise UnsupportedRevision(f"Unknown revision {pinned!r}: use one of {', '.join(SUPPORTED)}.", SUPPORTED)
    return Discover(pinned) if pinned in STATELESS else Initialize(pinned)


def decide_discover(request: Discover, answer: Message | None, pinned: str | None = None) -> NextStep:
    """Return the next step after an answer to `server/discover`. None stands for an answer that did not come in time or
    is not a message.

    Only a `DiscoverResult` or an error of the stateless era shows that era. Anything else, including an empty result,
    means the handshake era (2026-07-28, versioning: do not decide by one error code).
    """
    if answer is not None and not isinstance(answer.error, msgspec.UnsetType):
        error = read_error(answer)
        supported = _supported_of(error.data)
        if error.code == UnsupportedVersion.code and supported:
            # A server may refuse even a revision that it lists: try once more, not for ever.
            shared = _first_shared(STATELESS, supported, pinned)
            if shared and not request.again:
                return Discover(shared, again=True)
            return _handshake_or_give_up(supported, pinned)
        if error.code in _STATELESS_CODES:
            return GiveUp(to_remote_error(answer))
    elif answer is not None and not isinstance(answer.result, msgspec.UnsetType):
        try:
            discovered = _decode_discovered(answer.result)
        except msgspec.MsgspecError:
            return _fall_back(pinned)
        shared = _first_shared(STATELESS, discovered.supported_versions, pinned)
        if shared:
            return Stateless(shared, discovered)
        return _handshake_or_give_up(discovered.supported_versions, pinned)
    return _fall_back(pinned)


def decide_initialize(result: t.InitializeResult, pinned: str | None = None) -> str:
    """Return the revision that a handshake has agreed on.

    Raises:
        UnsupportedRevision: the server chose an unknown revision, or not the pinned one.
    """
    chosen = result.protocol_version
    if chosen not in HANDSHAKE or (pinned is not None and chosen != pinned):
        expected = pinned or ", ".join(HANDSHAKE)
        raise UnsupportedRevision(
            f"The server chose revision {chosen[:40]!r}; this client requires {expected}.", (chosen,)
        )
    return chosen


def decide_refusal(answer: Message, pinned: str | None = None) -> NextStep:
    """Return the next step after an error response to `initialize`.

    If the error lists a stateless revision that both support, the next step is another `server/discover`. Otherwise the
    client gives up.
    """
    error = read_error(answer)
    if error.code == UnsupportedVersion.code and pinned not in HANDSHAKE:
        shared = _first_shared(STATELESS, _supported_of(error.data), pinned)
        if shared:
            return Discover(shared, again=True)
    return GiveUp(to_remote_error(answer))


def read_error(answer: Message) -> t.ErrorObject:
    """Return the error object of a response. A malformed one becomes an error with code 0, not an exception."""
    if isinstance(answer.error, msgspec.UnsetType):
        return t.ErrorObject(code=0, message="The server's response is not an error.")
    try:
        return _decode_error(answer.error)
    except msgspec.MsgspecError:
        return t.ErrorObject(code=0, message="The server sent an error that is not a JSON-RPC error object.")


def supported_in(error: RemoteError) -> list[str] | None:
    """Return the revisions that an error -32022 lists; None for any other error (2026-07-28, versioning)."""
    return _supported_of(error.data) if error.code == UnsupportedVersion.code else None


def to_remote_error(answer: Message) -> RemoteError:
    """Return the exception for an error response."""
    error = read_error(answer)
    return remote_error(error.code, error.message, None if error.data is msgspec.UNSET else error.data)


def _handshake_or_give_up(supported: list[str], pinned: str | None) -> NextStep:
    shared = _first_shared(HANDSHAKE, supported, pinned)
    if shared:
        return Initialize(shared)
    theirs = ", ".join(printable(name[:40]) for name in supported[:10]) or "none"
    ours = pinned or ", ".join(SUPPORTED)
    message = f"No revision in common: the server offers {theirs}; this client requires {ours}."
    return GiveUp(UnsupportedRevision(message, supported))


def _fall_back(pinned: str | None) -> NextStep:
    if pinned is None:
        return Initialize(HANDSHAKE[0])
    return GiveUp(
        UnsupportedRevision(f"The server does not support the pinned revision {pinned}: it has no server/discover.")
    )


def _first_shared(ours: Iterable[str], theirs: Iterable[str], pinned: str | None) -> str | None:
    offered = set(theirs)
    return next((name for name in ours if name in offered and pinned in (None, name)), None)


def _supported_of(data: Any) -> list[str]:
    try:
        return msgspec.convert(data, _Supported).supported
    except msgspec.ValidationError:
        return []
