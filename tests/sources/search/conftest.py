"""A server with a search index, and searches as the search tool makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import make_request
from tests.waiting import wait_until_async
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
        """Search with the request of a caller."""
        request = make_request(self.server, "resources/list")
        search_request = SearchRequest(query=query, limit=limit, **filters)
        return await search(
            self.server.services,
            self.server.resources,
            request,
            search_request,
            lambda done, message: self.progress_reports.append((done, message)),
        )

    async def uris(self, query: str, limit: int = 20, **filters: str) -> list[str]:
        """Return the URIs of the hits, best first."""
        return [hit.uri for hit in await self.find(query, limit, **filters)]

    async def wait_until_indexed(self) -> None:
        """Wait until all documents are indexed."""
        await wait_until_async(lambda: not self.index.pending, "all documents are indexed")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def start_server(cache: Path) -> Callable[..., Any]:
    """Return a context manager that runs a server: `async with start_server(source, …) as indexed_server`."""

    @asynccontextmanager
    async def start(*sources: Source, folder: Path | None = None, **options: Any) -> AsyncIterator[IndexedServer]:
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

    return start
