"""Files with tables as live resources: an overview, a schema and a sample of each, and windows over its rows.

Refuses to know how a format is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import dated, many, shown, size_text
from wharfinger.errors import InternalError, InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Changed, Source
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.directories import CHILDREN, described, listing_text, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.folder.file_content import FileContent, version_of_file
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, quote, split_path
from wharfinger.sources.folder.file_watch import TreeWatch
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.safe_open import NotServed, holds, stat_entry
from wharfinger.sources.folder.tree import FileTree, Parts, TreePosition, write_key
from wharfinger.sources.page_keys import read_position
from wharfinger.sources.table_files.duckdb_engine import DuckDBEngine, path_of
from wharfinger.sources.table_files.formats import CELL, FORMATS, OpenFile, TableFile, format_of
from wharfinger.sources.table_files.table_query import (
    JSON,
    JSON_LINES,
    MARKDOWN,
    ROWS,
    VIEWS,
    TableQuery,
    locate,
    rows_uri,
)
from wharfinger.sources.text_match import COMPLETIONS
from wharfinger.sources.ttl import ttl_ms
from wharfinger.sources.windows.line_index import LineIndexes
from wharfinger.sources.windows.text_pieces import text_pieces
from wharfinger.sources.windows.window import NEXT, PREVIOUS, WINDOW, going_on

__all__ = ["WINDOW_CHARACTERS", "Tables"]

MOST_ROWS = 10_000
"""Rows of a window at most."""
WINDOW_CHARACTERS = 1 << 20
"""Characters after which a window ends early."""
SAMPLE = 20
"""Rows of a sample."""
KEPT = 256  # forms of files that were looked at
TRIES = 3  # readings of what changes while it is read
TEXT = 64 << 20
"""Bytes of one file whose text is searched."""


T = TypeVar("T")


class _File(NamedTuple):
    """A table that is open."""

    parts: Parts
    version: str
    status: os.stat_result
    open: OpenFile
    table: TableFile


class Tables(Source):
    """The source that `tables()` makes. Its methods may be called from several threads at once."""

    def __init__(self, root: str, label: str, choice: PublishChoice, place: str) -> None:
        self.name = label
        self.location = place
        self.uri = f"table://{quote(label)}"
        self._inside = self.uri + "/"
        self.tree = FileTree(root, choice)
        self.template = f"{self._inside}{{+path}}"
        self.rows_template = f"{self._inside}{{+path}}{{?rows,columns}}"
        self.templates = (
            t.ResourceTemplate(
                uri_template=self.template,
                name=label,
                title=f"Any table in {shown(label)}",
                description="path is that of a table, for its columns and first rows, or of a folder.",
            ),
            t.ResourceTemplate(
                uri_template=self.rows_template,
                name=f"{label} rows",
                title=f"Rows of a table in {shown(label)}",
                description="rows is a range such as 1-200; columns are names with commas between them.",
                mime_type=JSON_LINES,
            ),
        )
        self._engine = DuckDBEngine(root)
        self._lines = LineIndexes()
        self._forms: BoundedCache[Parts, tuple[str, TableFile]] = BoundedCache(KEPT)
        self._watch = TreeWatch(self.tree, self._watched)

    def __repr__(self) -> str:
        return f"tables({self.location!r}, label={self.name!r})"

    def matches(self, uri: str) -> bool:
        """Whether this URI is of these tables, existing or not."""
        return uri.startswith(self._inside) or uri == self.uri

    def uri_of(self, parts: Parts) -> str:
        """The URI of a path below the folder."""
        return self._inside + join_parts(parts) if parts else self.uri

    def _locate(self, uri: str) -> TableQuery:
        """What a URI means.

        Raises:
            ResourceNotFound: it can mean nothing here.
            InvalidArgument: its query can be mended.
        """
        return locate(uri, self.uri)

    def _watched(self, uri: str) -> tuple[Parts, bool]:
        asked = self._locate(uri)
        return asked.parts, asked.view == "directory"

    # Opening

    def _use(self, uri: str, parts: Parts, use: Callable[[_File], T]) -> T:
        """Use a table that is open, in one version.

        Raises:
            ResourceNotFound: missing or not published.
            UnreadableTable: its content is no such table.
        """
        for _ in range(TRIES):
            try:
                with self.tree.file(parts) as descriptor:
                    status = os.fstat(descriptor)
                    try:
                        found = use(self._opened(parts, descriptor, status))
                    except (InvalidArgument, InternalError):
                        if _same(status, os.fstat(descriptor)):
                            raise
                        continue
                    if _same(status, os.fstat(descriptor)):
                        return found
            except NotServed:
                raise ResourceNotFound(uri) from None
        raise InternalError(f"{uri} changes while it is read: try again later.")

    def _opened(self, parts: Parts, descriptor: int, status: os.stat_result) -> _File:
        version = version_of_file(status)
        content = FileContent(descriptor, status.st_size)
        index = self._lines.of(parts, version, content)
        path = path_of(descriptor, os.path.join(self.tree.root, *parts))
        file = OpenFile("/".join(map(shown, parts)), path, content, index)
        known = self._forms.get(parts)
        if known is None or known[0] != version:
            known = self._forms.put(parts, (version, FORMATS[format_of(parts[-1])][1](self._engine, file)))
        return _File(parts, version, status, file, known[1])

    # Listing

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """At most `limit` tables and folders behind the key, and the key of the next page."""
        position = None if after is None else read_position(after)
        found: list[t.Resource] = []
        entries = self.tree.walk(position)
        try:
            for entry in entries:
                if len(found) == limit and position is not None:
                    return found, write_key(position)
                resource = self._listed(entry.handle, entry.parts, entry.directory, entry.directory)
                if resource is not None:
                    found.append(resource)
                    position = TreePosition(entry.directory, entry.parts)
        finally:
            entries.close()
        return found, None

    def children(
        self, uri: str, after: str | None = None, limit: int = CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """What is directly in a folder: folders by name, then tables by name.

        Raises:
            ResourceNotFound: there is no such folder.
        """
        try:
            asked = self._locate(uri)
        except InvalidArgument:
            raise ResourceNotFound(uri) from None
        if asked.view != "directory":
            raise ResourceNotFound(uri)
        behind = _after(after)
        try:
            with self.tree.directory(asked.parts) as place:
                listing = self.tree.listing(place)
                names = [(True, name) for name in listing.directories] + [(False, name) for name in listing.files]
                found: list[t.Resource] = []
                last: TreePosition | None = None
                for directory, name in names:
                    if (not directory, name) <= behind:
                        continue
                    if len(found) == limit and last is not None:
                        return found, write_key(last)
                    resource = self._listed(place.handle, (*asked.parts, name), directory, False)
                    if resource is not None:
                        found.append(resource)
                        last = TreePosition(directory, (name,))
                return found, None
        except NotServed:
            raise ResourceNotFound(uri) from None

    def _listed(self, handle: Any, parts: Parts, directory: bool, itself: bool) -> t.Resource | None:
        if not directory and not format_of(parts[-1]):
            return None
        try:
            with holds():
                status = os.stat(handle) if itself else stat_entry(handle, parts[-1])
        except NotServed:
            return None
        return self._describe(self.uri_of(parts), parts, "directory" if directory else "", status)

    def _describe(self, uri: str, parts: Parts, view: str, status: os.stat_result) -> t.Resource:
        name = shown(parts[-1] if parts else self.name)
        title = "/".join(map(shown, parts)) or name
        kinds = {"directory": mime.DIRECTORY, "": MARKDOWN, "rows": JSON_LINES, **VIEWS}
        return t.Resource(
            uri=uri,
            name=name,
            title=f"{title} ({view})" if view in VIEWS or view == "rows" else title,
            description=UNSET
            if view == "directory"
            else f"{FORMATS[format_of(parts[-1])][0]}, {size_text(status.st_size)}",
            mime_type=kinds[view],
            annotations=dated(status.st_mtime),
            meta=UNSET if view == "directory" else {VERSION: version_of_file(status)},
        )

    def stat(self, uri: str) -> t.Resource:
        """What is known of a URI without reading it.

        Raises:
            ResourceNotFound: missing or not published, which look the same.
            InvalidArgument: its query cannot be.
        """
        asked = self._locate(uri)
        try:
            if asked.view == "directory":
                with self.tree.directory(asked.parts) as place, holds():
                    found = self._describe(uri, asked.parts, asked.view, os.stat(place.handle))
                found.meta = {VERSION: digest(self._listing(uri, asked.parts)[0])}
                return found
            with self.tree.file(asked.parts) as descriptor:
                return self._describe(uri, asked.parts, asked.view, os.fstat(descriptor))
        except NotServed:
            raise ResourceNotFound(uri) from None

    # Reading

    def read(self, uri: str) -> t.ReadResourceResult:
        """The overview, schema, sample or rows of a table, or what is in a folder.

        Raises:
            ResourceNotFound: missing or not published, which look the same.
            InvalidArgument: there are no such rows or columns, or the file is no table; the message says why.
        """
        asked = self._locate(uri)
        if asked.view == "directory":
            return self._read_directory(uri, asked.parts)
        return self._use(uri, asked.parts, lambda file: self._result(file, _READ[asked.view](self, uri, asked, file)))

    def _result(self, file: _File, contents: list[t.ResourceContents]) -> t.ReadResourceResult:
        first = contents[0]
        first.meta = {VERSION: file.version, **({} if first.meta is UNSET else first.meta)}
        ttl = ttl_ms(file.status.st_mtime)
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl, cache_scope=self.cache_scope)

    def _overview(self, uri: str, asked: TableQuery, file: _File) -> list[t.ResourceContents]:
        base = self.uri_of(file.parts)
        count = file.table.count(self._engine, file.open)
        rows = "not counted" if count is None else many(count, "row")
        names = [column.name for column in file.table.columns]
        lines = [
            f"# {file.open.name}",
            "",
            f"{_form(file)}, {size_text(file.status.st_size)}, {many(len(names), 'column')}, {rows}.",
            "",
            "| column | type |",
            "|---|---|",
            *(f"| {_cell(column.name)} | {_cell(column.type)} |" for column in file.table.columns),
            "",
            "```jsonl",
            *("".join(self._rows(file, 1, 5, names)[0]).splitlines()),
            "```",
            "",
            f"Rows: {base}?rows=1-{ROWS} (or `&columns=` with names and commas between them).",
            f"Schema: {base}/schema. Sample: {base}/sample.",
        ]
        return [t.ResourceContents(uri=uri, mime_type=MARKDOWN, text="\n".join(lines) + "\n")]

    def _schema(self, uri: str, asked: TableQuery, file: _File) -> list[t.ResourceContents]:
        said = {
            "format": _form(file),
            "bytes": file.status.st_size,
            "rows": file.table.count(self._engine, file.open),
            "columns": [{"name": column.name, "type": column.type} for column in file.table.columns],
            **file.table.details,
        }
        return [t.ResourceContents(uri=uri, mime_type=JSON, text=msgspec.json.encode(said).decode())]

    def _sample(self, uri: str, asked: TableQuery, file: _File) -> list[t.ResourceContents]:
        lines, _ = self._rows(file, 1, SAMPLE, [column.name for column in file.table.columns])
        return [t.ResourceContents(uri=uri, mime_type=JSON_LINES, text="".join(lines))]

    def _window(self, uri: str, asked: TableQuery, file: _File) -> list[t.ResourceContents]:
        names = _chosen(file, asked.columns)
        first, last = asked.rows or (1, 0)
        wanted = min(last - first + 1 if last else ROWS, MOST_ROWS)
        lines, more = self._rows(file, first, wanted, names)
        if not lines and first > 1:
            raise InvalidArgument(f"{file.open.name} has no row {first:,}: begin before, as in ?rows=1-{ROWS}.")
        end = first + len(lines)
        said: dict[str, object] = {WINDOW: {"firstRow": first, "lastRow": end - 1}}
        base = self.uri_of(file.parts)
        if more:
            short = bool(last) and end <= last
            said[NEXT] = rows_uri(base, end, last if short else end + wanted - 1 if last else 0, asked.columns)
        if first > 1:
            said[PREVIOUS] = rows_uri(base, max(1, first - wanted), first - 1, asked.columns)
        contents = [t.ResourceContents(uri=uri, mime_type=JSON_LINES, text="".join(lines), meta=said)]
        if more:
            contents.append(going_on(str(said[NEXT]), f"Rows {first:,}-{end - 1:,}."))
        return contents

    def _rows(self, file: _File, first: int, number: int, names: list[str]) -> tuple[list[str], bool]:
        """Rows as lines of JSON, as many as a window takes, and whether more follow."""
        lines: list[str] = []
        length = 0
        if not file.table.columns:
            return lines, False
        for line in file.table.rows(self._engine, file.open, first, number + 1, names):
            if len(lines) == number or (lines and length + len(line) > WINDOW_CHARACTERS):
                return lines, True
            lines.append(line)
            length += len(line)
        return lines, False

    def _read_directory(self, uri: str, parts: Parts) -> t.ReadResourceResult:
        text, children = self._listing(uri, parts)
        meta: dict[str, object] = {VERSION: digest(text)}
        contents = [t.ResourceContents(uri=uri, mime_type=mime.TEXT, text=text, meta=meta)]
        contents += summaries(children, say=described)
        return t.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope=self.cache_scope)

    def _listing(self, uri: str, parts: Parts) -> tuple[str, list[t.Resource]]:
        """What is in a folder, in words, and its first entries."""
        children, more = self.children(uri)
        folders = sum(child.mime_type == mime.DIRECTORY for child in children)
        counted = f"{many(folders, 'folder')} and {many(len(children) - folders, 'table')}"
        where = "".join([f"{shown(part)}/" for part in (self.name, *parts)])
        template = self.template if more else ""
        counted = f"more than {counted}" if more else counted
        return listing_text(where, counted, children, template, say=described), children

    # Finding

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Paths that begin with `value`; names of columns behind the last comma."""
        if template not in (self.template, self.rows_template):
            return []
        if argument == "columns":
            return self._complete_columns(context.get("path", ""), value)
        if argument != "path":
            return []
        head, _, typed = value.rpartition("/")
        try:
            parts = split_path(head)[0] if head else ()
            children, _ = self.children(self.uri_of(parts))
        except (UnreadableUri, ResourceNotFound):
            return []
        begin = f"{join_parts(parts)}/{typed}" if parts else typed
        found = [(child.uri[len(self._inside) :], child.mime_type == mime.DIRECTORY) for child in children]
        return [path + "/" * directory for path, directory in found if path.startswith(begin)][:COMPLETIONS]

    def _complete_columns(self, path: str, value: str) -> list[str]:
        before, comma, typed = value.rpartition(",")
        try:
            asked = self._locate(self._inside + path)
            names = self._use(path, asked.parts, lambda file: [column.name for column in file.table.columns])
        except (ResourceNotFound, InvalidArgument, InternalError):
            return []
        return [before + comma + name for name in names if name.startswith(typed)][:COMPLETIONS]

    def text(self, uri: str) -> Iterator[str]:
        """The text of a file, or the rows of a Parquet file, in pieces, as far as 64 MiB."""
        asked = self._locate(uri)
        if asked.view == "directory":
            raise ResourceNotFound(uri)
        if format_of(asked.parts[-1]) == "parquet":
            yield from self._text_of_rows(uri, asked.parts)
            return
        try:
            with self.tree.file(asked.parts) as descriptor:
                yield from text_pieces(FileContent(descriptor, min(os.fstat(descriptor).st_size, TEXT)))
        except NotServed:
            raise ResourceNotFound(uri) from None

    def _text_of_rows(self, uri: str, parts: Parts) -> Iterator[str]:
        first, size, more = 1, 0, True
        while more and size < TEXT:

            def rows(file: _File, first: int = first) -> tuple[list[str], bool]:
                return self._rows(file, first, 1_000, [column.name for column in file.table.columns])

            try:
                lines, more = self._use(uri, parts, rows)
            except (InvalidArgument, InternalError):
                return
            first += len(lines)
            piece = "".join(lines)
            size += len(piece)
            yield piece

    # Watching

    def describe(self) -> str:
        """How many tables there are, and what tells of changes."""
        found, more = self.page(None, 1_000)
        number = sum(resource.mime_type != mime.DIRECTORY for resource in found)
        return f"{'more than ' if more else ''}{many(number, 'table')}, watched by {self._watch.means}"

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Tell `changed` when this URI's file changes, or the list."""
        self._watch.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop telling."""
        self._watch.unwatch(uri)

    async def close(self) -> None:
        """Stop watching."""
        self._watch.close()


_READ: Mapping[str, Callable[[Tables, str, TableQuery, _File], list[t.ResourceContents]]] = {
    "": Tables._overview,
    "schema": Tables._schema,
    "sample": Tables._sample,
    "rows": Tables._window,
}


def _chosen(file: _File, columns: tuple[str, ...]) -> list[str]:
    names = [column.name for column in file.table.columns]
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise InvalidArgument(f"{file.open.name} has no column {unknown[0][:100]!r}. It has: {', '.join(names)[:500]}.")
    return [name for name in names if name in columns] if columns else names


def _after(key: str | None) -> tuple[bool, str]:
    """Behind which entry of a folder a page begins, in the order of its entries."""
    if key is None:
        return False, ""
    behind = read_position(key)
    return not behind.directory, "/".join(behind.parts[-1:])


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return version_of_file(one) == version_of_file(other)


def _form(file: _File) -> str:
    return FORMATS[format_of(file.open.name)][0]


def _cell(text: str) -> str:
    return shown(text).replace("|", "\\|")[:CELL]
