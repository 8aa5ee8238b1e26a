"""JSON Lines: a row is the line itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from wharfinger.errors import InvalidArgument
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import clean
from wharfinger.sources.table_files.choice_sql import SqlColumn
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, UnreadableTable, literal
from wharfinger.sources.table_files.table_format import (
    MAX_COUNTED_BYTES,
    MAX_LINE_BYTES,
    OpenFile,
    TableColumn,
    count_rows,
    select,
)
from wharfinger.sources.windows.line_index import NotReached

__all__ = ["JsonLines"]

BLOCK_BYTES = 256 << 10
LINE_AFTER_THE_END = 10**15
"""A line number beyond the end of any file: searching for it finds the end."""

_DESCRIBE_LINES = (
    "DESCRIBE SELECT * FROM read_json(?, format = 'newline_delimited', ignore_errors = true, "  # noqa: S608 - a number
    f"sample_size = 2048, maximum_object_size = {MAX_LINE_BYTES}, records = ?)"
)


class JsonLines:
    """A file with one JSON value on each line. Rows are found by counting lines, without parsing them.

    The columns are the members of the objects in the first lines. If some of these lines are not objects, there is one
    column, `json`, whose value is the line.
    """

    source = f"read_json_objects(?, format = 'newline_delimited', maximum_object_size = {MAX_LINE_BYTES})"
    is_typed = False
    all_values_fit = False
    has_objects = True
    """Whether the lines are objects."""

    def __init__(self, engine: DuckDBEngine, file: OpenFile, facts: object = None) -> None:
        described = engine.fetch_all(file.name, _DESCRIBE_LINES, [file.pattern, "auto"]) if file.content.size else []
        self.columns = [TableColumn(clean(row[0]), row[1]) for row in described]
        self.details: dict[str, Any] = {}
        # The column is `json` if some lines are not objects, or if this is the only member of the objects.
        if [column.name for column in self.columns] == ["json"]:
            try:
                engine.fetch_all(file.name, _DESCRIBE_LINES, [file.pattern, "true"])
            except UnreadableTable:
                self.has_objects = False

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Count the rows if the file is small."""
        if file.content.size > MAX_COUNTED_BYTES:
            return None
        data = file.content.read(0, file.content.size)
        return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Yield lines: unchanged if all columns are requested, otherwise as objects with the requested members."""
        try:
            begin = file.lines.find(file.content, first)
        except NotReached as error:
            raise InvalidArgument(
                f"{file.name}: row {first:,} was not reached in time, only row {error.line:,}: ask again to continue."
            ) from None
        if begin.line < first:
            return
        chosen_columns = self._columns_to_extract(columns)
        for row, line in zip(range(first, first + number), _lines(file, begin.offset), strict=False):
            yield _json_row(file.name, f"line {row}", line, chosen_columns)

    def _columns_to_extract(self, columns: Sequence[str]) -> Sequence[str] | None:
        """Return the requested columns, or None if all are requested, so that a row is the whole line."""
        return columns if 0 < len(columns) < len(self.columns) else None

    def sql_columns(self) -> list[SqlColumn]:
        """Return the columns, each with the SQL that extracts its text from the line."""
        pointers = [_pointer(column.name) if self.has_objects else "" for column in self.columns]
        return [
            SqlColumn(column.name, column.type, f"json_extract_string(json, {literal(pointer)})")
            for column, pointer in zip(self.columns, pointers, strict=True)
        ]

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Yield the lines that a choice selects. This reads the whole file."""
        chosen_columns = self._columns_to_extract(choice.columns)
        rows = select(engine, file, self.source, ["json"], self.sql_columns(), choice, first, number)
        for row, (line,) in enumerate(rows, first):
            yield _json_row(file.name, f"row {row} of the result", str(line).encode(), chosen_columns)

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the lines that meet the conditions."""
        if not choice.filters and not choice.order:  # count as `rows` does, including empty lines
            try:
                return file.lines.find(file.content, LINE_AFTER_THE_END).line - 1
            except NotReached as error:
                raise InvalidArgument(
                    f"{file.name}: its end was not reached in time, only row {error.line:,}: ask again to continue."
                ) from None
        return count_rows(engine, file, self.source, self.sql_columns(), choice)


def _pointer(name: str) -> str:
    """Return the JSON pointer to a member (RFC 6901)."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _lines(file: OpenFile, offset: int) -> Iterator[bytes]:
    """Yield the lines from `offset`, which is the beginning of a line."""
    rest = b""
    while offset < file.content.size:
        data = file.content.read(offset, BLOCK_BYTES)
        if not data:
            break
        offset += len(data)
        *complete, rest = (rest + data).split(b"\n")
        yield from complete
        if len(rest) > MAX_LINE_BYTES:
            raise UnreadableTable(f"{file.name} has a line of more than {MAX_LINE_BYTES >> 20} MiB.")
    if rest:
        yield rest


def _json_row(name: str, place: str, line: bytes, columns: Sequence[str] | None) -> str:
    line = line.strip().removeprefix(b"\xef\xbb\xbf")
    if not line:
        return "\n"
    try:
        if columns is None:
            msgspec.json.decode(line)
            return line.decode() + "\n"
        members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableTable(f"{name} cannot be read: {place}: {error}") from None
    return msgspec.json.encode({column: members.get(column) for column in columns}).decode() + "\n"
