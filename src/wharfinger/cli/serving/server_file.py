"""`serve -f wharfinger.toml`: a server in one file.

The keys are the names that click gives the arguments and options of `serve`; only `words` has another key, `sources`.
The values become the defaults of the options, so the command line overrides the file. Rules (`[[allow]]`, `[[deny]]`,
`[[limit]]`, `[[test]]`) may be in the same file.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from wharfinger.cli.serving.policy_option import INLINE
from wharfinger.errors import WharfingerError

if TYPE_CHECKING:
    from wharfinger.policy import Policy

__all__ = ["RULES", "FileValues", "UnusableServerFile", "read_table", "server_file_option"]

F = TypeVar("F", bound=Callable[..., Any])

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_SECRET_BYTES = 64 * 1024
RULES = ("allow", "deny", "limit", "test")
"""The keys of a policy."""
NAMES = {"words": "sources"}
"""The key in the file for each parameter whose name differs from its key."""
NOT_IN_FILES = frozenset({"file", "help", "quiet", "verbose", "demo"})

_PLACEHOLDER = re.compile(r"\$\{(?:(?P<kind>[A-Za-z]+):(?!-))?(?P<name>[^{}:]+)(?::-(?P<default>[^{}]*))?\}")
"""`${NAME}`, `${env:NAME}` or `${file:PATH}`, also with a default, as in `${NAME:-default}`."""


class UnusableServerFile(WharfingerError):
    """The file of a server cannot be used. The message names the key, but not its value, which may be a secret.

    At most it repeats the name of a variable or file in it.
    """

    exit_code = 2


def server_file_option(command: F) -> F:
    """Add `-f FILE`, whose values become the defaults of the other options."""
    return click.option(
        "-f",
        "--file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        allow_from_autoenv=False,
        callback=use_file,
        help="Take sources, options and rules from this file in TOML; see below.",
    )(command)


def use_file(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Make the values of a file the defaults of the command.

    Raises:
        UnusableServerFile: the file cannot be read, has an unknown key or a value of the wrong kind, or has both rules
            and the name of a policy file.
    """
    if value is None or ctx.resilient_parsing:
        return
    path = Path(value)
    table = read_table(path)
    rule_tables = {key: table.pop(key) for key in RULES if key in table}
    ctx.default_map = FileValues(path, ctx.command).convert(table)
    if not rule_tables:
        return
    if "policy" in table:
        section = next(iter(rule_tables))
        raise UnusableServerFile(f"{path}: policy names a file, and [[{section}]] is here too: use one of them.")
    ctx.meta[INLINE] = path, read_rules


def read_rules(path: Path) -> Policy:
    """Return the policy in the file of a server. The policy's tests are run, unless they depend on the published data.

    Raises:
        WharfingerError: the file cannot be read, or the policy cannot be used.
    """
    from wharfinger.policy import Policy

    table = read_table(path)
    policy = Policy.from_tables({key: table[key] for key in RULES if key in table}, name=str(path))
    if policy.has_roots:
        return policy.relative_to(path.parent)
    policy.require_tests(str(path))
    return policy


def read_table(path: Path) -> dict[str, Any]:
    """Return the parsed file.

    Raises:
        UnusableServerFile: it cannot be read, or is not TOML.
    """
    import tomllib

    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise UnusableServerFile(f"{path} is larger than {MAX_FILE_BYTES // 1024**2} MiB.")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise UnusableServerFile(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # the message of tomllib has the line and column, and no values
        raise UnusableServerFile(f"{path} is not TOML: {error}.") from None


class FileValues:
    """Checks the values of one file, and converts them for the parameters of a command."""

    def __init__(self, path: Path, command: click.Command) -> None:
        self.path = path
        self.folder = path.absolute().parent
        params = {NAMES.get(str(param.name), str(param.name)): param for param in command.params}
        self.params = {key: param for key, param in params.items() if key not in NOT_IN_FILES}

    def convert(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by the names of the parameters.

        Raises:
            UnusableServerFile: a key is unknown, or a value is of the wrong kind.
        """
        values: dict[str, Any] = {}
        for key, value in table.items():
            param = self._param(key)
            values[str(param.name)] = self._value(param, key, value)
        return values

    def _param(self, key: str) -> click.Parameter:
        param = self.params.get(key)
        if param is None:
            from wharfinger.cli.suggestions import nearest

            suggestion = nearest(key, (*self.params, *RULES))
            hint = (
                f"Did you mean {suggestion!r}?" if suggestion else f"Known keys: {', '.join((*self.params, *RULES))}."
            )
            raise UnusableServerFile(f"{self.path}: unknown key {key!r}. {hint}")
        return param

    def _value(self, param: click.Parameter, key: str, value: Any) -> Any:
        if key == "limits" and isinstance(value, dict):
            value = [f"{name}={amount}" for name, amount in cast("dict[str, object]", value).items()]
        if getattr(param, "is_flag", False):
            return self._check_kind(key, value, bool, "true or false")
        takes_several = param.multiple if isinstance(param, click.Option) else param.nargs == -1
        if takes_several:
            texts: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else [value]
            return tuple(self._text(param, key, self._check_kind(key, text, str, "a list of texts")) for text in texts)
        if isinstance(param.type, click.types.IntParamType):
            return self._check_kind(key, value, int, "a whole number")
        if isinstance(param.type, click.types.FloatParamType):
            return self._check_kind(key, value, (int, float), "a number")
        if key == "http" and value is True:  # like `--http` without an address
            return ""
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        return self._text(param, key, self._check_kind(key, text, str, "a text"))

    def _check_kind(self, key: str, value: Any, kind: type | tuple[type, ...], expected: str) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise UnusableServerFile(f"{self.path}: {key} must be {expected}.")
        return value

    def _text(self, param: click.Parameter, key: str, text: str) -> str:
        """Return a text with its placeholders filled in; a path becomes absolute."""
        text = _PLACEHOLDER.sub(lambda match: self._fill(match, key), text)
        if param.name == "words":
            from wharfinger.sources.registry import absolute_word, parse_word

            with contextlib.chdir(self.folder):  # for the whole process, in which nothing else runs yet
                return absolute_word(parse_word(text), secrets=True)
        if isinstance(param.type, click.Path) and text not in ("", "-"):
            return os.path.join(self.folder, os.path.expanduser(text))
        return text

    def _fill(self, match: re.Match[str], key: str) -> str:
        """Return what replaces a placeholder: the value of a variable, or the content of a file."""
        kind, name = match["kind"], match["name"]
        default: str | None = match["default"]
        if kind == "file":
            try:
                with open(os.path.join(self.folder, os.path.expanduser(name)), "rb") as file:
                    data = file.read(MAX_SECRET_BYTES + 1)
                if len(data) > MAX_SECRET_BYTES:
                    raise UnusableServerFile(f"{self.path}: {key} needs the file {name}: it is larger than 64 KiB.")
                return data.decode().rstrip("\r\n")
            except (OSError, ValueError) as error:
                if isinstance(error, FileNotFoundError) and default is not None:
                    return default
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise UnusableServerFile(f"{self.path}: {key} needs the file {name}: {reason}.") from None
        if kind not in (None, "env"):
            raise UnusableServerFile(f"{self.path}: {key}: write ${{NAME}} or ${{file:PATH}}, not ${{{kind}:…}}.")
        value = os.environ.get(name, default)
        if value is None:
            raise UnusableServerFile(f"{self.path}: {key} needs the variable {name}, which is not set.")
        return value
