"""Lines to the terminal from a thread of its own, so that a paused terminal never stops a server."""

from __future__ import annotations

import queue
import sys
import threading

__all__ = ["Printer"]

WAITING = 1000
"""Lines kept for a terminal that does not take them; more are counted and left out."""


class Printer:
    """Prints lines on stdout in order; never blocks who gives them."""

    def __init__(self) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue(WAITING)
        self.lost = 0
        self.thread = threading.Thread(target=self.work, name="wharfinger-printer", daemon=True)
        self.thread.start()

    def print(self, line: str) -> None:
        """Print a line soon; called from any thread."""
        try:
            self.lines.put_nowait(line)
        except queue.Full:
            self.lost += 1

    def work(self) -> None:
        """Write until the end, or until nobody reads any more."""
        while (line := self.lines.get()) is not None:
            try:
                sys.stdout.write(line + "\n")
                if self.lines.empty():
                    if self.lost:
                        sys.stdout.write(f"({self.lost} lines left out)\n")
                        self.lost = 0
                    sys.stdout.flush()
            except (OSError, ValueError):
                return

    def close(self) -> None:
        """Print what waits, within a second."""
        try:
            self.lines.put_nowait(None)
        except queue.Full:
            return
        self.thread.join(1.0)
