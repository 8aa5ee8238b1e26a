"""How long an answer may be used again without asking (`ttlMs`, 2026-07-28), from when its content last changed."""

from __future__ import annotations

import time

__all__ = ["IMMUTABLE", "LONGEST", "ttl_ms"]

IMMUTABLE = 24 * 3600 * 1000
"""Milliseconds for what can never change: content named by its digest."""
LONGEST = 60_000
"""Milliseconds at most for what may change at any time."""
SHARE = 10
"""An answer is good for one part in so many of the time since the last change, as HTTP caches reckon (RFC 9111)."""


def ttl_ms(modified: float | None, now: float | None = None) -> int:
    """Milliseconds for content that last changed at `modified` (Unix time); 0 where that is unknown, or to come.

    What changed a moment ago is likely to change again, so that the time since the last change says how often it does.
    """
    if modified is None:
        return 0
    age = (time.time() if now is None else now) - modified
    return int(max(0.0, min(age * 1000 / SHARE, LONGEST)))
