"""Change one table of a TOML file as text, so that comments and layout of the rest stay; no I/O."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from wharfinger.cli.jsonc import Unreadable

__all__ = ["drop", "find", "put"]

HEADER = re.compile(r"^[ \t]*\[\[?(?P<path>[^\]\n]+)\]\]?[ \t]*(?:#.*)?$", re.MULTILINE)
KEY = re.compile(r"""[ \t]*(?:"(?P<basic>(?:[^"\\]|\\.)*)"|'(?P<literal>[^']*)'|(?P<bare>[A-Za-z0-9_-]+))[ \t]*""")


class NotThere(Unreadable):
    """The file cannot be changed as text; says why."""

    def __init__(self, reason: str) -> None:
        ValueError.__init__(self, reason)


def find(text: str, table: str, name: str) -> Any:
    """Return the table `[table.name]`, or None where there is none; raises Unreadable."""
    return tables(parse(text), table).get(name)


def put(text: str, table: str, name: str, entry: dict[str, Any]) -> str:
    """Return `text` with `[table.name]` set to `entry`; raises Unreadable where that cannot be done as text."""
    expected = parse(text)
    expected[table] = {**tables(expected, table), name: entry}
    kept = without(text, table, name)
    gap = "" if not kept.strip() else "\n" if kept.endswith("\n") else "\n\n"
    return checked(kept + gap + section(table, name, entry), expected)


def drop(text: str, table: str, name: str) -> str:
    """Return `text` without `[table.name]` and its sub-tables; raises Unreadable as `put` does."""
    expected = parse(text)
    held = tables(expected, table)
    if name not in held:
        return text
    del held[name]
    expected[table] = held
    kept = without(text, table, name).rstrip("\n")
    return checked(kept and kept + "\n", expected, emptied=table)


def tables(said: dict[str, Any], table: str) -> dict[str, Any]:
    """Take the tables below `[table]`; raises Unreadable where it is something else."""
    held: object = said.get(table, {})
    if not isinstance(held, dict):
        raise NotThere(f"`{table}` is not a table")
    return cast("dict[str, Any]", held)


def parse(text: str) -> dict[str, Any]:
    """Read TOML; raises Unreadable with the place."""
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotThere(str(error)) from None


def checked(text: str, expected: dict[str, Any], emptied: str = "") -> str:
    """Return `text` if it says `expected`: inline tables and headers in strings are beyond us, and found here."""
    said = parse(text)
    if emptied and not expected.get(emptied):
        expected.pop(emptied, None)
        said.pop(emptied, None) if not said.get(emptied) else None
    if said != expected:
        raise NotThere("its layout is unusual (inline tables?)")
    return text


def without(text: str, table: str, name: str) -> str:
    """Cut the sections of `[table.name]` and of its sub-tables."""
    headers = list(HEADER.finditer(text))
    kept: list[str] = []
    at = 0
    for place, header in enumerate(headers):
        if split(header["path"])[:2] != [table, name]:
            continue
        end = headers[place + 1].start() if place + 1 < len(headers) else len(text)
        kept.append(text[at : header.start()])
        at = end
    kept.append(text[at:])
    return "".join(kept)


def split(path: str) -> list[str]:
    """Split a dotted key."""
    found: list[str] = []
    at = 0
    while match := KEY.match(path, at):
        basic = match["basic"]
        found.append(json.loads(f'"{basic}"') if basic is not None else match["literal"] or match["bare"] or "")
        at = match.end()
        if not path.startswith(".", at):
            break
        at += 1
    return found


def section(table: str, name: str, entry: dict[str, Any]) -> str:
    """Write a table; its values are strings, lists of strings and tables of strings."""
    return f"[{table}.{key(name)}]\n" + "".join(f"{key(word)} = {literal(value)}\n" for word, value in entry.items())


def key(word: str) -> str:
    """Write a key, quoted where it must be."""
    return word if re.fullmatch(r"[A-Za-z0-9_-]+", word) else literal(word)


def literal(value: Any) -> str:
    """Write a value: JSON's strings and lists are TOML's too, once DEL is escaped."""
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value)
        return "{ " + ", ".join(f"{key(word)} = {literal(inner)}" for word, inner in inside.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
