"""Options that several sub-commands share, and the command class that takes `-- command…`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = [
    "TargetCommand",
    "Verbosity",
    "bearer_token",
    "connection_options",
    "json_option",
    "verbosity_of",
    "verbosity_options",
]

F = TypeVar("F", bound=Callable[..., Any])


class Verbosity:
    """How much is printed: `level` counts `-v`, `quiet` is `-q`."""

    def __init__(self) -> None:
        self.level = 0
        self.quiet = False


def verbosity_of(ctx: click.Context) -> Verbosity:
    """Return how much a command prints."""
    return ctx.obj if isinstance(ctx.obj, Verbosity) else Verbosity()


def bearer_token(variable: str, ctx: click.Context | None = None) -> str:
    """Return the token in the environment variable of `--token-env`, without a line end.

    Raises:
        click.UsageError: the variable is not set.
    """
    token = os.environ.get(variable, "").strip()
    if not token:
        raise click.UsageError(f"The variable {variable} is not set: put the token into it.", ctx)
    return token


def set_level(ctx: click.Context, param: click.Parameter, value: int) -> None:
    """Record how often `-v` was given."""
    if isinstance(ctx.obj, Verbosity):
        ctx.obj.level = value


def set_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Record `-q`."""
    if isinstance(ctx.obj, Verbosity):
        ctx.obj.quiet = value


def set_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    """Record the configuration file."""
    if value is not None:
        ctx.meta[CONFIG] = value


def verbosity_options(command: F) -> F:
    """Add `-v` (repeatable) and `-q`."""
    quiet = click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=set_quiet,
        help="Print only errors.",
        envvar="WHARFINGER_QUIET",
    )
    verbose = click.option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        is_eager=True,
        callback=set_level,
        help="Print more, tracebacks too; -vv prints every log message.",
        envvar="WHARFINGER_VERBOSE",
    )
    return verbose(quiet(command))


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, envvar="WHARFINGER_JSON", help="Print JSON.")(command)


def connection_options(command: F) -> F:
    """Add the options for reaching a server: configuration file, environment, revision, token, headers, timeout."""
    for option in (
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            envvar="WHARFINGER_CONFIG",
            expose_value=False,
            is_eager=True,
            callback=set_config,
            help="Look up the name of a server in this file. Default: the files of the usual hosts.",
        ),
        click.option(
            "--env",
            multiple=True,
            metavar="NAME[=VALUE]",
            allow_from_autoenv=False,
            help="Environment variable for a command that is started. Repeatable.",
        ),
        click.option(
            "--revision",
            metavar="DATE",
            envvar="WHARFINGER_REVISION",
            help="Use this protocol revision, for example 2025-11-25, instead of negotiating.",
        ),
        click.option(
            "--token-env",
            metavar="NAME",
            envvar="WHARFINGER_TOKEN_ENV",
            help="Environment variable with the bearer token.",
        ),
        click.option(
            "--header",
            "headers",
            metavar="'NAME: VALUE'",
            multiple=True,
            allow_from_autoenv=False,
            help="HTTP header to send. Repeatable.",
        ),
        click.option(
            "--timeout",
            type=Seconds(),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            envvar="WHARFINGER_TIMEOUT",
            help="How long to wait for an answer.",
        ),
    ):
        command = option(command)
    return command


class Seconds(click.FloatRange):
    """A number of seconds above 0. NaN is refused: no comparison with it is true, so it is in every range."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or raise click.BadParameter."""
        seconds: float = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


class NearChoice(click.Choice[str]):
    """A choice of words whose error suggests the nearest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, or raise an error with a suggestion."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from wharfinger.cli.suggestions import nearest

            suggestion = nearest(str(value), self.choices)
            if not suggestion:
                raise
            raise click.BadParameter(f"{error.message} Did you mean {suggestion!r}?", ctx, param) from None


class TargetCommand(click.Command):
    """A command whose arguments may end with `-- command…`, which is put into `ctx.meta[COMMAND]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remove `--` and the words after it, which click would otherwise append to the other arguments."""
        if "--" in args:
            end = args.index("--")
            ctx.meta[COMMAND] = args[end + 1 :]
            args = args[:end]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Add the command after `--` to the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND…]"]


CONFIG = "wharfinger.config"
"""Key of `ctx.meta` for the file of `--config`."""

COMMAND = "wharfinger.command"
"""Key of `ctx.meta` for the words after `--`."""
