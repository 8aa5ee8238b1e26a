"""The thread that keeps the index up to date.

It walks the documents of all sources, a page of each in turn, and reads those whose version differs from the indexed
one. Then it pauses for two seconds, or for ten times as long as the walk took if that is longer, and walks again. A
walk that was requested begins after half of the pause. During the pause, the thread indexes single URIs that were
reported as changed (`notify`). After every 20 ms of work it sleeps for 2 ms, so that requests get the interpreter. A
source is `pending` until its first walk is complete; until then, searches read the source itself.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from wharfinger.server.document_search import PAGE_DOCUMENTS, SourceReader, Stopped, has_text
from wharfinger.source import Document, Source, SourceUnavailable
from wharfinger.sources.search.index_store import MAX_TEXT_CHARACTERS, NAME_ONLY, IndexedVersion, IndexStore

__all__ = ["Indexing", "Progress"]

log = logging.getLogger("wharfinger.sources")

WORK_SECONDS, REST_SECONDS = 0.02, 0.002
"""How long the thread works before it sleeps, and how long it sleeps."""
COMMIT_SECONDS = 2.0
"""Time between two commits. A search finds what was committed."""
MIN_PAUSE_SECONDS = 2.0
"""Shortest pause between two walks, or half of it if a walk was requested."""
RETRY_SECONDS = 10.0
"""Time after which an index that failed is opened again."""
PAUSE_FACTOR = 10
"""The pause after a walk is at least this many times as long as the walk, or half of that if a walk was requested."""
REREAD_SECONDS = 60.0
"""Time after which documents without a version are read again."""
MAX_NOTIFIED_URIS = 1_000
"""Maximum number of URIs that wait to be indexed; if there are more, all sources are walked."""


class SourceFailed(Exception):
    """A source raised an error of SQLite. The index itself is not damaged."""


class Progress:
    """How much of the sources is indexed. One thread writes it, and any thread may read it."""

    def __init__(self) -> None:
        self.seen = 0
        """Documents seen in this walk."""
        self.pending: frozenset[str] = frozenset()
        """Keys of sources whose first walk is not complete, or whose last walk failed."""
        self.empty: frozenset[str] = frozenset()
        """Keys of sources that have no documents."""
        self.full = False
        """Whether the index has reached its maximum size, and takes no more text."""
        self.ready = threading.Event()
        """Set while there is nothing to wait for: all sources are indexed, except those that failed."""


class Indexing:
    """Keeps a store up to date with the sources, from `start` to `stop`."""

    def __init__(
        self,
        open_store: Callable[[bool], IndexStore],
        sources: Callable[[], Mapping[str, Source]],
        reader: SourceReader,
        max_size: int,
    ) -> None:
        self.progress = Progress()
        self._open_store = open_store
        self._sources = sources
        self._reader = reader
        self._max_size = max_size
        self._wake = threading.Event()
        self._notified: dict[str, None] = {}
        self._walk_requested = False
        self._damage = ""
        """The error of a search that found damage in the file, which is then rebuilt."""
        self._walked: set[str] = set()
        self._failed: set[str] = set()
        self._reread_at: dict[str, float] = {}
        """The time at which documents without a version are read again, by the key of their source."""
        self._rested_at = self._committed_at = 0.0
        self._thread = threading.Thread(target=self._run, name="wharfinger-search", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.progress.pending = frozenset(self._sources())
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Stop the thread, wait for it at most `seconds`, and return whether it has ended. Blocks."""
        self._reader.stop()
        self._wake.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def notify(self, uri: str | None = None) -> None:
        """Index a changed URI again soon, or walk soon if `uri` is None. A new URI waits for the next walk.

        Can be called from any thread.
        """
        if uri is None or len(self._notified) >= MAX_NOTIFIED_URIS:
            self._walk_requested = True
        else:
            self._notified[uri] = None
        self._wake.set()

    def report_error(self, error: sqlite3.Error) -> None:
        """Rebuild the index if the error of a search shows that the file is damaged. Can be called from any thread."""
        if _shows_damage(error):
            self._damage = str(error)
            self._wake.set()

    # -- the thread

    def _run(self) -> None:
        stopped = self._reader.stopped
        rebuild = False
        while not stopped.is_set():
            try:
                store = self._open_store(rebuild)
                rebuild, self._damage = False, ""
                try:
                    self._keep_up_to_date(store)
                finally:
                    store.close()
            except Stopped:
                return
            except (sqlite3.Error, OSError) as error:
                text = str(error)
                if "no such module" in text or "no such tokenizer" in text:
                    log.warning("There is no search index, since this Python's SQLite has no FTS5: %s", error)
                    self.progress.ready.set()
                    return
                rebuild = _shows_damage(error)
                log.warning("The search index %s: %s", "is rebuilt" if rebuild else "cannot be written", error)
                self._walked.clear()
                self.progress.pending = frozenset(self._sources())
                stopped.wait(RETRY_SECONDS)

    def _keep_up_to_date(self, store: IndexStore) -> None:
        """Walk, and index URIs that are reported as changed, until the server stops.

        Raises:
            Stopped: the server stops.
            sqlite3.Error: the file is damaged, or cannot be written.
        """
        store.remove_other_sources(self._sources())
        while not self._reader.stopped.is_set():
            began = time.monotonic()
            self._walk_all(store)
            if store.is_stale(self.progress.full):
                log.info("The search index is rebuilt: most of it is out of date")
                store.clear()
                self._walked.clear()
                continue
            self._wait(store, time.monotonic() - began)

    def _wait(self, store: IndexStore, walk_seconds: float) -> None:
        """Wait for the next walk, and meanwhile index URIs that are reported as changed."""
        now = time.monotonic()
        next_walk = now + max(MIN_PAUSE_SECONDS, PAUSE_FACTOR * walk_seconds)
        earliest = now + max(MIN_PAUSE_SECONDS / 2, PAUSE_FACTOR / 2 * walk_seconds)
        while not self._reader.stopped.is_set():
            now = time.monotonic()
            if now >= next_walk or (self._walk_requested and now >= earliest):
                self._walk_requested = False
                return
            self._wake.wait((earliest if self._walk_requested else next_walk) - now)
            self._wake.clear()
            if self._damage:
                raise sqlite3.DatabaseError(self._damage)
            seconds = self._index_notified(store)
            self._reader.stopped.wait(min(PAUSE_FACTOR * seconds, MIN_PAUSE_SECONDS))

    def _index_notified(self, store: IndexStore) -> float:
        """Index the URIs that were reported as changed, and return how many seconds that took."""
        began = time.monotonic()
        sources = self._sources()
        while self._notified and not self._reader.stopped.is_set():
            uri, _ = self._notified.popitem()
            try:
                with _errors_of_source():
                    key, source = next(
                        ((key, source) for key, source in sources.items() if source.matches(uri)), ("", None)
                    )
                    if source is None:
                        continue
                    document = self._reader.document(source, uri)
                known_version = store.known(key, [uri]).get(uri)
                if document is not None and known_version is not None:
                    # `Source.documents` may give another title and type than `Source.stat`: they stay as they are.
                    title, kind = known_version.title, known_version.kind
                    document = msgspec.structs.replace(document, title=title, mime_type=kind)
                    self._index(store, key, source, document)
            except (sqlite3.Error, Stopped):
                raise
            except Exception as error:  # a later walk indexes it, when the source is back
                log.debug("%s cannot be indexed now: %r", uri, error)
        store.commit()
        return time.monotonic() - began

    def _walk_all(self, store: IndexStore) -> None:
        """Walk all sources, a page of each in turn, so that a slow one does not block the others."""
        sources = self._sources()
        self.progress.seen = 0
        self.progress.pending = frozenset(sources) - self._walked
        self.progress.full = store.size() >= self._max_size
        if self.progress.pending - self._failed:
            self.progress.ready.clear()
        else:
            self.progress.ready.set()
        walks = deque((key, self._walk(store, key, source)) for key, source in sources.items())
        while walks:
            key, walk = walks.popleft()
            try:
                if next(walk, False):
                    walks.append((key, walk))
                else:
                    self._failed.discard(key)
                    self._walked.add(key)
                    self.progress.pending = self.progress.pending - {key}
            except (sqlite3.Error, Stopped):
                raise
            except Exception as error:
                if key not in self._failed:
                    self._failed.add(key)
                    # The server logs an unavailable source itself.
                    level = logging.DEBUG if isinstance(error, SourceUnavailable) else logging.WARNING
                    log.log(level, "%s cannot be indexed now; retrying: %r", key, error)
                self._walked.discard(key)
                self.progress.pending = self.progress.pending | {key}
        store.commit()
        if not self.progress.pending - self._failed:
            self.progress.ready.set()

    def _walk(self, store: IndexStore, key: str, source: Source) -> Iterator[bool]:
        """Index the changed documents of one source. Yields True between pages."""
        seen: set[int] = set()
        after: str | None = None
        began = time.monotonic()
        reread = began >= self._reread_at.get(key, 0.0)
        while True:
            with _errors_of_source():
                documents, after = self._reader.documents(source, after, PAGE_DOCUMENTS)
            known_versions = store.known(key, [document.uri for document in documents])
            for document in documents:
                self._yield_cpu(store)
                self.progress.seen += 1
                known_version = known_versions.get(document.uri)
                unchanged = known_version is not None and self._is_same(known_version, document, reread)
                seen.add(known_version.id if known_version and unchanged else self._index(store, key, source, document))
            if after is None:
                break
            yield True
        if reread:
            now = time.monotonic()
            self._reread_at[key] = now + max(REREAD_SECONDS, PAUSE_FACTOR * (now - began))
        self.progress.empty = self.progress.empty - {key} if seen else self.progress.empty | {key}
        store.remove_missing(key, seen)
        store.commit()

    def _is_same(self, known_version: IndexedVersion, document: Document, reread: bool) -> bool:
        if known_version.extent == NAME_ONLY and not self.progress.full:
            return False
        new = (document.version, document.title, document.mime_type)
        return (
            bool(document.version or not reread)
            and (known_version.version, known_version.title, known_version.kind) == new
        )

    def _index(self, store: IndexStore, key: str, source: Source, document: Document) -> int:
        full = self.progress.full = self.progress.full or store.size() >= self._max_size
        text = self._text(source, document.uri) if has_text(document) else ()
        try:
            return store.put(key, document, text, 0 if full else MAX_TEXT_CHARACTERS)
        except (sqlite3.Error, Stopped, SourceUnavailable):
            raise
        except Exception as error:  # the other documents of the source are indexed
            log.debug("%s is indexed only by name: %r", document.uri, error)
            # A text of which nothing is kept makes the entry `NAME_ONLY`, so the next walk reads the document again.
            return store.put(key, document, ("?",), 0)

    def _text(self, source: Source, uri: str) -> Iterator[str]:
        with _errors_of_source():
            yield from self._reader.text(source, uri)

    def _yield_cpu(self, store: IndexStore) -> None:
        """If it is time, sleep, so that other threads run, and commit, so that searches find what was indexed."""
        now = time.monotonic()
        if self._reader.stopped.is_set():
            raise Stopped
        if now - self._committed_at > COMMIT_SECONDS:
            store.commit()
            self._committed_at = now
        if now - self._rested_at > WORK_SECONDS:
            time.sleep(REST_SECONDS)
            self._rested_at = time.monotonic()


def _shows_damage(error: Exception) -> bool:
    """Return whether an error shows that the index is damaged.

    An OperationalError or OSError may be temporary, such as that of a full disk. A missing table stays missing.
    """
    return "no such table" in str(error) or not isinstance(error, sqlite3.OperationalError | OSError)


@contextmanager
def _errors_of_source() -> Generator[None]:
    """Raise `SourceFailed` for an SQLite error of a source, which would otherwise look like an error of the index."""
    try:
        yield
    except sqlite3.Error as error:
        raise SourceFailed(repr(error)) from error
