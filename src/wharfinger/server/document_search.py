"""Searches the documents of one source, and calls sources from a thread.

A source without a search of its own is searched through its `documents` and `text`: the documents whose names fit best
are read first, then the others in the order of the list. `search_ranking` ranks the results. The index of
`sources.search` ranks in the same way, but knows which documents to read.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

from wharfinger.content.folding import fold
from wharfinger.content.match_lines import match_text
from wharfinger.content.near_words import NearWords
from wharfinger.content.search_query import Query, Word, query_of
from wharfinger.errors import InternalError, InvalidParams, PermissionDenied, ResourceNotFound
from wharfinger.policy.current import readable_uris
from wharfinger.server.search_ranking import FoundDocument, Ranking, correct, is_prose, name_of, name_score
from wharfinger.source import (
    Document,
    DocumentPage,
    Hits,
    MaybeAwaitable,
    Source,
    SourceUnavailable,
    TextPieces,
    document_of,
    outage_of,
)

__all__ = ["BoundedPieces", "SearchBounds", "SourceReader", "Stopped", "has_text", "search_documents"]

PAGE_DOCUMENTS = 256
"""Documents in each page that is requested from a source."""
COROUTINE_SECONDS = 60.0
"""The maximum time of a source's coroutine."""
NEAR_CHARACTERS, NEAR_SECONDS = 4 << 20, 0.3
"""The maximum number of characters read, and of seconds, to find another spelling of a word that occurs nowhere."""
MEDIA_TYPES = ("image/", "audio/", "video/", "font/")
"""Prefixes of the MIME types whose documents have no text and are not read."""
MISSING_ERRORS = (ResourceNotFound, InvalidParams, PermissionDenied, PermissionError)
"""Errors that a source raises for a document that does not exist, or that the caller may not read."""

T = TypeVar("T")


class Stopped(Exception):
    """Ends a search: the server stops, the caller has given up, or no event loop can run a coroutine of the source."""


