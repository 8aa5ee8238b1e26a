"""The formatting of numbers, names and untrusted texts."""

from __future__ import annotations

import pytest

from wharfinger.content.text import escape_controls, iso, many, printable, shown, size_text


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "file", "1 file"), (0, "file", "0 files"), (1204, "file", "1,204 files"), (3, "branch", "3 branches"),
     (4, "entry", "4 entries"), (5, "day", "5 days")],
)  # fmt: skip
def test_a_number_agrees_with_its_noun(number: int, noun: str, text: str) -> None:
    assert many(number, noun) == text


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2150, "2.1 KiB"),
        (10 << 10, "10 KiB"),
        (10235, "10 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (2 << 50, "2048 TiB"),
    ],
)
def test_a_size_is_short(octets: int, text: str) -> None:
    assert size_text(octets) == text


def test_a_name_is_shown_whole_with_escapes() -> None:
    assert shown("a\nb\u202e\udcff\U000e0001") == "a\\x0ab\\u202e\\xff\\U000e0001"


def test_an_untrusted_text_is_shown_in_one_short_line() -> None:
    assert printable("a\nb\x1b") == "a?b?"
    assert printable("x" * 64) == "x" * 64
    assert printable("x" * 65) == "x" * 64 + "…"
    assert printable("abc", 2) == "ab…"


@pytest.mark.parametrize(
    ("untrusted", "expected"),
    [
        ("file:///a/b.txt", "file:///a/b.txt"),
        ("zoë – 港", "zoë – 港"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("two\nlines", "two\\x0alines"),
        ("\x9b31m", "\\x9b31m"),
        ("txt.\u202eexe", "txt.\\u202eexe"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped(untrusted: str, expected: str) -> None:
    """File names, URIs, titles and client names are untrusted."""
    assert escape_controls(untrusted) == expected


def test_line_breaks_may_be_kept() -> None:
    assert escape_controls("a\n\tb\x07", keep="\n\t") == "a\n\tb\\x07"


def test_a_time_that_cannot_be_written_is_empty() -> None:
    assert iso(0) == "1970-01-01T00:00:00Z"
    assert (iso(-62135596800), iso(-62135596800.5)) == ("0001-01-01T00:00:00Z", "")
    assert (iso(253402300799.5), iso(253402300800)) == ("9999-12-31T23:59:59Z", "")
    assert iso(1e30) == ""
