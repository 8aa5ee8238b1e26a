"""Logging to stderr: one line per record, and tracebacks only with `-v`."""

from __future__ import annotations

import logging
import sys

from wharfinger.cli.options import Verbosity
from wharfinger.content.text import escape_controls

__all__ = ["log_to_stderr"]

LEVELS = {0: logging.WARNING, 1: logging.INFO}


class LineFormatter(logging.Formatter):
    """Formats a record as one line, followed by its traceback if `tracebacks` is set."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
        self.tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Format a record with the control characters escaped."""
        head = f"{self.formatTime(record, self.datefmt)} {record.levelname.lower():<7} {record.getMessage()}"
        if record.exc_info and self.tracebacks:
            return escape_controls(head) + "\n" + escape_controls(self.formatException(record.exc_info), keep="\n\t")
        if record.exc_info and record.exc_info[1] is not None:
            from wharfinger.cli.tracebacks import place_of

            error = record.exc_info[1]
            text, location = f"{type(error).__name__}: {error}", place_of(error)
            missing = [part for part in (location, text) if part and part not in head]
            head = ": ".join([head, *missing]) + " (-v shows the traceback)"
        return escape_controls(head)


def log_to_stderr(verbosity: Verbosity, *, tracebacks: bool = False) -> None:
    """Show records of all loggers, warnings and errors by default; `-v` and `-vv` show more, `-q` errors only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(tracebacks=tracebacks or verbosity.level > 0))
    root = logging.getLogger()
    root.handlers = [other for other in root.handlers if not isinstance(other.formatter, LineFormatter)]
    root.addHandler(handler)
    root.setLevel(logging.ERROR if verbosity.quiet else LEVELS.get(verbosity.level, logging.DEBUG))
