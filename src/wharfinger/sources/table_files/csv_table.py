"""CSV and TSV: a value is a number if its column is numeric and its text is a JSON number, otherwise it is the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import json_line, number, unique_names
from wharfinger.sources.table_files.choice_sql import SelectedColumn
from wharfinger.sources.table_files.csv_encoding import MAX_CHECKED_BYTES
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
"""Bytes that are read at once to find the last line end before a place."""
MAX_LISTED_COLUMNS = 100
"""Columns with decimal commas that the schema lists."""
_BLOCK_BYTES = 1 << 20

# Only texts that are numbers in JSON too: 007 is not, and may be a code.
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,39})").fullmatch
_FLOAT = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?").fullmatch
_BOOLEAN = {"true": True, "false": False}


class Csv:
    """A CSV file. All values are read as text, so that a value of another type is not an error."""

    typed = checked = False

    def __init__(self, engine: DuckDBEngine, file: OpenFile, encoding: str) -> None:
        _check_lines(file)
        options = f"null_padding = true, max_line_size = {MAX_LINE_BYTES}, encoding = 'utf-8', quote = '\"'"
        try:
            detected = _detect(engine, file, options)
        except UnreadableTable:  # such as two kinds of line ends; in other files, `false` would misread some quotes
            options += ", strict_mode = false"
            detected = _detect(engine, file, options)
        if detected.escape == "'":  # it belongs to a value; with it as the escape, there would be too many columns
            detected = _detect(engine, file, f"{options}, escape = '\"'")
        # The sample may have no quotes. Any other escape that DuckDB detects is a part of a value.
        escape = detected.escape if detected.escape == "\\" else '"'
        if file.content.size <= MAX_CHECKED_BYTES:
            _check_quotes(file, detected.delimiter, escape)
        names = unique_names(column["name"] for column in detected.columns)
        types = ", ".join(f"'c{position}': 'VARCHAR'" for position in range(len(names)))
        self.source = (
            f"read_csv(?, {options}, auto_detect = false, columns = {{{types}}}, "
            f"delim = {literal(detected.delimiter)}, escape = '{escape}', header = {str(detected.header).lower()}, "
            f"skip = {detected.skipped}, parallel = false)"
        )
        self.columns: list[TableColumn] = [
            TableColumn(name, column["type"]) for name, column in zip(names, detected.columns, strict=True)
        ]
        self._formats = {"DATE": detected.date_format, "TIMESTAMP": detected.time_format}
        self._commas = _decimal_commas(engine, file, self) if detected.delimiter != "," else frozenset[int]()
        self.columns = [
            column._replace(type="DOUBLE") if at in self._commas else column for at, column in enumerate(self.columns)
        ]
        self.details: dict[str, Any] = {
            "delimiter": detected.delimiter,
            "header": detected.header,
            "encoding": encoding,
        }
        if detected.skipped:
            self.details["skippedLines"] = detected.skipped
        if self._commas:
            self.details["decimalCommas"] = [self.columns[at].name for at in sorted(self._commas)[:MAX_LISTED_COLUMNS]]
        for kind, written in self._formats.items():
            if written and any(column.type == kind for column in self.columns):
                self.details[f"{kind.lower()}Format"] = written

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
        converters = [
            _comma_float if at in self._commas else _VALUES.get(self.columns[at].type, clean_cell) for at in positions
        ]
        names = [self.columns[at].name for at in positions]
        for row in rows:
            cells = [None if cell is None else convert(cell) for convert, cell in zip(converters, row, strict=True)]
            yield json_line(names, cells)

    def selected_columns(self) -> list[SelectedColumn]:
        """Return the columns with the SQL of their texts."""
        return [
            SelectedColumn(column.name, column.type, f"c{at}", self._parsed(at, column.type))
            for at, column in enumerate(self.columns)
        ]

    def _parsed(self, at: int, kind: str) -> str:
        """Return the SQL of a value in a form that casts to its type."""
        if at in self._commas:
            return f"replace(c{at}, ',', '.')"
        written = self._formats.get(kind)
        return f"try_strptime(c{at}, {literal(written)})" if written else ""

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


class _Detected(NamedTuple):
    """What DuckDB detects from the first rows. `skipped` is the number of lines before the header."""

    delimiter: str
    escape: str
    header: bool
    skipped: int
    columns: list[dict[str, str]]
    date_format: str
    """In the form of strptime; empty if dates are written as in ISO 8601."""
    time_format: str


_ISO_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f")


def _detect(engine: DuckDBEngine, file: OpenFile, options: str) -> _Detected:
    """Let DuckDB detect the form of a file.

    Raises:
        UnreadableTable: DuckDB detects no columns.
    """
    delimiter_option = ", delim = '\t'" if file.name.lower().endswith((".tsv", ".tab")) else ""
    (found,) = engine.fetch_all(
        file.name,
        "SELECT Delimiter, Escape, HasHeader, SkipRows, Columns, DateFormat, TimestampFormat "  # noqa: S608 - literals
        f"FROM sniff_csv(?, sample_size = {SAMPLE_ROWS}, {options}{delimiter_option})",
        [file.path],
    )
    detected = _Detected(found[0], found[1], bool(found[2]), int(found[3]), *found[4:])
    dates, times = ("" if one is None or one in _ISO_FORMATS else one for one in (found[5], found[6]))
    return detected._replace(date_format=dates, time_format=times)


def _decimal_commas(engine: DuckDBEngine, file: OpenFile, table: Csv) -> frozenset[int]:
    """Return the columns whose numbers have decimal commas in the first rows, such as 1,5.

    1,234 has two meanings, so a column in which each comma stands before three digits is text.
    """
    texts = [at for at, column in enumerate(table.columns) if column.type == "VARCHAR"]
    if not texts:
        return frozenset()
    counts = ", ".join(
        f"count(c{at}), " + ", ".join(f"count(*) FILTER (regexp_full_match(c{at}, '{pattern}'))" for pattern in _COMMAS)
        for at in texts
    )
    shown = ", ".join(f"c{at}" for at in texts)
    rows = f"(SELECT {shown} FROM {table.source} LIMIT {SAMPLE_ROWS})"  # noqa: S608 - our own names and literals
    (found,) = engine.fetch_all(file.name, f"SELECT {counts} FROM {rows}", [file.path])  # noqa: S608
    width = 1 + len(_COMMAS)
    columns: list[int] = []
    for place, at in enumerate(texts):
        values, whole, commas, thousands = found[place * width : (place + 1) * width]
        if commas and whole + commas == values and thousands < commas:
            columns.append(at)
    return frozenset(columns)


_COMMAS = (r"-?(0|[1-9]\d{0,14})", r"-?(0|[1-9]\d{0,14}),\d{1,15}", r"-?[1-9]\d{0,2},\d{3}")
"""Patterns of whole numbers, of numbers with a comma, and of those whose comma may separate thousands."""


def _whole(text: str) -> object:
    return number(int(text)) if _WHOLE(text) else clean_cell(text)


def _float(text: str) -> object:
    return number(float(text)) if _FLOAT(text) else clean_cell(text)


def _comma_float(text: str) -> object:
    return _float(text.replace(",", ".")) if "." not in text else clean_cell(text)


def _boolean(text: str) -> object:
    return _BOOLEAN.get(text.lower(), clean_cell(text))


_VALUES: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(WHOLES, _whole),
    "FLOAT": _float,
    "DOUBLE": _float,
    "BOOLEAN": _boolean,
}


def _check_lines(file: OpenFile) -> None:
    """Refuse a file with a line that is longer than `MAX_LINE_BYTES`, before DuckDB reads it.

    For such a line, DuckDB uses memory of 120 times its size, in spite of its limit, and cannot be interrupted. If all
    lines are short, only 64 KiB of every 4 MiB are read.

    Raises:
        UnreadableTable: there is such a line.
    """
    begin = 0
    while begin + MAX_LINE_BYTES < file.content.size:
        at, end = begin + MAX_LINE_BYTES, 0
        while at > begin and not end:
            at, before = max(begin, at - BACKWARD_BYTES), at
            data = file.content.read(at, before - at)
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end:
            line = _count_lines(file, begin) + 1
            raise UnreadableTable(f"{file.name}: line {line:,} has more than {MAX_LINE_BYTES >> 20} MiB.")
        begin = at + end


def _check_quotes(file: OpenFile, delimiter: str, escape: str) -> None:
    """Refuse a file whose last quote is not closed. DuckDB would return null for this value, and for all rows after it.

    Raises:
        UnreadableTable: the last quote is not closed.
    """
    size = file.content.size
    quotes = sum(file.content.read(at, _BLOCK_BYTES).count(b'"') for at in range(0, size, _BLOCK_BYTES))
    if quotes % 2 == 0:  # an odd number may also belong to values without quotes around them, such as 5"
        return
    data = file.content.read(0, size)
    inside = rb'[^"]++|""' if escape == '"' else rb'[^"\\]++|\\.'
    values = re.compile(rb'(?:\A|[\r\n]|%b)"(?:%b)*+("?)' % (re.escape(delimiter.encode()), inside), re.DOTALL)
    unclosed = next((value.start() for value in values.finditer(data) if not value[1]), None)
    if unclosed is not None:
        line = data.count(b"\n", 0, unclosed + 1) + 1
        raise UnreadableTable(f"{file.name} cannot be read: line {line:,}: the quote is not closed.")


def _count_lines(file: OpenFile, end: int) -> int:
    """Count the lines that end before an offset."""
    return sum(file.content.read(at, min(_BLOCK_BYTES, end - at)).count(b"\n") for at in range(0, end, _BLOCK_BYTES))
