"""The text of the documents in a folder: PDF, DOCX, PPTX and EPUB files.

The bytes of a file come from a descriptor that the folder opened, never from a path, and go to a process that parses
them (`parser_pool`). The text, or the reason why there is none, is kept in memory under the identity, size and times of
the file, as long as there is room. Callers that want the same file at the same time share one parse; if the caller that
began it gives up waiting for a free process, another caller begins again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.text import shown, size_text
from wharfinger.errors import InvalidArgument, MissingExtra, Overloaded, ResourceNotFound
from wharfinger.source import VERSION, TextPlace
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.document_text.child_program import PARSE_SECONDS
from wharfinger.sources.document_text.document_pages import (
    FORMATS,
    DocumentFormat,
    DocumentPages,
    can_read_documents,
)
from wharfinger.sources.document_text.document_query import pages_uri, read_document_query
from wharfinger.sources.document_text.parser_pool import ContentChanged, shared_pool
from wharfinger.sources.folder.file_content import FileContent, version_of_file
from wharfinger.sources.folder.safe_open import missing_as_not_served, stamp_of
from wharfinger.sources.folder.tree_resources import TreeResources, not_served_as_not_found
from wharfinger.sources.name_completion import MAX_COMPLETIONS
from wharfinger.sources.ttl import ttl_ms
from wharfinger.sources.windows.window import NEXT, PREVIOUS, BytesContent, read_content, remark

__all__ = ["DocumentFiles"]

log = logging.getLogger("wharfinger.sources")

MAX_DOCUMENT_BYTES = 64 << 20
"""Maximum bytes of a file that is parsed."""
KEPT_BYTES = 64 << 20
"""Memory for the texts of one folder's documents."""
FAILED_SECONDS = 300.0
"""Seconds before a document that could not be parsed is parsed again, unless it changes."""
READ_PATIENCE_SECONDS, SEARCH_PATIENCE_SECONDS = 20.0, 3.0
"""Seconds that a read, or a search, waits for a free process."""
MAX_TRIES = 3
"""Attempts to read a file that changes during the read."""

Key = tuple[object, ...]


class _Unreadable(Exception):
    """A document has no text. `str()` says why, as a clause."""


