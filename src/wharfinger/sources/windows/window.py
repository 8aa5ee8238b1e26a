"""Windows of bytes and text: `?lines=1-200`, `?bytes=0-65535`, `?tail=200`, and the windows before and after them.

A window is read from a `RandomAccess`, which is never loaded as a whole (see `window_reader`). The first window and all
that follow it, joined, give the whole content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument
from wharfinger.source import UriParameter
from wharfinger.sources.windows.line_index import LineIndex, LineIndexes, RandomAccess
from wharfinger.sources.windows.window_budget import WINDOW_BYTES, has_budget, within_budget
from wharfinger.sources.windows.window_reader import (
    HEAD_BYTES,
    WINDOW_LINES,
    Window,
    WindowReader,
    detect_encoding,
    with_query,
)

__all__ = [
    "ENCODING",
    "GUESSED",
    "MAX_READ_BYTES",
    "NEXT",
    "PARAMETERS",
    "PREVIOUS",
    "REMARK",
    "SUMMARY",
    "WINDOW",
    "WINDOW_BYTES",
    "WINDOW_LINES",
    "BytesContent",
    "LineIndex",
    "LineIndexes",
    "RandomAccess",
    "Window",
    "continuation",
    "digest_of",
    "is_continuation",
    "is_remark",
    "parse_window",
    "read_content",
    "refuse_window",
    "remark",
    "split_query",
    "split_window",
    "with_query",
]

NEXT = "wharfinger/next"
"""In `_meta` of a window's contents: the URI of the next window; missing at the end."""
PREVIOUS = "wharfinger/previous"
"""In `_meta` of a window's contents: the URI of the previous window; missing at the beginning."""
WINDOW = "wharfinger/window"
"""In `_meta` of a window's contents: `begin` and `end` in bytes (`end` is exclusive), the `size` of the whole, and
`firstLine` and `lastLine` if they are known."""
ENCODING = "wharfinger/encoding"
"""In `_meta` of a text that was not UTF-8: its encoding."""
GUESSED = "wharfinger/encoding-guessed"
"""In `_meta` of such a text: true if the encoding is a guess."""
SUMMARY = "wharfinger/summary"
"""In `_meta` of a content that only describes others, such as a remark or a child of a directory: true."""
REMARK = "wharfinger/remark"
"""In `_meta` of a content that is a remark about the read: its text, without the brackets and how to continue."""

PARAMETERS: Mapping[str, UriParameter] = {
    "lines": UriParameter("1-200", "these lines"),
    "tail": UriParameter("200", "the last lines"),
    "bytes": UriParameter("0-65535", "these bytes"),
}
"""Parameters for a window of a file, for `Source.parameters`."""

MAX_READ_BYTES = 32 << 20
"""Maximum number of bytes that are read at once: as a whole content, a window with both ends, or a tail."""
STREAM_ABOVE_BYTES = 1 << 20
"""A blob of more bytes can be read while it is sent."""


