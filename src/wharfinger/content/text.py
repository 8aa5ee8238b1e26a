"""Formats names, sizes, numbers and times for people."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from functools import lru_cache

__all__ = ["escape_controls", "iso", "many", "printable", "shown", "size_text"]


def size_text(octets: int) -> str:
    """Return a number of bytes as text: `512 B`, `2.1 KiB`, `38 MiB`."""
    value, unit = float(octets), 0
    while value >= 1023.5 and unit < 4:  # else it would be rounded to 1024
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and value < 9.95 else f"{value:.0f} {_UNITS[unit]}"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def many(number: int, noun: str) -> str:
    """Return a number with a noun: `1 file`, `2,000 files`, `3 branches`, `4 entries`, `5 days`."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        plural = f"{noun[:-1]}ies"
    else:
        plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def shown(name: str) -> str:
    """Return a name with unprintable characters escaped, for people and for JSON, which cannot have lone surrogates.

    A byte of a file name that is not UTF-8 becomes `\\xNN` (PEP 383).
    """
    if name.isprintable():
        return name
    return "".join(
        character
        if character.isprintable()
        else f"\\x{code & 0xFF:02x}"
        if (code := ord(character)) < 256 or 0xDC80 <= code <= 0xDCFF
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
        for character in name
    )


def printable(text: str, limit: int = 64) -> str:
    """Return untrusted text, cut after `limit` characters, with `?` for unprintable characters."""
    short = text if len(text) <= limit else text[:limit] + "…"
    return short if short.isprintable() else "".join(char if char.isprintable() else "?" for char in short)


BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that change the direction of text, and so can make a line look like another one."""


def escape_controls(text: str, keep: str = "") -> str:
    """Escape control characters, direction marks and surrogates, except those in `keep`.

    URIs, titles and names come from strangers, who could otherwise rewrite the screen of a terminal.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in keep or not is_control(character)
        else f"\\x{ord(character):02x}"
        if ord(character) < 256
        else f"\\u{ord(character):04x}"
        for character in text
    )


def is_control(character: str) -> bool:
    """Return whether a terminal may act on this character instead of showing it, or cannot encode it (surrogates)."""
    code = ord(character)
    return code < 32 or 127 <= code < 160 or character in BIDI or 0xD800 <= code < 0xE000


def iso(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, or an empty string outside of the years 1 to 9999."""
    try:
        return _iso(math.floor(seconds))
    except (OverflowError, ValueError):
        return ""


@lru_cache(1024)  # files that were copied or checked out together have the same times
def _iso(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat() + "Z"  # strftime does not pad years before 1000


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
