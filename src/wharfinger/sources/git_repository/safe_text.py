"""Decodes messages of a repository, and escapes characters that could move a cursor or reorder text."""

from __future__ import annotations

from encodings.aliases import aliases

from wharfinger.content.text import shown

__all__ = ["decode", "paragraph"]

_ENCODINGS = frozenset(
    {
        "latin_1", "iso8859_2", "iso8859_5", "iso8859_7", "iso8859_15", "cp1250", "cp1251", "cp1252", "koi8_r",
        "koi8_u", "euc_jp", "shift_jis", "cp932", "iso2022_jp", "gbk", "gb2312", "gb18030", "big5", "euc_kr",
    }
)  # fmt: skip
"""Encodings that a commit may name, as Python calls them. Some others are not for text, or can be slow."""


def paragraph(text: str) -> str:
    """Escape a text of several lines like `shown`, but keep line ends and tabs."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(["\t".join([shown(part) for part in line.split("\t")]) for line in lines])


def decode(data: bytes, encoding: bytes | None = None) -> str:
    """Decode the text of a commit as UTF-8 or in the encoding that the commit names; otherwise escape its bytes."""
    name = (encoding or b"").decode("ascii", "replace").lower().replace("-", "_")
    name = aliases.get(name, name)
    if not (name == "iso2022_jp" and data.isascii()):  # its text is ASCII, and so also UTF-8
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return data.decode(name if name in _ENCODINGS else "utf-8", "backslashreplace")
