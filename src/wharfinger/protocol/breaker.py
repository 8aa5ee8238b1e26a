"""A circuit breaker: calls skip a source that has just failed, instead of each waiting for it. No I/O.

    CLOSED --- failed ---> OPEN --- delay is over, try_probe ---> HALF_OPEN
      ^                     ^                                       |   |
      |                     +---------------- failed ---------------+   |
      +------------------------------ succeeded ------------------------+

While the breaker is closed, all calls are allowed. After a slow failure, no call is allowed until the delay is over.
Then `try_probe` allows one call, the probe; other calls still skip the source. If the probe fails, the delay doubles,
up to a maximum. If any call succeeds, the breaker closes.

Calls that fail together count as one failure: a hundred calls that waited for the same silent source must not double
the delay a hundred times. So a failure counts only if its call began after the last failure that counted.

A failure that took less than `quick_below` seconds is quick. The breaker opens and the source is probed as usual, but
calls are still allowed: skipping the source would save no waiting, and it may be back soon.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from wharfinger.protocol.backoff import Backoff

__all__ = ["Breaker", "BreakerState"]


class BreakerState(Enum):
    """The state of a source, according to its breaker."""

    CLOSED = "it answered last time, or was never called"
    OPEN = "it failed, and may be probed after a delay; until then, `Breaker.admits` says whether calls are allowed"
    HALF_OPEN = "it failed, and a probe is checking whether it is back"


class Breaker:
    """Records how calls to one source end, and says whether to call it.

    Args:
        clock: Returns seconds that never go back, such as `time.monotonic`.
        initial_delay: Seconds after the first failure before a probe may be sent; doubled by each further failure.
        max_delay: The longest such delay.
        quick_below: After a failure that took less than this many seconds, calls are still allowed.
        random: Returns the factor of each delay, from 0 to 1 (see `Backoff`). None: the factor is 1.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        initial_delay: float = 1.0,
        max_delay: float = 60.0,
        quick_below: float = 0.0,
        random: Callable[[], float] | None = None,
    ) -> None:
        self.clock = clock
        self.reason = ""
        """Why the last call failed, or an empty string if it timed out or the breaker is closed."""
        self.observers: list[Callable[[], None]] = []
        """Functions that `failed` and `succeeded` call when they open or close the breaker."""
        self._backoff = Backoff(initial_delay, max_delay, random)
        self._quick_below = quick_below
        self._down_since: float | None = None
        self._failed_at = 0.0
        self._probe_at = 0.0
        self._probing = False
        self._failed_quickly = False

    @property
    def down(self) -> bool:
        """Whether the last call failed, so that the breaker is not closed."""
        return self._down_since is not None

    @property
    def state(self) -> BreakerState:
        """The present state."""
        if self._down_since is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._probing else BreakerState.OPEN

    @property
    def failures(self) -> int:
        """Failures in a row that counted."""
        return self._backoff.failures

    def admits(self) -> bool:
        """Return whether calls are allowed: the breaker is closed, or the last failure was a quick one."""
        return self._down_since is None or self._failed_quickly

    def down_seconds(self) -> float:
        """Return the seconds since the first failed call began (or ended, if `began` is unknown); 0 if closed."""
        return 0.0 if self._down_since is None else self.clock() - self._down_since

    def probe_in(self) -> float:
        """Return the seconds until a probe may be sent; 0 if the delay is over, or the breaker is closed."""
        return max(0.0, self._probe_at - self.clock()) if self.down else 0.0

    def try_probe(self) -> bool:
        """Begin a probe, if one may be sent now. Returns whether it began.

        If so, `failed`, `succeeded` or `give_up_probe` must be called when it ends.
        """
        if self._down_since is None or self._probing or self.clock() < self._probe_at:
            return False
        self._probing = True
        return True

    def give_up_probe(self) -> None:
        """End a probe without a result, because it was cancelled. Another probe may be sent at once."""
        self._probing = False

    def failed(self, reason: str = "", began: float | None = None) -> None:
        """Record a failed call that began at the clock's time `began`. Leave the reason empty if it timed out.

        If `began` is None, the call always counts as a failure, and as a slow one.
        """
        now = self.clock()
        if began is not None and self._down_since is not None and began < self._failed_at:
            return
        was_down = self.down
        self.reason = reason
        self._failed_quickly = began is not None and now - began < self._quick_below
        self._failed_at = now
        self._probe_at = now + self._backoff.failed()
        self._probing = False
        if not was_down:
            self._down_since = now if began is None else began
            self._notify_observers()

    def succeeded(self) -> None:
        """Record that a call succeeded, whenever it began."""
        if self._down_since is None:
            return
        self._down_since = None
        self._probing = self._failed_quickly = False
        self.reason = ""
        self._backoff.succeeded()
        self._notify_observers()

    def _notify_observers(self) -> None:
        for observer in tuple(self.observers):
            observer()
