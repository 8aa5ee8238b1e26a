"""`wharfinger prompt`: a prompt with its blanks filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.call import contents
from wharfinger.cli.completing import complete_words
from wharfinger.cli.failures import Failed
from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets import split_words

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["prompt"]


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger prompt http://127.0.0.1:8000/mcp briefing vessel=Mary
  wharfinger prompt --json harbour briefing vessel=Mary
  wharfinger prompt briefing 'notes=@notes.txt' -- python server.py""",
)
@click.argument("words", nargs=-1, metavar="TARGET NAME [KEY=TEXT]…", shell_complete=complete_words("prompts"))
@json_option
@connection_options
@verbosity_options
@click.pass_context
def prompt(ctx: click.Context, /, words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Print the messages of the prompt NAME.

    A text that begins with @ is read from the file of that name. `ls --prompts TARGET` lists the prompts.
    """
    target, rest = split_words(ctx, words, ("NAME",), "`wharfinger ls --prompts TARGET` lists the prompts")
    name, given = rest[0], texts(ctx, rest[1:])
    from wharfinger.cli.connecting import connecting, with_client
    from wharfinger.cli.ls import others
    from wharfinger.cli.near import suggesting
    from wharfinger.cli.talking import Talking

    talking = Talking(ctx.obj)

    async def work(client: Client) -> Any:
        if not client.capabilities.prompts:
            raise Failed(f"The server has no prompts{others(client)}.")
        async with suggesting(name, (client.list_prompts, "name")):
            return await client.get_prompt(name, given or None)

    result = with_client(ctx, target, connecting(options), work, **talking.handlers)
    if as_json:
        from wharfinger.cli.output import print_json

        print_json(result)
    else:
        show(result)


def texts(ctx: click.Context, words: tuple[str, ...]) -> dict[str, str]:
    """Read `key=text`: what fills a prompt's blanks is text only."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or key.endswith(":"):
            raise click.UsageError(f"{word!r}: write KEY=TEXT.", ctx)
        if key in found:
            raise click.UsageError(f"{key!r} is given twice.", ctx)
        found[key] = contents(ctx, text[1:]) if text.startswith("@") else text
    return found


def show(result: Any) -> None:
    """Print each message with a line before it that says whose it is."""
    from wharfinger.cli.blocks import print_block
    from wharfinger.cli.words import printable

    for message in result.messages:
        click.echo(f"[{printable(message.role)}]")
        print_block(message.content, saver="--json shows it")
