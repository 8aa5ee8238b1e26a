"""Reads the files in which a site lists its pages: `llms.txt` (llmstxt.org) and `sitemap.xml` (sitemaps.org).

Both come from the site, and may be hostile. A line or an element costs time in proportion to its length, and what is
kept is bounded. XML is read by expat as a stream; a document type declaration is refused, and with it every entity that
could expand (“billion laughs”) or name a file.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from xml.parsers import expat

from wharfinger.content.text import printable

__all__ = ["ListedPage", "SiteList", "UnusableList", "is_llms_text", "read_llms_text", "read_sitemap"]

MAX_PAGES = 50_000
"""Pages of one list: as many as a sitemap may have (sitemaps.org)."""
MAX_SITEMAPS = 1_000
"""Sitemaps of one index that are kept."""
MAX_LINE_CHARACTERS = 8_000
MAX_TITLE_CHARACTERS = 200
MAX_DESCRIPTION_CHARACTERS = 500
MAX_LOCATION_CHARACTERS = 2_048
"""Longest URL in a sitemap (sitemaps.org)."""
MAX_DEPTH = 32
"""Deepest nesting of elements. A sitemap needs three levels; images and news need a few more."""

_LINK = re.compile(r"\s*[-*+]\s+\[([^\]]*)\]\(\s*<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)>?[^)]*\)(.*)", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d))?").fullmatch


class UnusableList(ValueError):
    """A list cannot be read; `str()` says why, as the end of a sentence."""


class ListedPage(NamedTuple):
    """A page as a list names it. Texts are empty if the list has none."""

    link: str
    title: str = ""
    description: str = ""
    modified: str = ""
    """The time of the last change, in ISO 8601."""


class SiteList(NamedTuple):
    """What one file lists."""

    pages: tuple[ListedPage, ...]
    sitemaps: tuple[str, ...] = ()
    """Further files that list pages."""
    truncated: bool = False
    """Whether the file lists more than is kept."""


def is_llms_text(text: str) -> bool:
    """Return whether this is an `llms.txt`, and not a page that a site answers for every path."""
    return not text.lstrip("\ufeff \t\r\n").startswith("<")


def read_llms_text(text: str) -> SiteList:
    """Return the links of an `llms.txt`: `- [title](url): description`, in the sections below its headings."""
    pages: list[ListedPage] = []
    for line in text.splitlines():
        found = _LINK.match(line) if len(line) <= MAX_LINE_CHARACTERS else None
        if found is None or not found[2]:
            continue
        if len(pages) == MAX_PAGES:
            return SiteList(tuple(pages), truncated=True)
        notes = found[3].strip().removeprefix(":")
        pages.append(
            ListedPage(found[2], _line(found[1], MAX_TITLE_CHARACTERS), _line(notes, MAX_DESCRIPTION_CHARACTERS))
        )
    return SiteList(tuple(pages))


def _line(text: str, limit: int) -> str:
    return printable(" ".join(text.split()), limit)


def read_sitemap(data: bytes) -> SiteList:
    """Return the pages of a sitemap, or the sitemaps of an index.

    Raises:
        UnusableList: it is not XML, has a document type declaration, or is no sitemap.
    """
    reader = _SitemapReader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.refuse_doctype
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.take
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UnusableList(f"is not XML ({error})") from None
    except _EnoughRead:
        return SiteList(tuple(reader.pages), tuple(reader.sitemaps), truncated=True)
    return SiteList(tuple(reader.pages), tuple(reader.sitemaps))


class _EnoughRead(Exception):
    """Ends the parser when as much as is kept has been read."""


class _SitemapReader:
    """The handlers of the parser, which sees one element after another."""

    def __init__(self) -> None:
        self.pages: list[ListedPage] = []
        self.sitemaps: list[str] = []
        self._open: list[str] = []
        self._texts: dict[str, str] = {}

    def refuse_doctype(self, *_: Any) -> None:
        raise UnusableList("has a document type declaration, which is not read")

    def begin(self, name: str, _attributes: Any) -> None:
        local = name.rpartition(" ")[2]
        if not self._open and local not in ("urlset", "sitemapindex"):
            raise UnusableList(f"begins with <{printable(local)}>, and is no sitemap")
        if len(self._open) == MAX_DEPTH:
            raise UnusableList("has too many elements in elements")
        self._open.append(local)
        if len(self._open) == 2:
            self._texts = {}

    def take(self, text: str) -> None:
        """Keep the text of an entry's own elements, such as `loc`; an image in it has a `loc` too, deeper down."""
        if len(self._open) == 3 and self._open[2] in ("loc", "lastmod"):
            known = self._texts.get(self._open[2], "")
            self._texts[self._open[2]] = (known + text)[: MAX_LOCATION_CHARACTERS + 1]

    def end(self, _name: str) -> None:
        kind = self._open.pop()
        link = self._texts.get("loc", "").strip()
        if len(self._open) != 1 or not link or len(link) > MAX_LOCATION_CHARACTERS:
            return
        if kind == "sitemap":
            if len(self.sitemaps) == MAX_SITEMAPS:
                raise _EnoughRead
            self.sitemaps.append(link)
        elif kind == "url":
            if len(self.pages) == MAX_PAGES:
                raise _EnoughRead
            stamp = self._texts.get("lastmod", "").strip()
            self.pages.append(ListedPage(link, modified=stamp if _DATE(stamp) else ""))