class _Failure:
    """Why a document has no text, and when it may be parsed again (monotonic clock)."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.until = time.monotonic() + FAILED_SECONDS


class DocumentFiles:
    """Reads the documents among the files of a tree. Its methods may be called from several threads at once."""

    def __init__(self, files: TreeResources) -> None:
        self.files = files
        self._kept: BoundedCache[Key, DocumentPages | _Failure] = BoundedCache(KEPT_BYTES)
        self._running: dict[Key, tuple[Future[DocumentPages], float]] = {}
        """The running parses, and until when each waits for a free process (monotonic clock)."""
        self._lock = threading.Lock()

    # Resources

    def stat(self, uri: str) -> t.Resource:
        """Return the resource of the text of a document, without parsing the document.

        Raises:
            ResourceNotFound: there is no such file.
            InvalidArgument: the query is not valid, or the file is not a document.
        """
        document_uri, _ = read_document_query(uri)
        resource = self.files.stat(document_uri)
        resource.uri, resource.size, resource.description = uri, UNSET, UNSET
        resource.mime_type = self._format(document_uri, resource.mime_type or "").text_type
        return resource

    def read(self, uri: str, cache_scope: t.CacheScope) -> t.ReadResourceResult:
        """Read the text of a document, or of some pages, or a window of that.

        Raises:
            ResourceNotFound: there is no such file.
            InvalidArgument: the query is not valid, the file is not a document, it has no such page, or its text cannot
                be read. The message says why.
            Overloaded: too many documents are being parsed, or the file changes too often.
        """
        document_uri, query = read_document_query(uri)
        format = self._format(document_uri, self.files.stat(document_uri).mime_type or "")
        pages, status = self._pages_at(document_uri, format, READ_PATIENCE_SECONDS)
        if not query.whole:
            pages.require_page(document_uri, query.first)
        text = "".join(pages.texts(query.first, query.last))
        meta: dict[str, object] = {VERSION: version_of_file(status)}
        contents = read_content(
            uri, query.base, f"text{format.suffix}", BytesContent(text.encode()), query.window, meta=meta
        )
        first = contents[0]
        # Name the pages after and before these, unless the next window is still in these pages.
        if not query.whole and query.window is None and first.meta is not UNSET and NEXT not in first.meta:
            last = query.last or pages.count
            width = last - query.first + 1
            if last < pages.count:
                first.meta[NEXT] = pages_uri(document_uri, last + 1, min(last + width, pages.count))
            if query.first > 1:
                first.meta[PREVIOUS] = pages_uri(document_uri, max(1, query.first - width), query.first - 1)
        if pages.cut:
            contents.append(remark(uri, pages.cut))
        if not pages.count:
            contents.append(remark(uri, f"It has no {format.page}s."))
        elif pages.is_empty:
            contents.append(
                remark(uri, f"No {format.page} has text. The {format.page}s may be pictures, such as scanned paper.")
            )
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl_ms(status.st_mtime), cache_scope=cache_scope)

    def _format(self, document_uri: str, mime_type: str) -> DocumentFormat:
        format = FORMATS.get(mime_type)
        if format is None:
            raise InvalidArgument(
                f"?text and ?pages= work only for PDF, DOCX, PPTX and EPUB files: read {document_uri} without a query."
            )
        return format

    # Finding

    def text(self, uri: str, mime_type: str) -> Iterator[str]:
        """Yield the text of each page of a document, or nothing if it has no text.

        Raises:
            ResourceNotFound: there is no such file.
            Overloaded: too many documents are being parsed, or the file changes too often.
        """
        if not can_read_documents():
            return
        try:
            pages, _ = self._pages_at(uri, FORMATS[mime_type], SEARCH_PATIENCE_SECONDS)
        except InvalidArgument:
            return
        yield from pages.texts()

    def place(self, uri: str, mime_type: str, line: int) -> TextPlace | None:
        """Return the page with this line of the text; None if the document cannot be read now."""
        try:
            pages, _ = self._pages_at(uri, FORMATS[mime_type], READ_PATIENCE_SECONDS)
        except (ResourceNotFound, InvalidArgument, Overloaded):
            return None
        page = pages.page_of_line(line)
        first, last = pages.lines_of(page)
        return TextPlace(pages_uri(uri, page), f"{pages.format.page} {page}", first, last)

    def complete_pages(self, uri: str, value: str) -> list[str]:
        """Return ranges of pages that begin with `value`.

        Without a dash in `value`, these are `1-N` and each single page; with a dash, a range for each possible end.
        """
        try:
            mime_type = self.files.stat(uri).mime_type or ""
            pages, _ = self._pages_at(uri, self._format(uri, mime_type), READ_PATIENCE_SECONDS)
        except (ResourceNotFound, InvalidArgument, Overloaded):
            return []
        begin, dash, _ = value.partition("-")
        if not dash and pages.count:
            ranges = [f"1-{pages.count}", *map(str, range(1, pages.count + 1))]
        elif begin.isascii() and begin.isdecimal() and len(begin) < 10 and int(begin):
            ranges = [f"{begin}-{last}" for last in range(int(begin), pages.count + 1)]
        else:
            return []
        return [each for each in ranges if each.startswith(value)][:MAX_COMPLETIONS]

    # Parsing

    def _pages_at(self, uri: str, format: DocumentFormat, patience: float) -> tuple[DocumentPages, os.stat_result]:
        """Return the pages of a document, and the status of its file."""
        if not can_read_documents():
            raise InvalidArgument(
                f"{MissingExtra('documents', 'Reading the text of a document')}. Its bytes are at {shown(uri)}"
            )
        parts, only_directory = self.files.locate(uri)
        if only_directory:
            raise ResourceNotFound(uri)
        for _ in range(MAX_TRIES):
            with not_served_as_not_found(uri), self.files.tree.file(parts) as descriptor, missing_as_not_served():
                status = os.fstat(descriptor)
                key = (format.name, *stamp_of(status))
                try:
                    pages = self._pages(key, uri, format, FileContent(descriptor, status.st_size), patience)
                except ContentChanged:
                    continue
                except _Unreadable as error:
                    raise InvalidArgument(
                        f"{shown(uri)} has no text here, because {error}. Its bytes can be read without a query."
                    ) from None
                if stamp_of(os.fstat(descriptor)) == stamp_of(status):
                    return pages, status
        raise Overloaded(f"{shown(uri)} changes faster than it can be read: try again later.")

    def _pages(
        self, key: Key, uri: str, format: DocumentFormat, content: FileContent, patience: float
    ) -> DocumentPages:
        """Return the pages of a file, which may be kept, parsed now, or parsed by another thread.

        Raises:
            _Unreadable: the file has no text.
            Overloaded: no process was free in time.
        """
        deadline = time.monotonic() + patience
        future: Future[DocumentPages] = Future()
        while True:
            cached = self._kept.get(key)
            if isinstance(cached, DocumentPages):
                return cached
            if cached is not None and time.monotonic() < cached.until:
                raise _Unreadable(cached.reason)
            with self._lock:
                running = self._running.get(key)
                if running is None:
                    self._running[key] = future, deadline
                    break
            other, other_deadline = running
            try:
                return other.result(max(0.0, deadline - time.monotonic()) + PARSE_SECONDS)
            except TimeoutError:
                raise Overloaded(f"{shown(uri)} is being parsed: try again later.") from None
            except Overloaded:  # if only the other caller's time was over, begin again
                if not other_deadline <= time.monotonic() < deadline:
                    raise
        try:
            pages = self._parse(key, uri, format, content, deadline - time.monotonic())
        except BaseException as error:
            with self._lock:
                del self._running[key]
            future.set_exception(error)
            raise
        with self._lock:
            del self._running[key]
        future.set_result(pages)
        return pages

    def _parse(
        self, key: Key, uri: str, format: DocumentFormat, content: FileContent, patience: float
    ) -> DocumentPages:
        if not content.size:
            failure = "it is empty: it has 0 bytes"
        elif content.size > MAX_DOCUMENT_BYTES:
            failure = (
                f"it has {size_text(content.size)}, and at most {size_text(MAX_DOCUMENT_BYTES)} are parsed: split it"
            )
        else:
            extracted = shared_pool().extract(format.name, content, self, patience)
            failure = extracted.failure
            if not failure:
                pages = DocumentPages(format, extracted.pages, extracted.cut)
                self._kept.put(key, pages, pages.cost)
                return pages
        log.warning("The text of %s cannot be read: %s", shown(uri), failure)
        self._kept.put(key, _Failure(failure), 1_000)  # bytes, about
        raise _Unreadable(failure)

    def close(self) -> None:
        """End the processes that parse documents of this folder."""
        shared_pool().cancel(self)
