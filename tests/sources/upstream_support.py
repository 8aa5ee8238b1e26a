"""Helpers of the tests with upstream servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from wharfinger import Client, Server
from wharfinger.sources.upstream_server import UpstreamSource, upstream


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 50))


@asynccontextmanager
async def connect(
    target: str | list[str], *before: Any, after: tuple[Any, ...] = (), **options: Any
) -> AsyncIterator[tuple[Client, UpstreamSource]]:
    """Yield the upstream's source, and a client of a server that includes it between the other sources."""
    if isinstance(target, str):
        options["allow_private_networks"] = True
    server = Server("here", page_size=7)
    source = upstream(target, **options)
    for each in (*before, source, *after):
        server.include(each)
    async with Client(server, cache=False) as client:
        yield client, source


async def listed_uris(client: Client) -> list[str]:
    return [resource.uri for resource in await client.list_resources()]
