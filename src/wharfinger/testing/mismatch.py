"""`Mismatch`, the error of comparisons."""

from __future__ import annotations

__all__ = ["Mismatch"]


class Mismatch(AssertionError):
    """Two runs that should be the same differ; the message says how."""
