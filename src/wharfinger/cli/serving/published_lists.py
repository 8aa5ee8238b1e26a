"""Reads what servers list, so that the rules of a policy can be compared with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from wharfinger.cli.error_report import CommandError
from wharfinger.errors import WharfingerError

if TYPE_CHECKING:
    from wharfinger.client import Client
    from wharfinger.policy.findings import Published
    from wharfinger.server import Server

__all__ = ["ServerLists", "read_server_lists", "read_target_lists"]

MAX_LISTED = 20_000
"""Maximum number of resources, tools or prompts of a server that are read."""
MAX_PROBED = 200
"""Maximum number of unlisted URIs that are read, to find out whether a pattern that matches no listed URI is wrong."""
TIMEOUT_SECONDS = 60.0

ChooseProbes = Callable[[Sequence[str]], Sequence[str]]
"""A function that takes the listed URIs, and returns other URIs to read, to find out whether they exist."""


class ServerLists(NamedTuple):
    """What a server lists. `read_only_tools` names the tools that are declared read-only."""

    published: Published
    read_only_tools: tuple[str, ...]


def read_target_lists(
    ctx: click.Context, targets: Sequence[str], choose_probes: ChooseProbes = lambda uris: ()
) -> ServerLists:
    """Read the lists of what `wharfinger serve` would publish for `targets`, or of the server that one target names.

    Raises:
        WharfingerError: something cannot be published or reached, or a list fails.
        CommandError: what would be published is not listed within a minute.
        click.UsageError: there are several targets and one of them is a server, or the only target is not valid.
    """
    from wharfinger.source import UnusableSource
    from wharfinger.sources.registry import parse_word

    try:
        schemes = [parse_word(word).scheme for word in targets]
    except UnusableSource:
        if len(targets) > 1:
            raise
        schemes = ["http"]  # not a word of `serve`: connect to it as to a URL
    if not any(word.endswith(".py") for word in targets) and not any(scheme in ("http", "https") for scheme in schemes):
        from pathlib import Path

        if len(targets) > 1 or schemes[0] or Path(targets[0]).exists() or "=" in targets[0]:
            from wharfinger.cli.serving.publish import make_server

            server, _ = make_server(targets, {}, name=None, tools=True, search=False, query=False)
            return read_server_lists(server, choose_probes)
    if len(targets) > 1:
        raise click.UsageError("Give one server, or folders and other data that `wharfinger serve` publishes.", ctx)
    from wharfinger.cli.targets.open_client import ConnectionOptions, with_client
    from wharfinger.cli.targets.target import parse_target

    target = parse_target(ctx, targets[0])
    return with_client(ctx, target, ConnectionOptions(), lambda client: _read_lists(client, choose_probes))


def read_server_lists(server: Server, choose_probes: ChooseProbes = lambda uris: ()) -> ServerLists:
    """Read the lists of a server that has no policy.

    Raises:
        CommandError: the server takes more than a minute.
        WharfingerError: a list fails.
    """
    from wharfinger.client import Client
    from wharfinger.server.published_roots import patterns_in

    async def session() -> ServerLists:
        async with asyncio.timeout(TIMEOUT_SECONDS), Client(server, cache=False) as client:
            return await _read_lists(client, choose_probes)

    try:
        lists = asyncio.run(session())
    except TimeoutError:
        raise CommandError(f"{server.info.name} did not list what it publishes within {TIMEOUT_SECONDS:g} s.") from None
    sources = list(server.resources.every_source())

    def roots(directory: str) -> list[str]:
        return patterns_in(directory, sources)

    return lists._replace(published=lists.published._replace(roots=roots))


async def _read_lists(client: Client, choose_probes: ChooseProbes) -> ServerLists:
    from wharfinger.policy.findings import Published

    has = client.capabilities
    resources, resources_complete = await _first_items(client.list_resources() if has.resources else None)
    tools, tools_complete = await _first_items(client.list_tools() if has.tools else None)
    prompts, prompts_complete = await _first_items(client.list_prompts() if has.prompts else None)
    uris = [resource.uri for resource in resources]
    missing = [uri for uri in list(choose_probes(uris))[:MAX_PROBED] if not await _exists(client, uri)]
    published = Published(
        uris,
        [tool.name for tool in tools],
        [prompt.name for prompt in prompts],
        resources_complete and tools_complete and prompts_complete,
        frozenset(missing),
    )
    read_only_tools = (tool.name for tool in tools if getattr(tool.annotations, "read_only_hint", None) is True)
    return ServerLists(published, tuple(read_only_tools))


async def _first_items(items: AsyncIterable[Any] | None) -> tuple[list[Any], bool]:
    """Return at most MAX_LISTED items, and whether these are all items of the list."""
    listed: list[Any] = []
    if items is not None:
        async for item in items:
            if len(listed) >= MAX_LISTED:
                return listed, False
            listed.append(item)
    return listed, True


async def _exists(client: Client, uri: str) -> bool:
    from wharfinger.errors import RemoteInvalidParams, RemoteResourceNotFound

    try:
        await client.read_resource(uri)
    except (RemoteResourceNotFound, RemoteInvalidParams):
        return False
    except WharfingerError:  # it may exist, but cannot be read now
        pass
    return True
