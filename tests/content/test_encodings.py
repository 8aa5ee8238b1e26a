"""Text is distinguished from binary data in all common encodings, and decoded without loss."""

from __future__ import annotations

import random
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content.encodings import BYTE_ORDER_MARKS, WESTERN, declared_encoding, decode, encoding_of, has_mark

WESTERN_TEXTS = [
    "Die Fähre nach Norderney fährt täglich um 8 Uhr – außer sonntags.",
    "Où est l’hôtel ? « Ici »",
    "El niño, ¿cómo estás? ¡Olé!",
    "port,höhe\r\nHull,6.1\r\n",
    "RØDGRØD MED FLØDE",
    "naïve café à la carte",
    "Ærøskøbing by",
    "The ticket costs 5 €, or £4… “really”",
    "Temperature in the harbour: 17 °C, depth 3 m ± 2",
]
TEXTS_IN_OTHER_ENCODINGS = [
    ("Паром отходит каждый день в восемь часов утра.", ["cp1251", "koi8-r", "cp866", "iso8859-5"]),
    ("フェリーは毎日八時に出発します。 The ferry", ["shift_jis", "euc-jp"]),
    ("渡轮每天早上八点出发。The ferry leaves every day", ["gb18030"]),
    ("The harbour 中 of a city with a long English sentence around", ["big5", "shift_jis", "gbk"]),
    ("Το πλοίο φεύγει", ["cp1253"]),
    ("המעבורת יוצאת", ["cp1255"]),
    ("페리는 매일 출발합니다", ["euc-kr"]),
    ("Příliš žluťoučký kůň úpěl ďábelské ódy", ["cp1250"]),
    ("Die Fähre fährt täglich", ["cp437", "mac-roman"]),
]


@pytest.mark.parametrize("text", WESTERN_TEXTS)
def test_western_text_is_recognized(text: str) -> None:
    data = text.encode("cp1252")
    assert decode(data) == (text, WESTERN)
    assert encoding_of(data, True) == encoding_of(data, False) == WESTERN


@pytest.mark.parametrize(("text", "encodings"), TEXTS_IN_OTHER_ENCODINGS)
def test_text_of_other_encodings_is_not_decoded_as_western(text: str, encodings: list[str]) -> None:
    for encoding in encodings:
        assert decode(text.encode(encoding)) is None


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_decides_the_encoding(encoding: str) -> None:
    text = "höhe\r\n日本\U0001f6a2"
    data = ("\ufeff" + text).encode(encoding)
    assert decode(data) == (text, encoding)
    assert has_mark(data)
    assert encoding_of(data[:-1], False) == encoding
    assert encoding_of(data[:-1], True) == ""


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_decoded_only_if_unambiguous(encoding: str) -> None:
    text = "Windows Registry Editor – Version 5.00\r\n\r\n[höhe]\r\n"
    data = text.encode(encoding)
    assert decode(data) == (text, encoding)
    assert encoding_of(data[:41], False) == encoding
    assert decode(data[:-1]) is None
    assert decode("a b".encode(encoding)) is None
    assert decode("渡轮每天早上八点出发。 ".encode(encoding) * 5) is None


def test_binary_numbers_are_not_decoded() -> None:
    for data in (
        struct.pack("<2000H", *range(2000)),
        struct.pack("<500h", *[number * 37 % 300 - 150 for number in range(500)]),
        struct.pack("<200I", *range(200)),
        struct.pack("<200d", *[number / 7 for number in range(200)]),
    ):
        assert decode(data) is None
        assert encoding_of(data, False) == ""


def test_random_bytes_are_rarely_decoded() -> None:
    generator = random.Random(7)
    decoded = {
        size: sum(decode(generator.randbytes(size)) is not None for _ in range(2_000)) for size in (16, 32, 64, 512)
    }
    assert decoded[16] <= 4 and decoded[32] <= 2 and decoded[64] <= 2 and decoded[512] == 0, decoded


def test_invalid_utf8_is_not_decoded_as_western() -> None:
    assert decode("Die Fähre nach Norderney fährt täglich".encode() + b"\xff") is None
    assert decode("– The ferry leaves –".encode() + b" \xe9t\xe9") is None


