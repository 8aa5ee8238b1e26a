"""Helpers of the resource tools: reading as the caller, and results as JSON."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InternalError, InvalidParams, ResourceNotFound, ToolError
from wharfinger.server.context import Context
from wharfinger.sources.windows.window_budget import window_budget

__all__ = ["as_json", "clipped", "errors_for_models", "read", "resource_entry", "short"]

MAX_DESCRIPTION_LENGTH = 200
"""Maximum number of characters of a title, a description or another member in a list."""


@contextmanager
def errors_for_models(uri: str = "") -> Generator[None, None, None]:
    """Turn errors of a read, a list or a query into results with `isError`, which models see.

    Many agents stop at a protocol error.

    Raises:
        ToolError: the caller can correct the request, or a database or server is down.
    """
    try:
        yield
    except ResourceNotFound as error:
        advice = error.advice or ": search, or list resources, to find its URI."
        raise ToolError(f"There is no resource {clipped(uri)}{advice}") from None
    except (InvalidParams, InternalError) as error:
        raise ToolError(str(error)) from None


async def read(ctx: Context[Any], uri: str, room: int) -> list[t.ResourceContents]:
    """Read a resource as the caller. A window has at most `room` bytes. A resource without contents has an empty text.

    Raises:
        ToolError: there is no such resource, or it cannot be read; the message is written for a model.
    """
    with errors_for_models(uri), window_budget(room):
        contents = (await ctx.read_resource(uri)).contents
    return contents or [t.ResourceContents(uri=uri, text="")]


def as_json(value: dict[str, Any], *more: t.ContentBlock) -> t.CallToolResult:
    """Return a result with the value as JSON text and as structured content, followed by more blocks."""
    text = msgspec.json.encode(value).decode()
    return t.CallToolResult(content=[t.TextContent(text=text), *more], structured_content=value)


def resource_entry(resource: t.Resource) -> dict[str, Any]:
    """Return the entry of a resource in a list: the members that help a model to choose."""
    entry = {
        "uri": resource.uri,
        "title": short(resource.title or resource.name),
        "description": short(resource.description),
        "mimeType": short(resource.mime_type),
        "size": resource.size,
    }
    if resource.annotations is not UNSET:
        entry["lastModified"] = short(resource.annotations.last_modified)
    return {name: value for name, value in entry.items() if value is not UNSET}


def short(text: Any) -> Any:
    """Return a text of another server, cut if it is long. Other values stay as they are."""
    if isinstance(text, str) and len(text) > MAX_DESCRIPTION_LENGTH:
        return text[: MAX_DESCRIPTION_LENGTH - 1] + "…"
    return text


def clipped(uri: str) -> str:
    """Return a URI, cut after 200 characters."""
    return uri if len(uri) <= 200 else uri[:200] + "…"
