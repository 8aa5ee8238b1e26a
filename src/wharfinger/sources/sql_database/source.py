"""A database as live resources: its schema, definitions of tables, rows in windows, single rows and cells."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from urllib.parse import unquote

import msgspec

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.policy.current import is_restricted, reads_all_below
from wharfinger.source import VERSION, Document, Source, version_of
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.directories import MAX_CHILDREN, description_of, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.sql_database.database_catalogue import DatabaseCatalogue, DatabaseTable
from wharfinger.sources.sql_database.database_engine import (
    BadKey,
    DatabaseEngine,
    DatabaseUnreachable,
    Parameters,
    QueryBounds,
    QueryRefused,
    Span,
)
from wharfinger.sources.sql_database.readable_catalogue import (
    may_query_all,
    readable_catalogue,
    reads_everything,
    reads_rows,
)
from wharfinger.sources.sql_database.row_choice import FILTERS, UnknownColumn
from wharfinger.sources.sql_database.row_text import clean
from wharfinger.sources.sql_database.row_windows import (
    HOW_TO_ASK,
    PARAMETERS,
    RowQuery,
    RowWindow,
    parse_rows,
    read_window,
    rows_uri,
)
from wharfinger.sources.sql_database.sql_documents import complete_variable, table_documents
from wharfinger.sources.sql_database.sql_query import MAX_RESULT_BYTES, QueryAnswer, run_query
from wharfinger.sources.sql_database.sql_uris import SqlTarget, SqlUris, join_key, quote_part
from wharfinger.sources.sql_database.sql_watch import SqlWatch
from wharfinger.sources.sql_database.table_descriptions import brief, definition_text, schema_text
from wharfinger.sources.ttl import ttl_ms
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.window import (
    NEXT,
    PREVIOUS,
    WINDOW,
    BytesContent,
    continuation,
    parse_window,
    read_content,
    remark,
    split_query,
)
from wharfinger.sources.windows.window_budget import has_budget

__all__ = ["ROWS", "Database"]

ROWS = "wharfinger/rows"
"""In `_meta` of rows: the approximate number of rows in the table. Missing if it would have to be counted."""
MAX_FIRST_SEEN_URIS = 1_024
"""Maximum number of URIs for which the source records when their current version was first seen."""
CATALOGUE_SECONDS = 0.25
"""Maximum age of a catalogue when rows are read."""
ROW_CELL_LENGTH = 8_000
"""Maximum number of characters of one value when a single row is read."""
MAX_CELL_BYTES = 16 << 20
"""Maximum bytes of one cell that are read. The rest is left out."""


class Database(Watched[SqlWatch], Source):
    """The source that `sql()` returns. Its methods may be called from several threads at once."""

    parameters = PARAMETERS
    noun = "database"

    def __init__(
        self, engine: DatabaseEngine, *, top: str, label: str, schema: str | None, bounds: QueryBounds
    ) -> None:
        self.engine = engine
        self.name = label
        self.uri = top
        self.location = engine.location
        self.root = engine.path
        self.uris = SqlUris(top, schema)
        self.bounds = bounds
        self._first_seen: BoundedCache[str, tuple[str, float]] = BoundedCache(MAX_FIRST_SEEN_URIS)
        self.templates = _templates(top, label, schema is None)
        self._watches = SqlWatch(label, engine, self._version_of)

    def __repr__(self) -> str:
        return f"sql({self.location!r}, label={self.name!r})"

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to this database, whether or not it exists."""
        return self.uris.matches(uri)

    def _catalogue(self, age: float = 0.0) -> DatabaseCatalogue:
        """Return the tables that the caller may read."""
        return readable_catalogue(self.engine.catalogue(age), self.uris)

    # Listing

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List the database itself, then its tables and views by schema and name, without their rows."""
        last_shown = None if after is None else _read_page_key(after, 2)
        catalogue = self._catalogue()
        names = [name for name in catalogue.tables if last_shown is None or name > last_shown]
        names = [("", ""), *names] if last_shown is None else names  # the database itself is the first entry
        resources = [
            self._table(catalogue.tables[name])
            if name in catalogue.tables
            else self._directory(SqlTarget(kind="database"), self.uri, catalogue)
            for name in names[:limit]
        ]
        return resources, _write_page_key(*names[limit - 1]) if len(names) > limit else None

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """List the direct entries of the database or of a schema: schemas, or tables and views.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        target = self.uris.read(uri)
        last_shown = None if after is None else _read_page_key(after, 1)[0]
        catalogue = self._catalogue()
        schema = self.uris.schema if target.kind == "database" else target.schema
        if schema is None:
            names = list(catalogue.schemas)
        elif target.kind in ("database", "schema") and schema in catalogue.schemas:
            names = [table.name for table in catalogue.of_schema(schema)]
        else:
            raise ResourceNotFound(uri)
        names = [name for name in names if last_shown is None or name > last_shown]
        resources = [
            self._directory(SqlTarget(kind="schema", schema=name), self.uris.of_schema(name), catalogue)
            if schema is None
            else self._table(catalogue.tables[schema, name])
            for name in names[:limit]
        ]
        return resources, _write_page_key(names[limit - 1]) if len(names) > limit else None

    def _table(self, table: DatabaseTable) -> t.Resource:
        text = definition_text(table, self.uris)
        return t.Resource(
            uri=self.uris.of_table(table.schema, table.name),
            name=clean(table.name),
            title=clean(table.name if self.uris.schema is not None else f"{table.schema}.{table.name}"),
            description=brief(table),
            mime_type=mime.JSON,
            size=len(text.encode()),
            meta={VERSION: digest(text)},
        )

    def _directory(self, target: SqlTarget, uri: str, catalogue: DatabaseCatalogue) -> t.Resource:
        """Describe the database or a schema as a resource. Its text is the definition of all its tables."""
        name = clean(target.schema or self.name)
        return t.Resource(
            uri=uri,
            name=name,
            title=name,
            description=f"{self.engine.dialect} {target.kind}: read it for its whole schema",
            mime_type=mime.DIRECTORY,
            meta={VERSION: digest(self._schema_text(target, uri, catalogue, counted=False))},
        )

    def _schema_text(self, target: SqlTarget, uri: str, catalogue: DatabaseCatalogue, *, counted: bool = True) -> str:
        """Return the definition of all tables of the database or a schema, with their row counts if `counted`.

        Raises:
            ResourceNotFound: there is no such schema.
        """
        if target.kind == "schema" and (self.uris.schema is not None or target.schema not in catalogue.schemas):
            raise ResourceNotFound(uri)
        tables = catalogue.of_schema(target.schema) if target.kind == "schema" else list(catalogue.tables.values())
        several = target.kind == "database" and self.uris.schema is None
        top = self.uri if target.kind == "database" else self.uris.of_schema(target.schema)
        base = f"{top}/{'<schema>/' if several else ''}"
        lines = [
            f"{clean(target.schema or self.name)}/ holds {many(len(tables), 'table')}. Dialect: {self.engine.dialect}.",
            f"Definition of one: {base}<table>. Its rows: {base}<table>/rows{HOW_TO_ASK}",
            f"Conditions: {FILTERS}; several must all hold. One row: {base}<table>/rows/<key>.",
            "",
        ]
        estimates = self._estimates(tables) if counted else [None] * len(tables)
        return "\n".join(lines) + "\n" + schema_text(tables, estimates, schemas=several)

    def _estimates(self, tables: list[DatabaseTable]) -> list[int | None]:
        """Return the approximate row count of each table. None if unknown, or if the caller may not read every row."""
        estimates = self.engine.estimates(tables)
        return [
            estimate if reads_rows(self.uris, table) else None
            for estimate, table in zip(estimates, tables, strict=True)
        ]

    # One resource

    def stat(self, uri: str) -> t.Resource:
        """Describe a URI as a resource. For a window of rows, a row or a cell, this reads the content.

        Raises:
            ResourceNotFound: it does not exist, or the role may not read it.
        """
        target = self.uris.read(uri)
        resource = self._stat(target, uri)
        if reads_everything(self.uris):  # a watch compares unfiltered versions
            self._watches.record(uri, version_of(resource))
        return resource

    def _stat(self, target: SqlTarget, uri: str) -> t.Resource:
        if target.kind == "table":
            return msgspec.structs.replace(self._table(self._find(target, uri)), uri=uri)
        if target.kind in ("database", "schema"):
            return self._directory(target, uri, self._catalogue())
        content = self.read(uri).contents[0]
        name = f"{clean(target.table)}/{'rows' if target.kind == 'rows' else clean(join_key(target.key))}"
        name += f"/{clean(target.column)}" if target.kind == "cell" else ""
        meta: dict[str, object] = {VERSION: (content.meta or {}).get(VERSION, "")}
        return t.Resource(uri=uri, name=name, title=name, mime_type=content.mime_type, meta=meta)

    def version(self, uri: str) -> str:
        """Return a digest of the content.

        For the first window of a table, it includes the table's token if more rows follow, unless the URI states a
        number of rows or the caller may not read everything.

        Raises:
            ResourceNotFound: it does not exist, or the role may not read it.
        """
        return self._version_of(uri)

    def _version_of(self, uri: str | None) -> str:
        if uri is None:
            return digest(*[self.uris.of_table(*name) for name in self._catalogue().tables])
        target = self.uris.read(uri)
        if target.kind == "rows":
            return self._window(target, uri)[1].version
        return version_of(self._stat(target, uri))

    def _find(self, target: SqlTarget, uri: str, max_age: float = 0.0) -> DatabaseTable:
        for age in dict.fromkeys((max_age, 0.0)):  # first the kept catalogue, then a new one
            table = self._catalogue(age).tables.get((target.schema, target.table))
            if table is not None:
                return table
        raise ResourceNotFound(uri)

    # Reading

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read a schema, a definition, a window of rows, one row, or one cell of it.

        Raises:
            ResourceNotFound: it does not exist, or the role may not read it.
            InvalidArgument: the window is not valid. The message says which windows are.
        """
        target = self.uris.read(uri)
        if target.kind == "rows":
            return self._read_rows(target, uri)
        if target.kind == "row":
            return self._read_row(target, uri)
        if target.kind == "cell":
            return self._read_cell(target, uri)
        if target.kind == "table":
            table = self._find(target, uri)
            return self._single_content(uri, mime.JSON, definition_text(table, self.uris))
        catalogue = self._catalogue()
        text = self._schema_text(target, uri, catalogue)
        children, _ = self.children(uri)
        result = self._single_content(
            uri, mime.TEXT, text, digest(self._schema_text(target, uri, catalogue, counted=False))
        )
        result.contents += summaries(children, describe=description_of)
        return result

    def _single_content(self, uri: str, mime_type: str, text: str, version: str = "") -> t.ReadResourceResult:
        version = version or digest(text)
        content = t.ResourceContents(uri=uri, mime_type=mime_type, text=text, meta={VERSION: version})
        return t.ReadResourceResult(contents=[content], ttl_ms=self._ttl(uri, version), cache_scope=self.cache_scope)

    def _window(self, target: SqlTarget, uri: str) -> tuple[DatabaseTable, RowWindow]:
        query = parse_rows(uri)
        whole = reads_everything(self.uris)
        for age in (CATALOGUE_SECONDS, 0.0):  # the table may have changed since the catalogue was read
            table = self._find(target, uri, age)
            if not whole and not reads_rows(self.uris, table):
                break
            try:
                window = read_window(self.engine, table, query, self.bounds, self.uris)
            except LookupError:
                continue
            except UnknownColumn:
                if age:
                    continue
                raise
            # The table's token may also change with tables that the caller may not read.
            return table, window if whole else window._replace(version=digest(window.text))
        raise ResourceNotFound(uri)

    def _read_rows(self, target: SqlTarget, uri: str) -> t.ReadResourceResult:
        table, window = self._window(target, uri)
        meta: dict[str, object] = {VERSION: window.version}
        meta[WINDOW] = {"rows": window.row_count, "first": window.first, "last": window.last}
        following = rows_uri(self.uris, table, window.next)
        previous = rows_uri(self.uris, table, window.previous)
        meta |= {key: other for key, other in ((NEXT, following), (PREVIOUS, previous)) if other}
        (estimate,) = self._estimates([table])
        meta |= {} if estimate is None else {ROWS: estimate}
        contents = [t.ResourceContents(uri=uri, mime_type=mime.JSON_LINES, text=window.text, meta=meta)]
        if rest := rows_uri(self.uris, table, window.rest):
            of = "" if estimate is None or "?" in uri else f" of about {estimate:,}"
            how = "" if has_budget() else f" {self._row_hint(uri)}"  # with a budget, the tool gives this hint
            contents.append(continuation(rest, f"{many(window.row_count, 'row')}{of}.{how}"))
        elif not window.row_count or not ("?" in uri or has_budget()):
            matching = " match" if "?" in uri else ""
            counted = many(window.row_count, "row") if window.row_count else f"No rows of {clean(table.name)}{matching}"
            contents.append(remark(uri, f"{counted}. {self._row_hint(uri)}"))
        ttl = self._ttl(uri, window.version)
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl, cache_scope=self.cache_scope)

    def _row_hint(self, uri: str) -> str:
        """Return a hint about other rows."""
        return f"To choose rows: {uri.partition('?')[0]}{HOW_TO_ASK} ({FILTERS})."

    def _read_cell(self, target: SqlTarget, uri: str) -> t.ReadResourceResult:
        base, query = split_query(uri)
        table = self._find(target, uri, CATALOGUE_SECONDS)
        names = [column.name for column in table.columns]
        if target.column not in names:  # it may have been added since the catalogue was read
            table = self._find(target, uri)
            names = [column.name for column in table.columns]
        if table.key is None or target.column not in names:
            raise ResourceNotFound(uri)
        try:
            cell = self.engine.cell(table, target.key, target.column, MAX_CELL_BYTES, self.bounds.seconds)
        except (LookupError, BadKey):
            raise ResourceNotFound(uri) from None
        if cell is None:
            return self._single_content(uri, mime.TEXT, "NULL\n")
        version = digest(f"{cell.size}", hashlib.blake2b(cell.data, digest_size=16).hexdigest())
        name = target.column if cell.is_text else ""
        contents = read_content(uri, base, name, BytesContent(cell.data), parse_window(query), meta={VERSION: version})
        if cell.size > len(cell.data):
            contents.append(remark(uri, f"These are the first {len(cell.data):,} bytes of {cell.size:,}."))
        return t.ReadResourceResult(contents=contents, ttl_ms=self._ttl(uri, version), cache_scope=self.cache_scope)

    def _read_row(self, target: SqlTarget, uri: str) -> t.ReadResourceResult:
        table = self._find(target, uri, CATALOGUE_SECONDS)
        row = self.uris.of_row(target.schema, target.table, target.key)
        if table.key is None or not reads_all_below(f"{row}/"):
            raise ResourceNotFound(uri)
        try:
            bounds = msgspec.structs.replace(self.bounds, cell=max(ROW_CELL_LENGTH, self.bounds.cell))
            row_query = RowQuery(Span(where="at", place=target.key, limit=1), True)
            window = read_window(self.engine, table, row_query, bounds, self.uris)
        except (LookupError, InvalidArgument):
            raise ResourceNotFound(uri) from None
        if not window.row_count:
            raise ResourceNotFound(uri)
        return self._single_content(uri, mime.JSON, window.text)

    def _ttl(self, uri: str, version: str) -> int:
        """Return the `ttlMs` of a version by its age.

        This is the time since the last write or, if that is longer, since the version was first seen.
        """
        if not reads_everything(self.uris):  # the last write may be one that the caller may not see
            return 0
        now = time.time()
        first_seen = self._first_seen.get(uri)
        if first_seen is None or first_seen[0] != version:
            first_seen = self._first_seen.put(uri, (version, now))
        modified = self.engine.modified()
        return ttl_ms(first_seen[1] if modified is None else min(modified, first_seen[1]), now)

    # Completion and search

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Suggest schemas, tables and columns that start with or contain the value, and keys that start with it."""
        return complete_variable(self.engine, self._catalogue, self.uris, self.bounds, argument, value, context)

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return a page of definitions and windows of rows: of each table, at most the first 100,000 rows."""
        return table_documents(self.engine, self._catalogue, self.uris, self.bounds, after, limit)

    def shown_documents(self) -> Callable[[str], bool] | None:
        """Return a filter for the definitions and rows that the caller may read; None if they may read everything."""
        if reads_everything(self.uris):
            return None
        tables = self._catalogue(CATALOGUE_SECONDS).tables
        definitions = {self.uris.of_table(*name) for name in tables}
        rows = {self.uris.of_rows(*name) for name, table in tables.items() if reads_rows(self.uris, table)}
        readable = definitions | rows
        return lambda uri: uri.partition("?")[0] in readable

    def query(
        self,
        statement: str,
        parameters: Parameters = (),
        limit: int = 200,
        *,
        explain: bool = False,
        size: int = MAX_RESULT_BYTES,
    ) -> QueryAnswer:
        """Run one statement that only reads. A result that is too large is cut and marked.

        Args:
            statement: The SQL.
            parameters: The values of `?`, `:name` (SQLite), `$name` (DuckDB) or `$1` (PostgreSQL, which has no `?`).
            limit: Maximum number of rows.
            explain: Return the database's plan for the statement instead, like `EXPLAIN`.
            size: Approximate maximum number of bytes of all rows together.

        Raises:
            InvalidArgument: the statement does more than read, takes too long, or cannot be run; or the caller may
                not query this database, or may not read all of it.
            DatabaseUnreachable: the database is down.
        """
        if not self.may_query():
            raise QueryRefused("This database takes no statements: read its tables by URI.")
        return run_query(self.engine, self.name, statement, parameters, limit, self.bounds, explain=explain, size=size)

    def may_query(self) -> bool:
        """Return whether the current caller may run statements, by the policy. May block."""
        return may_query_all(self.uris, self.engine.catalogue(CATALOGUE_SECONDS)) if is_restricted() else True

    @property
    def dialect(self) -> str:
        """The SQL dialect of `query`, such as SQLite or PostgreSQL. Empty if statements are not run."""
        return self.engine.dialect if self.engine.can_query else ""

    def describe(self) -> str:
        """Return the number of tables, the kind of database, and the rights of the role."""
        try:
            tables = len(self.engine.catalogue(60.0).tables)
            return ", ".join([many(tables, "table"), *self.engine.describe()])
        except DatabaseUnreachable as error:
            return str(error)

    # Watching

    async def close(self) -> None:
        """End all watches and close all connections."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._watches.close()
        self.engine.close()


