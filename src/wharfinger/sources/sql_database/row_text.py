"""Converts values of a database to valid JSON, and marks values that were cut.

| value | JSON |
|---|---|
| integer | number; a string beyond ±(2^53 - 1), where JSON parsers lose digits |
| float | number; `"Infinity"`, `"-Infinity"`, `"NaN"` as strings, since JSON has none |
| decimal, uuid, … | string, as the database writes it |
| date, time | string, as in ISO 8601 |
| duration | string, as Python writes it: `1 day, 2:00:00` |
| bytes | `{"type": "image/png", "bytes": 90000}`; up to 32 bytes in hex: `{"hex": "00ff", "bytes": 2}` |
| json, array | the JSON itself; a number in it is a string if a float or JSON parsers would lose digits |
| too long | `{"text": "…", "cut": true, "characters": 90000}`, or `"bytes"` if the database cut it |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeGuard, cast

import msgspec

from wharfinger.content import mime

__all__ = [
    "PartialValue",
    "becomes_array",
    "becomes_object",
    "binary",
    "clean",
    "clean_all",
    "cut_text",
    "json_line",
    "json_value",
    "number",
    "render",
    "unique_names",
]

MAX_EXACT_INTEGER = 2**53 - 1
"""The largest integer that every JSON parser reads exactly (RFC 8259, §6)."""

MAX_HEX_BYTES = 32
"""Maximum number of bytes of a value that is shown in hex."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class PartialValue(dict[str, object]):
    """A JSON object that describes a value, instead of the complete value."""


def render(value: object, limit: int) -> object:
    """Convert a value of a database driver to a JSON value of about `limit` characters at most."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return cut_text(value, limit)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return binary(bytes(cast("bytes", value)))
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, timedelta)):
        return str(value)
    if becomes_object(value):
        return _nested({clean(str(name)): render(item, limit) for name, item in value.items()}, limit)
    if becomes_array(value):
        return _nested([render(item, limit) for item in value], limit)
    return cut_text(str(value), limit)


def becomes_object(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether this value becomes a JSON object."""
    return isinstance(value, Mapping)


def becomes_array(value: object) -> TypeGuard[Collection[Any]]:
    """Return whether this value becomes a JSON array."""
    return isinstance(value, (list, tuple, set, frozenset))


def _nested(value: object, limit: int) -> object:
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= limit else cut_text(text, limit)


def number(value: int | float) -> object:
    """Return a number, or a string if JSON cannot express it exactly."""
    if isinstance(value, int):
        return value if -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER else str(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def cut_text(text: str, limit: int, size: int | None = None) -> object:
    """Return a text, or its beginning with a mark. `size` is the full size in bytes if `text` was cut already."""
    if len(text) <= limit and size is None:
        return clean(text)
    full_size: dict[str, object] = {"characters": len(text)} if size is None else {"bytes": size}
    return PartialValue({"text": clean(text[:limit]), "cut": True} | full_size)


def binary(data: bytes, size: int | None = None) -> dict[str, object]:
    """Describe bytes by type and size, or show up to `MAX_HEX_BYTES` in hex. `data` may be only their beginning."""
    size = len(data) if size is None else size
    if size <= MAX_HEX_BYTES:  # such as a digest or a UUID
        return {"hex": data.hex(), "bytes": size}
    return PartialValue({"type": mime.classify("", data[: mime.SNIFFED_BYTES], False), "bytes": size})


def clean(text: str) -> str:
    """Replace lone surrogates, which are not valid Unicode, by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("�", text)


def json_line(names: Sequence[str], cells: Iterable[object]) -> str:
    """Encode a row as a line of JSON."""
    return msgspec.json.encode(dict(zip(names, cells, strict=True))).decode() + "\n"


def unique_names(names: Iterable[str]) -> list[str]:
    """Make names of columns unique: `id`, `id_2`, `id_3`."""
    result: list[str] = []
    cleaned = [clean(name) for name in names]
    taken = set(cleaned)
    counts: dict[str, int] = {}
    for name in cleaned:
        unique, count = name, counts.get(name, 0) + 1
        while count > 1 and (unique := f"{name}_{count}") in taken:
            count += 1
        counts[name] = count
        result.append(unique)
    return result


def json_value(text: str, cell: int) -> object:
    """Return the value of a JSON text, or if it is not valid JSON, the text cut after `cell` characters."""
    try:
        value: object = json.loads(
            clean(text), parse_float=_float, parse_int=lambda digits: number(int(digits)), parse_constant=str
        )
        return clean_all(value) if r"\u" in text else value  # PostgreSQL's json may have half of a surrogate pair
    except (ValueError, RecursionError):
        return cut_text(text, cell)


def clean_all(value: object) -> object:
    """Apply `clean` to all texts and names in a JSON value."""
    if isinstance(value, str):
        return clean(value)
    if becomes_object(value):
        return {clean(name): clean_all(item) for name, item in value.items()}
    return [clean_all(item) for item in value] if becomes_array(value) else value


def _float(digits: str) -> object:
    """Return a number, or the text if a float cannot hold all its digits."""
    value = float(digits)
    shortest = repr(value)
    if shortest == digits:
        return value
    try:
        exact = math.isfinite(value) and Decimal(shortest) == Decimal(digits)
    except InvalidOperation:  # an exponent that Decimal cannot hold either
        exact = False
    return value if exact else digits
