"""Runs one SELECT of a caller over some tables, in a child process (see `query_child`).

Three things confine the statement. Each of the first two suffices to keep it from other files:

1. The parser's own tree of the statement (`json_serialize_sql`) must name only tables of the request, and no table
   function that reads something else. DuckDB serializes only statements that select.
2. DuckDB opens only the files of the tables (`allowed_paths`). Other access, extensions and settings are disabled.
3. The process inherits no environment variables, and no open files but those of the tables. Its memory, time and reply
   are bounded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from wharfinger.sources.child_main import ChildRefused
from wharfinger.sources.sql_database.database_catalogue import quoted
from wharfinger.sources.sql_database.row_text import PartialValue, clean, render
from wharfinger.sources.table_files.duckdb_engine import literal, pattern_of

__all__ = ["CUT_VALUE", "QueriedTable", "QueryReply", "QueryRequest", "main"]

MEMORY, THREADS = "256MB", 2
FETCHED_ROWS = 16
CUT_VALUE = 1
"""The code of MessagePack's extension type for a value that was cut (`PartialValue`)."""
_SETTINGS = (
    "temp_directory = ''",
    "enable_external_file_cache = false",
    "allow_community_extensions = false",
    "enable_external_access = false",
    "lock_configuration = true",
)
_DATABASE_SETTINGS = {"allow_community_extensions": "false", "enable_external_access": "false", "temp_directory": ""}
"""Settings that prevent views of a DuckDB file from reading other files."""
_TABLE_FUNCTIONS = frozenset(("range", "generate_series", "unnest", "repeat", "json_each", "json_tree"))
_REFUSED_FUNCTIONS = frozenset(("current_setting", "getenv", "getvariable", "set_config", "write_log"))


class QueriedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the request: its name in the statement, the SELECT that reads it, and the path of its file.

    If the table cannot be read, `refusal` says why. A statement is refused with this reason if it reads the table.
    """

    schema: str
    name: str
    select: str = ""
    path: str = ""
    refusal: str = ""


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, its tables, and the bounds of the result. With `explain`, the rows are the lines of its plan.

    The bounds are `limit` rows, about `cell` characters for each value, and about `size` bytes for all rows.
    """

    statement: str
    tables: list[QueriedTable]
    parameters: list[Any] | dict[str, Any]
    limit: int
    cell: int
    size: int
    explain: bool
    database: str = ""
    """The path of a DuckDB file with these tables. Without it, each table has a SELECT of its own."""


class QueryReply(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the columns, rows of JSON values, and whether there are more."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool


def main(data: bytes) -> bytes:
    """Run the statement of a `QueryRequest`, and return a `QueryReply`, both in MessagePack.

    Raises:
        ChildRefused: the statement is not allowed, or fails. The message says why.
    """
    import duckdb  # here, because `query_child` imports this module even if the extra is not installed

    request = msgspec.msgpack.decode(data, type=QueryRequest)
    configuration: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": MEMORY,
        "threads": str(THREADS),
    }
    try:
        connection: Any = duckdb.connect(":memory:", config=configuration)
        _check_statement(connection, request)
        if request.database:
            connection.close()
            connection = duckdb.connect(
                request.database, read_only=True, config={**configuration, **_DATABASE_SETTINGS}
            )
            connection.execute("SET lock_configuration = true")
        else:
            _open_tables(connection, request.tables)
        reply = _run(connection, request)
    except duckdb.Error as error:
        raise ChildRefused(_reason(str(error), request)) from None
    return msgspec.msgpack.encode(reply, enc_hook=_encode)


def _encode(value: object) -> object:
    return str(value)


# Checking


def _check_statement(connection: Any, request: QueryRequest) -> None:
    """Check the tree of a statement.

    Raises:
        ChildRefused: the statement does more than select from the tables of the request.
    """
    (text,) = connection.execute("SELECT json_serialize_sql(?)", [request.statement]).fetchone()
    try:
        tree = msgspec.json.decode(text)
    except RecursionError:
        raise ChildRefused("it is nested too deeply") from None
    if tree.get("error"):
        reason = str(tree.get("error_message", ""))
        if "Only SELECT" in reason:
            raise ChildRefused("only a SELECT is allowed")
        raise ChildRefused(_reason(reason, request))
    if len(tree["statements"]) != 1:
        raise ChildRefused("give exactly one statement")
    refusals = {(_folded(table.schema), _folded(table.name)): table.refusal for table in request.tables}
    for node, names in _scoped_nodes(tree):
        _check_node(node, refusals, names)


def _check_node(node: dict[str, Any], refusals: Mapping[tuple[str, str], str], common: frozenset[str]) -> None:
    """Check one object of the tree.

    `refusals` are those of the tables of the request, empty for a table that can be read. `common` are the names of the
    common table expressions (WITH) that the object can see.

    Raises:
        ChildRefused: the object names another table, or a function that is not allowed.
    """
    kind = node.get("type")
    if kind == "BASE_TABLE":
        schema, name = _folded(node.get("schema_name", "")), _folded(node.get("table_name", ""))
        refusal = None if node.get("catalog_name") else refusals.get((schema, name))
        if refusal != "" and (node.get("catalog_name") or schema or name not in common):
            parts = (node.get("catalog_name"), node.get("schema_name"), node.get("table_name"))
            raise ChildRefused(refusal or f"there is no table {'.'.join(str(part) for part in parts if part)}")
    elif kind == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", "")).lower()
        if name not in _TABLE_FUNCTIONS:
            raise ChildRefused(f"{name}() is not allowed: only the published tables can be read")
    elif kind == "SHOW_REF" and node.get("query") is None and str(node.get("table_name", "")).strip('"') in _LISTS:
        raise ChildRefused("only a SELECT is allowed: read the source's URI for a list of its tables")
    if node.get("class") == "FUNCTION" and str(node.get("function_name", "")).lower() in _REFUSED_FUNCTIONS:
        raise ChildRefused(f"{node['function_name']}() is not allowed")


