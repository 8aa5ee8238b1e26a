"""MIME types: the content takes precedence over the name, and the MIME tables of the operating system are not used."""

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
def test_the_type_of_a_name_comes_from_its_suffix(name: str, expected: str) -> None:
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
def test_the_content_takes_precedence_over_the_name(name: str, data: bytes, expected: str) -> None:
    assert mime.classify(name, data, mime.decode_text(data) is not None) == expected


@pytest.mark.parametrize("text", ["", "a\r\nb\n\rc", "\ufeffmark", "日本語", "\x01\x1b["])
def test_utf8_is_decoded_unchanged(text: str) -> None:
    assert mime.decode_text(text.encode()) == (text, "utf-8")


def test_utf16_with_a_byte_order_mark_is_decoded_and_reported() -> None:
    assert mime.decode_text(b"\xff\xfea\0\r\0\n\0") == ("a\r\n", "utf-16-le")
    assert mime.decode_text(b"\xfe\xff\0a") == ("a", "utf-16-be")


def test_data_with_a_signature_is_not_decoded_as_text() -> None:
    text = "Fähre und Kähne ".encode("latin-1")
    assert mime.decode_text(text) == ("Fähre und Kähne ", "windows-1252")
    assert mime.decode_text(b"FLV\x01".replace(b"\x01", b"") + text) is not None
    assert mime.decode_text(b"AT&TFORM" + text) is None
    assert mime.encoding_of(b"AT&TFORM" + text, True) == mime.encoding_of(b"AT&TFORM" + text, False) == ""


def test_an_encoding_other_than_utf8_without_a_byte_order_mark_is_a_guess() -> None:
    assert mime.is_guess(b"F\xe4hre", "windows-1252")
    assert mime.is_guess(b"a\0b\0", "utf-16-le")
    assert not mime.is_guess(b"\xff\xfea\0", "utf-16-le")
    assert not mime.is_guess(b"a", "utf-8")


@pytest.mark.parametrize("data", [b"a\0b", b"\xff", b"\xc0\x80", b"\xff\xfea", b"\xff\xfe\0\xd8", b"\xff\xfe\0\0a"])
def test_binary_data_is_not_decoded(data: bytes) -> None:
    assert mime.decode_text(data) is None


def test_begins_text_accepts_an_incomplete_last_character() -> None:
    assert mime.begins_text("é".encode()[:1])
    assert mime.begins_text(b"\xff\xfea\0b")
    assert not mime.begins_text(b"\xff\xff")
    assert not mime.begins_text(b"a\0")


