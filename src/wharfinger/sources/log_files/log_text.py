"""Bytes of a log as text that is safe to show: secrets left out, control characters escaped, long lines cut."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from wharfinger.content import mime
from wharfinger.sources.log_files.secrets import CONTEXT_BYTES, REDACTED, cut_between_secrets, secret_spans
from wharfinger.sources.windows.window import RandomAccess

__all__ = ["MAX_SHOWN_LINE_BYTES", "RedactedParts", "may_contain", "render", "shown_bytes"]

BLOCK_BYTES = 64 << 10
"""Bytes that are searched for secrets at once if many parts of a log are shown."""

MAX_SHOWN_LINE_BYTES = 16 << 10
"""Maximum bytes of one line that are shown, unless the URI requests bytes."""

# Characters that a terminal interprets, or that change the direction of text, except line ends and tabs.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|\r(?!\n)"
)
_HOLES = re.compile(rb"\0{9,}")  # a log was truncated, and its program still writes at the old offset


def render(data: bytes, start: int, content: RandomAccess, *, redact: bool = True, cut: bool = True) -> str:
    """Convert some bytes of a log to text.

    Args:
        data: The bytes.
        start: Their offset in `content`.
        content: The complete log. Secrets may begin before the data, or end after it.
        redact: Leave out secrets.
        cut: Cut lines that are longer than `MAX_SHOWN_LINE_BYTES`.
    """
    end = start + len(data)
    if cut and len(data) > MAX_SHOWN_LINE_BYTES:
        lines = data.splitlines(keepends=True)
        data = b"".join([line if len(line) <= MAX_SHOWN_LINE_BYTES else _cut_line(line) for line in lines])
    line_end = ""
    if data.endswith(b"\r") and content.read(end, 1) == b"\n":  # a line end that the window cuts
        data, line_end = data[:-1], "\r"
    if not redact:
        return shown_bytes(data) + line_end
    before = content.read(max(0, start - CONTEXT_BYTES), min(CONTEXT_BYTES, start))
    after = b"" if data.endswith(b"\n") else content.read(end, CONTEXT_BYTES)
    text = before + data + after
    return _without(text, secret_spans(text), len(before), len(before) + len(data)) + line_end


class RedactedParts:
    """Shows many parts of some bytes of a log without secrets, for which it searches `BLOCK_BYTES` at once.

    `data` begins at `start` of `content`.
    """

    def __init__(self, data: bytes, start: int, content: RandomAccess) -> None:
        self._data = data
        self._start = start
        self._content = content
        self._begin = self._end = self._text_begin = 0
        self._text = b""
        self._spans: list[tuple[int, int]] = []

    def show(self, begin: int, end: int) -> str:
        """Return the part from `begin` to `end` of the data, as `render` shows it without `cut`."""
        if not self._begin <= begin <= end <= self._end:
            self._begin, self._end = begin, min(max(end, begin + BLOCK_BYTES), len(self._data))
            at, length = self._start + begin, self._end - begin
            context = min(CONTEXT_BYTES, at)
            self._text_begin = begin - context
            self._text = self._content.read(at - context, context) + self._data[begin : self._end]
            self._text += self._content.read(at + length, CONTEXT_BYTES)
            self._spans = secret_spans(self._text)
        first = bisect_right(self._spans, begin - self._text_begin, key=lambda span: span[1])
        last = bisect_left(self._spans, end - self._text_begin, key=lambda span: span[0])
        return _without(self._text, self._spans[first:last], begin - self._text_begin, end - self._text_begin)


def _without(text: bytes, spans: Iterable[tuple[int, int]], begin: int, end: int) -> str:
    """Show the bytes of `text` from `begin` to `end` without the secrets at `spans`, which are in order."""
    parts: list[str] = []
    position = begin
    for secret_begin, secret_end in spans:
        if secret_end <= begin or secret_begin >= end:
            continue
        parts += (shown_bytes(text[position : max(secret_begin, begin)]), REDACTED)
        position = min(secret_end, end)
    parts.append(shown_bytes(text[position:end]))
    return "".join(parts)


def _cut_line(line: bytes) -> bytes:
    shown = cut_between_secrets(line, MAX_SHOWN_LINE_BYTES)
    end = b"\n" if line.endswith(b"\n") else b""
    left_out = len(line) - len(shown) - len(end)
    return shown + b" [%d bytes more in this line]" % left_out + end


def may_contain(data: bytes, text: str) -> bool:
    """Return whether a casefolded text may be in these bytes when they are shown.

    This check is quick. It may return True by mistake, and ignores what `render` adds, such as escapes.
    """
    if text.isascii() and text.encode() in data.lower():
        return True
    if data.isascii():
        return False
    if text.isascii() and text.encode() in data.lower().replace(b"\xdf", b"ss"):  # `ß` in windows-1252
        return True
    decoded = data.decode(errors="replace").casefold()  # `ß` becomes `ss`
    return text in decoded or ("\ufffd" in decoded and not text.isascii())  # U+FFFD: the encoding is another one


def shown_bytes(data: bytes) -> str:
    """Convert bytes to text, with secrets, and with control characters escaped."""
    if b"\0" in data:
        data = _HOLES.sub(lambda match: b"[%d NUL bytes]" % len(match[0]), data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        encoding = mime.encoding_of(data, True)
        text = data.decode(encoding if encoding and encoding[:4] != "utf-" else "utf-8", "backslashreplace")
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "\\r" if code == 13 else f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
