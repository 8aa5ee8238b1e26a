"""How long an answer may be reused (`ttlMs`, 2026-07-28), computed from when its content last changed."""

from __future__ import annotations

import time

__all__ = ["IMMUTABLE", "LONGEST", "ttl_ms"]

IMMUTABLE = 24 * 3600 * 1000
"""Milliseconds for content that can never change, because its digest names it."""
LONGEST = 60_000
"""Milliseconds at most for content that may change at any time."""
SHARE = 10
"""An answer is fresh for this part of the time since the last change, as in HTTP caches (RFC 9111, 4.2.2)."""


def ttl_ms(modified: float | None, now: float | None = None) -> int:
    """Milliseconds for content that last changed at `modified` (Unix time); 0 if that is unknown or in the future.

    Content that changed a moment ago is likely to change again soon.
    """
    if modified is None:
        return 0
    age = (time.time() if now is None else now) - modified
    return int(max(0.0, min(age * 1000 / SHARE, LONGEST)))
