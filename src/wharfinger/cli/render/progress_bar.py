"""The progress of a call on stderr."""

from __future__ import annotations

import shutil
import sys

from wharfinger.cli.options import Verbosity
from wharfinger.cli.render.formatting import printable

__all__ = ["ProgressBar"]

WIDTH = 24
CLEAR_LINE = "\r\x1b[K"


class ProgressBar:
    """One line at a terminal that shows the latest progress; elsewhere `-v` prints a line for each progress."""

    def __init__(self, verbosity: Verbosity) -> None:
        self.draws = sys.stderr.isatty() and not verbosity.quiet
        self.prints = not self.draws and verbosity.level > 0
        self.shown = False

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Show that `done` of `total` is done."""
        line = progress_text(done, total, message)
        if self.draws:
            room = shutil.get_terminal_size().columns - 1
            sys.stderr.write(CLEAR_LINE + f"{bar_text(done, total)} {line}".strip()[:room])
            sys.stderr.flush()
            self.shown = True
        elif self.prints:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Clear the line before something else is printed."""
        if self.shown:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
            self.shown = False


def bar_text(done: float, total: float | None) -> str:
    """Return the bar, empty if the total is unknown."""
    if not total or total <= 0:
        return ""
    full = round(WIDTH * min(1.0, max(0.0, done / total)))
    return f"[{'#' * full}{'.' * (WIDTH - full)}]"


def progress_text(done: float, total: float | None, message: str | None) -> str:
    """Return the progress as text."""
    amount = f"{done:g}/{total:g}" if total else f"{done:g}"
    return f"{amount} {printable(message)}" if message else amount
