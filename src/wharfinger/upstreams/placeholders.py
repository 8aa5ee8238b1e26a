"""Fills in the placeholders of a configuration: `${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${input:id}`, `$NAME`.

A variable in braces must be set, or have a default. `$NAME` without braces, which only Gemini CLI knows, stays as it is
if there is no such variable, since in other hosts' files it may be part of a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wharfinger.errors import WharfingerError
from wharfinger.private_files import home_folder

__all__ = ["Ask", "InvalidConfiguration", "Placeholders", "variable_of"]

PLACEHOLDER = re.compile(
    r"\$\{(?:(?P<kind>[A-Za-z]+):(?!-))?(?P<name>[^{}:]+)(?::-(?P<default>[^{}]*))?\}|\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
)

Ask = Callable[[str, Mapping[str, Any]], str | None]
"""Called with the id of an input and its description in the file. Returns its value, or None if there is no answer."""


class InvalidConfiguration(WharfingerError, ValueError):
    """A configuration cannot be used; the message names the file, the place, and what to change."""

    exit_code = 2


def variable_of(identifier: str) -> str:
    """Return the name of the variable that can hold the value of `${input:identifier}`."""
    return "WHARFINGER_INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", identifier).strip("_").upper()


class Placeholders(NamedTuple):
    """Fills in the placeholders of one server."""

    name_in_errors: str
    """The server's name, and its file if it has one, with which the messages of errors begin."""
    folder: Path
    """The folder of the workspace."""
    inputs: Mapping[str, Mapping[str, Any]]
    """The inputs that the file describes, by their id."""
    environ: Mapping[str, str]
    ask: Ask
    input_values: dict[str, str]
    """The values of inputs by their id. `fill` adds each one that it finds, so that `ask` is called once for each."""
    literal: bool = False
    """Whether `fill` returns each text as it is."""

    def fill(self, text: str, place: str) -> str:
        """Fill in the placeholders of one value. `place` says in errors where the value is.

        Raises:
            InvalidConfiguration: a variable is not set, an input has no value, or the kind of a placeholder is unknown.
        """
        return text if self.literal else PLACEHOLDER.sub(lambda match: self._value_of(match, place), text)

    def value_of_variable(self, name: str, place: str) -> str:
        """Return the value of a variable. `place` says in errors where it is needed.

        Raises:
            InvalidConfiguration: it is not set.
        """
        value = self.variable(name)
        if value is None:
            raise InvalidConfiguration(f"{self.name_in_errors} needs the variable {name} ({place}), which is not set.")
        return value

    def _value_of(self, match: re.Match[str], place: str) -> str:
        kind, name, default, bare = match["kind"], match["name"], match["default"], match["bare"]
        if bare is not None:
            return self.environ.get(bare, match.group())
        if kind == "input":
            return self._value_of_input(name, place)
        if kind is None and name in PREDEFINED:
            try:
                return PREDEFINED[name](self.folder)
            except FileNotFoundError as error:
                raise InvalidConfiguration(f"{self.name_in_errors} needs {match.group()} ({place}): {error}.") from None
        if kind not in (None, "env"):
            raise InvalidConfiguration(
                f"{self.name_in_errors} needs {match.group()} ({place}), which only its own host can fill in."
            )
        if default is None:
            return self.value_of_variable(name, place)
        value = self.variable(name)
        return default if value is None else value

    def variable(self, name: str) -> str | None:
        """Return the value of a variable; None if it is not set."""
        try:
            return self.environ.get(name)
        except UnicodeEncodeError:  # half an emoji: `os.environ` cannot look it up
            return None

    def _value_of_input(self, name: str, place: str) -> str:
        if name not in self.input_values:
            described = self.inputs.get(name, {})
            variable = variable_of(name)
            answer = self.environ.get(variable)
            if answer is None:
                answer = self.ask(name, described)
            if answer is None:
                about = str(described.get("description") or name)
                needed = f"{self.name_in_errors} needs the input {name!r} ({place}; {about})"
                raise InvalidConfiguration(f"{needed}: set {variable}, or run it at a terminal.")
            self.input_values[name] = answer
        return self.input_values[name]


PREDEFINED: dict[str, Callable[[Path], str]] = {
    "workspaceFolder": str,
    "workspaceFolderBasename": lambda folder: folder.name,
    "userHome": lambda _: str(home_folder()),
    "pathSeparator": lambda _: os.sep,
    "/": lambda _: os.sep,
}
"""Placeholders that hosts define themselves."""
