"""The height of the tide between a high and a low water, by the rule of twelfths."""

from __future__ import annotations

import math


def height(high: float, low: float, hours_after_high: float, duration: float = 6.2) -> float:
    """Return the metres above chart datum; the curve between the two is half a cosine."""
    fraction = min(max(hours_after_high / duration, 0.0), 1.0)
    return low + (high - low) * (1 + math.cos(math.pi * fraction)) / 2
