"""Declared types that contradict the content are reported, and other types are not."""

from __future__ import annotations

import codecs
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from wharfinger.content.mime import by_name, classify, decode_text
from wharfinger.content.mime_check import MAX_PARSED_BYTES, contradiction

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
SVG = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
XML = b'<?xml version="1.0" encoding="%s"?><buoy name="\xe9"/>'
HTML = "<!doctype html><script>alert(1)</script>"
PAGE = b'<!doctype html><html lang="da"><head>%s<meta charset="%s"><title>Sk\xe6r</title>'


@pytest.mark.parametrize(
    ("declared_type", "content", "message"),
    [
        ("application/json", "{'a': 1}", "declared application/json, but it is not JSON: "),
        ("application/geo+json; charset=utf-8", "nothing", "but it is not JSON"),
        ("application/json", "[" * 100_000, "but it is not JSON"),
        ("image/png", SVG.encode(), "declared image/png, but it begins like image/svg+xml"),
        ("image/png", SVG, "but it begins like image/svg+xml"),
        ("image/png", b"%PDF-1.7\n/JavaScript", "but it begins like application/pdf"),
        ("image/jpeg", HTML.encode(), "but it begins like text/html"),
        ("image/png", b"\0\1\2\3", "but it begins like unknown bytes"),
        ("image/unusual", HTML.encode(), "declared image/unusual, but it is text"),
        ("image/unusual", b"OggS", "but it begins like audio/ogg"),
        ("application/pdf", HTML, "but it begins like text/html"),
        ("application/zip", b"\x1f\x8b\x08", "but it begins like application/gzip"),
        ("text/plain", b"caf\xe9", "declared text/plain, but it is not UTF-8"),
        ("text/plain; charset=ascii", "é".encode(), "but it is not ascii"),
        ("text/plain; charset=nonsense", b"x", "but it is not nonsense"),
        ("text/html", PNG, "but it begins like image/png"),
        ("text/plain", "%PDF-1.7 hidden", "but it begins like application/pdf"),
        ("image/svg+xml", HTML, "but no <svg is at its beginning"),
        ("application/xml", "plain", "but it does not begin with <"),
        ("text/xml", XML % b"us-ascii", "declared text/xml, but it is not us-ascii"),
        ("text/xml; charset=utf-8", XML % b"ISO-8859-1", "but it is not utf-8"),
        ("text/plain", XML % b"ISO-8859-1", "but it is not UTF-8"),
        ("text/html", PAGE % (b"", b"us-ascii"), "declared text/html, but it is not us-ascii"),
        ("text/html; charset=utf-8", PAGE % (b"", b"iso-8859-1"), "but it is not utf-8"),
        ("application/json", "[NaN]", "but it is not JSON: it contains NaN"),
        ("text/plain", b"%PDF-1.7 hidden", "but it begins like application/pdf"),
        ("audio/x-mpegurl", HTML, "declared audio/x-mpegurl, but it is text"),
        ("no type", "x", "'no type' is not a MIME type"),
        ("text/html\r\nset-cookie: a=b", "x", "is not a MIME type"),
    ],
)
def test_a_contradiction_is_explained(declared_type: str, content: bytes | str, message: str) -> None:
    assert message in contradiction(declared_type, content)


