"""The query of a document's URI: `?text` or `?pages=3-5`, and a window of that, such as `&lines=1-200`. No I/O."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument
from wharfinger.source import UriParameter
from wharfinger.sources.document_text.document_pages import FORMATS
from wharfinger.sources.windows.window import Window, parse_window

__all__ = ["PARAMETERS", "DocumentQuery", "is_document_uri", "pages_uri", "read_document_query", "text_uri"]

PARAMETERS = {
    "text": UriParameter("", "the text of a PDF, DOCX, PPTX or EPUB file", tuple(FORMATS)),
    "pages": UriParameter("3-5", "the text of these pages, slides, chapters or sections", tuple(FORMATS)),
}
"""The parameters of documents, for `Source.parameters`."""

_RANGE = re.compile(r"([0-9]{1,9})(?:(-)([0-9]{1,9})?)?").fullmatch
_EXAMPLES = "write pages=3, pages=3-5 or pages=3-"
_ASKS_FOR_TEXT = re.compile(r"[?&](?:text|pages)(?:[=&]|$)").search


class DocumentQuery(NamedTuple):
    """Pages of a document, from 1; `last` is inclusive, and None leaves the end open."""

    base: str
    """The URI without the window: the document with `?text` or `?pages=…`."""
    first: int = 1
    last: int | None = None
    whole: bool = True
    """Whether all pages are requested (`?text`)."""
    window: Window | None = None


def is_document_uri(uri: str) -> bool:
    """Return whether a URI asks for the text of a document."""
    return "?" in uri and _ASKS_FOR_TEXT(uri) is not None


def text_uri(uri: str) -> str:
    """Return the URI of the text of a document."""
    return f"{uri}?text"


def pages_uri(uri: str, first: int, last: int | None = None) -> str:
    """Return the URI of the text of the pages from `first` to `last`; without `last`, of one page."""
    return f"{uri}?pages={first}" if last is None or last == first else f"{uri}?pages={first}-{last}"


def read_document_query(uri: str) -> tuple[str, DocumentQuery]:
    """Return the URI of a document, and the requested pages.

    Raises:
        InvalidArgument: the query is not valid; the message shows valid ones.
    """
    document, _, text = uri.partition("?")
    values: dict[str, str] = {}
    for pair in text.split("&"):
        name, _, value = pair.partition("=")
        if name in values:
            raise InvalidArgument("A query is written ?text or ?pages=3-5, each name once.")
        values[name] = unquote(value)
    if values.pop("text", ""):
        raise InvalidArgument("Ask for the text of a document by ?text, without a value.")
    pages = values.pop("pages", None)
    window = parse_window(values)
    if pages is None:
        return document, DocumentQuery(text_uri(document), window=window)
    match = _RANGE(pages)
    if match is None:
        raise InvalidArgument(f"pages={shown(pages[:100])} is not a range of pages: {_EXAMPLES}.")
    first = int(match[1])
    last: int | None = first
    if match[2]:  # the dash
        last = int(match[3]) if match[3] else None
    if first < 1 or (last is not None and last < first):
        raise InvalidArgument(f"pages={shown(pages[:100])} is not a range of pages, which begin with 1: {_EXAMPLES}.")
    return document, DocumentQuery(f"{document}?pages={pages}", first, last, False, window)
