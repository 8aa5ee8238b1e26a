"""The `initialize` handshake as a transition table, and what it settles for a session; sends nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidRequest
from wharfinger.protocol.revisions import HANDSHAKE, LATEST_HANDSHAKE, REVISIONS, Revision

__all__ = ["Caller", "Phase", "SendNotification", "Session"]


SendNotification = Callable[[bytes], bool]
"""Sends a message that belongs to no request; False where it was dropped because the reader is too slow or gone."""


class Caller(msgspec.Struct, frozen=True, eq=False):
    """Who asks: in which revision, as which client, with which capabilities and principal.

    `info` and `capabilities` are what the client says of itself: never a ground for a decision about security.
    `principal` comes from the transport's check of credentials; empty is anonymous.
    """

    rules: Revision
    info: t.Implementation | None
    capabilities: t.ClientCapabilities
    principal: str = ""

    def extension(self, id: str) -> dict[str, Any] | None:
        """What the client declares for an extension, such as `io.modelcontextprotocol/ui`; None where it does not."""
        declared = self.capabilities.extensions
        return None if declared is UNSET else declared.get(id)


class Phase(Enum):
    """How far a session has come."""

    NEW = "nothing was agreed on"
    OPENING = "initialize was read; the client has not confirmed it"
    OPEN = "the client has confirmed with notifications/initialized"
    CLOSED = "the connection is gone"


_NOT_YET = 'Send "initialize" first, or put io.modelcontextprotocol/protocolVersion into params._meta of every request.'
_GONE = "This session is closed."

TRANSITIONS: dict[tuple[Phase, str], Phase | str] = {
    (Phase.NEW, "initialize"): Phase.OPENING,
    (Phase.NEW, "ping"): Phase.NEW,
    (Phase.NEW, "notifications/initialized"): Phase.NEW,
    (Phase.NEW, ""): _NOT_YET,
    # A bridge may have opened the session before its client does. `agree` sees to it that nothing changes.
    (Phase.OPENING, "initialize"): Phase.OPENING,
    (Phase.OPENING, "ping"): Phase.OPENING,
    (Phase.OPENING, "notifications/initialized"): Phase.OPEN,
    # A client may pipeline a call behind initialize: both are answered (security: L07).
    (Phase.OPENING, ""): Phase.OPENING,
    (Phase.OPEN, "initialize"): Phase.OPEN,
    (Phase.OPEN, "ping"): Phase.OPEN,
    (Phase.OPEN, "notifications/initialized"): Phase.OPEN,
    (Phase.OPEN, ""): Phase.OPEN,
    (Phase.CLOSED, "initialize"): _GONE,
    (Phase.CLOSED, "ping"): _GONE,
    (Phase.CLOSED, "notifications/initialized"): Phase.CLOSED,
    (Phase.CLOSED, ""): _GONE,
}
"""(phase, method) to the next phase, or to why it is refused; the empty method is every other one."""

_UNKNOWN = Caller(REVISIONS[LATEST_HANDSHAKE], None, t.ClientCapabilities(), "")


class Session:
    """One connection of the handshake era, from the server's side: what was agreed on, and the way to its client."""

    __slots__ = ("__weakref__", "caller", "log_level", "on_close", "phase", "principal", "send_notification")

    def __init__(self, principal: str = "", send_notification: SendNotification | None = None) -> None:
        self.phase = Phase.NEW
        self.principal = principal
        self.caller = _UNKNOWN
        self.log_level: str | None = None
        """The least level of log messages that the client asked for; None until it did."""
        self.send_notification: SendNotification | None = send_notification
        """How to send what belongs to no request; None where the client keeps no stream open for it."""
        self.on_close: list[Callable[[Session], None]] = []
        """Called once each when the connection is gone: whoever keeps something for this session drops it."""

    def admit(self, method: str) -> Caller:
        """Move on by one method and say who calls.

        Raises:
            InvalidRequest: the method is not allowed in this phase.
        """
        if self.phase is not Phase.OPEN or method == "initialize":
            self.advance(method)
        return self.caller

    def advance(self, method: str) -> bool:
        """Look the method up in the table; True where the phase changed.

        Raises:
            InvalidRequest: the method is not allowed in this phase.
        """
        target = TRANSITIONS.get((self.phase, method)) or TRANSITIONS[self.phase, ""]
        if isinstance(target, str):
            raise InvalidRequest(target)
        changed, self.phase = target is not self.phase, target
        return changed

    def agree(self, params: t.InitializeRequestParams) -> None:
        """Settle the revision: the client's own where we speak it, else our latest (a membership test, no minimum).

        Once only: an `initialize` that is repeated is answered as the first one, and changes nothing (security: L03).

        Raises:
            InvalidRequest: it asks for another revision than the one that was agreed on.
        """
        asked = params.protocol_version
        rules = REVISIONS[asked if asked in HANDSHAKE else LATEST_HANDSHAKE]
        if self.caller is _UNKNOWN:
            self.caller = Caller(rules, params.client_info, params.capabilities, self.principal)
        elif self.caller.rules is not rules:
            agreed = self.caller.rules.name
            raise InvalidRequest(f"This session speaks {agreed} already: ask for that, or open another session.")

    def send(self, message: bytes) -> bool:
        """Send what belongs to no request; False where there is no stream for it, or it was dropped."""
        return self.send_notification is not None and self.phase is Phase.OPEN and self.send_notification(message)

    def close(self) -> None:
        """The connection is gone."""
        self.phase, self.send_notification = Phase.CLOSED, None
        while self.on_close:
            self.on_close.pop()(self)
