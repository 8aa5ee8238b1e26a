"""Parses the Journal Export Format (systemd.io/JOURNAL_EXPORT_FORMATS), which `journalctl --output=export` writes.

An entry is a sequence of fields and ends with an empty line. A field is `NAME=value` and a line end. If the value has
control characters, or is not UTF-8, the field is the name, a line end, the length of the value (64 bits,
little-endian), the value and a line end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO

import msgspec

from wharfinger.sources.log_files.secrets import CONTEXT_BYTES, cut_between_secrets

__all__ = ["MAX_ENTRY_BYTES", "MAX_FIELDS", "MAX_FIELD_BYTES", "ExportedEntry", "read_entries"]

MAX_FIELD_BYTES = 1 << 20
"""Maximum number of bytes of one value that are kept. A program may send up to 768 MiB."""
MAX_ENTRY_BYTES, SHORT_VALUE_BYTES = 8 << 20, 4 << 10
"""After `MAX_ENTRY_BYTES` of one entry, at most `SHORT_VALUE_BYTES` of each further value are kept. That is enough for
the name of a unit, which decides who may read the entry."""
MAX_FIELDS = 1_280
"""Maximum number of fields of one entry that are kept. systemd accepts 1,024 from a program, and adds its own."""
MAX_NAME_BYTES = 64
"""Maximum length of the name of a field, as in systemd."""
_BLOCK_BYTES = 64 << 10  # bytes that are read at once while the rest of a value is skipped
_LENGTH = struct.Struct("<Q")


class ExportedEntry(msgspec.Struct):
    """One entry."""

    fields: dict[str, bytes]
    """The first value of each field."""
    size: int = 0
    """Number of bytes of all values."""
    left_out: int = 0
    """Number of bytes of values that are not in `fields`."""

    def text(self, name: str) -> str:
        """Return a field as text, or an empty string if the entry does not have it."""
        return self.fields.get(name, b"").decode("utf-8", "backslashreplace")


def read_entries(stream: IO[bytes]) -> Iterator[ExportedEntry]:
    """Yield the complete entries of a stream. Stops at the first field that is not valid."""
    entry, kept_bytes = ExportedEntry({}), 0
    while line := stream.readline(MAX_FIELD_BYTES + _BLOCK_BYTES):
        if line == b"\n":
            if entry.fields:
                yield entry
            entry, kept_bytes = ExportedEntry({}), 0
            continue
        max_value_bytes = MAX_FIELD_BYTES if kept_bytes < MAX_ENTRY_BYTES else SHORT_VALUE_BYTES
        max_read_bytes = max_value_bytes + CONTEXT_BYTES
        name, equals, value = line.partition(b"=")
        if equals:
            size = len(value) - value.endswith(b"\n") + (0 if value.endswith(b"\n") else _skip_line(stream))
            value = value.removesuffix(b"\n")[:max_read_bytes]
        else:
            name = name.removesuffix(b"\n")
            header = stream.read(_LENGTH.size)
            if len(header) < _LENGTH.size:
                return
            (size,) = _LENGTH.unpack(header)
            value = stream.read(min(size, max_read_bytes))
            if len(value) < min(size, max_read_bytes) or not _skip(stream, size - len(value)):
                return
            if stream.read(1) != b"\n":
                return
        entry.size += size
        key = name.decode("ascii", "replace")
        if key not in entry.fields and len(entry.fields) < MAX_FIELDS and len(name) <= MAX_NAME_BYTES:
            if len(value) > max_value_bytes:
                value = _cut(value, max_value_bytes)
            entry.fields[key] = value
            kept_bytes += len(value)
            entry.left_out += size - len(value)
        else:
            entry.left_out += size


def _cut(value: bytes, size: int) -> bytes:
    """Return the first `size` bytes of a value, or fewer if a secret at the cut is recognised by what follows."""
    begin = max(0, size - CONTEXT_BYTES)
    return value[:begin] + cut_between_secrets(value[begin:], size - begin)


def _skip_line(stream: IO[bytes]) -> int:
    """Skip the rest of a line. Returns its length without the line end."""
    size = 0
    while piece := stream.readline(_BLOCK_BYTES):
        size += len(piece)
        if piece.endswith(b"\n"):
            return size - 1
    return size


def _skip(stream: IO[bytes], size: int) -> bool:
    """Skip `size` bytes. Returns False if the stream ends before that."""
    while size > 0:
        piece = stream.read(min(size, _BLOCK_BYTES))
        if not piece:
            return False
        size -= len(piece)
    return True
