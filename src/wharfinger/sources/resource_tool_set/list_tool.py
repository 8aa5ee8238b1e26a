"""Tools that list: all resources, or the entries of one directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidParams, ResourceNotFound, ToolError
from wharfinger.server.context import Context
from wharfinger.server.owners import owner_of
from wharfinger.source import Source
from wharfinger.sources.resource_tool_set.tool_text import as_json, brief, clipped, read

__all__ = ["MAX_ENTRIES", "list_resources", "read_directory"]

MAX_ENTRIES = 100
"""Entries in one result."""


async def list_resources(ctx: Context[Any], cursor: str = "") -> t.CallToolResult:
    """List the resources of this server, 100 at a time: files, folders and whatever else it publishes.

    `search` is quicker for finding something by name or content; `read_directory` lists one folder.

    Args:
        cursor: `nextCursor` of the previous result; leave it out to start.
    """
    server_cursor, last = _open_cursor(cursor)
    try:
        page = await ctx.list_resources(server_cursor)
    except InvalidParams as error:
        raise ToolError(str(error)) from None
    shown = page.resources
    begin = next((at + 1 for at, resource in enumerate(shown) if resource.uri == last), 0)
    part = shown[begin : begin + MAX_ENTRIES]
    following: str | None = None
    if begin + MAX_ENTRIES < len(shown):
        following = _cursor(server_cursor, part[-1].uri)
    elif page.next_cursor is not UNSET:
        following = _cursor(page.next_cursor, None)
    return as_json({"resources": [brief(resource) for resource in part], **_next(following)})


async def read_directory(ctx: Context[Any], uri: str = "", cursor: str = "") -> t.CallToolResult:
    """List the direct entries of a folder, 100 at a time.

    Args:
        uri: URI of the folder; leave it out for the top.
        cursor: `nextCursor` of the previous result; leave it out to start.
    """
    if not uri:
        sources = ctx.server.resources.every_source()
        tops = [source.uri for source in sources if source.uri and type(source).children is not Source.children]
        return as_json({"entries": [{"uri": top, "mimeType": DIRECTORY} for top in tops]})
    contents = await read(ctx, uri)  # also checks that this caller may read it
    source = ctx.server.resources.source_of(uri)
    children: Callable[..., Any] | None = getattr(source, "children", None)
    if children is None:
        found = [{"uri": each.uri, "mimeType": each.mime_type or ""} for each in contents if each.uri != uri]
        return as_json({"entries": found})
    try:
        entries, key = await ctx.server.pool.adapt(children)(owner_of(ctx.request), uri, cursor or None, MAX_ENTRIES)
    except (ResourceNotFound, InvalidParams):
        raise ToolError(f"{clipped(uri)} is not a folder, or the cursor does not belong to it.") from None
    return as_json({"entries": [brief(resource) for resource in entries], **_next(key)})


def _next(cursor: str | None) -> dict[str, str]:
    return {} if cursor is None else {"nextCursor": cursor}


def _cursor(of_server: str | None, last: str | None) -> str:
    return msgspec.json.encode((of_server, last)).decode()


def _open_cursor(cursor: str) -> tuple[str | None, str | None]:
    """Split a cursor into the server's own cursor and the URI of the last resource shown of its page."""
    if not cursor:
        return None, None
    try:
        return msgspec.json.decode(cursor, type=tuple[str | None, str | None])
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise ToolError("This cursor does not come from list_resources: leave it out to start.") from None
