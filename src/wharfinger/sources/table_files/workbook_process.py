"""Reads workbooks (XLSX, XLSM) with calamine, and writes a sheet as JSON Lines. Runs in a child process.

calamine aborts the process if memory is short, and may take hours for the rows that a hostile sheet declares, so it
needs a process of its own. It does not return error values such as `#DIV/0!`, so these are read from the sheet's XML.

| cell | JSON |
|---|---|
| number | number; a whole number without `.0`; beyond ±(2^53 - 1) as Excel stores it, such as 1e+300 |
| text | text |
| formula | the value that is stored with it |
| date, time, date and time | `2026-01-02`, `03:04:05`, `2026-01-02T03:04:05` |
| duration | hours, minutes and seconds: `36:00:00` |
| error | its name: `#DIV/0!` |
| empty | null |
"""

from __future__ import annotations

import io
import os
import re
import xml.parsers.expat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from itertools import chain, islice
from typing import Any

import msgspec

from wharfinger.sources.child_main import ChildRefused
from wharfinger.sources.document_text.page_list import Refused
from wharfinger.sources.document_text.zip_bounds import open_zip
from wharfinger.sources.sql_database.row_text import number, unique_names

__all__ = ["MAX_WORKBOOK_BYTES", "SheetFacts", "SheetName", "WorkbookRequest", "header_position", "main"]

MAX_WORKBOOK_BYTES = 64 << 20
"""Maximum bytes of a file that is read."""
MAX_ROW_BYTES = 4 << 20
"""Maximum size of a row as JSON."""
MAX_SHEETS = 1_000
HEADER_ROWS = 10
"""Number of rows with content among which the header is searched for."""
MAX_MERGED_RANGES = 100
_FIRST_YEAR, _LAST_YEAR = 1900, 2100
_ERROR_NAME = re.compile(r"#(?:N/A|GETTING_DATA|[A-Z0-9/]+[!?])").fullmatch
"""Matches the names of Excel's errors, but not `#`, which is often the name of a column."""
_BLOCK_BYTES = 1 << 20


class WorkbookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of a workbook and of the output, and the position of a sheet; None for the list of sheets."""

    path: str
    output: str = ""
    sheet: int | None = None


class SheetName(msgspec.Struct, frozen=True, kw_only=True):
    """A worksheet: its name, its position among all sheets, which include charts, and whether it is hidden.

    `part` is its name in URIs, which differs from `name` if `name` cannot be in a URI or is taken.
    """

    name: str
    position: int
    hidden: bool
    part: str = ""


class SheetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a sheet, each with DuckDB's name of its type, and where its table is.

    `header` is the number of the row with the names, or 0 if there is none. `above` are the cells of the rows above it.
    """

    columns: list[tuple[str, str]]
    row_count: int
    header: int
    first_row: int
    above: list[list[Any]]
    merged: list[str]


def main(data: bytes) -> bytes:
    """Return the sheets of a workbook (a list of `SheetName`), or write a sheet and return its `SheetFacts`.

    Raises:
        ChildRefused: the workbook cannot be read. The message says why.
    """
    import python_calamine  # only in the child

    request = msgspec.msgpack.decode(data, type=WorkbookRequest)
    if os.path.getsize(request.path) > MAX_WORKBOOK_BYTES:
        raise ChildRefused(f"it has more than {MAX_WORKBOOK_BYTES >> 20} MiB")
    with open(request.path, "rb") as file:
        content = file.read()
    try:
        archive = open_zip(content)
    except Refused as error:
        raise ChildRefused(str(error)) from None
    try:
        book: Any = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
        sheets = _sheets(book, python_calamine.SheetVisibleEnum.Visible, python_calamine.SheetTypeEnum.WorkSheet)
        if request.sheet is None:
            return msgspec.msgpack.encode(sheets)
        errors = _error_cells(archive, request.sheet)
        with open(request.output, "r+b") as output:
            return msgspec.msgpack.encode(_write_sheet(book, request.sheet, errors, output))
    except ChildRefused:
        raise
    except MemoryError:
        raise
    except Exception as error:  # calamine raises errors of many kinds, and so does the XML of a damaged workbook
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ChildRefused(f"it is damaged ({type(error).__name__}: {str(error)[:200]})") from None


def _sheets(book: Any, visible: object, worksheet: object) -> list[SheetName]:
    sheets = [
        SheetName(name=sheet.name, position=position, hidden=sheet.visible != visible)
        for position, sheet in enumerate(book.sheets_metadata)
        if sheet.typ == worksheet
    ]
    if len(sheets) > MAX_SHEETS:
        raise ChildRefused(f"it has {len(sheets):,} sheets, and at most {MAX_SHEETS:,} are read")
    return sheets


