"""CSV and TSV. A value becomes a number or boolean of JSON if its column has that type and its text can be read as one.

Any other value stays text.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import json_line, number, unique_names
from wharfinger.sources.table_files.choice_sql import SqlColumn
from wharfinger.sources.table_files.csv_encoding import MAX_CHECKED_BYTES
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, UnreadableTable, literal
from wharfinger.sources.table_files.table_format import (
    INTEGER_TYPES,
    MAX_COUNTED_BYTES,
    MAX_LINE_BYTES,
    OpenFile,
    TableColumn,
    clean_cell,
    count_rows,
    positions_of,
    select,
)

__all__ = ["Csv"]

SAMPLE_ROWS = 20_480
"""Rows from which DuckDB detects the types of columns."""
BACKWARD_BYTES = 64 << 10
"""Bytes that are read at once to find the last line end before an offset."""
MAX_LISTED_COLUMNS = 100
"""Maximum number of columns with decimal commas that the schema names."""
_BLOCK_BYTES = 1 << 20

# Only texts that are numbers in JSON too: 007 is not valid JSON, and may be a code.
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,39})", re.ASCII).fullmatch
_FLOAT = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?", re.ASCII).fullmatch
_BOOLEAN = {"true": True, "false": False}


class Csv:
    """A CSV file. All values are read as text, so that a value of another type is not an error."""

    is_typed = all_values_fit = False

    def __init__(self, engine: DuckDBEngine, file: OpenFile, encoding: str) -> None:
        _check_lines(file)
        options = f"null_padding = true, max_line_size = {MAX_LINE_BYTES}, encoding = 'utf-8', quote = '\"'"
        try:
            dialect = _detect(engine, file, options)
        except UnreadableTable:  # for example, line ends are mixed; this is tried second, as it misreads some quotes
            options += ", strict_mode = false"
            dialect = _detect(engine, file, options)
        if dialect.escape == "'":  # this quote is part of a value; as the escape, it would lead to too many columns
            dialect = _detect(engine, file, f"{options}, escape = '\"'")
        # DuckDB detects no escape if the sample has no quotes. Any other escape that it detects is part of a value.
        escape = dialect.escape if dialect.escape == "\\" else '"'
        if file.content.size <= MAX_CHECKED_BYTES:
            _check_quotes(file, dialect.delimiter, escape)
        names = unique_names(column["name"] for column in dialect.columns)
        types = ", ".join(f"'c{position}': 'VARCHAR'" for position in range(len(names)))
        self.source = (
            f"read_csv(?, {options}, auto_detect = false, columns = {{{types}}}, "
            f"delim = {literal(dialect.delimiter)}, escape = '{escape}', header = {str(dialect.header).lower()}, "
            f"skip = {dialect.skipped}, parallel = false)"
        )
        self.columns: list[TableColumn] = [
            TableColumn(name, column["type"]) for name, column in zip(names, dialect.columns, strict=True)
        ]
        self._formats = {"DATE": dialect.date_format, "TIMESTAMP": dialect.time_format}
        self._commas = _decimal_commas(engine, file, self) if dialect.delimiter != "," else frozenset[int]()
        self.columns = [
            column._replace(type="DOUBLE") if position in self._commas else column
            for position, column in enumerate(self.columns)
        ]
        self.details: dict[str, Any] = {
            "delimiter": dialect.delimiter,
            "header": dialect.header,
            "encoding": encoding,
        }
        if dialect.skipped:
            self.details["skippedLines"] = dialect.skipped
        if self._commas:
            self.details["decimalCommas"] = [
                self.columns[position].name for position in sorted(self._commas)[:MAX_LISTED_COLUMNS]
            ]
        for kind, date_format in self._formats.items():
            if date_format and any(column.type == kind for column in self.columns):
                self.details[f"{kind.lower()}Format"] = date_format

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Count the rows if the file is small."""
        if file.content.size > MAX_COUNTED_BYTES:
            return None
        return int(engine.fetch_all(file.name, f"SELECT count(*) FROM {self.source}", [file.pattern])[0][0])  # noqa: S608

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Yield rows. The rows before `first` are parsed each time: about 150 ms for a million rows."""
        positions = positions_of(self.columns, columns)
        column_list = ", ".join(f"c{position}" for position in positions)
        statement = f"SELECT {column_list} FROM {self.source} LIMIT ? OFFSET ?"  # noqa: S608 - our own names and literals
        return self._lines(positions, engine.rows(file.name, statement, [file.pattern, number, first - 1]))

    def _lines(self, positions: Sequence[int], rows: Iterator[tuple[Any, ...]]) -> Iterator[str]:
        converters = [
            _comma_float if position in self._commas else _VALUES.get(self.columns[position].type, clean_cell)
            for position in positions
        ]
        names = [self.columns[position].name for position in positions]
        for row in rows:
            cells = [None if cell is None else convert(cell) for convert, cell in zip(converters, row, strict=True)]
            yield json_line(names, cells)

    def sql_columns(self) -> list[SqlColumn]:
        """Return the columns with the SQL of their texts."""
        return [
            SqlColumn(column.name, column.type, f"c{position}", self._castable_sql(position, column.type))
            for position, column in enumerate(self.columns)
        ]

    def _castable_sql(self, position: int, kind: str) -> str:
        """Return the SQL of a value that can be cast to its type, or an empty string if the text itself can be."""
        if position in self._commas:
            return f"replace(c{position}, ',', '.')"
        date_format = self._formats.get(kind)
        return f"try_strptime(c{position}, {literal(date_format)})" if date_format else ""

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Yield the rows that a choice selects. This reads the whole file."""
        positions = positions_of(self.columns, choice.columns)
        column_names = [f"c{position}" for position in positions]
        columns = self.sql_columns()
        return self._lines(positions, select(engine, file, self.source, column_names, columns, choice, first, number))

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the rows that meet the conditions."""
        return count_rows(engine, file, self.source, self.sql_columns(), choice)


class _Dialect(NamedTuple):
    """The dialect that DuckDB detects from the first rows. `skipped` is the number of lines before the header."""

    delimiter: str
    escape: str
    header: bool
    skipped: int
    columns: list[dict[str, str]]
    date_format: str
    """In the form of strptime; empty if dates are written as in ISO 8601."""
    time_format: str


_ISO_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f")


def _detect(engine: DuckDBEngine, file: OpenFile, options: str) -> _Dialect:
    """Let DuckDB detect the dialect of a file.

    Raises:
        UnreadableTable: DuckDB detects no columns.
    """
    delimiter_option = ", delim = '\t'" if file.name.lower().endswith((".tsv", ".tab")) else ""
    (row,) = engine.fetch_all(
        file.name,
        "SELECT Delimiter, Escape, HasHeader, SkipRows, Columns, DateFormat, TimestampFormat "  # noqa: S608 - literals
        f"FROM sniff_csv(?, sample_size = {SAMPLE_ROWS}, {options}{delimiter_option})",
        [file.pattern],
    )
    dialect = _Dialect(row[0], row[1], bool(row[2]), int(row[3]), *row[4:])
    dates, times = ("" if format is None or format in _ISO_FORMATS else format for format in (row[5], row[6]))
    if dialect.header and len(dialect.columns) > 1:
        # DuckDB finds a header after empty lines here, but `read_csv` would take the first empty line for the header.
        dialect = dialect._replace(skipped=max(dialect.skipped, _count_empty_lines(file)))
    return dialect._replace(date_format=dates, time_format=times)


def _count_empty_lines(file: OpenFile) -> int:
    """Return the number of empty lines at the beginning of a file."""
    data = file.content.read(0, BACKWARD_BYTES).removeprefix(codecs.BOM_UTF8)
    return len(data[: len(data) - len(data.lstrip(b"\r\n"))].splitlines())


def _decimal_commas(engine: DuckDBEngine, file: OpenFile, table: Csv) -> frozenset[int]:
    """Return the positions of the columns whose numbers have decimal commas in the first rows, such as 1,5.

    1,234 has two meanings, so a column is text if all its numbers with commas look like this one.
    """
    texts = [position for position, column in enumerate(table.columns) if column.type == "VARCHAR"]
    if not texts:
        return frozenset()
    counts = ", ".join(
        f"count(c{position}), "
        + ", ".join(f"count(*) FILTER (regexp_full_match(c{position}, '{pattern}'))" for pattern in _COMMAS)
        for position in texts
    )
    column_list = ", ".join(f"c{position}" for position in texts)
    rows = f"(SELECT {column_list} FROM {table.source} LIMIT {SAMPLE_ROWS})"  # noqa: S608 - our own names and literals
    (all_counts,) = engine.fetch_all(file.name, f"SELECT {counts} FROM {rows}", [file.pattern])  # noqa: S608
    width = 1 + len(_COMMAS)
    columns: list[int] = []
    for index, position in enumerate(texts):
        values, whole, commas, thousands = all_counts[index * width : (index + 1) * width]
        if commas and whole + commas == values and thousands < commas:
            columns.append(position)
    return frozenset(columns)


_COMMAS = (r"-?(0|[1-9]\d{0,14})", r"-?(0|[1-9]\d{0,14}),\d{1,15}", r"-?[1-9]\d{0,2},\d{3}")
"""Patterns of whole numbers, of numbers with a comma, and of those whose comma may separate thousands."""


def _integer(text: str) -> object:
    return number(int(text)) if _INTEGER(text) else clean_cell(text)


def _float(text: str, decimal: str | None = None) -> object:
    """Return a number, or the text unchanged. If the text has a decimal comma, `decimal` is the text with a point."""
    value = float(decimal or text) if _FLOAT(decimal or text) else math.inf
    return value if math.isfinite(value) else clean_cell(text)  # 1e999 is a number in JSON, but too large for a float


def _comma_float(text: str) -> object:
    return _float(text, text.replace(",", ".")) if "." not in text else clean_cell(text)


def _boolean(text: str) -> object:
    return _BOOLEAN.get(text.lower(), clean_cell(text))


_VALUES: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(INTEGER_TYPES, _integer),
    "FLOAT": _float,
    "DOUBLE": _float,
    "BOOLEAN": _boolean,
}


def _check_lines(file: OpenFile) -> None:
    """Refuse a file with a line that is longer than `MAX_LINE_BYTES`, before DuckDB reads it.

    For such a line, DuckDB uses 120 times its size in memory, despite its limit, and cannot be interrupted. If all
    lines are short, only 64 KiB of every 4 MiB are read.

    Raises:
        UnreadableTable: there is such a line.
    """
    begin = 0
    while begin + MAX_LINE_BYTES < file.content.size:
        offset, end = begin + MAX_LINE_BYTES, 0
        while offset > begin and not end:
            offset, before = max(begin, offset - BACKWARD_BYTES), offset
            data = file.content.read(offset, before - offset)
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end:
            line = 1 + sum(
                file.content.read(position, min(_BLOCK_BYTES, begin - position)).count(b"\n")
                for position in range(0, begin, _BLOCK_BYTES)
            )
            raise UnreadableTable(f"{file.name}: line {line:,} has more than {MAX_LINE_BYTES >> 20} MiB.")
        begin = offset + end


def _check_quotes(file: OpenFile, delimiter: str, escape: str) -> None:
    """Refuse a file whose last quote is not closed. DuckDB would return null for this value, and for all rows after it.

    Raises:
        UnreadableTable: the last quote is not closed.
    """
    size = file.content.size
    quotes = sum(file.content.read(offset, _BLOCK_BYTES).count(b'"') for offset in range(0, size, _BLOCK_BYTES))
    if quotes % 2 == 0:  # an odd number may also belong to values without quotes around them, such as 5"
        return
    data = file.content.read(0, size)
    inside = rb'[^"]++|""' if escape == '"' else rb'[^"\\]++|\\.'
    values = re.compile(rb'(?:\A|[\r\n]|%b)"(?:%b)*+("?)' % (re.escape(delimiter.encode()), inside), re.DOTALL)
    unclosed = next((value.start() for value in values.finditer(data) if not value[1]), None)
    if unclosed is not None:
        line = data.count(b"\n", 0, unclosed + 1) + 1
        raise UnreadableTable(f"{file.name} cannot be read: line {line:,}: the quote is not closed.")
