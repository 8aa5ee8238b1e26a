"""The garbage collector of a process that is there to serve: what lasts is not looked through again and again.

Only our own runners use it: in somebody else's process the collector is theirs.
"""

from __future__ import annotations

import gc
from types import TracebackType

__all__ = ["Collector"]

THRESHOLDS = (10_000, 10, 10)
STEP = 500
"""Connections and sessions by which a server grows before they are frozen: looking through so many takes some 10 ms."""

_users = 0
_before: tuple[int, int, int] = (0, 0, 0)


class Collector:
    """Keeps pauses short while it is entered, and leaves the collector as it was found.

    A full collection looks at every object of the process: 300 ms with 10,000 open streams. What was there at the start
    is frozen, and so are connections once there are many of them. Nothing of ours needs the collector to be freed; what
    an author's frozen objects leave behind is found after half of the connections have gone.
    """

    def __init__(self) -> None:
        self._frozen = 0
        """Connections and sessions that were there at the last freeze."""
        self._last = 0
        self._active = False

    def __enter__(self) -> Collector:
        global _users, _before
        self._active = gc.isenabled() and not (_users == 0 and gc.get_freeze_count())  # else somebody else steers it
        if self._active:
            _users += 1
            if _users == 1:
                _before = gc.get_threshold()
                gc.set_threshold(*THRESHOLDS)
            gc.freeze()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _users
        if self._active:
            self._active = False
            _users -= 1
            if not _users:
                gc.unfreeze()
                gc.set_threshold(*_before)

    def grew(self, lasting: int) -> None:
        """So many connections and sessions are there, and one is coming."""
        if self._active and lasting >= self._frozen + STEP:
            self._freeze(lasting)

    def tick(self, lasting: int) -> None:
        """So many are there now; called once per second."""
        fallen, self._last = lasting < self._last, lasting
        if self._active and self._frozen and lasting <= self._frozen // 2 and not fallen:  # all that go have gone
            gc.unfreeze()
            self._freeze(lasting)
        else:
            self.grew(lasting)

    def _freeze(self, lasting: int) -> None:
        gc.collect()
        gc.freeze()
        self._frozen = lasting
