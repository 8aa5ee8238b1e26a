"""`wharfinger prompt`: fills in a prompt and prints its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.commands.ls import other_lists
from wharfinger.cli.error_report import CommandError
from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_of, verbosity_options
from wharfinger.cli.targets.call_arguments import parse_texts
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import split_words

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
    """Fill in the prompt NAME and print its messages.

    KEY=@FILE reads the text from a file. `wharfinger ls --prompts TARGET` lists the prompts.
    """
    target, rest = split_words(ctx, words, ("NAME",), "`wharfinger ls --prompts TARGET` lists the prompts")
    name, arguments = rest[0], parse_texts(ctx, rest[1:])
    from wharfinger.cli.suggestions import suggest_names
    from wharfinger.cli.targets.client_callbacks import ClientCallbacks
    from wharfinger.cli.targets.open_client import take_connection_options, with_client

    async def work(client: Client) -> Any:
        if not client.capabilities.prompts:
            raise CommandError(f"The server has no prompts{other_lists(client)}.")
        async with suggest_names(name, (client.list_prompts, "name")):
            return await client.get_prompt(name, arguments or None)

    result = with_client(
        ctx, target, take_connection_options(options), work, **ClientCallbacks(verbosity_of(ctx)).handlers
    )
    if as_json:
        from wharfinger.cli.render.output import print_json

        print_json(result)
    else:
        show(result)


def show(result: Any) -> None:
    """Print each message below its role."""
    from wharfinger.cli.render.content_blocks import print_block
    from wharfinger.content.text import escape_controls

    for message in result.messages:
        click.echo(f"[{escape_controls(message.role)}]")
        print_block(message.content, advice="--json shows it")
