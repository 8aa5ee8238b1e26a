"""What the mirrored tools share: reading as the caller, and answers as JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams, ResourceNotFound, ToolError
from wharfinger.server.context import Context

__all__ = ["as_json", "brief", "clipped", "read"]


async def read(ctx: Context[Any], uri: str) -> list[t.ResourceContents]:
    """What the caller reads there.

    Raises:
        ToolError: nothing, in words for a model.
    """
    try:
        return (await ctx.read_resource(uri)).contents
    except ResourceNotFound:
        raise ToolError(f"There is no resource {clipped(uri)}: search, or list resources, to find its URI.") from None
    except InvalidParams as error:
        raise ToolError(str(error)) from None


def as_json(value: dict[str, Any], *more: t.ContentBlock) -> t.CallToolResult:
    """A value as text and as structured content, and blocks behind the text."""
    text = msgspec.json.encode(value).decode()
    return t.CallToolResult(content=[t.TextContent(text=text), *more], structured_content=value)


def brief(resource: t.Resource) -> dict[str, Any]:
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


def clipped(uri: str) -> str:
    """A URI, or its beginning where it is very long."""
    return uri if len(uri) <= 200 else uri[:200] + "…"
