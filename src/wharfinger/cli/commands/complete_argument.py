"""`wharfinger complete`: completes an argument of a prompt or a variable of a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_of, verbosity_options
from wharfinger.cli.targets.call_arguments import parse_texts
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import split_words

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
    metavar="TARGET REF ARGUMENT [VALUE [KEY=TEXT]…]",
    shell_complete=complete_words("references"),
)
@json_option
@connection_options
@verbosity_options
@click.pass_context
def complete(ctx: click.Context, /, words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Complete VALUE for an argument of a prompt or a variable of a template, one suggestion per line.

    REF is the name of a prompt or a URI template; ARGUMENT is the argument or variable to complete. To pass the
    value of another argument or variable, add KEY=TEXT after VALUE. If there is no VALUE yet, write ''.
    """
    target, (reference, argument, *rest) = split_words(ctx, words, ("REF", "ARGUMENT"))
    context = parse_texts(ctx, tuple(rest[1:]))
    from wharfinger.cli.render.formatting import variables_of
    from wharfinger.cli.suggestions import suggest_names
    from wharfinger.cli.targets.open_client import take_connection_options, with_client

    variables = variables_of(reference)
    if variables and argument not in variables:
        raise click.UsageError(f"{reference} has no variable {argument!r}: it has {', '.join(variables)}.", ctx)

    is_template = "://" in reference or "{" in reference

    async def work(client: Client) -> Completion:
        names = (client.list_resource_templates, "uri_template") if is_template else (client.list_prompts, "name")
        async with suggest_names(reference, names):
            return await client.complete(reference, argument, rest[0] if rest else "", context or None)

    completion = with_client(ctx, target, take_connection_options(options), work)
    if as_json:
        from wharfinger.cli.render.output import print_json

        print_json(completion)
        return
    from wharfinger.cli.render.output import print_rows

    print_rows([(value,) for value in completion.values])
    more = more_values(completion)
    if more and not verbosity_of(ctx).quiet:
        click.echo(more, err=True)


def more_values(completion: Completion) -> str:
    """Return a line that says that the server has more values, or an empty string if it has none."""
    if isinstance(completion.total, int) and completion.total > len(completion.values):
        return f"Showing {len(completion.values)} of {completion.total:,}: type more of the value."
    return "There are more: type more of the value." if completion.has_more is True else ""