class SourceReader:
    """Calls the methods of sources from a thread. Their coroutines run on `loop`, the event loop of the server.

    Without a loop, only sources whose methods are plain functions can be read. A coroutine that takes longer than
    `seconds` raises TimeoutError.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, seconds: float = COROUTINE_SECONDS) -> None:
        self._loop = loop
        self._seconds = seconds
        self.stopped = threading.Event()
        """Set by `stop`."""
        self._running: set[Future[Any]] = set()
        """The coroutines that a thread waits for."""

    def stop(self) -> None:
        """End the work of the thread: a coroutine in progress, and the next piece of a text, raise `Stopped`."""
        self.stopped.set()
        for future in tuple(self._running):
            future.cancel()

    def documents(self, source: Source, after: str | None, limit: int) -> DocumentPage:
        """Return a page of the source's documents.

        Raises:
            SourceUnavailable: the source cannot be reached, or failed a moment ago.
        """
        with _with_breaker(source):
            return self._await_if_needed(source.documents(after, limit))

    def document(self, source: Source, uri: str) -> Document | None:
        """Return the source's document at a URI; None if it is missing.

        Raises:
            SourceUnavailable: as for `documents`.
        """
        try:
            with _with_breaker(source):
                return document_of(self._await_if_needed(source.stat(uri)))
        except MISSING_ERRORS:
            return None

    def exists(self, source: Source, uri: str) -> bool:
        """Return whether the source has this URI now; False if it cannot be reached."""
        try:
            return self.document(source, uri) is not None
        except (InternalError, OSError):
            return False

    def text(self, source: Source, uri: str) -> Iterator[str]:
        """Yield the text of a document in pieces; nothing if it is missing, cannot be read or is not text.

        Raises:
            SourceUnavailable: as for `documents`.
        """
        try:
            yield from self.pieces(source, uri)
        except (*MISSING_ERRORS, OSError):
            return

    def pieces(self, source: Source, uri: str) -> Iterator[str]:
        """Yield the text of a document in pieces. Raises what `source.text` raises."""
        with _with_breaker(source):
            result = source.text(uri)
        pieces: TextPieces = self._wait(result) if isinstance(result, Awaitable) else result
        for piece in self._iterate_on_loop(pieces) if isinstance(pieces, AsyncIterator) else pieces:
            if self.stopped.is_set():
                raise Stopped
            yield piece

    def _iterate_on_loop(self, pieces: AsyncIterator[str]) -> Iterator[str]:
        async def next_piece() -> str | None:
            return await anext(pieces, None)

        while (piece := self._wait(next_piece())) is not None:
            yield piece

    def _await_if_needed(self, value: MaybeAwaitable[T]) -> T:
        return self._wait(cast("Awaitable[T]", value)) if isinstance(value, Awaitable) else value

    def _wait(self, value: Awaitable[T]) -> T:
        """Await `value` on the loop, and return its result. Blocks."""
        if self._loop is None or self.stopped.is_set():
            if isinstance(value, Coroutine):
                value.close()
            raise Stopped("There is no event loop for a coroutine of the source.")

        async def awaited() -> T:
            return await value

        future = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        self._running.add(future)
        if self.stopped.is_set():  # perhaps before this future was added
            future.cancel()
        try:
            return future.result(self._seconds)
        except CancelledError:
            if self.stopped.is_set():
                raise Stopped from None
            raise
        finally:
            future.cancel()
            self._running.discard(future)


class SearchBounds(NamedTuple):
    """The bounds of one search of a source. A search that reaches one of them returns the hits found so far."""

    seconds: float = 2.0
    """Seconds for names and texts. Names get at most half, so that some are left for texts."""
    documents: int = 200_000
    """Documents whose names are compared."""
    texts: int = 50_000
    """Documents whose texts are read."""
    characters: int = 64 << 20
    """Characters read from all texts together."""
    text_characters: int = 1 << 20
    """Characters read from one text."""


def search_documents(
    source: Source, query: str, limit: int, reader: SourceReader | None = None, bounds: SearchBounds | None = None
) -> Hits:
    """Return the best hits, at most `limit`, in documents with the words of `query` in their name or text. Blocks.

    If a bound ended the search before enough documents were found, `truncated` names it.
    """
    reader, bounds = reader or SourceReader(), bounds or SearchBounds()
    parsed = query_of(query)
    if not parsed.words or limit < 1:
        return Hits()
    search = _DocumentSearch(source, parsed, limit, reader, bounds)
    hits = search.hits()
    corrected, remark = correct(parsed, search.unknown_words(), search.nearest_spelling)
    if corrected != parsed:
        hits = _DocumentSearch(source, corrected, limit, reader, bounds).hits()
    hits.remark = remark or hits.remark
    hits.truncated = hits.truncated or source.unsearched()
    return hits


class _DocumentSearch:
    """One search of a source's documents. `documents` has them in the order in which they are read."""

    def __init__(self, source: Source, query: Query, limit: int, reader: SourceReader, bounds: SearchBounds) -> None:
        self.source = source
        self.query = query
        self.limit = limit
        self.reader = reader
        self.bounds = bounds
        self.deadline = time.monotonic() + bounds.seconds
        self.reached = ""
        """Why documents were left out, as the end of a sentence, or an empty string."""
        self.documents = self._rank_by_name()
        self.seen = [False] * len(query.words)
        """For each word, whether any document has it."""
        self.complete = False
        """Whether `hits` continued to the last document or to a bound, instead of ending when it had found enough."""

    def _rank_by_name(self) -> list[tuple[Document, tuple[float, ...]]]:
        """Return the documents that may be hits, each with the matches in its name, the best names first."""
        deadline = self.deadline - self.bounds.seconds / 2
        ranked: list[tuple[float, int, Document, tuple[float, ...]]] = []
        for number, document in enumerate(_documents(self.reader, self.source)):
            if number == self.bounds.documents:
                self.reached = f"after {self.bounds.documents:,} documents"
                break
            if time.monotonic() > deadline:
                self.reached = f"after {self.bounds.seconds:g} s"
                break
            name = name_of(document)
            name_matches = self.query.match_name(name, fold(name))
            if has_text(document) or all(name_matches):
                ranked.append((-name_score(self.query, name, name_matches), number, document, name_matches))
        ranked.sort(key=lambda entry: entry[:2])
        return [(document, name_matches) for _, _, document, name_matches in ranked]

    def hits(self) -> Hits:
        """Read texts until enough of them have all the words or a bound is reached, and return the best hits."""
        ranking = Ranking(self.query, self.limit)
        remaining = self.bounds.characters
        texts = 0
        for document, name_matches in self.documents:
            if ranking.enough:
                break
            match = None
            if has_text(document):
                reached = self._bound_of_texts(texts, remaining)
                if reached and not all(name_matches):
                    self.reached = reached
                    break
                if not reached:
                    texts += 1
                    text = self.reader.text(self.source, document.uri)
                    pieces = BoundedPieces(text, min(self.bounds.text_characters, remaining), self.deadline)
                    try:
                        match = match_text(pieces, self.query, name_matches, prose=is_prose(document.title))
                    except (SourceUnavailable, Stopped):
                        raise
                    except Exception:  # the other documents are searched
                        self.reached = "before all texts were read"
                    remaining -= pieces.read
            ranking.add(
                FoundDocument(self.source, document.uri, document.title, document.mime_type, name_matches, match)
            )
        hits = ranking.hits(self.reader, self.deadline)
        self.seen, self.complete = ranking.seen, not ranking.enough
        if self.reached and not ranking.enough:
            hits.truncated = (
                f"The search of {self.source.name or self.source.uri} ended {self.reached}: there may be more."
            )
        return hits

    def _bound_of_texts(self, texts: int, remaining: int) -> str:
        """Return the reached bound as the end of a sentence, or an empty string if another text may be read."""
        if texts == self.bounds.texts:
            return f"after {self.bounds.texts:,} texts"
        if remaining <= 0:
            return f"after {self.bounds.characters >> 20} MiB of text"
        if time.monotonic() > self.deadline:
            return f"after {self.bounds.seconds:g} s"
        return ""

    def unknown_words(self) -> set[str]:
        """Return the words that occur nowhere, or an empty set if some documents were not read."""
        if self.reached or not self.complete:
            return set()
        return {word.text for word, seen in zip(self.query.words, self.seen, strict=True) if not seen}

    def nearest_spelling(self, word: Word) -> str:
        """Return the nearest spelling of a word in the names and the first texts, or an empty string."""
        near = NearWords(word.text)
        remaining, deadline = NEAR_CHARACTERS, time.monotonic() + NEAR_SECONDS
        for document, _ in self.documents:
            near.add(name_of(document))
        for document, _ in self.documents:
            if remaining <= 0 or time.monotonic() > deadline:
                break
            if has_text(document):
                pieces = BoundedPieces(self.reader.text(self.source, document.uri), remaining, deadline)
                try:
                    for piece in pieces:
                        near.add(piece)
                except (SourceUnavailable, Stopped):
                    raise
                except Exception:  # noqa: S112  # the other documents may have the word
                    continue
                remaining -= pieces.read
        return near.best()


