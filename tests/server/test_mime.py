"""What content is: its bytes outweigh its name, and this machine's tables have no say."""

from __future__ import annotations

import pytest

from wharfinger.server import mime

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


@pytest.mark.parametrize("data", [b"a\0b", b"\xff", b"\xc0\x80", b"\xff\xfea", b"\xff\xfe\0\xd8", b"\xff\xfe\0\0"])
def test_what_is_no_text_is_not_decoded(data: bytes) -> None:
    assert mime.decode_text(data) is None


def test_the_beginning_of_a_text_may_end_within_a_character() -> None:
    assert mime.begins_text("é".encode()[:1])
    assert mime.begins_text(b"\xff\xfea\0b")
    assert not mime.begins_text(b"\xff\xff")
    assert not mime.begins_text(b"a\0")
