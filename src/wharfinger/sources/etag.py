"""Versions of content that has no other mark than the content itself."""

from __future__ import annotations

import hashlib

__all__ = ["digest"]


def digest(*parts: str | bytes) -> str:
    """A digest of the parts, which also depends on where one ends and the next begins."""
    result = hashlib.blake2b(digest_size=12)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        result.update(len(data).to_bytes(8, "big") + data)
    return result.hexdigest()
