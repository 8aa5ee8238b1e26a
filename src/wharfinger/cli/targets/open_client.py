"""Opens the client of a command. If the command started the server, an error shows what the server wrote about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from wharfinger.cli.error_report import CTRL_C_EXIT_CODE, CommandError, report_error
from wharfinger.cli.options import bearer_token, verbosity_of
from wharfinger.cli.targets.target import Target
from wharfinger.client import Client
from wharfinger.net import has_control
from wharfinger.protocol.interfaces import Authorize

if TYPE_CHECKING:
    from wharfinger.cli.tracebacks import ServerStderr
    from wharfinger.errors import WharfingerError
    from wharfinger.upstreams import ServerConfig

__all__ = [
    "ConnectionOptions",
    "make_client",
    "saved_sign_in",
    "take_connection_options",
    "with_client",
    "with_options",
]

T = TypeVar("T")


class ConnectionOptions(NamedTuple):
    """The values of the options that `options.connection_options` adds."""

    timeout: float = 30.0
    headers: tuple[str, ...] = ()
    token_env: str | None = None
    revision: str | None = None
    env: tuple[str, ...] = ()


def take_connection_options(options: dict[str, Any]) -> ConnectionOptions:
    """Remove the connection options from the options of a command, and return them."""
    return ConnectionOptions(**{name: options.pop(name) for name in ConnectionOptions._fields})


def with_client(
    ctx: click.Context,
    target: Target,
    options: ConnectionOptions,
    work: Callable[[Client], Awaitable[T]],
    stderr: ServerStderr | None = None,
    **handlers: Any,
) -> T:
    """Open a client, call `work`, and close the client.

    If `work` succeeds, but the server is another process of this program and printed an error, it is printed here too.

    Args:
        ctx: the context of the command.
        target: the server.
        options: the connection options.
        work: is called with the open client, and returns the result.
        stderr: keeps the standard error of the server that is started, if the caller needs it.
        handlers: further arguments of `Client`, such as callbacks.

    Raises:
        WharfingerError: the client raised it. If the server was started here, the part of its standard error that
            belongs to the error is added as a note; with -v all of it is printed as it arrives.
        CommandError: the connection failed or was lost, and the server is another process of this program: the message
            is the one that it printed.
        click.exceptions.Exit: Ctrl-C was pressed; its code is 130.
    """
    import asyncio
    import logging

    from wharfinger.cli.stderr_log import log_to_stderr
    from wharfinger.cli.tracebacks import ServerStderr
    from wharfinger.errors import WharfingerError

    verbosity = verbosity_of(ctx)
    log_to_stderr(verbosity)
    stderr = ServerStderr() if stderr is None else stderr
    stderr.show = verbosity.level > 0
    if stderr.show:  # so that the same lines are not logged too
        logging.getLogger("wharfinger.transports.stdio_client").setLevel(logging.INFO)
    client = make_client(ctx, target, options, stderr=stderr.take, **handlers)
    interrupted: list[bool] = []

    async def session() -> T:
        on_ctrl_c(interrupted)
        async with client:
            return await work(client)

    try:
        result = asyncio.run(session())
    except WharfingerError as error:
        raise explain(error, target, stderr) from error.__cause__
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and not interrupted:
            raise
        if sys.stderr.isatty():
            click.echo(err=True)  # ends the line on which the terminal has shown ^C
        raise click.exceptions.Exit(CTRL_C_EXIT_CODE) from None
    failure = own_failure(target, stderr)
    if failure is not None:  # such as a lifespan that failed when the server ended
        report_error(failure)
    return result


def explain(error: WharfingerError, target: Target, stderr: ServerStderr) -> Exception:
    """Return the error with a hint, and with the cause that the server wrote to its standard error.

    If the connection failed or was lost, the error of `own_failure` is returned instead, if there is one.
    """
    from wharfinger.cli.targets.connection_hints import connection_hint
    from wharfinger.cli.tracebacks import cause_in
    from wharfinger.errors import ConnectionFailed, ConnectionLost

    advice = connection_hint(target, str(error))
    if advice:
        error.add_note(advice)
    if not isinstance(error, (ConnectionFailed, ConnectionLost)):
        if not stderr.show:
            for line in cause_in(stderr.lines, str(error)):
                error.add_note(line)
        return error
    return own_failure(target, stderr, error.exit_code) or error


def own_failure(target: Target, stderr: ServerStderr, exit_code: int = 1) -> CommandError | None:
    """Return the last error that the server has printed, such as a failed import.

    Returns None if it printed no error, or is not another process of this program.
    """
    from wharfinger.cli.tracebacks import cause_in

    lines = [line.removeprefix(ERROR_PREFIX) for line in stderr.lines if line.startswith(ERROR_PREFIX)]
    if not target.own_command or not lines:
        return None
    failure = CommandError(lines[-1], exit_code)
    for line in [] if stderr.show else cause_in(stderr.lines, lines[-1]):
        failure.add_note(line)
    return failure


CLOSE_SECONDS = 0.2
"""The maximum wait for a connection to close after Ctrl-C."""
ERROR_PREFIX = "wharfinger: "
"""The beginning of every error that this program prints."""


def on_ctrl_c(interrupted: list[bool]) -> None:
    """Make Ctrl-C cancel this task and append to `interrupted`. If no handler can be set, asyncio's handler stays.

    The task is cancelled a second time after `CLOSE_SECONDS`, which ends the wait for a connection that does not close
    promptly, such as a child that ignores the end of its input. The child is killed when the loop ends.
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

    with suppress(NotImplementedError, ValueError, RuntimeError):  # on Windows, and outside of the main thread
        loop.add_signal_handler(signal.SIGINT, stop)


