"""What may be tried again, and when: a table of methods and a backoff with jitter; opens nothing, sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    NotAuthorized,
    NotMCP,
    UnsupportedRevision,
)

__all__ = ["NEVER", "READS", "Backoff", "Retry", "passes"]

READS = frozenset(
    {
        "completion/complete",
        "ping",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
"""Methods that change nothing: whether one was served is no matter, so that it may be sent a second time."""

UNAVAILABLE = frozenset({502, 503, 504})
"""HTTP statuses of something that stands before a server which is not there at the moment."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How a client stays alive: what it opens again, how often, and what it sends a second time.

    Before the n-th opening in a row it waits for a random time of at most `first * 2**n` seconds, and at most `most`:
    a thousand clients of one server do not all come back at once.
    """

    attempts: int = 5
    """Openings in a row that one call waits for; 0 opens nothing again."""
    watching: int = 50
    """Failures in a row after which a watch ends with the error; with the other defaults some ten minutes."""
    first: float = 0.1
    most: float = 30.0
    stable: float = 10.0
    """Seconds that a connection lasts to be a good one: then the counting begins again."""
    heartbeat: float = 60.0
    """Seconds between the questions that find out whether a silent server is still there, while something is watched;
    0 asks none."""
    reads: bool = True
    """Whether what only reads is sent a second time after its connection was lost."""
    trust_hints: bool = False
    """Whether a tool that its server calls read-only or idempotent is, too: only for servers that you trust."""


NEVER = Retry(attempts=0, watching=0, reads=False, heartbeat=0)
"""Nothing is opened again and nothing sent twice."""


class Backoff:
    """Failures in a row, and how long to wait before the next attempt; `chance` gives numbers from 0 to 1."""

    __slots__ = ("_chance", "_retry", "failures")

    def __init__(self, retry: Retry, chance: Callable[[], float]) -> None:
        self._retry = retry
        self._chance = chance
        self.failures = 0

    def next(self) -> float:
        """Seconds to wait; counts one more failure."""
        longest = min(self._retry.most, self._retry.first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return longest * self._chance()

    def lasted(self, seconds: float) -> None:
        """What was opened has lasted so long: if that was long enough, all before it is forgotten."""
        if seconds >= self._retry.stable:
            self.failures = 0


def passes(error: BaseException) -> bool:
    """Whether it may be over by the next attempt; what the server is, or who we are, does not change by waiting."""
    if isinstance(error, NotAuthorized | NotMCP | UnsupportedRevision):
        return False
    if isinstance(error, ConnectionFailed):
        status: Any = getattr(error, "status", None)
        return status is None or status in UNAVAILABLE
    return isinstance(error, ConnectionLost)
