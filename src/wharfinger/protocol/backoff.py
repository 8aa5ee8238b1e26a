"""The delay before the next attempt: doubled after each failure, up to a maximum, with jitter. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Backoff"]

MAX_DOUBLINGS = 64
"""A larger exponent could overflow; every `max_delay` is reached with a smaller one."""


class Backoff:
    """Counts failures in a row and returns the delay after each of them.

    Call `failed()` after a failure, and wait for the seconds that it returns; call `succeeded()` when an attempt went
    well. The delay after the n-th failure is at most `initial_delay * 2**(n-1)` seconds, and at most `max_delay`. It is
    multiplied by the result of `random`, a number from 0 to 1, so that a thousand clients of one server do not all
    reconnect at once ("full jitter"). Without `random` it is not multiplied.

    A connection that breaks right after it was opened must not reset the count each time: `succeeded(lasted)`
    forgets the failures only if the connection lasted `reset_after` seconds or longer.
    """

    __slots__ = ("_initial_delay", "_max_delay", "_random", "_reset_after", "failures")

    def __init__(
        self,
        initial_delay: float,
        max_delay: float,
        random: Callable[[], float] | None = None,
        *,
        reset_after: float = 0.0,
    ) -> None:
        self._initial_delay = initial_delay
        self._max_delay = max_delay
        self._random = random
        self._reset_after = reset_after
        self.failures = 0
        """Failures in a row."""

    def failed(self) -> float:
        """Count a failure. Returns the seconds to wait before the next attempt."""
        delay = min(self._max_delay, self._initial_delay * 2.0 ** min(self.failures, MAX_DOUBLINGS))
        self.failures += 1
        return delay if self._random is None else delay * self._random()

    def succeeded(self, lasted: float | None = None) -> None:
        """Forget the failures; if `lasted` is given, only when the success lasted `reset_after` seconds or longer."""
        if lasted is None or lasted >= self._reset_after:
            self.failures = 0
