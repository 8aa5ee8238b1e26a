"""Change one entry of a JSON file as text, so that comments, order and layout of the rest stay; no I/O.

Hosts keep much else in these files, some allow comments and trailing commas, and one that is rewritten whole
would differ in every line.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = ["Unreadable", "drop", "find", "put"]


class Unreadable(ValueError):
    """The text is not the JSON that was expected; says where."""

    def __init__(self, text: str, at: int, wanted: str) -> None:
        line = text.count("\n", 0, at) + 1
        super().__init__(f"line {line}, column {at - text.rfind(chr(10), 0, at)}: expected {wanted}")


class Member(NamedTuple):
    """One `"key": value` of an object, as places in the text."""

    key: str
    start: int
    value: int
    end: int


BLANK = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
SCALAR = re.compile(r"[^\s,\[\]{}\"/]+")
INSIDE = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|[\[\]{}]|[^"/\[\]{}]+|/', re.DOTALL)
CLOSES = {"}": "{", "]": "["}


def find(text: str, table: str, name: str) -> Any:
    """Return the entry `table.name`, or None where there is none; raises Unreadable."""
    if not text.strip("\ufeff \t\r\n"):
        return None
    holder = get_member(members(text, root(text))[0], table)
    entry = get_member(members(text, object_at(text, holder.value))[0], name) if holder else None
    return plain(text[entry.value : entry.end]) if entry else None


def put(text: str, table: str, name: str, entry: dict[str, Any]) -> str:
    """Return `text` with `table.name` set to `entry`; raises Unreadable where the text is not such a file."""
    if not text.strip("\ufeff \t\r\n"):
        return json.dumps({table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    top = root(text)
    holder = get_member(members(text, top)[0], table)
    if holder is None:
        return insert(text, top, table, {name: entry})
    inner = object_at(text, holder.value)
    old = get_member(members(text, inner)[0], name)
    if old is None:
        return insert(text, inner, name, entry)
    return text[: old.value] + dumps(text, entry, line_indent(text, old.start)) + text[old.end :]


def drop(text: str, table: str, name: str) -> str:
    """Return `text` without `table.name`; the same text where there is none; raises Unreadable."""
    if not text.strip("\ufeff \t\r\n"):
        return text
    holder = get_member(members(text, root(text))[0], table)
    if holder is None:
        return text
    inside, close = members(text, object_at(text, holder.value))
    old = get_member(inside, name)
    if old is None:
        return text
    place = inside.index(old)
    if len(inside) == 1:
        return text[: text.index("{", holder.value) + 1] + text[close:]
    if place + 1 < len(inside):
        return text[: old.start] + text[inside[place + 1].start :]
    return text[: inside[place - 1].end] + text[old.end :]


def root(text: str) -> int:
    """Find the outermost object."""
    return object_at(text, blank(text, 0))


def object_at(text: str, at: int) -> int:
    """Check that an object begins here."""
    if not text.startswith("{", at):
        raise Unreadable(text, at, "an object, `{`")
    return at


def blank(text: str, at: int) -> int:
    """Skip white space and comments."""
    match = BLANK.match(text, at)
    return match.end() if match else at


def members(text: str, at: int) -> tuple[list[Member], int]:
    """List the members of the object at `at`, and the place of its closing brace."""
    found: list[Member] = []
    at = blank(text, at + 1)
    while not text.startswith("}", at):
        start = at
        key = STRING.match(text, at)
        if key is None:
            raise Unreadable(text, at, 'a name in double quotes, or "}"')
        at = blank(text, key.end())
        if not text.startswith(":", at):
            raise Unreadable(text, at, '":"')
        value = blank(text, at + 1)
        end = value_end(text, value)
        found.append(Member(json.loads(key.group()), start, value, end))
        at = blank(text, end)
        if text.startswith(",", at):
            at = blank(text, at + 1)
        elif not text.startswith("}", at):
            raise Unreadable(text, at, '"," or "}"')
    return found, at


def value_end(text: str, at: int) -> int:
    """Find where the value at `at` ends, without reading more of it than its brackets."""
    if text.startswith('"', at):
        whole = STRING.match(text, at)
        if whole is None:
            raise Unreadable(text, at, "the end of this string")
        return whole.end()
    if text[at : at + 1] not in ("{", "["):
        scalar = SCALAR.match(text, at)
        if scalar is None:
            raise Unreadable(text, at, "a value")
        return scalar.end()
    opened: list[str] = []
    for token in INSIDE.finditer(text, at):
        if token.group() in ("{", "["):
            opened.append(token.group())
        elif token.group() in CLOSES:
            if opened.pop() != CLOSES[token.group()]:
                raise Unreadable(text, token.start(), "the other bracket")
            if not opened:
                return token.end()
    raise Unreadable(text, at, "a closing bracket for this one")


def get_member(found: list[Member], key: str) -> Member | None:
    """Pick a member; of duplicates the last one counts, as for every reader of JSON."""
    return next((member for member in reversed(found) if member.key == key), None)


def insert(text: str, at: int, key: str, value: dict[str, Any]) -> str:
    """Add a member at the end of the object at `at`, laid out like its neighbours."""
    inside, close = members(text, at)
    newline = "\r\n" if "\r\n" in text else "\n"
    name = json.dumps(key, ensure_ascii=False)
    if not inside:
        outer = line_indent(text, at)
        indent = outer + unit(text)
        body = f"{newline}{indent}{name}: {dumps(text, value, indent)}{newline}{outer}"
        return text[: at + 1] + body + text[close:]
    last = inside[-1]
    if text[text.rfind("\n", 0, last.start) + 1 : last.start].strip():  # all on one line
        return text[: last.end] + f", {name}: {json.dumps(value, ensure_ascii=False)}" + text[last.end :]
    indent = line_indent(text, last.start)
    return text[: last.end] + f",{newline}{indent}{name}: {dumps(text, value, indent)}" + text[last.end :]


def dumps(text: str, value: dict[str, Any], indent: str) -> str:
    """Write a value in the layout of the file, from a line that is indented by `indent`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, indent=unit(text), ensure_ascii=False).split("\n")
    return (newline + indent).join(lines)


def unit(text: str) -> str:
    """Find by what the file indents: the blanks before its first member, else two."""
    match = re.search(r"\{\s*?\n([ \t]+)\S", text)
    return match.group(1) if match else "  "


def line_indent(text: str, at: int) -> str:
    """Return the blanks at the beginning of the line that holds `at`."""
    match = re.match(r"[ \t]*", text[text.rfind("\n", 0, at) + 1 : at])
    return match.group() if match else ""


def plain(text: str) -> Any:
    """Read a value that may hold comments and trailing commas."""
    kept = "".join("" if token.group().startswith(("//", "/*")) else token.group() for token in INSIDE.finditer(text))
    try:
        return json.loads(kept)
    except ValueError:
        pieces = re.split(r'("(?:[^"\\\n]|\\.)*")', kept)
        joined = "".join(
            piece if place % 2 else re.sub(r",(\s*[}\]])", r"\1", piece) for place, piece in enumerate(pieces)
        )
        try:
            return json.loads(joined)
        except ValueError:
            return text
