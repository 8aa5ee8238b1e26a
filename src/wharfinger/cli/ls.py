"""`wharfinger ls`: what a server offers, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets import split_words

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["ls"]


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger ls http://127.0.0.1:8000/mcp
  wharfinger ls --tools --json https://example.test/mcp --token-env EXAMPLE_TOKEN
  wharfinger ls -- python server.py""",
)
@click.argument("words", nargs=-1, metavar="TARGET")
@click.option("--resources", "kinds", flag_value="resources", multiple=True, help="List resources (the default).")
@click.option("--templates", "kinds", flag_value="templates", multiple=True, help="List resource templates.")
@click.option("--tools", "kinds", flag_value="tools", multiple=True, help="List tools.")
@click.option("--prompts", "kinds", flag_value="prompts", multiple=True, help="List prompts.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N of each.")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def ls(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    kinds: tuple[str, ...],
    limit: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """List what a server offers.

    A line is size, MIME type, URI and title for a resource, and name and description for the others. With --json each
    line is one object as the server sent it.
    """
    target, rest = split_words(ctx, words, ())
    if rest:
        raise click.UsageError(f"One TARGET only: {rest[0]!r} is too much.", ctx)
    from wharfinger.cli.connecting import connecting, with_client

    async def work(client: Client) -> None:
        for kind in kinds or ("resources",):
            await show(client, kind, limit, as_json)

    with_client(ctx, target, connecting(options), work)


BATCH = 500
"""Rows that are lined up together: a list of any length is printed as it comes."""


async def show(client: Client, kind: str, limit: int | None, as_json: bool) -> None:
    """Print one list as it comes."""
    from wharfinger.cli.output import print_json, print_rows

    listing, row = LISTS[kind]
    rows: list[tuple[str, ...]] = []
    number = 0
    async for item in getattr(client, listing)():
        if as_json:
            print_json(item)
        else:
            rows.append(row(item))
        if len(rows) >= BATCH:
            print_rows(rows)
            rows.clear()
        number += 1
        if number == limit:
            break
    print_rows(rows)


def resource_row(item: Any) -> tuple[str, ...]:
    """Show a resource."""
    from wharfinger.cli.words import size

    amount = size(item.size) if isinstance(item.size, int) else "-"
    title = item.title or item.name
    return (amount.rjust(8), said(item.mime_type) or "-", item.uri, "" if item.uri.endswith(str(title)) else str(title))


def template_row(item: Any) -> tuple[str, ...]:
    """Show a resource template."""
    return (item.uri_template, said(item.title) or item.name)


def named_row(item: Any) -> tuple[str, ...]:
    """Show a tool or a prompt by its name and the first line of what it does."""
    return (item.name, (said(item.description) or said(item.title)).strip().split("\n")[0])


def said(value: Any) -> str:
    """Turn what may be left out into text."""
    return value if isinstance(value, str) else ""


LISTS = {
    "resources": ("list_resources", resource_row),
    "templates": ("list_resource_templates", template_row),
    "tools": ("list_tools", named_row),
    "prompts": ("list_prompts", named_row),
}
"""For each kind: the client's method, and how a row is made."""
