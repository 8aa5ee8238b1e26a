"""Formats sizes, durations, numbers, names and foreign text for people."""

from __future__ import annotations

from wharfinger.content.text import many as count
from wharfinger.content.text import size_text as size

__all__ = ["columns", "count", "duration", "printable", "size", "slug", "variables_of"]

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that change the direction of text, and so can make a line look like another one."""


def duration(seconds: float) -> str:
    """Write a duration: `0.4 ms`, `12 ms`, `1.2 s`."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"


def printable(text: str, keep: str = "") -> str:
    """Escape control characters and direction marks, except those in `keep`.

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
    """Return whether a terminal may act on this character instead of showing it."""
    code = ord(character)
    return code < 32 or 127 <= code < 160 or character in BIDI or 0xD800 <= code < 0xE000


def slug(*labels: str, fallback: str = "files", limit: int = 40) -> str:
    """Return a server name that every host accepts: ASCII letters, digits, `_` and `-`.

    Hosts call a tool `mcp__NAME__TOOL`, and model APIs accept at most 64 characters for that.
    """
    import re

    parts = [re.sub(r"[^A-Za-z0-9_]+", "-", label).strip("-") for label in labels]
    return "-".join(part for part in parts if part)[:limit].strip("-") or fallback


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Align rows of cells in columns, two spaces apart."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    ]


def variables_of(template: str) -> tuple[str, ...]:
    """Return the names of the variables of a URI template, empty if it is invalid."""
    from wharfinger.protocol.uri.template import InvalidTemplate, UriTemplate

    try:
        return UriTemplate(template).variables
    except InvalidTemplate:
        return ()
