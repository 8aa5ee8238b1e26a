"""Messages of a repository as text that is safe to show: what could move a cursor or reorder it is escaped.

Refuses to know where the text is from.
"""

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
"""Encodings that a commit may name; the others that Python knows are not for text, or can be slow."""


def paragraph(text: str) -> str:
    """Text of several lines: as `shown`, but for line ends and tabs."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(["\t".join([shown(part) for part in line.split("\t")]) for line in lines])


def decode(data: bytes, encoding: bytes | None = None) -> str:
    """Text of a commit: UTF-8, or what the commit says it is in, or bytes as escapes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        name = (encoding or b"").decode("ascii", "replace").lower()
        return data.decode(name if name in _ENCODINGS else "utf-8", "backslashreplace")
