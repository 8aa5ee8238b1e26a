"""What a shell completes in place of TARGET and what follows it; it starts no command, and waits for nobody long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from wharfinger.cli.options import COMMAND, CONFIG

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["complete_words"]

PATIENCE = 1.5
"""Seconds that a server is waited for: longer, and who pressed Tab believes that nothing happens."""
MOST = 200

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_words(kind: str = "") -> Completer:
    """Complete TARGET by names and paths, and the word after it by what the server has of `kind`."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before: list[str] = list(ctx.params.get("words") or ())
        if ctx.meta.get(COMMAND) is not None:
            return []
        if not before:
            return targets(ctx, incomplete)
        if not kind or (len(before) > 1 and kind != "uris"):
            return []
        try:
            return offered(ctx, before[0], kind, incomplete)
        except Exception:  # a shell shows what is printed here in the middle of the line that is typed
            return []

    return complete


def targets(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Name configured servers, Python files and folders."""
    from wharfinger.cli.configured import known

    try:
        servers = known(ctx.meta.get(CONFIG))[0]
    except OSError:
        servers = []
    named = {server.name: str(server.file) for server in servers if server.name.startswith(incomplete)}
    found = [CompletionItem(name, help=file) for name, file in named.items()]
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
            found.append(CompletionItem(incomplete[: len(incomplete) - len(typed)] + path.name))
    return found[:MOST]


def offered(ctx: click.Context, word: str, kind: str, incomplete: str) -> list[CompletionItem]:
    """Ask a server that runs already what it has; one that had to be started is not asked."""
    from wharfinger.cli.targets import parse_target

    target = parse_target(ctx, word)
    if not target.url:
        return []
    import asyncio

    from wharfinger.cli.connecting import Connecting, make

    options = {name: ctx.params[name] for name in Connecting._fields if ctx.params.get(name) is not None}
    client = make(ctx, target, Connecting(**options)._replace(timeout=PATIENCE))

    async def ask() -> list[CompletionItem]:
        found: list[CompletionItem] = []
        async with asyncio.timeout(PATIENCE), client:
            for listing, value in KINDS[kind]:
                async for item in listing(client):
                    text, title = value(item)
                    if text.startswith(incomplete):
                        found.append(CompletionItem(text, help=title))
                    if len(found) == MOST:
                        return found
        return found

    return asyncio.run(ask())


def described(item: Any) -> str:
    """Take the first line of what an item says of itself."""
    text = next((said for said in (item.description, item.title) if isinstance(said, str)), "")
    return text.strip().partition("\n")[0]


def tools(client: Client) -> Any:
    """List the tools."""
    return client.list_tools()


def prompts(client: Client) -> Any:
    """List the prompts."""
    return client.list_prompts()


def resources(client: Client) -> Any:
    """List the resources."""
    return client.list_resources()


def templates(client: Client) -> Any:
    """List the templates."""
    return client.list_resource_templates()


KINDS: dict[str, tuple[tuple[Callable[[Client], Any], Callable[[Any], tuple[str, str]]], ...]] = {
    "tools": ((tools, lambda item: (item.name, described(item))),),
    "prompts": ((prompts, lambda item: (item.name, described(item))),),
    "uris": ((resources, lambda item: (item.uri, described(item))),),
    "references": (
        (prompts, lambda item: (item.name, described(item))),
        (templates, lambda item: (item.uri_template, described(item))),
    ),
}
