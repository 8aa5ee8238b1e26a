"""The server's resources once more as tools, for hosts that know only tools; reads nothing but through the context.

`search` and `fetch` have the shapes that ChatGPT's connectors expect: one JSON text block, and the same as structured
content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams, ResourceNotFound, ToolError
from wharfinger.server.context import Context
from wharfinger.server.functions import owner_of
from wharfinger.server.mime import DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from wharfinger.server.app import Server

__all__ = ["Mirrors", "mirrors"]

PAGE = 100
"""Entries of one answer of list_resources and read_directory."""
RESULTS = 20
"""Hits of one search."""
WINDOW = 200_000
"""Characters of one answer of read_resource."""
FETCHED = 1_000_000
"""Characters of one answer of fetch."""
SUMMARY = "wharfinger/summary"


def mirrors() -> Mirrors:
    """The tools `list_resources`, `read_resource`, `read_directory`, `search` and `fetch`: `server.include(mirrors())`.

    A tool of the same name that the server's author registers, before or after, wins.
    """
    return Mirrors()


class SearchResult(msgspec.Struct, kw_only=True):
    """One result of `search`."""

    id: str
    title: str
    url: str


class SearchResults(msgspec.Struct, kw_only=True):
    """What `search` returns."""

    results: list[SearchResult]


class Document(msgspec.Struct, kw_only=True):
    """What `fetch` returns."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, str]


class Mirrors:
    """What `mirrors()` makes: the tools that show a server's own resources."""

    def include_into(self, server: Server) -> None:
        """Register the tools; `server.include(mirrors())` calls it."""
        for function, title in _TOOLS:
            server.add_tool(
                function,
                title=title,
                annotations=t.ToolAnnotations(
                    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
                ),
                fallback=True,
            )


async def list_resources(ctx: Context[Any], cursor: str = "") -> t.CallToolResult:
    """List the resources of this server, 100 at a time: files, folders and whatever else it publishes.

    To find something by name or content, `search` is quicker; to look into one folder, use `read_directory`.

    Args:
        cursor: `nextCursor` of the answer before; leave it out to begin.
    """
    server_cursor, last = _open_cursor(cursor)
    try:
        page = await ctx.list_resources(server_cursor)
    except InvalidParams as error:
        raise ToolError(str(error)) from None
    shown = page.resources
    begin = next((at + 1 for at, resource in enumerate(shown) if resource.uri == last), 0)
    part = shown[begin : begin + PAGE]
    following: str | None = None
    if begin + PAGE < len(shown):
        following = _cursor(server_cursor, part[-1].uri)
    elif page.next_cursor is not UNSET:
        following = _cursor(page.next_cursor, None)
    return _json({"resources": [_brief(resource) for resource in part], **_next(following)})


async def read_resource(uri: str, ctx: Context[Any], offset: int = 0) -> t.CallToolResult:
    """Read one resource: the text of a file, an image, the listing of a folder.

    Args:
        uri: URI of the resource, as listed or found.
        offset: Character of a long text to go on from.
    """
    contents = (await _read(ctx, uri)).contents
    blocks: list[t.ContentBlock] = []
    for content in contents:
        if not _is_summary(content):
            blocks += _blocks(content, max(offset, 0))
    return t.CallToolResult(content=blocks)


async def read_directory(ctx: Context[Any], uri: str = "", cursor: str = "") -> t.CallToolResult:
    """List what is directly in a folder, 100 entries at a time.

    Args:
        uri: URI of the folder; leave it out for the top.
        cursor: `nextCursor` of the answer before; leave it out to begin.
    """
    if not uri:
        return _json({"entries": [{"uri": top, "mimeType": DIRECTORY} for top in _tops(ctx.server)]})
    contents = (await _read(ctx, uri)).contents  # also asks whether this caller may
    source = ctx.server.resources.source_of(uri)
    children: Callable[..., Any] | None = getattr(source, "children", None)
    if children is None:
        found = [
            {"uri": content.uri, "mimeType": content.mime_type or ""} for content in contents if content.uri != uri
        ]
        return _json({"entries": found})
    try:
        entries, key = await ctx.server.adapt(children)(owner_of(ctx.request), uri, cursor or None, PAGE)
    except (ResourceNotFound, InvalidParams):
        raise ToolError(f"{_clipped(uri)} is no folder, or the cursor is not one of it.") from None
    return _json({"entries": [_brief(resource) for resource in entries], **_next(key)})


