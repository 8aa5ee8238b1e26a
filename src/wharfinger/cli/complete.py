"""`wharfinger complete`: what an argument of a prompt or a variable of a template may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.completing import complete_words
from wharfinger.cli.options import TargetCommand, Verbosity, connection_options, json_option, verbosity_options
from wharfinger.cli.prompt import texts
from wharfinger.cli.targets import split_words

if TYPE_CHECKING:
    from wharfinger.client import Client
    from wharfinger.types import Completion

__all__ = ["complete"]


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger complete http://127.0.0.1:8000/mcp briefing vessel ma
  wharfinger complete harbour 'log://{vessel}/{day}' day 2026- vessel=mary
  wharfinger complete 'log://{vessel}/today' vessel -- python server.py""",
)
@click.argument(
    "words",
    nargs=-1,
    metavar="TARGET REF ARGUMENT [VALUE] [KEY=TEXT]…",
    shell_complete=complete_words("references"),
)
@json_option
@connection_options
@verbosity_options
@click.pass_context
def complete(ctx: click.Context, /, words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Print, one a line, what VALUE may be the beginning of.

    REF is the name of a prompt, or a URI template; ARGUMENT is an argument of the one or a variable of the other.
    KEY=TEXT are other arguments that are known already.
    """
    target, (reference, argument, *rest) = split_words(ctx, words, ("REF", "ARGUMENT"))
    context = texts(ctx, tuple(rest[1:]))
    from wharfinger.cli.connecting import connecting, with_client
    from wharfinger.cli.near import suggesting
    from wharfinger.cli.words import variables_of

    variables = variables_of(reference)
    if variables and argument not in variables:
        raise click.UsageError(f"{reference} has no variable {argument!r}: it has {', '.join(variables)}.", ctx)

    async def work(client: Client) -> Completion:
        async with suggesting(
            reference, (client.list_prompts, "name"), (client.list_resource_templates, "uri_template")
        ):
            return await client.complete(reference, argument, rest[0] if rest else "", context or None)

    found = with_client(ctx, target, connecting(options), work)
    if as_json:
        from wharfinger.cli.output import print_json

        print_json(found)
        return
    from wharfinger.cli.output import print_rows

    print_rows([(value,) for value in found.values])
    more = left_out(found)
    if more and not (isinstance(ctx.obj, Verbosity) and ctx.obj.quiet):
        click.echo(more, err=True)


def left_out(found: Completion) -> str:
    """Say that there are more values than the server gave."""
    if isinstance(found.total, int) and found.total > len(found.values):
        return f"The first {len(found.values)} of {found.total:,}: write more of the value."
    return "There are more: write more of the value." if found.has_more is True else ""
