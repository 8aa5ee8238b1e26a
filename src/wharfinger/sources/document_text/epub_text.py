"""The text of the chapters of an EPUB, as Markdown. Runs in the child process.

The container names a package document, whose spine lists the chapters in the order of reading (EPUB 3.3, §5.7).
Chapters are XHTML. `html-to-markdown` reads them as HTML, so empty elements such as `<title/>` and CDATA sections are
written in its way first. Entities that a document declares are not read.
"""

from __future__ import annotations

import codecs
import io
import posixpath
import re
import zipfile
from html import escape
from urllib.parse import unquote

from html_to_markdown import ConversionOptions, convert

from wharfinger.sources.document_text.page_list import PageList, Refused
from wharfinger.sources.document_text.safe_xml import NotXML, parse_xml
from wharfinger.sources.document_text.zip_bounds import open_zip

__all__ = ["example", "read_epub"]

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_TEXT_TYPES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
_MAX_DEPTH = 256
"""Maximum depth of nested elements. The converter leaves out the content of deeper ones."""
_CDATA = "<![CDATA["
_DECLARATION = re.compile(rb"<\?xml\s[^>]{0,200}?\sencoding\s*=\s*[\"']([A-Za-z][A-Za-z0-9._-]{0,40})[\"']").match
"""Matches the beginning of an XML declaration with an encoding."""
_OLDER_ENCODINGS = {
    name: codecs.lookup(name)  # here, because the child process can open no file later
    for name in (
        *[f"iso-8859-{number}" for number in range(1, 17) if number != 12],
        *[f"windows-{number}" for number in range(1250, 1259)],
    )
}
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_EMPTY = re.compile(rf"<(?!(?:{_VOID})[\s/])([A-Za-z][\w.:-]*)((?:\s[^<>]*)?)/>")
"""An empty element of XML that HTML would leave open: `<title/>` would contain the rest of the chapter."""


def read_epub(data: bytes, pages: PageList) -> None:
    """Add the text of each chapter.

    Raises:
        Refused: the file is encrypted or damaged, or exceeds a bound.
        TooMuchText: it has more pages or text than `pages` takes.
    """
    options = ConversionOptions(
        extract_metadata=False,
        skip_images=True,
        strip_tags=["a"],  # a link leads to another chapter, or out of the book; its text stays
        autolinks=False,
        compact_tables=True,
        bullets="-",
        max_depth=_MAX_DEPTH,
    )
    with open_zip(data) as archive:
        chapters = _chapters(archive)
        encrypted = _encrypted_paths(archive)
        if encrypted.intersection(chapters):
            raise Refused("its chapters are encrypted (DRM): publish a copy without encryption")
        for path in chapters:
            text = _decode(archive.read(path)) if path in archive.NameToInfo else ""
            text = _EMPTY.sub(r"<\1\2></\1>", _escape_cdata(text))
            pages.add(convert(text, options).content or "" if text.strip() else "")


def _chapters(archive: zipfile.ZipFile) -> list[str]:
    """Return the paths of the chapters in the order of reading, with an empty path for each that is not text."""
    try:
        root = parse_xml(archive.read(_CONTAINER))
        package_path = next(iter(root.iter("{*}rootfile"))).get("full-path", "")
        package = parse_xml(archive.read(package_path))
    except (KeyError, StopIteration, NotXML, ValueError):
        raise Refused("it is damaged, or not an EPUB: it names no package document") from None
    folder = posixpath.dirname(package_path)
    items: dict[str, tuple[str, str]] = {}
    for item in package.iter("{*}item"):
        path = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", "").partition("#")[0])))
        items[item.get("id", "")] = path, item.get("media-type", "")
    spine = [items.get(reference.get("idref", ""), ("", "")) for reference in package.iter("{*}itemref")]
    if not spine:
        raise Refused("it is damaged: it lists no chapters")
    return [path if kind in _TEXT_TYPES else "" for path, kind in spine]


def _encrypted_paths(archive: zipfile.ZipFile) -> set[str]:
    """Return the paths of encrypted files; often only fonts are."""
    try:
        root = parse_xml(archive.read(_ENCRYPTION))
    except (KeyError, NotXML, ValueError):
        return set()
    return {unquote(reference.get("URI", "")) for reference in root.iter("{*}CipherReference")}


def _escape_cdata(text: str) -> str:
    """Replace CDATA sections, which HTML would leave out, by the same text with escapes."""
    before, *sections = text.split(_CDATA)
    for section in sections:
        content, end, after = section.partition("]]>")
        before += escape(content, quote=False) + after if end else _CDATA + section
    return before


def _decode(data: bytes) -> str:
    """Return the text of a chapter, which is in UTF-8 or UTF-16 (EPUB 3.3, §3.9), or declares an older encoding."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    declaration = _DECLARATION(data)
    codec = _OLDER_ENCODINGS.get(declaration[1].decode().lower()) if declaration else None
    if codec is not None:
        return codec.decode(data, "replace")[0]
    return data.decode("utf-8-sig", "replace")


def example() -> bytes:
    """Return a document to parse first, so that the library is loaded."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_CONTAINER, '<container><rootfile full-path="a.opf"/></container>')
        item = f'<item id="a" href="a.xhtml" media-type="{_TEXT_TYPES[0]}"/>'
        archive.writestr("a.opf", f'<package>{item}<itemref idref="a"/></package>')
        archive.writestr("a.xhtml", "<p>text</p>")
    return data.getvalue()
