"""Files with tables as live resources: an overview, a schema and a sample of each, and windows over its rows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown, size_text
from wharfinger.errors import InternalError, InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.policy.current import is_restricted, may, may_read, reads_all_below
from wharfinger.source import VERSION, Source, UriParameter
from wharfinger.sources.directories import MAX_CHILDREN, description_of
from wharfinger.sources.folder.file_content import FileContent, version_of_file
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, quote, split_path
from wharfinger.sources.folder.file_watch import TreeWatch
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.tree import FileTree, Parts
from wharfinger.sources.folder.tree_resources import TreeResources, not_served_as_not_found
from wharfinger.sources.name_completion import MAX_COMPLETIONS
from wharfinger.sources.sql_database.database_engine import Parameters, QueryBounds, QueryRefused
from wharfinger.sources.sql_database.row_choice import FILTERS, RowChoice, check_columns
from wharfinger.sources.sql_database.row_text import clean
from wharfinger.sources.sql_database.sql_query import MAX_RESULT_BYTES, QueryAnswer, run_query
from wharfinger.sources.table_files.csv_encoding import UTF8
from wharfinger.sources.table_files.formats import FORMATS, TEXT_FORMATS, WORKBOOK_FORMATS, format_of
from wharfinger.sources.table_files.open_tables import MAX_NAMED_SHEETS, OpenTables, TableInUse
from wharfinger.sources.table_files.queried_tables import QueriedTables
from wharfinger.sources.table_files.query_tables import TableStatements
from wharfinger.sources.table_files.table_format import MAX_CELL_LENGTH
from wharfinger.sources.table_files.table_query import (
    HOW_TO_ASK,
    MAX_SHOWN_COLUMNS,
    OTHER_PARAMETERS,
    VIEWS,
    WINDOW_ROWS,
    TableQuery,
    parse_uri,
    rows_uri,
    with_column_names,
)
from wharfinger.sources.ttl import ttl_ms
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.text_pieces import text_pieces
from wharfinger.sources.windows.window import NEXT, PREVIOUS, WINDOW, continuation, remark
from wharfinger.sources.windows.window_budget import has_budget, within_budget

__all__ = ["WINDOW_CHARACTERS", "Tables"]

MAX_ROWS = 10_000
"""Maximum number of rows of a window."""
WINDOW_CHARACTERS = 1 << 20
"""Characters after which a window ends early."""
DEFAULT_WINDOW_CHARACTERS = 32_000
"""Characters after which a window ends early, if its URI states no number of rows."""
MAX_EXAMPLE_COLUMNS = 30
"""Maximum number of columns of the rows in an overview."""
OVERVIEW_CHARACTERS = 8_000
"""Approximate maximum number of characters of the list of columns in an overview, and also of its rows.