SIGNATURES = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"BZh9", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\xfe" * 257 + b"ustar", "application/x-tar"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"ARROW1\x00\x00", "application/vnd.apache.arrow.file"),
    (b"Obj\x01", "application/avro"),
    (b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    (b"\x93NUMPY", "application/x-numpy"),
    (b"\x00asm", "application/wasm"),
    (b"\x7fELF", "application/x-executable"),
    (b"\xcf\xfa\xed\xfe", "application/x-mach-binary"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"\x04\x22\x4d\x18", "application/x-lz4"),
    (b"!<arch>\ndebian", "application/vnd.debian.binary-package"),
    (b"\xed\xab\xee\xdb", "application/x-rpm"),
    (b"MZ\x90\x00", "application/vnd.microsoft.portable-executable"),
    (b"\xd4\xc3\xb2\xa1", "application/vnd.tcpdump.pcap"),
    (b"glTF\x02\x00", "model/gltf-binary"),
    (b"CDF\x01", "application/x-netcdf"),
    (b"\xfe" * 128 + b"DICM", "application/dicom"),
    (b"\0\0\0\x0cjP  ", "image/jp2"),
    (b"\0\0\0\x0cJXL ", "image/jxl"),
    (b"AT&TFORM", "image/vnd.djvu"),
    (b"FLV\x01", "video/x-flv"),
    (b"\xfe" * 8 + b"AIFF", "audio/aiff"),
    (b"\xfe" * 4 + b"ftyp3gp", "video/3gpp"),
    (b"\xfe" * 4 + b"ftypmif1", "image/heic"),
    (b"\xfe" * 4 + b"ftypavif", "image/avif"),
    (b"\xfe" * 4 + b"ftypheic", "image/heic"),
    (b"\xfe" * 4 + b"ftypheix", "image/heic"),
    (b"\xfe" * 4 + b"ftypqt  ", "video/quicktime"),
    (b"\xfe" * 4 + b"ftypM4A ", "audio/mp4"),
    (b"\xfe" * 4 + b"ftyp", "video/mp4"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"8BPS\x00\x01", "image/vnd.adobe.photoshop"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf1", "audio/aac"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"MThd\x00", "audio/midi"),
    (b"\x1a\x45\xdf\xa3", "video/x-matroska"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"\x00\x01\x00\x00\x00", "font/ttf"),
    (b"OTTO\x00", "font/otf"),
    (b"ttcf\x00", "font/collection"),
    (b"RIFF\xff\0\0\0WEBP", "image/webp"),
    (b"RIFF\xff\0\0\0WAVE", "audio/wav"),
    (b"RIFF\xff\0\0\0AVI ", "video/x-msvideo"),
    (b"BM\xff\xff\xff\xff\0\0\0\0\xff", "image/bmp"),
    (b"\x47" + b"\xfe" * 187 + b"\x47" + b"\xfe" * 187 + b"\x47", "video/mp2t"),
]


@pytest.mark.parametrize(("head", "expected"), SIGNATURES)
def test_every_signature_is_found_only_at_its_offset(head: bytes, expected: str) -> None:
    assert mime.by_signature(head) == expected
    assert mime.by_signature(head + b"\xfe" * 300) == expected
    assert mime.by_signature(b"\xfe" + head) == ""
    assert mime.by_signature(head[:-2]) != expected


@pytest.mark.parametrize(
    "head",
    [
        b"BZh",
        b"BZhx",
        b"BZhx9",
        b"BZh\xff1",
        b"RIFF\xff\0\0\0OTHER",
        b"RIFX\xff\0\0\0WEBP",
        b"BM\xff\xff\xff\xff\0\0\0\x01",
        b"BM\xff\xff\xff\xff\x01\0\0\0",
        b"BN\xff\xff\xff\xff\0\0\0\0",
        b"\x47" + b"\xfe" * 187 + b"\x47" + b"\xfe" * 187 + b"\x48",
        b"\x47" + b"\xfe" * 187 + b"\x48" + b"\xfe" * 187 + b"\x47",
        b"\x48" + b"\xfe" * 187 + b"\x47" + b"\xfe" * 187 + b"\x47",
        b"\x47" * 188,
        b"",
    ],
)
def test_a_partial_signature_has_no_type(head: bytes) -> None:
    assert mime.by_signature(head) == ""


def test_bytes_around_a_signature_are_ignored() -> None:
    assert mime.by_signature(b"BZh1\xff") == "application/x-bzip2"
    assert mime.by_signature(b"BZh9x") == "application/x-bzip2"
    assert mime.by_signature(b"BM\xff\xff\xff\xff\0\0\0\0\0") == "image/bmp"
    assert mime.by_signature(b"BM\0\0\0\0\0\0\0\0") == "image/bmp"
    packets = [b"\x47" + bytes([number]) * 187 for number in (1, 2, 3)]
    assert mime.by_signature(b"".join(packets)) == "video/mp2t"
    assert mime.by_signature(b"\x47" * 400) == "video/mp2t"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"#!/usr/bin/env node\n", "text/javascript"),
        (b"#!/usr/bin/ruby\n", "text/x-ruby"),
        (b"#!/usr/bin/perl -w\n", "text/x-perl"),
        (b"#!/bin/sh", "text/x-shellscript"),
        (b"#!/usr/bin/awk -f\n# python", "text/plain"),
        (b"#!/usr/bin/pwsh\n", "text/plain"),
        (b"#!/usr/share/tcl/tclsh8.6\n", "text/plain"),
        (b"#!/home/perl/bin/lua -i\r\n", "text/plain"),
        (b"#!/usr/bin/python3.11\r\n", "text/x-python"),
        (b"#!/usr/bin/env -S nodejs --inspect\n", "text/javascript"),
        (b"#! zsh\n", "text/x-shellscript"),
        (b"#!" + b" " * 120 + b"python", "text/x-python"),
        (b"#!" + b" " * 121 + b"python", "text/plain"),
        (b"# python\n", "text/plain"),
        (b"python", "text/plain"),
    ],
)
def test_the_type_of_a_script_comes_from_its_first_line(line: bytes, expected: str) -> None:
    assert mime.classify("script", line, True) == expected


@pytest.mark.parametrize(
    ("type", "text"),
    [
        ("text/plain", True),
        ("Text/HTML; charset=utf-8", True),
        ("application/json", True),
        ("application/sql ;x=y", True),
        ("application/ld+json", True),
        ("image/svg+xml", True),
        ("application/openapi+yaml", True),
        ("application/javascript", True),
        ("application/typescript", True),
        ("message/rfc822", True),
        ("application/pdf", False),
        ("application/octet-stream; a=text/plain", False),
        ("image/png", False),
        ("", False),
    ],
)
def test_parameters_of_a_declared_type_are_ignored(type: str, text: bool) -> None:
    assert mime.is_text(type) is text


@pytest.mark.parametrize(
    ("name", "head", "text", "expected"),
    [
        ("a.txt", b"%PDF-", True, "application/pdf"),
        ("a.odt", b"PK\x03\x04", False, "application/vnd.oasis.opendocument.text"),
        ("a.json", b"PK\x03\x04", False, "application/zip"),
        ("a", b"PK\x03\x04", False, "application/zip"),
        ("a.png", b"\xff\xd8\xff", False, "image/jpeg"),
        ("a.png", b"\xfe", False, "image/png"),
        ("a.png", b"\0", False, "image/png"),
        ("a.csv", b"\xfe", False, "text/csv"),
        ("a.csv", b"\xfe\0", False, "application/octet-stream"),
        ("a", b"\xfe", False, "application/octet-stream"),
        ("a.png", b"x", True, "text/plain"),
    ],
)
def test_a_signature_takes_precedence_over_the_name(name: str, head: bytes, text: bool, expected: str) -> None:
    assert mime.classify(name, head, text) == expected


def test_sniff_returns_the_type_of_content_without_a_name() -> None:
    assert mime.sniff(b"hello") == "text/plain"
    assert mime.sniff(b"\xfe\0\xff\0\x01") == "application/octet-stream"
    assert mime.sniff(PNG + b"\xfe") == "image/png"
    assert mime.decode_text(PNG) is None
