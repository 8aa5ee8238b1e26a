"""Workbooks: their sheets, and each sheet as a table that DuckDB reads from a copy in JSON Lines."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Hashable, Sequence

import msgspec

from wharfinger.errors import MissingExtra
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.child_process import (
    ChildBounds,
    ChildClosed,
    ChildProcesses,
    ChildRefused,
    ChildStopped,
    NoFreeChild,
)
from wharfinger.sources.table_files import wide_csv_process, workbook_process
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, UnreadableTable
from wharfinger.sources.table_files.json_lines_table import JsonLines
from wharfinger.sources.table_files.table_format import OpenFile, TableColumn
from wharfinger.sources.table_files.wide_csv_process import WideRequest
from wharfinger.sources.table_files.workbook_process import SheetFacts, SheetName, WorkbookRequest

__all__ = ["MAX_COPY_BYTES", "Sheet", "SheetName", "Workbooks"]

READ_SECONDS = 20.0
"""Maximum time for reading a workbook or a wide CSV file."""
MEMORY_BYTES = 1 << 30
"""Address space of the child process that reads a workbook or a wide CSV file."""
MAX_COPY_BYTES = 256 << 20
"""Maximum size of one sheet, or of a wide CSV file, as JSON Lines."""
MAX_CELLS_ABOVE = 20
"""Maximum number of cells that the schema shows of a row above the header."""
MAX_KEPT_FAILURES = 256
_ORDINAL = re.compile(r"sheet-\d+").fullmatch


class Sheet(JsonLines):
    """A copy in JSON Lines of a workbook's sheet, or of a wide CSV file. The types of its columns fit all cells."""

    all_values_fit = True

    def __init__(self, engine: DuckDBEngine, file: OpenFile, facts: SheetFacts) -> None:
        self.columns = [TableColumn(name, kind) for name, kind in facts.columns]
        self.details = {"headerRow": facts.header or None, "firstRow": facts.first_row}
        if facts.above:
            self.details["above"] = [cells[:MAX_CELLS_ABOVE] for cells in facts.above]
        if facts.merged:
            self.details["merged"] = facts.merged
        self._row_count = facts.row_count

    def count(self, engine: DuckDBEngine, file: OpenFile) -> int | None:
        """Return the number of rows."""
        return self._row_count


class Workbooks:
    """Reads workbooks and wide CSV files in child processes."""

    def __init__(self) -> None:
        self._children = ChildProcesses()
        self._failures: BoundedCache[Hashable, str] = BoundedCache(MAX_KEPT_FAILURES)

    def sheets(self, file: OpenFile, key: Hashable) -> list[SheetName]:
        """Return the worksheets, in the order of the workbook. `key` identifies this version of the workbook.

        Raises:
            UnreadableTable: the workbook cannot be read.
            MissingExtra: python-calamine is not installed.
        """
        sheets = msgspec.msgpack.decode(
            self._run(file, (key, None), WorkbookRequest(path=file.path)), type=list[SheetName]
        )
        return _with_parts(sheets)

    def copy_sheet(self, file: OpenFile, key: Hashable, sheet: SheetName, path: str) -> SheetFacts:
        """Write the rows of a sheet as JSON Lines to a path.

        Raises:
            UnreadableTable: the workbook cannot be read, or the sheet is too large.
        """
        request = WorkbookRequest(path=file.path, output=path, sheet=sheet.position)
        return msgspec.msgpack.decode(self._run(file, (key, sheet.position), request), type=SheetFacts)

    def copy_wide_csv(self, file: OpenFile, key: Hashable, delimiter: str, path: str) -> SheetFacts:
        """Write the rows of a CSV file in UTF-8 as JSON Lines to a path.

        Raises:
            UnreadableTable: a row cannot be read, or the file is too large.
        """
        request = WideRequest(path=file.path, output=path, delimiter=delimiter)
        return msgspec.msgpack.decode(self._run(file, key, request), type=SheetFacts)

    def _run(self, file: OpenFile, key: Hashable, request: WorkbookRequest | WideRequest) -> bytes:
        if (reason := self._failures.get(key)) is not None:
            raise UnreadableTable(reason)
        is_workbook = isinstance(request, WorkbookRequest)
        if is_workbook and importlib.util.find_spec("python_calamine") is None:
            raise MissingExtra("tables", "Publishing workbooks")
        process = workbook_process if is_workbook else wide_csv_process
        bounds = ChildBounds(READ_SECONDS, MEMORY_BYTES, MAX_COPY_BYTES)
        try:
            return self._children.run(process.__name__, msgspec.msgpack.encode(request), bounds, [file.descriptor])
        except ChildRefused as error:
            raise UnreadableTable(f"{file.name} cannot be read: {error}.") from None
        except ChildStopped as error:
            hint = "A cell far from all others makes a sheet large: remove it, or split the workbook."
            reason = f"{file.name} cannot be read: {error}. {hint if is_workbook else 'Split the file.'}"
            if not isinstance(error, NoFreeChild | ChildClosed):  # the same version would take as long again
                self._failures.put(key, reason)
            raise UnreadableTable(reason) from None

    def close(self) -> None:
        """End the children."""
        self._children.close()


def _with_parts(sheets: Sequence[SheetName]) -> list[SheetName]:
    """Add the name in URIs (`part`) to each: its own name, or `sheet-3` if that is taken or cannot be in a path."""
    names_in_use: set[str] = set()
    result: list[SheetName] = []
    for number, sheet in enumerate(sheets, 1):
        name = sheet.name
        usable = name not in ("", ".", "..") and not re.search(r"[/\0]", name) and not _ORDINAL(name)
        part = name if usable and name not in names_in_use else f"sheet-{number}"
        names_in_use.add(part)
        result.append(msgspec.structs.replace(sheet, part=part))
    return result
