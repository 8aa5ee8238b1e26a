"""Fills in the `${…}` of a host's configuration, from the environment or by asking."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

__all__ = ["Placeholders", "variable_of"]

PLACEHOLDER = re.compile(r"\$\{(?:(?P<kind>[A-Za-z]+):(?!-))?(?P<name>[^{}:]+)(?::-(?P<default>[^{}]*))?\}")
"""`${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${input:id}`."""


def variable_of(identifier: str) -> str:
    """Return the name of the variable for `${input:identifier}` if there is no terminal to ask at."""
    return "WHARFINGER_INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", identifier).strip("_").upper()


class Placeholders(NamedTuple):
    """The placeholders of one server: `owner` names it in errors, `folder` is the folder of the workspace."""

    ctx: click.Context
    owner: str
    folder: Path
    inputs: Mapping[str, Mapping[str, Any]]
    answered: dict[str, str]

    def fill(self, text: str, place: str) -> str:
        """Fill in one value; `place` says in errors where it is.

        Raises:
            click.UsageError: a variable is not set, or an input is needed and there is no terminal to ask at.
        """
        return PLACEHOLDER.sub(lambda match: self._one(match, place), text)

    def variable(self, name: str, place: str) -> str:
        """Return the value of a variable that is named without braces."""
        return self.fill(f"${{env:{name}}}", place)

    def _one(self, match: re.Match[str], place: str) -> str:
        kind, name, default = match["kind"], match["name"], match["default"]
        if kind == "input":
            return self._input(name, place)
        if kind is None and name in PREDEFINED:
            return PREDEFINED[name](self.folder)
        if kind not in (None, "env"):
            raise click.UsageError(
                f"{self.owner} needs {match.group()} ({place}), which only its own host can fill in."
            )
        value = os.environ.get(name)
        if value is None:
            value = default
        if value is None:
            raise click.UsageError(f"{self.owner} needs the variable {name} ({place}), which is not set.")
        return value

    def _input(self, name: str, place: str) -> str:
        if name not in self.answered:
            self.answered[name] = self._ask(name, place)
        return self.answered[name]

    def _ask(self, name: str, place: str) -> str:
        variable = variable_of(name)
        if variable in os.environ:
            return os.environ[variable]
        described = self.inputs.get(name, {})
        about = str(described.get("description") or name)
        if self.ctx.resilient_parsing or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(
                f"{self.owner} needs the input {name!r} ({place}; {about}): set {variable}, or run it at a terminal."
            )
        from wharfinger.cli.render.formatting import printable

        default = described.get("default")
        answer = click.prompt(
            printable(about),
            default=default if isinstance(default, str) else None,
            hide_input=described.get("password") is True,
            type=click.Choice(options_of(described)) if options_of(described) else str,
            err=True,
        )
        return str(answer)


def options_of(described: Mapping[str, Any]) -> list[str]:
    """Return the options of an input of the type `pickString`."""
    options = described.get("options")
    found: list[str] = []
    for option in cast("list[object]", options) if isinstance(options, list) else []:
        value = cast("dict[str, object]", option).get("value") if isinstance(option, dict) else option
        if isinstance(value, str):
            found.append(value)
    return found


PREDEFINED: dict[str, Callable[[Path], str]] = {
    "workspaceFolder": str,
    "workspaceFolderBasename": lambda folder: folder.name,
    "userHome": lambda _: str(Path.home()),
    "pathSeparator": lambda _: os.sep,
    "/": lambda _: os.sep,
}
"""Placeholders that hosts define themselves."""
