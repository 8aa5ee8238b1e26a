"""Searching the documents of one source, and calling sources from a thread to do so.

Every source is searched in the same way, from its `documents` and `text`: the documents whose names fit best are read
first, then the others in the order of the list. What was found is ranked by `search_ranking`. The index of
`sources.search` ranks in the same way, but knows which documents to read.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar, cast

from wharfinger.content.folding import fold
from wharfinger.content.match_lines import look
from wharfinger.content.near_words import NearWords
from wharfinger.content.search_query import Query, Word, query_of
from wharfinger.errors import InternalError, InvalidParams, PermissionDenied, ResourceNotFound
from wharfinger.server.search_ranking import FoundDocument, Ranking, correct, is_prose, name_of, name_worth
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

PAGE = 256
"""Documents in each page that is requested from a source."""
COROUTINE_SECONDS = 60.0
"""How long a coroutine of a source may take."""
NEAR_CHARACTERS, NEAR_SECONDS = 4 << 20, 0.3
"""How much text is compared, and for how long, to find the spelling of a word that occurs nowhere."""
MEDIA = ("image/", "audio/", "video/", "font/")
"""Prefixes of MIME types without text, whose documents are not read."""
MISSING = (ResourceNotFound, InvalidParams, PermissionDenied, PermissionError)
"""What a source raises for a document that does not exist or may not be read."""

T = TypeVar("T")


class Stopped(Exception):
    """Raised in a search when the server ends or the caller has given up."""


class SourceReader:
    """Calls the methods of sources from a thread; their coroutines run on `loop`, which is the server's.

    Without a loop, only sources whose methods are plain functions can be read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, seconds: float = COROUTINE_SECONDS) -> None:
        self._loop = loop
        self._seconds = seconds
        self.stopped = threading.Event()

    def documents(self, source: Source, after: str | None, limit: int) -> DocumentPage:
        """A page of the source's documents.

        Raises:
            SourceUnavailable: the source cannot be reached now, or could not a moment ago.
        """
        with _recorded(source):
            return self._result(source.documents(after, limit))

    def document(self, source: Source, uri: str) -> Document | None:
        """One of its documents; None if it is missing.

        Raises:
            SourceUnavailable: as for `documents`.
        """
        try:
            with _recorded(source):
                return document_of(self._result(source.stat(uri)))
        except MISSING:
            return None

    def exists(self, source: Source, uri: str) -> bool:
        """Whether the source has this URI now; False if it cannot be asked."""
        try:
            return self.document(source, uri) is not None
        except (InternalError, OSError):
            return False

    def text(self, source: Source, uri: str) -> Iterator[str]:
        """The text of a document in pieces; nothing if it is missing, or not text."""
        try:
            yield from self.pieces(source, uri)
        except (*MISSING, OSError):
            return

    def pieces(self, source: Source, uri: str) -> Iterator[str]:
        """The text of a document in pieces. Raises what `source.text` raises."""
        with _recorded(source):
            found = source.text(uri)
        pieces: TextPieces = self._wait(found) if isinstance(found, Awaitable) else found
        for piece in self._each(pieces) if isinstance(pieces, AsyncIterator) else pieces:
            if self.stopped.is_set():
                raise Stopped
            yield piece

    def _each(self, pieces: AsyncIterator[str]) -> Iterator[str]:
        async def following() -> str | None:
            return await anext(pieces, None)

        while (piece := self._wait(following())) is not None:
            yield piece

    def _result(self, value: MaybeAwaitable[T]) -> T:
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
        try:
            return future.result(self._seconds)
        finally:
            future.cancel()


class SearchBounds(NamedTuple):
    """How much one search of a source may cost. When one is reached, what was found so far is the result."""

    seconds: float = 2.0
    """Half of these are for names, so that time is left to read texts."""
    documents: int = 200_000
    """Documents whose name is compared."""
    texts: int = 50_000
    """Documents whose text is read."""
    characters: int = 64 << 20
    """Characters read in all texts together."""
    text_characters: int = 1 << 20
    """Characters read of one text."""


def search_documents(
    source: Source, query: str, limit: int, reader: SourceReader | None = None, bounds: SearchBounds | None = None
) -> Hits:
    """At most `limit` places in documents that have the words of `query` in their name or text, best first. Blocks.

    `truncated` says which bound ended the search, if one did before enough documents were found.
    """
    reader, bounds = reader or SourceReader(), bounds or SearchBounds()
    wanted = query_of(query)
    if not wanted.words or limit < 1:
        return Hits()
    found = _Searched(source, wanted, limit, reader, bounds)
    hits = found.hits()
    corrected, remark = correct(wanted, found.unknown(), found.near)
    if corrected != wanted:
        hits = _Searched(source, corrected, limit, reader, bounds).hits()
    hits.remark = remark or hits.remark
    return hits


