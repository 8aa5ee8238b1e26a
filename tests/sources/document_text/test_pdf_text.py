"""The text of PDF files has the words that pdftotext reads, and hostile files are refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.sources.document_text.document_builders import bomb_pdf, encrypted_pdf, pdf_of, pdf_of_objects, stream
from tests.web.conftest import CHROMIUM
from wharfinger.errors import InvalidArgument
from wharfinger.sources.document_text.page_list import MAX_PAGES, PageList
from wharfinger.sources.document_text.pdf_text import read_pdf
from wharfinger.sources.folder.source import Folder

PagesOf = Callable[[str, bytes], list[str]]

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
PAGE = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] %s >>"
HTML = """<!doctype html><meta charset="utf-8"><title>Tides</title>
<style>h1 { break-before: page } h1:first-of-type { break-before: auto } td, th { border: 1px solid }</style>
<h1>Tides of the northern harbours</h1>
<p>High water at Tromsø comes at 14:20, at 3.1 m; “neaps” on the 9<sup>th</sup>. Soundings are in fathoms.</p>
<h1>Ports</h1><table><tr><th>port</th><th>depth</th></tr><tr><td>Bodø</td><td>7.5 m</td></tr></table>
<p style="columns: 2">The first column ends here, and after it there is a second one, which is read next, of course.</p>
<h1>Ελληνικά, кириллица</h1><p>Ο λιμένας είναι ανοιχτός. Гавань открыта.</p><p>Office affine fjord.</p>
"""


def words_of_pdftotext(path: Path) -> list[list[str]]:
    """Return the words of each page, as pdftotext reads them."""
    if shutil.which("pdftotext") is None:
        absent("pdftotext (apt-get install poppler-utils)")
    output = subprocess.run(["pdftotext", "-enc", "UTF-8", str(path), "-"], capture_output=True, check=True).stdout
    return [page.split() for page in output.decode().split("\f")[:-1]]


@pytest.fixture(scope="module")
def browser_pdf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A PDF with embedded fonts, printed by a browser."""
    if CHROMIUM is None:
        absent("chromium (apt-get install chromium)")
    folder = tmp_path_factory.mktemp("printed")
    (folder / "tides.html").write_text(HTML)
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-pdf-header-footer",
        f"--user-data-dir={folder}/user",
    ]
    target = [f"--print-to-pdf={folder}/tides.pdf", f"file://{folder}/tides.html"]
    subprocess.run([CHROMIUM, *options, *target], check=True, capture_output=True, timeout=50)
    return (folder / "tides.pdf").read_bytes()


def test_pages_printed_by_a_browser_have_the_words_that_pdftotext_reads(
    pages_of: PagesOf, papers: Path, browser_pdf: bytes
) -> None:
    pages = pages_of("tides.pdf", browser_pdf)
    assert [page.split() for page in pages] == words_of_pdftotext(papers / "tides.pdf")
    assert pages[0].startswith("Tides of the northern harbours\nHigh water at Tromsø")
    assert "Гавань открыта." in pages[2]


def test_the_example_has_the_words_that_pdftotext_reads(pages_of: PagesOf, papers: Path, root: Path) -> None:
    notice = root / "examples" / "charts" / "notice-12.pdf"
    pages = pages_of("notice.pdf", notice.read_bytes())
    assert [page.split() for page in pages] == words_of_pdftotext(notice)
    assert "".join(pages)


def test_the_lines_of_a_page_are_kept(pages_of: PagesOf) -> None:
    pages = ["Soundings (in fathoms)\nat 14:20 é “q” \\", "", "last"]
    assert pages_of("a.pdf", pdf_of(pages)) == [pages[0], "", "last"]


@pytest.mark.parametrize("is_form", [True, False])
def test_values_of_forms_and_texts_typed_onto_a_page_are_read(pages_of: PagesOf, papers: Path, is_form: bool) -> None:
    font = b"<< /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    form = b"/AcroForm << /Fields [5 0 R 7 0 R] /DR << /Font %s >> >>" % font if is_form else b""
    kind = b"/Subtype /Widget /FT /Tx /T (name) /V (Ada Berth)" if is_form else b"/Subtype /FreeText"
    more = b"7 0 R" if is_form else b""
    text = b"/Type /XObject /Subtype /Form /BBox [0 0 200 25] /Resources << /Font %s >>" % font
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R %s >>" % form,
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        PAGE.replace(b"9 9", b"595 842")
        % (b"/Resources << /Font %s >> /Contents 4 0 R /Annots [5 0 R %s]" % (font, more)),
        stream(b"BT /F1 12 Tf 50 780 Td (Name:) Tj ET"),
        b"<< /Type /Annot %s /Rect [100 770 300 795] /F 4 /AP << /N 6 0 R >> >>" % kind,
        stream(b"/Tx BMC q BT /F1 12 Tf 2 10 Td (Ada Berth) Tj ET Q EMC", text),
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (a) /V (Bodin) /Rect [100 740 300 765] /DA (/F1 12 Tf 0 g) >>",
    ]
    (page,) = pages_of("form.pdf", pdf_of_objects(objects))
    assert page.split() == ["Name:", "Ada", "Berth", *(["Bodin"] if is_form else [])]
    assert [page.split()] == words_of_pdftotext(papers / "form.pdf")