class BytesContent:
    """Bytes in memory as a content."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        return self.data[offset : offset + length]


# Queries


def split_query(uri: str, errors: str = "replace") -> tuple[str, dict[str, str]]:
    """Return a URI without its query, and the query: `("file:///x", {"lines": "1-200"})`.

    `errors` says how to decode bytes of a value that are not UTF-8; with `surrogateescape`, a value may be any path.

    Raises:
        InvalidArgument: a part of the query is not `name=value`, or a name occurs twice.
    """
    base, mark, text = uri.partition("?")
    if not mark:
        return base, {}
    query: dict[str, str] = {}
    for pair in text.split("&"):
        name, equals, value = pair.partition("=")
        name = unquote(name)
        if not equals or not name or name in query:
            raise InvalidArgument("A query is written ?name=value, each name once, such as ?lines=1-200.")
        query[name] = unquote(value, errors=errors)
    return base, query


def split_window(uri: str) -> tuple[str, Window | None]:
    """Return a URI without its query, and the window that it asks for; None if it has no query.

    Raises:
        InvalidArgument: the query is not one window.
    """
    if "?" not in uri:
        return uri, None
    base, query = split_query(uri)
    return base, parse_window(query)


_RANGE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})?").fullmatch
_NUMBER = re.compile(r"[0-9]{1,18}").fullmatch
_LOWEST = {"lines": 1, "bytes": 0, "tail": 1}
_EXAMPLES = {"lines": "lines=1-200 or lines=201-", "bytes": "bytes=0-65535 or bytes=65536-", "tail": "tail=200"}


def parse_window(query: Mapping[str, str]) -> Window | None:
    """Return the window of a query: `lines=A-B`, `lines=A-`, `bytes=A-B`, `bytes=A-` or `tail=N`; None if it is empty.

    Raises:
        InvalidArgument: the query has another parameter, two windows, or a value that is not a window.
    """
    if not query:
        return None
    (kind, value), *more = query.items()
    if more or kind not in _LOWEST:
        names = ", ".join(query)[:100]
        raise InvalidArgument(f"Ask for one window: {', '.join(_EXAMPLES.values())}. This asked for {names}.")
    if kind == "tail":
        window = Window(kind, int(value)) if _NUMBER(value) else None
    else:
        match = _RANGE(value)
        window = match and Window(kind, int(match[1]), int(match[2]) if match[2] else None)
    if window is None or window.first < _LOWEST[kind] or (window.last is not None and window.last < window.first):
        raise InvalidArgument(f"{kind}={shown(value[:100])} is not a window: write {_EXAMPLES[kind]}.")
    return window


def refuse_window(window: Window | None) -> None:
    """Refuse a window of a folder, which has none.

    Raises:
        InvalidArgument: `window` is not None.
    """
    if window is not None:
        raise InvalidArgument(f"This is a folder, which has no windows: leave out ?{window}.")


# Contents


def read_content(
    uri: str,
    base: str,
    name: str,
    content: RandomAccess,
    window: Window | None,
    *,
    max_bytes: int = MAX_READ_BYTES,
    meta: Mapping[str, object] | None = None,
    lines: LineIndex | None = None,
    keep: Callable[[], t.StoredBytes] | None = None,
) -> list[t.ResourceContents]:
    """Read a whole content, or a window of it. If the window ends early, a remark names the next one.

    Args:
        uri: The requested URI.
        base: The URI without the window.
        name: The name of the file, for its MIME type.
        content: The bytes.
        window: The requested window. None requests the whole content. If that is larger than `max_bytes`, or is a text
            that is larger than the caller's budget, its first window is read instead.
        max_bytes: Maximum number of bytes to read at once.
        meta: Added to `_meta` of the first contents.
        lines: The index of the content's lines, if there is one.
        keep: Returns the content in a form that stays readable until it is released. A large blob is then read while it
            is sent, instead of now.

    Raises:
        InvalidArgument: the window begins after the end, asks for lines of something that is not text, or names a line
            that was not reached in time.
    """
    first_meta = dict(meta or {})
    if window is None and content.size <= within_budget(max_bytes):
        return [_whole_contents(uri, name, content, first_meta, keep)]
    reader = WindowReader(base, name, content, max_bytes, lines)
    if window is None and has_budget():
        if content.size <= max_bytes and not reader.text_encoding.is_text:
            return [_whole_contents(uri, name, content, first_meta, keep)]
        window = Window("lines", 1) if reader.text_encoding.is_text else None
    part = reader.read(window)
    first_meta[WINDOW] = reader.facts(part)
    for key, neighbour in ((NEXT, part.next), (PREVIOUS, part.previous)):
        if neighbour is not None:
            first_meta[key] = with_query(base, str(neighbour))
    text = reader.text(part)
    if text is None:
        contents = [_blob(uri, reader.mime_type, part.data, first_meta)]
    else:
        is_guess = not reader.text_encoding.bom_bytes
        contents = [_text(uri, reader.mime_type, text, is_guess, first_meta)]
    if part.ended_early and part.next is not None:
        next_uri = with_query(base, str(part.next))
        contents.append(continuation(next_uri, reader.describe(part)))
    return contents


def continuation(next_uri: str, text: str) -> t.ResourceContents:
    """Return a remark that describes the window that was read, and names the next one. It is no part of the content."""
    contents = remark(next_uri, f"{text} To continue, read {next_uri}")
    contents.meta = {SUMMARY: True, REMARK: text, NEXT: next_uri}
    return contents


def remark(uri: str, text: str) -> t.ResourceContents:
    """Return a remark about a content. It is not part of the content."""
    return t.ResourceContents(uri=uri, mime_type=mime.TEXT, text=f"\n[{text}]\n", meta={SUMMARY: True, REMARK: text})


def is_remark(contents: t.ResourceContents) -> bool:
    """Return whether these contents are a remark, and not part of the content."""
    return contents.meta is not UNSET and bool(contents.meta.get(SUMMARY)) and REMARK in contents.meta


def is_continuation(contents: t.ResourceContents) -> bool:
    """Return whether these contents were made by `continuation`."""
    return contents.meta is not UNSET and bool(contents.meta.get(SUMMARY)) and NEXT in contents.meta


def digest_of(contents: t.ResourceContents) -> bytes:
    """Return a digest of a window's content and of the URI of the next one."""
    data = contents.text.encode() if contents.text is not UNSET else contents.blob or b""
    next_uri = "" if contents.meta is UNSET else str(contents.meta.get(NEXT, ""))
    return hashlib.blake2b(data + next_uri.encode(), digest_size=16).digest()


def _whole_contents(
    uri: str, name: str, content: RandomAccess, meta: dict[str, object], keep: Callable[[], t.StoredBytes] | None
) -> t.ResourceContents:
    size = content.size
    if keep is not None and size > STREAM_ABOVE_BYTES:
        head = content.read(0, HEAD_BYTES)
        is_text = detect_encoding(head, size).is_text
        mime_type = mime.classify(name, head[: mime.SNIFFED_BYTES], is_text)
        if mime_type == mime.PDF or not is_text:
            return _blob(uri, mime_type, t.stored_blob(keep()), meta)
    data = content.read(0, size)
    decoded = mime.decode_text(data)
    mime_type = mime.classify(name, data[: mime.SNIFFED_BYTES], decoded is not None)
    if decoded is None or mime_type == mime.PDF:
        return _blob(uri, mime_type, data, meta)
    return _text(uri, mime_type, decoded, decoded[1] != "utf-8" and mime.is_guess(data, decoded[1]), meta)


def _blob(uri: str, mime_type: str, data: bytes, meta: dict[str, object]) -> t.ResourceContents:
    return t.ResourceContents(uri=uri, mime_type=mime_type, blob=data, meta=meta or UNSET)


def _text(
    uri: str, mime_type: str, decoded: mime.Decoded, guessed: bool, meta: dict[str, object]
) -> t.ResourceContents:
    text, encoding = decoded
    if encoding != "utf-8":
        meta[ENCODING] = encoding
        if guessed:
            meta[GUESSED] = True
    return t.ResourceContents(uri=uri, mime_type=mime_type, text=text, meta=meta or UNSET)
