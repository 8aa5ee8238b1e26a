"""A clock for tests."""

from __future__ import annotations


class FakeClock:
    """A clock that only moves when a test sets `now`."""

    def __init__(self, now: float = 1e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