# A sheet


def _write_sheet(book: Any, position: int, errors: Mapping[tuple[int, int], str], output: Any) -> SheetFacts:
    """Write the rows below the header, or all rows if there is none, and return the facts."""
    sheet = book.get_sheet_by_index(position)
    if sheet.start is None:
        return SheetFacts(columns=[], row_count=0, header=0, first_row=1, above=[], merged=[])
    first_column = sheet.start[1]
    merged: list[tuple[tuple[int, int], tuple[int, int]]] = sheet.merged_cell_ranges or []
    rows = _rows(sheet, errors, first_column)
    first_rows: list[tuple[int, list[Any]]] = []
    rows_with_content = 0
    for row_number, cells in rows:
        first_rows.append((row_number, cells))
        rows_with_content += any(cell is not None for cell in cells)
        if rows_with_content == HEADER_ROWS:
            break
    header_index = header_position([cells for _, cells in first_rows])
    width = max((len(cells) for _, cells in first_rows), default=0)
    header = first_rows[header_index][1] if header_index is not None else [None] * width
    names = unique_names(
        _letters(first_column + column) if cell is None else str(_json(cell)) for column, cell in enumerate(header)
    )
    above = (
        []
        if header_index is None
        else [cells for _, cells in first_rows[:header_index] if any(cell is not None for cell in cells)]
    )
    kinds: list[set[str]] = [set() for _ in names]
    count = empty = 0
    begin = 0 if header_index is None else header_index + 1
    for row_number, cells in chain(islice(first_rows, begin, None), rows):
        if all(cell is None for cell in cells):  # empty rows at the end of a sheet are left out
            empty += 1
            continue
        output.write((msgspec.json.encode(dict.fromkeys(names)) + b"\n") * empty)
        count += empty + 1
        empty = 0
        for column_kinds, cell in zip(kinds, cells, strict=True):
            if cell is not None:
                column_kinds.add(_kind(cell))
        line = msgspec.json.encode(dict(zip(names, map(_json, cells), strict=True)))
        if len(line) > MAX_ROW_BYTES:
            raise ChildRefused(f"row {row_number:,} has more than {MAX_ROW_BYTES >> 20} MiB")
        output.write(line + b"\n")
    return SheetFacts(
        columns=[(name, _type(column_kinds)) for name, column_kinds in zip(names, kinds, strict=True)],
        row_count=count,
        header=0 if header_index is None else first_rows[header_index][0],
        first_row=first_rows[begin][0] if begin < len(first_rows) else 0,
        above=[[_json(cell) for cell in cells if cell is not None] for cells in above],
        merged=[
            f"{_letters(left)}{top + 1}:{_letters(right)}{bottom + 1}"
            for (top, left), (bottom, right) in merged[:MAX_MERGED_RANGES]
        ],
    )


def _rows(sheet: Any, errors: Mapping[tuple[int, int], str], first_column: int) -> Iterator[tuple[int, list[Any]]]:
    """Yield all rows, from the first used column, each with its number, counted from 1."""
    rows_with_errors = {row for row, _ in errors}
    for row, values in enumerate(sheet.iter_rows()):
        cells = [None if value == "" else value for value in values]
        if row in rows_with_errors:
            cells = [errors.get((row, column), cell) for column, cell in enumerate(cells, first_column)]
        yield row + 1, cells


def header_position(rows: Sequence[Sequence[Any]]) -> int | None:
    """Return the position of the header: the first row of names that fills more than half of the used columns.

    Names are texts, dates and whole numbers that may be years, at least one of them a text. The name of an error is not
    one of these texts. The used columns are those of the row with the most cells.
    """
    used = max((sum(cell is not None for cell in row) for row in rows), default=0)
    for index, row in enumerate(rows):
        cells = [cell for cell in row if cell is not None]
        if 2 * len(cells) > used and all(map(_is_name, cells)) and any(isinstance(cell, str) for cell in cells):
            return index
    return None


def _is_name(cell: object) -> bool:
    if isinstance(cell, float):
        return cell.is_integer() and _FIRST_YEAR <= cell <= _LAST_YEAR
    return isinstance(cell, (str, date)) and not (isinstance(cell, str) and _ERROR_NAME(cell))


# Values


def _kind(cell: object) -> str:
    """Return DuckDB's name of the type of a cell."""
    if isinstance(cell, bool):
        return "BOOLEAN"
    if isinstance(cell, float):
        return "BIGINT" if cell.is_integer() and isinstance(number(int(cell)), int) else "DOUBLE"
    for kind, name in _KINDS:
        if isinstance(cell, kind):
            return name
    return "VARCHAR"


