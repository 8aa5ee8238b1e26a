"""Runs a caller's SELECT over published tables: finds the tables that it names, and calls a child process.

A statement names a table by its path without escapes, `FROM "2026/tides.csv"`, or by a shorter form that fits only one
table: without the folder, and without the suffix, `FROM tides`. `FROM tides.csv`, which is a table `csv` in a schema
`tides` for SQL, works too. This module only looks up the words of a statement. It does not parse them, because DuckDB's
parser takes exponential time for some statements. The child parses, and refuses a statement that names another table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from difflib import get_close_matches
from typing import NamedTuple

from wharfinger.sources.child_process import ChildProcesses
from wharfinger.sources.sql_database.database_engine import Parameters, QueryBounds, QueryRefused, Rows
from wharfinger.sources.sql_database.row_text import clean
from wharfinger.sources.table_files.query_child import run_in_child
from wharfinger.sources.table_files.query_process import QueriedTable, QueryRequest

__all__ = ["MAX_QUERIED_TABLES", "NamedTable", "OpenTable", "TableStatements", "named_tables"]

MAX_QUERIED_TABLES = 16
"""Maximum number of tables that one statement may name."""
MAX_HINTED_TABLES = 20
"""Maximum number of tables that an error names."""

_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_NAMES = re.compile(rf"({_NAME}(?:\s*\.\s*{_NAME})?)|'((?:[^']|'')+)'")
_PARTS = re.compile(r'"((?:[^"]|"")+)"|([^\W\d][\w$]*)')
_WORKBOOK = re.compile(r"\.xls[xm]/", re.IGNORECASE)


class NamedTable(NamedTuple):
    """A name in a statement, as schema and name, and the path of its table.

    If the name fits several tables, `path` is empty, and `refusal` tells the caller to write one of their paths.
    """

    schema: str
    name: str
    path: str
    refusal: str = ""


def named_tables(statement: str, paths: Iterable[str]) -> list[NamedTable]:
    """Return the tables that a statement may name, from the decoded paths of all that the caller may read.

    A name that fits several tables is refused only if the statement uses it as the name of a table, and not, for
    example, as the name of a column. Only the child's parser can distinguish these.

    Raises:
        QueryRefused: the statement names more than `MAX_QUERIED_TABLES` tables.
    """
    names = _names(paths)
    tables: dict[tuple[str, str], NamedTable] = {}
    for schema, name in _written_names(statement):
        matches = names.get((f"{schema}.{name}" if schema else name).lower())
        if not matches:
            continue
        table = NamedTable(schema, name, matches[0])
        if len(matches) > 1:
            examples = ", ".join(f'"{path}"' for path in matches[:5])
            refusal = f"{name} may be any of {examples}: write one of these, in double quotes"
            table = NamedTable(schema, name, "", refusal)
        tables[schema.lower(), name.lower()] = table
    count = len({table.path for table in tables.values() if table.path})
    if count > MAX_QUERIED_TABLES:
        raise QueryRefused(f"The statement names {count} tables, and at most {MAX_QUERIED_TABLES} are possible.")
    return list(tables.values())


def _names(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the tables by each of their names in lower case. A longer form takes precedence over a shorter one."""
    levels: list[dict[str, list[str]]] = [{}, {}, {}, {}, {}]
    for path in paths:
        base = path.rpartition("/")[2]
        forms = path, _without_suffix(path), _WORKBOOK.sub("/", path), base, _without_suffix(base)
        for level, form in zip(levels, forms, strict=True):
            level.setdefault(form.lower(), []).append(path)
    names: dict[str, list[str]] = {}
    for level in levels:
        for name, matches in level.items():
            names.setdefault(name, matches)
    return names


def _without_suffix(path: str) -> str:
    folder, slash, base = path.rpartition("/")
    return folder + slash + (base.rpartition(".")[0] or base)


def _written_names(statement: str) -> list[tuple[str, str]]:
    """Return all words and pairs of words that could name a table, as schema and name."""
    names: dict[tuple[str, str], None] = {}
    for match in _NAMES.finditer(statement):
        if match[2]:
            names["", match[2].replace("''", "'")] = None
            continue
        parts = [(quoted.replace('""', '"') or plain) for quoted, plain in _PARTS.findall(match[1])]
        if len(parts) == 2:
            names[parts[0], parts[1]] = None
        for part in parts:
            names["", part] = None
    return list(names)


class OpenTable(NamedTuple):
    """A table that is open for a statement: its file and the SELECT of its rows.

    If it is not open, `refusal` says why.
    """

    descriptor: int = -1
    path: str = ""
    select: str = ""
    refusal: str = ""


class TableStatements:
    """Runs statements on the tables of a source.

    Args:
        paths: Takes a statement, and returns the decoded paths of the tables that the caller may read and the statement
            may name.
        open_tables: Opens tables by these paths. Raises `InternalError` if one of their files changes meanwhile. If a
            table cannot be opened, only a statement that reads it fails.
    """

    dialect = "DuckDB"

    def __init__(
        self,
        paths: Callable[[str], Sequence[str]],
        open_tables: Callable[[Sequence[str]], AbstractContextManager[Sequence[OpenTable]]],
    ) -> None:
        self._paths = paths
        self._open_tables = open_tables
        self._children = ChildProcesses()

    def query(
        self, statement: str, parameters: Parameters, limit: int, bounds: QueryBounds, *, explain: bool = False
    ) -> tuple[list[str], Rows]:
        """Run a statement in a child, and return the names of its columns and its rows.

        Raises:
            QueryRefused: the statement is not allowed, fails, or reaches a bound. The message says why.
            InternalError: a file changed while it was read.
        """
        paths = self._paths(statement)
        names = named_tables(statement, paths)
        usable = [name for name in names if not name.refusal]
        with self._open_tables([name.path for name in usable]) as open_tables:
            tables = [*zip(usable, open_tables, strict=True)]
            tables += [(name, OpenTable(refusal=name.refusal)) for name in names if name.refusal]
            request = QueryRequest(
                statement=statement,
                tables=[
                    QueriedTable(
                        schema=name.schema, name=name.name, select=table.select, path=table.path, refusal=table.refusal
                    )
                    for name, table in tables
                ],
                parameters=dict(parameters) if isinstance(parameters, Mapping) else list(parameters),
                limit=limit,
                cell=bounds.cell,
                size=bounds.size,
                explain=explain,
            )
            descriptors = [table.descriptor for table in open_tables if not table.refusal]
            try:
                return run_in_child(self._children, request, bounds, descriptors)
            except QueryRefused as error:
                if "no table" not in str(error):
                    raise
                raise QueryRefused(f"{error} {_tables_hint(str(error), paths)}") from None

    def close(self) -> None:
        """Stop all running statements."""
        self._children.close()


def _tables_hint(message: str, paths: Sequence[str]) -> str:
    if not paths:
        return "There are no tables."
    by_lower = {path.lower(): path for path in paths}
    matches = get_close_matches(message.rstrip(".").rpartition(" ")[2].lower(), by_lower, 1)
    listed = ", ".join(f'"{path}"' for path in paths[:MAX_HINTED_TABLES])
    more = f" and {len(paths) - MAX_HINTED_TABLES:,} more" if len(paths) > MAX_HINTED_TABLES else ""
    suggestion = f'Did you mean "{by_lower[matches[0]]}"? ' if matches else ""
    return clean(f"{suggestion}Tables: {listed}{more}."[:1_500])
