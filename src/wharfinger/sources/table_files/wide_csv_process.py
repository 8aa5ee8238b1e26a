"""Writes a CSV file with many columns as JSON Lines. Runs in a child process.

DuckDB reads 2,048 rows of CSV at once, with 16 bytes for each value, so 10,000 columns take more than its memory limit.
A row of JSON Lines is a single value, from which DuckDB extracts only the requested columns.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from collections.abc import Iterator
from typing import TextIO

import msgspec

from wharfinger.sources.child_main import ChildRefused
from wharfinger.sources.sql_database.row_text import clean, number, unique_names
from wharfinger.sources.table_files.workbook_process import MAX_ROW_BYTES, SheetFacts

__all__ = ["MAX_COLUMNS", "WideRequest", "main"]

MAX_COLUMNS = 100_000
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})", re.ASCII).fullmatch
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?", re.ASCII).fullmatch


class WideRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of a file in UTF-8 and of the output, and the delimiter."""

    path: str
    output: str
    delimiter: str


def main(data: bytes) -> bytes:
    """Write the rows, and return the `SheetFacts`.

    Raises:
        ChildRefused: a row cannot be read (the message names its line), or there are more than `MAX_COLUMNS` columns.
    """
    request = msgspec.msgpack.decode(data, type=WideRequest)
    csv.field_size_limit(MAX_ROW_BYTES)
    with open(request.path, encoding="utf-8-sig", newline="") as file:
        names, integers, numbers, header = _columns(file, request.delimiter)
        file.seek(0)
        count = 0
        with open(request.output, "r+b") as output:
            for row in _rows(file, request.delimiter, len(names), header):
                cells = [None if not cell else _value(cell, index in numbers) for index, cell in enumerate(row)] + [
                    None
                ] * (len(names) - len(row))
                output.write(msgspec.json.encode(dict(zip(names, cells, strict=True))) + b"\n")
                count += 1
    columns = [
        (name, "BIGINT" if index in integers else "DOUBLE" if index in numbers else "VARCHAR")
        for index, name in enumerate(names)
    ]
    facts = SheetFacts(columns=columns, row_count=count, header=int(header), first_row=1 + header, above=[], merged=[])
    return msgspec.msgpack.encode(facts)


def _columns(file: TextIO, delimiter: str) -> tuple[list[str], set[int], set[int], bool]:
    """Return the names of the columns, two sets of their positions, and whether there is a header.

    The sets are the columns with integers only, and the columns with numbers only.
    """
    first = next(_rows(file, delimiter, sys.maxsize, header=False), list[str]())
    if len(first) > MAX_COLUMNS:
        raise ChildRefused(f"it has {len(first):,} columns, and at most {MAX_COLUMNS:,} are read")
    header = not any(_is_number(cell) for cell in first)
    names = unique_names(clean(cell) if header and cell else f"column{index}" for index, cell in enumerate(first))
    file.seek(0)
    seen: set[int] = set()
    integers, numbers = set(range(len(names))), set(range(len(names)))
    for row in _rows(file, delimiter, len(names), header):
        for index, cell in enumerate(row):
            if not cell:
                continue
            seen.add(index)
            if index in integers and not _INTEGER(cell):
                integers.discard(index)
            if index in numbers and not _is_number(cell):
                numbers.discard(index)
    return names, integers & numbers & seen, numbers & seen, header


def _rows(file: TextIO, delimiter: str, width: int, header: bool) -> Iterator[list[str]]:
    """Yield the rows, without the header if there is one.

    Raises:
        ChildRefused: a row has too many cells, a quote is wrong, or the text is not valid UTF-8.
    """
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if len(row) > width:
                raise ChildRefused(f"line {reader.line_num:,} has {len(row):,} cells, and the first row {width:,}")
            if row and not header:
                yield row
            header = header and not row  # until the first row with cells
    except csv.Error as error:
        raise ChildRefused(f"line {reader.line_num:,}: {error}") from None
    except UnicodeDecodeError as error:  # the decoder reads ahead, so the exact line is not known
        bad = error.object[error.start : error.start + 1].hex()
        raise ChildRefused(f"after line {reader.line_num:,}, the byte {bad} is not valid UTF-8") from None


def _is_number(cell: str) -> bool:
    return _NUMBER(cell) is not None and math.isfinite(float(cell))  # 1e999 is too large for a float


def _value(cell: str, is_number: bool) -> object:
    if not is_number:
        return cell
    return number(int(cell)) if _INTEGER(cell) else number(float(cell))
