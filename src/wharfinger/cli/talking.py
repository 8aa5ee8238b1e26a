"""What a server says and asks during one command: progress, log messages, questions; it prints on stderr only."""

from __future__ import annotations

from typing import Any

import click

from wharfinger.cli.options import Verbosity
from wharfinger.cli.progress import Bar

__all__ = ["Talking"]


class Talking:
    """The handlers for one command: `handlers` are for `with_client`, `progress` is for a call."""

    def __init__(self, verbosity: object) -> None:
        from wharfinger.cli.asking import Questions

        self.verbosity = verbosity if isinstance(verbosity, Verbosity) else Verbosity()
        self._bar = Bar(self.verbosity)
        self.clear = self._bar.clear
        self.progress = self._bar.progress
        questions = Questions(self.clear)
        self.handlers: dict[str, Any] = {"elicitation": questions.form, "consent": questions.consent}
        if self.verbosity.level:
            self.handlers |= {"log": self.logged, "log_level": "info" if self.verbosity.level == 1 else "debug"}

    def logged(self, message: Any) -> None:
        """Print a log message of the server."""
        import msgspec

        data = message.data if isinstance(message.data, str) else msgspec.json.encode(message.data).decode()
        logger = f" {message.logger}:" if isinstance(message.logger, str) else ""
        self.line(f"{message.level:<7}{logger} {data}")

    def tell(self, line: str) -> None:
        """Print a line, unless `-q`."""
        if not self.verbosity.quiet:
            self.line(line)

    def line(self, line: str) -> None:
        """Print a line where no progress is."""
        from wharfinger.cli.words import printable

        self.clear()
        click.echo(printable(line.replace("\n", " ")), err=True)
