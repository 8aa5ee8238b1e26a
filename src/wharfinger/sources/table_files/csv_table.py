"""CSV and TSV: a value is a number if its column is numeric and its text is a JSON number, otherwise it is the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wharfinger.content import encodings, mime
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import json_line, number, unique_names
from wharfinger.sources.table_files.choice_sql import SelectedColumn
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, UnreadableTable, literal
from wharfinger.sources.table_files.table_format import (
    MAX_COUNTED_BYTES,
    MAX_LINE_BYTES,
    WHOLES,
    OpenFile,
    TableColumn,
    clean_cell,
    count_rows,
    select,
)

__all__ = ["Csv"]

SAMPLE_ROWS = 20_480
"""Rows from which DuckDB detects the types of columns."""
BACKWARD_BYTES = 64 << 10
"""Bytes that are read at once, from the end, to find the last line end."""
HEAD_BYTES = 1 << 20
"""Bytes at the beginning of a file from which its encoding is detected."""

# Only texts that are numbers in JSON too: 007 is not, and may be a code.
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,39})").fullmatch
_FLOAT = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?").fullmatch
_BOOLEAN = {"true": True, "false": False}


class Csv:
    """A CSV file. All values are read as text, so that a late value of another type is not an error."""

    typed = False

    def __init__(self, engine: DuckDBEngine, file: OpenFile) -> None:
        encoding = _csv_encoding(file)
        _check_lines(file, encoding)
        options = f"null_padding = true, max_line_size = {MAX_LINE_BYTES}, encoding = '{_ENCODINGS[encoding]}'"
        options += ", quote = '\"'"
        try:
            detected = _detect(engine, file, options)
        except UnreadableTable:  # such as two kinds of line ends; in other files this mode would misread some quotes
            options += ", strict_mode = false"
            detected = _detect(engine, file, options)
        if detected[1] == "'":  # it belongs to a value: as a quote, it would lead to too many columns
            detected = _detect(engine, file, f"{options}, escape = '\"'")
        delimiter, escape, header, skipped, columns = detected
        # Quotes may occur only after the sample. Any other escape that DuckDB detects is a part of some value.
        escape = escape if escape == "\\" else '"'
        names = unique_names(column["name"] for column in columns)
        self.columns = [TableColumn(name, column["type"]) for name, column in zip(names, columns, strict=True)]
        self.details: dict[str, Any] = {"delimiter": delimiter, "header": header, "encoding": encoding}
        if skipped:
            self.details["skippedLines"] = skipped
        types = ", ".join(f"'c{position}': 'VARCHAR'" for position in range(len(names)))
        self.source = (
            f"read_csv(?, {options}, auto_detect = false, columns = {{{types}}}, "
            f"delim = {literal(delimiter)}, escape = '{escape}', header = {str(bool(header)).lower()}, "
            f"skip = {int(skipped)}, parallel = false)"
        )

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Count the rows if the file is small."""
        if file.content.size > MAX_COUNTED_BYTES:
            return None
        return int(engine.fetch_all(file.name, f"SELECT count(*) FROM {self.source}", [file.path])[0][0])  # noqa: S608

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Read some rows. The rows before `first` are parsed again: about 150 ms for a million rows."""
        positions = [at for at, column in enumerate(self.columns) if column.name in columns]
        shown = ", ".join(f"c{position}" for position in positions)
        statement = f"SELECT {shown} FROM {self.source} LIMIT ? OFFSET ?"  # noqa: S608 - our own names and literals
        return self._lines(positions, engine.rows(file.name, statement, [file.path, number, first - 1]))

    def _lines(self, positions: Sequence[int], rows: Iterator[tuple[Any, ...]]) -> Iterator[str]:
        converters = [_VALUES.get(self.columns[at].type, clean_cell) for at in positions]
        names = [self.columns[at].name for at in positions]
        for row in rows:
            cells = [None if cell is None else convert(cell) for convert, cell in zip(converters, row, strict=True)]
            yield json_line(names, cells)

    def selected_columns(self) -> list[SelectedColumn]:
        """Return the columns with the SQL of their texts."""
        return [SelectedColumn(column.name, column.type, f"c{at}") for at, column in enumerate(self.columns)]

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Read the rows of a choice. This reads the whole file."""
        positions = [at for at, column in enumerate(self.columns) if column.name in (choice.columns or (column.name,))]
        shown = [f"c{at}" for at in positions]
        columns = self.selected_columns()
        return self._lines(positions, select(engine, file, self.source, shown, columns, choice, first, number))

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the rows that meet the conditions."""
        return count_rows(engine, file, self.source, self.selected_columns(), choice)


def _detect(engine: DuckDBEngine, file: OpenFile, options: str) -> tuple[Any, ...]:
    """Let DuckDB detect delimiter, escape, whether there is a header, the number of lines before it, and columns.

    Raises:
        UnreadableTable: DuckDB detects no columns.
    """
    delimiter_option = ", delim = '\t'" if file.name.lower().endswith((".tsv", ".tab")) else ""
    (detected,) = engine.fetch_all(
        file.name,
        "SELECT Delimiter, Escape, HasHeader, SkipRows, Columns "  # noqa: S608 - our own literals
        f"FROM sniff_csv(?, sample_size = {SAMPLE_ROWS}, {options}{delimiter_option})",
        [file.path],
    )
    return detected


def _whole(text: str) -> object:
    return number(int(text)) if _WHOLE(text) else clean_cell(text)


def _float(text: str) -> object:
    return number(float(text)) if _FLOAT(text) else clean_cell(text)


def _boolean(text: str) -> object:
    return _BOOLEAN.get(text.lower(), clean_cell(text))


_VALUES: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(WHOLES, _whole),
    "FLOAT": _float,
    "DOUBLE": _float,
    "BOOLEAN": _boolean,
}


_ENCODINGS = {"utf-8": "utf-8", "utf-16-le": "utf-16", encodings.WESTERN: "latin-1"}
"""DuckDB's names of encodings. Of Windows-1252, it reads the characters that ISO 8859-1 has too."""


