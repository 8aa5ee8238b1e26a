"""Which era a server speaks, decided from its answers; sends nothing, waits for nothing, knows no transport."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal

import msgspec

from wharfinger import types as t
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
    "Found",
    "GiveUp",
    "Initialize",
    "NextStep",
    "RevisionCache",
    "Stateless",
    "Step",
    "decide_discover",
    "decide_initialize",
    "decide_refusal",
    "first_step",
    "read_error",
    "supported_in",
    "told",
]


class Discover(msgspec.Struct, frozen=True):
    """Next: ask `server/discover` in this stateless revision."""

    revision: str
    again: bool = False
    """The server has refused a revision once; it gets no third question."""


class Initialize(msgspec.Struct, frozen=True):
    """Next: open with the handshake and ask for this revision."""

    revision: str


class Stateless(msgspec.Struct, frozen=True):
    """Settled: the server is stateless and both ends speak `revision`."""

    revision: str
    discovered: t.DiscoverResult


class GiveUp(msgspec.Struct, frozen=True):
    """Settled: there is no way to speak with this server; raise `error`."""

    error: WharfingerError


Step = Discover | Initialize
NextStep = Discover | Initialize | Stateless | GiveUp


class _Supported(msgspec.Struct):
    """What counts in the data of an error -32022."""

    supported: list[str]


_STATELESS_CODES = frozenset({HeaderMismatch.code, MissingClientCapability.code})
"""Errors that only a stateless server gives: falling back to the handshake would hide what is wrong (spec: §2.5)."""

_decode_error = msgspec.json.Decoder(t.ErrorObject).decode
_decode_discovered = msgspec.json.Decoder(t.DiscoverResult).decode


Found = Literal["stateless", "handshake", "sse"]
"""What a server was found to speak: an era, or that of the handshake over HTTP+SSE of 2024-11-05."""


class RevisionCache:
    """What each server was found to speak (2026-07-28, versioning: the era belongs to the server); times in seconds.

    What is known ends with its age: a server may have been brought up to date.
    """

    def __init__(self, clock: Callable[[], float], most: int = 1024, age: float = 3600.0) -> None:
        self._clock = clock
        self._most = most
        self._age = age
        self._found: dict[Hashable, tuple[Found, float]] = {}

    def get(self, server: Hashable) -> Found | None:
        """What the server was found to speak; None where that is not known, or too old."""
        found, when = self._found.get(server, (None, 0.0))
        return found if found is not None and self._clock() - when < self._age else None

    def put(self, server: Hashable, found: Found) -> None:
        """Remember it; the oldest is forgotten where there are too many."""
        self._found.pop(server, None)
        if len(self._found) >= self._most:
            del self._found[next(iter(self._found))]
        self._found[server] = found, self._clock()

    def forget(self, server: Hashable) -> None:
        """It was wrong."""
        self._found.pop(server, None)

    def clear(self) -> None:
        """Forget every server."""
        self._found.clear()


def first_step(pinned: str | None = None, known: Found | None = None) -> Step:
    """What to send first: `server/discover` in our newest revision, or what the pinned revision opens with.

    A server that is `known` for the handshake era is asked in its own way at once.

    Raises:
        UnsupportedRevision: the pinned revision is none of ours.
    """
    if pinned is None:
        return Discover(STATELESS[0]) if known in (None, "stateless") else Initialize(HANDSHAKE[0])
    if pinned not in REVISIONS:
        raise UnsupportedRevision(f"Unknown revision {pinned!r}: use one of {', '.join(SUPPORTED)}.", SUPPORTED)
    return Discover(pinned) if pinned in STATELESS else Initialize(pinned)


def decide_discover(asked: Discover, answer: Message | None, pinned: str | None = None) -> NextStep:
    """What an answer to `server/discover` means; None is no answer in time, and an HTTP answer that is no message.

    Only a DiscoverResult or one of the stateless era's own errors shows that era. Whatever else comes, an empty success
    included, is a server of the handshake (2026-07-28, versioning: never key on one code).
    """
    if answer is not None and not isinstance(answer.error, msgspec.UnsetType):
        error = read_error(answer)
        supported = _supported_of(error.data)
        if error.code == UnsupportedVersion.code and supported:
            return _choose_again(asked, supported, pinned)
        if error.code in _STATELESS_CODES:
            return GiveUp(told(answer))
    elif answer is not None and not isinstance(answer.result, msgspec.UnsetType):
        try:
            discovered = _decode_discovered(answer.result)
        except msgspec.MsgspecError:
            return _fall_back(pinned)
        return _choose(discovered, pinned)
    return _fall_back(pinned)


def decide_initialize(result: t.InitializeResult, pinned: str | None = None) -> str:
    """The revision that a handshake has agreed on.

    Raises:
        UnsupportedRevision: the server chose one that we do not speak, or not the pinned one.
    """
    chosen = result.protocol_version
    if chosen not in HANDSHAKE or (pinned is not None and chosen != pinned):
        wanted = pinned or ", ".join(HANDSHAKE)
        raise UnsupportedRevision(f"The server chose revision {chosen[:40]!r}; this client wants {wanted}.", (chosen,))
    return chosen


def decide_refusal(answer: Message, asked: Discover | None, pinned: str | None = None) -> NextStep:
    """What an error that answers `initialize` means: a stateless server that names its revisions there is asked again.

    `asked` is the question of the stateless era that was not answered in time, None where it was answered.
    """
    error = read_error(answer)
    if error.code == UnsupportedVersion.code and pinned not in HANDSHAKE:
        shared = _first_shared(STATELESS, _supported_of(error.data), pinned)
        if shared and not (asked and asked.again):
            return Discover(shared, again=True)
    return GiveUp(told(answer))


def read_error(answer: Message) -> t.ErrorObject:
    """The error object of an answer; a malformed one becomes an error without a meaning, never an exception."""
    if isinstance(answer.error, msgspec.UnsetType):
        return t.ErrorObject(code=0, message="The server's answer is not an error.")
    try:
        return _decode_error(answer.error)
    except msgspec.MsgspecError:
        return t.ErrorObject(code=0, message="The server sent an error that is not one of JSON-RPC.")


def supported_in(error: RemoteError) -> list[str] | None:
    """The revisions that an error -32022 names, or None for every other error (2026-07-28, versioning)."""
    return _supported_of(error.data) if error.code == UnsupportedVersion.code else None


def told(answer: Message) -> RemoteError:
    """The error to raise for an answer that is one."""
    error = read_error(answer)
    return remote_error(error.code, error.message, _data_of(error))


def _choose(discovered: t.DiscoverResult, pinned: str | None) -> NextStep:
    supported = discovered.supported_versions
    stateless = _first_shared(STATELESS, supported, pinned)
    if stateless:
        return Stateless(stateless, discovered)
    return _handshake_or_nothing(supported, pinned)


def _choose_again(asked: Discover, supported: list[str], pinned: str | None) -> NextStep:
    # A server may refuse the revision that it lists as its own; the question is worth a second try (spec: §2.4).
    shared = _first_shared(STATELESS, supported, pinned)
    if shared and not asked.again:
        return Discover(shared, again=True)
    return _handshake_or_nothing(supported, pinned)


def _handshake_or_nothing(supported: list[str], pinned: str | None) -> NextStep:
    shared = _first_shared(HANDSHAKE, supported, pinned)
    if shared:
        return Initialize(shared)
    theirs = ", ".join(name[:40] for name in supported[:10]) or "none"
    ours = pinned or ", ".join(SUPPORTED)
    message = f"No revision in common: the server offers {theirs}; this client wants {ours}."
    return GiveUp(UnsupportedRevision(message, supported))


def _fall_back(pinned: str | None) -> NextStep:
    if pinned is None:
        return Initialize(HANDSHAKE[0])
    return GiveUp(
        UnsupportedRevision(f"The server does not speak the pinned revision {pinned}: it knows no server/discover.")
    )


def _first_shared(ours: Iterable[str], theirs: Iterable[str], pinned: str | None) -> str | None:
    offered = set(theirs)
    return next((name for name in ours if name in offered and pinned in (None, name)), None)


def _supported_of(data: Any) -> list[str]:
    try:
        return msgspec.convert(data, _Supported).supported
    except msgspec.ValidationError:
        return []


def _data_of(error: t.ErrorObject) -> Any:
    return None if error.data is msgspec.UNSET else error.data
