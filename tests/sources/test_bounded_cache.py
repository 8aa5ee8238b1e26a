"""A cache of bounded cost keeps the values that were used last."""

from __future__ import annotations

from wharfinger.sources.bounded_cache import BoundedCache


def test_a_value_that_is_too_large_replaces_the_old_value_by_none() -> None:
    """Regression: the old value stayed, and was returned although it was out of date."""
    cache: BoundedCache[str, str] = BoundedCache(10)
    cache.put("a", "old", 2)
    assert cache.put("a", "new", 6) == "new"
    assert cache.get("a") is None
    cache.put("a", "small", 5)
    assert cache.get("a") == "small"
