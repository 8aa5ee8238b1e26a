"""The text of EPUB files equals the text that was written into them, and hostile files are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sources.document_text.document_builders import epub_of, zip_of
from tests.sources.document_text.test_docx_text import BILLION_LAUGHS
from wharfinger.errors import InvalidArgument
from wharfinger.sources.folder.source import Folder

PagesOf = Callable[[str, bytes], list[str]]
LIST = "<ul><li>fog</li><li>rain</li></ul><script>alert(1)</script>"
CONTAINER = "META-INF/container.xml"


def test_each_chapter_is_a_page_of_markdown(pages_of: PagesOf) -> None:
    chapters = (
        "<h1>Tides</h1><p>High water at <b>14:20</b>,\n see <a href='c2.xhtml#x'>ports</a>.</p>" + LIST,
        "<p>1 &lt; 2 &amp; 3&#160;m</p><pre>a\n  b</pre>",
        "<table><tr><th>port</th><th>depth</th></tr><tr><td>Bodø</td><td>7.5</td></tr></table><img src='a.png'/>",
        "",
    )
    assert pages_of("a.epub", epub_of(*chapters)) == [
        "# Tides\n\nHigh water at **14:20**,\nsee ports.\n\n- fog\n- rain",
        "1 < 2 & 3 m\n\n```\na\n  b\n```",
        "| port | depth |\n| --- | --- |\n| Bodø | 7.5 |",
        "",
    ]


def test_chapters_follow_the_spine_and_a_missing_chapter_is_empty(pages_of: PagesOf) -> None:
    media_type = "application/xhtml+xml"
    items = "".join([f'<item id="{name}" href="{name}.xhtml" media-type="{media_type}"/>' for name in "abc"])
    spine = '<itemref idref="c"/><itemref idref="b"/><itemref idref="none"/><itemref idref="a" linear="no"/>'
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>'
    )
    files = {
        CONTAINER: '<container><rootfiles><rootfile full-path="p.opf"/></rootfiles></container>',
        "p.opf": package,
        "a.xhtml": "<p>a</p>",
        "c.xhtml": "<p>cé</p>".encode("utf-16"),
    }
    assert pages_of("a.epub", zip_of(files)) == ["cé", "", "", "a"]


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        ("iso-8859-1", "latin-1"),
        ("windows-1252", "windows-1252"),
        ("ISO-8859-5", "iso-8859-5"),
        ("UTF-8", "utf-8"),
        ("utf-16", "utf-8"),
        ("hex", "utf-8"),
        ("punycode", "utf-8"),
        ("none", "utf-8"),
    ],
)
def test_the_encoding_that_a_chapter_declares_is_used(pages_of: PagesOf, declared: str, encoding: str) -> None:
    text = "прилив" if declared == "ISO-8859-5" else "Bodø, é"
    chapter = f"<?xml version='1.0' encoding='{declared}'?>\n<html><body><p>{text}</p></body></html>".encode(encoding)
    assert pages_of("a.epub", epub_of("", more_files={"OPS/text/c 0.xhtml": chapter})) == [text]


EMPTY_ELEMENTS = {
    "title": "<head><title/></head><body><p>chapter text</p></body>",
    "script": '<head><script src="a.js"/></head><body><p>chapter text</p></body>',
    "textarea": "<body><textarea rows='1' /><p>chapter text</p></body>",
    "void elements": '<head><meta charset="utf-8"/></head><body><p>chapter<br/>text</p><hr /></body>',
}


@pytest.mark.parametrize("case", EMPTY_ELEMENTS)
def test_the_text_after_an_empty_element_is_kept(pages_of: PagesOf, case: str) -> None:
    """Regression: `<title/>`, which HTML does not close, lost the whole chapter."""
    chapter = f'<html xmlns="http://www.w3.org/1999/xhtml">{EMPTY_ELEMENTS[case]}</html>'
    (page,) = pages_of("a.epub", epub_of("", more_files={"OPS/text/c 0.xhtml": chapter}))
    assert page.replace("---", "").split() == ["chapter", "text"]


def test_cdata_sections_are_text(pages_of: PagesOf) -> None:
    chapter = "<p>if <![CDATA[a < b && c/>]]> then<![CDATA[]]>, else</p><style><![CDATA[p { color: red }]]></style>"
    assert pages_of("a.epub", epub_of(chapter)) == ["if a < b && c/> then, else"]


DRM = '<encryption><EncryptedData><CipherData><CipherReference URI="{}"/></CipherData></EncryptedData></encryption>'

HOSTILE = {
    "no EPUB": (zip_of({"a": "b"}), "it names no package document"),
    "truncated": (epub_of("<p>x</p>")[:-100], "it is damaged"),
    "entities": (
        epub_of("<p>x</p>", more_files={"OPS/book.opf": BILLION_LAUGHS + "<package>&k;</package>"}),
        "it names no package document",
    ),
    "outside": (
        epub_of("<p>x</p>", more_files={CONTAINER: '<container><rootfile full-path="../../etc/passwd"/></container>'}),
        "it names no package document",
    ),
    "an external entity": (
        epub_of(
            "<p>x</p>",
            more_files={
                CONTAINER: '<!DOCTYPE c [<!ENTITY x SYSTEM "file:///etc/hostname">]><container>'
                '<rootfile full-path="&x;"/></container>'
            },
        ),
        "it names no package document",
    ),
    "no chapters": (epub_of(), "it lists no chapters"),
    "DRM": (
        epub_of("<p>x</p>", more_files={"META-INF/encryption.xml": DRM.format("OPS/text/c%200.xhtml")}),
        "its chapters are encrypted",
    ),
    "a bomb": (
        epub_of("<p>x</p>", more_files={"OPS/text/c 0.xhtml": b"<p>" + b" " * (5 << 20)}),
        "more than 200 times",
    ),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_epub_is_refused(published: Folder, papers: Path, case: str) -> None:
    data, reason = HOSTILE[case]
    (papers / "hostile.epub").write_bytes(data)
    with pytest.raises(InvalidArgument, match=f"hostile.epub has no text here, because .*{reason}"):
        published.read(f"{published.uri}/hostile.epub?text")


def test_an_epub_with_encrypted_fonts_is_read(pages_of: PagesOf) -> None:
    encryption = {"META-INF/encryption.xml": DRM.format("OPS/a.ttf")}
    assert pages_of("a.epub", epub_of("<p>x</p>", more_files=encryption)) == ["x"]


def test_entities_and_nesting_in_a_chapter_are_bounded(pages_of: PagesOf) -> None:
    bomb = f"{BILLION_LAUGHS}<html><body><p>before &k; after</p></body></html>"
    pages = pages_of("a.epub", epub_of("<p>x</p>", "<div>" * 200_000 + "deep", more_files={"OPS/text/c 0.xhtml": bomb}))
    assert len("".join(pages)) < 1_000
    assert "before" in pages[0]
