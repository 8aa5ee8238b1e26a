"""Writes and parses the URIs of a database: `<top>/<table>`, `<top>/<table>/rows?after=<key>&limit=100`,
`<top>/<table>/rows/<key>` and `<top>/<table>/rows/<key>/<column>`, with the schema before the table if the database can
have several schemas.

A key of several columns is written with commas between the texts. Does no I/O.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

import msgspec

from wharfinger.errors import InvalidArgument, ResourceNotFound

__all__ = ["KeyTexts", "SqlTarget", "SqlUris", "join_key", "quote_part", "split_key"]

KeyTexts = tuple[str | None, ...]
"""The values of a key as texts, with None for NULL."""

MAX_URI_LENGTH = 32_768
ROWS = "rows"

_WHOLE_PARTS: dict[str, str | None] = {"~_": "", "~0": None}
_ESCAPES = {"~~": "~", "~.": ","}
_ESCAPE = re.compile("~.?", re.DOTALL)


class SqlTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a URI: the database, a schema, a table's definition, its rows, one row, or one cell of it."""

    kind: Literal["database", "schema", "table", "rows", "row", "cell"]
    schema: str = ""
    table: str = ""
    key: KeyTexts = ()
    column: str = ""
    query: str | None = None


class SqlUris:
    """The URIs of one database. `schema` is the database's only schema, or None if URIs contain the schema."""

    def __init__(self, top: str, schema: str | None) -> None:
        self.top = top
        self.schema = schema
        self._prefix = top + "/"

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to the database, whether or not it exists."""
        return uri == self.top or uri.startswith((self._prefix, self.top + "?"))

    def of_schema(self, schema: str) -> str:
        """Return the URI of a schema."""
        return self.top if self.schema is not None else self._prefix + quote_part(schema)

    def of_table(self, schema: str, table: str) -> str:
        """Return the URI of a table's definition."""
        return f"{self.of_schema(schema)}/{quote_part(table)}"

    def of_rows(self, schema: str, table: str, query: str = "") -> str:
        """Return the URI of a table's rows, or of a window of them."""
        return f"{self.of_table(schema, table)}/{ROWS}{'?' + query if query else ''}"

    def of_row(self, schema: str, table: str, key: KeyTexts) -> str:
        """Return the URI of one row."""
        return f"{self.of_rows(schema, table)}/{quote_part(join_key(key))}"

    def of_cell(self, schema: str, table: str, key: KeyTexts, column: str) -> str:
        """Return the URI of the whole value of one cell."""
        return f"{self.of_row(schema, table, key)}/{quote_part(column)}"

    def read(self, uri: str) -> SqlTarget:
        """Parse a URI.

        Raises:
            ResourceNotFound: it does not have the form of any URI of the database.
            InvalidArgument: it asks for a window of something that has no windows.
        """
        if len(uri) > MAX_URI_LENGTH or not self.matches(uri) or "#" in uri:
            raise ResourceNotFound(uri)
        path, mark, query = uri[len(self.top) :].partition("?")
        inner = path.removeprefix("/").removesuffix("/")
        target = self._target(uri, [_unquote(uri, part) for part in inner.split("/")] if path[1:] else [])
        if path.endswith("/") and target.kind not in ("database", "schema"):
            raise ResourceNotFound(uri)
        if not mark:
            return target
        if target.kind not in ("rows", "cell"):
            raise InvalidArgument("Only rows take parameters: read …/<table>/rows?limit=100 instead.")
        return msgspec.structs.replace(target, query=query)

    def _target(self, uri: str, parts: list[str]) -> SqlTarget:
        if not parts:
            return SqlTarget(kind="database")
        if self.schema is None:
            schema, *parts = parts
            if not parts:
                return SqlTarget(kind="schema", schema=schema)
        else:
            schema = self.schema
        match parts:
            case [table]:
                return SqlTarget(kind="table", schema=schema, table=table)
            case [table, "rows"]:
                return SqlTarget(kind="rows", schema=schema, table=table)
            case [table, "rows", key]:
                return SqlTarget(kind="row", schema=schema, table=table, key=_key(uri, key))
            case [table, "rows", key, column]:
                return SqlTarget(kind="cell", schema=schema, table=table, key=_key(uri, key), column=column)
            case _:
                raise ResourceNotFound(uri)


def quote_part(text: str) -> str:
    """Percent-encode a name or key as one segment of a path, or a value in a query. `.` and `..` are encoded too."""
    return "%2E" * len(text) if text in (".", "..") else quote(text, safe="~!$'()*,:@")


def _unquote(uri: str, part: str) -> str:
    if not part or re.search("%(?![0-9A-Fa-f]{2})", part):
        raise ResourceNotFound(uri)
    try:
        text = unquote_to_bytes(part).decode()
    except UnicodeError:
        raise ResourceNotFound(uri) from None
    if "\0" in text:
        raise ResourceNotFound(uri)
    return text


def _key(uri: str, text: str) -> KeyTexts:
    try:
        return split_key(text)
    except ValueError:
        raise ResourceNotFound(uri) from None


def join_key(key: KeyTexts) -> str:
    """Join the texts of a key with commas. `~` is the escape character; `~0` is NULL, and `~_` an empty text."""
    return ",".join(["~0" if part is None else part.replace("~", "~~").replace(",", "~.") or "~_" for part in key])


def split_key(text: str) -> KeyTexts:
    """Split the result of `join_key` into the texts of the key.

    Raises:
        ValueError: it is not a result of `join_key`.
    """
    return tuple([_unescape(part) for part in text.split(",")])


def _unescape(part: str) -> str | None:
    if part in _WHOLE_PARTS:
        return _WHOLE_PARTS[part]
    if not part or not _ESCAPES.keys() >= set(_ESCAPE.findall(part)):
        raise ValueError(f"{part[:40]!r} is not a part of a key.")
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], part)
