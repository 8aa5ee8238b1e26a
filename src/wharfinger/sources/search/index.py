"""The search index of a server, which `search_index()` returns: starts, closes and searches it."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wharfinger.content.search_query import query_of
from wharfinger.errors import InternalError
from wharfinger.policy.current import is_restricted, readable_uris, reads_source
from wharfinger.server.document_search import SourceReader
from wharfinger.source import Hits, Source
from wharfinger.sources.search.index_cache import IndexFile, open_index_file
from wharfinger.sources.search.index_search import find
from wharfinger.sources.search.index_store import Filters, IndexStore, OtherLayout
from wharfinger.sources.search.indexing import Indexing

if TYPE_CHECKING:
    from wharfinger.server.app import Server
    from wharfinger.server.search import SearchRequest

__all__ = ["SearchIndex", "search_index"]

log = logging.getLogger("wharfinger.sources")

MIB = 1 << 20
WAIT_SECONDS = 1.5
"""Longest wait of a search for an index that is not complete."""
QUIET_SECONDS = 0.15
"""Time after which a waiting search reports progress."""
REPORT_SECONDS = 0.05
"""Time between two reports of progress."""
STOP_SECONDS = 5.0
"""Longest wait of `close` for the thread."""


def search_index(folder: str | os.PathLike[str] | None = None, *, max_size: int = 512 * MIB) -> SearchIndex:
    """Index the text of all sources, so that searches are quick: `server.include(search_index())`.

    The index takes an eighth to a half as much space as the text, which it does not keep. It is made in the background,
    and kept for the next start.

    Args:
        folder: The folder of the index; by default `wharfinger` in the user's cache folder.
        max_size: Maximum bytes of the index. Documents that do not fit are found by name only, and a search says so.
            At the start, other indexes in the folder that do not fit beside this one are deleted, the oldest first.
    """
    return SearchIndex(Path(folder) if folder is not None else None, max_size)


class SearchIndex:
    """The index that `search_index()` returns. It belongs to one server, and covers the servers mounted in it."""

    def __init__(self, folder: Path | None, max_size: int) -> None:
        self._folder = folder
        self._max_size = max_size
        self._server: Server | None = None
        self._file: IndexFile | None = None
        self._store: IndexStore | None = None
        self._indexing: Indexing | None = None
        self._reader: SourceReader | None = None
        self._observer = _ChangeObserver(self.refresh)

    def include_into(self, server: Server) -> None:
        """Let the server search with this index; `server.include(search_index())` calls it.

        Raises:
            ValueError: the server already has an index, or this index belongs to another server.
        """
        if server.resources.search_index is not None or self._server is not None:
            raise ValueError("A server has one search index, and an index has one server.")
        self._server = server
        server.resources.search_index = self
        server.watching.observers.append(self._observer)
        if server.running:
            self._begin(server, asyncio.get_running_loop())

    # Start and end

    async def start(self) -> None:
        """Start the thread that indexes."""
        assert self._server is not None
        self._begin(self._server, asyncio.get_running_loop())

    def _begin(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._reader = SourceReader(loop)
        self._indexing = Indexing(self._open, self._sources, self._reader, self._max_size)
        self._indexing.start()

    async def close(self) -> None:
        """Stop the thread, and release the file for other servers."""
        indexing, self._indexing = self._indexing, None
        if indexing is None or self._server is None:
            return
        ended = await self._server.pool.run("", indexing.stop, STOP_SECONDS)
        file, self._file, self._store = self._file, None, None
        if file is not None and ended:  # a thread that hangs in a source uses the file until the process ends
            file.release()

    def _open(self, damaged: bool) -> IndexStore:
        """Open the file, in the thread of the index. Deletes it first if it is `damaged` or not an index."""
        if self._file is None:
            self._file = open_index_file(self._folder, map(_identity, self._sources().values()), self._max_size)
        if damaged:
            self._file.clear()
        try:
            store = IndexStore(self._file.path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            level = logging.INFO if isinstance(error, OtherLayout) else logging.WARNING
            log.log(level, "The search index %s is rebuilt: %s", self._file.path.name, error)
            self._file.clear()
            store = IndexStore(self._file.path)
        self._store = store
        return store

    def _sources(self) -> Mapping[str, Source]:
        return _keys_of(self._server.resources.every_source()) if self._server is not None else {}

    # Use

    @property
    def pending(self) -> bool:
        """Whether a source has not been walked completely since the server started, or failed in its last walk."""
        return self._indexing is None or bool(self._indexing.progress.pending)

    def refresh(self, uri: str | None = None) -> None:
        """Index a changed URI soon or, if `uri` is None, walk all sources. Can be called from any thread."""
        if self._indexing is not None:
            self._indexing.notify(uri)

    async def search(
        self, owner: str, wanted: SearchRequest, progress: Callable[[float, str], object]
    ) -> tuple[Hits, list[Source]]:
        """Search the index. Returns the hits, and the sources that the index does not cover.

        `owner` is the caller whose share of the threads is used (`server.threads`). While the search waits for the
        index, it calls `progress` with the number of documents seen so far, and a message.
        """
        indexing, server = self._indexing, self._server
        everything = self._sources()
        if indexing is None or server is None:
            return Hits(), [source for source in everything.values() if wanted.includes(source)]
        indexing.notify()
        await self._wait(indexing, progress)
        store, reader = self._store, self._reader
        chosen = {
            key: source for key, source in everything.items() if wanted.includes(source) and reads_source(source.uri)
        }
        pending = indexing.progress.pending
        # A source without documents may have a search of its own.
        uncovered = [source for key, source in chosen.items() if key in pending | indexing.progress.empty]
        query = query_of(wanted.query)
        if store is None or reader is None or not query.words or wanted.limit < 1:
            return Hits(), uncovered
        filters = Filters(tuple(chosen) if len(chosen) < len(everything) else (), wanted.type, wanted.pattern)
        if is_restricted():
            shows = await server.pool.run(owner, _shown_documents, chosen)
            filters = filters._replace(sources=tuple(chosen), shows=shows)
        complete = not uncovered
        try:
            hits = await server.pool.run(owner, find, store, chosen, reader, query, filters, wanted.limit, complete)
            hits.truncated = (
                hits.truncated
                or ("" if pending.isdisjoint(chosen) else _pending_remark(indexing))
                or await self._missing_text_remark(owner, indexing, store, filters)
                or " ".join(filter(None, (source.unsearched() for source in chosen.values())))
            )
        except sqlite3.Error as error:
            log.warning("The search index could not be read: %s", error)
            indexing.report_error(error)
            return Hits(), list(chosen.values())
        return hits, uncovered

    async def _wait(self, indexing: Indexing, report: Callable[[float, str], object]) -> None:
        """Wait until all sources are indexed, for at most `WAIT_SECONDS`."""
        began = time.monotonic()
        progress = indexing.progress
        while not progress.ready.is_set() and (waited := time.monotonic() - began) < WAIT_SECONDS:
            if waited > QUIET_SECONDS:
                if is_restricted():  # the number includes documents that the caller may not see
                    report(0, "Indexing")
                else:
                    report(progress.seen, f"Indexing: {progress.seen:,} documents so far")
            await asyncio.sleep(REPORT_SECONDS)

    async def _missing_text_remark(self, owner: str, indexing: Indexing, store: IndexStore, filters: Filters) -> str:
        """Return why some documents are indexed only by name or in part. Returns an empty string if all are whole."""
        assert self._server is not None
        searched = Filters(filters.sources, shows=filters.shows)
        _, incomplete_count = await self._server.pool.run(owner, store.count, searched)
        if not incomplete_count:
            return ""
        is_one = incomplete_count == 1
        why = (
            f"the index is full ({self._max_size / MIB:,g} MiB)"
            if indexing.progress.full
            else f"{'it is' if is_one else 'they are'} very large or cannot be read"
        )
        documents = "1 document is" if is_one else f"{incomplete_count:,} documents are"
        return f"{documents} indexed only by name or in part: {why}."


def _pending_remark(indexing: Indexing) -> str:
    if is_restricted():
        return "Indexing continues: search again for what is missing."
    return f"Indexing continues ({indexing.progress.seen:,} documents so far): search again for what is missing."


def _shown_documents(sources: Mapping[str, Source]) -> Callable[[str, str], bool]:
    """Return a function that tests whether the caller may see a document, from its source's key and its URI."""
    reads = readable_uris()
    tests: dict[str, Callable[[str], bool]] = {}
    for key, source in sources.items():
        try:
            test = source.shown_documents()
        except (InternalError, OSError):  # a source that is down: its documents cannot be read either
            continue
        tests[key] = reads if test is None else _both(reads, test)
    return lambda key, uri: key in tests and tests[key](uri)


def _both(one: Callable[[str], bool], other: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda uri: one(uri) and other(uri)


def _identity(source: Source) -> str:
    """Return a text that identifies a source, and is the same in every run."""
    location = source.location or getattr(source, "root", "")
    # An extra that extracts the text of more formats adds parameters: all files must then be indexed again.
    return "\0".join((type(source).__qualname__, source.uri, source.name, location, *sorted(source.parameters)))


def _keys_of(sources: Iterable[Source]) -> dict[str, Source]:
    """Return the sources by a key that is the same in every run: URI, name or class, with a number if it is taken."""
    keys: dict[str, Source] = {}
    for source in sources:
        key = base = source.uri or source.name or type(source).__name__
        number = 0
        while key in keys:
            number += 1
            key = f"{base}#{number}"
        keys[key] = source
    return keys


class _ChangeObserver:
    """Reports changes of the server's resources to the index."""

    def __init__(self, refresh: Callable[[str | None], None]) -> None:
        self._refresh = refresh

    def updated(self, uri: str) -> None:
        """Index a watched resource that changed."""
        self._refresh(uri)

    def list_changed(self, name: str) -> None:
        """Walk all sources if the list of resources changed."""
        if name == "resources":
            self._refresh(None)