def _templates(top: str, label: str, schemas: bool) -> list[t.ResourceTemplate]:
    table = f"{top}/{{schema}}/{{table}}" if schemas else f"{top}/{{table}}"
    label_text = clean(label)
    rows = (
        "Rows as lines of JSON; each window states the URI of the next one. order=-date,name; columns=a,b; any other "
        f"name is a condition on that column: {FILTERS}."
    )
    return [
        t.ResourceTemplate(
            uri_template=table,
            name=f"{label_text} table",
            title=f"Definition of any table in {label_text}",
            description="Columns, types, keys and indexes of a table or view.",
            mime_type=mime.JSON,
        ),
        t.ResourceTemplate(
            uri_template=f"{table}/rows{{?limit,order,columns,after}}",
            name=f"{label_text} rows",
            title=f"Rows of any table in {label_text}",
            description=rows,
            mime_type=mime.JSON_LINES,
        ),
        t.ResourceTemplate(
            uri_template=f"{table}/rows/{{key}}",
            name=f"{label_text} row",
            title=f"One row of any table in {label_text}",
            description="The row with this key; the parts of a key with several columns are separated by commas.",
            mime_type=mime.JSON,
        ),
        t.ResourceTemplate(
            uri_template=f"{table}/rows/{{key}}/{{column}}",
            name=f"{label_text} cell",
            title=f"One value of any table in {label_text}",
            description="The whole of a long text, or bytes such as an image.",
        ),
    ]


def _write_page_key(*names: str) -> str:
    return "/".join(["k", *[quote_part(name) for name in names]])


def _read_page_key(key: str, parts: int) -> tuple[str, ...]:
    mark, *names = key.split("/") if len(key) <= 8_192 else [""]
    if mark != "k" or len(names) != parts or any(quote_part(unquote(name)) != name for name in names):
        raise bad_cursor()
    return tuple(unquote(name) for name in names)
