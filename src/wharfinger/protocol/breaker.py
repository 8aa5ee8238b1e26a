"""A circuit breaker: callers skip a peer that has just failed, instead of waiting for it one after the other. No I/O.

    CLOSED --- failed ---> OPEN --- delay is over, try_probe ---> HALF_OPEN
      ^                     ^                                       |   |
      |                     +---------------- failed ---------------+   |
      +------------------------------ succeeded ------------------------+

While it is closed, everybody may call. After a failure nobody may, until the delay is over; then `try_probe` lets one
caller through, the probe, and the others still skip. If the probe fails, the delay doubles, up to a maximum. If any
call succeeds, the breaker closes.

Calls that fail together are one failure: a hundred callers that waited for the same silent peer must not make the delay
a hundred doublings long. So a failure counts only if its call began after the last failure that counted.

Skipping saves waiting. A peer that fails at once makes nobody wait, and is perhaps back at once. So a failure that took
less than `quick_below` seconds is recorded, and probed, but callers are still let through.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from wharfinger.protocol.backoff import Backoff

__all__ = ["Breaker", "BreakerState"]


class BreakerState(Enum):
    """What a breaker knows about its peer."""

    CLOSED = "it answered last time, or was never called"
    OPEN = "it failed, and is not called until the delay is over"
    HALF_OPEN = "it failed, and one caller finds out whether it is back"


class Breaker:
    """Records how calls of one peer end, and says whether to call it.

    Args:
        clock: Returns seconds that never go back, such as `time.monotonic`.
        initial_delay: Seconds after the first failure before a probe may be sent; doubled by each further failure.
        max_delay: The longest such delay.
        quick_below: Failures that took less than this many seconds do not keep callers out.
        random: Returns the factor of each delay, from 0 to 1 (see `Backoff`); None: 1.
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
        """Why the last call failed; empty while the breaker is closed, or if there was no answer in time."""
        self.observers: list[Callable[[], None]] = []
        """Called, by whoever reports it, when the breaker opens and when it closes."""
        self._backoff = Backoff(initial_delay, max_delay, random)
        self._quick_below = quick_below
        self._down_since: float | None = None
        self._failed_at = 0.0
        self._probe_at = 0.0
        self._probing = False
        self._quick = False

    @property
    def down(self) -> bool:
        """Whether the last call failed, so that the breaker is not closed."""
        return self._down_since is not None

    @property
    def state(self) -> BreakerState:
        """The state that the module describes."""
        if self._down_since is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._probing else BreakerState.OPEN

    @property
    def failures(self) -> int:
        """Failures in a row that counted."""
        return self._backoff.failures

    def admits(self) -> bool:
        """Whether anybody may call: the breaker is closed, or the last failure kept nobody waiting."""
        return self._down_since is None or self._quick

    def down_seconds(self) -> float:
        """Seconds since the first call began that failed; 0 while the breaker is closed."""
        return 0.0 if self._down_since is None else self.clock() - self._down_since

    def probe_in(self) -> float:
        """Seconds until a probe may be sent; 0 if one may be sent now."""
        return max(0.0, self._probe_at - self.clock()) if self.down else 0.0

    def try_probe(self) -> bool:
        """Whether the caller shall probe the peer now. It must then call `failed`, `succeeded` or `give_up_probe`."""
        if self._down_since is None or self._probing or self.clock() < self._probe_at:
            return False
        self._probing = True
        return True

    def give_up_probe(self) -> None:
        """End a probe without a result, because its caller was cancelled. Another one may be sent at once."""
        self._probing = False

    def failed(self, reason: str = "", began: float | None = None) -> None:
        """Record that a call failed, which began at `began` by the clock. None: now, but it made its caller wait.

        Leave the reason empty if there was no answer in time.
        """
        now = self.clock()
        if began is not None and self._down_since is not None and began < self._failed_at:
            return
        was_down = self.down
        self.reason = reason
        self._quick = began is not None and now - began < self._quick_below
        self._failed_at = now
        self._probe_at = now + self._backoff.failed()
        self._probing = False
        if not was_down:
            self._down_since = now if began is None else began
            self._report()

    def succeeded(self) -> None:
        """Record that a call succeeded, whenever it began."""
        if self._down_since is None:
            return
        self._down_since = None
        self._probing = self._quick = False
        self.reason = ""
        self._backoff.succeeded()
        self._report()

    def _report(self) -> None:
        for observer in tuple(self.observers):
            observer()
