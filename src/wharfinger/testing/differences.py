"""The error of every comparison in these tools; compares nothing itself."""

from __future__ import annotations

__all__ = ["Differs"]


class Differs(AssertionError):
    """Two runs that should be alike are not; the message says how."""
