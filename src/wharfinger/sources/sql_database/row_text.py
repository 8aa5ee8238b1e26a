"""Values of a database as JSON that is valid and says what it left out.

| value | JSON |
|---|---|
| integer | number; a string beyond ±(2^53 - 1), where readers of JSON lose digits |
| float | number; `"Infinity"`, `"-Infinity"`, `"NaN"` as strings, since JSON has none |
| decimal, date, time, uuid, … | string, as the database writes it |
| bytes | `{"base64": "…"}` |
| json, array | the JSON itself |
| too long | `{"text": "…", "cut": true, "characters": 90000}`, `{"base64": "…", "cut": true, "bytes": 90000}` |
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeGuard

import msgspec

__all__ = [
    "EXACT",
    "clean",
    "cut_bytes",
    "cut_text",
    "is_named",
    "is_several",
    "json_line",
    "number",
    "render",
    "unique_names",
]

EXACT = 2**53 - 1
"""The largest integer that every reader of JSON keeps (RFC 8259, §6)."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def render(value: object, most: int) -> object:
    """One value of a driver as a JSON value of about `most` bytes."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return cut_text(value, most)
    if isinstance(value, (bytes, bytearray)):
        return cut_bytes(bytes(value), most)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, timedelta)):
        return str(value)
    if is_named(value):
        return _nested({str(name): render(one, most) for name, one in value.items()}, most)
    if is_several(value):
        return _nested([render(one, most) for one in value], most)
    return cut_text(str(value), most)


def is_named(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether this is an object of JSON."""
    return isinstance(value, Mapping)


def is_several(value: object) -> TypeGuard[Collection[Any]]:
    """Whether this is a list of JSON."""
    return isinstance(value, (list, tuple, set, frozenset))


def _nested(value: object, most: int) -> object:
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= most else cut_text(text, most)


def number(value: int | float) -> object:
    """A number, or a string where JSON has none for it."""
    if isinstance(value, int):
        return value if -EXACT <= value <= EXACT else str(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def cut_text(text: str, most: int, size: int | None = None) -> object:
    """A text, or its beginning; `size` is how many bytes it really has, where only the beginning is here."""
    if len(text) <= most and size is None:
        return clean(text)
    whole: dict[str, object] = {"characters": len(text)} if size is None else {"bytes": size}
    return {"text": clean(text[:most]), "cut": True} | whole


def cut_bytes(data: bytes, most: int, size: int | None = None) -> dict[str, object]:
    """Bytes in base64, or their beginning; `size` is how many there really are, where only the beginning is here."""
    whole: dict[str, object] = {"base64": base64.b64encode(data[:most]).decode()}
    if len(data) <= most and size is None:
        return whole
    return whole | {"cut": True, "bytes": len(data) if size is None else size}


def clean(text: str) -> str:
    """A text that is valid Unicode: bytes that were none become U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("�", text)


def json_line(names: Sequence[str], cells: Iterable[object]) -> str:
    """One row as a line of JSON."""
    return msgspec.json.encode(dict(zip(names, cells, strict=True))).decode() + "\n"


def unique_names(names: Iterable[str]) -> list[str]:
    """Names of columns, so that no two are the same: `id`, `id_2`, `id_3`."""
    given: list[str] = []
    taken: set[str] = set()
    wanted = [clean(name) for name in names]
    for name in wanted:
        unique, count = name, 1
        while unique in taken or (count > 1 and unique in wanted):
            count += 1
            unique = f"{name}_{count}"
        taken.add(unique)
        given.append(unique)
    return given
