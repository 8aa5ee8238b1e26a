"""The index of a catalogue (`index=True`), for servers that have no search of their own. It needs SQLite."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from wharfinger.content.search_query import query_of
from wharfinger.host.catalogue_search import CatalogueHit, hits_of_server
from wharfinger.server.document_search import SourceReader
from wharfinger.source import Hits, Source
from wharfinger.sources.search.index_search import find
from wharfinger.sources.search.index_store import Filters, IndexStore
from wharfinger.sources.search.indexing import Indexing

__all__ = ["ListIndex"]

MAX_INDEX_BYTES = 512 << 20
STOP_SECONDS = 5.0
"""Longest time that `close` waits for the thread."""


class ListIndex:
    """An index of the texts of servers that have no search of their own, in a temporary folder."""

    def __init__(self, sources: Callable[[], Mapping[str, Source]], loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread that reads and indexes."""
        self._sources = sources
        self._folder = tempfile.TemporaryDirectory(prefix="wharfinger-", ignore_cleanup_errors=True)
        self._store: IndexStore | None = None
        self._reader = SourceReader(loop)
        self._indexing = Indexing(self._open, sources, SourceReader(loop), MAX_INDEX_BYTES)
        self._indexing.start()

    def _open(self, damaged: bool) -> IndexStore:
        path = Path(self._folder.name) / "search.sqlite"
        if damaged:
            path.unlink(missing_ok=True)
        self._store = IndexStore(path)
        return self._store

    def notify(self, uri: str | None = None) -> None:
        """Index a changed URI soon or, if `uri` is None, everything that has changed."""
        self._indexing.notify(uri)

    @property
    def pending(self) -> frozenset[str]:
        """The servers whose resources are not completely read yet."""
        return frozenset(self._indexing.progress.pending)

    async def search(self, server: str, words: str, limit: int) -> tuple[list[CatalogueHit], str] | None:
        """Search one server. Returns the hits, and a note or an empty string; None if it is not indexed yet."""
        sources = self._sources()
        store = self._store
        if store is None or server in self.pending or server not in sources:
            return None
        hits: Hits = await asyncio.to_thread(
            find, store, sources, self._reader, query_of(words), Filters((server,)), limit
        )
        return hits_of_server(server, hits), " ".join(filter(None, (hits.remark, hits.truncated)))

    async def close(self) -> None:
        """Stop the thread, and delete the index; if the thread does not stop in time, the index is deleted at exit."""
        self._reader.stop()
        if await asyncio.to_thread(self._indexing.stop, STOP_SECONDS):
            with suppress(OSError):
                self._folder.cleanup()
