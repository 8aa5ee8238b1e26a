"""Servers by name, from the configuration files of hosts; asks at the terminal for values that the files leave open."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec.structs import replace

from wharfinger.client.host_entry import HostEntry, read_entry
from wharfinger.upstreams.config import no_answer
from wharfinger.upstreams.config_files import ConfiguredServer, all_servers, expanded
from wharfinger.upstreams.placeholders import InvalidConfiguration, Placeholders
from wharfinger.upstreams.public_names import distinct_names

if TYPE_CHECKING:
    from wharfinger.upstreams import ServerConfig

__all__ = ["ask_at_terminal", "look_up", "resolve", "with_distinct_names"]

IDENTITY_KEYS = (
    "command", "args", "env", "envFile", "cwd",
    "headers", "http_headers", "env_http_headers", "bearer_token_env_var",
)  # fmt: skip
"""The members of an entry that say, in addition to its URL, which server it starts or reaches."""


def look_up(ctx: click.Context, name: str, file: Path | None) -> ConfiguredServer | None:
    """Return the server with this name, or None.

    Raises:
        click.UsageError: several files have different servers of that name, or `file` cannot be read.
    """
    try:
        servers, errors = all_servers(file)
    except FileNotFoundError:
        if file is None:  # the current folder was deleted
            raise
        raise click.UsageError(f"No such file: {file}", ctx) from None
    if file and errors:
        raise click.UsageError(f"{errors[0]}.", ctx)
    matches = [server for server in servers if server.name == name]
    if len({identity(server) for server in matches}) > 1:
        where = ", ".join(str(server.file) for server in matches)
        raise click.UsageError(
            f"{name!r} is a different server in each of {where}: choose a file with --config FILE.", ctx
        )
    return matches[0] if matches else None


def identity(server: ConfiguredServer) -> str:
    """Return a text that is equal for two entries of the same server."""
    return repr((server.folder, server.address, *(server.entry.get(key) for key in IDENTITY_KEYS)))


def resolve(ctx: click.Context, server: ConfiguredServer) -> HostEntry:
    """Return the entry of a server, with every placeholder filled in.

    Raises:
        click.UsageError: a placeholder cannot be filled in, or a value has the wrong type.
    """
    ask = no_answer if ctx.resilient_parsing else ask_at_terminal
    placeholders = Placeholders(server.name_in_errors, server.folder.absolute(), server.inputs, os.environ, ask, {})
    try:
        return read_entry(expanded(server, placeholders))
    except InvalidConfiguration as error:
        raise click.UsageError(str(error), ctx) from None
    except ValueError as error:
        raise click.UsageError(f"{server.name_in_errors}: {error}", ctx) from None


def ask_at_terminal(name: str, described: Mapping[str, Any]) -> str | None:
    """Ask for the value of an input at the terminal. Returns None if there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from wharfinger.content.text import escape_controls

    default, options = described.get("default"), options_of(described)
    question = str(described.get("description") or name)
    if options:
        question += f" ({', '.join(options)})"
    if isinstance(default, str):
        question += f" [{default}]"
    answer = click.prompt(
        escape_controls(question),
        default=default if isinstance(default, str) else None,
        hide_input=described.get("password") is True,
        type=click.Choice(options) if options else str,
        show_default=False,  # click would show control characters unescaped
        show_choices=False,
        err=True,
    )
    return str(answer)


def options_of(described: Mapping[str, Any]) -> list[str]:
    """Return the options of an input of the type `pickString`."""
    declared = described.get("options")
    options: list[str] = []
    for option in cast("list[object]", declared) if isinstance(declared, list) else []:
        value = cast("dict[str, object]", option).get("value") if isinstance(option, dict) else option
        if isinstance(value, str):
            options.append(value)
    return options


def with_distinct_names(configs: Sequence[ServerConfig]) -> list[ServerConfig]:
    """Return the servers, with a number after each name that has occurred before, as in `harbour_2`."""
    names = distinct_names([config.name for config in configs])
    return [replace(config, name=name) for config, name in zip(configs, names, strict=True)]
