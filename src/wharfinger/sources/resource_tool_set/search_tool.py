"""The tools `search`, for words in all resources, and `query`, for SQL statements in databases."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import msgspec

from wharfinger import types as t
from wharfinger.errors import InternalError, ToolError
from wharfinger.policy.current import is_restricted, may, reads_source
from wharfinger.server.context import Context
from wharfinger.server.owners import owner_of
from wharfinger.server.search import source_name
from wharfinger.source import Hit, Hits, Source
from wharfinger.sources.resource_tool_set.answer_budget import (
    CELL_CHARACTERS,
    NOTES_CHARACTERS,
    Budget,
    count_fitting,
    json_length,
    short_cell,
)
from wharfinger.sources.resource_tool_set.tool_text import as_json, errors_for_models, short
from wharfinger.sources.windows.window_budget import window_budget

__all__ = [
    "MAX_RESULTS",
    "MAX_ROWS",
    "MAX_SKIP",
    "QueryResult",
    "query",
    "search",
    "sources_with_query",
    "with_databases",
]

MAX_RESULTS = 20
"""Maximum number of hits in the result of a search."""
MAX_ROWS = 100
"""Maximum number of rows in the result of a query."""
MAX_NAMED = 10
"""Maximum number of databases that the description of `query` names."""
MAX_COLUMNS = 200
MAX_SKIP = 9_900
"""Maximum number of rows that a query skips; a source returns at most 10,000."""
RESULTS_CHARACTERS = Budget().characters - 2 * NOTES_CHARACTERS
"""Maximum number of characters of all hits or rows in one result."""


class QueryResult(Protocol):
    """The result of a source's `query(statement, limit=…)`. `truncated` says why rows are missing, if any are.

    It may also have `database` and `dialect`, the names of the database and of its SQL, and `shortened`, which says how
    to get the rest of values that were cut.
    """

    @property
    def columns(self) -> list[str]: ...
    @property
    def rows(self) -> list[list[Any]]: ...
    @property
    def truncated(self) -> str: ...


async def search(
    query: str, ctx: Context[Any], source: str = "", type: str = "", path: str = "", links: bool = False
) -> t.CallToolResult:
    """Search names and texts of everything this server publishes; use `fetch` with an id to read a result.

    Args:
        query: A question, words, or identifiers in any spelling; "several words" in quotes are an exact phrase.
        source: Only search the source with this name.
        type: Only this MIME type, or family such as `image`.
        path: Only paths that start with this, or match a pattern such as `*.md`.
        links: Also return a `resource_link` for each result.
    """
    with errors_for_models():
        hits = await ctx.search(query, MAX_RESULTS, source=source, type=type, path=path)
    results = [_result(hit) for hit in hits]
    notes = [note for note in (hits.remark, hits.truncated) if note]
    if (number := count_fitting(results, RESULTS_CHARACTERS // (2 if links else 1))) < len(results):
        notes.append(
            f"{len(results) - number} more results are too long for this answer: narrow the search by path or source."
        )
        del results[number:], hits[number:]
    if not results:
        notes.append(_nothing_found(ctx, query, source, type, path, hits))
    structured: dict[str, Any] = {"results": results}
    if notes:
        structured["note"] = " ".join(notes)
    # Links only on request: AutoGen, Semantic Kernel and LangChain fail on them.
    return as_json(structured, *(map(_link, hits) if links else ()))


async def query(statement: str, ctx: Context[Any], source: str = "", skip: int = 0) -> t.CallToolResult:
    """Query a database with one SQL statement, which can only read. Returns at most 100 rows.

    Args:
        statement: A SELECT, or EXPLAIN and a SELECT. Read the database's own URI for its schema.
        source: Name of the database, if there are several.
        skip: Rows to skip, as the end of an answer says.
    """
    if not 0 <= skip <= MAX_SKIP:
        raise ToolError(f"skip is {skip:,}: give a number from 0 to {MAX_SKIP:,}, or narrow the statement.")
    databases = await _databases(ctx)
    if not databases:
        raise ToolError("There is no database that you may query, or none can be reached now.")
    matching = [each for each in databases if not source or source in (source_name(each), each.uri)]
    if len(matching) != 1:
        names = ", ".join(map(source_name, databases))
        raise ToolError(f"Choose a database with `source`: {names}.")
    database: Any = matching[0]
    run = partial(ctx.server.resources.calls.call, database, partial(database.query, limit=skip + MAX_ROWS))
    with errors_for_models(), window_budget(RESULTS_CHARACTERS):  # lets the source shorten long values in the database
        answer: QueryResult = await run(owner_of(ctx.request), statement)
    if len(answer.columns) > MAX_COLUMNS:
        raise ToolError(f"The statement returns {len(answer.columns):,} columns: name at most {MAX_COLUMNS} of them.")
    rows = answer.rows[skip:]
    if json_length(rows) > RESULTS_CHARACTERS:
        cell_limit = min(CELL_CHARACTERS, RESULTS_CHARACTERS // len(answer.columns) // 2)
        rows = [[short_cell(cell, cell_limit) for cell in row] for row in rows]
    number = count_fitting(rows, RESULTS_CHARACTERS)
    structured: dict[str, Any] = {"columns": answer.columns, "rows": rows[:number]}
    if database_name := _optional(answer, "database"):
        dialect = _optional(answer, "dialect")
        structured["database"] = f"{database_name} ({dialect})" if dialect else database_name
    if shortened := _optional(answer, "shortened"):
        structured["shortened"] = shortened
    if number < len(rows) or answer.truncated:
        structured["cut"] = _how_to_continue(skip, number)
    elif not rows:
        structured["note"] = (
            f"No rows: the statement returns at most {skip:,} rows." if skip else "No rows match the statement."
        )
    return as_json(msgspec.to_builtins(structured))


def _optional(source: object, name: str) -> str:
    """Return an attribute that is an optional text, or an empty string if it is missing."""
    value = getattr(source, name, "")
    return value if isinstance(value, str) else ""


def _how_to_continue(skip: int, number: int) -> str:
    """Return a sentence that says how to get the rows after an answer of `number` rows that skipped `skip` rows."""
    if not number:
        return f"The rows before {skip + 1:,} are too large to skip: narrow the statement, or use its own OFFSET."
    sentence = (
        f"These are rows {skip + 1:,} to {skip + number:,}, and there are more: aggregate, or narrow the statement."
    )
    if skip + number <= MAX_SKIP:
        sentence += f" To continue, call query with the same statement and skip={skip + number}."
    return sentence


async def _databases(ctx: Context[Any]) -> list[Source]:
    """Return the databases that the caller may query."""
    databases = sources_with_query(ctx.server.resources.every_source())
    if not is_restricted():
        return databases
    queryable: list[Source] = []
    for database in filter(_may_be_queried, databases):
        may_query: Any = getattr(database, "may_query", None)
        call = ctx.server.resources.calls.call
        with suppress(InternalError):  # it cannot be reached, so it is not known whether all of it may be read
            if may_query is None or await call(database, may_query, owner_of(ctx.request)):
                queryable.append(database)
    return queryable


def _may_be_queried(database: Source) -> bool:
    """Return whether the rules may let the caller query a database. The database itself decides too."""
    return may("query", database.uri) and reads_source(database.uri)


def sources_with_query(sources: Any) -> list[Source]:
    """Return the sources that have a method `query`."""
    return [source for source in sources if callable(getattr(source, "query", None))]


def with_databases(description: str, databases: Sequence[Source]) -> str:
    """Return the description of `query` with the names of the databases, and their dialects if they state one.

    It has only databases that the rules may let the current caller query.
    """
    databases = [database for database in databases if _may_be_queried(database)]
    if not databases:
        return description
    dialects = [_optional(each, "dialect") for each in databases]
    names = [
        f"{source_name(each)} ({dialect})" if dialect else source_name(each)
        for each, dialect in zip(databases, dialects, strict=True)
    ]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{description}\n\nDatabases: {', '.join(names[:MAX_NAMED])}{more}."


def _nothing_found(ctx: Context[Any], query: str, source: str, type: str, path: str, hits: Hits) -> str:
    """Return a sentence on the scope of a search without hits, and on other attempts."""
    names = (
        [source]
        if source
        else [source_name(each) for each in ctx.server.resources.every_source() if reads_source(each.uri)]
    )
    names = [name for name in names if name not in hits.truncated]
    filters = "".join([f", of type {type}" if type else "", f", in paths like {path}" if path else ""])
    places = f"the names and texts of {', '.join(names[:10]) or 'the registered resources'}{filters}"
    attempts = ["fewer words, part of a word, or another spelling"] + ["no filter"] * bool(source or type or path)
    sentence = f"Looked through {places}" if hits.remark else f"Nothing has all of {query[:200]!r} in {places}"
    return f"{sentence}. Try {', or '.join(attempts)}."


def _result(hit: Hit) -> dict[str, str]:
    """Return a hit in the shape that ChatGPT's connectors expect; `text` is the line that matched."""
    members = {"id": hit.uri, "title": short(hit.title), "url": hit.uri}
    return members | ({"text": hit.snippet} if hit.snippet else {})


def _link(hit: Hit) -> t.ResourceLink:
    members: Any = {}
    if hit.resource is not None:
        members = {"mime_type": short(hit.resource.mime_type), "size": hit.resource.size}
    name = short(hit.title.rstrip("/").rpartition("/")[2] or hit.title)
    if hit.snippet:
        members["description"] = hit.snippet
    return t.ResourceLink(uri=hit.uri, name=name, title=short(hit.title), **members)
