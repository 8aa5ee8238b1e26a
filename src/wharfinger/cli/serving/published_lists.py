"""Reads the lists of the servers that a policy is for, without a policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.error_report import CommandError
from wharfinger.errors import WharfingerError

if TYPE_CHECKING:
    from wharfinger.client import Client
    from wharfinger.policy.findings import Published
    from wharfinger.server import Server

__all__ = ["Asked", "ask_server", "ask_targets"]

MAX_LISTED = 20_000
"""Maximum number of resources, tools or prompts of a server that are read."""
MAX_PROBED = 200
"""Maximum number of URIs that are read because a pattern matches nothing that is listed."""
TIMEOUT_SECONDS = 60.0

Beginnings = Callable[[Sequence[str]], Sequence[str]]
"""A function that takes the URIs that are listed, and returns those to read."""


class Asked:
    """The lists that the servers publish, and the names of their tools that only read."""

    def __init__(self, published: Published, harmless: tuple[str, ...]) -> None:
        self.published = published
        self.harmless = harmless


def ask_targets(ctx: click.Context, targets: Sequence[str], beginnings: Beginnings = lambda uris: ()) -> Asked:
    """Read the lists of what `wharfinger serve` would publish for these words, or of one other server.

    Raises:
        WharfingerError: something cannot be published or reached.
    """
    from wharfinger.source import UnusableSource
    from wharfinger.sources.registry import parse_word

    try:
        schemes = [parse_word(word).scheme for word in targets]
    except UnusableSource:
        schemes = ["http"]
    if not targets[0].endswith(".py") and not any(scheme in ("http", "https") for scheme in schemes):
        from pathlib import Path

        if len(targets) > 1 or schemes[0] or Path(targets[0]).exists() or "=" in targets[0]:
            from wharfinger.cli.serving.publish import make_server

            server, _ = make_server(targets, {}, name=None, tools=True, search=False, query=False)
            return ask_server(server, beginnings)
    if len(targets) > 1:
        raise click.UsageError("Give one server, or folders and other data that `wharfinger serve` publishes.", ctx)
    from wharfinger.cli.targets.open_client import ConnectionOptions, with_client
    from wharfinger.cli.targets.target import parse_target

    return with_client(ctx, parse_target(ctx, targets[0]), ConnectionOptions(), lambda client: _ask(client, beginnings))


def ask_server(server: Server, beginnings: Beginnings = lambda uris: ()) -> Asked:
    """Read the lists of a server that has no policy.

    Raises:
        CommandError: that takes more than a minute.
    """
    from wharfinger.client import Client
    from wharfinger.server.published_roots import patterns_in

    async def session() -> Asked:
        async with asyncio.timeout(TIMEOUT_SECONDS), Client(server, cache=False) as client:
            return await _ask(client, beginnings)

    try:
        lists = asyncio.run(session())
    except TimeoutError:
        raise CommandError(f"{server.info.name} did not list what it publishes within {TIMEOUT_SECONDS:g} s.") from None
    sources = list(server.resources.every_source())

    def roots(directory: str) -> list[str]:
        return patterns_in(directory, sources)

    lists.published = lists.published._replace(roots=roots)
    return lists


async def _ask(client: Client, beginnings: Beginnings) -> Asked:
    from wharfinger.policy.findings import Published

    has = client.capabilities
    resources, resources_complete = await _first(client.list_resources() if has.resources else None)
    tools, tools_complete = await _first(client.list_tools() if has.tools else None)
    prompts, prompts_complete = await _first(client.list_prompts() if has.prompts else None)
    uris = [resource.uri for resource in resources]
    missing = [uri for uri in list(beginnings(uris))[:MAX_PROBED] if not await _exists(client, uri)]
    published = Published(
        uris,
        [tool.name for tool in tools],
        [prompt.name for prompt in prompts],
        resources_complete and tools_complete and prompts_complete,
        frozenset(missing),
    )
    harmless = (tool.name for tool in tools if getattr(tool.annotations, "read_only_hint", None) is True)
    return Asked(published, tuple(harmless))


async def _first(items: AsyncIterable[Any] | None) -> tuple[list[Any], bool]:
    """Return at most MAX_LISTED items, and whether the list has no more."""
    listed: list[Any] = []
    if items is not None:
        async for item in items:
            if len(listed) >= MAX_LISTED:
                return listed, False
            listed.append(item)
    return listed, True


async def _exists(client: Client, uri: str) -> bool:
    from wharfinger.errors import RemoteInvalidParams, RemoteResourceNotFound

    reading: Awaitable[Any] = client.read_resource(uri)
    try:
        await reading
    except (RemoteResourceNotFound, RemoteInvalidParams):
        return False
    except WharfingerError:  # it is there, and cannot be read now
        return True
    return True
