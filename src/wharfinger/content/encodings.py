"""Decodes text in UTF-8, UTF-16, UTF-32, or windows-1252, the encoding of older systems in western Europe.

Decoding is lossless: the text encodes to the same bytes again, except for a byte order mark. If it is uncertain whether
bytes are text, they are treated as binary. `mime.is_guess` says which encodings are reported as a guess.
"""

from __future__ import annotations

import codecs
import re

__all__ = ["BYTE_ORDER_MARKS", "WESTERN", "Decoded", "declared_encoding", "decode", "encoding_of", "has_mark"]

Decoded = tuple[str, str]
"""A text and its encoding."""

WESTERN = "windows-1252"
"""A superset of ISO 8859-1 with printable characters for the bytes 80 to 9F."""

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, because it begins with the same bytes
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks and their encodings. They are not part of the text."""
_MARKS = tuple(mark for mark, _ in BYTE_ORDER_MARKS)
_NOT_FOR_DOCUMENTS = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"))
"""Codecs of Python for host names and source code. Decoding `punycode` takes quadratic time: minutes for 1 MB."""


def has_mark(data: bytes) -> bool:
    """Return whether the bytes begin with a byte order mark of UTF-16 or UTF-32."""
    return data.startswith(_MARKS)


def declared_encoding(name: str) -> str:
    """Return Python's name for the encoding that a peer declares; empty if it is unknown or not used for documents."""
    try:
        codec = codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""
    return "" if codec in _NOT_FOR_DOCUMENTS else codec


def decode(data: bytes) -> Decoded | None:
    """Decode bytes. Returns None if they are not text, or if that is uncertain.

    Line breaks and a UTF-8 byte order mark are kept. A text with the character NUL is treated as binary.
    """
    for mark, encoding in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode_as(data[len(mark) :], encoding)
    if b"\0" in data:
        encoding = _utf16_without_mark(data)
        return _decode_as(data, encoding) if encoding else None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError as error:
        return _decode_as(data, WESTERN) if _is_western(data, error.start) else None


def encoding_of(head: bytes, complete: bool) -> str:
    """Return the encoding of a text that begins with `head`, or an empty string if it is not text.

    Unless `complete`, `head` may end inside a character.
    """
    if complete:
        decoded = decode(head)
        return decoded[1] if decoded else ""
    for mark, encoding in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding if _begins_text(head[len(mark) :], encoding) else ""
    if b"\0" in head:
        return _utf16_without_mark(head)
    if _begins_text(head, "utf-8"):
        return "utf-8"
    return WESTERN if _is_western(head) else ""


def _decode_as(data: bytes, encoding: str) -> Decoded | None:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else (text, encoding)


def _begins_text(head: bytes, encoding: str) -> bool:
    """Return whether these bytes, which may end inside a character, begin a text in this encoding."""
    try:
        return "\0" not in codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False


# UTF-16 without a mark

_SAMPLE_BYTES = 8_192
_MIN_CHARACTERS = 8
_CONTROLS = re.compile("[\0-\x08\x0b\x0e-\x1f\x7f-\x9f\ufeff\ufff0-\uffff\ue000-\uf8ff]").search
_LATIN = re.compile("[\t\n\r\f -~\xa0-\u024f\u2010-\u2044\u20ac]")
_LETTERS = re.compile("[A-Za-z]")
_SPACES = re.compile("[ \n]").search


def _utf16_without_mark(data: bytes) -> str:
    """Return the variant of UTF-16 if nearly all characters are Latin letters, spaces and punctuation, or "" if not."""
    sample = data[:_SAMPLE_BYTES]
    even_zeros, odd_zeros = sample[::2].count(0), sample[1::2].count(0)
    if bool(even_zeros) == bool(odd_zeros):
        return ""
    encoding = "utf-16-le" if odd_zeros else "utf-16-be"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return ""
    if len(text) < _MIN_CHARACTERS or _CONTROLS(text) or not _SPACES(text):
        return ""
    latin_count, letter_count = len(_LATIN.findall(text)), len(_LETTERS.findall(text))
    return encoding if latin_count >= 0.9 * len(text) and letter_count >= 0.4 * len(text) else ""


# Western Europe before UTF-8

_SAMPLE_AFTER_BYTES = 64 << 10  # bytes from the first one that is not UTF-8
_SAMPLE_BEFORE_BYTES = 4_096  # bytes before that
# Bytes without a character in this encoding, and control characters that do not occur in text.
_FOREIGN = bytes({*range(32), 0x7F, 0x81, 0x8D, 0x8F, 0x90, 0x9D} - set(b"\t\n\r"))
_HIGH = bytes(range(0x80, 0x100))
_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_UTF8 = re.compile(rb"[\xc3\xc4\xe2][\x80-\xbf]").search  # a text with such sequences is damaged UTF-8
_NO_QUOTES = rb"\x80-\x83\x86-\x90\x98-\x9f\xa1-\xaa\xac-\xba\xbc-\xff"
"""The bytes 80 to FF without quotes, dashes, `…`, `•` and the no-break space."""
_PLAUSIBLE = re.compile(
    rb"""[\x80-\xff] (?:
      (?<=[A-Za-z][\xc0-\xd6\xd8-\xf6\xf8-\xff])                  # an accented letter after a plain one
    | (?<=[\xc0-\xd6\xd8-\xf6\xf8-\xff]) (?=[A-Za-z])              # or before one
    | (?<=[\s(\x91'"][\xc0\xc9\xd3\xd6\xe0\xe1\xe8\xe9\xf3\xf6]) (?=[\s),.;:])   # or a word of its own
    | (?<=[\x91\x92\x96\x97\xa0\xad\xb7])                          # apostrophes, dashes, hyphens, spaces
    | (?<=[\x80\x82\x84\x85\x89\x8b\x93-\x95\x99\x9b\xa1-\xac\xae-\xb6\xb8-\xbf\xd7])
      (?: (?<![HIGH].) (?![A-Za-zHIGH]) | (?<![A-Za-zHIGH].) )    # signs at the edge of a word
    )""".replace(b"HIGH", _NO_QUOTES),
    re.VERBOSE | re.DOTALL,
)
_SHORT_BYTES = 16  # a shorter text needs more plain letters
_HIGH_BYTES_PER_IMPLAUSIBLE = 100
"""At most one in this many non-ASCII bytes may be at an implausible position."""


def _is_western(data: bytes, first: int = 0) -> bool:
    """Return whether accents and signs are where western languages have them; `first` is the first non-UTF-8 byte."""
    if len(data.translate(None, _FOREIGN)) < len(data):
        return False
    sample = data[max(0, first - _SAMPLE_BEFORE_BYTES) : first + _SAMPLE_AFTER_BYTES]
    high_count = len(sample) - len(sample.translate(None, _HIGH))
    plain_count = len(sample) - len(sample.translate(None, _PLAIN))
    # With fewer plain letters it is another language, or not text.
    if plain_count < high_count * (3 if len(sample) < _SHORT_BYTES else 1.5) or _UTF8(sample):
        return False
    return (high_count - len(_PLAUSIBLE.findall(sample))) * _HIGH_BYTES_PER_IMPLAUSIBLE <= high_count
