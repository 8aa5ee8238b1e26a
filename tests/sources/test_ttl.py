"""How long an answer may be cached: a share of the time since the last change, with a maximum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.sources.ttl import MAX_TTL_MS, ttl_ms


@pytest.mark.parametrize(
    ("modified", "expected"),
    [(None, 0), (1_000.0, 0), (999.0, 100), (900.0, 10_000), (0.0, MAX_TTL_MS), (2_000.0, 0)],
    ids=["unknown", "just now", "a second ago", "100 s ago", "long ago", "in the future"],
)
def test_the_ttl_is_a_tenth_of_the_time_since_the_change(modified: float | None, expected: int) -> None:
    assert ttl_ms(modified, 1_000.0) == expected


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 4e9))
def test_the_ttl_is_bounded_for_any_time(modified: float, now: float) -> None:
    assert 0 <= ttl_ms(modified, now) <= MAX_TTL_MS
