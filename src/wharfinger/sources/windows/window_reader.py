"""Reads one window of a content, and finds the windows before and after it.

A window with a requested end is cut exactly there, unless it is too large. A window with an open end (the first window,
`lines=201-`, `bytes=65536-`) ends after `WINDOW_LINES` lines or `window_bytes()`, at a line end if there is one,
otherwise at the end of a character. So each window with an open end can be decoded alone, and joined, such windows give
the whole content. The content is never loaded as a whole: a `LineIndex` finds lines, and a tail is found by reading
blocks from the end. `WindowReader` does this for one content and one request; `_READ_METHODS` has a method for each
kind of window.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from typing import NamedTuple

from wharfinger.content import mime
from wharfinger.errors import InvalidArgument
from wharfinger.sources.windows.line_index import (
    CodeUnit,
    LineIndex,
    NotReached,
    RandomAccess,
    ends_line,
    line_ends,
    nth_end,
)
from wharfinger.sources.windows.window_budget import WINDOW_BYTES, window_bytes, within_budget

__all__ = [
    "HEAD_BYTES",
    "WINDOW_BYTES",
    "WINDOW_LINES",
    "TextEncoding",
    "Window",
    "WindowContent",
    "WindowReader",
    "detect_encoding",
    "with_query",
]

WINDOW_LINES = 2_000
"""Maximum number of lines of a window with an open end."""
HEAD_BYTES = 64 << 10
"""Bytes at the beginning of a content from which its encoding is detected."""

_BLOCK_BYTES = 256 << 10  # bytes that are read at once to find where a tail or a line begins
_CHARACTER_BYTES = 4  # the longest character
_COMPARED_BYTES = 16  # bytes that are decoded to see whether a character begins


class Window(NamedTuple):
    """A requested window. `kind` is `lines`, counted from 1, `bytes`, counted from 0, or `tail`.

    `last` is inclusive; None leaves the end open. A tail has only `first`, the number of its lines.
    """

    kind: str
    first: int
    last: int | None = None

    def __str__(self) -> str:
        if self.kind == "tail":
            return f"tail={self.first}"
        return f"{self.kind}={self.first}-{'' if self.last is None else self.last}"


def with_query(base: str, query: str) -> str:
    """Return a URI with one more part of a query, such as `lines=1-200`."""
    return f"{base}{'&' if '?' in base else '?'}{query}"


class TextEncoding(NamedTuple):
    """The encoding of a text. `encoding` is empty if the content is not text."""

    encoding: str
    unit: int = 1
    """Bytes of a code unit."""
    big_endian: bool = False
    bom_bytes: int = 0
    """Bytes of the byte order mark."""

    @property
    def is_text(self) -> bool:
        """Whether the content is text."""
        return bool(self.encoding)

    @property
    def code_unit(self) -> CodeUnit:
        """The bytes of a code unit and whether they are big-endian, for the functions that find line ends."""
        return self.unit, self.big_endian


BINARY = TextEncoding("")


class WindowContent(NamedTuple):
    """A window that was read."""

    begin: int
    data: bytes
    next: Window | None
    previous: Window | None
    line: int = 0
    """The number of its first line; 0 if it is not known."""
    ended_early: bool = False
    """Whether it ends before the requested end."""
    whole_characters: bool = True
    """False for `bytes=A-B`, whose ends may be inside characters."""

    @property
    def end(self) -> int:
        return self.begin + len(self.data)


class WindowReader:
    """Reads windows of one content."""

    def __init__(self, base: str, name: str, content: RandomAccess, max_bytes: int, lines: LineIndex | None) -> None:
        self.base = base
        self.content = content
        self.size = content.size
        self.max_bytes = max_bytes
        head = content.read(0, min(HEAD_BYTES, self.size))
        self.text_encoding = detect_encoding(head, self.size)
        self.mime_type = mime.classify(name, head[: mime.SNIFFED_BYTES], self.text_encoding.is_text)
        if self.mime_type == mime.PDF:
            self.text_encoding = BINARY
        if self.text_encoding.is_text:
            self.max_bytes = within_budget(max_bytes)
        self.index = lines or LineIndex()

    def read(self, window: Window | None) -> WindowContent:
        """Read a window, by default the first one."""
        return _READ_METHODS[window.kind](self, window) if window else self.first_bytes(Window("bytes", 0))

    # By bytes

    def by_bytes(self, window: Window) -> WindowContent:
        begin, last = window.first, window.last
        if begin > self.size:
            raise InvalidArgument(
                f"{self.base} has {self.size:,} bytes, and no byte {begin:,}.", data={"size": self.size}
            )
        if last is None:
            return self.first_bytes(window)
        width = last - begin + 1
        previous = Window("bytes", self.previous_begin(begin, width), begin - 1) if begin else None
        data = self.content.read(begin, min(width, self.max_bytes))
        end = begin + len(data)
        if end > last or end >= self.size:
            next_window = Window("bytes", end, end + width - 1) if end < self.size else None
            return WindowContent(begin, data, next_window, previous, whole_characters=False)
        data = self.up_to_line_end(data, begin)
        next_window = Window("bytes", begin + len(data), last)
        return WindowContent(begin, data, next_window, previous, ended_early=True, whole_characters=False)

    def previous_begin(self, end: int, width: int) -> int:
        """Return where the window of about `width` bytes before an offset begins, with a whole character if it is text.

        If it would begin inside a character, it is a little wider, unless that is too much to read at once. Windows
        that each lead to the previous one would become narrower and narrower otherwise.
        """
        lowest = max(0, end - width)
        begin = self.character_begin(lowest)
        if begin > lowest:
            wider = self.character_begin(max(0, lowest - _CHARACTER_BYTES + 1))
            if end - wider <= self.max_bytes:
                return wider
        return begin if begin < end else lowest

    def first_bytes(self, window: Window) -> WindowContent:
        """Return a window with an open end: the first bytes of it that fit."""
        begin = window.first
        data = self.up_to_line_end(self.content.read(begin, window_bytes()), begin, WINDOW_LINES)
        end = begin + len(data)
        next_window = Window("bytes", end) if end < self.size and data else None
        line = 0 if begin else 1
        return WindowContent(begin, data, next_window, self.before(begin), line, next_window is not None)

    def before(self, end: int) -> Window | None:
        """Return the window of the bytes before an offset, from the beginning of a line if there is one."""
        if not end:
            return None
        lowest = max(0, end - window_bytes())
        begin = self.line_or_character_begin(lowest, end)
        return Window("bytes", begin if begin < end else lowest, end - 1)

    def up_to_line_end(self, data: bytes, begin: int, lines: int = 0) -> bytes:
        """Return the data up to its last line end, or else its last whole character; the next window has the rest.

        `lines` is the maximum number of lines; 0 is no maximum. Data at the end of the content is cut only after that
        number of lines, and data that is not text is not cut.
        """
        if not self.text_encoding.is_text:
            return data
        ends, mark = line_ends(data, self.text_encoding.code_unit)
        if lines and ends.count(mark) >= lines:
            return data[: nth_end(ends, mark, lines) * self.text_encoding.unit]
        if begin + len(data) >= self.size:
            return data
        last = ends.rfind(mark)
        return data[
            : (last + 1) * self.text_encoding.unit if last >= 0 else _whole_characters_length(data, self.text_encoding)
        ]

    # By lines

    def by_lines(self, window: Window) -> WindowContent:
        self.need_text()
        first, last = window.first, window.last
        begin, line = self.find(first)
        if line < first:
            raise InvalidArgument(
                f"{self.base} has {line - 1:,} lines, and no line {first:,}.", data={"lines": line - 1}
            )
        width = WINDOW_LINES if last is None else last - first + 1
        previous = Window("lines", max(1, first - width), first - 1) if first > 1 else None
        data = self.lines_from(begin, last)
        end = begin + len(data)
        ends, mark = line_ends(data, self.text_encoding.code_unit)
        next_line = first + ends.count(mark)
        complete = last is not None and next_line > last
        if end >= self.size or not data:
            return WindowContent(begin, data, None, previous, first)
        if not ends.endswith(mark):  # cut within a line: the next window begins there
            return WindowContent(begin, data, Window("bytes", end), previous, first, True)
        next_window = Window("lines", next_line, next_line + width - 1 if complete else last)
        return WindowContent(begin, data, next_window, previous, first, not complete)

    def lines_from(self, begin: int, last: int | None) -> bytes:
        """Return the bytes from an offset to the end of line number `last`, or as many of them as fit."""
        if last is None:
            return self.up_to_line_end(self.content.read(begin, window_bytes()), begin, WINDOW_LINES)
        end, line = self.find(last + 1, begin + self.max_bytes)
        if line and end - begin <= self.max_bytes:  # line 0: the end is further away
            return self.content.read(begin, end - begin)
        return self.up_to_line_end(self.content.read(begin, self.max_bytes), begin)

    def find(self, line: int, until: int | None = None) -> tuple[int, int]:
        try:
            return self.index.find(self.content, line, self.text_encoding.code_unit, until=until)
        except NotReached as error:
            next_uri = with_query(self.base, str(Window("bytes", error.offset)))
            raise InvalidArgument(
                f"Line {line:,} was not reached in time: line {error.line:,} is at byte {error.offset:,}. "
                f"Ask again to look further from there, or read {next_uri}",
                data={"next": next_uri, "line": error.line, "offset": error.offset},
            ) from None

    def need_text(self) -> None:
        if not self.text_encoding.is_text:
            raise InvalidArgument(f"{self.base} is not text and has no lines: ask for bytes=0-65535 instead.")

    # From the end

    def by_tail(self, window: Window) -> WindowContent:
        self.need_text()
        begin = self.tail_begin(window.first)
        data = self.content.read(begin, self.size - begin)
        return WindowContent(begin, data, None, self.before(begin), 0 if begin else 1)

    def tail_begin(self, lines: int) -> int:
        """Return the offset of the last `lines` lines; of fewer lines, if they are too long to read at once."""
        text_encoding = self.text_encoding
        lowest = max(0, self.size - self.max_bytes)
        # The line ends still to be found: one more if the last line has its own, at the end of the content.
        missing = lines + ends_line(self.content, self.size, self.text_encoding.code_unit)
        offset = self.size
        while offset > lowest:
            begin = max(lowest, offset - _BLOCK_BYTES) // text_encoding.unit * text_encoding.unit
            data = self.content.read(begin, offset - begin)
            ends, mark = line_ends(data, self.text_encoding.code_unit)
            count = ends.count(mark)
            if count >= missing:
                return begin + nth_end(ends, mark, count - missing + 1) * text_encoding.unit
            missing -= count
            offset = begin
        return self.line_or_character_begin(offset, self.size)

    def line_or_character_begin(self, offset: int, end: int) -> int:
        """Return the next offset before `end` at which a line begins within `_BLOCK_BYTES`, or else a character."""
        unit = self.text_encoding.unit
        if offset and self.text_encoding.is_text:
            first_unit = -(-offset // unit) * unit
            ends, mark = line_ends(self.content.read(first_unit, _BLOCK_BYTES), self.text_encoding.code_unit)
            begin = first_unit + (ends.find(mark) + 1) * unit
            if first_unit < begin < end:
                return begin
        return self.character_begin(offset)

    def character_begin(self, offset: int) -> int:
        """Return the next offset at which a character begins; the offset itself if the content is not text."""
        if not offset or offset >= self.size or not self.text_encoding.is_text:
            return offset
        unit = self.text_encoding.unit
        offset = -(-offset // unit) * unit
        data = self.content.read(offset, _CHARACTER_BYTES + _COMPARED_BYTES)
        skips = range(0, _CHARACTER_BYTES, unit)
        return offset + next((skip for skip in skips if _begins_character(data[skip:], self.text_encoding)), 0)

    # Describing a window

    def text(self, part: WindowContent) -> mime.Decoded | None:
        """Return the text of a window; None if it cannot be decoded, such as when it begins inside a character."""
        text_encoding = self.text_encoding
        if not text_encoding.is_text or part.begin % text_encoding.unit or 0 < part.end < text_encoding.bom_bytes:
            return None
        data = part.data if part.begin else part.data[text_encoding.bom_bytes :]
        try:
            text = data.decode(text_encoding.encoding)
        except UnicodeDecodeError:  # if the beginning of the content is ASCII, the rest may be in another encoding
            return mime.decode_text(data) if part.whole_characters and text_encoding.encoding == "utf-8" else None
        return None if "\0" in text else (text, text_encoding.encoding)

    def facts(self, part: WindowContent) -> dict[str, int]:
        """Return the place of a window in its content, for `_meta`."""
        facts = {"begin": part.begin, "end": part.end, "size": self.size}
        if part.line and self.text_encoding.is_text:
            ends, mark = line_ends(part.data, self.text_encoding.code_unit)
            facts["firstLine"] = part.line
            facts["lastLine"] = part.line + ends.count(mark) - (ends.endswith(mark) or not part.data)
        return facts

    def describe(self, part: WindowContent) -> str:
        """Return the place of a window as a sentence, for models that see only the text."""
        facts = self.facts(part)
        lines = f", lines {facts['firstLine']:,}-{facts['lastLine']:,}" if "firstLine" in facts else ""
        return f"Bytes {part.begin:,}-{part.end - 1:,} of {self.size:,}{lines}."


_READ_METHODS: Mapping[str, Callable[[WindowReader, Window], WindowContent]] = {
    "bytes": WindowReader.by_bytes,
    "lines": WindowReader.by_lines,
    "tail": WindowReader.by_tail,
}


def detect_encoding(head: bytes, size: int) -> TextEncoding:
    """Detect the encoding of a content from its first bytes. `size` is the size of the whole content."""
    encoding = mime.encoding_of(head, len(head) == size)
    if not encoding:
        return BINARY
    unit = {"utf-16": 2, "utf-32": 4}.get(encoding[:6], 1)
    marks = (mark for mark, name in mime.BYTE_ORDER_MARKS if name == encoding and head.startswith(mark))
    bom_bytes = len(next(marks, b""))
    return TextEncoding(encoding, unit, encoding.endswith("-be"), bom_bytes)


def _whole_characters_length(data: bytes, text_encoding: TextEncoding) -> int:
    """Return the length up to the last whole character, or of all data if no character is whole."""
    decoder = codecs.getincrementaldecoder(text_encoding.encoding)("replace")
    decoder.decode(data)
    incomplete = decoder.getstate()[0]
    return len(data) - len(incomplete) or len(data)


def _begins_character(data: bytes, text_encoding: TextEncoding) -> bool:
    """Return whether data begins with a character, judging by its first bytes, whose last character may be cut."""
    try:
        codecs.getincrementaldecoder(text_encoding.encoding)().decode(data[:_COMPARED_BYTES])
    except UnicodeDecodeError:
        return False
    return True
