"""What the library logs, on stderr: warnings in one line, tracebacks only where they were asked for."""

from __future__ import annotations

import logging
import sys

from wharfinger.cli.options import Verbosity
from wharfinger.cli.words import printable

__all__ = ["log_to_stderr"]

LEVELS = {0: logging.WARNING, 1: logging.INFO}


class Lines(logging.Formatter):
    """One record is one line; with `tracebacks` what follows it is where the error came from."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
        self.tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; foreign text in it cannot give a terminal orders."""
        head = f"{self.formatTime(record, self.datefmt)} {record.levelname.lower():<7} {record.getMessage()}"
        if record.exc_info and self.tracebacks:
            return printable(head) + "\n" + printable(self.formatException(record.exc_info), keep="\n\t")
        if record.exc_info and record.exc_info[1] is not None:
            from wharfinger.cli.causes import place_of

            error = record.exc_info[1]
            said, place = f"{type(error).__name__}: {error}", place_of(error)
            told = [part for part in (place, said) if part and part not in head]
            head = ": ".join([head, *told]) + " (-v shows the traceback)"
        return printable(head)


def log_to_stderr(verbosity: Verbosity, *, tracebacks: bool = False) -> None:
    """Show what is logged by `wharfinger.*` and everything else, from warnings up; `-v` and `-vv` show more."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(tracebacks=tracebacks or verbosity.level > 0))
    root = logging.getLogger()
    root.handlers = [other for other in root.handlers if not isinstance(other.formatter, Lines)]
    root.addHandler(handler)
    root.setLevel(logging.ERROR if verbosity.quiet else LEVELS.get(verbosity.level, logging.DEBUG))