def _csv_encoding(file: OpenFile) -> str:
    """Detect the encoding of a file.

    Raises:
        UnreadableTable: it is not text, or has an encoding that DuckDB cannot read.
    """
    head = file.content.read(0, HEAD_BYTES)
    found = mime.encoding_of(head, len(head) == file.content.size)
    if found not in _ENCODINGS and file.content.size:
        reason = f"it is in {found}" if found else "it is binary, or does not show its encoding"
        raise UnreadableTable(f"{file.name} is not text in columns that can be read: {reason}. Convert it to UTF-8.")
    return found or "utf-8"


def _check_lines(file: OpenFile, encoding: str) -> None:
    """Refuse a file with a line that is longer than `MAX_LINE_BYTES`, before DuckDB reads it.

    DuckDB takes 120 bytes of memory for each byte of such a line, in spite of its limit, and cannot be interrupted. If
    lines are short, only 64 KiB in every 4 MiB are read.

    Raises:
        UnreadableTable: there is such a line.
    """
    begin = 0
    while begin + MAX_LINE_BYTES < file.content.size:
        at, end = begin + MAX_LINE_BYTES, 0
        while at > begin and not end:
            at, before = max(begin, at - BACKWARD_BYTES), at
            end = _line_end(file.content.read(at, before - at), encoding)
        if not end:
            raise UnreadableTable(f"{file.name} has a line of more than {MAX_LINE_BYTES >> 20} MiB.")
        begin = at + end


def _line_end(data: bytes, encoding: str) -> int:
    """Return the offset after the last line end in some bytes, or 0 if there is none."""
    if encoding != "utf-16-le":
        return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    low, high = data[::2], data[1::2]
    at = low.rfind(b"\n")
    while at >= 0 and high[at]:  # a character such as U+0A05
        at = low.rfind(b"\n", 0, at)
    return 2 * (at + 1)
