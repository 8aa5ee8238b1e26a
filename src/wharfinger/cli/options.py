"""The options that several sub-commands share, and the command class that understands `-- command…`; no I/O."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["TargetCommand", "Verbosity", "connection_options", "json_option", "verbosity_options"]

F = TypeVar("F", bound=Callable[..., Any])


class Verbosity:
    """How much is told: `level` counts `-v`, `quiet` is `-q`."""

    def __init__(self) -> None:
        self.level = 0
        self.quiet = False


def set_level(ctx: click.Context, param: click.Parameter, value: int) -> None:
    """Note how often `-v` was given."""
    if isinstance(ctx.obj, Verbosity):
        ctx.obj.level = value


def set_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Note `-q`."""
    if isinstance(ctx.obj, Verbosity):
        ctx.obj.quiet = value


def set_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    """Note the configuration file."""
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
        help="Tell only errors.",
        envvar="WHARFINGER_QUIET",
    )
    verbose = click.option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        is_eager=True,
        callback=set_level,
        help="Tell more; tracebacks too. Repeat for every message.",
        envvar="WHARFINGER_VERBOSE",
    )
    return verbose(quiet(command))


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option(
        "--json", "as_json", is_flag=True, envvar="WHARFINGER_JSON", help="Print JSON, as the protocol writes it."
    )(command)


def connection_options(command: F) -> F:
    """Add what is needed to reach a server: configuration file, time-out, headers, token, revision."""
    for option in (
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            envvar="WHARFINGER_CONFIG",
            expose_value=False,
            is_eager=True,
            callback=set_config,
            help="Look up a TARGET that is a name in this file. Default: those of the usual hosts.",
        ),
        click.option(
            "--env",
            multiple=True,
            metavar="NAME[=VALUE]",
            allow_from_autoenv=False,
            help="Variable for a command, which gets few of ours. Repeatable.",
        ),
        click.option(
            "--revision",
            metavar="DATE",
            envvar="WHARFINGER_REVISION",
            help="Speak this revision of the protocol, for example 2025-11-25, instead of finding out.",
        ),
        click.option(
            "--token-env",
            metavar="NAME",
            envvar="WHARFINGER_TOKEN_ENV",
            help="Environment variable that holds the bearer token.",
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
            type=click.FloatRange(min=0, min_open=True),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            envvar="WHARFINGER_TIMEOUT",
            help="How long to wait for an answer.",
        ),
    ):
        command = option(command)
    return command


class NearChoice(click.Choice[str]):
    """One of some words; for another one, the error says which was probably meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word as it is listed."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from wharfinger.cli.near import nearest

            found = nearest(str(value), self.choices)
            if not found:
                raise
            raise click.BadParameter(f"{error.message} Did you mean {found!r}?", ctx, param) from None


class TargetCommand(click.Command):
    """A command whose arguments may end with `-- command…`, kept whole in `ctx.meta[COMMAND]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words after `--` away before click joins them to the others."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)

    def make_metavar_usage(self) -> str:
        """Say how the usage line ends."""
        return "[-- COMMAND…]"

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Name the command after `--` in the usage line."""
        return [*super().collect_usage_pieces(ctx), self.make_metavar_usage()]


CONFIG = "wharfinger.config"
"""Key of `ctx.meta` for the file of `--config`."""

COMMAND = "wharfinger.command"
"""Key of `ctx.meta` under which `TargetCommand` leaves the words after `--`."""
