"""What content is: its bytes outweigh its name, and this machine's tables have no say."""

from __future__ import annotations

import pytest

from wharfinger.content import mime

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.ts", "text/x-typescript"),
        ("main.rs", "text/x-rust"),
        ("A.PY", "text/x-python"),
        ("README", "text/plain"),
        ("Makefile", "text/x-makefile"),
        ("a.tar.gz", "application/gzip"),
        ("notes.md", "text/markdown"),
        ("data.parquet", "application/vnd.apache.parquet"),
        ("x.ipynb", "application/x-ipynb+json"),
        ("unknown", ""),
        ("a.unknown", ""),
        ("", ""),
        ("route.gpx", "application/gpx+xml"),
        ("chart.jxl", "image/jxl"),
        ("hull.eml", "message/rfc822"),
    ],
)
def test_a_name_promises_a_type(name: str, expected: str) -> None:
    assert mime.by_name(name) == expected


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", PNG, "image/png"),
        ("a", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("a.txt", b"%PDF-1.4 plain", "application/pdf"),
        ("a.png", b"not a picture", "text/plain"),
        ("a.docx", b"PK\x03\x04\xff", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.txt", b"PK\x03\x04\xff", "application/zip"),
        ("a.ts", b"let a = 1", "text/x-typescript"),
        ("a.ts", b"\x47" + b"\xff" * 187 + b"\x47" + b"\xff" * 187 + b"\x47", "video/mp2t"),
        ("a.csv", "Fähre".encode("latin-1"), "text/csv"),
        ("a.csv", b"a\0\xff", "application/octet-stream"),
        ("a", b"#!/usr/bin/env python3\n", "text/x-python"),
        ("a", b"#!/bin/bash\n", "text/x-shellscript"),
        ("a", b"hello", "text/plain"),
        ("a", b"\xfe\xed\xff", "application/octet-stream"),
        ("a.webp", b"RIFF\xff\0\0\0WEBP", "image/webp"),
        ("a.svg", b"<svg/>", "image/svg+xml"),
        ("ID3.md", b"ID3 tags and BZh files", "text/markdown"),
        ("a.mp4", b"\0\0\0\x18ftypisom", "video/mp4"),
        ("route.gpx", b"<gpx/>", "application/gpx+xml"),
        ("a.gpx", b"\xff\0", "application/octet-stream"),
        ("a", b"\xff\xf1\x50\x80", "audio/aac"),
        ("a", b"\0" * 128 + b"DICM", "application/dicom"),
        ("a.html", b"CDF\x01\xff", "application/x-netcdf"),
        ("setup.bin", b"MZ\x90\x00\x03", "application/vnd.microsoft.portable-executable"),
        ("a.kmz", b"PK\x03\x04\xff", "application/vnd.google-earth.kmz"),
        ("a.db", b"SQLite format 3\0\xff", "application/vnd.sqlite3"),
    ],
)  # fmt: skip
def test_content_outweighs_the_name(name: str, data: bytes, expected: str) -> None:
    assert mime.classify(name, data, mime.decode_text(data) is not None) == expected


@pytest.mark.parametrize("text", ["", "a\r\nb\n\rc", "\ufeffmark", "日本語", "\x01\x1b["])
def test_utf8_is_text_and_stays_as_it_is(text: str) -> None:
    assert mime.decode_text(text.encode()) == (text, "utf-8")


def test_utf16_with_its_mark_is_decoded_and_told() -> None:
    assert mime.decode_text(b"\xff\xfea\0\r\0\n\0") == ("a\r\n", "utf-16-le")
    assert mime.decode_text(b"\xfe\xff\0a") == ("a", "utf-16-be")


def test_what_looks_like_a_text_of_a_signature_is_none() -> None:
    text = "Fähre und Kähne ".encode("latin-1")
    assert mime.decode_text(text) == ("Fähre und Kähne ", "windows-1252")
    assert mime.decode_text(b"FLV\x01".replace(b"\x01", b"") + text) is not None
    assert mime.decode_text(b"AT&TFORM" + text) is None
    assert mime.encoding_of(b"AT&TFORM" + text, True) == mime.encoding_of(b"AT&TFORM" + text, False) == ""


def test_a_guess_is_what_nothing_but_its_look_tells() -> None:
    assert mime.is_guess(b"F\xe4hre", "windows-1252")
    assert mime.is_guess(b"a\0b\0", "utf-16-le")
    assert not mime.is_guess(b"\xff\xfea\0", "utf-16-le")
    assert not mime.is_guess(b"a", "utf-8")


@pytest.mark.parametrize("data", [b"a\0b", b"\xff", b"\xc0\x80", b"\xff\xfea", b"\xff\xfe\0\xd8", b"\xff\xfe\0\0a"])
def test_what_is_no_text_is_not_decoded(data: bytes) -> None:
    assert mime.decode_text(data) is None


def test_the_beginning_of_a_text_may_end_within_a_character() -> None:
    assert mime.begins_text("é".encode()[:1])
    assert mime.begins_text(b"\xff\xfea\0b")
    assert not mime.begins_text(b"\xff\xff")
    assert not mime.begins_text(b"a\0")
