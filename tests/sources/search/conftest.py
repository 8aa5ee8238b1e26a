"""A server with an index over a real folder, and searches of it as a tool of the server makes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import opened
from wharfinger import Server
from wharfinger.server.search import SearchRequest, search
from wharfinger.source import Hits, Source
from wharfinger.sources.search import SearchIndex, search_index


class IndexedServer:
    """A running server and its index."""

    def __init__(self, server: Server, index: SearchIndex) -> None:
        self.server = server
        self.index = index
        self.progress_reports: list[tuple[float, str]] = []

    async def find(self, query: str, limit: int = 20, **filters: str) -> Hits:
        """Search as a caller does."""
        request = opened(self.server, "resources/list")
        wanted = SearchRequest(query=query, limit=limit, **filters)
        return await search(
            self.server.services,
            self.server.resources,
            request,
            wanted,
            lambda done, message: self.progress_reports.append((done, message)),
        )

    async def uris(self, query: str, limit: int = 20, **filters: str) -> list[str]:
        """Return the URIs of the hits, best first."""
        return [hit.uri for hit in await self.find(query, limit, **filters)]

    async def complete(self) -> None:
        """Wait until everything is indexed."""
        await self.until(lambda: not self.index.pending)

    async def until(self, done: Callable[[], Any], seconds: float = 20) -> None:
        """Wait for a condition, which may be a coroutine function."""
        ends = time.monotonic() + seconds
        while True:
            value = done()
            if hasattr(value, "__await__"):
                value = await value
            if value:
                return
            assert time.monotonic() < ends, "the condition did not hold in time"
            await asyncio.sleep(0.02)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def serving(cache: Path) -> Callable[..., Any]:
    """`async with serving(source, …) as searched`: these sources with an index in `cache`."""

    @asynccontextmanager
    async def serve(*sources: Source, folder: Path | None = None, **options: Any) -> AsyncIterator[IndexedServer]:
        server = Server("searched")
        for source in sources:
            server.include(source)
        index = search_index(folder or cache, **options)
        server.include(index)
        await server.start()
        try:
            yield IndexedServer(server, index)
        finally:
            await server.close()

    return serve
