"""Tools that find: by words in everything, and by a statement in databases."""

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
from wharfinger.sources.mirror_tools.tool_text import as_json

__all__ = ["RESULTS", "ROWS", "SearchAnswer", "queried", "query", "search"]

RESULTS = 20
"""Hits of one search."""
ROWS = 100
"""Rows of one query."""


class SearchAnswer(Protocol):
    """What a source's `query(statement, limit=…)` returns; `truncated` says why there may be more rows, or is empty."""

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
        query: Words that must all occur, in any order and case; "several words" in quotes are one.
        source: Only in the source of this name.
        type: Only this MIME type, or family such as `image`.
        path: Only paths that begin so, or fit a pattern such as `*.md`.
        links: Also send a `resource_link` for each result.
    """
    try:
        hits = await ctx.search(query, RESULTS, source=source, type=type, path=path)
    except InvalidParams as error:
        raise ToolError(str(error)) from None
    found: dict[str, Any] = {"results": [_result(hit) for hit in hits]}
    if hits.truncated:
        found["note"] = hits.truncated
    return as_json(found, *(map(_link, hits) if links else ()))  # AutoGen, Semantic Kernel and LangChain fail on them


async def query(statement: str, ctx: Context[Any], source: str = "") -> t.CallToolResult:
    """Read from a database by one SQL statement; nothing can be changed. At most 100 rows.

    Args:
        statement: A SELECT; the schemas are among the resources.
        source: Name of the database, where there are several.
    """
    databases = queried(ctx.server.resources.every_source())
    chosen = [each for each in databases if not source or source in (source_name(each), each.uri)]
    if len(chosen) != 1:
        names = ", ".join(map(source_name, databases))
        raise ToolError(f"Say which database, as `source`: {names}.")
    asked: Any = chosen[0]
    try:
        answer: SearchAnswer = await ctx.server.pool.adapt(partial(asked.query, limit=ROWS))(
            owner_of(ctx.request), statement
        )
    except InvalidParams as error:
        raise ToolError(str(error)) from None
    found = {"columns": answer.columns, "rows": answer.rows}
    return as_json(msgspec.to_builtins(found | ({"cut": answer.truncated} if answer.truncated else {})))


def queried(sources: Any) -> list[Source]:
    """Those of the sources that take statements."""
    return [source for source in sources if callable(getattr(source, "query", None))]


def _result(hit: Hit) -> dict[str, str]:
    """A hit as ChatGPT's connectors expect it; `text` is the line that shows it."""
    shown = {"id": hit.uri, "title": hit.title, "url": hit.uri}
    return shown | ({"text": hit.snippet} if hit.snippet else {})


def _link(hit: Hit) -> t.ResourceLink:
    known: Any = {} if hit.resource is None else {"mime_type": hit.resource.mime_type, "size": hit.resource.size}
    name = hit.title.rstrip("/").rpartition("/")[2] or hit.title
    if hit.snippet:
        known["description"] = hit.snippet
    return t.ResourceLink(uri=hit.uri, name=name, title=hit.title, **known)