def make_client(ctx: click.Context, target: Target, options: ConnectionOptions, **handlers: Any) -> Client:
    """Make the client; an invalid option is a usage error."""
    check_revision(ctx, options)
    if not target.url.startswith("http") and (options.headers or options.token_env):
        raise click.UsageError("--header and --token-env are for a URL; for a command use --env.", ctx)
    if target.url and options.env:
        raise click.UsageError("--env is for a command.", ctx)
    headers = merge_headers(target.headers, read_headers(ctx, options))
    has_token = any(name.lower() == "authorization" for name in headers)
    try:
        return Client(
            target.url or list(target.command),
            revision=options.revision,
            timeout=options.timeout,
            open_timeout=options.timeout,
            headers=headers,
            env={**target.env, **read_environment(ctx, options)},
            cwd=target.cwd,
            auth=None if has_token else saved_sign_in([target.url]),
            **handlers,
        )
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error), ctx) from None


def check_revision(ctx: click.Context, options: ConnectionOptions) -> None:
    """Raise click.UsageError if `--revision` names none that exists."""
    from wharfinger.protocol.revisions import REVISIONS

    if options.revision is not None and options.revision not in REVISIONS:
        raise click.UsageError(f"No revision {options.revision!r}: choose one of {', '.join(sorted(REVISIONS))}.", ctx)


def saved_sign_in(targets: Iterable[object]) -> Authorize | None:
    """Return a sign-in with the tokens that `wharfinger auth login` saved; None if no target is an HTTP URL."""
    if not any(isinstance(target, str) and target.startswith("http") for target in targets):
        return None
    from wharfinger.auth import FileTokens, SignIn

    return SignIn(tokens=FileTokens(), interactive=False)


def merge_headers(configured: Mapping[str, str], overrides: dict[str, str]) -> dict[str, str]:
    """Return the configured headers, with those in `overrides` replaced or added. Names are case-insensitive."""
    names = {name.lower() for name in overrides}
    return {**{name: value for name, value in configured.items() if name.lower() not in names}, **overrides}


def read_headers(ctx: click.Context, options: ConnectionOptions) -> dict[str, str]:
    """Return the headers of `--header` and `--token-env`."""
    headers: dict[str, str] = {}
    for text in options.headers:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise click.UsageError(f"{text!r}: write 'NAME: VALUE'.", ctx)
        headers[name.strip()] = value.strip()
    if options.token_env:
        headers["Authorization"] = f"Bearer {bearer_token(options.token_env, ctx)}"
    for name, value in headers.items():
        if has_control(name + value):
            raise click.UsageError(f"The header {name!r} contains a line break or another control character.", ctx)
    return headers


def read_environment(ctx: click.Context, options: ConnectionOptions) -> dict[str, str]:
    """Return the variables of `--env NAME=VALUE`, and of `--env NAME`, which passes on a variable of this process."""
    variables: dict[str, str] = {}
    for text in options.env:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise click.UsageError(f"The variable {name} is not set: write --env {name}=VALUE.", ctx)
        variables[name] = value if equals else os.environ[name]
    return variables


def with_options(ctx: click.Context, configs: list[ServerConfig], connection: ConnectionOptions) -> list[ServerConfig]:
    """Return the servers with the headers and variables of the command line.

    Raises:
        click.UsageError: headers need exactly one URL among the servers, so that no other server gets a token, and
            variables exactly one command.
    """
    from msgspec.structs import replace

    urls = [config for config in configs if isinstance(config.target, str) and config.target.startswith("http")]
    commands = [config for config in configs if isinstance(config.target, list)]
    several = "for several, use a configuration file such as mcp.json."
    if (connection.headers or connection.token_env) and len(urls) != 1:
        raise click.UsageError(f"--header and --token-env need exactly one URL: {several}", ctx)
    if connection.env and len(commands) != 1:
        raise click.UsageError(f"--env needs exactly one command: {several}", ctx)
    headers, env = read_headers(ctx, connection), read_environment(ctx, connection)
    changed: list[ServerConfig] = []
    for config in configs:
        if config in urls:
            config = replace(config, headers=merge_headers(config.headers, headers))
        elif config in commands:
            config = replace(config, env={**config.env, **env})
        changed.append(config)
    return changed
