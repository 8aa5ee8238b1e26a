"""The pages of a document while it is parsed, within bounds, and the result of a parser. Runs in the child process."""

from __future__ import annotations

import re

import msgspec

__all__ = ["MAX_PAGES", "MAX_TEXT_CHARACTERS", "ExtractedText", "PageList", "Refused", "TooMuchText", "plain"]

MAX_PAGES = 10_000
"""Maximum number of pages that are read. The rest of a longer document is left out, and the answer says so."""
MAX_TEXT_CHARACTERS = 8 << 20
"""Maximum number of characters of all pages together; a novel has about half a million."""

_LINE_ENDS = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
_UNSHOWN = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff\ufffe\uffff\ud800-\udfff]")
_SPACE_AT_ENDS = re.compile(r"(?<![ \t])[ \t]+(?=\n|\Z)")
"""A match begins only at the first of several spaces: otherwise, long spaces inside a line take quadratic time."""
_MANY_EMPTY_LINES = re.compile(r"\n{4,}")


class Refused(Exception):
    """The document cannot be read. `str()` says why, and what to do, as a clause after "because"."""


class TooMuchText(Exception):
    """A bound is reached. The result is the pages so far, of which the last may be cut."""


class ExtractedText(msgspec.Struct, kw_only=True):
    """The pages that a parser has found, or the reason why it found none."""

    pages: list[str] = []
    cut: str = ""
    """Sentences about text that is missing; empty if none is."""
    failure: str = ""
    """Why the document has no pages, and what to do, as a clause."""


class PageList:
    """Collects the texts of pages until a bound is reached."""

    def __init__(self, max_pages: int = MAX_PAGES, max_characters: int = MAX_TEXT_CHARACTERS) -> None:
        self.pages: list[str] = []
        self.cut = ""
        self._max_pages = max_pages
        self._room = max_characters

    def add(self, text: str) -> None:
        """Add the text of the next page.

        Raises:
            TooMuchText: it does not fit; `cut` says which bound was reached.
        """
        if len(self.pages) >= self._max_pages:
            self.cut = f"Only the first {self._max_pages:,} pages were read."
            raise TooMuchText
        text = plain(text)
        if len(text) > self._room:
            self.pages.append(text[: self._room])
            self.cut = f"The text ends within page {len(self.pages):,}, since it is too long to be read whole."
            raise TooMuchText
        self._room -= len(text)
        self.pages.append(text)

    @property
    def room(self) -> int:
        """The number of characters that still fit."""
        return self._room


def plain(text: str) -> str:
    """Return a text without control characters and without spaces at the ends of lines.

    Lines end with line feeds. At most two empty lines follow each other, and none is at the beginning or the end.
    """
    text = _UNSHOWN.sub("", _LINE_ENDS.sub("\n", text))
    return _MANY_EMPTY_LINES.sub("\n\n\n", _SPACE_AT_ENDS.sub("", text)).strip("\n")
