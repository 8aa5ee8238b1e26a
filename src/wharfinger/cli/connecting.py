"""One connection for one command: target and options to an open client, and asyncio with an end that is short."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import click

from wharfinger.cli.failures import CTRL_C
from wharfinger.cli.options import Verbosity
from wharfinger.cli.targets import Target
from wharfinger.client import Client

__all__ = ["Connecting", "connecting", "with_client"]

T = TypeVar("T")


class Connecting(NamedTuple):
    """The options of `connection_options`."""

    timeout: float = 30.0
    headers: tuple[str, ...] = ()
    token_env: str | None = None
    revision: str | None = None
    env: tuple[str, ...] = ()


def connecting(options: dict[str, Any]) -> Connecting:
    """Take the connection's options out of a command's."""
    return Connecting(**{name: options.pop(name) for name in Connecting._fields})


def with_client(ctx: click.Context, target: Target, how: Connecting, work: Callable[[Client], Awaitable[T]]) -> T:
    """Open the client, do the work, close it; raises what the client raises, and Exit(130) for Ctrl-C."""
    import asyncio

    from wharfinger.cli.logs import log_to_stderr

    log_to_stderr(ctx.obj if isinstance(ctx.obj, Verbosity) else Verbosity())
    client = make(ctx, target, how)

    async def session() -> T:
        async with client:
            return await work(client)

    try:
        return asyncio.run(session())
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            click.echo(err=True)  # the terminal has shown ^C
        raise click.exceptions.Exit(CTRL_C) from None


def make(ctx: click.Context, target: Target, how: Connecting) -> Client:
    """Make the client; whatever in the options cannot be is a usage error."""
    from wharfinger.protocol.revisions import REVISIONS

    if how.revision is not None and how.revision not in REVISIONS:
        raise click.UsageError(f"No revision {how.revision!r}: choose one of {', '.join(sorted(REVISIONS))}.", ctx)
    if target.command and (how.headers or how.token_env):
        raise click.UsageError("--header and --token-env are for a URL; for a command use --env.", ctx)
    if target.url and how.env:
        raise click.UsageError("--env is for a command.", ctx)
    try:
        return Client(
            target.url or list(target.command),
            revision=how.revision,
            timeout=how.timeout,
            open_timeout=how.timeout,
            headers=headers(ctx, how),
            env=environment(ctx, how),
        )
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error), ctx) from None


def headers(ctx: click.Context, how: Connecting) -> dict[str, str]:
    """Read the headers, with the token."""
    found: dict[str, str] = {}
    for text in how.headers:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise click.UsageError(f"{text!r}: write 'NAME: VALUE'.", ctx)
        found[name.strip()] = value.strip()
    if how.token_env:
        token = os.environ.get(how.token_env, "")
        if not token:
            raise click.UsageError(f"The variable {how.token_env} is not set: put the token into it.", ctx)
        found["Authorization"] = f"Bearer {token}"
    return found


def environment(ctx: click.Context, how: Connecting) -> dict[str, str]:
    """Read `--env NAME=VALUE` and `--env NAME`, which passes on our own."""
    found: dict[str, str] = {}
    for text in how.env:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise click.UsageError(f"The variable {name} is not set: write --env {name}=VALUE.", ctx)
        found[name] = value if equals else os.environ[name]
    return found
