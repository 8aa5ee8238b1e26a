"""Completion in a shell: TARGET from names and paths, the words after it from the lists of a running server."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from wharfinger.cli.options import COMMAND, CONFIG
from wharfinger.content.text import escape_controls

__all__ = ["complete_words"]

ANSWER_SECONDS = 1.5
"""The maximum wait for a server. After that time, a person who pressed Tab believes that nothing happens."""
SHOWN_ITEMS = 200

has_shell_character = re.compile(r"[\x00-\x1f\x7f-\x9f`$;&|<>]").search
"""Finds a character with which a word could run a command. Bash inserts a word as it is, and strangers choose names."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_words(kind: str = "") -> Completer:
    """Return a completer for TARGET and, with `kind`, for the word after it (for URIs, all words after it)."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        earlier_words: list[str] = list(ctx.params.get("words") or ())
        items: list[CompletionItem] = []
        if ctx.meta.get(COMMAND) is not None:
            return []
        if not earlier_words:
            items = complete_target(ctx, incomplete)
        elif kind and (len(earlier_words) == 1 or kind == "uris"):
            # An error message would appear in the middle of the line that is typed.
            with suppress(Exception):
                items = ask_server(ctx, earlier_words[0], kind, incomplete)
        return [item for item in items if not has_shell_character(item.value)]

    return complete


def complete_target(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Suggest configured servers, Python files and folders."""
    from wharfinger.upstreams.config_files import all_servers

    try:
        servers = all_servers(ctx.meta.get(CONFIG))[0]
    except OSError:
        servers = []
    named = {server.name: str(server.file) for server in servers if server.name.startswith(incomplete)}
    items = [CompletionItem(name, help=file) for name, file in named.items()]
    folder, typed = Path(incomplete).parent, incomplete.rpartition("/")[2]
    if incomplete.endswith("/"):
        folder = Path(incomplete)
    try:
        entries = sorted(folder.iterdir()) if "://" not in incomplete else []
    except OSError:
        entries = []
    for path in entries:
        hidden = path.name.startswith(".") and not typed.startswith(".")
        if path.name.startswith(typed) and not hidden and (path.is_dir() or path.suffix == ".py"):
            items.append(CompletionItem(incomplete[: len(incomplete) - len(typed)] + path.name))
    return items[:SHOWN_ITEMS]


def ask_server(ctx: click.Context, word: str, kind: str, incomplete: str) -> list[CompletionItem]:
    """Suggest names or URIs that a running server lists. Completion starts no server."""
    from wharfinger.cli.targets.target import parse_target

    target = parse_target(ctx, word)
    if not target.url:
        return []
    import asyncio

    from wharfinger.cli.targets.open_client import ConnectionOptions, make_client

    options = {name: ctx.params[name] for name in ConnectionOptions._fields if ctx.params.get(name) is not None}
    client = make_client(ctx, target, ConnectionOptions(**options)._replace(timeout=ANSWER_SECONDS))

    async def ask() -> list[CompletionItem]:
        items: list[CompletionItem] = []
        async with asyncio.timeout(ANSWER_SECONDS), client:
            for method, attribute in KINDS[kind]:
                async for item in getattr(client, method)():
                    text = getattr(item, attribute)
                    if text.startswith(incomplete):
                        items.append(CompletionItem(text, help=first_line(item)))
                    if len(items) == SHOWN_ITEMS:
                        return items
        return items

    return asyncio.run(ask())


def first_line(item: Any) -> str:
    """Return the first line of an item's description or title."""
    text = next((text for text in (item.description, item.title) if isinstance(text, str)), "")
    return escape_controls(text.strip().partition("\n")[0])


KINDS: dict[str, tuple[tuple[str, str], ...]] = {
    "tools": (("list_tools", "name"),),
    "prompts": (("list_prompts", "name"),),
    "uris": (("list_resources", "uri"),),
    "references": (("list_prompts", "name"), ("list_resource_templates", "uri_template")),
}
"""For each kind of word: the methods of the client that list the suggestions, and the attribute to suggest."""
