"""Finds the tables that a caller's statement may name, and opens those that it names."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager

from wharfinger.errors import InternalError, InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.policy.current import may_read, reads_all_below
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.folder.tree import Parts
from wharfinger.sources.folder.tree_resources import TreeResources
from wharfinger.sources.table_files.formats import WORKBOOK_FORMATS, format_of
from wharfinger.sources.table_files.open_tables import MAX_KEPT_TABLES, OpenTables, same_status
from wharfinger.sources.table_files.query_tables import OpenTable
from wharfinger.sources.table_files.table_query import parse_uri
from wharfinger.sources.table_files.table_views import select_of, typed_columns

__all__ = ["MAX_OPENED_WORKBOOKS", "MAX_QUERIED_PATHS", "QueriedTables"]

MAX_OPENED_WORKBOOKS = 8
"""Maximum number of workbooks whose sheets are found even if the statement does not name the workbook."""
MAX_QUERIED_PATHS = 10_000
"""Approximate maximum number of tables from which a statement may choose: the first ones that the caller may read."""


class QueriedTables:
    """Finds and opens the tables of a source for `TableStatements`."""

    def __init__(self, files: TreeResources, opener: OpenTables) -> None:
        self._files = files
        self._opener = opener
        self._typed_columns: BoundedCache[tuple[Parts, str], tuple[str, frozenset[str]]] = BoundedCache(MAX_KEPT_TABLES)
        """For each file and sheet, its version, and the columns whose values all fit their type."""

    def paths(self, statement: str) -> list[str]:
        """Return the decoded paths of the tables that the caller may query and the statement may name."""
        paths: list[str] = []
        lower_statement = statement.lower()
        workbooks = 0
        entries = self._files.tree.walk(None, self._files.view())
        try:
            for entry in entries:
                kind = "" if entry.is_directory else format_of(entry.name)
                if len(paths) >= MAX_QUERIED_PATHS:
                    break
                if kind and kind not in WORKBOOK_FORMATS and self._may_read_table(self._files.uri_of(entry.parts)):
                    paths.append("/".join(entry.parts))
                elif kind in WORKBOOK_FORMATS:
                    workbooks += 1  # for the first ones, a statement may name a sheet without its workbook
                    if workbooks <= MAX_OPENED_WORKBOOKS or entry.name.rpartition(".")[0].lower() in lower_statement:
                        paths += self._queried_sheets(entry.parts)
        finally:
            entries.close()
        return paths

    def _queried_sheets(self, parts: Parts) -> list[str]:
        """Return the paths of the sheets that the caller may read; first the workbook itself if it has only one."""
        path = "/".join(parts)
        try:
            _, sheets = self._opener.workbook(path, parts)
        except (ResourceNotFound, InvalidArgument, MissingExtra):
            return []
        sheet_paths = [
            f"{path}/{sheet.part}" for sheet in sheets if self._may_read_table(self._opener.uri_of(parts, sheet.part))
        ]
        return [path, *sheet_paths] if len(sheet_paths) == len(sheets) == 1 else sheet_paths

    def _may_read_table(self, uri: str) -> bool:
        """Return whether the caller may read a table and all its views."""
        return may_read(uri) and reads_all_below(f"{uri}/")

    @contextmanager
    def open(self, paths: Sequence[str]) -> Generator[Sequence[OpenTable]]:
        """Open tables for a statement, by their decoded paths. A table that cannot be opened has a `refusal`.

        Raises:
            InternalError: a file changed before the end of the statement.
        """
        with ExitStack() as stack:
            tables: list[OpenTable] = []
            statuses: list[tuple[str, int, os.stat_result]] = []
            for path in paths:
                try:
                    table, descriptor, status = self._open(stack, path)
                except (ResourceNotFound, InvalidArgument) as error:
                    tables.append(OpenTable(refusal=str(error).rstrip(".")))
                    continue
                tables.append(table)
                statuses.append((path, descriptor, status))
            refusal: InvalidArgument | None = None
            try:
                yield tables
            except InvalidArgument as error:  # the reason may be that a file changed
                refusal = error
            for path, descriptor, status in statuses:
                if not same_status(status, os.fstat(descriptor)):
                    raise InternalError(f"{path} changed while it was read: run the statement again.")
            if refusal is not None:
                raise refusal

    def _open(self, stack: ExitStack, path: str) -> tuple[OpenTable, int, os.stat_result]:
        """Return a table, and the descriptor and status of its file. What is opened is closed with the stack.

        Raises:
            ResourceNotFound: the table was removed after the statement's tables were listed.
            InvalidArgument: the file cannot be read as a table.
        """
        uri = self._files.uri_of(tuple(path.split("/")))
        located = parse_uri(uri, self._files.uri)
        try:
            descriptor = stack.enter_context(self._files.tree.file(located.parts))
        except NotServed:
            raise ResourceNotFound(uri) from None
        status = os.fstat(descriptor)
        file = self._opener.open_table(stack, uri, located, descriptor, status)
        key = file.parts, file.sheet
        cached = self._typed_columns.get(key)
        if cached is None or cached[0] != file.version:
            columns = typed_columns(file.engine, file.open_file, file.table)
            cached = self._typed_columns.put(key, (file.version, columns))
        select = select_of(file.table, file.open_file.pattern, cached[1])
        return OpenTable(file.open_file.descriptor, file.open_file.path, select), descriptor, status
