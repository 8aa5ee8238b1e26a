"""`wharfinger ls`: what a server offers, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from fnmatch import fnmatchcase
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import UNSET

from wharfinger.cli.completing import complete_words
from wharfinger.cli.failures import Failed
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
  wharfinger ls --tree harbour
  wharfinger ls --sort modified --limit 10 --mime 'text/*' ./charts
  wharfinger ls --tools --json https://example.test/mcp --token-env EXAMPLE_TOKEN
  wharfinger ls -- python server.py""",
)
@click.argument("words", nargs=-1, metavar="TARGET", shell_complete=complete_words())
@click.option("--resources", "kinds", flag_value="resources", multiple=True, help="List resources (the default).")
@click.option("--templates", "kinds", flag_value="templates", multiple=True, help="List resource templates.")
@click.option("--tools", "kinds", flag_value="tools", multiple=True, help="List tools.")
@click.option("--prompts", "kinds", flag_value="prompts", multiple=True, help="List prompts.")
@click.option("--tree", is_flag=True, help="Show everything (or the kinds that are named) as a tree.")
@click.option(
    "--sort",
    type=click.Choice(["modified", "priority", "size"]),
    help="Newest, most important or largest first, instead of the server's order.",
)
@click.option("--audience", type=click.Choice(["user", "assistant"]), help="Only what is for this one, or for anyone.")
@click.option("--mime", metavar="TYPE", help="Only this MIME type, for example application/json or 'text/*'.")
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
    tree: bool,
    sort: str | None,
    audience: str | None,
    mime: str | None,
    limit: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """List what a server offers.

    A line is size, MIME type, URI and title for a resource, and name and description for the others. With --sort
    modified or priority a resource's line begins with that. With --json each line is one object as the server sent it.
    """
    target, rest = split_words(ctx, words, ())
    if rest:
        raise click.UsageError(f"One TARGET only: {rest[0]!r} is too much.", ctx)
    if tree and as_json:
        raise click.UsageError("--tree is for people: leave out --json, or --tree.", ctx)
    choice = Choice(sort, audience, mime, limit)
    wanted = kinds or (ALL if tree and not choice.narrows else ALL[:2] if tree else ALL[:1])
    if choice.narrows and not set(wanted) <= {"resources", "templates"}:
        raise click.UsageError("--sort, --audience and --mime are for resources and templates.", ctx)
    from wharfinger.cli.connecting import connecting, with_client
    from wharfinger.errors import MethodNotFound

    async def work(client: Client) -> None:
        if tree:
            from wharfinger.cli.tree import show_tree

            await show_tree(client, str(target), {kind: chosen(client, kind, choice) for kind in wanted}, choice.limit)
            return
        for kind in wanted:
            try:
                await show(client, kind, choice, as_json)
            except MethodNotFound:
                if kind == "templates" and client.capabilities.resources:  # resources need no templates
                    continue
                raise Failed(f"The server has no {kind}{others(client)}.") from None

    with_client(ctx, target, connecting(options), work)


def others(client: Client) -> str:
    """Say what a server declares where it lacks what was asked for."""
    has = client.capabilities
    kinds = [kind for kind in ("resources", "tools", "prompts") if getattr(has, kind)]
    if not kinds:
        return ", no tools and no prompts"
    return f"; it has {' and '.join(kinds)}: {', '.join(f'`ls --{kind}`' for kind in kinds)}"


ALL = ("resources", "templates", "tools", "prompts")
BATCH = 500
"""Rows that are lined up together: a list of any length is printed as it comes."""


class Choice(NamedTuple):
    """Which items are shown, and in which order."""

    sort: str | None
    audience: str | None
    mime: str | None
    limit: int | None

    @property
    def narrows(self) -> bool:
        """Tell whether anything but the number is asked for."""
        return any((self.sort, self.audience, self.mime))

    def takes(self, item: Any) -> bool:
        """Tell whether an item is wanted; what names no audience is for anyone."""
        if self.mime and not fnmatchcase(kind_of(item), self.mime.lower()):
            return False
        audience = item.annotations.audience if self.audience and item.annotations is not UNSET else UNSET
        return not audience or self.audience in audience


def kind_of(item: Any) -> str:
    """Take the MIME type, without its parameters."""
    return said(item.mime_type).partition(";")[0].strip().lower()


async def chosen(client: Client, kind: str, choice: Choice) -> AsyncIterator[Any]:
    """Go through the items of one list that are wanted; only a sorted list is held, and of it no more than is shown."""
    items = getattr(client, LISTS[kind][0])()
    if choice.sort:
        for item in await sorted_items(items, choice):
            yield item
        return
    number = 0
    async for item in items:
        if choice.narrows and not choice.takes(item):
            continue
        yield item
        number += 1
        if number == choice.limit:
            return


async def sorted_items(items: Any, choice: Choice) -> list[Any]:
    """Sort a list: largest key first, what has none last, and otherwise as the server has it."""
    key = KEYS[str(choice.sort)]
    if choice.limit is None:
        return sorted([item async for item in items if choice.takes(item)], key=key, reverse=True)
    kept: list[tuple[Any, int, Any]] = []
    number = 0
    async for item in items:
        if choice.takes(item):
            number -= 1
            (heappush if len(kept) < choice.limit else heappushpop)(kept, (key(item), number, item))
    return [item for _, _, item in sorted(kept, reverse=True)]


def size_of(item: Any) -> float:
    """Take the size to sort by."""
    amount = getattr(item, "size", UNSET)
    return amount if isinstance(amount, int) else -1


def priority_of(item: Any) -> float:
    """Take the priority to sort by."""
    priority = item.annotations.priority if item.annotations is not UNSET else UNSET
    return -1.0 if priority is UNSET else float(priority)


def modified_of(item: Any) -> float:
    """Take the time of the last change to sort by, in seconds; what is no time counts as none."""
    from datetime import UTC, datetime

    text = said(item.annotations.last_modified) if item.annotations is not UNSET else ""
    try:
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return float("-inf")


KEYS: dict[str, Callable[[Any], float]] = {"size": size_of, "priority": priority_of, "modified": modified_of}


async def show(client: Client, kind: str, choice: Choice, as_json: bool) -> None:
    """Print one list as it comes."""
    from wharfinger.cli.output import print_json, print_rows

    row = LISTS[kind][1]
    rows: list[tuple[str, ...]] = []
    async for item in chosen(client, kind, choice):
        if as_json:
            print_json(item)
            continue
        rows.append((*FIRST[choice.sort](item), *row(item)))
        if len(rows) >= BATCH:
            print_rows(rows)
            rows.clear()
    print_rows(rows)


def modified_cell(item: Any) -> tuple[str]:
    """Show when it was changed."""
    text = said(item.annotations.last_modified) if item.annotations is not UNSET else ""
    return (text or "-",)


def priority_cell(item: Any) -> tuple[str]:
    """Show how important it is."""
    return (f"{priority_of(item):.2f}" if priority_of(item) >= 0 else "-",)


FIRST: dict[str | None, Callable[[Any], tuple[str, ...]]] = {
    None: lambda item: (),
    "size": lambda item: (),
    "modified": modified_cell,
    "priority": priority_cell,
}
"""What a row begins with, by what it is sorted by."""


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