_LISTS = frozenset(("tables", "databases", "schemas", "variables", "__show_tables_expanded"))
"""Names with which SHOW lists something other than the columns of a table."""


def _common_tables(node: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the common table expressions (WITH) of this node."""
    expressions: Any = node.get("cte_map")
    return cast("Sequence[dict[str, Any]]", expressions.get("map", [])) if isinstance(expressions, dict) else []


def _folded(name: object) -> str:
    """Return a name in lower case as DuckDB compares names: only ASCII, so the Kelvin sign is not `k`."""
    return str(name).encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _scoped_nodes(tree: object) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield all objects of a tree, each with the names of the common table expressions that it can see.

    Outside the scope of such an expression, DuckDB takes its name for the name of a table or view. The expression's own
    SELECT is outside, unless it is recursive. The tree may be deep, so this does not recurse.
    """
    stack: list[tuple[object, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, names = stack.pop()
        if isinstance(node, list):
            stack += [(item, names) for item in cast("list[object]", node)]
        elif isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            yield members, names
            for expression in _common_tables(members):  # an expression sees only those before it
                stack.append((expression["value"], names))
                names |= {_folded(expression["key"])}
            recursive = members.get("type") == "RECURSIVE_CTE_NODE"
            right = names | {_folded(members.get("cte_name", ""))} if recursive else names
            stack += [(value, right if key == "right" else names) for key, value in members.items() if key != "cte_map"]


# Running


def _open_tables(connection: Any, tables: Sequence[QueriedTable]) -> None:
    """Make a view for each table, and then forbid access to anything but the files of these tables."""
    tables = [table for table in tables if not table.refusal]
    for table in tables:
        schema = quoted(table.schema or "main")
        if table.schema:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute(f"CREATE VIEW {schema}.{quoted(table.name)} AS {table.select}")
    # DuckDB checks the pattern in the SELECT, and then the path that matches.
    paths = ", ".join(literal(path) for table in tables for path in (table.path, pattern_of(table.path)))
    for setting in (f"allowed_paths = [{paths}]", *_SETTINGS):
        connection.execute(f"SET {setting}")


def _run(connection: Any, request: QueryRequest) -> QueryReply:
    statement = f"EXPLAIN {request.statement}" if request.explain else request.statement
    parameters = request.parameters or None
    cursor = connection.execute(statement, parameters)
    names = [str(column[0]) for column in cursor.description]
    types = [str(column[1]) for column in cursor.description]
    if any("TIME ZONE" in kind for kind in types) and not request.explain:  # such Python values need pytz
        columns = ", ".join(
            f"c{index}::VARCHAR" if "TIME ZONE" in kind else f"c{index}" for index, kind in enumerate(types)
        )
        aliases = ", ".join(f"c{index}" for index in range(len(types)))
        wrapped = f"SELECT {columns} FROM ({_without_end(request.statement)}\n) AS q({aliases})"  # noqa: S608
        cursor = connection.execute(wrapped, parameters)
    found: Iterable[Sequence[Any]] = _fetch(cursor)
    if request.explain:
        names = ["plan"]
        found = [(line,) for row in found for line in str(row[-1]).splitlines()]
    rows: list[list[Any]] = []
    size = 0
    for row in found:
        cells = [_mark_partial(render(cell, request.cell)) for cell in row]
        size += len(msgspec.msgpack.encode(cells, enc_hook=_encode))
        if len(rows) == request.limit or (rows and size > request.size):
            return QueryReply(columns=[clean(name) for name in names], rows=rows, more=True)
        rows.append(cells)
    return QueryReply(columns=[clean(name) for name in names], rows=rows, more=False)


def _fetch(cursor: Any) -> Iterator[tuple[Any, ...]]:
    while batch := cursor.fetchmany(FETCHED_ROWS):
        yield from batch


def _without_end(statement: str) -> str:
    """Return a single statement without its semicolon and the comments after it."""
    import duckdb

    data = statement.encode()
    tokens: Any = duckdb.tokenize(statement)
    end = next((offset for offset, _ in tokens if data[offset : offset + 1] == b";"), len(data))
    return data[:end].decode()


def _mark_partial(cell: object) -> object:
    if isinstance(cell, PartialValue):
        return msgspec.msgpack.Ext(CUT_VALUE, msgspec.msgpack.encode(dict(cell)))
    return cell


def _reason(message: str, request: QueryRequest) -> str:
    """Shorten an error of DuckDB: without paths of files, and without suggested settings."""
    if "Out of Memory" in message or "bad allocation" in message:
        return f"it needs more than {MEMORY} of memory: aggregate or narrow it"
    if request.database:
        message = message.replace(request.database, os.path.basename(request.database))
        if any(words in message for words in _LOCKED):
            return "the database is open for writing in another process"
    for table in request.tables:
        for path in (pattern_of(table.path), table.path) if table.path else ():
            message = message.replace(path, table.name)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    kept_lines = [line for line in lines[:4] if not line.startswith(("Possible", "*", "LINE ", "^"))]
    words = " ".join(kept_lines).partition("Error: ")
    return (words[2] or words[0])[:500].rstrip(". ")


_LOCKED = ("Could not set lock on file", "used by another process")
"""Parts of DuckDB's errors on Unix and on Windows if another process has locked the file."""
