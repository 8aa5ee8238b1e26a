"""Decodes messages of a repository, and escapes characters that could move a cursor or reorder text."""

from __future__ import annotations

from wharfinger.content.text import shown

__all__ = ["decode", "paragraph"]

_ENCODINGS = frozenset(
    {
        "latin-1", "iso-8859-1", "iso8859-1", "iso-8859-2", "iso-8859-5", "iso-8859-7", "iso-8859-15", "windows-1250",
        "windows-1251", "windows-1252", "cp1250", "cp1251", "cp1252", "koi8-r", "koi8-u", "euc-jp", "shift_jis", "sjis",
        "cp932", "iso-2022-jp", "gbk", "gb2312", "gb18030", "big5", "euc-kr",
    }
)  # fmt: skip
"""Encodings that a commit may name. Some others that Python knows are not for text, or can be slow."""


def paragraph(text: str) -> str:
    """Escape a text of several lines like `shown`, but keep line ends and tabs."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(["\t".join([shown(part) for part in line.split("\t")]) for line in lines])


def decode(data: bytes, encoding: bytes | None = None) -> str:
    """Decode the text of a commit as UTF-8 or in the encoding that the commit names; otherwise escape its bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        name = (encoding or b"").decode("ascii", "replace").lower()
        return data.decode(name if name in _ENCODINGS else "utf-8", "backslashreplace")
