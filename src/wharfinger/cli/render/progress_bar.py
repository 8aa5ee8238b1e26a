"""The progress of a call on stderr."""

from __future__ import annotations

import shutil
import sys

from wharfinger.cli.options import Verbosity
from wharfinger.content.text import escape_controls

__all__ = ["ProgressBar"]

BAR_WIDTH = 24
MESSAGE_CHARACTERS = 1_000
"""Maximum number of characters of a message that are shown: a server may send megabytes with each report."""
CLEAR_LINE = "\r\x1b[K"


class ProgressBar:
    """Shows the latest progress in one line at a terminal; elsewhere, with `-v`, it prints a line for each report."""

    def __init__(self, verbosity: Verbosity) -> None:
        self.draws = sys.stderr.isatty() and not verbosity.quiet
        self.prints = not self.draws and verbosity.level > 0
        self.shown = False

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Show a progress of `done` of `total`, as a bar if the total is known."""
        text = f"{done:g}/{total:g}" if total else f"{done:g}"
        if message:
            text += f" {escape_controls(message[:MESSAGE_CHARACTERS])}"
        if self.draws:
            if total and total > 0:
                full = round(BAR_WIDTH * min(1.0, max(0.0, done / total)))
                text = f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {text}"
            self._write(CLEAR_LINE + text[: shutil.get_terminal_size().columns - 1])
            self.shown = True
        elif self.prints:
            self._write(text + "\n")

    def clear(self) -> None:
        """Clear the line before something else is printed."""
        if self.shown:
            self._write(CLEAR_LINE)
            self.shown = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