@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("cp1252", "ignore")))
def test_decoded_text_encodes_to_the_same_bytes(data: bytes) -> None:
    result = decode(data)
    if result is not None:
        mark = next(
            (mark for mark, encoding in BYTE_ORDER_MARKS if data.startswith(mark) and encoding == result[1]), b""
        )
        assert mark + result[0].encode(result[1]) == data
        assert encoding_of(data, True) == result[1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("UTF-8", "utf-8"), ("latin1", "iso8859-1"), ("Shift_JIS", "shift_jis"), ("", ""), ("nonsense", ""),
        ("a\0b", ""), ("punycode", ""), ("idna", ""), ("unicode_escape", ""), ("raw_unicode_escape", ""),
    ],
)  # fmt: skip
def test_only_encodings_of_documents_can_be_declared(name: str, expected: str) -> None:
    assert declared_encoding(name) == expected


def test_a_long_text_is_decoded_quickly() -> None:
    data = ("Die Fähre nach Norderney fährt täglich. " * 200_000).encode("cp1252")
    began = time.thread_time()
    assert decode(data) is not None
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    ("text", "recognized"),
    [
        ("ab cdefg", True),
        ("ab cdef", False),
        ("ab\ncdefg", True),
        ("abcdefgh", False),
        ("ab cdef\x01", False),
        ("ab cdef\x7f", False),
        ("abcd 12345", True),
        ("abc 123456", False),
        ("abcd ef中gh"[:10], True),
        ("abcd e中中gh"[:10], False),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_needs_eight_mostly_latin_characters(text: str, recognized: bool, encoding: str) -> None:
    assert (decode(text.encode(encoding)) is not None) is recognized
    assert encoding_of(text.encode(encoding), False) == (encoding if recognized else "")


@pytest.mark.parametrize(
    ("text", "recognized"),
    [
        ("aaaé", True),
        ("aaé", False),
        ("aaéaaéaa", True),
        ("aaéaaéa", False),
        ("aéa aéa aéa aéab", True),
        ("aéa aéa aéa aéa", False),
    ],
)
def test_a_short_western_text_needs_three_plain_letters_for_each_accent(text: str, recognized: bool) -> None:
    assert (decode(text.encode("latin-1")) is not None) is recognized


def test_a_longer_western_text_needs_three_plain_letters_for_two_accents() -> None:
    assert decode(("aéabéa " * 3).encode("latin-1")) is not None
    assert decode(("éaé " * 6).encode("latin-1")) is None


def test_one_misplaced_accent_in_a_hundred_is_accepted() -> None:
    assert decode(("fährt " * 99 + "1ä1").encode("latin-1")) is not None
    assert decode(("fährt " * 98 + "1ä1").encode("latin-1")) is None


BYTES_OUTSIDE_TEXT = [*(n for n in range(1, 32) if n not in (9, 10, 13)), 0x7F, 0x81, 0x8D, 0x8F, 0x90, 0x9D]


@pytest.mark.parametrize("byte", BYTES_OUTSIDE_TEXT)
def test_a_control_or_undefined_byte_rules_out_western_text(byte: int) -> None:
    text = "Die Fähre fährt täglich nach Norderney. ".encode("latin-1") * 3
    assert decode(text) is not None
    assert decode(text + bytes([byte])) is None


@pytest.mark.parametrize("character", ["\t", "\n", "\r", " ", "€", "…", "’", "“"])
def test_western_text_may_end_with_whitespace_or_punctuation(character: str) -> None:
    text = "Die Fähre fährt täglich nach Norderney. " * 30 + "lang" + character
    assert decode(text.encode("cp1252")) == (text, WESTERN)


def test_text_far_from_the_first_accent_is_not_examined() -> None:
    valid = "Die Fähre fährt täglich. ".encode("latin-1") * 3_000
    invalid = "é1é2é3é4 ".encode("latin-1") * 200
    assert decode(valid[: (64 << 10) + 5] + b" " * 16 + invalid) is not None
    assert decode(valid[: 60 << 10] + invalid) is None
