"""How far a call is, and what the server logs, on stderr; nothing is shown where nobody would see it."""

from __future__ import annotations

import shutil
import sys

from wharfinger.cli.options import Verbosity
from wharfinger.cli.words import printable

__all__ = ["Bar"]

WIDTH = 24
BACK = "\r\x1b[K"
"""To the beginning of the line, and clear it."""


class Bar:
    """One line at a terminal that shows the newest progress; `-v` prints each as a line where there is none."""

    def __init__(self, verbosity: Verbosity) -> None:
        self.draws = sys.stderr.isatty() and not verbosity.quiet
        self.prints = not self.draws and verbosity.level > 0
        self.shown = False

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Show that `done` of `total` is done."""
        line = described(done, total, message)
        if self.draws:
            room = shutil.get_terminal_size().columns - 1
            sys.stderr.write(BACK + f"{drawn(done, total)} {line}".strip()[:room])
            sys.stderr.flush()
            self.shown = True
        elif self.prints:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Make room for something else."""
        if self.shown:
            sys.stderr.write(BACK)
            sys.stderr.flush()
            self.shown = False


def drawn(done: float, total: float | None) -> str:
    """Draw the bar; nothing where there is no end to measure by."""
    if not total or total <= 0:
        return ""
    full = round(WIDTH * min(1.0, max(0.0, done / total)))
    return f"[{'#' * full}{'.' * (WIDTH - full)}]"


def described(done: float, total: float | None, message: str | None) -> str:
    """Write progress as text."""
    amount = f"{done:g}/{total:g}" if total else f"{done:g}"
    return f"{amount} {printable(message)}" if message else amount