If the first row alone has more than twice as many, the overview shows no rows.
"""
SCHEMA_CHARACTERS = 24_000
"""Approximate maximum number of characters of the columns in a schema."""
OVERVIEW_ROWS = 5
"""Number of rows in an overview."""
SAMPLE_ROWS = 20
"""Number of rows of a sample."""
MAX_TEXT_BYTES = 64 << 20
"""Maximum number of bytes of one file that are searched."""
_BOUNDS = QueryBounds()


class Tables(Watched[TreeWatch], Source):
    """The source that `tables()` returns. Its methods may be called from several threads at once."""

    parameters: Mapping[str, UriParameter] = {
        "rows": UriParameter("1-200", "these rows, each a line of JSON"),
        "columns": UriParameter("day,price", "only these columns"),
        "order": UriParameter("-day,price", "ordered by these columns, - for descending"),
        "limit": UriParameter("20", "the first rows"),
        "tail": UriParameter("20", "the last rows"),
        "COLUMN": UriParameter("gte.100", f"only rows that meet conditions on columns: {FILTERS}"),
    }

    def __init__(self, root: str, label: str, choice: PublishChoice, location: str, encoding: str = "") -> None:
        self.name = label
        self.location = location
        self.root = root
        self.uri = f"table://{quote(label)}"
        self.files = TreeResources(
            FileTree(root, choice), self.uri, label, adjust=_as_table, noun="table", describe=description_of
        )
        self.template = self.files.template
        self.rows_template = f"{self.template}{{?rows,limit,tail,columns,order}}"
        self.templates = (
            t.ResourceTemplate(
                uri_template=self.template,
                name=label,
                title=f"Any table in {shown(label)}",
                description="The columns and first rows of the table at this path, or the list of a folder.",
            ),
            t.ResourceTemplate(
                uri_template=self.rows_template,
                name=f"{label} rows",
                title=f"Rows of a table in {shown(label)}",
                description=f"{OTHER_PARAMETERS}; any other name is a condition: {FILTERS}.",
                mime_type=mime.JSON_LINES,
            ),
        )
        self.encoding = encoding
        self._opener = OpenTables(self.files, root, encoding)
        self._queried = QueriedTables(self.files, self._opener)
        self._statements = TableStatements(self._queried.paths, self._queried.open)
        self._watches = TreeWatch(self.files.tree, self._watched_path)

    def __repr__(self) -> str:
        return f"tables({self.location!r}, label={self.name!r})"

    def patterns_below(self, names: Sequence[str]) -> Sequence[str]:
        """Return the pattern for the tables in a folder below the published one."""
        return (self.pattern_of(*names),)

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to these tables, whether or not it exists."""
        return self.files.matches(uri)

    def _parse(self, uri: str) -> TableQuery:
        """Parse a URI.

        Raises:
            ResourceNotFound: this is not the URI of a file, directory or view.
            InvalidArgument: its query is not valid. The message says how to write it.
        """
        return parse_uri(uri, self.uri)

    def _watched_path(self, uri: str) -> tuple[Parts, bool]:
        """Return the path of the file that a URI is about, and whether it is a directory."""
        query = self._parse(uri)
        return query.parts, query.view == "directory"

    def _read_workbook(self, uri: str, parts: Parts) -> t.ReadResourceResult:
        """Return the overview of a workbook. If it has only one sheet, the overview of the sheet follows."""
        status, sheets = self._opener.workbook(uri, parts)
        lines = [
            f"# {'/'.join(map(shown, parts))}",
            "",
            f"{FORMATS[format_of(parts[-1])][0]}, {size_text(status.st_size)}, {many(len(sheets), 'sheet')}.",
            "",
            "| sheet | columns and first rows |",
            "|---|---|",
        ]
        for sheet in sheets[:MAX_NAMED_SHEETS]:
            sheet_uri = self._opener.uri_of(parts, sheet.part)
            lines.append(f"| {_cell(sheet.name)}{' (hidden)' * sheet.hidden} | {sheet_uri} |")
        if len(sheets) > MAX_NAMED_SHEETS:
            lines.append(f"| and {len(sheets) - MAX_NAMED_SHEETS} more | |")
        meta: dict[str, object] = {VERSION: version_of_file(status)}
        contents = [t.ResourceContents(uri=uri, mime_type=mime.MARKDOWN, text="\n".join(lines) + "\n", meta=meta)]
        if len(sheets) == 1:
            sheet_query = TableQuery(parts, "", sheets[0].part)
            contents += self._opener.use(uri, sheet_query, lambda file: self._overview(uri, sheet_query, file))
            contents[0].text, contents[1:] = f"{contents[0].text}\n{contents[1].text}", []
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl_ms(status.st_mtime), cache_scope=self.cache_scope)

    # Statements

    def query(
        self,
        statement: str,
        parameters: Parameters = (),
        limit: int = 200,
        *,
        explain: bool = False,
        size: int = MAX_RESULT_BYTES,
    ) -> QueryAnswer:
        """Run one SELECT over the tables that the caller may read. A result that is too large is cut and marked.

        Name a table by its path, `FROM "2026/tides.csv"`, or by a shorter form that fits only one table: `FROM tides`.

        Args:
            statement: The SQL of DuckDB.
            parameters: The values of `?` or `$name`.
            limit: Maximum number of rows.
            explain: Return DuckDB's plan for the statement instead, like `EXPLAIN`.
            size: Approximate maximum number of bytes of all rows together.

        Raises:
            InvalidArgument: the statement does more than read these tables, reaches a bound, or cannot be run.
            InternalError: a file changed while it was read.
        """
        if not self.may_query():
            raise QueryRefused("These tables take no statements: read them by URI.")
        return run_query(self._statements, self.name, statement, parameters, limit, _BOUNDS, explain=explain, size=size)

    def may_query(self) -> bool:
        """Return whether the current caller may run statements, by the policy.

        Statements see only the tables that the caller may read.
        """
        return may("query", self.uri)

    @property
    def dialect(self) -> str:
        """The SQL dialect of `query`."""
        return self._statements.dialect

    # Listing

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List at most `limit` tables and folders after a key. Returns them and the key of the next page."""
        return self.files.page(after, limit)

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """List the entries of a folder (folders by name, then tables by name), or the sheets of a workbook.

        Raises:
            ResourceNotFound: there is no such folder or workbook.
            InvalidArgument: the workbook has no sheet with the key `after`, or cannot be read.
        """
        query = self._parse(uri)
        if "?" in uri or query.view or query.sheet or format_of(query.parts[-1]) not in WORKBOOK_FORMATS:
            return self.files.children(uri, after, limit)
        _, sheets = self._opener.workbook(uri, query.parts)
        names = [sheet.part for sheet in sheets]
        if after is not None and after not in names:
            raise InvalidArgument("This cursor is not one of this workbook: list it again without one.")
        begin = 0 if after is None else names.index(after) + 1
        resources = [self.stat(self._opener.uri_of(query.parts, part)) for part in names[begin : begin + limit]]
        return resources, names[begin + limit - 1] if begin + limit < len(names) else None

    def stat(self, uri: str) -> t.Resource:
        """Describe a URI as a resource. This reads at most the columns of the table.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
            InvalidArgument: its query is not valid or names a column that does not exist, or the file cannot be read.
        """
        query = self._parse(uri)
        if query.view == "directory":
            return self.files.stat(uri)
        resource = self.files.stat(self.files.uri_of(query.parts))
        if query.sheet:
            names = {sheet.part: sheet.name for sheet in self._opener.workbook(uri, query.parts)[1]}
            if query.sheet not in names:
                raise ResourceNotFound(uri)
            resource.name = clean(names[query.sheet]) or query.sheet
            resource.title = f"{resource.title or resource.name} / {shown(names[query.sheet]) or query.sheet}"
        if query.choice != RowChoice():
            self._opener.use(uri, query, lambda file: _check_choice(file, self._shown_columns(file, query.choice)[0]))
        resource.uri = uri
        if query.view:
            resource.mime_type = mime.JSON_LINES if query.view == "rows" else VIEWS[query.view]
            resource.title = f"{resource.title} ({query.view})"
        return resource

    # Reading

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read the overview, schema, sample or rows of a table, or the listing of a folder.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
            InvalidArgument: there are no such rows or columns, or the file is not a table. The message says why.
        """
        query = self._parse(uri)
        if query.view == "directory":
            return msgspec.structs.replace(self.files.read(uri, cache_scope=self.cache_scope), ttl_ms=0)
        if not query.view and not query.sheet and format_of(query.parts[-1]) in WORKBOOK_FORMATS:
            return self._read_workbook(uri, query.parts)
        return self._opener.use(uri, query, lambda file: self._result(file, _READ[query.view](self, uri, query, file)))

    def _result(self, file: TableInUse, contents: list[t.ResourceContents]) -> t.ReadResourceResult:
        first = contents[0]
        first.meta = {VERSION: file.version, **({} if first.meta is UNSET else first.meta)}
        ttl = ttl_ms(file.status.st_mtime)
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl, cache_scope=self.cache_scope)

    def _overview(self, uri: str, query: TableQuery, file: TableInUse) -> list[t.ResourceContents]:
        base = self._opener.uri_of(file.parts, file.sheet)
        count = file.table.count(file.engine, file.open_file)
        rows = "not counted" if count is None else many(count, "row")
        names = [column.name for column in file.table.columns]
        lines = [
            f"# {file.open_file.name}",
            "",
            f"{_format_title(file)}, {size_text(file.status.st_size)}, {many(len(names), 'column')}, {rows}.",
            *_reading_notes(file.table.details),
            "",
            "| column | type |",
            "|---|---|",
        ]
        number, room = 0, OVERVIEW_CHARACTERS
        for column in file.table.columns[:MAX_SHOWN_COLUMNS]:
            line = f"| {_cell(column.name)} | {_cell(column.type)} |"
            if (room := room - len(line)) < 0 and number:
                break
            lines.append(line)
            number += 1
        if number < len(names):
            lines += ["", f"{len(names) - number:,} more columns: {base}/schema?columns={number + 1}-"]
        choice = (
            RowChoice() if len(names) <= MAX_EXAMPLE_COLUMNS else RowChoice(columns=tuple(names[:MAX_EXAMPLE_COLUMNS]))
        )
        rows_text = "".join(self._rows(file, 1, OVERVIEW_ROWS, choice, OVERVIEW_CHARACTERS)[0]).rstrip("\n")
        if len(rows_text) <= 2 * OVERVIEW_CHARACTERS:
            lines += ["", "```jsonl", *rows_text.splitlines(), "```"]
        lines += [
            "",
            f"Rows: {base}{HOW_TO_ASK}.",
            f"Schema: {base}/schema. Sample: {base}/sample.",
        ]
        return [t.ResourceContents(uri=uri, mime_type=mime.MARKDOWN, text="\n".join(lines) + "\n")]

    def _schema(self, uri: str, query: TableQuery, file: TableInUse) -> list[t.ResourceContents]:
        names = [column.name for column in file.table.columns]
        choice = with_column_names(query.choice, names, len(names))
        _check_choice(file, choice)
        chosen_columns = set(choice.columns)
        columns = [
            {"name": column.name, "type": column.type}
            for column in file.table.columns
            if not chosen_columns or column.name in chosen_columns
        ]
        number, room = 0, SCHEMA_CHARACTERS
        while number < len(columns) and ((room := room - len(msgspec.json.encode(columns[number]))) > 0 or not number):
            number += 1
        schema = {
            "format": _format_title(file),
            "bytes": file.status.st_size,
            "rows": file.table.count(file.engine, file.open_file),
            "columns": columns[:number],
            **file.table.details,
        }
        content = t.ResourceContents(uri=uri, mime_type=mime.JSON)
        if number < len(columns):
            position = names.index(columns[number]["name"]) + 1
            following = f"{self._opener.uri_of(file.parts, file.sheet)}/schema?columns={position}-"
            schema |= {"allColumns": len(names), "columnsLeftOut": len(columns) - number, "next": following}
            content.meta = {NEXT: following}
        content.text = msgspec.json.encode(schema).decode()
        return [content]

    def _sample(self, uri: str, query: TableQuery, file: TableInUse) -> list[t.ResourceContents]:
        choice, note = self._shown_columns(file, RowChoice())
        lines, _ = self._rows(file, 1, SAMPLE_ROWS, choice, DEFAULT_WINDOW_CHARACTERS)
        contents = [t.ResourceContents(uri=uri, mime_type=mime.JSON_LINES, text="".join(lines))]
        return [*contents, remark(uri, note)] if note else contents

    def _shown_columns(self, file: TableInUse, choice: RowChoice) -> tuple[RowChoice, str]:
        """Return a choice with the names of its columns, and a sentence about columns that are left out, if any."""
        names = [column.name for column in file.table.columns]
        choice = with_column_names(choice, names)
        if choice.columns or len(names) <= MAX_SHOWN_COLUMNS:
            return choice, ""
        note = (
            f"Rows show the first {MAX_SHOWN_COLUMNS} of {len(names):,} columns. For others, add "
            f"columns={MAX_SHOWN_COLUMNS + 1}-{min(len(names), 2 * MAX_SHOWN_COLUMNS)}, or names from "
            f"{self._opener.uri_of(file.parts, file.sheet)}/schema."
        )
        return choice._replace(columns=tuple(names[:MAX_SHOWN_COLUMNS])), note

    def _window(self, uri: str, query: TableQuery, file: TableInUse) -> list[t.ResourceContents]:
        choice, note = self._shown_columns(file, query.choice)
        _check_choice(file, choice)
        first, last = query.rows
        if query.tail:
            last = file.table.count_matching(file.engine, file.open_file, choice)
            first = max(1, last - query.tail + 1)
        number = min(last - first + 1 if last else WINDOW_ROWS, MAX_ROWS)
        max_characters = WINDOW_CHARACTERS if last or has_budget() else DEFAULT_WINDOW_CHARACTERS
        lines, more = self._rows(file, first, number, choice, max_characters)
        end = first + len(lines)
        base = self._opener.uri_of(file.parts, file.sheet)
        if not lines and first > 1:
            raise InvalidArgument(
                f"{file.open_file.name} has no row {first:,}: begin earlier, as in ?rows=1-{WINDOW_ROWS}."
            )
        if not lines:
            name = file.open_file.name
            text = f"No rows of {name}{' match' if choice.filters else ''}. To choose rows: {base}{HOW_TO_ASK}."
            empty = t.ResourceContents(uri=uri, mime_type=mime.JSON_LINES, text="")
            return [empty, remark(uri, text)]
        meta: dict[str, object] = {WINDOW: {"firstRow": first, "lastRow": end - 1}}
        if more:
            next_last = 0  # the URI of the next window states no last row
            if last:  # it asks for the rows that are missing, or else for the same number of rows
                next_last = last if end <= last else end + number - 1
            meta[NEXT] = rows_uri(base, end, next_last, choice)
        if first > 1:
            meta[PREVIOUS] = rows_uri(base, max(1, first - number), first - 1, choice)
        contents = [t.ResourceContents(uri=uri, mime_type=mime.JSON_LINES, text="".join(lines), meta=meta)]
        if more:
            contents.append(continuation(str(meta[NEXT]), f"Rows {first:,}-{end - 1:,}. {note}".rstrip()))
        elif note:
            contents.append(remark(uri, note))
        return contents

    def _rows(
        self, file: TableInUse, first: int, number: int, choice: RowChoice, max_characters: int = WINDOW_CHARACTERS
    ) -> tuple[list[str], bool]:
        """Return as many rows as fit in a window, as lines of JSON, and whether more follow."""
        lines: list[str] = []
        length = 0
        if not file.table.columns:
            return lines, False
        if choice.filters or choice.order:
            rows = file.table.select_rows(file.engine, file.open_file, first, number + 1, choice)
        else:
            names = choice.columns or [column.name for column in file.table.columns]
            rows = file.table.rows(file.engine, file.open_file, first, number + 1, names)
        for line in rows:
            if len(lines) == number or (lines and length + len(line) > within_budget(max_characters)):
                return lines, True
            lines.append(line)
            length += len(line)
        return lines, False

    # Completion and search

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Suggest paths that begin with `value`. For `columns` and `order`, complete the name after the last comma."""
        if template not in (self.template, self.rows_template):
            return []
        if argument in ("columns", "order"):
            return self._complete_columns(context.get("path", ""), value)
        if argument != "path":
            return []
        head, _, typed = value.rpartition("/")
        try:
            parts = split_path(head)[0] if head else ()
            children, _ = self.children(self.files.uri_of(parts))
        except (UnreadableUri, ResourceNotFound):
            return []
        begin = f"{join_parts(parts)}/{typed}" if parts else typed
        paths = [(child.uri[len(self.files.prefix) :], child.mime_type == mime.DIRECTORY) for child in children]
        return [path + "/" * directory for path, directory in paths if path.startswith(begin)][:MAX_COMPLETIONS]

    def _complete_columns(self, path: str, value: str) -> list[str]:
        before, comma, typed = value.rpartition(",")
        try:
            query = self._parse(self.files.prefix + path)
            if not may_read(self._opener.uri_of(query.parts, query.sheet)):
                return []
            names = self._opener.use(path, query, lambda file: [column.name for column in file.table.columns])
        except (ResourceNotFound, InvalidArgument, InternalError):
            return []
        sign = "-" * typed.startswith("-")
        return [f"{before}{comma}{sign}{name}" for name in names if name.startswith(typed[len(sign) :])][
            :MAX_COMPLETIONS
        ]

    def text(self, uri: str) -> Iterator[str]:
        """Yield the text of a file, or the rows of a Parquet file or workbook, in pieces. Stops after 64 MiB."""
        query = self._parse(uri)
        if query.view == "directory":
            raise ResourceNotFound(uri)
        kind = format_of(query.parts[-1])
        if kind in WORKBOOK_FORMATS:
            yield from self._text_of_workbook(uri, query)
            return
        if kind == "parquet":
            yield from self._text_of_rows(uri, query)
            return
        if kind in TEXT_FORMATS and self.encoding:
            yield from self._text_of_encoded_file(uri, query)
            return
        yield from self.files.text(self.files.uri_of(query.parts), MAX_TEXT_BYTES)

    def _text_of_workbook(self, uri: str, query: TableQuery) -> Iterator[str]:
        """Yield the name and rows of each sheet."""
        try:
            _, sheets = self._opener.workbook(uri, query.parts)
        except (InvalidArgument, MissingExtra):
            return
        remaining = MAX_TEXT_BYTES
        for sheet in sheets:
            if query.sheet not in ("", sheet.part):
                continue
            yield f"{clean(sheet.name)}\n"
            for piece in self._text_of_rows(uri, TableQuery(query.parts, "", sheet.part)):
                yield piece
                remaining -= len(piece)
                if remaining < 0:
                    return

    def _text_of_encoded_file(self, uri: str, query: TableQuery) -> Iterator[str]:
        """Yield the text of a file whose encoding the operator named, from its copy in UTF-8."""
        with ExitStack() as stack, not_served_as_not_found(uri):
            descriptor = stack.enter_context(self.files.tree.file(query.parts))
            try:
                content = self._opener.open_table(stack, uri, query, descriptor, os.fstat(descriptor)).open_file.content
            except (InvalidArgument, InternalError):
                return
            yield from text_pieces(FileContent(content.descriptor, min(content.size, MAX_TEXT_BYTES)))

    def _text_of_rows(self, uri: str, query: TableQuery) -> Iterator[str]:
        first, size, more = 1, 0, True
        while more and size < MAX_TEXT_BYTES:

            def rows(file: TableInUse, first: int = first) -> tuple[list[str], bool]:
                return self._rows(file, first, 1_000, RowChoice())

            try:
                lines, more = self._opener.use(uri, query, rows)
            except (InvalidArgument, InternalError):
                return
            first += len(lines)
            piece = "".join(lines)
            size += len(piece)
            yield piece

    def shown_documents(self) -> Callable[[str], bool] | None:
        """Return a filter that hides workbooks of which the caller may not read every sheet."""
        if not is_restricted():
            return None
        return lambda uri: format_of(uri) not in WORKBOOK_FORMATS or reads_all_below(f"{uri}/")

    def describe(self) -> str:
        """Return the number of tables, and how changes are noticed."""
        resources, more = self.page(None, 1_000)
        number = sum(resource.mime_type != mime.DIRECTORY for resource in resources)
        return f"{'more than ' if more else ''}{many(number, 'table')}, watched by {self._watches.means}"

    async def close(self) -> None:
        """Stop watching, stop the running statements, and remove all copies."""
        await super().close()
        self._statements.close()
        await asyncio.to_thread(self._opener.close)


_READ: Mapping[str, Callable[[Tables, str, TableQuery, TableInUse], list[t.ResourceContents]]] = {
    "": Tables._overview,
    "schema": Tables._schema,
    "sample": Tables._sample,
    "rows": Tables._window,
}


def _check_choice(file: TableInUse, choice: RowChoice) -> None:
    names = [column.name for column in file.table.columns]
    check_columns(choice, file.open_file.name, names, OTHER_PARAMETERS)


def _as_table(resource: t.Resource, parts: Parts) -> t.Resource | None:
    """Return the resource of a table's overview, without the size of the file. Returns None if the file is no table."""
    if resource.mime_type != mime.DIRECTORY:
        kind = format_of(parts[-1])
        if not kind:
            return None
        resource.description = f"{FORMATS[kind][0]}, {size_text(int(resource.size or 0))}"
        resource.mime_type, resource.size = mime.MARKDOWN, UNSET
    return resource


def _format_title(file: TableInUse) -> str:
    return FORMATS[format_of(file.parts[-1])][0]


def _reading_notes(details: Mapping[str, Any]) -> list[str]:
    """Return a line that says how a file is read, if that is not obvious."""
    notes: list[str] = []
    if details.get("encoding", UTF8) != UTF8:
        notes.append(f"The encoding is {details['encoding']}.")
    if skipped := details.get("skippedLines"):
        notes.append(f"Left out before the header: {many(skipped, 'line')}.")
    if commas := details.get("decimalCommas"):
        notes.append(f"Numbers have decimal commas in {', '.join(map(shown, commas[:10]))}{'…' * (len(commas) > 10)}.")
    notes += [
        f"The format of {kind}s is {details[f'{kind}Format']}; conditions take 2026-11-20."
        for kind in ("date", "timestamp")
        if f"{kind}Format" in details
    ]
    return [" ".join(notes)] if notes else []


def _cell(text: str) -> str:
    return shown(text).replace("|", "\\|")[:MAX_CELL_LENGTH]
