"""The text of a DOCX file in sections: headings, paragraphs, lists, tables and notes. Runs in the child process.

A DOCX file has no pages: each program lays them out with its own fonts. The structure of the text is used instead: a
section begins at each heading of the highest level that occurs, and after each page break. `python-docx` opens the file
and knows its styles. Its paragraphs leave out inserted text, content controls, text boxes and notes, so the body is
walked here (ECMA-376 part 1, §17).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from docx import Document
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml.ns import qn

from wharfinger.sources.document_text.markdown_table import markdown_table
from wharfinger.sources.document_text.page_list import PageList
from wharfinger.sources.document_text.safe_xml import parse_xml
from wharfinger.sources.document_text.zip_bounds import open_zip

__all__ = ["example", "read_docx"]

MAX_COLUMNS = 1_000
"""Maximum number of columns that one cell may span. A file can state any number."""
MAX_LIST_DEPTH = 8
"""The deepest level of a list in Word (0 is the first). A file can state any number."""
MAX_STYLE_DEPTH = 20
"""Maximum number of styles that are examined for one style: itself, and those that it inherits from."""

_HEADING = re.compile(r"heading ([1-9])$", re.IGNORECASE).match
_LIST = re.compile(r"list (?!paragraph|continue)", re.IGNORECASE).match
_MATH_TEXT = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_PARAGRAPH, _TABLE, _ROW, _CELL = qn("w:p"), qn("w:tbl"), qn("w:tr"), qn("w:tc")
_LEFT_OUT = frozenset((qn("w:pPr"), qn("w:rPr"), qn("w:moveFrom"), qn("w:del"), _FALLBACK))
"""Properties, text that was moved away or deleted, and the replacement of a drawing for other programs."""
_CHARACTERS = {
    qn("w:tab"): "\t",
    qn("w:ptab"): "\t",
    qn("w:cr"): "\n",
    qn("w:noBreakHyphen"): "-",
}
_NOTES = {qn("w:footnoteReference"): "", qn("w:endnoteReference"): "e"}
"""The prefix of the number of a note."""
_NOTE = re.compile(r"\[\^(e?\d{1,9})\]")
_BREAK = "\f"
"""A page break in the text of a paragraph."""


class _Block(NamedTuple):
    """A paragraph, a table or a page break. `level` is the level of a heading, from 1; 0 if it is no heading."""

    text: str
    level: int = 0
    is_item: bool = False


class _Style(NamedTuple):
    level: int
    is_item: bool
    is_title: bool


def read_docx(data: bytes, pages: PageList) -> None:
    """Add the text of each section.

    Raises:
        Refused: the archive is encrypted or damaged, or exceeds a bound.
        TooMuchText: it has more pages or text than `pages` takes.
    """
    open_zip(data).close()
    document: Any = Document(io.BytesIO(data))
    body = _Body(_styles(document), _notes(document), _section_kinds(document.element.body))
    blocks = list(body.blocks(document.element.body))
    top = min((block.level for block in blocks if block.level), default=0)
    section: list[_Block] = []
    for block in blocks:
        if top and block.level == top:
            section = _end_section(section, body, pages)
        before, *after = block.text.split(_BREAK)
        section.append(block._replace(text=before))
        for text in after:
            section = _end_section(section, body, pages)
            section.append(_Block(text))
    _end_section(section, body, pages)
    if not pages.pages:
        pages.add("")


def _end_section(section: list[_Block], body: _Body, pages: PageList) -> list[_Block]:
    """Add a section and its notes to the pages, if it has text. Returns the next section, which is empty."""
    with_text = [block._replace(text=block.text.rstrip()) for block in section if block.text.strip()]
    if with_text:
        text = with_text[0].text
        for previous, block in pairwise(with_text):
            text += ("\n" if previous.is_item and block.is_item else "\n\n") + block.text
        notes = [f"[^{key}]: {body.notes.get(key, '')}".rstrip() for key in dict.fromkeys(_NOTE.findall(text))]
        pages.add("\n\n".join([text, *notes]))
    return []


class _Body:
    """Walks the body of a document."""

    def __init__(self, styles: dict[str, _Style], notes: dict[str, str], section_kinds: Iterable[str]) -> None:
        self.styles = styles
        self.notes = notes
        self.section_kinds = iter(section_kinds)
        """The kind of break before each section of the layout except the first."""

    def blocks(self, element: Any) -> Iterator[_Block]:
        """Yield the paragraphs and tables in an element, including those in content controls and inserted parts."""
        for child in element.iterchildren():
            if child.tag == _PARAGRAPH:
                yield from self.paragraph(child)
            elif child.tag == _TABLE:
                if table := markdown_table([list(self.cells(row)) for row in self.rows(child)]):
                    yield _Block(table)
            elif child.tag not in _LEFT_OUT:
                yield from self.blocks(child)

    def rows(self, element: Any) -> Iterator[Any]:
        for child in element.iterchildren():
            if child.tag == _ROW:
                yield child
            elif child.tag not in (_TABLE, _CELL):
                yield from self.rows(child)

    def cells(self, element: Any) -> Iterator[str]:
        for child in element.iterchildren():
            if child.tag == _CELL:
                properties = child.find(qn("w:tcPr"))
                merged = None if properties is None else properties.find(qn("w:vMerge"))
                continues_above = merged is not None and merged.get(qn("w:val"), "continue") == "continue"
                yield "" if continues_above else " ".join([block.text for block in self.blocks(child)])
                span = None if properties is None else properties.find(qn("w:gridSpan"))
                yield from [""] * (min(_number(span), MAX_COLUMNS) - 1)
            elif child.tag not in _LEFT_OUT:
                yield from self.cells(child)

    def paragraph(self, element: Any) -> Iterator[_Block]:
        boxes: list[Any] = []
        text = "".join(self.characters(element, boxes))
        properties = element.find(qn("w:pPr"))
        level, is_item = 0, False
        breaks_before = breaks_after = False
        if properties is not None:
            style_reference = properties.find(qn("w:pStyle"))
            style = self.styles.get(
                "" if style_reference is None else style_reference.get(qn("w:val"), ""), _Style(0, False, False)
            )
            level, is_item = style.level, style.is_item
            numbering = properties.find(qn("w:numPr"))
            depth = 0
            if numbering is not None:
                number_id = numbering.find(qn("w:numId"))
                is_item = not level and (number_id is None or number_id.get(qn("w:val")) != "0")
                depth = _number(numbering.find(qn("w:ilvl")), 0)
            breaks_before = _is_on(properties.find(qn("w:pageBreakBefore")))
            if properties.find(qn("w:sectPr")) is not None:  # the last paragraph of a section of the layout
                breaks_after = next(self.section_kinds, "continuous") != "continuous"
            mark = ""
            if level or style.is_title:
                mark = "#" * max(level, 1)
            elif is_item:
                mark = "  " * min(depth, MAX_LIST_DEPTH) + "-"
            if text.strip() and mark:
                words = text.lstrip()
                breaks = _BREAK * text[: -len(words)].count(_BREAK)  # the mark belongs to the words after them
                if level:
                    words = _BREAK.join([" ".join(part.split()) for part in words.split(_BREAK)])
                text = f"{breaks}{mark} {words}"
        if breaks_before:
            yield _Block(_BREAK)
        yield _Block(text, level if text.strip() else 0, is_item)
        for box in boxes:
            yield from self.blocks(box)
        if breaks_after:
            yield _Block(_BREAK)

    def characters(self, element: Any, boxes: list[Any]) -> Iterator[str]:
        """Yield the text of a paragraph, and add its text boxes to `boxes`."""
        for child in element.iterchildren():
            tag = child.tag
            if tag in (qn("w:t"), _MATH_TEXT):
                yield (child.text or "").replace(_BREAK, " ")
            elif tag == qn("w:br"):
                yield _BREAK if child.get(qn("w:type")) == "page" else "\n"
            elif tag in _CHARACTERS:
                yield _CHARACTERS[tag]
            elif tag in _NOTES:
                yield f"[^{_NOTES[tag]}{child.get(qn('w:id'), '')}]"
            elif tag == qn("w:txbxContent"):
                boxes.append(child)
            elif tag not in _LEFT_OUT:
                yield from self.characters(child, boxes)


def _number(element: Any, default: int = 1) -> int:
    value = None if element is None else element.get(qn("w:val"))
    return int(value) if value is not None and re.fullmatch(r"\d{1,6}", value) else default


def _is_on(element: Any) -> bool:
    return element is not None and element.get(qn("w:val"), "true") not in ("0", "false", "off", "none")


def _section_kinds(body: Any) -> list[str]:
    """Return the kind of break before each section of the layout except the first.

    The properties of a section, among them this kind, are at its end.
    """
    kinds: list[str] = []
    for section in body.iter(qn("w:sectPr")):
        if section.getparent().tag != qn("w:sectPrChange"):
            kind = section.find(qn("w:type"))
            kinds.append("nextPage" if kind is None else kind.get(qn("w:val"), "nextPage"))
    return kinds[1:]


def _styles(document: Any) -> dict[str, _Style]:
    """Return the styles of paragraphs by id. A style inherits from the one that it is based on."""
    try:
        document.part.part_related_by(RELATIONSHIP_TYPE.STYLES)
    except KeyError:  # python-docx would open its own template
        return {}
    styles: dict[str, _Style] = {}
    for each in document.styles:
        style, known = each, set[str]()
        level, is_item, is_title = 0, False, False
        while style is not None and style.style_id not in known and len(known) < MAX_STYLE_DEPTH:
            known.add(style.style_id)
            name = style.name or ""
            if heading := _HEADING(name):
                level = int(heading[1])
                break
            is_title = name.lower() == "title"
            is_item = _LIST(name) is not None
            if is_title or is_item:
                break
            style = style.base_style if hasattr(style, "base_style") else None
        styles.setdefault(each.style_id, _Style(level, is_item, is_title))
    return styles


def _notes(document: Any) -> dict[str, str]:
    """Return the footnotes and endnotes by their marks in the text."""
    notes: dict[str, str] = {}
    kinds = ((RELATIONSHIP_TYPE.FOOTNOTES, "w:footnote", ""), (RELATIONSHIP_TYPE.ENDNOTES, "w:endnote", "e"))
    for relationship, tag, prefix in kinds:
        try:
            part = document.part.part_related_by(relationship)
        except KeyError:
            continue
        for note in parse_xml(part.blob).iterchildren(qn(tag)):
            text = " ".join([block.text for block in _Body({}, {}, ()).blocks(note)])
            notes[f"{prefix}{note.get(qn('w:id'), '')}"] = " ".join(text.split())
    return notes


def example() -> bytes:
    """Return a document to parse first, so that the library is loaded."""
    document = Document()
    document.add_heading("Heading")
    document.add_table(1, 1).cell(0, 0).text = "cell"
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()
