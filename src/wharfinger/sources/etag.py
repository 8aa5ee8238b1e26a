"""Versions that are computed from the content, for data without a modification time or version of its own."""

from __future__ import annotations

import hashlib

__all__ = ["digest"]


def digest(*parts: str | bytes) -> str:
    """Return a digest of the parts. `"ab", "c"` and `"a", "bc"` have different digests."""
    result = hashlib.blake2b(digest_size=12)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        result.update(len(data).to_bytes(8, "big") + data)
    return result.hexdigest()
