"""Every bound that the protocol layer keeps, as one frozen record; the transports have further ones of their own."""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one service; each is a setting, and reaching one is answered, never suffered."""

    message: int = 4 * 1024 * 1024
    """Bytes of one incoming message."""
    depth: int = 64
    """Arrays and objects inside each other in one incoming message."""
    id_length: int = 256
    """Characters of a request id."""
    in_flight: int = 4096
    """Requests of one connection that are being served."""
    listens: int = 64
    """Open `subscriptions/listen` requests of one connection."""
    watched: int = 10_000
    """URIs that one connection or one listen request may watch."""
    backlog: int = 1024 * 1024
    """Unsent bytes of one stream above which notifications are dropped; answers never are."""
    unread: int = 64 * 1024 * 1024
    """Unsent bytes of one stream from which requests are refused, also those being served; at twice as many in refusals
    and other small messages the connection is ended."""
    content: int = 256 * 1024 * 1024
    """Bytes of one content that a handler streams or names by its path."""
    handler_time: float = 300.0
    """Seconds that a handler may take before its request is cancelled and answered with an error."""
    drain: float = 2.0
    """Seconds that requests already read get to finish when the connection or the server ends."""
