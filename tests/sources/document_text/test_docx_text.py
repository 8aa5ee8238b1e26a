"""The text of DOCX files: beside what was written into them, and of hostile ones."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import pytest
from docx.enum.section import WD_SECTION
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import nsdecls, qn

from tests.sources.document_text.making import docx_of, pptx_of, saved, zip_of
from wharfinger.errors import InvalidArgument
from wharfinger.sources.folder.source import Folder

PagesOf = Callable[[str, bytes], list[str]]

ENTITIES = "".join([f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(10)])
BILLION_LAUGHS = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">{ENTITIES}]>'


def changed(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return a ZIP archive with one file changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {each: archive.read(each) for each in archive.namelist()}
    return zip_of({**files, name: change(files.get(name, b""))})


def test_sections_begin_at_headings_and_page_breaks(pages_of: PagesOf) -> None:
    document = docx.Document()
    document.add_paragraph("Before the first heading.")
    document.add_heading("Tides", 1)
    document.add_paragraph("High water at 14:20.")
    document.add_heading("Neaps", 2)
    document.add_page_break()
    document.add_paragraph("After the break.")
    document.add_section(WD_SECTION.NEW_PAGE)
    document.add_paragraph("A new section.")
    document.add_section(WD_SECTION.CONTINUOUS)
    document.add_paragraph("The same page.")
    paragraph = document.add_paragraph("Before it, a page break.")
    paragraph.paragraph_format.page_break_before = True
    document.add_heading("Ports", 1)
    assert pages_of("a.docx", saved(document)) == [
        "Before the first heading.",
        "# Tides\n\nHigh water at 14:20.\n\n## Neaps",
        "After the break.",
        "A new section.\n\nThe same page.",
        "Before it, a page break.",
        "# Ports",
    ]


def test_the_highest_heading_that_occurs_begins_sections(pages_of: PagesOf) -> None:
    assert pages_of("a.docx", docx_of("## One", "a", "### Deeper", "## Two")) == ["## One\n\na\n\n### Deeper", "## Two"]


def test_a_document_without_headings_is_one_section(pages_of: PagesOf) -> None:
    assert pages_of("a.docx", docx_of("one", "two")) == ["one\n\ntwo"]
    assert pages_of("b.docx", docx_of()) == [""]


def test_tables_are_markdown(pages_of: PagesOf) -> None:
    document = docx.Document()
    table = document.add_table(3, 3)
    for row, texts in enumerate([("port", "depth | m", "x"), ("Bodø", "7.5\nat low water", "y"), ("a", "b", "c")]):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(2, 0).merge(table.cell(2, 1))
    table.cell(0, 2).merge(table.cell(1, 2))
    (page,) = pages_of("a.docx", saved(document))
    assert page == ("| port | depth \\| m | x y |\n| --- | --- | --- |\n| Bodø | 7.5 at low water |  |\n| a b |  | c |")


def test_lists_and_titles_are_markdown(pages_of: PagesOf) -> None:
    document = docx.Document()
    document.add_heading("Pilot", 0)
    for text in ("fog", "rain"):
        document.add_paragraph(text, style="List Bullet")
    document.add_paragraph("calm\tsea")
    assert pages_of("a.docx", saved(document)) == ["# Pilot\n\n- fog\n- rain\n\ncalm\tsea"]


def test_a_style_inherits_from_the_style_that_it_is_based_on(pages_of: PagesOf) -> None:
    document = docx.Document()
    for base in ("Heading 2", "Title", "List Bullet"):
        for number in range(4):
            style: Any = document.styles.add_style(f"My {base} {number}", WD_STYLE_TYPE.PARAGRAPH)
            style.base_style = document.styles[base if number == 0 else f"My {base} {number - 1}"]
            document.add_paragraph("tide", style=style.name)
    (text,) = ["\n".join(pages_of("a.docx", saved(document)))]
    assert [text.count(line) for line in ("## tide", "- tide")] == [4, 4]
    assert text.count("# tide") == 8


def run(text: str, tag: str = "w:t") -> str:
    return f"<w:r><{tag} xml:space='preserve'>{text}</{tag}></w:r>"


def test_what_the_library_leaves_out_is_read_and_what_was_deleted_is_not(pages_of: PagesOf) -> None:
    document: Any = docx.Document()
    body = document.element.body
    box = f"<w:pict><w:txbxContent><w:p>{run('boxed')}</w:p></w:txbxContent></w:pict>"
    inside = (
        f"{run('kept ')}<w:ins>{run('inserted ')}</w:ins><w:del>{run('deleted ', 'w:delText')}</w:del>"
        f"<w:moveFrom>{run('moved away ')}</w:moveFrom><w:hyperlink>{run('linked')}</w:hyperlink>"
        f"<w:r><w:noBreakHyphen/><w:br/>{box}</w:r>"
    )
    control = f"<w:sdt {nsdecls('w')}><w:sdtContent><w:p>{run('in a control')}</w:p></w:sdtContent></w:sdt>"
    body.insert(0, parse_xml(f"<w:p {nsdecls('w')}>{inside}</w:p>"))
    body.insert(1, parse_xml(control))
    assert pages_of("a.docx", saved(document)) == ["kept inserted linked-\n\nboxed\n\nin a control"]


def test_footnotes_follow_their_section(pages_of: PagesOf) -> None:
    document: Any = docx.Document()
    document.add_heading("One", 1)
    paragraph = document.add_paragraph("Tides")
    reference = OxmlElement("w:footnoteReference")
    reference.set(qn("w:id"), "2")
    paragraph.add_run()._r.append(reference)
    document.add_heading("Two", 1)
    data = saved(document)
    footnote = f"<w:footnote w:id='2'><w:p>{run('By the almanac.')}</w:p></w:footnote>"
    note = f"<w:footnotes {nsdecls('w')}>{footnote}</w:footnotes>"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    relationship = f'<Relationship Id="rId99" Type="{kind}" Target="footnotes.xml"/></Relationships>'.encode()
    data = changed(data, "word/footnotes.xml", lambda _: note.encode())
    data = changed(data, "word/_rels/document.xml.rels", lambda old: old.replace(b"</Relationships>", relationship))
    assert pages_of("a.docx", data) == ["# One\n\nTides[^2]\n\n[^2]: By the almanac.", "# Two"]


def test_a_document_without_styles_is_read(pages_of: PagesOf) -> None:
    data = changed(
        docx_of("text"), "word/_rels/document.xml.rels", lambda old: old.replace(b"relationships/styles", b"other")
    )
    assert pages_of("a.docx", data) == ["text"]


HOSTILE: dict[str, tuple[bytes, str]] = {
    "truncated": (docx_of("text")[:-200], "it is damaged"),
    "no office file": (zip_of({"a": "b"}), "it is damaged"),
    "a presentation": (pptx_of(("a", "b")), "it is damaged"),
    "encrypted": (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(2_000, b"\0"),
        "it is encrypted, or has the format of Office",
    ),
    "entities": (
        changed(
            docx_of("text"),
            "word/document.xml",
            lambda old: BILLION_LAUGHS.encode() + old.partition(b"?>")[2].replace(b"text", b"&k;"),
        ),
        "it is damaged",
    ),
    "deep": (
        changed(
            docx_of("text"),
            "word/document.xml",
            lambda old: old.replace(b"<w:body>", b"<w:body>" + b"<w:sdt>" * 99_999),
        ),
        "it is damaged",
    ),
    "a bomb": (zip_of({"word/document.xml": b" " * (300 << 20)}), "unpacked to 300 MiB, and at most 256 MiB"),
    "much in memory": (
        changed(
            docx_of("text"),
            "word/document.xml",
            lambda old: old.replace(
                b"<w:body>",
                b"<w:body>" + b"".join([b"<w:p><w:r><w:t>%d</w:t></w:r></w:p>" % n for n in range(3_000_000)]),
            ),
        ),
        "needs more than 1024 MiB of memory",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_docx_gets_an_error_and_the_next_one_is_read(published: Folder, papers: Path, case: str) -> None:
    data, reason = HOSTILE[case]
    (papers / "hostile.docx").write_bytes(data)
    (papers / "good.docx").write_bytes(docx_of("good"))
    with pytest.raises(InvalidArgument, match=f"hostile.docx has no text here, because .*{reason}"):
        published.read(f"{published.uri}/hostile.docx?text")
    assert published.read(f"{published.uri}/good.docx?text").contents[0].text == "[section 1 of 1]\ngood\n\n"


def test_external_entities_are_not_read(published: Folder, papers: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hunter2")
    declared = f'<!DOCTYPE x [<!ENTITY s SYSTEM "file://{tmp_path}/secret.txt">]>'.encode()
    data = changed(
        docx_of("text"), "word/document.xml", lambda old: declared + old.partition(b"?>")[2].replace(b"text", b"a&s;b")
    )
    (papers / "a.docx").write_bytes(data)
    try:
        text = str(published.read(f"{published.uri}/a.docx?text").contents[0].text)
    except InvalidArgument as error:
        text = str(error)
    assert "hunter2" not in text
