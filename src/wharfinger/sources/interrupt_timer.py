"""`InterruptTimer`: stops a database statement that takes too long."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["InterruptTimer"]

REPEAT_SECONDS = 0.05


class InterruptTimer(threading.Thread):
    """Calls `interrupt` after `seconds`, then repeatedly until `end`.

    SQLite and DuckDB ignore an interrupt while no statement runs, so a single one would be lost if the statement
    started a moment later.
    """

    def __init__(self, interrupt: Callable[[], object], seconds: float) -> None:
        super().__init__(name="wharfinger-interrupt-timer", daemon=True)
        self._interrupt = interrupt
        self._seconds = seconds
        self._due = threading.Event()
        self._ended = threading.Event()

    def run(self) -> None:
        """Wait for `seconds` or `interrupt_now`, then interrupt until `end`."""
        self._due.wait(self._seconds)
        while not self._ended.is_set():
            self._interrupt()
            self._ended.wait(REPEAT_SECONDS)

    def interrupt_now(self) -> None:
        """Start interrupting now."""
        self._due.set()

    def end(self) -> None:
        """Stop interrupting. Returns after the last interrupt."""
        self._ended.set()
        self._due.set()
        self.join()
