"""CSV, JSON Lines and Parquet: their columns, and a range of their rows as lines of JSON.

A value of a CSV file is a number if its column is numeric and its text is a JSON number, otherwise it is the text. A
row of JSON Lines is the line itself. Values of a Parquet file have their own types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from wharfinger.content import encodings, mime
from wharfinger.errors import InvalidArgument
from wharfinger.sources.folder.file_content import FileContent
from wharfinger.sources.sql_database.row_choice import RowChoice
from wharfinger.sources.sql_database.row_text import clean, json_line, number, render, unique_names
from wharfinger.sources.sql_database.sqlite_safety import quoted
from wharfinger.sources.table_files.choice_sql import SelectedColumn, conditions_of, sort_terms_of
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, UnreadableTable, literal
from wharfinger.sources.windows.line_index import LineIndex, NotReached

__all__ = ["FORMATS", "OpenFile", "TableColumn", "TableFile", "format_of"]

SAMPLE_ROWS = 20_480
"""Rows from which DuckDB detects the types of columns."""
MAX_CELL_LENGTH = 2_000
"""Characters of one value. A longer value is cut and marked."""
MAX_LINE_BYTES = 4 << 20
"""Bytes of the longest row in a file."""
MAX_COUNTED_BYTES = 8 << 20
"""Size of the largest CSV or JSON Lines file whose rows are counted for its overview."""
BLOCK_BYTES = 256 << 10
BACKWARD_BYTES = 64 << 10
"""Bytes that are read at once, from the end, to find the last line end."""
HEAD_BYTES = 1 << 20
"""Bytes at the beginning of a file from which its encoding is detected."""


class TableColumn(NamedTuple):
    """A column, and DuckDB's name of its type."""

    name: str
    type: str


class OpenFile(NamedTuple):
    """A file that is open while it is used. DuckDB opens it by `path`."""

    name: str
    path: str
    content: FileContent
    lines: LineIndex


class TableFile(Protocol):
    """One version of a file. It may be used again with another `OpenFile` of that version."""

    columns: list[TableColumn]
    details: dict[str, Any]
    """Further facts about the format."""

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Return the number of rows, or None if counting them would take long."""
        ...

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Yield at most `number` rows as lines of JSON, beginning with row `first`, counted from 1."""
        ...

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Yield the rows that meet the conditions of a choice, in its order, in the form of `rows`."""
        ...

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the rows that meet the conditions of a choice. If there are conditions, this reads the whole file."""
        ...


def _count(
    engine: DuckDBEngine, file: OpenFile, source: str, columns: Sequence[SelectedColumn], choice: RowChoice
) -> int:
    where, values = conditions_of(columns, choice)
    statement = f"SELECT count(*) FROM {source} WHERE {where}"  # noqa: S608 - our own names and literals
    return int(engine.fetch_all(file.name, statement, [file.path, *values])[0][0])


