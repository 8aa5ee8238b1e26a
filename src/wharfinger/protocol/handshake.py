"""The session of the handshake era: its phases, and the revision that client and server agreed on."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidRequest
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.revisions import HANDSHAKE, LATEST_HANDSHAKE, REVISIONS, Revision

__all__ = ["Caller", "Phase", "SendNotification", "Session"]


SendNotification = Callable[[bytes], bool]
"""Sends a notification that belongs to no request; returns False if it was dropped: the reader is too slow, or gone."""


class Caller(msgspec.Struct, frozen=True, eq=False):
    """The caller of a request: its revision, client, capabilities and principal.

    `info` and `capabilities` are the client's own claims: do not base security decisions on them. `principal` comes
    from the transport's check of credentials.
    """

    rules: Revision
    info: t.Implementation | None
    capabilities: t.ClientCapabilities
    principal: Principal = ANONYMOUS

    def extension(self, id: str) -> dict[str, Any] | None:
        """Return the client's settings for an extension such as `io.modelcontextprotocol/ui`; None if not declared."""
        declared = self.capabilities.extensions
        return None if declared is UNSET else declared.get(id)


class Phase(Enum):
    """The phase of a session."""

    NEW = "nothing is agreed on"
    OPENING = "initialize was read, but the client has not confirmed it"
    OPEN = "the client has confirmed it with notifications/initialized"
    CLOSED = "the connection is closed"


_NOT_OPEN_MESSAGE = (
    'Send "initialize" first, or put io.modelcontextprotocol/protocolVersion into params._meta of every request.'
)
_CLOSED_MESSAGE = "This session is closed."

TRANSITIONS: dict[tuple[Phase, str], Phase | str] = {
    (Phase.NEW, "initialize"): Phase.OPENING,
    (Phase.NEW, "ping"): Phase.NEW,
    (Phase.NEW, "notifications/initialized"): Phase.NEW,
    (Phase.NEW, ""): _NOT_OPEN_MESSAGE,
    # A bridge may send an initialize of its own, and later pass on that of its client. `agree` ensures that the second
    # one changes nothing.
    (Phase.OPENING, "initialize"): Phase.OPENING,
    (Phase.OPENING, "ping"): Phase.OPENING,
    (Phase.OPENING, "notifications/initialized"): Phase.OPEN,
    # A client may send a call right after initialize: both are answered.
    (Phase.OPENING, ""): Phase.OPENING,
    (Phase.OPEN, "initialize"): Phase.OPEN,
    (Phase.OPEN, "ping"): Phase.OPEN,
    (Phase.OPEN, "notifications/initialized"): Phase.OPEN,
    (Phase.OPEN, ""): Phase.OPEN,
    (Phase.CLOSED, "initialize"): _CLOSED_MESSAGE,
    (Phase.CLOSED, "ping"): _CLOSED_MESSAGE,
    (Phase.CLOSED, "notifications/initialized"): Phase.CLOSED,
    (Phase.CLOSED, ""): _CLOSED_MESSAGE,
}
"""Maps (phase, method) to the next phase or to an error message; the empty method stands for all others."""

_UNKNOWN_CALLER = Caller(REVISIONS[LATEST_HANDSHAKE], None, t.ClientCapabilities())


class Session:
    """One session of the handshake era on a server: its phase, its caller, and how to send to the client."""

    __slots__ = ("__weakref__", "caller", "log_level", "on_close", "phase", "principal", "send_notification")

    def __init__(self, principal: Principal = ANONYMOUS, send_notification: SendNotification | None = None) -> None:
        self.phase = Phase.NEW
        self.principal = principal
        self.caller = _UNKNOWN_CALLER
        self.log_level: str | None = None
        """The lowest level of log messages that the client requested; None until then."""
        self.send_notification: SendNotification | None = send_notification
        """Sends notifications that belong to no request; None if the client has no stream open for them."""
        self.on_close: list[Callable[[Session], None]] = []
        """Called once when the session is closed, to drop data that belongs to this session."""

    def renew(self, principal: Principal) -> None:
        """Use a new credential of the same caller for the requests that follow: its scopes may differ."""
        if principal is not self.principal:
            self.principal = principal
            if self.caller is not _UNKNOWN_CALLER:
                self.caller = msgspec.structs.replace(self.caller, principal=principal)

    def admit(self, method: str) -> Caller:
        """Move to the phase after a request with this method, and return the caller.

        Raises:
            InvalidRequest: the method is not allowed in this phase.
        """
        if self.phase is not Phase.OPEN or method == "initialize":
            self.advance(method)
        return self.caller

    def advance(self, method: str) -> bool:
        """Move to the phase after a message with this method. Returns whether the phase changed.

        Raises:
            InvalidRequest: the method is not allowed in this phase.
        """
        target = TRANSITIONS.get((self.phase, method)) or TRANSITIONS[self.phase, ""]
        if isinstance(target, str):
            raise InvalidRequest(target)
        changed, self.phase = target is not self.phase, target
        return changed

    def agree(self, params: t.InitializeRequestParams) -> None:
        """Agree on the revision: the client's if it is supported and of the handshake era, else the latest of that era.

        Works once: a repeated `initialize` gets the same answer as the first and changes nothing.

        Raises:
            InvalidRequest: the session uses another revision already.
        """
        requested = params.protocol_version
        rules = REVISIONS[requested if requested in HANDSHAKE else LATEST_HANDSHAKE]
        if self.caller is _UNKNOWN_CALLER:
            self.caller = Caller(rules, params.client_info, params.capabilities, self.principal)
        elif self.caller.rules is not rules:
            agreed = self.caller.rules.name
            raise InvalidRequest(f"This session already uses {agreed}: ask for that, or open another session.")

    def send(self, message: bytes) -> bool:
        """Send a notification that belongs to no request.

        Returns False if the session is not open or has no stream for notifications, or if the notification was dropped.
        """
        return self.send_notification is not None and self.phase is Phase.OPEN and self.send_notification(message)

    def close(self) -> None:
        """Close the session, and call everything in `on_close`."""
        self.phase, self.send_notification = Phase.CLOSED, None
        while self.on_close:
            self.on_close.pop()(self)
