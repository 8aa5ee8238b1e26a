"""`wharfinger ls`: lists what a server offers, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import UNSET

from wharfinger.cli.error_report import CommandError
from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import only_target
from wharfinger.content.mime import essence_of

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["ls", "other_lists"]

KINDS = ("resources", "templates", "tools", "prompts")
BATCH_ROWS = 500
"""Number of rows that are aligned together, so that a list of any length is printed as it arrives."""


def kind_option(kind: str, text: str) -> Callable[[Any], Any]:
    """Return the option that adds `kind` to the kinds to list."""
    # click cannot read such a flag, which adds its name to a list, from the environment.
    return click.option(f"--{kind}", "kinds", flag_value=kind, multiple=True, allow_from_autoenv=False, help=text)


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
@kind_option("resources", "List resources (the default).")
@kind_option("templates", "List resource templates.")
@kind_option("tools", "List tools.")
@kind_option("prompts", "List prompts.")
@click.option("--tree", is_flag=True, help="Show everything, or the kinds that you name, as a tree.")
@click.option(
    "--sort",
    type=click.Choice(["modified", "priority", "size"]),
    help="Show the newest, most important or largest first.",
)
@click.option("--audience", type=click.Choice(["user", "assistant"]), help="Show only what is for this audience.")
@click.option("--mime", metavar="TYPE", help="Show only this MIME type, for example application/json or 'text/*'.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most N of each.")
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

    A line shows size, MIME type, URI and title of a resource, URI and title of a template, or name and description of
    a tool or prompt. With --sort modified or priority, each line begins with the time or the priority. With --json each
    item is one object, as in the protocol.
    """
    target = only_target(ctx, words)
    if tree and as_json:
        raise click.UsageError("--tree and --json exclude each other.", ctx)
    list_filter = ListFilter(sort, audience, mime, limit)
    narrowed = any((sort, audience, mime))
    default_kinds: tuple[str, ...] = KINDS[:1]
    if tree:
        default_kinds = KINDS[:2] if narrowed else KINDS
    shown_kinds = kinds or default_kinds
    if narrowed and not set(shown_kinds) <= {"resources", "templates"}:
        raise click.UsageError("--sort, --audience and --mime are for resources and templates.", ctx)
    from wharfinger.cli.targets.open_client import take_connection_options, with_client
    from wharfinger.errors import MethodNotFound

    async def work(client: Client) -> None:
        if tree:
            from wharfinger.cli.render.resource_tree import print_tree

            await print_tree(
                client, str(target), {kind: items_of(client, kind, list_filter) for kind in shown_kinds}, limit
            )
            return
        for kind in shown_kinds:
            try:
                await print_list(client, kind, list_filter, as_json)
            except MethodNotFound:
                if kind == "templates" and client.capabilities.resources:  # resources need not have templates
                    continue
                raise CommandError(f"The server has no {kind}{other_lists(client)}.") from None

    with_client(ctx, target, take_connection_options(options), work)


def other_lists(client: Client) -> str:
    """Return the end of an error about a missing list: the lists that the server has instead."""
    kinds = [kind for kind in ("resources", "tools", "prompts") if getattr(client.capabilities, kind)]
    if not kinds:
        return "; it has nothing that can be listed"
    return f"; it has {' and '.join(kinds)}: {', '.join(f'`ls --{kind}`' for kind in kinds)}"


class ListFilter(NamedTuple):
    """The options that select the items to show, and their order."""

    sort: str | None
    audience: str | None
    mime: str | None
    limit: int | None

    def accepts(self, item: Any) -> bool:
        """Return whether an item is shown; an item without an audience is for everyone."""
        if self.mime:
            mime_type = item.mime_type if isinstance(item.mime_type, str) else ""
            if not fnmatchcase(essence_of(mime_type), self.mime.lower()):
                return False
        audience = annotation(item, "audience") if self.audience else UNSET
        return not audience or self.audience in audience


def annotation(item: Any, name: str) -> Any:
    """Return one annotation of an item, UNSET if it has none."""
    return UNSET if item.annotations is UNSET else getattr(item.annotations, name)


async def items_of(client: Client, kind: str, list_filter: ListFilter) -> AsyncIterator[Any]:
    """Yield the items of one list that are shown. Only sorting keeps items in memory, and at most `limit` of them."""
    methods: dict[str, Callable[[], AsyncIterable[Any]]] = {
        "resources": client.list_resources,
        "templates": client.list_resource_templates,
        "tools": client.list_tools,
        "prompts": client.list_prompts,
    }
    listing = methods[kind]()
    if list_filter.sort:
        for item in await sorted_items(listing, list_filter):
            yield item
        return
    number = 0
    async for item in listing:
        if not list_filter.accepts(item):
            continue
        yield item
        number += 1
        if number == list_filter.limit:
            return


async def sorted_items(items: AsyncIterable[Any], list_filter: ListFilter) -> list[Any]:
    """Return the items to show: largest key first, items without a key last, equal keys in the order of the server."""
    key = SORT_KEYS[str(list_filter.sort)]
    if list_filter.limit is None:
        return sorted([item async for item in items if list_filter.accepts(item)], key=key, reverse=True)
    largest: list[tuple[Any, int, Any]] = []  # a heap of the largest
    number = 0
    async for item in items:
        if list_filter.accepts(item):
            number -= 1  # of two items with equal keys, the earlier one counts as larger
            (heappush if len(largest) < list_filter.limit else heappushpop)(largest, (key(item), number, item))
    return [item for _, _, item in sorted(largest, reverse=True)]


def size_key(item: Any) -> float:
    """Return the size in bytes, -1 if it is unknown."""
    size = getattr(item, "size", UNSET)
    return size if isinstance(size, int) else -1


def priority_key(item: Any) -> float:
    """Return the priority, or -1 for an item without one."""
    priority = annotation(item, "priority")
    return -1.0 if priority is UNSET else float(priority)


def modified_key(item: Any) -> float:
    """Return the time of the last change in seconds since the epoch, minus infinity if it is missing or invalid."""
    try:
        when = datetime.fromisoformat(modified_cell(item))
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return float("-inf")


SORT_KEYS: dict[str, Callable[[Any], float]] = {"size": size_key, "priority": priority_key, "modified": modified_key}


def modified_cell(item: Any) -> str:
    """Return the time of the last change as the server wrote it, or `-` if it is missing."""
    when = annotation(item, "last_modified")
    return when if isinstance(when, str) and when else "-"


def priority_cell(item: Any) -> str:
    """Return the priority with two decimals, or `-` if it is missing."""
    return f"{priority_key(item):.2f}" if priority_key(item) >= 0 else "-"


FIRST_CELL: dict[str | None, Callable[[Any], str]] = {"modified": modified_cell, "priority": priority_cell}
"""The first cell of a row, for each sort order that adds one."""


async def print_list(client: Client, kind: str, list_filter: ListFilter, as_json: bool) -> None:
    """Print one list as it arrives."""
    from wharfinger.cli.render.item_rows import ROWS
    from wharfinger.cli.render.output import print_json, print_rows

    first_cell = FIRST_CELL.get(list_filter.sort)
    rows: list[tuple[str, ...]] = []
    async for item in items_of(client, kind, list_filter):
        if as_json:
            print_json(item)
            continue
        row = ROWS[kind](item)
        rows.append((first_cell(item), *row) if first_cell else row)
        if len(rows) >= BATCH_ROWS:
            print_rows(rows)
            rows.clear()
    print_rows(rows)
