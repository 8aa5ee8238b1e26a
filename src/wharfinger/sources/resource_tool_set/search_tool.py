"""Tools that search: all resources by words, and databases by a SQL statement."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import msgspec

from wharfinger import types as t
from wharfinger.errors import InvalidParams, ToolError
from wharfinger.server.context import Context
from wharfinger.server.owners import owner_of
from wharfinger.server.search import source_name
from wharfinger.source import Hit, Source
from wharfinger.sources.resource_tool_set.tool_text import as_json

__all__ = ["MAX_RESULTS", "MAX_ROWS", "QueryResult", "query", "search", "sources_with_query"]

MAX_RESULTS = 20
"""Hits in the result of a search."""
MAX_ROWS = 100
"""Rows in the result of a query."""


class QueryResult(Protocol):
    """What a source's `query(statement, limit=…)` returns. `truncated` says why rows are missing; empty if none are."""

    @property
    def columns(self) -> list[str]: ...
    @property
    def rows(self) -> list[list[Any]]: ...
    @property
    def truncated(self) -> str: ...


async def search(
    query: str, ctx: Context[Any], source: str = "", type: str = "", path: str = "", links: bool = False
) -> t.CallToolResult:
    """Search the names and the text of everything this server publishes; use `fetch` with an id to read a result.

    Args:
        query: Words that must all occur, in any order and case; "several words" in quotes are a phrase.
        source: Only search the source with this name.
        type: Only this MIME type, or family such as `image`.
        path: Only paths that start with this, or match a pattern such as `*.md`.
        links: Also return a `resource_link` for each result.
    """
    try:
        hits = await ctx.search(query, MAX_RESULTS, source=source, type=type, path=path)
    except InvalidParams as error:
        raise ToolError(str(error)) from None
    found: dict[str, Any] = {"results": [_result(hit) for hit in hits]}
    if hits.truncated:
        found["note"] = hits.truncated
    return as_json(found, *(map(_link, hits) if links else ()))  # AutoGen, Semantic Kernel and LangChain fail on them


async def query(statement: str, ctx: Context[Any], source: str = "") -> t.CallToolResult:
    """Query a database with one SQL statement, which can only read. Returns at most 100 rows.

    Args:
        statement: A SELECT; the resources include the schemas.
        source: Name of the database, if there are several.
    """
    databases = sources_with_query(ctx.server.resources.every_source())
    chosen = [each for each in databases if not source or source in (source_name(each), each.uri)]
    if len(chosen) != 1:
        names = ", ".join(map(source_name, databases))
        raise ToolError(f"Choose a database with `source`: {names}.")
    database: Any = chosen[0]
    try:
        answer: QueryResult = await ctx.server.pool.adapt(partial(database.query, limit=MAX_ROWS))(
            owner_of(ctx.request), statement
        )
    except InvalidParams as error:
        raise ToolError(str(error)) from None
    found = {"columns": answer.columns, "rows": answer.rows}
    return as_json(msgspec.to_builtins(found | ({"cut": answer.truncated} if answer.truncated else {})))


def sources_with_query(sources: Any) -> list[Source]:
    """The sources that take statements: those with a method `query`."""
    return [source for source in sources if callable(getattr(source, "query", None))]


def _result(hit: Hit) -> dict[str, str]:
    """A hit in the shape that ChatGPT's connectors expect; `text` is the line that matched."""
    shown = {"id": hit.uri, "title": hit.title, "url": hit.uri}
    return shown | ({"text": hit.snippet} if hit.snippet else {})


def _link(hit: Hit) -> t.ResourceLink:
    known: Any = {} if hit.resource is None else {"mime_type": hit.resource.mime_type, "size": hit.resource.size}
    name = hit.title.rstrip("/").rpartition("/")[2] or hit.title
    if hit.snippet:
        known["description"] = hit.snippet
    return t.ResourceLink(uri=hit.uri, name=name, title=hit.title, **known)
