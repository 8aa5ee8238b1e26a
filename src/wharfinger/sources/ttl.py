"""Computes the `ttlMs` of a result (2026-07-28): how long clients may use it, from the age of its content.

Content that changed a moment ago is likely to change again soon, so a result is valid for a tenth of the time since the
last change, as HTTP caches assume too (RFC 9111).
"""

from __future__ import annotations

import time

__all__ = ["IMMUTABLE_TTL_MS", "MAX_TTL_MS", "ttl_ms"]

IMMUTABLE_TTL_MS = 24 * 3600 * 1000
"""The `ttlMs` of content that never changes, because its URI contains its digest."""
MAX_TTL_MS = 60_000
"""Maximum `ttlMs` of content that may change at any time."""
AGE_RATIO = 10
"""The age of the content divided by its `ttlMs`."""

_MAX_AGE_SECONDS = MAX_TTL_MS * AGE_RATIO / 1000


def ttl_ms(modified: float | None, now: float | None = None) -> int:
    """Return the `ttlMs` of content that changed at `modified` (Unix time); 0 if that is unknown or in the future."""
    if modified is None:
        return 0
    age = (time.time() if now is None else now) - modified
    return 0 if age <= 0 else MAX_TTL_MS if age >= _MAX_AGE_SECONDS else int(age * 1000 / AGE_RATIO)