@pytest.mark.parametrize(
    ("declared_type", "content"),
    [
        ("", b"x"),
        ("application/json", ' {"a": 1}\n'),
        ("application/json", "\ufeff[]"),
        ("image/png", PNG),
        ("IMAGE/PNG; x=y", PNG),
        ("image/png", b""),
        ("image/svg+xml", '<?xml version="1.0"?><!-- x --><SVG/>'),
        ("text/plain", "é <html>"),
        ("text/plain", HTML),
        ("text/plain; charset=windows-1252", b"caf\xe9"),
        ("text/plain", "\ufeffé".encode("utf-16")),
        ("application/epub+zip", b"PK\x03\x04"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK\x03\x04"),
        ("application/vnd.ms-excel", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        ("audio/mpeg", b"\xff\xf2\x40\xc0"),
        ("video/webm", b"\x1a\x45\xdf\xa3"),
        ("application/octet-stream", PNG),
        ("application/vnd.unknown", PNG),
        ("image/unusual", b"\0\1\2"),
        ("application/xml", "<buoy/>".encode("utf-16")),
        ("application/xml", codecs.BOM_UTF32_LE + "<buoy/>".encode("utf-32-le")),
        ("application/xml; charset=utf-16", "<buoy/>".encode("utf-16")),
        ("image/svg+xml", SVG.encode("utf-16")),
        ("application/xml", XML % b"ISO-8859-1"),
        ("application/atom+xml", (XML % b"windows-1251").replace(b'"', b"'")),
        ("text/xml", b"<?xml version='1.0' encoding='utf-16'?><buoy/>"),
        ("text/html", PAGE % (b"", b"iso-8859-1")),
        ("text/html", PAGE.replace(b'"', b"'") % (b"", b"windows-1252")),
        ("text/html", b'<META content="text/html; charset=ISO-8859-1" http-equiv="Content-Type"><p>Sk\xe6r'),
        ("application/json", codecs.BOM_UTF16_BE + '{"a": 1}'.encode("utf-16-be")),
        ("application/json; charset=windows-1252", b'["caf\xe9"]'),
        ("application/json", "[1e400]"),
        ("application/json", r'["\ud800"]'),
        ("application/json", "1" * 5_000),
        ("text/plain", b"ID3 tags explained\n"),
        ("text/csv", b"PAR1,PAR2\n"),
        ("audio/x-m4a", b"\0\0\0\x20ftypisom"),
        ("audio/3gpp", b"\0\0\0\x20ftyp3gp4"),
        ("image/heif", b"\0\0\0\x20ftyphevc"),
        ("audio/x-matroska", b"\x1a\x45\xdf\xa3"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml", "<w:document/>"),
        ("application/vnd.oasis.opendocument.text-flat-xml", "<office:document/>"),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        ("audio/x-mpegurl", "#EXTM3U\nhorn.mp3\n"),
        ("image/x-xbitmap", "#define buoy_width 8\n"),
        ("inode/directory", "x"),
    ],
)
def test_content_that_matches_its_type_is_not_reported(declared_type: str, content: bytes | str) -> None:
    assert contradiction(declared_type, content) == ""


@pytest.mark.parametrize("charset", ["zlib", "bz2", "hex", "rot13", "uu", "idna", "unicode-escape"])
def test_codecs_that_are_not_encodings_of_text_are_reported_and_not_run(charset: str) -> None:
    declared_type = f"text/plain; charset={charset}"
    assert (
        contradiction(declared_type, zlib.compress(bytes(1 << 20)))
        == f"declared {declared_type}, but it is not {charset}"
    )


def test_a_charset_that_takes_quadratic_time_is_reported_and_not_decoded() -> None:
    declared_type = "text/plain; charset=punycode"
    assert contradiction(declared_type, b"a" * 1_000) == f"declared {declared_type}, but it is not punycode"


def test_only_complete_json_of_a_bounded_size_is_parsed() -> None:
    assert contradiction("application/json", '{"a": ', complete=False) == ""
    assert contradiction("text/plain", "é".encode()[:1], complete=False) == ""
    invalid_json = "{" + " " * (MAX_PARSED_BYTES - 1)
    assert contradiction("application/json", invalid_json)
    assert contradiction("application/json", invalid_json + " ") == ""


@given(st.text(max_size=60), st.binary(max_size=200) | st.text(max_size=200), st.booleans())
def test_any_type_and_content_give_one_line(declared_type: str, content: bytes | str, complete: bool) -> None:
    assert contradiction(declared_type, content, complete=complete).isprintable()


def test_types_of_the_files_of_this_project_are_accepted() -> None:
    start = time.monotonic()
    for folder in ("src", "docs", "tests/content"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".pyc",):
                data = path.read_bytes()
                mime_type = classify(path.name, data[:4096], decode_text(data) is not None)
                assert contradiction(mime_type, data) == "", path
                assert contradiction(by_name(path.name), data) == "", path
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(("end", "outcome"), [(1024, ""), (1025, "declared text/html, but it is not UTF-8")])
def test_the_encoding_of_an_html_document_is_declared_in_its_first_1024_bytes(end: int, outcome: str) -> None:
    declaration = b'<meta charset="koi8-r">'
    page = b"<!doctype html>".ljust(end - len(declaration) + 1) + declaration + "<p>Пирс".encode("koi8-r")
    assert contradiction("text/html", page) == outcome