_KINDS = ((datetime, "TIMESTAMP"), (date, "DATE"), (time, "TIME"), (timedelta, "INTERVAL"))
_COMMON_TYPES: Mapping[frozenset[str], str] = {
    frozenset(("BIGINT", "DOUBLE")): "DOUBLE",
    frozenset(("DATE", "TIMESTAMP")): "TIMESTAMP",
}


def _type(kinds: set[str]) -> str:
    """Return the type of a column with these cells."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return _COMMON_TYPES.get(frozenset(kinds), "VARCHAR")


def _json(cell: Any) -> object:
    if isinstance(cell, float):
        return int(cell) if cell.is_integer() and isinstance(number(int(cell)), int) else number(cell)
    if isinstance(cell, (datetime, date, time)):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return _duration(cell)
    return cell


def _duration(value: timedelta) -> str:
    """Return a duration as hours, minutes and seconds, as Excel's format [h]:mm:ss shows it."""
    sign, value = ("-", -value) if value < timedelta() else ("", value)
    seconds, micros = value.days * 86_400 + value.seconds, value.microseconds
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{micros:06}".rstrip("0") if micros else text


def _letters(column: int) -> str:
    """Return the letters of a column, counted from 0: A, Z, AA."""
    letters = ""
    while column >= 0:
        column, rest = divmod(column, 26)
        letters = chr(ord("A") + rest) + letters
        column -= 1
    return letters


# Cells with errors


def _error_cells(archive: zipfile.ZipFile, position: int) -> dict[tuple[int, int], str]:
    """Return the cells of a sheet that have an error, by row and column, counted from 0."""
    member = _member_of_sheet(archive, position)
    if not member or not _contains(archive, member, (b't="e"', b"t='e'")):
        return {}
    errors: dict[tuple[int, int], str] = {}
    row, column = -1, -1
    pieces: list[str] | None = None
    is_error = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal row, column, pieces, is_error
        name = name.rpartition(":")[2]
        if name == "row":
            row, column = int(attributes.get("r", row + 2)) - 1, -1
        elif name == "c":
            reference = attributes.get("r")
            row, column = (row, column + 1) if reference is None else _cell_position(reference)
            is_error = attributes.get("t") == "e"
        elif name == "v" and is_error:
            pieces = []

    def end(name: str) -> None:
        nonlocal pieces
        if name.rpartition(":")[2] == "v" and pieces is not None:
            errors[row, column] = "".join(pieces)[:40]
            pieces = None

    def characters(text: str) -> None:
        if pieces is not None:
            pieces.append(text)

    parser = _parser(start)
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    _feed(parser, archive, member)
    return errors


def _cell_position(reference: str) -> tuple[int, int]:
    """Return the row and column of a reference such as AB12, counted from 0."""
    letters = reference.rstrip("0123456789")
    column = 0
    for letter in letters[:4].upper():
        column = column * 26 + ord(letter) - ord("A") + 1
    return int(reference[len(letters) :] or 1) - 1, column - 1


def _member_of_sheet(archive: zipfile.ZipFile, position: int) -> str:
    """Return the name of a sheet's XML in the archive; empty if it is not found."""
    sheets: list[str] = []
    targets: dict[str, str] = {}

    def sheet(name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2] == "sheet":
            sheets.append(next((value for key, value in attributes.items() if key.rpartition(":")[2] == "id"), ""))

    def relationship(name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2] == "Relationship":
            targets[attributes.get("Id", "")] = attributes.get("Target", "")

    member_names = {name.lower(): name for name in archive.namelist()}
    for member, handler in (("xl/workbook.xml", sheet), ("xl/_rels/workbook.xml.rels", relationship)):
        if member not in member_names:
            return ""
        _feed(_parser(handler), archive, member_names[member])
    target = targets.get(sheets[position], "") if position < len(sheets) else ""
    path = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
    return member_names.get(path.lower(), "")


def _contains(archive: zipfile.ZipFile, member: str, words: Sequence[bytes]) -> bool:
    with archive.open(member) as file:
        end = b""
        while block := file.read(_BLOCK_BYTES):
            if any(word in end + block for word in words):
                return True
            end = block[-16:]
    return False


def _parser(start: Any) -> Any:
    """Return a parser that refuses a document type, which could declare entities."""
    parser = xml.parsers.expat.ParserCreate()
    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = _refuse_doctype
    return parser


def _refuse_doctype(*_: object) -> None:
    raise ChildRefused("its XML has a document type, which workbooks do not have")


def _feed(parser: Any, archive: zipfile.ZipFile, member: str) -> None:
    with archive.open(member) as file:
        while block := file.read(_BLOCK_BYTES):
            parser.Parse(block, False)
    parser.Parse(b"", True)
