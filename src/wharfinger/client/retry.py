"""`Retry` configures how a client recovers from failures; functions say which failures are worth another attempt."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    NotAuthorized,
    NotMCP,
    RemoteError,
    UnsupportedRevision,
)

__all__ = ["NEVER", "Retry", "is_transient", "requested_wait"]

UNAVAILABLE_STATUSES = frozenset({502, 503, 504})
"""HTTP statuses of a proxy that cannot reach its server at the moment."""
MAX_WAIT_SECONDS = 1e9
"""If a server names a longer wait, it is ignored."""
TOO_MANY_REQUESTS = 429
"""The HTTP status of a request that was not served because of a limit (RFC 6585 §4)."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How a client recovers from a lost connection: how often it reconnects, and what it sends again.

    Before the n-th attempt in a row it waits for a random time of at most `initial_delay * 2**(n-1)` seconds, and at
    most `max_delay`, so that the clients of one server do not all reconnect at once.
    """

    attempts: int = 5
    """Attempts to connect that one call waits for; with 0, no call connects again."""
    watch_attempts: int = 50
    """Failures in a row after which a watch ends with the last error; about ten minutes with the other defaults."""
    initial_delay: float = 0.1
    max_delay: float = 30.0
    reset_after: float = 10.0
    """Seconds that a connection must last before failures are counted from zero again."""
    heartbeat: float = 60.0
    """Average seconds between pings of a server at a URL while something is watched; 0 sends none."""
    retry_reads: bool = True
    """Whether requests that only read are sent again after their connection was lost."""
    trust_hints: bool = False
    """Whether calls of tools with a read-only or idempotent hint are sent again, too. Only for trusted servers."""


NEVER = Retry(attempts=0, watch_attempts=0, retry_reads=False, heartbeat=0)
"""Never connects again, and sends nothing twice."""


def is_transient(error: BaseException) -> bool:
    """Return whether another attempt may succeed.

    It cannot if the server is of the wrong kind, or refuses the credentials.
    """
    if isinstance(error, NotAuthorized | NotMCP | UnsupportedRevision):
        return False
    if isinstance(error, ConnectionFailed):
        return error.status is None or error.status in UNAVAILABLE_STATUSES
    return isinstance(error, ConnectionLost)


def requested_wait(error: BaseException) -> float | None:
    """Return the seconds after which the server asks to send a refused request again; None if it names no time.

    A server names them in `retryAfter` of the error's data, a proxy in the header `Retry-After` of a 429.
    """
    seconds: Any = None
    if isinstance(error, RemoteError) and isinstance(error.data, dict):
        seconds = cast("dict[str, Any]", error.data).get("retryAfter")
    elif isinstance(error, ConnectionFailed) and error.status == TOO_MANY_REQUESTS:
        seconds = error.retry_after
    usable = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds <= MAX_WAIT_SECONDS
    return float(seconds) if usable else None