def _documents(reader: SourceReader, source: Source) -> Iterator[Document]:
    """Yield the documents of a source that the current caller may read."""
    after: str | None = None
    is_readable = readable_uris()
    while True:
        documents, after = reader.documents(source, after, PAGE_DOCUMENTS)
        yield from [document for document in documents if is_readable(document.uri)]
        if after is None:
            return


@contextmanager
def _with_breaker(source: Source) -> Generator[None]:
    """Refuse a call to a source that has just failed; record a failure of the call.

    Raises:
        SourceUnavailable: the call is refused, or it failed.
    """
    breaker = source.breaker
    if not breaker.admits():
        raise SourceUnavailable(f"{outage_of(source)}: try again later.")
    began = breaker.clock()
    try:
        yield
    except SourceUnavailable as error:
        breaker.failed(str(error), began)
        raise


class BoundedPieces:
    """The pieces of a text, up to a number of characters or a deadline."""

    def __init__(self, pieces: Iterable[str], max_characters: int, deadline: float) -> None:
        self._pieces = pieces
        self._max_characters = max_characters
        self._deadline = deadline
        self.read = 0
        """Characters read so far."""

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            part = piece[: self._max_characters - self.read]
            self.read += len(part)
            yield part
            if self.read >= self._max_characters or time.monotonic() > self._deadline:
                return


def has_text(document: Document) -> bool:
    """Return whether a document of this MIME type may have text."""
    return not document.mime_type.startswith(MEDIA_TYPES) or document.mime_type == "image/svg+xml"
