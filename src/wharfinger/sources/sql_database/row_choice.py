"""Parses the choice of rows and columns in a URI: `?status=paid&amount=gt.100&order=-date&columns=id,date`.

Databases and table files take the same parameters. A parameter whose name has no other meaning, or is in double quotes,
is a condition on the column of this name. A row must meet all conditions. Does no I/O: an engine builds statements from
the result, in which each value is a bound parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import NamedTuple
from urllib.parse import quote, unquote

from wharfinger.errors import InvalidArgument

__all__ = [
    "FILTERS",
    "OPERATORS",
    "SIGNS",
    "RowChoice",
    "RowFilter",
    "RowOrder",
    "UnknownColumn",
    "check_columns",
    "like_pattern",
    "read_choice",
    "read_pairs",
]

OPERATORS = ("eq", "neq", "gt", "gte", "lt", "lte", "like", "is")
"""The words before the first dot of a value, as in PostgREST. A value without such a word is compared with `eq`."""
SIGNS = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
"""The operators that compare, and their signs in SQL."""
FILTERS = "?status=paid, ?amount=gte.100 (eq, neq, gt, gte, lt, lte), ?name=like.*word*, ?town=is.null"
"""Examples for people and models."""
MAX_FILTERS = 20
MAX_ORDER_COLUMNS = 8
MAX_LIKE_LENGTH = 90
"""Maximum number of characters of a pattern. Each may become two in SQL, and SQLite takes 200 bytes
(`sqlite_safety.MAX_LIKE_BYTES`): there, a pattern outside ASCII must be shorter."""


class UnknownColumn(InvalidArgument):
    """A choice names a column that the table does not have, as far as its catalogue says."""


class RowFilter(NamedTuple):
    """A condition on a column: one of `OPERATORS` and a value. The values of `is` are `null` and `notnull`."""

    column: str
    operator: str
    value: str


class RowOrder(NamedTuple):
    """A column by which rows are ordered. NULL comes last in both directions."""

    column: str
    descending: bool


class RowChoice(NamedTuple):
    """Conditions, order and columns. Empty values mean all rows and columns in their own order."""

    filters: tuple[RowFilter, ...] = ()
    order: tuple[RowOrder, ...] = ()
    columns: tuple[str, ...] = ()
    text: str = ""
    """The query that states this choice, for the URIs of the next and previous window."""


def read_pairs(uri: str) -> list[tuple[str, str]]:
    """Return the names and values in a URI's query. A name may occur twice: `date=gte.2025-01-01&date=lt.2026-01-01`.

    Raises:
        InvalidArgument: a part of the query is not `name=value`.
    """
    _, mark, text = uri.partition("?")
    pairs: list[tuple[str, str]] = []
    for pair in text.split("&") if mark else ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidArgument("A query is written ?name=value&other=value.")
        pairs.append((unquote(name), unquote(value)))
    return pairs


def read_choice(pairs: Sequence[tuple[str, str]], parameters: Collection[str]) -> tuple[dict[str, str], RowChoice]:
    """Split pairs into `parameters` (names that are not columns) and the choice of rows and columns.

    Raises:
        InvalidArgument: a parameter is given twice, or a value is not valid.
    """
    values: dict[str, str] = {}
    filters: list[RowFilter] = []
    texts: list[str] = []
    for name, value in pairs:
        if name in parameters or name in ("order", "columns"):
            if name in values:
                raise InvalidArgument(f"{name}= is given twice: give it once.")
            values[name] = value
        else:
            filters.append(_read_filter(name, value))
        if name not in parameters:
            texts.append(f"{quote(name, safe='')}={quote(value, safe=':,.*-')}")
    order_parts, column_parts = (_split_list(name, values.pop(name, None)) for name in ("order", "columns"))
    order = [RowOrder(_unquoted(part.removeprefix("-")), part.startswith("-")) for part in order_parts]
    columns = [_unquoted(part) for part in column_parts]
    if len(filters) > MAX_FILTERS or len(order) > MAX_ORDER_COLUMNS:
        raise InvalidArgument(
            f"At most {MAX_FILTERS} conditions and {MAX_ORDER_COLUMNS} columns of order= are possible."
        )
    return values, RowChoice(
        tuple(filters), tuple(dict.fromkeys(order)), tuple(dict.fromkeys(columns)), "&".join(texts)
    )


def _split_list(name: str, value: str | None) -> list[str]:
    """Return the names in a list such as `order=-date,name`. A comma within double quotes belongs to a name."""
    if value is None:
        return []
    parts = [""]
    in_quotes = False
    for character in value:
        in_quotes ^= character == '"'
        if character == "," and not in_quotes:
            parts.append("")
        else:
            parts[-1] += character
    if not all(part.strip("-") for part in parts):
        raise InvalidArgument(f"{name}= takes names of columns with commas between them, such as {_EXAMPLES[name]}.")
    return parts


_EXAMPLES = {"order": "order=-date,name (- for descending)", "columns": "columns=id,name"}


def _unquoted(name: str) -> str:
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] == '"' else name


def _read_filter(name: str, text: str) -> RowFilter:
    word, dot, value = text.partition(".")
    if not dot or word not in OPERATORS:
        word, value = "eq", text
    if "\0" in value or "\0" in name:
        raise InvalidArgument("A condition cannot contain NUL.")
    if word == "is" and value not in ("null", "notnull"):
        raise InvalidArgument(f"{name}=is.{value[:40]} is not known: write is.null or is.notnull.")
    if word == "like" and len(value) > MAX_LIKE_LENGTH:
        raise InvalidArgument(f"{name}=like. takes at most {MAX_LIKE_LENGTH} characters.")
    return RowFilter(_unquoted(name), word, value)


def like_pattern(value: str) -> str:
    """Convert a value of `like`, in which `*` stands for any characters, to a pattern of SQL with the escape `!`."""
    for character in "!%_":
        value = value.replace(character, "!" + character)
    return value.replace("*", "%")


def check_columns(choice: RowChoice, table: str, columns: Sequence[str], parameters: str) -> None:
    """Check that all columns exist.

    Raises:
        UnknownColumn: a column does not exist. The message lists the columns, and suggests a similar one.
    """
    names = (
        [condition.column for condition in choice.filters]
        + [term.column for term in choice.order]
        + list(choice.columns)
    )
    known_names = frozenset(columns)  # there may be thousands
    for name in names:
        if name in known_names:
            continue
        by_lower = {column.lower(): column for column in columns}
        matches = get_close_matches(name.lower(), by_lower, 1)
        suggestion = f" Did you mean {by_lower[matches[0]][:100]}?" if matches else ""
        listed = ", ".join(columns)
        listed = listed if len(listed) <= 1_000 else listed[:1_000] + "…"
        raise UnknownColumn(
            f"{table} has no column {name[:100]}.{suggestion} Its columns: {listed}. Other parameters: {parameters}."
        )
