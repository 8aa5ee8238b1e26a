"""Error texts for invalid arguments, one line each: the path and what is expected, never the value."""

from __future__ import annotations

import re
import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from wharfinger.content.text import printable
from wharfinger.protocol.json_schema import path_text
from wharfinger.server.signature.type_schemas import ModelErrors

__all__ = ["BadArguments", "allowed_values", "fault_lines", "path_text", "union_members"]


class BadArguments(ValueError):
    """Arguments that are not valid; `faults` has one line for each fault."""

    faults: list[str]

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


_WORDS = {
    "int": "an integer",
    "str": "a string",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
    "bytes": "base64 text",
    "Path": "a string",
}
# The patterns are not compiled here: most processes never need them, and it would slow down the import.
_PATH = r"(?s)(.*?)(?: - at (`key` in )?`\$(.*)`)?"
_EXPECTED = r"(?s)Expected `([^`]+)`(?:, got `([^`]+)`| (.*))?"
_FIXED = {
    "Invalid UUID": "is not a UUID",
    "Invalid RFC3339 encoded datetime": "is not a date and time (RFC 3339), such as 2026-07-28T12:00:00Z",
    "Invalid RFC3339 encoded date": "is not a date, such as 2026-07-28",
    "Invalid RFC3339 encoded time": "is not a time, such as 12:00:00Z",
    "Invalid ISO8601 duration": "is not a duration (ISO 8601), such as PT5M",
    "Invalid decimal string": "is not a decimal number",
    "Invalid base64 encoded string": "is not base64 text",
    "Number out of range": "is out of range",
    "Integer value out of range": "is out of range",
}
_MEMBER = r"Object (missing required|contains unknown) field `([^`]*)`"


def fault_lines(name: str, kind: Any, error: msgspec.MsgspecError) -> list[str]:
    """Return a line for each fault of the value `name` that `error` reports."""
    match = re.fullmatch(_PATH, str(error))
    message, path = (match[1], match[3] or "") if match else ("", "")
    where = name + printable(path)
    if isinstance(error.__cause__, ModelErrors):
        return [f"{path_text(path, where)}: {printable(reason, 200)}" for path, reason in error.__cause__.faults]
    member = re.fullmatch(_MEMBER, message)
    if member:
        missing = member[1] == "missing required"
        return [f"{where}.{printable(member[2])}: {'missing' if missing else 'no such member'}"]
    return [f"{where}: {_reason(kind, message, path, error)}"]


def _reason(kind: Any, message: str, path: str, error: msgspec.MsgspecError) -> str:
    if isinstance(error.__cause__, (ValueError, TypeError)):  # raised by the author's own validation
        return printable(str(error.__cause__), 200)
    expected = re.fullmatch(_EXPECTED, message)
    if expected:
        expected_types = " or ".join(_WORDS.get(word, word) for word in expected[1].split(" | "))
        if expected[2]:
            return f"expected {expected_types}, got {_WORDS.get(expected[2], expected[2])}"
        return f"expected {expected_types} {expected[3] or ''}".rstrip()
    if message.startswith("Invalid enum value") and not path and (choices := allowed_values(kind)):
        return f"must be one of {', '.join(choices)}"
    if message.startswith(("Invalid enum value", "Invalid value")):
        return "is not one of the allowed values"
    return _FIXED.get(message, "is not valid here")


def allowed_values(kind: Any) -> list[str]:
    """Return the values of an enum or of literals, as JSON, or an empty list for any other type."""
    values: list[Any] = []
    for member in union_members(kind) or (kind,):
        if get_origin(member) is Literal:
            values += get_args(member)
        elif isinstance(member, type) and issubclass(member, Enum):
            values += [option.value for option in member]
    return [msgspec.json.encode(value).decode() for value in values]


def union_members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or an empty tuple for any other type."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()
