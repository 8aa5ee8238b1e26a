"""Runs one SELECT of a caller over some tables, in a child process (`query_tables`, `duckdb_database`).

Three things confine the statement to its tables, each sufficient by itself:

1. The parser's own tree of the statement (`json_serialize_sql`) must name only tables of the request, and no table
   function that reads something else. DuckDB serializes only statements that select.
2. DuckDB opens only the files of the tables (`allowed_paths`). Other access, extensions and settings are disabled.
3. The process has no environment, no inherited files but those of the tables, and bounds on memory, time and files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import duckdb
import msgspec

from wharfinger.sources.child_main import ChildRefused
from wharfinger.sources.sql_database.row_text import PartialValue, clean, render

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
_OUTSIDE = {"allow_community_extensions": "false", "enable_external_access": "false", "temp_directory": ""}
"""Prevents that views of a DuckDB file read other files."""
_TABLE_FUNCTIONS = frozenset(("range", "generate_series", "unnest", "repeat", "json_each", "json_tree"))
_FUNCTIONS_REFUSED = frozenset(("current_setting", "getenv", "getvariable", "set_config", "write_log"))


class QueriedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the request: its name in the statement, the SELECT that reads it, and the path in that SELECT."""

    schema: str
    name: str
    select: str
    path: str


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, its tables, and the bounds of the result. With `explain`, the result is the plan."""

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
            connection = duckdb.connect(request.database, read_only=True, config={**configuration, **_OUTSIDE})
            connection.execute("SET lock_configuration = true")
        else:
            _open_tables(connection, request.tables)
        reply = _run(connection, request)
    except duckdb.Error as error:
        raise ChildRefused(_reason(str(error), request.tables)) from None
    return msgspec.msgpack.encode(reply, enc_hook=_encode)


def _encode(value: object) -> object:
    return str(value)


# Checking


def _check_statement(connection: Any, request: QueryRequest) -> None:
    """Check the tree of a statement.

    Raises:
        ChildRefused: it does more than select from the tables of the request.
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
        raise ChildRefused(_reason(reason, request.tables))
    if len(tree["statements"]) != 1:
        raise ChildRefused("give exactly one statement")
    nodes = list(_nodes(tree))
    known = {(table.schema.lower(), table.name.lower()) for table in request.tables}
    known |= {("", str(one["key"]).lower()) for node in nodes for one in _defined(node)}
    for node in nodes:
        _check_node(node, known)


def _check_node(node: dict[str, Any], known: set[tuple[str, str]]) -> None:
    kind = node.get("type")
    if kind == "BASE_TABLE":
        place = str(node.get("schema_name", "")).lower(), str(node.get("table_name", "")).lower()
        if node.get("catalog_name") or place not in known:
            parts = (node.get("catalog_name"), node.get("schema_name"), node.get("table_name"))
            raise ChildRefused(f"there is no table {'.'.join(str(part) for part in parts if part)}")
    elif kind == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", "")).lower()
        if name not in _TABLE_FUNCTIONS:
            raise ChildRefused(f"{name}() is not allowed: only the published tables can be read")
    elif kind == "SHOW_REF" and node.get("query") is None and str(node.get("table_name", "")).strip('"') in _LISTS:
        raise ChildRefused("only a SELECT is allowed: read the source's URI for a list of its tables")
    if node.get("class") == "FUNCTION" and str(node.get("function_name", "")).lower() in _FUNCTIONS_REFUSED:
        raise ChildRefused(f"{node['function_name']}() is not allowed")


_LISTS = frozenset(("tables", "databases", "schemas", "variables", "__show_tables_expanded"))


def _defined(node: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the tables that a WITH of this node defines."""
    found: Any = node.get("cte_map")
    return cast("Sequence[dict[str, Any]]", found.get("map", [])) if isinstance(found, dict) else []


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Yield all objects of a tree. It may be deep, so this does not recurse."""
    left = [tree]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left += one.values()
        elif isinstance(one, list):
            left += one


# Running


def _open_tables(connection: Any, tables: Sequence[QueriedTable]) -> None:
    """Make a view for each table, and then forbid everything except their files."""
    for table in tables:
        schema = _quoted(table.schema or "main")
        if table.schema:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute(f"CREATE VIEW {schema}.{_quoted(table.name)} AS {table.select}")
    paths = ", ".join("'" + table.path.replace("'", "''") + "'" for table in tables)
    for setting in (f"allowed_paths = [{paths}]", *_SETTINGS):
        connection.execute(f"SET {setting}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _run(connection: Any, request: QueryRequest) -> QueryReply:
    statement = f"EXPLAIN {request.statement}" if request.explain else request.statement
    parameters = request.parameters or None
    cursor = connection.execute(statement, parameters)
    names = [str(one[0]) for one in cursor.description]
    types = [str(one[1]) for one in cursor.description]
    if any("TIME ZONE" in kind for kind in types) and not request.explain:  # Python values of it need pytz
        columns = ", ".join(f"c{at}::VARCHAR" if "TIME ZONE" in kind else f"c{at}" for at, kind in enumerate(types))
        aliases = ", ".join(f"c{at}" for at in range(len(types)))
        wrapped = f"SELECT {columns} FROM ({request.statement.rstrip().rstrip(';')}\n) AS q({aliases})"  # noqa: S608
        cursor = connection.execute(wrapped, parameters)
    rows: list[list[Any]] = []
    size = 0
    while batch := cursor.fetchmany(FETCHED_ROWS):
        for row in batch:
            cells = [_marked(render(cell, request.cell)) for cell in row]
            size += len(msgspec.msgpack.encode(cells, enc_hook=_encode))
            if len(rows) == request.limit or (rows and size > request.size):
                return QueryReply(columns=[clean(name) for name in names], rows=rows, more=True)
            rows.append(cells)
    return QueryReply(columns=[clean(name) for name in names], rows=rows, more=False)


def _marked(cell: object) -> object:
    if isinstance(cell, PartialValue):
        return msgspec.msgpack.Ext(CUT_VALUE, msgspec.msgpack.encode(dict(cell)))
    return cell


def _reason(message: str, tables: Sequence[QueriedTable]) -> str:
    """Shorten an error of DuckDB: without paths of files, and without suggested settings."""
    if "Out of Memory" in message or "bad allocation" in message:
        return f"it needs more than {MEMORY} of memory: aggregate or narrow it"
    for table in tables:
        message = message.replace(table.path, table.name) if table.path else message
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    kept = [line for line in lines[:4] if not line.startswith(("Possible", "*", "LINE ", "^"))]
    words = " ".join(kept).partition("Error: ")
    return (words[2] or words[0])[:500].rstrip(". ")
