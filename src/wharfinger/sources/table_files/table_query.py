"""Parses the URI of a table: which file, which view of it, which rows and columns. Does no I/O.

Conditions, order and columns are written as for databases (`row_choice`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from wharfinger.content import mime
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.folder.file_uri import UnreadableUri, split_path
from wharfinger.sources.folder.tree import Parts
from wharfinger.sources.sql_database.row_choice import FILTERS, RowChoice, read_choice, read_pairs
from wharfinger.sources.table_files.formats import WORKBOOK_FORMATS, format_of

__all__ = [
    "HOW_TO_ASK",
    "MAX_SHOWN_COLUMNS",
    "OTHER_PARAMETERS",
    "VIEWS",
    "WINDOW_ROWS",
    "TableQuery",
    "parse_uri",
    "rows_uri",
    "with_column_names",
]

OTHER_PARAMETERS = "rows=1-200, limit=20, tail=20, order=-date (- for descending), columns=a,b"
"""The parameters for rows, other than conditions."""
HOW_TO_ASK = f"?{OTHER_PARAMETERS.replace(', ', ', ?')}; conditions: {FILTERS}"
"""All parameters for rows, as people and models read them."""

WINDOW_ROWS = 200
"""Rows of a window with an open end."""
MAX_SHOWN_COLUMNS = 100
"""Maximum number of columns of a row, unless its URI names columns."""
VIEWS = {"schema": mime.JSON, "sample": mime.JSON_LINES}
"""The views that may follow a table in a URI, and their MIME types."""

_RANGE = re.compile(r"([0-9]{1,15})-([0-9]{1,15})?").fullmatch
_COLUMN_RANGE = re.compile(r"([0-9]{1,6})-([0-9]{1,6})?").fullmatch
_NUMBER = re.compile(r"[1-9][0-9]{0,14}").fullmatch


class TableQuery(NamedTuple):
    """The parts of a URI: the path of a file or directory, a view of it, and which rows and columns of it.

    `view` is `rows`, `directory` or a key of `VIEWS`; it is empty for the overview of a table.

    `rows` are the numbers of the first and last row, counted from 1 among the rows that meet the conditions. The second
    number is 0 for an open end. If `tail` is set, the last `tail` rows are requested instead.
    """

    parts: Parts
    view: str
    sheet: str = ""
    """The name of a sheet in the path, decoded, or an empty string."""
    rows: tuple[int, int] = (1, 0)
    tail: int = 0
    choice: RowChoice = RowChoice()


def parse_uri(uri: str, top: str) -> TableQuery:
    """Parse a URI below `top`, the URI of the published folder.

    Raises:
        ResourceNotFound: this is not the URI of a file, directory or view.
        InvalidArgument: its query is not valid. The message says how to write it.
    """
    base, mark, _ = uri.partition("?")
    prefix = top + "/"
    if base != top and not base.startswith(prefix):
        raise ResourceNotFound(uri)
    try:
        parts, ends_with_slash = split_path(base[len(prefix) :])
    except UnreadableUri:
        raise ResourceNotFound(uri) from None
    parts, below = _split_at_table(parts)
    sheet = ""
    if below and format_of(parts[-1]) in WORKBOOK_FORMATS:
        sheet, below = below[0], below[1:]
    view = below[0] if len(below) == 1 and below[0] in VIEWS else ""
    rest = below[1:] if view else below
    if rest or ((view or sheet) and ends_with_slash):
        raise ResourceNotFound(uri)
    is_table = bool(parts) and bool(format_of(parts[-1])) and not ends_with_slash
    if mark and view == "schema":
        other_parameters, choice = read_choice(read_pairs(uri), ())
        if other_parameters or choice.filters or choice.order:
            raise InvalidArgument("A schema takes only columns, as in /schema?columns=101-200.")
        return TableQuery(parts, view, sheet, choice=choice)
    if mark and (view or not is_table):
        raise InvalidArgument(f"Only a table has rows, as in {prefix}x.csv?rows=1-{WINDOW_ROWS}: leave the query out.")
    if not mark:
        return TableQuery(parts, view or ("" if is_table else "directory"), sheet)
    query, choice = read_choice(read_pairs(uri), ("rows", "limit", "tail"))
    if len(query) > 1:
        raise InvalidArgument(
            f"Ask for one of {OTHER_PARAMETERS.partition(', order')[0]}; this asked for {', '.join(query)}."
        )
    if "rows" in query:
        return TableQuery(parts, "rows", sheet, _range(query["rows"]), 0, choice)
    if "limit" in query:
        return TableQuery(parts, "rows", sheet, (1, _number("limit", query["limit"])), 0, choice)
    return TableQuery(parts, "rows", sheet, (1, 0), _number("tail", query["tail"]) if "tail" in query else 0, choice)


def _split_at_table(parts: Parts) -> tuple[Parts, Parts]:
    """Return the path of a file or directory, and what follows it: a sheet of a workbook, and the view of a table."""
    for index, part in enumerate(parts[:-1], 1):
        kind = format_of(part)
        if kind in WORKBOOK_FORMATS or (kind and index == len(parts) - 1 and parts[-1] in VIEWS):
            return parts[:index], parts[index:]
    return parts, ()


def with_column_names(choice: RowChoice, names: Sequence[str], max_columns: int = MAX_SHOWN_COLUMNS) -> RowChoice:
    """Return a choice with the names of columns instead of ranges of positions, such as `101-200` or `101-`.

    A range with an open end has at most `max_columns` columns.

    Raises:
        InvalidArgument: the table does not have these positions.
    """
    if not any(_COLUMN_RANGE(name) for name in choice.columns):
        return choice
    table_names = frozenset(names)
    columns: dict[str, None] = {}  # ranges may overlap
    for name in choice.columns:
        match = None if name in table_names else _COLUMN_RANGE(name)
        if match is None:
            columns[name] = None
            continue
        first, last = int(match[1]), int(match[2] or min(len(names), int(match[1]) + max_columns - 1))
        if not 1 <= first <= last <= len(names):
            raise InvalidArgument(f"columns={name} is not a range of the {len(names):,} columns.")
        columns.update(dict.fromkeys(names[first - 1 : last]))
    return choice._replace(columns=tuple(columns))


def _range(value: str) -> tuple[int, int]:
    match = _RANGE(value)
    first, last = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    if first < 1 or (match is not None and match[2] is not None and last < first):
        raise InvalidArgument(f"rows={value[:100]} is not a range of rows: write rows=1-200 or rows=201-.")
    return first, last


def _number(name: str, value: str) -> int:
    if not _NUMBER(value):
        raise InvalidArgument(f"{name}={value[:40]} is not a number of rows: write {name}=20.")
    return int(value)


def rows_uri(base: str, first: int, last: int, choice: RowChoice) -> str:
    """Return the URI of a window. If `last` is 0, the window has an open end."""
    uri = f"{base}?rows={first}-{last or ''}"
    return f"{uri}&{choice.text}" if choice.text else uri
