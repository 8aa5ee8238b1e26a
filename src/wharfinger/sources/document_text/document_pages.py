"""The text of a parsed document, page by page, as reads and searches show it."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import accumulate
from typing import NamedTuple

from wharfinger.content import mime
from wharfinger.content.text import many
from wharfinger.errors import InvalidArgument

__all__ = ["FORMATS", "DocumentFormat", "DocumentPages", "can_read_documents", "is_document"]


class DocumentFormat(NamedTuple):
    """A format of documents."""

    name: str
    """The name of its parser."""
    page: str
    """The word for a page, such as `slide`."""
    suffix: str
    """The suffix of a file with its text."""
    text_type: str
    """The MIME type of its text."""
    module: str
    """The library that parses it, a part of the extra `documents`."""


_OFFICE = "application/vnd.openxmlformats-officedocument"

FORMATS = {
    mime.PDF: DocumentFormat("pdf", "page", ".txt", mime.TEXT, "pypdfium2"),
    f"{_OFFICE}.wordprocessingml.document": DocumentFormat("docx", "section", ".md", mime.MARKDOWN, "docx"),
    f"{_OFFICE}.presentationml.presentation": DocumentFormat("pptx", "slide", ".md", mime.MARKDOWN, "pptx"),
    "application/epub+zip": DocumentFormat("epub", "chapter", ".md", mime.MARKDOWN, "html_to_markdown"),
}
"""The formats whose text is read, by MIME type."""


@cache
def can_read_documents() -> bool:
    """Return whether the extra `documents` is installed."""
    return all(find_spec(format.module) is not None for format in FORMATS.values())


def is_document(name: str) -> bool:
    """Return whether a file is a document, judging by its name."""
    return mime.by_name(name) in FORMATS


class DocumentPages:
    """The pages of a document. `texts` adds a first line such as `[page 3 of 12]` and an empty last line to each."""

    def __init__(self, format: DocumentFormat, pages: list[str], cut: str) -> None:
        self.format = format
        self.pages = pages
        self.cut = cut
        """Sentences about text that is missing; empty if none is."""

    @property
    def count(self) -> int:
        """The number of pages."""
        return len(self.pages)

    @property
    def cost(self) -> int:
        """Bytes of memory that the texts take."""
        return sum(map(sys.getsizeof, self.pages)) + 1_000

    @property
    def is_empty(self) -> bool:
        """Whether no page has text."""
        return not any(page.strip() for page in self.pages)

    def texts(self, first: int = 1, last: int | None = None) -> Iterator[str]:
        """Yield the text of each page, from `first` to `last`."""
        for number in range(first, min(last or self.count, self.count) + 1):
            text = self.pages[number - 1]
            place = f"{self.format.page} {number} of {self.count}"
            yield f"[{place}]\n{text}\n\n" if text else f"[{place}: no text]\n\n"

    def require_page(self, uri: str, first: int) -> None:
        """Check that the document has a page with this number.

        Raises:
            InvalidArgument: there is no such page; the message says how many there are.
        """
        if first > self.count:
            page = self.format.page
            raise InvalidArgument(
                f"{uri} has {many(self.count, page)}, and no {page} {first:,}.", data={"pages": self.count}
            )

    def page_of_line(self, line: int) -> int:
        """Return the page with this line of the whole text, both counted from 1; the last page for a later line."""
        return min(max(1, bisect_right(self._first_lines, line)), self.count)

    def lines_of(self, page: int) -> tuple[int, int]:
        """Return the first and the last line of a page in the whole text."""
        firsts = self._first_lines
        return firsts[page - 1], firsts[page] - 1

    @cached_property
    def _first_lines(self) -> list[int]:
        """The first line of each page in the whole text, and the line after the last page."""
        return list(accumulate((text.count("\n") for text in self.texts()), initial=1))
