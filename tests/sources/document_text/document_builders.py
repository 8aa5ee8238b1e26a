"""Builders of documents: PDFs byte by byte, some of them hostile, and other formats with common libraries."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence

import docx
import pptx

__all__ = [
    "bomb_pdf",
    "docx_of",
    "encrypted_pdf",
    "epub_of",
    "pdf_of",
    "pdf_of_objects",
    "pptx_of",
    "stream",
    "to_bytes",
    "zip_of",
]


def pdf_of(pages: Sequence[str]) -> bytes:
    """Return a PDF whose pages have these lines of text, in a standard font."""
    first = 4
    kids = " ".join([f"{first + 2 * number} 0 R" for number in range(len(pages))])
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, text in enumerate(pages):
        content = first + 2 * number + 1
        resources = "/Resources << /Font << /F1 3 0 R >> >>"
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {resources} /Contents {content} 0 R >>"
        lines = b" T* ".join([b"(" + _escape(line) + b") Tj" for line in text.split("\n")])
        objects += [page.encode(), stream(b"BT /F1 12 Tf 14 TL 50 780 Td " + lines + b" ET")]
    return pdf_of_objects(objects)


def _escape(line: str) -> bytes:
    return line.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """Return a stream object with this data and these further dictionary entries."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


def pdf_of_objects(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """Return a PDF with these objects, numbered from 1, of which the first is the catalog."""
    data = bytearray(b"%PDF-1.7\n")
    offsets = list[int]()
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join([b"%010d 00000 n \n" % offset for offset in offsets])
    size = len(objects) + 1
    return bytes(data) + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n"
        % (size, table, size, trailer, len(data))
    )


def encrypted_pdf() -> bytes:
    """Return a PDF that is encrypted with an unknown password."""
    secret = b"<" + b"5a" * 32 + b">"
    encrypt = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O %s /U %s >> /ID [<00> <00>]" % (secret, secret)
    plain = pdf_of(["hidden"])
    objects = [part.partition(b"\n")[2] for part in plain.split(b"xref")[0].split(b" obj")[1:]]
    return pdf_of_objects([part.partition(b"\nendobj")[0] for part in objects], encrypt)


def bomb_pdf(megabytes: int) -> bytes:
    """Return a PDF with one page, whose content is this many megabytes of spaces, compressed twice."""
    compressor = zlib.compressobj(9)
    head = compressor.compress(b"") + compressor.flush(zlib.Z_FULL_FLUSH)
    block = compressor.compress(b" " * (10 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)  # a full flush lets it repeat
    packed = zlib.compress(head + block * (megabytes // 10) + compressor.flush(), 9)
    return pdf_of_objects(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
            stream(packed, b"/Filter [/FlateDecode /FlateDecode]"),
        ]
    )


def docx_of(*texts: str) -> bytes:
    """Return a DOCX with these paragraphs. A text that begins with `#` is a heading of that level."""
    document = docx.Document()
    for text in texts:
        if text.startswith("#"):
            level = len(text) - len(text.lstrip("#"))
            document.add_heading(text.lstrip("# "), level)
        else:
            document.add_paragraph(text)
    return to_bytes(document)


def pptx_of(*slides: tuple[str, str]) -> bytes:
    """Return a PPTX with these slides, each with a title and a text."""
    presentation = pptx.Presentation()
    for title, text in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    return to_bytes(presentation)


def to_bytes(document: docx.document.Document | pptx.presentation.Presentation) -> bytes:
    """Return the bytes of a document of python-docx or python-pptx."""
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()


def epub_of(*chapters: str, more_files: Mapping[str, str | bytes] | None = None) -> bytes:
    """Return an EPUB whose chapters have these XHTML bodies, with these further files."""
    xhtml = "application/xhtml+xml"
    items = "".join([f'<item id="c{n}" href="text/c%20{n}.xhtml" media-type="{xhtml}"/>' for n in range(len(chapters))])
    spine = "".join([f'<itemref idref="c{n}"/>' for n in range(len(chapters))])
    container = '<rootfiles><rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles>'
    files: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        f"{container}</container>",
        "OPS/book.opf": f'<package xmlns="http://www.idpf.org/2007/opf">'
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
        **{
            f"OPS/text/c {number}.xhtml": '<?xml version="1.0" encoding="utf-8"?>'
            f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>t</title></head><body>{body}</body></html>'
            for number, body in enumerate(chapters)
        },
        **(more_files or {}),
    }
    return zip_of(files)


def zip_of(files: Mapping[str, str | bytes]) -> bytes:
    """Return a ZIP archive with these files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()
