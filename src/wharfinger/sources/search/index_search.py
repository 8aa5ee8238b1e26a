"""Searches an index: reads the current text of the documents found in it, and ranks them like any other search."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping

from wharfinger.content.match_lines import match_text
from wharfinger.content.near_words import MAX_CHARACTERS, NearWords
from wharfinger.content.search_query import Query, Word
from wharfinger.content.text import many
from wharfinger.errors import InternalError
from wharfinger.server.document_search import BoundedPieces, SourceReader, Stopped, has_text
from wharfinger.server.search import not_searched
from wharfinger.server.search_ranking import (
    ENOUGH_FACTOR,
    FoundDocument,
    Ranking,
    correct,
    is_prose,
    is_secondary,
    name_text,
)
from wharfinger.source import Document, Hits, Source, SourceUnavailable
from wharfinger.sources.search.index_store import MAX_TEXT_CHARACTERS, Filters, IndexRow, IndexStore

__all__ = ["find"]

MAX_CANDIDATES = 20_000
"""Maximum number of documents that one search takes from the index."""
READING_SECONDS = 2.0
"""Longest time for which one search reads documents."""
MIN_READ_DOCUMENTS = 100
"""Minimum number of documents that a search reads if it has time."""
SECONDARY_PENALTY = 0.3
"""Subtracted from `IndexRow.promise` for a test, a copy or a changelog."""
QUICK_SECONDS = 0.5
"""After this time, a search with enough hits ends, even if it has read fewer than `MIN_READ_DOCUMENTS`."""
MAX_DOUBTFUL_DOCUMENTS = 30
"""If at most this many documents may have a word, they are read to see whether any of them has it."""
NEAR_DOCUMENTS, NEAR_CHARACTERS, NEAR_SECONDS = 200, 4 << 20, 0.3
"""Maximum documents, text and time to find another spelling of a word that occurs nowhere."""


class IndexedSearch:
    """One search of an index."""

    def __init__(
        self, store: IndexStore, sources: Mapping[str, Source], reader: SourceReader, filters: Filters, limit: int
    ) -> None:
        self._store = store
        self._sources = sources
        self._reader = reader
        self._filters = filters
        self._limit = limit
        self._deadline = math.inf
        """When to stop reading, by `time.monotonic`; set by `hits`."""
        self._down: dict[str, Source] = {}
        """The sources that could not be read, by their keys. No more of their documents are tried."""
        self._unreadable: set[str] = set()
        """URIs of documents whose text cannot be read now, although their source is not down."""

    def hits(self, query: Query, complete: bool) -> Hits:
        """Return at most `limit` hits, best first. If the index is `complete`, unknown words are corrected.

        Raises:
            sqlite3.DatabaseError: the index is damaged.
        """
        max_rows = max(MAX_CANDIDATES, self._limit)
        rows, weighted_query, counts = self._store.find(query, self._filters, max_rows)
        self._deadline = time.monotonic() + READING_SECONDS
        ranking = Ranking(weighted_query, self._limit)
        tried = self._read(rows, ranking)
        late = time.monotonic() > self._deadline
        # With several words, the rows leave out documents that have too few of them.
        all_read = len(query.words) == 1 and tried == len(rows) and not (self._down or self._unreadable)
        states = zip(query.words, counts, ranking.seen, strict=True)
        unseen = [word for word, count, seen in states if not seen and (all_read or self._is_unknown(word, count))]
        unknown = {word.text for word in unseen} if complete and time.monotonic() < self._deadline else set[str]()
        corrected, remark = correct(query, unknown, self._nearest_spelling)
        if corrected != query:
            rows, weighted_query, _ = self._store.find(corrected, self._filters, max_rows)
            ranking = Ranking(weighted_query, self._limit)
            tried = self._read(rows, ranking)
            late = time.monotonic() > self._deadline
        hits = ranking.hits(self._reader, self._deadline)
        hits.remark = remark or hits.remark
        if late:
            unread = len(rows) - tried
            documents = (
                f"{unread:,} more documents that may match were not read"
                if unread
                else "the end of a document may not have been read"
            )
            hits.truncated = f"The search ended after {READING_SECONDS:g} s: {documents}."
        if self._unreadable:
            documents = many(len(self._unreadable), "document")
            hits.truncated = hits.truncated or f"{documents} that may match cannot be read now."
        if len(rows) >= max_rows:
            hits.truncated = hits.truncated or f"More than {max_rows:,} documents may match: narrow the search."
        if self._down:
            hits.truncated = not_searched(self._down.values())
        return hits

    def _read(self, rows: Iterable[IndexRow], ranking: Ranking) -> int:
        """Read the documents until there are enough hits or the time is over, and return how many were tried."""
        rows = sorted(rows, key=lambda row: SECONDARY_PENALTY * is_secondary(row.title) - row.promise)
        quick_until = time.monotonic() + QUICK_SECONDS
        enough = ENOUGH_FACTOR * self._limit
        tried = 0
        for row in rows:
            now = time.monotonic()
            if now > self._deadline or (ranking.added >= enough and (now > quick_until or tried >= MIN_READ_DOCUMENTS)):
                break
            tried += 1
            source = self._sources.get(row.source)
            if source is None or row.source in self._down:
                continue
            try:
                document = self._match_document(source, row, ranking.query)
            except (InternalError, OSError):  # a source that is down does not affect the others
                self._down[row.source] = source
                continue
            except Stopped:
                raise
            except Exception:  # the others are searched
                self._unreadable.add(row.uri)
                continue
            if document is not None:
                ranking.add(document)
        return tried

    def _match_document(self, source: Source, row: IndexRow, query: Query) -> FoundDocument | None:
        """Search the current text of a document. Returns None if the document is gone, or does not match."""
        name_matches = query.match_name(name_text(row.title, row.uri), row.name)
        match = None
        if has_text(Document(uri=row.uri, title=row.title, version="", mime_type=row.kind)):
            pieces = BoundedPieces(self._reader.text(source, row.uri), MAX_TEXT_CHARACTERS, self._deadline)
            try:
                match = match_text(pieces, query, name_matches, prose=is_prose(row.title))
            except (SourceUnavailable, Stopped):
                raise
            except Exception:  # the document may match by its name; the others are searched
                self._unreadable.add(row.uri)
        if match is None and not (all(name_matches) and self._reader.document(source, row.uri) is not None):
            return None
        return FoundDocument(source, row.uri, row.title, row.kind, name_matches, match, row.changed)

    def _is_unknown(self, word: Word, count: int) -> bool:
        """Return whether a word occurs nowhere. The index knows only trigrams, so a few documents are read.

        Returns False if a source or document that may have the word cannot be read.
        """
        if count > MAX_DOUBTFUL_DOCUMENTS or self._down or self._unreadable:
            return False
        query = Query((word,))
        ranking = Ranking(query, MAX_DOUBTFUL_DOCUMENTS)
        self._read(self._store.find(query, self._filters, count).rows if count else [], ranking)
        return not (ranking.added or self._down or self._unreadable)

    def _nearest_spelling(self, word: Word) -> str:
        """Return the most similar word in the documents that may have such a word; empty if there is none."""
        now = time.monotonic()
        if now > self._deadline or len(word.text) > MAX_CHARACTERS:  # it has none, and the index would take seconds
            return ""
        near_words = NearWords(word.text)
        # At most half of the remaining time, so that some is left to read the documents with the new spelling.
        left, deadline = NEAR_CHARACTERS, now + min(NEAR_SECONDS, (self._deadline - now) / 2)
        for row in self._store.near(word.text, self._filters, NEAR_DOCUMENTS):
            near_words.add(row.title)
            source = self._sources.get(row.source)
            if source is None or left <= 0 or time.monotonic() > deadline:
                continue
            try:
                pieces = BoundedPieces(self._reader.text(source, row.uri), left, deadline)
                for piece in pieces:
                    near_words.add(piece)
                left -= pieces.read
            except Stopped:
                raise
            except Exception:  # noqa: S112  # the other documents may have the word
                continue
        return near_words.best()


def find(
    store: IndexStore,
    sources: Mapping[str, Source],
    reader: SourceReader,
    query: Query,
    filters: Filters,
    limit: int,
    complete: bool = True,
) -> Hits:
    """Return at most `limit` hits, best first. Blocks.

    Until the index is `complete`, unknown words are not corrected.

    Raises:
        sqlite3.DatabaseError: the index is damaged.
    """
    return IndexedSearch(store, sources, reader, filters, limit).hits(query, complete)
