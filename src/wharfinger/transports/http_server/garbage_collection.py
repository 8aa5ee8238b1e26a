"""Keeps the pauses of the garbage collector short in a process that serves many connections.

A full collection looks at every object of the process: 300 ms with 10,000 open streams. Frozen objects are not looked
at (`gc.freeze`). So what is there at the start is frozen, and connections are, once there are many of them. Nothing of
ours needs the collector to be freed. What an author's frozen objects leave behind is found when half of the connections
have gone. Only our own runner does this: in another ASGI server the collector is not ours to tune.
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
    """Tunes the collector as a context manager, and leaves it as it was; does nothing if somebody else has tuned it."""

    def __init__(self) -> None:
        self._frozen = 0
        """Connections and sessions that were there at the last freeze."""
        self._last = 0
        self._active = False

    def __enter__(self) -> Collector:
        global _users, _before
        self._active = gc.isenabled() and not (_users == 0 and gc.get_freeze_count())
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
        """Freeze them if there are many more connections and sessions (`lasting`) than at the last freeze."""
        if self._active and lasting >= self._frozen + STEP:
            self._freeze(lasting)

    def tick(self, lasting: int) -> None:
        """The same, and find garbage after half of them have gone. Call it once a second."""
        fallen, self._last = lasting < self._last, lasting
        if self._active and self._frozen and lasting <= self._frozen // 2 and not fallen:  # and no more go now
            gc.unfreeze()
            self._freeze(lasting)
        else:
            self.grew(lasting)

    def _freeze(self, lasting: int) -> None:
        gc.collect()
        gc.freeze()
        self._frozen = lasting
