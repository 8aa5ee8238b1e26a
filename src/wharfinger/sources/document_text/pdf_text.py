"""The text of the pages of a PDF, by PDFium. Runs in the child process."""

from __future__ import annotations

import io
from typing import Any

import pypdfium2

from wharfinger.sources.document_text.page_list import MAX_PAGES, PageList, Refused

__all__ = ["example", "read_pdf"]

_HYPHEN = "\ufffe"
"""PDFium writes this for a hyphen at the end of a line, and the line end after it."""
_ENCRYPTED, _SECURITY = 4, 5
"""FPDF_ERR_PASSWORD and FPDF_ERR_SECURITY of `fpdfview.h`."""


def read_pdf(data: bytes, pages: PageList) -> None:
    """Add the text of each page.

    Raises:
        Refused: the document is encrypted or damaged.
        TooMuchText: a bound is reached.
    """
    library: Any = pypdfium2
    try:
        document = library.PdfDocument(data)
        number = len(document)
    except library.PdfiumError as error:
        if getattr(error, "err_code", None) in (_ENCRYPTED, _SECURITY):
            raise Refused("it is encrypted: publish a copy without a password") from None
        raise Refused("it is damaged, or not a PDF: save it again with the program that made it") from None
    unreadable = 0
    for index in range(min(number, MAX_PAGES + 1)):  # one more, so that the list says what it leaves out
        text = ""
        try:
            page = document[index]
            try:
                content = page.get_textpage()
                text = content.get_text_range(0, min(content.count_chars(), pages.room + 1))
            finally:
                page.close()
        except library.PdfiumError:
            unreadable += 1
        pages.add(text.replace(_HYPHEN, "-\n"))
    if not number or unreadable == number:
        raise Refused("it is damaged: none of its pages can be read")
    if unreadable:
        pages.cut = f"{unreadable:,} of its pages are damaged, and empty here."


def example() -> bytes:
    """Return a document to parse first, so that the library is loaded."""
    library: Any = pypdfium2
    document = library.PdfDocument.new()
    document.new_page(100, 100)
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()
