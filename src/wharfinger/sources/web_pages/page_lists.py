"""Reads the files in which a site lists its pages: `llms.txt` (llmstxt.org) and `sitemap.xml` (sitemaps.org).

Both come from the site, and may be hostile. Reading them takes time in proportion to their length, and the limits below
bound the result. expat reads XML as a stream; a document type declaration is refused, and with it every entity that
could expand (“billion laughs”) or name a file.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from xml.parsers import expat

from wharfinger.content.text import printable

__all__ = ["ListedPage", "SiteList", "UnusableList", "is_llms_text", "read_llms_text", "read_sitemap"]

MAX_PAGES = 50_000
"""Maximum number of pages of one list; sitemaps.org allows as many in a sitemap."""
MAX_SITEMAPS = 1_000
"""Maximum number of sitemaps of one index."""
MAX_LINE_CHARACTERS = 8_000
MAX_TITLE_CHARACTERS = 200
MAX_DESCRIPTION_CHARACTERS = 500
MAX_LOCATION_CHARACTERS = 2_048
"""Longest URL in a sitemap (sitemaps.org)."""
MAX_DEPTH = 32
"""Deepest nesting of elements. A sitemap needs three levels; images and news need a few more."""

# `*+` gives nothing back, so the time is linear. Only pairs of parentheses are given back: a `)` has to end the link.
_LINK = re.compile(
    r"\s*+[-*+]\s++\[([^\]]*+)\]\(\s*+<?([^\s()<>]*+(?:\([^\s()<>]*+\)[^\s()<>]*+)*)>?[^)]*+\)(.*)", re.DOTALL
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d))?").fullmatch


class UnusableList(ValueError):
    """A list cannot be read; `str()` says why, as the end of a sentence."""


class ListedPage(NamedTuple):
    """A page of a list. A field that the list does not give is empty. In an `llms.txt`, `link` may be relative."""

    link: str
    title: str = ""
    description: str = ""
    modified: str = ""
    """The time of the last change, in ISO 8601."""


class SiteList(NamedTuple):
    """The pages and sitemaps that one file lists."""

    pages: tuple[ListedPage, ...]
    sitemaps: tuple[str, ...] = ()
    """Further files that list pages."""
    truncated: bool = False
    """Whether the file lists more than the maximum."""


def is_llms_text(text: str) -> bool:
    """Return whether a text does not look like HTML: some sites return an HTML page for any path."""
    return not text.lstrip("\ufeff \t\r\n").startswith("<")


def read_llms_text(text: str) -> SiteList:
    """Return the links of an `llms.txt`: all list items of the form `- [title](url): description`.

    Lines of more than `MAX_LINE_CHARACTERS` are skipped.
    """
    pages: list[ListedPage] = []
    for line in text.splitlines():
        match = _LINK.match(line) if len(line) <= MAX_LINE_CHARACTERS else None
        if match is None or not match[2]:
            continue
        if len(pages) == MAX_PAGES:
            return SiteList(tuple(pages), truncated=True)
        notes = match[3].strip().removeprefix(":")
        pages.append(
            ListedPage(
                match[2], _one_line(match[1], MAX_TITLE_CHARACTERS), _one_line(notes, MAX_DESCRIPTION_CHARACTERS)
            )
        )
    return SiteList(tuple(pages))


def _one_line(text: str, limit: int) -> str:
    return printable(" ".join(text.split()), limit)


def read_sitemap(data: bytes) -> SiteList:
    """Return the pages of a sitemap, or the sitemaps of an index.

    Raises:
        UnusableList: it is not XML, has a document type declaration, or is not a sitemap.
    """
    reader = _SitemapReader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.refuse_doctype
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.add_text
    try:
        parser.Parse(data, True)
    except UnusableList:
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: the encoding is unknown or multi-byte
        raise UnusableList(f"is not XML ({error})") from None
    except _MaximumReached:
        return SiteList(tuple(reader.pages), tuple(reader.sitemaps), truncated=True)
    return SiteList(tuple(reader.pages), tuple(reader.sitemaps))


class _MaximumReached(Exception):
    """Stops the parser after the maximum number of pages or sitemaps."""


class _SitemapReader:
    """The handlers that the parser calls for each element."""

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
            raise UnusableList(f"begins with <{printable(local)}>, so it is not a sitemap")
        if len(self._open) == MAX_DEPTH:
            raise UnusableList("nests its elements too deeply")
        self._open.append(local)
        if len(self._open) == 2:
            self._texts = {}

    def add_text(self, text: str) -> None:
        """Add to the text of `loc` or `lastmod` of the entry itself; an image in the entry also has a `loc`."""
        if len(self._open) == 3 and self._open[2] in ("loc", "lastmod"):
            text_so_far = self._texts.get(self._open[2], "")
            self._texts[self._open[2]] = (text_so_far + text)[: MAX_LOCATION_CHARACTERS + 1]

    def end(self, _name: str) -> None:
        element = self._open.pop()
        link = self._texts.get("loc", "").strip()
        if len(self._open) != 1 or not link or len(link) > MAX_LOCATION_CHARACTERS:
            return
        if element == "sitemap":
            if len(self.sitemaps) == MAX_SITEMAPS:
                raise _MaximumReached
            self.sitemaps.append(link)
        elif element == "url":
            if len(self.pages) == MAX_PAGES:
                raise _MaximumReached
            stamp = self._texts.get("lastmod", "").strip()
            self.pages.append(ListedPage(link, modified=stamp if _DATE(stamp) else ""))
