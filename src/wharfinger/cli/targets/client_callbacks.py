"""Callbacks of the client for one command: progress, log messages and questions of the server, all on stderr."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from wharfinger.cli.options import Verbosity
from wharfinger.cli.render.progress_bar import ProgressBar
from wharfinger.cli.targets.terminal_forms import TerminalForms
from wharfinger.content.text import escape_controls

__all__ = ["ClientCallbacks"]


class ClientCallbacks:
    """The callbacks: `handlers` are arguments of `with_client`, `progress` is for one call."""

    def __init__(self, verbosity: Verbosity) -> None:
        self.verbosity = verbosity
        bar = ProgressBar(verbosity)
        self.clear = bar.clear
        self.progress = bar.progress
        forms = TerminalForms(self.clear)
        self.handlers: dict[str, Any] = {"elicitation": forms.form, "consent": forms.consent}
        if self.verbosity.level:
            self.handlers |= {"log": self.log, "log_level": "info" if self.verbosity.level == 1 else "debug"}

    def log(self, message: Any) -> None:
        """Print a log message of the server."""
        data = message.data if isinstance(message.data, str) else msgspec.json.encode(message.data).decode()
        logger = f" {message.logger}:" if isinstance(message.logger, str) else ""
        self._print_line(f"{message.level:<7}{logger} {data}")

    def say(self, line: str) -> None:
        """Print a line, unless `-q`."""
        if not self.verbosity.quiet:
            self._print_line(line)

    def _print_line(self, line: str) -> None:
        self.clear()
        click.echo(escape_controls(line.replace("\n", " ")), err=True)
