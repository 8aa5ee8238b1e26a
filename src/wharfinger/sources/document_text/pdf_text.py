"""The text of the pages of a PDF, by PDFium. Runs in the child process."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from importlib import import_module
from typing import Any

from wharfinger.sources.document_text.page_list import MAX_PAGES, PageList, Refused

__all__ = ["example", "read_pdf"]

_library: Any = import_module("pypdfium2")
_raw: Any = import_module("pypdfium2.raw")
_HYPHEN = re.compile("\ufffe(.?)", re.DOTALL)
"""For a hyphen at the end of a line, PDFium writes one U+FFFE, and no line break."""
_ENCRYPTED, _SECURITY = 4, 5
"""FPDF_ERR_PASSWORD and FPDF_ERR_SECURITY of `fpdfview.h`."""


def read_pdf(data: bytes, pages: PageList) -> None:
    """Add the text of each page.

    Raises:
        Refused: the document is encrypted or damaged.
        TooMuchText: it has more pages or text than `pages` takes.
    """
    try:
        document = _library.PdfDocument(data)
        with suppress(_library.PdfiumError):
            document.init_forms()  # values of forms without an appearance get one
        page_count = len(document)
    except _library.PdfiumError as error:
        if getattr(error, "err_code", None) in (_ENCRYPTED, _SECURITY):
            raise Refused("it is encrypted: publish a copy without a password") from None
        raise Refused("it is damaged, or not a PDF: save it again with the program that made it") from None
    unreadable = end_of_readable = 0
    for index in range(min(page_count, MAX_PAGES)):
        text = ""
        try:
            page = document[index]
            try:
                # The text of a page leaves out its annotations, among them the values of forms. So they become a part
                # of its content, which it has when it is loaded again.
                if _raw.FPDFPage_GetAnnotCount(page) and (
                    _raw.FPDFPage_Flatten(page, _raw.FLAT_NORMALDISPLAY) == _raw.FLATTEN_SUCCESS
                ):
                    page.close()
                    page = document[index]
                content = page.get_textpage()
                text = content.get_text_range(0, min(content.count_chars(), pages.room + 1))
            finally:
                page.close()
            end_of_readable = index + 1
        except _library.PdfiumError:
            unreadable += 1
        pages.add(_HYPHEN.sub(_join, text))
    if not end_of_readable:
        raise Refused("it is damaged: none of its pages can be read")
    if unreadable:
        del pages.pages[end_of_readable:]  # the document only claims to have these pages
        pages_read, rest = f"{page_count:,}", ""
        if page_count > MAX_PAGES:
            pages_read, rest = f"first {MAX_PAGES:,}", " Later pages were not read."
        pages.cut = f"{unreadable:,} of its {pages_read} pages are damaged, and empty or left out here.{rest}"
    elif page_count > MAX_PAGES:
        pages.add("")  # raises TooMuchText, with the sentence about missing pages


def _join(hyphen: re.Match[str]) -> str:
    """Remove the hyphen at the end of a line, as pdftotext does, if a lowercase letter follows."""
    following = hyphen[1]
    return following if following.islower() else f"-{following}"


def example() -> bytes:
    """Return a document to parse first, so that the library is loaded."""
    document = _library.PdfDocument.new()
    document.new_page(100, 100)
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()