class _Searched:
    """The documents of a source, in the order in which they are read, and what was found in them."""

    def __init__(self, source: Source, query: Query, limit: int, reader: SourceReader, bounds: SearchBounds) -> None:
        self.source = source
        self.query = query
        self.limit = limit
        self.reader = reader
        self.bounds = bounds
        self.reached = ""
        self.documents = self._by_name()
        self.seen = [False] * len(query.words)
        self.complete = False

    def _by_name(self) -> list[tuple[Document, tuple[float, ...]]]:
        """The documents, those with the better names first."""
        began = time.monotonic()
        found: list[tuple[float, int, Document, tuple[float, ...]]] = []
        for number, document in enumerate(_documents(self.reader, self.source)):
            if number == self.bounds.documents:
                self.reached = f"after {self.bounds.documents:,} documents"
                break
            if time.monotonic() > began + self.bounds.seconds / 2:
                self.reached = f"after {self.bounds.seconds:g} s"
                break
            name = name_of(document)
            names = self.query.names(name, fold(name))
            if has_text(document) or all(names):
                found.append((-name_worth(self.query, name, names), number, document, names))
        self.ends = began + self.bounds.seconds
        found.sort(key=lambda one: one[:2])
        return [(document, names) for _, _, document, names in found]

    def hits(self) -> Hits:
        """Read texts until enough have all the words, or a bound is reached; return the best places."""
        ranking = Ranking(self.query, self.limit)
        left = self.bounds.characters
        texts = 0
        for document, names in self.documents:
            if ranking.enough:
                break
            match = None
            if has_text(document):
                reached = self._bound_of_texts(texts, left)
                if reached and not all(names):
                    self.reached = reached
                    break
                if not reached:
                    texts += 1
                    text = self.reader.text(self.source, document.uri)
                    pieces = BoundedPieces(text, min(self.bounds.text_characters, left), self.ends)
                    match = look(pieces, self.query, names, prose=is_prose(document.title))
                    left -= pieces.read
            ranking.add(FoundDocument(self.source, document.uri, document.title, document.mime_type, names, match))
        hits = ranking.hits(self.reader, self.ends)
        self.seen, self.complete = ranking.seen, not ranking.enough
        if self.reached and not ranking.enough:
            hits.truncated = (
                f"The search of {self.source.name or self.source.uri} ended {self.reached}: there may be more."
            )
        return hits

    def _bound_of_texts(self, texts: int, left: int) -> str:
        """Which bound keeps another text from being read; empty if none does."""
        if texts == self.bounds.texts:
            return f"after {self.bounds.texts:,} texts"
        if left <= 0:
            return f"after {self.bounds.characters >> 20} MiB of text"
        if time.monotonic() > self.ends:
            return f"after {self.bounds.seconds:g} s"
        return ""

    def unknown(self) -> set[str]:
        """The words that occur nowhere; none if not everything was read."""
        if self.reached or not self.complete:
            return set()
        return {word.text for word, seen in zip(self.query.words, self.seen, strict=True) if not seen}

    def near(self, word: Word) -> str:
        """The spelling nearest to a word in the names and in the first texts; empty if there is none."""
        near = NearWords(word.text)
        left, ends = NEAR_CHARACTERS, time.monotonic() + NEAR_SECONDS
        for document, _ in self.documents:
            near.add(name_of(document))
        for document, _ in self.documents:
            if left <= 0 or time.monotonic() > ends:
                break
            if has_text(document):
                pieces = BoundedPieces(self.reader.text(self.source, document.uri), left, ends)
                for piece in pieces:
                    near.add(piece)
                left -= pieces.read
        return near.best()


def _documents(reader: SourceReader, source: Source) -> Iterator[Document]:
    after: str | None = None
    while True:
        documents, after = reader.documents(source, after, PAGE)
        yield from documents
        if after is None:
            return


@contextmanager
def _recorded(source: Source) -> Generator[None]:
    """Refuse a call of a source that has just failed, and record whether it fails.

    Raises:
        SourceUnavailable: it is not called, or failed.
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
    """Pieces of a text up to a number of characters and a time; `read` counts the characters."""

    def __init__(self, pieces: Iterable[str], most: int, ends: float) -> None:
        self._pieces = pieces
        self._most = most
        self._ends = ends
        self.read = 0

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            shown = piece[: self._most - self.read]
            self.read += len(shown)
            yield shown
            if self.read >= self._most or time.monotonic() > self._ends:
                return


def has_text(document: Document) -> bool:
    """Whether a document may have text, by its MIME type."""
    return not document.mime_type.startswith(MEDIA) or document.mime_type == "image/svg+xml"
