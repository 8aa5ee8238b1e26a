"""Edits one entry of a JSON file with comments, and keeps every other byte unchanged.

The libraries that read JSON with comments either drop them when they write (hjson, json5, commentjson) or offer no way
to insert a member (json-five, which also takes four seconds for a megabyte: `~/.claude.json` can grow that large).

`blank` overwrites comments and trailing commas with spaces. The result is plain JSON in which every value is at the
same place as in the original text, so the decoder of the standard library finds where a value begins and ends.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, cast

__all__ = ["InvalidJson", "find", "loads", "put", "remove"]

# A string or comment without an end is taken to the end at once, and kept: the decoder then refuses it.
COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*"?|/\*(?!.*?\*/).*)|//[^\n]*|/\*.*?\*/|\ufeff', re.DOTALL)
TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*"?)|,(?=\s*[}\]])')
GAP_COMMA = re.compile(r"(//[^\n]*|/\*.*?\*/)|,", re.DOTALL)
SPACE = re.compile(r"\s*")
DECODER = json.JSONDecoder()


class InvalidJson(ValueError):
    """The text is not a JSON object with comments; the message says where."""

    def __init__(self, text: str, at: int, reason: str) -> None:
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        super().__init__(f"line {line}, column {column}: {reason}")


class JsonMember(NamedTuple):
    """One `"key": value` of an object: the key, where it begins, and where the value begins and ends."""

    key: str
    start: int
    value_start: int
    end: int


def loads(text: str) -> dict[str, Any]:
    """Read an object that may have comments and trailing commas; an empty text is an empty object.

    Raises:
        InvalidJson: the text is not such an object.
    """
    plain = blank(text)
    if not plain.strip():
        return {}
    try:
        value = json.loads(plain)
    except json.JSONDecodeError as error:
        raise InvalidJson(text, error.pos, error.msg) from None
    except RecursionError:
        raise InvalidJson(text, 0, "nested too deeply") from None
    except ValueError:
        raise InvalidJson(text, 0, "a number has too many digits") from None
    if not isinstance(value, dict):
        raise InvalidJson(text, 0, "expected an object")
    return cast("dict[str, Any]", value)


def find(text: str, table: str, name: str) -> Any:
    """Return the entry `table.name`, or None if there is none.

    Raises:
        InvalidJson: the text or the table is not an object.
    """
    entries = loads(text).get(table, {})
    if not isinstance(entries, dict):
        raise InvalidJson(text, 0, f"expected {table!r} to be an object")
    return cast("dict[str, Any]", entries).get(name)


def put(text: str, table: str, name: str, entry: dict[str, Any]) -> str:
    """Return the text with `table.name` set to `entry`; raises InvalidJson as `find` does."""
    find(text, table, name)
    plain = blank(text)
    if not plain.strip():
        comments = text.rstrip() + "\n" if text.strip() else ""
        return comments + json.dumps({table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    table_member = get_member(plain, plain.index("{"), table)
    if table_member is None:
        return insert(text, plain.index("{"), table, {name: entry})
    old = get_member(plain, table_member.value_start, name)
    if old is None:
        return insert(text, table_member.value_start, name, entry)
    return text[: old.value_start] + dumps(text, entry, line_indent(text, old.start)) + text[old.end :]


def remove(text: str, table: str, name: str) -> str:
    """Return the text without `table.name`, unchanged if there is none; raises InvalidJson as `find` does."""
    find(text, table, name)
    plain = blank(text)
    table_member = get_member(plain, plain.index("{"), table) if plain.strip() else None
    if table_member is None:
        return text
    siblings = members(plain, table_member.value_start)
    # The key may occur several times: without its last value, the one before would count. From the end, so that what
    # remains to be examined keeps its place.
    for place, old in reversed([*enumerate(siblings)]):
        if old.key != name:
            continue
        first, last = old.start, old.end
        if place + 1 < len(siblings):
            last = siblings[place + 1].start
        elif place:
            first = siblings[place - 1].end
        else:
            first, last = table_member.value_start + 1, table_member.end - 1 + len(text) - len(plain)
        before, after = comments_in(text[first : old.start]), comments_in(text[old.end : last])
        if first == old.start:
            after = after.lstrip()
        elif not after and text[last : last + 1] in "\r\n":
            before = before.rstrip()
        text = text[:first] + before + after + text[last:]
        del siblings[place]
        if place < len(siblings):
            siblings[place] = siblings[place]._replace(start=first + len(before) + len(after))
    return text


def comments_in(gap: str) -> str:
    """Return the text between two members without its comma, or an empty string if it has no comment."""
    return GAP_COMMA.sub(lambda match: match[1] or "", gap) if "/" in gap else ""


def blank(text: str) -> str:
    """Overwrite comments, trailing commas and the byte order mark with spaces; line ends and positions stay."""
    for pattern in (COMMENT, TRAILING_COMMA):
        text = pattern.sub(lambda match: match[1] or re.sub(r"[^\r\n]", " ", match[0]), text)
    return text


def members(plain: str, at: int) -> list[JsonMember]:
    """List the members of the object whose brace is at `at`, in a text that `loads` has accepted."""
    entries: list[JsonMember] = []
    at = skip(plain, at + 1)
    while plain[at] != "}":
        key, end = DECODER.raw_decode(plain, at)
        value_start = skip(plain, skip(plain, end) + 1)  # after the colon
        end = DECODER.raw_decode(plain, value_start)[1]
        entries.append(JsonMember(key, at, value_start, end))
        at = skip(plain, end)
        at = skip(plain, at + 1) if plain[at] == "," else at
    return entries


def get_member(plain: str, at: int, key: str) -> JsonMember | None:
    """Find a member of the object at `at`. If the key occurs several times, the last one counts, as in JSON parsers."""
    return next((member for member in reversed(members(plain, at)) if member.key == key), None)


def skip(plain: str, at: int) -> int:
    """Return the place after white space."""
    return cast("re.Match[str]", SPACE.match(plain, at)).end()


def insert(text: str, at: int, key: str, value: dict[str, Any]) -> str:
    """Add a member at the end of the object whose brace is at `at`, laid out like its neighbours."""
    plain = blank(text)
    siblings = members(plain, at)
    newline = "\r\n" if "\r\n" in text else "\n"
    name = json.dumps(key, ensure_ascii=False)
    if not siblings:
        outer = line_indent(text, at)
        indent = outer + indent_unit(text)
        close = plain.index("}", at)
        return text[: at + 1] + f"{newline}{indent}{name}: {dumps(text, value, indent)}{newline}{outer}" + text[close:]
    last = siblings[-1]
    indent = line_indent(text, last.start)
    if text[text.rfind("\n", 0, last.start) + 1 : last.start] == indent:
        added = f",{newline}{indent}{name}: {dumps(text, value, indent)}"
    else:  # the object is on one line
        added = f", {name}: {json.dumps(value, ensure_ascii=False)}"
    return text[: last.end] + added + text[last.end :]


def dumps(text: str, value: dict[str, Any], indent: str) -> str:
    """Write a value in the layout of the file, from a line that is indented by `indent`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    return json.dumps(value, indent=indent_unit(text), ensure_ascii=False).replace("\n", newline + indent)


def indent_unit(text: str) -> str:
    """Return the indentation of the first member in the file, or two spaces."""
    match = re.search(r"\{\s*?\n([ \t]+)\S", text)
    return match[1] if match else "  "


def line_indent(text: str, at: int) -> str:
    """Return the white space at the beginning of the line that holds `at`."""
    return cast("re.Match[str]", re.match(r"[ \t]*", text[text.rfind("\n", 0, at) + 1 : at]))[0]
