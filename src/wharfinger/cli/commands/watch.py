"""`wharfinger watch`: prints a line for each change, until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_of, verbosity_options
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import split_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wharfinger.client import Change, Client, Watch
    from wharfinger.errors import WharfingerError

__all__ = ["watch"]


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger watch http://127.0.0.1:8000/mcp file:///charts/tides.log
  wharfinger watch --read http://127.0.0.1:8000/mcp file:///charts/tides.log
  wharfinger watch --lists --json http://127.0.0.1:8000/mcp
  wharfinger watch --exec 'make charts' harbour file:///charts/tides.log
  wharfinger watch --count 1 file:///charts/tides.log -- wharfinger serve ./charts""",
)
@click.argument("words", nargs=-1, metavar="TARGET [URI…]", shell_complete=complete_words("uris"))
@click.option(
    "--lists", is_flag=True, help="Watch the lists of resources, tools and prompts (the default without URI)."
)
@click.option("--read", "reads", is_flag=True, help="Print the new content after each change of a resource.")
@click.option(
    "--exec",
    "command",
    metavar="CMD",
    help="Run CMD in a shell for each change, one at a time, with WHARFINGER_URI and WHARFINGER_KIND set.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N changes.")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def watch(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    lists: bool,
    reads: bool,
    command: str | None,
    count: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print a line for each change of the resources URI, until Ctrl-C.

    A line shows the local time and the URI or list. Servers report that something changed, not what: --read prints the
    new content, or the type and size of binary content. If the connection breaks, watch reconnects and lists what may
    have changed in between. Changes while the CMD of --exec runs are reported once, after it.
    """
    target, uris = split_words(ctx, words, ())
    from wharfinger.cli.suggestions import suggest_names
    from wharfinger.cli.targets.open_client import take_connection_options, with_client

    quiet = verbosity_of(ctx).quiet

    async def work(client: Client) -> None:
        watches = [client.watch(*uris)] if uris else []
        if lists or not uris:
            watches.append(client.watch_lists())
        for watching in watches:
            if not quiet:
                watching.on_interruption = print_interruption
            async with suggest_names(uris[0] if uris else "", (client.list_resources, "uri"), list_all=False):
                await watching.start()
        if not quiet:
            click.echo(f"Watching {', '.join(uris) or 'the lists'}: Ctrl-C stops.", err=True)
        remaining = count
        async for change in merge(watches):
            await print_change(client, change, reads, as_json)
            if command is not None:
                await run_command(command, change)
            if remaining is not None:
                remaining -= 1
                if remaining == 0:
                    return

    with_client(ctx, target, take_connection_options(options), work)


def print_interruption(error: WharfingerError) -> None:
    """Print that the connection was lost. After it is back, `print_change` prints what may have changed."""
    import time

    click.echo(f"{time.strftime('%H:%M:%S')} connection lost, reconnecting ({first_line(error)})", err=True)


def first_line(error: WharfingerError) -> str:
    """Return the first line of an error's message without the full stop, with secrets and controls replaced."""
    from wharfinger.content.redaction import redacted_text
    from wharfinger.content.text import escape_controls

    return escape_controls(redacted_text(str(error).partition("\n")[0]).rstrip("."))


async def merge(watches: list[Watch]) -> AsyncIterator[Change]:
    """Yield the changes of several watches as they arrive, until the first watch ends or fails."""
    import asyncio

    if len(watches) == 1:
        async for change in watches[0]:
            yield change
        return
    waiting = {asyncio.ensure_future(anext(watch)): watch for watch in watches}
    try:
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                watching = waiting.pop(task)
                try:
                    change = task.result()
                except StopAsyncIteration:
                    return
                waiting[asyncio.ensure_future(anext(watching))] = watching
                yield change
    finally:
        for task in waiting:
            task.cancel()


async def print_change(client: Client, change: Change, reads: bool, as_json: bool) -> None:
    """Print one change and, if `reads` is true, the new content of the resource. If it cannot be read, print why."""
    import time

    from wharfinger.cli.render.content_blocks import with_line_end
    from wharfinger.cli.render.highlighting import kind_and_size
    from wharfinger.cli.render.output import print_json, print_text
    from wharfinger.content.text import escape_controls
    from wharfinger.errors import ResourceNotFound, WharfingerError

    result = None
    deleted = False
    failure = ""
    if reads and change.uri:
        try:
            result = (await client.read_resource(change.uri, bypass_cache=True)).result
        except ResourceNotFound:
            deleted = True
        except WharfingerError as error:  # the watch continues: the next read may succeed
            failure = first_line(error)
    if as_json:
        missed = {"missed": True} if change.missed else {}
        read = {"result": result} if result else {}
        failed = {"error": failure} if failure else {"deleted": True} if deleted else {}
        print_json({"kind": change.kind, "uri": change.uri or None, **missed, **read, **failed})
        return
    subject = change.uri or f"the list of {change.kind}"
    verb = "reconnected, may have changed:" if change.missed else "changed"
    click.echo(f"{time.strftime('%H:%M:%S')} {verb} {escape_controls(subject)}{'  (deleted)' if deleted else ''}")
    if failure:
        click.echo(f"wharfinger: it cannot be read: {failure}.", err=True)
    for content in result.contents if result else ():
        if isinstance(content.text, str):
            print_text(with_line_end(content.text))
        elif isinstance(content.blob, bytes):
            mime_type = content.mime_type if isinstance(content.mime_type, str) else ""
            click.echo(escape_controls(f"[{kind_and_size(content.blob, mime_type)}]"))


async def run_command(command: str, change: Change) -> None:
    """Run a command for one change and wait for it; a failure is reported, and the watch continues."""
    import asyncio
    import os

    env = {**os.environ, "WHARFINGER_URI": change.uri, "WHARFINGER_KIND": change.kind}
    try:
        process = await asyncio.create_subprocess_shell(command, env=env, stdin=asyncio.subprocess.DEVNULL)
    except (OSError, ValueError) as error:  # such as a URI of the server that is too long for a variable, or has a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        click.echo(f"wharfinger: the command cannot be started: {reason}.", err=True)
        return
    try:
        code = await process.wait()
    except asyncio.CancelledError:  # a signal to this process alone does not reach the command
        if process.returncode is None:
            process.terminate()
        raise
    if code:
        outcome = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        click.echo(f"wharfinger: the command {outcome}.", err=True)
