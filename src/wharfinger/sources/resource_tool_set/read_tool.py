"""Tools that read: a resource in windows, and a search result in the shape that ChatGPT's connectors expect."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams, ResourceNotFound
from wharfinger.server.context import Context
from wharfinger.sources.resource_tool_set.tool_text import read
from wharfinger.sources.windows.window import NEXT, SUMMARY, with_query

__all__ = ["MAX_TEXT_LENGTH", "WINDOW_THRESHOLD", "fetch", "read_resource"]

WINDOW_THRESHOLD = 200_000
"""Characters; a longer text is read in windows if its resource has them."""
MAX_TEXT_LENGTH = 1_000_000
"""Characters in one result."""


class DocumentText(msgspec.Struct, kw_only=True):
    """What `fetch` returns."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, str]


async def read_resource(uri: str, ctx: Context[Any], binary: bool = False) -> t.CallToolResult:
    """Read one resource: text, an image, the listing of a folder.

    A long resource is returned in part, with the URI of the next part.

    Args:
        uri: URI as listed or found; append `?lines=1-200` or `?tail=200` to read part of a file.
        binary: Also return audio and other data, as blocks that few hosts accept.
    """
    contents = await read(ctx, uri)
    if len(contents[0].text or "") > WINDOW_THRESHOLD and "?" not in uri:
        contents = await _first_window(ctx, uri) or contents
    blocks = [block for content in contents if not _meta(content, SUMMARY) for block in _blocks(content, binary)]
    said = {_meta(content, NEXT): content.text or "" for content in contents if _meta(content, SUMMARY)}
    following = dict.fromkeys(str(then) for content in contents if (then := _meta(content, NEXT)))
    blocks += [t.TextContent(text=said.get(then) or f"[To continue, read {then}]") for then in following]
    return t.CallToolResult(content=blocks)


async def fetch(id: str, ctx: Context[Any]) -> DocumentText:
    """Fetch the full text of one search result.

    Args:
        id: The `id` of a search result.
    """
    content = (await read(ctx, id))[0]
    metadata = {"mimeType": content.mime_type or ""}
    if next_window := _meta(content, NEXT):
        metadata["next"] = str(next_window)
    if content.text is UNSET:
        size = len(content.blob or b"")
        metadata["size"] = str(size)
        text = f"This is not text: {content.mime_type}, {size:,} bytes. The tool read_resource returns it."
    else:
        text, note = _clip(content.text)
        metadata |= {"truncated": note} if note else {}
    title = id.rstrip("/").rpartition("/")[2] or id
    return DocumentText(id=id, title=title, text=text, url=id, metadata=metadata)


async def _first_window(ctx: Context[Any], uri: str) -> list[t.ResourceContents] | None:
    """Read the first window of a long text. Returns None if the resource has no windows."""
    try:
        contents = (await ctx.read_resource(with_query(uri, "lines=1-"))).contents
    except (ResourceNotFound, InvalidParams):
        return None
    return contents if _meta(contents[0], NEXT) else None


def _blocks(content: t.ResourceContents, binary: bool) -> list[t.ContentBlock]:
    if content.text is not UNSET:
        text, note = _clip(content.text)
        return [t.TextContent(text=part) for part in ((text, f"This is {note}.") if note else (text,))]
    blob, kind = content.blob or b"", content.mime_type or ""
    if kind.startswith("image/"):
        return [t.ImageContent(data=blob, mime_type=kind)]
    if not binary:
        said = f"This is {kind or 'data'}, {len(blob):,} bytes: call read_resource with binary=true to get it."
        return [t.TextContent(text=said)]
    if kind.startswith("audio/"):
        return [t.AudioContent(data=blob, mime_type=kind)]
    return [t.EmbeddedResource(resource=content)]


def _clip(text: str) -> tuple[str, str]:
    """Cut a long text. Returns the text, and a phrase that says how much of it this is, empty if it is complete."""
    if len(text) <= MAX_TEXT_LENGTH:
        return text, ""
    return text[:MAX_TEXT_LENGTH], f"the first {MAX_TEXT_LENGTH:,} of {len(text):,} characters"


def _meta(content: t.ResourceContents, name: str) -> object:
    return None if content.meta is UNSET else content.meta.get(name)
