"""Edits one table of a TOML file with tomlkit, which keeps the comments and the layout of the rest."""

from __future__ import annotations

import tomllib
from typing import Any, cast

__all__ = ["find", "put", "remove"]


def find(text: str, table: str, name: str) -> Any:
    """Return the table `[table.name]`, or None if it does not exist. Raises ValueError if `table` is not a table."""
    entries = tomllib.loads(text).get(table, {})
    if not isinstance(entries, dict):
        raise ValueError(f"expected {table!r} to be a table")
    return cast("dict[str, Any]", entries).get(name)


def put(text: str, table: str, name: str, entry: dict[str, Any]) -> str:
    """Return the text with `[table.name]` set to `entry`; raises ValueError as `find` does, and MissingExtra."""
    find(text, table, name)  # raises ValueError if the text cannot be edited
    expected, document = tomllib.loads(text), parse(text)
    from tomlkit import nl
    from tomlkit import table as new_table
    from tomlkit.items import Table

    if table not in document:
        if text:
            document.add(nl())
        document.add(table, new_table(is_super_table=True))
    document[table][name] = entry
    added = document[table][name]
    if isinstance(added, Table) and name not in expected.get(table, {}):
        added.add(nl())  # an empty line before the next table
    expected.setdefault(table, {})[name] = entry
    return checked_text(text, document, expected)


def remove(text: str, table: str, name: str) -> str:
    """Return the text without `[table.name]`, or unchanged if that table does not exist. Raises as `put` does."""
    if find(text, table, name) is None:
        return text
    expected, document = tomllib.loads(text), parse(text)
    for tables in (expected, document):
        del tables[table][name]
        if not tables[table]:
            del tables[table]
    return checked_text(text, document, expected)


def parse(text: str) -> Any:
    """Parse the text into a document that keeps its comments and layout; raises MissingExtra."""
    try:
        import tomlkit
    except ImportError:
        from wharfinger.errors import MissingExtra

        raise MissingExtra("toml", "Editing a TOML file") from None
    return tomlkit.parse(text if not text or text.endswith("\n") else text + "\n")


def checked_text(old: str, document: Any, expected: dict[str, Any]) -> str:
    """Return the document with the line ends of the old text; raises ValueError if its values are not `expected`."""
    new = document.as_string().replace("\r\n", "\n")
    new = new.rstrip("\n") + "\n" if new.strip() else ""
    if tomllib.loads(new) != expected:
        raise ValueError("its layout is unusual")
    return new.replace("\n", "\r\n") if "\r\n" in old else new
