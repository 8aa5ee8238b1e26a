"""Keeps the pauses of the garbage collector short in a process that serves many connections.

A full collection examines every object of the process, which takes 300 ms with 10,000 open streams. It skips frozen
objects (`gc.freeze`). So the objects that exist at the start are frozen, and the connections whenever there are many
new ones. Objects of this package are freed without the collector. Garbage among the frozen objects of an application is
found when half of the connections are gone. Only the runner of this package tunes the collector: under another ASGI
server, that is not the application's task.
"""

from __future__ import annotations

import gc
from types import TracebackType

__all__ = ["Collector"]

THRESHOLDS = (10_000, 10, 10)
FREEZE_STEP = 500
"""The number of new connections and sessions after which objects are frozen: examining so many takes about 10 ms."""

_active_collectors = 0
_thresholds_before: tuple[int, int, int] = (0, 0, 0)


class Collector:
    """A context manager that tunes the collector, and restores its settings.

    Does nothing if other code has disabled the collector or frozen objects. Other thresholds are replaced.
    """

    def __init__(self) -> None:
        self._count_at_freeze = 0
        """The number of connections and sessions at the last freeze."""
        self._last_count = 0
        self._active = False

    def __enter__(self) -> Collector:
        global _active_collectors, _thresholds_before
        self._active = gc.isenabled() and not (_active_collectors == 0 and gc.get_freeze_count())
        if self._active:
            _active_collectors += 1
            if _active_collectors == 1:
                _thresholds_before = gc.get_threshold()
                gc.set_threshold(*THRESHOLDS)
            gc.freeze()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _active_collectors
        if self._active:
            self._active = False
            _active_collectors -= 1
            if not _active_collectors:
                gc.unfreeze()
                gc.set_threshold(*_thresholds_before)

    def grew(self, count: int) -> None:
        """Freeze all objects if there are many more connections and sessions (`count`) than at the last freeze."""
        if self._active and count >= self._count_at_freeze + FREEZE_STEP:
            self._freeze(count)

    def tick(self, count: int) -> None:
        """Find garbage if half of the connections and sessions are gone; else call `grew`. Call this once a second."""
        fallen, self._last_count = count < self._last_count, count
        # Wait until the number has stopped falling.
        if self._active and self._count_at_freeze and count <= self._count_at_freeze // 2 and not fallen:
            gc.unfreeze()
            self._freeze(count)
        else:
            self.grew(count)

    def _freeze(self, count: int) -> None:
        gc.collect()
        gc.freeze()
        self._count_at_freeze = count
