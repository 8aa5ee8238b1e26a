"""Reads a text in pieces for searches, so that it is never in memory as a whole."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from wharfinger.sources.windows.line_index import RandomAccess
from wharfinger.sources.windows.window_reader import HEAD_BYTES, detect_encoding

__all__ = ["PIECE_BYTES", "text_pieces"]

PIECE_BYTES = 256 << 10
"""Bytes that are decoded at a time."""


def text_pieces(content: RandomAccess) -> Iterator[str]:
    """Yield the text of a file or other content. Yields nothing if it does not begin like text, or is a PDF.

    Bytes that cannot be decoded become U+FFFD, and a NUL becomes a space, so that the rest can still be found.
    """
    size = content.size
    head = content.read(0, HEAD_BYTES)
    text_encoding = detect_encoding(head, size)
    if not text_encoding.is_text or head.startswith(b"%PDF-"):
        return
    decoder = codecs.getincrementaldecoder(text_encoding.encoding)("replace")
    offset = text_encoding.bom_bytes
    while offset < size:
        data = content.read(offset, PIECE_BYTES)
        if not data:
            break
        offset += len(data)
        yield decoder.decode(data).replace("\0", " ")
    yield decoder.decode(b"", final=True)