async def search(query: str, ctx: Context[Any]) -> SearchResults:
    """Search the names and the text of everything this server publishes; use `fetch` with an id to read a result.

    Args:
        query: Words that must all occur, in any order and case.
    """
    hits = await ctx.search(query, RESULTS)
    if hits.cut:
        ctx.warning(hits.cut)
    return SearchResults(results=[SearchResult(id=hit.uri, title=hit.title, url=hit.uri) for hit in hits])


async def fetch(id: str, ctx: Context[Any]) -> Document:
    """Fetch the full text of one search result.

    Args:
        id: The `id` of a search result.
    """
    content = (await _read(ctx, id)).contents[0]
    metadata = {"mimeType": content.mime_type or ""}
    if content.text is UNSET:
        size = len(content.blob or b"")
        metadata["size"] = str(size)
        text = f"This is not text: {content.mime_type}, {size:,} bytes. The tool read_resource returns it."
    else:
        text = content.text[:FETCHED]
        if len(content.text) > FETCHED:
            metadata["truncated"] = f"the first {FETCHED:,} of {len(content.text):,} characters"
    title = id.rstrip("/").rpartition("/")[2] or id
    return Document(id=id, title=title, text=text, url=id, metadata=metadata)


_TOOLS: tuple[tuple[Callable[..., Any], str], ...] = (
    (list_resources, "List resources"),
    (read_resource, "Read a resource"),
    (read_directory, "List a folder"),
    (search, "Search"),
    (fetch, "Fetch"),
)


async def _read(ctx: Context[Any], uri: str) -> t.ReadResourceResult:
    try:
        return await ctx.read_resource(uri)
    except ResourceNotFound:
        raise ToolError(f"There is no resource {_clipped(uri)}: search, or list resources, to find its URI.") from None
    except InvalidParams as error:
        raise ToolError(str(error)) from None


def _blocks(content: t.ResourceContents, offset: int) -> list[t.ContentBlock]:
    if content.text is not UNSET:
        return _window(content.text, offset)
    blob, kind = content.blob or b"", content.mime_type or ""
    if kind.startswith("image/"):
        return [t.ImageContent(data=blob, mime_type=kind)]
    if kind.startswith("audio/"):
        return [t.AudioContent(data=blob, mime_type=kind)]
    return [t.EmbeddedResource(resource=content)]


def _window(text: str, offset: int) -> list[t.ContentBlock]:
    part = text[offset : offset + WINDOW]
    blocks: list[t.ContentBlock] = [t.TextContent(text=part)]
    end = offset + len(part)
    if end < len(text):
        note = f"These are characters {offset:,} to {end:,} of {len(text):,}: go on with offset={end}."
        blocks.append(t.TextContent(text=note))
    return blocks


def _is_summary(content: t.ResourceContents) -> bool:
    return content.meta is not UNSET and bool(content.meta.get(SUMMARY))


def _brief(resource: t.Resource) -> dict[str, Any]:
    """A resource in few words: what a model needs to choose."""
    said = {
        "uri": resource.uri,
        "title": resource.title or resource.name,
        "description": resource.description,
        "mimeType": resource.mime_type,
        "size": resource.size,
    }
    if resource.annotations is not UNSET:
        said["lastModified"] = resource.annotations.last_modified
    return {name: value for name, value in said.items() if value is not UNSET}


def _json(value: dict[str, Any]) -> t.CallToolResult:
    text = msgspec.json.encode(value).decode()
    return t.CallToolResult(content=[t.TextContent(text=text)], structured_content=value)


def _next(cursor: str | None) -> dict[str, str]:
    return {} if cursor is None else {"nextCursor": cursor}


def _cursor(of_server: str | None, last: str | None) -> str:
    return msgspec.json.encode((of_server, last)).decode()


def _open_cursor(cursor: str) -> tuple[str | None, str | None]:
    """The server's own cursor, and the last resource shown of its page."""
    if not cursor:
        return None, None
    try:
        return msgspec.json.decode(cursor, type=tuple[str | None, str | None])
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise ToolError("This cursor is not one of list_resources: leave it out to begin.") from None


def _tops(server: Server) -> list[str]:
    return [uri for source in server.resources.sources if isinstance(uri := getattr(source, "uri", None), str)]


def _clipped(uri: str) -> str:
    return uri if len(uri) <= 200 else uri[:200] + "…"
