"""Opens the tables of a folder: each from its file, or from a copy that DuckDB can read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

from wharfinger.content.text import many, shown
from wharfinger.errors import InternalError, InvalidArgument, ResourceNotFound
from wharfinger.policy.current import may_read
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.folder.file_content import FileContent, version_of_file
from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.folder.tree import Parts
from wharfinger.sources.folder.tree_resources import TreeResources
from wharfinger.sources.table_files.converted_files import ConvertedFiles, OpenCopy
from wharfinger.sources.table_files.csv_encoding import UTF8, copy_as_utf8, detected_encoding, wide_delimiter
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, path_of
from wharfinger.sources.table_files.formats import FORMATS, TEXT_FORMATS, WORKBOOK_FORMATS, format_of
from wharfinger.sources.table_files.table_format import OpenFile, TableFile
from wharfinger.sources.table_files.table_query import TableQuery
from wharfinger.sources.table_files.workbooks import Sheet, SheetName, Workbooks
from wharfinger.sources.windows.line_index import LineIndexes

__all__ = ["MAX_KEPT_TABLES", "MAX_NAMED_SHEETS", "OpenTables", "TableInUse", "same_status"]

MAX_KEPT_TABLES = 256
"""Maximum number of tables whose columns are cached."""
MAX_TRIES = 3
"""Attempts to read a file that changes during the read."""
MAX_NAMED_SHEETS = 100
"""Maximum number of sheets that an overview or an error names."""

T = TypeVar("T")


class TableInUse(NamedTuple):
    """A table that is open."""

    parts: Parts
    sheet: str
    version: str
    status: os.stat_result
    open_file: OpenFile
    table: TableFile
    engine: DuckDBEngine


class OpenTables:
    """Opens tables by the parsed URIs of their resources. Its methods may be called from several threads."""

    def __init__(self, files: TreeResources, root: str, encoding: str) -> None:
        self._files = files
        self._encoding = encoding
        self._engine = DuckDBEngine(root)
        self._copies = ConvertedFiles()
        self._copy_engines: BoundedCache[str, DuckDBEngine] = BoundedCache(1)  # after `close` copies have a new folder
        self._workbooks = Workbooks()
        self._sheets: BoundedCache[Parts, tuple[str, list[SheetName]]] = BoundedCache(MAX_KEPT_TABLES)
        self._encodings: BoundedCache[Parts, tuple[str, str]] = BoundedCache(MAX_KEPT_TABLES)
        self._lines = LineIndexes()
        self._tables: BoundedCache[tuple[Parts, str], tuple[str, TableFile]] = BoundedCache(MAX_KEPT_TABLES)

    def use(self, uri: str, query: TableQuery, function: Callable[[TableInUse], T]) -> T:
        """Open a table and return the result of `function`, which is called again if the file changed meanwhile.

        Raises:
            ResourceNotFound: the file is missing or not published, or the workbook has no such sheet.
            InvalidArgument: the URI does not say which of several sheets.
            UnreadableTable: the file is not a table in this format.
            InternalError: the file changed during each of `MAX_TRIES` calls.
        """
        for _ in range(MAX_TRIES):
            try:
                with ExitStack() as stack:
                    descriptor = stack.enter_context(self._files.tree.file(query.parts))
                    status = os.fstat(descriptor)
                    try:
                        result = function(self.open_table(stack, uri, query, descriptor, status))
                    except (InvalidArgument, InternalError):
                        if same_status(status, os.fstat(descriptor)):
                            raise
                        continue
                    if same_status(status, os.fstat(descriptor)):
                        return result
            except NotServed:
                raise ResourceNotFound(uri) from None
        raise InternalError(f"{uri} changes while it is read: try again later.")

    def open_table(
        self, stack: ExitStack, uri: str, query: TableQuery, descriptor: int, status: os.stat_result
    ) -> TableInUse:
        """Return the table in an open file. Copies that are opened for it are closed with the stack.

        Raises:
            ResourceNotFound: the workbook has no such sheet.
            InvalidArgument: the URI does not say which of several sheets.
            UnreadableTable: the file is not a table in this format.
        """
        version, parts = version_of_file(status), query.parts
        file = self._open_file(parts, version, descriptor, status)
        kind, sheet = format_of(parts[-1]), ""
        engine: DuckDBEngine = self._engine
        facts: Any = None
        if kind in TEXT_FORMATS:
            encoding = facts = self._encoding_of(parts, version, file)
            if encoding != UTF8:
                opening = self._copies.open((parts, ""), version, lambda out: copy_as_utf8(file, encoding, out))
                file, engine = self._with_copy(file, stack.enter_context(opening))
            if delimiter := wide_delimiter(file):
                file, engine, table = self._open_wide_csv(stack, parts, version, file, delimiter, encoding)
                return TableInUse(parts, "", version, status, file, table, engine)
        elif kind in WORKBOOK_FORMATS:
            chosen = self._chosen_sheet(uri, query, version, file)
            sheet = chosen.part
            opening = self._copies.open(
                (parts, sheet),
                version,
                lambda out: self._workbooks.copy_sheet(file, (parts, version), chosen, out.name),
            )
            copy = stack.enter_context(opening)
            file, engine = self._with_copy(file, copy)
            facts = copy.facts
            name = f"{file.name}/{shown(chosen.name)}"
            file = file._replace(name=name, lines=self._lines.of((parts, sheet), version, file.content))
        cached = self._tables.get((parts, sheet))
        if cached is None or cached[0] != version:
            cached = self._tables.put((parts, sheet), (version, FORMATS[kind][1](engine, file, facts)))
        return TableInUse(parts, sheet, version, status, file, cached[1], engine)

    def _open_wide_csv(
        self, stack: ExitStack, parts: Parts, version: str, file: OpenFile, delimiter: str, encoding: str
    ) -> tuple[OpenFile, DuckDBEngine, TableFile]:
        """Open the copy in JSON Lines of a CSV file with many columns. Makes the copy if it does not exist yet."""
        opening = self._copies.open(
            (parts, "wide"),
            version,
            lambda out: self._workbooks.copy_wide_csv(file, (parts, version), delimiter, out.name),
        )
        copy = stack.enter_context(opening)
        wide_file, engine = self._with_copy(file, copy)
        wide_file = wide_file._replace(lines=self._lines.of((parts, "wide"), version, wide_file.content))
        cached = self._tables.get((parts, ""))
        if cached is None or cached[0] != version:
            table = Sheet(engine, wide_file, copy.facts)
            table.details = {"delimiter": delimiter, "header": bool(copy.facts.header), "encoding": encoding}
            cached = self._tables.put((parts, ""), (version, table))
        return wide_file, engine, cached[1]

    def _open_file(self, parts: Parts, version: str, descriptor: int, status: os.stat_result) -> OpenFile:
        content = FileContent(descriptor, status.st_size)
        index = self._lines.of(parts, version, content)
        path = path_of(descriptor, os.path.join(self._files.tree.root, *parts))
        return OpenFile("/".join(map(shown, parts)), descriptor, path, content, index)

    def _with_copy(self, file: OpenFile, copy: OpenCopy) -> tuple[OpenFile, DuckDBEngine]:
        """Return the file with a copy as its content, and the engine that may read it."""
        content = FileContent(copy.descriptor, os.fstat(copy.descriptor).st_size)
        folder = os.path.dirname(copy.path)
        engine = self._copy_engines.get(folder) or self._copy_engines.put(folder, DuckDBEngine(folder))
        path = path_of(copy.descriptor, copy.path)
        return file._replace(descriptor=copy.descriptor, path=path, content=content), engine

    # Sheets of workbooks

    def _chosen_sheet(self, uri: str, query: TableQuery, version: str, file: OpenFile) -> SheetName:
        """Return the sheet that a URI names, or the only sheet of the workbook.

        Raises:
            ResourceNotFound: there is no such sheet, or the caller may not read it.
            InvalidArgument: the URI does not say which of several sheets.
        """
        sheets = self._sheets_of(query.parts, version, file)
        for sheet in sheets:
            if query.sheet == sheet.part or (not query.sheet and len(sheets) == 1):
                if not may_read(self.uri_of(query.parts, sheet.part)):
                    raise ResourceNotFound(uri)
                return sheet
        if query.sheet:
            raise ResourceNotFound(uri)
        names = [self.uri_of(query.parts, sheet.part) for sheet in self._readable_sheets(query.parts, sheets)]
        raise InvalidArgument(
            f"{file.name} has {many(len(names), 'sheet')}: read one of {', '.join(names[:MAX_NAMED_SHEETS])}."
        )

    def _sheets_of(self, parts: Parts, version: str, file: OpenFile) -> list[SheetName]:
        cached = self._sheets.get(parts)
        if cached is None or cached[0] != version:
            cached = self._sheets.put(parts, (version, self._workbooks.sheets(file, (parts, version))))
        return cached[1]

    def _readable_sheets(self, parts: Parts, sheets: Sequence[SheetName]) -> list[SheetName]:
        return [sheet for sheet in sheets if may_read(self.uri_of(parts, sheet.part))]

    def workbook(self, uri: str, parts: Parts) -> tuple[os.stat_result, list[SheetName]]:
        """Return the status of a workbook, and the sheets that the caller may read.

        Raises:
            ResourceNotFound: the file is missing or not published.
            UnreadableTable: the file is not a workbook.
        """
        try:
            with self._files.tree.file(parts) as descriptor:
                status = os.fstat(descriptor)
                version = version_of_file(status)
                sheets = self._sheets_of(parts, version, self._open_file(parts, version, descriptor, status))
        except NotServed:
            raise ResourceNotFound(uri) from None
        return status, self._readable_sheets(parts, sheets)

    def uri_of(self, parts: Parts, sheet: str) -> str:
        """Return the URI of a file, or of a sheet of a workbook."""
        return self._files.uri_of((*parts, sheet) if sheet else parts)

    def _encoding_of(self, parts: Parts, version: str, file: OpenFile) -> str:
        if self._encoding:
            return self._encoding
        cached = self._encodings.get(parts)
        if cached is None or cached[0] != version:
            cached = self._encodings.put(parts, (version, detected_encoding(file)))
        return cached[1]

    def close(self) -> None:
        """End the processes that read workbooks, and remove all copies. A later call makes them again."""
        self._workbooks.close()
        self._copies.close()


def same_status(one: os.stat_result, other: os.stat_result) -> bool:
    """Return whether two calls of `fstat` saw the same version of a file."""
    return version_of_file(one) == version_of_file(other)
