"""Encodings of pack files: gitformat-pack(5)."""

from __future__ import annotations


def encode_header(kind: int, size: int) -> bytes:
    """Encode the kind and the size of an object of a pack."""
    header = bytearray()
    byte, rest = kind << 4 | size & 15, size >> 4
    while rest:
        header.append(byte | 0x80)
        byte, rest = rest & 0x7F, rest >> 7
    header.append(byte)
    return bytes(header)


def encode_size(value: int) -> bytes:
    """Encode a size in a delta."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
