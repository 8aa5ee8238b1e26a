"""Helpers of the resource tools: reading as the caller, and results as JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams, ResourceNotFound, ToolError
from wharfinger.server.context import Context

__all__ = ["as_json", "brief", "clipped", "read"]


async def read(ctx: Context[Any], uri: str) -> list[t.ResourceContents]:
    """Read a resource as the caller.

    Raises:
        ToolError: there is no such resource, or it cannot be read; the message is written for a model.
    """
    try:
        return (await ctx.read_resource(uri)).contents
    except ResourceNotFound:
        raise ToolError(f"There is no resource {clipped(uri)}: search, or list resources, to find its URI.") from None
    except InvalidParams as error:
        raise ToolError(str(error)) from None


def as_json(value: dict[str, Any], *more: t.ContentBlock) -> t.CallToolResult:
    """A result with the value as JSON text and as structured content, followed by more blocks."""
    text = msgspec.json.encode(value).decode()
    return t.CallToolResult(content=[t.TextContent(text=text), *more], structured_content=value)


def brief(resource: t.Resource) -> dict[str, Any]:
    """The members of a resource that help a model to choose."""
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
    """A URI, cut after 200 characters."""
    return uri if len(uri) <= 200 else uri[:200] + "…"
