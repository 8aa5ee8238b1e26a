"""The text of DOCX files equals the text that was written into them, and hostile files are refused."""

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
from docx.enum.text import WD_BREAK
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import nsdecls, qn

from tests.sources.document_text.document_builders import docx_of, pptx_of, to_bytes, zip_of
from wharfinger.errors import InvalidArgument
from wharfinger.sources.folder.source import Folder

PagesOf = Callable[[str, bytes], list[str]]

ENTITIES = "".join([f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(10)])
BILLION_LAUGHS = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">{ENTITIES}]>'


def replace_member(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return this ZIP archive with one file changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {member: archive.read(member) for member in archive.namelist()}
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
    assert pages_of("a.docx", to_bytes(document)) == [
        "Before the first heading.",
        "# Tides\n\nHigh water at 14:20.\n\n## Neaps",
        "After the break.",
        "A new section.\n\nThe same page.",
        "Before it, a page break.",
        "# Ports",
    ]


def test_sections_begin_at_the_highest_heading_level_of_the_document(pages_of: PagesOf) -> None:
    assert pages_of("a.docx", docx_of("## One", "a", "### Deeper", "## Two")) == ["## One\n\na\n\n### Deeper", "## Two"]


def test_a_document_without_headings_is_one_section(pages_of: PagesOf) -> None:
    assert pages_of("a.docx", docx_of("one", "two")) == ["one\n\ntwo"]
    assert pages_of("b.docx", docx_of()) == [""]


def test_tables_become_markdown(pages_of: PagesOf) -> None:
    document = docx.Document()
    table = document.add_table(3, 3)
    for row, texts in enumerate([("port", "depth | m", "x"), ("Bodø", "7.5\nat low water", "y"), ("a", "b", "c")]):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(2, 0).merge(table.cell(2, 1))
    table.cell(0, 2).merge(table.cell(1, 2))
    (page,) = pages_of("a.docx", to_bytes(document))
    assert page == ("| port | depth \\| m | x y |\n| --- | --- | --- |\n| Bodø | 7.5 at low water |  |\n| a b |  | c |")


def test_lists_and_titles_become_markdown(pages_of: PagesOf) -> None:
    document = docx.Document()
    document.add_heading("Pilot", 0)
    for text in ("fog", "rain"):
        document.add_paragraph(text, style="List Bullet")
    document.add_paragraph("calm\tsea")
    assert pages_of("a.docx", to_bytes(document)) == ["# Pilot\n\n- fog\n- rain\n\ncalm\tsea"]


@pytest.mark.parametrize(
    ("style", "line"),
    [("Title", "# Two"), ("List Bullet", "- Two"), ("Heading 1", "# Two"), (None, "Two")],
)
def test_a_paragraph_that_begins_with_a_page_break_keeps_its_mark(
    pages_of: PagesOf, style: str | None, line: str
) -> None:
    """A bug: the mark stayed on the page before, alone, or was lost."""
    document = docx.Document()
    document.add_paragraph("Intro text")
    paragraph = document.add_paragraph(style=style)
    paragraph.add_run().add_break(WD_BREAK.PAGE)
    paragraph.add_run("Two")
    document.add_paragraph("More")
    assert pages_of("a.docx", to_bytes(document)) == ["Intro text", f"{line}\n\nMore"]


def test_a_page_break_within_a_heading_or_after_it_leaves_its_mark_before_it(pages_of: PagesOf) -> None:
    document = docx.Document()
    document.add_heading("One", 1).add_run().add_break(WD_BREAK.PAGE)
    heading = document.add_heading("Two\twords", 1)
    heading.add_run().add_break(WD_BREAK.PAGE)
    heading.add_run("go  on")
    assert pages_of("a.docx", to_bytes(document)) == ["# One", "# Two words", "go on"]


def test_a_style_inherits_from_its_base_style(pages_of: PagesOf) -> None:
    document = docx.Document()
    for base in ("Heading 2", "Title", "List Bullet"):
        for number in range(4):
            style: Any = document.styles.add_style(f"My {base} {number}", WD_STYLE_TYPE.PARAGRAPH)
            style.base_style = document.styles[base if number == 0 else f"My {base} {number - 1}"]
            document.add_paragraph("tide", style=style.name)
    text = "\n".join(pages_of("a.docx", to_bytes(document)))
    assert [text.count(line) for line in ("## tide", "- tide")] == [4, 4]
    assert text.count("# tide") == 8


def run(text: str, tag: str = "w:t") -> str:
    """Return the XML of a run with this text."""
    return f"<w:r><{tag} xml:space='preserve'>{text}</{tag}></w:r>"


def test_text_that_python_docx_skips_is_read_and_deleted_text_is_not(pages_of: PagesOf) -> None:
    document: Any = docx.Document()
    body = document.element.body
    box = f"<w:pict><w:txbxContent><w:p>{run('boxed')}</w:p></w:txbxContent></w:pict>"
    content = (
        f"{run('kept ')}<w:ins>{run('inserted ')}</w:ins><w:del>{run('deleted ', 'w:delText')}</w:del>"
        f"<w:moveFrom>{run('moved away ')}</w:moveFrom><w:hyperlink>{run('linked')}</w:hyperlink>"
        f"<w:r><w:noBreakHyphen/><w:br/>{box}</w:r>"
    )
    control = f"<w:sdt {nsdecls('w')}><w:sdtContent><w:p>{run('in a control')}</w:p></w:sdtContent></w:sdt>"
    body.insert(0, parse_xml(f"<w:p {nsdecls('w')}>{content}</w:p>"))
    body.insert(1, parse_xml(control))
    assert pages_of("a.docx", to_bytes(document)) == ["kept inserted linked-\n\nboxed\n\nin a control"]


def test_footnotes_follow_their_section(pages_of: PagesOf) -> None:
    document: Any = docx.Document()
    document.add_heading("One", 1)
    paragraph = document.add_paragraph("Tides")
    reference = OxmlElement("w:footnoteReference")
    reference.set(qn("w:id"), "2")
    paragraph.add_run()._r.append(reference)
    document.add_heading("Two", 1)
    data = to_bytes(document)
    footnote = f"<w:footnote w:id='2'><w:p>{run('By the almanac.')}</w:p></w:footnote>"
    footnotes = f"<w:footnotes {nsdecls('w')}>{footnote}</w:footnotes>"
    relationship_type = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    relationship = (
        f'<Relationship Id="rId99" Type="{relationship_type}" Target="footnotes.xml"/></Relationships>'.encode()
    )
    data = replace_member(data, "word/footnotes.xml", lambda _: footnotes.encode())
    data = replace_member(
        data, "word/_rels/document.xml.rels", lambda old: old.replace(b"</Relationships>", relationship)
    )
    assert pages_of("a.docx", data) == ["# One\n\nTides[^2]\n\n[^2]: By the almanac.", "# Two"]


def test_a_document_without_styles_is_read(pages_of: PagesOf) -> None:
    data = replace_member(
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
        replace_member(
            docx_of("text"),
            "word/document.xml",
            lambda old: BILLION_LAUGHS.encode() + old.partition(b"?>")[2].replace(b"text", b"&k;"),
        ),
        "it is damaged",
    ),
    "deep": (
        replace_member(
            docx_of("text"),
            "word/document.xml",
            lambda old: old.replace(b"<w:body>", b"<w:body>" + b"<w:sdt>" * 99_999),
        ),
        "it is damaged",
    ),
    "a bomb": (zip_of({"word/document.xml": b" " * (300 << 20)}), "unpacked to 300 MiB, and at most 256 MiB"),
    "much in memory": (
        replace_member(
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
def test_a_hostile_docx_is_refused_and_the_next_file_is_read(published: Folder, papers: Path, case: str) -> None:
    data, reason = HOSTILE[case]
    (papers / "hostile.docx").write_bytes(data)
    (papers / "good.docx").write_bytes(docx_of("good"))
    with pytest.raises(InvalidArgument, match=f"hostile.docx has no text here, because .*{reason}"):
        published.read(f"{published.uri}/hostile.docx?text")
    assert published.read(f"{published.uri}/good.docx?text").contents[0].text == "[section 1 of 1]\ngood\n\n"


def test_external_entities_are_not_read(published: Folder, papers: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hunter2")
    declaration = f'<!DOCTYPE x [<!ENTITY s SYSTEM "file://{tmp_path}/secret.txt">]>'.encode()
    data = replace_member(
        docx_of("text"),
        "word/document.xml",
        lambda old: declaration + old.partition(b"?>")[2].replace(b"text", b"a&s;b"),
    )
    (papers / "a.docx").write_bytes(data)
    try:
        text = str(published.read(f"{published.uri}/a.docx?text").contents[0].text)
    except InvalidArgument as error:
        text = str(error)
    assert "hunter2" not in text
