"""The text of a content in pieces, for searching: never loaded whole, and never refused half-way."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from wharfinger.sources.windows.line_index import RandomAccess
from wharfinger.sources.windows.window_reader import HEAD, writing_of

__all__ = ["PIECE", "text_pieces"]

PIECE = 256 << 10
"""Bytes that are decoded at a time."""


def text_pieces(content: RandomAccess) -> Iterator[str]:
    """The text of a content from its beginning; nothing if it does not begin like text.

    What cannot be decoded further on becomes U+FFFD, and a NUL a space, so that all else can still be found.
    """
    size = content.size
    head = content.read(0, HEAD)
    writing = writing_of(head, size)
    if not writing.is_text or head.startswith(b"%PDF-"):
        return
    decoder = codecs.getincrementaldecoder(writing.encoding)("replace")
    offset = writing.mark
    while offset < size:
        data = content.read(offset, PIECE)
        if not data:
            break
        offset += len(data)
        yield decoder.decode(data).replace("\0", " ")
    yield decoder.decode(b"", final=True)