def test_a_word_hyphenated_at_the_end_of_a_line_is_joined(pages_of: PagesOf, papers: Path) -> None:
    (page,) = pages_of("a.pdf", pdf_of(["The harbour mas-\nter of the US-\nAgency said so."]))
    assert page == "The harbour master of the US-Agency said so."
    assert words_of_pdftotext(papers / "a.pdf")[0][:3] == page.split()[:3]


# Hostile


def nested_forms(count: int, uses: int) -> bytes:
    """Return a PDF in which each form draws the next one several times."""
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X %d 0 R >> >>"
    page = PAGE % b"/Resources << /XObject << /X 5 0 R >> >> /Contents 4 0 R"
    drawings = [stream(b"/X Do " * uses, form % (number + 6)) for number in range(count)]
    last = stream(b"BT (x) Tj ET", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9]")
    return pdf_of_objects(
        [CATALOG, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", page, stream(b"/X Do"), *drawings, last]
    )


def nested_page_tree(depth: int) -> bytes:
    """Return a PDF with page tree nodes that are nested to this depth."""
    nodes = [b"<< /Type /Pages /Kids [%d 0 R] /Count 1 >>" % (number + 3) for number in range(depth)]
    return pdf_of_objects([CATALOG, *nodes, b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 9 9] >>" % (depth + 1)])


LIMIT_REACHED = "(1024 MiB of memory|longer than 20 s)"  # a busy machine may reach the time limit first
CYCLIC_TREE = pdf_of_objects([CATALOG, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 900000 >>"])
NESTED_ARRAYS = pdf_of_objects([CATALOG, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", b"[" * 200_000 + b"]" * 200_000])

HOSTILE = {
    "0 bytes": (b"", "it is empty: it has 0 bytes"),
    "no PDF": (b"\0" * 1_000, "it is damaged, or not a PDF"),
    "only a head": (b"%PDF-1.7\n", "it is damaged, or not a PDF"),
    "truncated": (pdf_of(["a b c " * 50] * 30)[:6_000], "it is damaged, or not a PDF"),
    "encrypted": (encrypted_pdf(), "it is encrypted: publish a copy without a password"),
    "a cyclic tree": (CYCLIC_TREE, "none of its pages can be read"),
    "a deep tree": (nested_page_tree(5_000), "none of its pages can be read"),
    "deep arrays": (NESTED_ARRAYS, "none of its pages can be read"),
    "forms in forms": (nested_forms(12, 10), LIMIT_REACHED),
    "a stream that grows": (bomb_pdf(3_000), LIMIT_REACHED),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pdf_is_refused_and_the_next_file_is_read(published: Folder, papers: Path, case: str) -> None:
    data, reason = HOSTILE[case]
    (papers / "hostile.pdf").write_bytes(data)
    (papers / "good.pdf").write_bytes(pdf_of(["good"]))
    uri = f"{published.uri}/hostile.pdf"
    with pytest.raises(InvalidArgument, match=f"hostile.pdf has no text here, because .*{reason}"):
        published.read(f"{uri}?text")
    blob = published.read(uri).contents[0]
    assert (blob.blob or blob.text.encode()) == data or len(data) > 1 << 20
    assert published.read(f"{published.uri}/good.pdf?pages=1").contents[0].text == "[page 1 of 1]\ngood\n\n"


def test_the_error_of_a_document_is_not_reported_for_the_next_document(published: Folder, papers: Path) -> None:
    """PDFium keeps the code of its last error, and does not set a code for every error."""
    (papers / "a.pdf").write_bytes(encrypted_pdf())
    (papers / "b.pdf").write_bytes(pdf_of_objects([CATALOG, b"<< /Type /Pages /Kids [3 0 R] /Count 2000000 >>"]))
    with pytest.raises(InvalidArgument, match="encrypted"):
        published.read(f"{published.uri}/a.pdf?text")
    with pytest.raises(InvalidArgument, match="damaged"):
        published.read(f"{published.uri}/b.pdf?text")


@pytest.mark.parametrize("count", [1_000_000_000, 100_000, -1])
def test_only_pages_that_exist_are_counted(pages_of: PagesOf, papers: Path, published: Folder, count: int) -> None:
    kids = [CATALOG, b"<< /Type /Pages /Kids [3 0 R] /Count %d >>" % count, PAGE % b""]
    assert pages_of("a.pdf", pdf_of_objects(kids)) == [""]
    if count == 100_000:
        remark = published.read(f"{published.uri}/a.pdf?text").contents[1].text
        assert remark == (
            "\n[9,999 of its first 10,000 pages are damaged, and empty or left out here. Later pages were not read.]\n"
        )


@pytest.mark.parametrize("extra_pages", [0, 1])
def test_the_number_of_pages_read_is_bounded(extra_pages: int) -> None:
    data = pdf_of(["x"] * (MAX_PAGES + extra_pages))
    pages = PageList()
    try:
        read_pdf(data, pages)
    except Exception as error:
        assert extra_pages
        assert type(error).__name__ == "TooMuchText"
    assert pages.pages == ["x"] * MAX_PAGES
    assert pages.cut == ("Only the first 10,000 pages were read." if extra_pages else "")


def test_a_pdf_without_text_is_reported(published: Folder, papers: Path) -> None:
    (papers / "scan.pdf").write_bytes(pdf_of(["", ""]))
    text, remark = published.read(f"{published.uri}/scan.pdf?text").contents
    assert text.text == "[page 1 of 2: no text]\n\n[page 2 of 2: no text]\n\n"
    assert "scanned paper" in str(remark.text)
