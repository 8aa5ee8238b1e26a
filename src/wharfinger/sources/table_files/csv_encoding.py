"""Detects the encoding of a CSV file, and writes a copy of the file in UTF-8. DuckDB reads only a few encodings.

A byte order mark decides. Without one, valid UTF-8 and what seems to be damaged UTF-8 are read as UTF-8, and what looks
like UTF-16 as UTF-16. Any other text is windows-1252, unless it seems to be in another script. Several
encodings of Cyrillic, for example, look alike: the operator must name the right one.
"""

from __future__ import annotations

import codecs
import re
from typing import IO

from wharfinger.content import encodings, mime
from wharfinger.content.text import size_text
from wharfinger.source import UnusableSource
from wharfinger.sources.table_files.duckdb_engine import UnreadableTable
from wharfinger.sources.table_files.table_format import MAX_LINE_BYTES, OpenFile

__all__ = [
    "MAX_CHECKED_BYTES",
    "MAX_COPIED_BYTES",
    "UTF8",
    "checked_encoding",
    "copy_as_utf8",
    "detected_encoding",
    "wide_delimiter",
]

UTF8 = "utf-8"
HEAD_BYTES = 1 << 20
"""Bytes at the beginning of a file that are examined first. If they are UTF-8, the rest may show another encoding."""
MAX_CHECKED_BYTES = 64 << 20
"""Maximum size in bytes of a file that is checked for valid UTF-8. In a larger file, DuckDB reports invalid lines."""
MAX_COPIED_BYTES = 256 << 20
"""Maximum size in bytes of a file that is not in UTF-8. A larger one is refused."""
MAX_CSV_COLUMNS = 500
"""Maximum number of columns of a CSV file that DuckDB reads directly. A wider file is copied as JSON Lines."""
_BLOCK_BYTES = 1 << 20
_NOT_WESTERN = re.compile(rb"[\x80-\xff]{3}|[\x01-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]").search
"""Matches bytes that Western texts rarely have: three letters or signs beyond ASCII in a row, control
characters, and bytes without a character in windows-1252."""
_OTHER_SCRIPT = re.compile(rb"[\x80-\xff]{3}").search
"""Matches three bytes beyond ASCII in a row."""


def checked_encoding(name: str) -> str:
    """Return Python's name of an encoding, or windows-1252 for cp1252.

    Raises:
        UnusableSource: there is no such encoding, or documents do not use it.
    """
    try:
        "".encode(name)
        codec_name = encodings.declared_encoding(name)
    except (LookupError, ValueError):
        codec_name = ""
    if not codec_name:
        raise UnusableSource(f"{name[:40]!r} is not an encoding: give one such as windows-1252 or koi8-r.")
    return encodings.WESTERN if codec_name == "cp1252" else codec_name


def detected_encoding(file: OpenFile) -> str:
    """Return the encoding of a file.

    Raises:
        UnreadableTable: the file is not text, or its encoding cannot be detected.
    """
    size = file.content.size
    head = file.content.read(0, HEAD_BYTES)
    encoding = mime.encoding_of(head, len(head) == size)
    if encoding == encodings.WESTERN and head.startswith(codecs.BOM_UTF8):
        encoding = ""  # damaged UTF-8
    sample = head
    if encoding == UTF8 and len(head) < size <= MAX_CHECKED_BYTES and (block := _invalid_block(file)):
        sample = block  # the head may be plain ASCII, so this block decides
        decoded = encodings.decode(block) if head.isascii() else None
        encoding = encodings.WESTERN if decoded and decoded[1] == encodings.WESTERN else ""
    if encoding or not size:
        return encoding or UTF8
    if (position := head.find(b"\0")) >= 0:
        line = head.count(b"\n", 0, position) + 1
        raise UnreadableTable(
            f"{file.name} is not text: line {line:,} has a NUL byte. Remove it, or convert the file to UTF-8 "
            "if it is in UTF-16 or UTF-32."
        )
    if _is_damaged_utf8(head) or _is_damaged_utf8(sample):
        return UTF8  # DuckDB reports the line of the damaged bytes
    # A block that is not the head gets the laxer test: `copy_as_utf8` reports bytes that are not in windows-1252, with
    # their line.
    if not (_NOT_WESTERN if sample is head else _OTHER_SCRIPT)(sample):
        return encodings.WESTERN
    raise UnreadableTable(
        f"{file.name} does not show its encoding: convert it to UTF-8, or publish it with --encoding NAME."
    )


def wide_delimiter(file: OpenFile) -> str:
    """Return the delimiter of a file in UTF-8 with more than `MAX_CSV_COLUMNS` columns; otherwise an empty string."""
    beginning = file.content.read(0, MAX_LINE_BYTES).removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    line = re.split(rb"[\r\n]", beginning, maxsplit=1)[0]
    if len(line) < MAX_CSV_COLUMNS:
        return ""
    line = re.sub(rb'"[^"]*"', b"", line)
    counts = {delimiter: line.count(delimiter.encode()) for delimiter in ",;\t|"}
    delimiter = max(counts, key=lambda each: counts[each])
    return delimiter if counts[delimiter] >= MAX_CSV_COLUMNS else ""


def _invalid_block(file: OpenFile) -> bytes:
    """Return the first block with invalid UTF-8, or no bytes if the whole file is valid."""
    decoder = codecs.getincrementaldecoder(UTF8)()
    for offset in range(0, file.content.size, _BLOCK_BYTES):
        block = file.content.read(offset, _BLOCK_BYTES)
        try:
            decoder.decode(block, offset + _BLOCK_BYTES >= file.content.size)
        except UnicodeDecodeError:
            return block
    return b""


def _is_damaged_utf8(data: bytes) -> bool:
    """Return whether data that is not valid UTF-8 was probably written as UTF-8.

    It has a byte order mark of UTF-8, or more valid characters beyond ASCII than invalid sequences of bytes.
    """
    text = data.decode(UTF8, "replace")  # each invalid sequence becomes one character U+FFFD, which is beyond ASCII
    characters = len(text) - len(text.encode("ascii", "ignore"))
    return data.startswith(codecs.BOM_UTF8) or characters > 2 * text.count("\ufffd")


def copy_as_utf8(file: OpenFile, encoding: str, out: IO[bytes]) -> None:
    """Write a file in UTF-8, without a byte order mark.

    Raises:
        UnreadableTable: the file is too large, or a line is not text in this encoding.
    """
    if file.content.size > MAX_COPIED_BYTES:
        raise UnreadableTable(
            f"{file.name} is in {encoding}, and has {size_text(file.content.size)}: files of more than "
            f"{size_text(MAX_COPIED_BYTES)} must be in UTF-8."
        )
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    for offset in range(0, file.content.size, _BLOCK_BYTES):
        block = file.content.read(offset, _BLOCK_BYTES)
        try:
            text = decoder.decode(block, offset + _BLOCK_BYTES >= file.content.size)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].decode(encoding, "replace").count("\n")
            bad = error.object[error.start : error.start + 1].hex()
            raise UnreadableTable(f"{file.name}: line {line:,} is not {encoding}: it has the byte {bad}.") from None
        except UnicodeError:  # from the codecs of UTF-16 and UTF-32 without a byte order
            raise UnreadableTable(
                f"{file.name} is not {encoding}: it has no byte order mark. Try {encoding}-le or {encoding}-be."
            ) from None
        line += text.count("\n")
        out.write((text if offset else text.removeprefix("\ufeff")).encode("utf-8", "surrogatepass"))
