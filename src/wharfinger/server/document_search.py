"""Searching the documents of one source, and calling sources from a thread to do so.

Every source is searched in the same way, from its `documents` and `text`: first those whose names have all the words,
the best names first, then those that have the missing words in their text, in the order of the list. The index of
`sources.search` finds the same documents without reading everything.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar, cast
from urllib.parse import unquote

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.folding import fold, words_of
from wharfinger.content.match_lines import look
from wharfinger.errors import InternalError, InvalidParams, PermissionDenied, ResourceNotFound
from wharfinger.source import (
    Document,
    DocumentPage,
    Hit,
    Hits,
    MaybeAwaitable,
    Source,
    SourceUnavailable,
    TextPieces,
    document_of,
    outage_of,
)

__all__ = [
    "SearchBounds",
    "SourceReader",
    "Stopped",
    "has_text",
    "hit_of",
    "name_of",
    "name_rank",
    "search_documents",
]

PAGE = 256
"""Documents in each page that is requested from a source."""
COROUTINE_SECONDS = 60.0
"""How long a coroutine of a source may take."""
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
    """At most `limit` documents that have every word of `query` in their name or text, best first. Blocks.

    `truncated` says which bound ended the search, if one did before `limit` documents were found.
    """
    reader, bounds = reader or SourceReader(), bounds or SearchBounds()
    words = words_of(query)
    hits = Hits()
    if not words or limit < 1:
        return hits
    began = time.monotonic()
    ends = began + bounds.seconds
    named: list[tuple[tuple[int, int], Document]] = []
    others: list[tuple[Document, list[str]]] = []
    reached = ""
    for number, document in enumerate(_documents(reader, source)):
        if number == bounds.documents:
            reached = f"after {bounds.documents:,} documents"
            break
        if time.monotonic() > began + bounds.seconds / 2:
            reached = f"after {bounds.seconds:g} s"
            break
        name = name_of(document)
        rest = [word for word in words if word not in name]
        if not rest:
            named.append((name_rank(name, words), document))
        elif has_text(document) and len(others) <= bounds.texts:
            others.append((document, rest))
    named.sort(key=lambda ranked: ranked[0])
    hits += [hit_of(document.uri, document.title, document.mime_type) for _, document in named[:limit]]
    left = bounds.characters
    for number, (document, rest) in enumerate(others):
        if len(hits) == limit:
            break
        if number == bounds.texts:
            reached = f"after {bounds.texts:,} texts"
            break
        if left <= 0:
            reached = f"after {bounds.characters >> 20} MiB of text"
            break
        if time.monotonic() > ends:
            reached = f"after {bounds.seconds:g} s"
            break
        pieces = _Pieces(reader.text(source, document.uri), min(bounds.text_characters, left), ends)
        match = look(pieces, rest)
        left -= pieces.read
        if match is not None:
            hits.append(hit_of(document.uri, document.title, document.mime_type, match.snippet))
    if reached and len(hits) < limit:
        hits.truncated = f"The search of {source.name or source.uri} ended {reached}: there may be more."
    return hits


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


class _Pieces:
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


def name_of(document: Document) -> str:
    """A document's folded name: its title, and the last part of its URI if the title does not contain it."""
    last = unquote(document.uri.rstrip("/").rpartition("/")[2])
    return fold(document.title if last in document.title else f"{document.title}\n{last}")


def name_rank(name: str, words: Sequence[str]) -> tuple[int, int]:
    """How well a name fits; lower is better. Ranks by the number of words found, how they match, and the depth."""
    named = sum(word in name for word in words)
    if not named:
        return 0, 0
    last = name.partition("\n")[0].rstrip("/").rpartition("/")[2]
    wanted = " ".join(words)
    fits = (last == wanted or last.rpartition(".")[0] == wanted, last.startswith(wanted), wanted in last, True)
    return -named, 64 * fits.index(True) + min(name.count("/"), 63)


def hit_of(uri: str, title: str, mime_type: str, snippet: str = "") -> Hit:
    """A document that was found, as a hit with a resource."""
    name = title.rstrip("/").rpartition("/")[2] or title
    resource = t.Resource(uri=uri, name=name, title=title, mime_type=mime_type or UNSET)
    return Hit(uri=uri, title=title, snippet=snippet, resource=resource)