def _select(
    engine: DuckDBEngine,
    file: OpenFile,
    source: str,
    shown: Sequence[str],
    columns: Sequence[SelectedColumn],
    choice: RowChoice,
    first: int,
    number: int,
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a source in the order of a choice. Rows with equal sort values keep the order of the file."""
    where, values = conditions_of(columns, choice)
    terms = sort_terms_of(columns, choice)
    place = f"(SELECT *, row_number() OVER () AS {_PLACE} FROM {source})" if terms else source  # noqa: S608
    order = f" ORDER BY {terms}, {_PLACE}" if terms else ""
    statement = f"SELECT {', '.join(shown)} FROM {place} WHERE {where}{order} LIMIT ? OFFSET ?"  # noqa: S608
    yield from engine.rows(file.name, statement, [file.path, *values, number, first - 1])


MAX_LINES = 10**15
"""More lines than any file has: the search for this line ends at the last one."""
_PLACE = '"place of the row in its file"'


# CSV

# Only texts that are numbers in JSON too: 007 is not, and may be a code.
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,39})").fullmatch
_FLOAT = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?").fullmatch
_BOOLEAN = {"true": True, "false": False}
_WHOLES = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "UHUGEINT"))


class Csv:
    """A CSV file. All values are read as text, so that a late value of another type is not an error."""

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
        self._source = (
            f"read_csv(?, {options}, auto_detect = false, columns = {{{types}}}, "
            f"delim = {literal(delimiter)}, escape = '{escape}', header = {str(bool(header)).lower()}, "
            f"skip = {int(skipped)}, parallel = false)"
        )

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Count the rows if the file is small."""
        if file.content.size > MAX_COUNTED_BYTES:
            return None
        return int(engine.fetch_all(file.name, f"SELECT count(*) FROM {self._source}", [file.path])[0][0])  # noqa: S608

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Read some rows. The rows before `first` are parsed again: about 150 ms for a million rows."""
        positions = [at for at, column in enumerate(self.columns) if column.name in columns]
        shown = ", ".join(f"c{position}" for position in positions)
        statement = f"SELECT {shown} FROM {self._source} LIMIT ? OFFSET ?"  # noqa: S608 - our own names and literals
        return self._lines(positions, engine.rows(file.name, statement, [file.path, number, first - 1]))

    def _lines(self, positions: Sequence[int], rows: Iterator[tuple[Any, ...]]) -> Iterator[str]:
        converters = [_VALUES.get(self.columns[at].type, clean_cell) for at in positions]
        names = [self.columns[at].name for at in positions]
        for row in rows:
            cells = [None if cell is None else convert(cell) for convert, cell in zip(converters, row, strict=True)]
            yield json_line(names, cells)

    def _selected_columns(self) -> list[SelectedColumn]:
        return [SelectedColumn(column.name, column.type, f"c{at}") for at, column in enumerate(self.columns)]

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Read the rows of a choice. This reads the whole file."""
        positions = [at for at, column in enumerate(self.columns) if column.name in (choice.columns or (column.name,))]
        shown = [f"c{at}" for at in positions]
        columns = self._selected_columns()
        return self._lines(positions, _select(engine, file, self._source, shown, columns, choice, first, number))

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the rows that meet the conditions."""
        return _count(engine, file, self._source, self._selected_columns(), choice)


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


def clean_cell(value: object) -> object:
    """Convert a value to JSON. A text longer than `MAX_CELL_LENGTH` is cut."""
    return render(value, MAX_CELL_LENGTH)


def _whole(text: str) -> object:
    return number(int(text)) if _WHOLE(text) else clean_cell(text)


def _float(text: str) -> object:
    return number(float(text)) if _FLOAT(text) else clean_cell(text)


def _boolean(text: str) -> object:
    return _BOOLEAN.get(text.lower(), clean_cell(text))


_VALUES: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(_WHOLES, _whole),
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


# JSON Lines


_DESCRIBE_LINES = (
    "DESCRIBE SELECT * FROM read_json(?, format = 'newline_delimited', ignore_errors = true, "  # noqa: S608 - a number
    f"sample_size = 2048, maximum_object_size = {MAX_LINE_BYTES})"
)


class JsonLines:
    """A file with one JSON value on each line. Rows are found by counting lines, without parsing them."""

    def __init__(self, engine: DuckDBEngine, file: OpenFile) -> None:
        described = (
            engine.fetch_all(
                file.name,
                _DESCRIBE_LINES,
                [file.path],
            )
            if file.content.size
            else []
        )
        self.columns = [TableColumn(clean(row[0]), row[1]) for row in described]
        self.details: dict[str, Any] = {}

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Count the rows if the file is small."""
        if file.content.size > MAX_COUNTED_BYTES:
            return None
        data = file.content.read(0, file.content.size)
        return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Read some lines: unchanged for all columns, otherwise an object with the requested members of each."""
        try:
            begin = file.lines.find(file.content, first)
        except NotReached as error:
            raise InvalidArgument(
                f"{file.name}: row {first:,} was not reached in time, only row {error.line:,}: ask again to continue."
            ) from None
        if begin.line < first:
            return
        everything = len(columns) == len(self.columns)
        for row, line in zip(range(first, first + number), _lines(file, begin.offset), strict=False):
            yield _json_row(file.name, row, line, None if everything else columns)

    def _selected_columns(self) -> list[SelectedColumn]:
        return [
            SelectedColumn(column.name, column.type, f"json_extract_string(json, {literal(_pointer(column.name))})")
            for column in self.columns
        ]

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Read the lines of a choice. This reads the whole file."""
        columns = choice.columns or None
        found = _select(engine, file, _LINES, ["json"], self._selected_columns(), choice, first, number)
        for at, row in enumerate(found):
            yield _json_row(file.name, first + at, str(row[0]).encode(), columns)

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the lines that meet the conditions."""
        if not choice.filters:  # count as `rows` does, including lines that are not JSON
            try:
                return file.lines.find(file.content, MAX_LINES).line - 1
            except NotReached as error:
                raise InvalidArgument(
                    f"{file.name}: its end was not reached in time, only row {error.line:,}: ask again to continue."
                ) from None
        return _count(engine, file, _LINES, self._selected_columns(), choice)


_LINES = f"read_json_objects(?, format = 'newline_delimited', maximum_object_size = {MAX_LINE_BYTES})"


def _pointer(name: str) -> str:
    """Return the JSON pointer to a member (RFC 6901)."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _lines(file: OpenFile, offset: int) -> Iterator[bytes]:
    """Yield the lines from `offset`, which is the beginning of a line."""
    left = b""
    while offset < file.content.size:
        data = file.content.read(offset, BLOCK_BYTES)
        if not data:
            break
        offset += len(data)
        *complete, left = (left + data).split(b"\n")
        yield from complete
        if len(left) > MAX_LINE_BYTES:
            raise UnreadableTable(f"{file.name} has a line of more than {MAX_LINE_BYTES >> 20} MiB.")
    if left:
        yield left


def _json_row(name: str, row: int, line: bytes, columns: Sequence[str] | None) -> str:
    line = line.strip().removeprefix(b"\xef\xbb\xbf")
    if not line:
        return "\n"
    try:
        if columns is None:
            msgspec.json.decode(line)
            return line.decode() + "\n"
        found = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableTable(f"{name} cannot be read: line {row}: {error}") from None
    return msgspec.json.encode({column: found.get(column) for column in columns}).decode() + "\n"


# Parquet

_PLAIN = _WHOLES | {"UTINYINT", "USMALLINT", "UINTEGER", "FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "BLOB"}
_NESTED = re.compile(r"STRUCT|MAP|UNION|\]$|JSON|VARIANT")
_NO_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|nan|Infinity|inf)\b')


class Parquet:
    """A Parquet file: its columns have types, and its footer has the number of rows."""

    def __init__(self, engine: DuckDBEngine, file: OpenFile) -> None:
        described = engine.fetch_all(file.name, "DESCRIBE SELECT * FROM read_parquet(?)", [file.path])
        self._names = [str(row[0]) for row in described]
        self.columns = [
            TableColumn(name, row[1]) for name, row in zip(unique_names(self._names), described, strict=True)
        ]
        self.details: dict[str, Any] = {}

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Return the number of rows in the footer."""
        statement = "SELECT coalesce(sum(num_rows), 0) FROM parquet_file_metadata(?)"
        return int(engine.fetch_all(file.name, statement, [file.path])[0][0])

    def rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, columns: Sequence[str]
    ) -> Iterator[str]:
        """Read some rows. DuckDB skips groups of rows before `first`."""
        positions = [at for at, column in enumerate(self.columns) if column.name in columns]
        shown = ", ".join(_select_expression(self._names[at], self.columns[at].type) for at in positions)
        names = [self.columns[at].name for at in positions]
        nested = [bool(_NESTED.search(self.columns[at].type)) for at in positions]
        statement = f"SELECT {shown} FROM read_parquet(?) LIMIT ? OFFSET ?"  # noqa: S608 - quoted names
        for row in engine.rows(file.name, statement, [file.path, number, first - 1]):
            cells = [_nested(cell) if deep else clean_cell(cell) for deep, cell in zip(nested, row, strict=True)]
            yield json_line(names, cells)

    def _selected_columns(self) -> list[SelectedColumn]:
        return [
            SelectedColumn(column.name, column.type, quoted(name))
            for name, column in zip(self._names, self.columns, strict=True)
        ]

    def select_rows(
        self, engine: DuckDBEngine, file: OpenFile, first: int, number: int, choice: RowChoice
    ) -> Iterator[str]:
        """Read the rows of a choice; DuckDB skips groups of rows that cannot meet its conditions."""
        positions = [at for at, column in enumerate(self.columns) if column.name in (choice.columns or (column.name,))]
        shown = [_select_expression(self._names[at], self.columns[at].type) for at in positions]
        names = [self.columns[at].name for at in positions]
        nested = [bool(_NESTED.search(self.columns[at].type)) for at in positions]
        columns = self._selected_columns()
        for row in _select(engine, file, "read_parquet(?)", shown, columns, choice, first, number):
            cells = [_nested(cell) if deep else clean_cell(cell) for deep, cell in zip(nested, row, strict=True)]
            yield json_line(names, cells)

    def count_matching(self, engine: DuckDBEngine, file: OpenFile, choice: RowChoice) -> int:
        """Count the rows that meet the conditions."""
        return _count(engine, file, "read_parquet(?)", self._selected_columns(), choice)


def _select_expression(name: str, kind: str) -> str:
    """Return the SQL expression for a column. Types that JSON does not have are converted to text."""
    column = quoted(name)
    if _NESTED.search(kind):
        return f"to_json({column})::VARCHAR"
    return column if kind in _PLAIN else f"{column}::VARCHAR"


def _nested(text: str | None) -> object:
    if text is None or len(text) > MAX_CELL_LENGTH:
        return render(text, MAX_CELL_LENGTH)
    return msgspec.Raw(_NO_JSON.sub(_as_string, clean(text)).encode())


def _as_string(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else f'"{match[0]}"'


FORMATS: dict[str, tuple[str, Callable[[DuckDBEngine, OpenFile], TableFile]]] = {
    "csv": ("CSV", Csv),
    "tsv": ("TSV", Csv),
    "tab": ("TSV", Csv),
    "jsonl": ("JSON Lines", JsonLines),
    "ndjson": ("JSON Lines", JsonLines),
    "parquet": ("Parquet", Parquet),
}
"""Formats by the end of a file's name."""


def format_of(name: str) -> str:
    """Return the key of `FORMATS` that a file's name ends with, or an empty string if there is none."""
    ending = name.rpartition(".")[2].lower() if "." in name[1:] else ""
    return ending if ending in FORMATS else ""
