"""One connection for one command: target and options to an open client, and asyncio with an end that is short."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from wharfinger.cli.failures import CTRL_C, Failed, report
from wharfinger.cli.options import Verbosity
from wharfinger.cli.targets import Target
from wharfinger.client import Client
from wharfinger.protocol.interfaces import Authorize

if TYPE_CHECKING:
    from wharfinger.cli.causes import Stderr
    from wharfinger.errors import WharfingerError

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


def with_client(
    ctx: click.Context,
    target: Target,
    how: Connecting,
    work: Callable[[Client], Awaitable[T]],
    said: Stderr | None = None,
    **handlers: Any,
) -> T:
    """Open the client, do the work, close it; raises what the client raises, and Exit(130) for Ctrl-C.

    `handlers` are the client's for what a server asks and logs. If the server was started by us, an error of ours has
    its cause as a note: the part of the server's standard error that belongs to it. With -v all of that is shown as it
    comes. `said` keeps it for the caller.
    """
    import asyncio
    import logging

    from wharfinger.cli.causes import Stderr
    from wharfinger.cli.logs import log_to_stderr
    from wharfinger.errors import WharfingerError

    verbosity = ctx.obj if isinstance(ctx.obj, Verbosity) else Verbosity()
    log_to_stderr(verbosity)
    said = Stderr() if said is None else said
    said.show = verbosity.level > 0
    if said.show:  # the same lines are not logged once more
        logging.getLogger("wharfinger.transports.stdio_client").setLevel(logging.INFO)
    client = make(ctx, target, how, stderr=said.take, **handlers)
    interrupted: list[bool] = []

    async def session() -> T:
        on_ctrl_c(interrupted)
        async with client:
            return await work(client)

    try:
        done = asyncio.run(session())
    except WharfingerError as error:
        raise explained(error, target, said) from error.__cause__
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and not interrupted:
            raise
        if sys.stderr.isatty():
            click.echo(err=True)  # the terminal has shown ^C
        raise click.exceptions.Exit(CTRL_C) from None
    failed = own_failure(target, said)
    if failed is not None:
        report(failed)
    return done


def explained(error: WharfingerError, target: Target, said: Stderr) -> Exception:
    """Add what the server wrote of an error's cause."""
    from wharfinger.cli.causes import cause_in
    from wharfinger.cli.hints import hint
    from wharfinger.errors import ConnectionFailed, ConnectionLost

    advice = hint(target, str(error))
    if advice:
        error.add_note(advice)
    if not isinstance(error, (ConnectionFailed, ConnectionLost)):
        if not said.show:
            for line in cause_in(said.lines, str(error)):
                error.add_note(line)
        return error
    return own_failure(target, said, error.exit_code) or error


def own_failure(target: Target, said: Stderr, exit_code: int = 1) -> Failed | None:
    """What a server that is this program said of its own failure, such as an error at the import of a file."""
    from wharfinger.cli.causes import cause_in

    lines = [line.removeprefix(OURS) for line in said.lines if line.startswith(OURS)]
    if not target.ours or not lines:
        return None
    failed = Failed(lines[-1], exit_code)
    for line in [] if said.show else cause_in(said.lines, lines[-1]):
        failed.add_note(line)
    return failed


CLOSE_SECONDS = 0.2
"""How long a connection may take to close after Ctrl-C."""
OURS = "wharfinger: "
"""What the error of a child that is this program begins with."""


def on_ctrl_c(interrupted: list[bool]) -> None:
    """Make Ctrl-C cancel this task, and record that; asyncio's own way stays where that cannot be set.

    The second cancellation ends the wait for a connection that does not close at once, such as a child that ignores
    the end of its input: the end of the loop then kills the child.
    """
    import asyncio
    import signal
    from contextlib import suppress

    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def stop() -> None:
        if not interrupted and task is not None:
            interrupted.append(True)
            task.cancel()
            loop.call_later(CLOSE_SECONDS, task.cancel)

    with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; a thread that is not the main one
        loop.add_signal_handler(signal.SIGINT, stop)


def make(ctx: click.Context, target: Target, how: Connecting, **handlers: Any) -> Client:
    """Make the client; whatever in the options cannot be is a usage error."""
    from wharfinger.protocol.revisions import REVISIONS

    if how.revision is not None and how.revision not in REVISIONS:
        raise click.UsageError(f"No revision {how.revision!r}: choose one of {', '.join(sorted(REVISIONS))}.", ctx)
    if not target.url.startswith("http") and (how.headers or how.token_env):
        raise click.UsageError("--header and --token-env are for a URL; for a command use --env.", ctx)
    if target.url and how.env:
        raise click.UsageError("--env is for a command.", ctx)
    given = merged(target.headers, headers(ctx, how))
    try:
        return Client(
            target.url or list(target.command),
            revision=how.revision,
            timeout=how.timeout,
            open_timeout=how.timeout,
            headers=given,
            env={**target.env, **environment(ctx, how)},
            cwd=target.cwd,
            auth=signed_in(target, given),
            **handlers,
        )
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error), ctx) from None


def signed_in(target: Target, given: Mapping[str, str]) -> Authorize | None:
    """Take the tokens of `wharfinger auth login`, for a URL that no token is given for."""
    if not target.url.startswith("http") or any(name.lower() == "authorization" for name in given):
        return None
    from wharfinger.cli.auth import kept_sign_in

    return kept_sign_in()


def merged(configured: Mapping[str, str], given: dict[str, str]) -> dict[str, str]:
    """Put the headers that were given over those of a configuration file, whatever their case."""
    names = {name.lower() for name in given}
    return {**{name: value for name, value in configured.items() if name.lower() not in names}, **given}


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
