"""Prints lines from a thread, so that a paused terminal does not stop a server."""

from __future__ import annotations

import queue
import sys
import threading

__all__ = ["Printer"]

WAITING_LINES = 1000
"""Maximum number of lines that wait for a terminal; more are dropped and counted."""
CLOSE_SECONDS = 1.0
"""`close` waits at most this long for room in the queue, and then at most as long for the terminal."""


class Printer:
    """Prints lines on stdout in order, without blocking the caller."""

    def __init__(self) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)
        self.dropped = 0
        self.thread = threading.Thread(target=self.run, name="wharfinger-printer", daemon=True)
        self.thread.start()

    def print(self, line: str) -> None:
        """Print a line soon; may be called from any thread."""
        try:
            self.lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def run(self) -> None:
        """Write lines until `close`, or until stdout is closed."""
        while (line := self.lines.get()) is not None:
            try:
                sys.stdout.write(line + "\n")
                if self.lines.empty():
                    if self.dropped:
                        sys.stdout.write(f"({self.dropped} lines dropped)\n")
                        self.dropped = 0
                    sys.stdout.flush()
            except (OSError, ValueError):
                return

    def close(self) -> None:
        """Print the waiting lines, unless the terminal is paused."""
        if not self.thread.is_alive():
            return
        try:
            self.lines.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self.thread.join(CLOSE_SECONDS)
