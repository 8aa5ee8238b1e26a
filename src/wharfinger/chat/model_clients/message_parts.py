"""Turns blocks of messages into text, pictures and base64 for all APIs."""

from __future__ import annotations

import base64
import re

import msgspec

from wharfinger import types as t
from wharfinger.content.mime import SNIFFED_BYTES, by_signature
from wharfinger.host.model_apis.definitions import MAX_NAME_CHARACTERS

__all__ = ["PICTURE_TYPES", "base64_text", "block_text", "blocks_of", "picture_of", "result_parts", "write_name"]

PICTURE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""The MIME types of pictures that the APIs accept."""


def blocks_of(message: t.SamplingMessage) -> list[t.SamplingContent]:
    """Return the blocks of a message; one block alone need not be in a list."""
    return message.content if isinstance(message.content, list) else [message.content]


def base64_text(data: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(data).decode("ascii")


def write_name(name: str) -> str:
    """Return the name of a called tool in letters that all APIs accept: a model may have invented another one."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME_CHARACTERS] or "unknown"


def result_parts(result: t.ToolResultContent) -> tuple[str, list[t.ImageContent]]:
    """Return the text of a tool's result, and its pictures. Other binary content is only described in the text.

    Structured content is written as JSON if there is no other content.
    """
    lines: list[str] = []
    pictures: list[t.ImageContent] = []
    for block in result.content:
        picture = picture_of(block)
        if picture is not None:
            pictures.append(picture)
        else:
            lines.append(block_text(block))
    if not result.content and result.structured_content is not msgspec.UNSET:
        lines.append(msgspec.json.encode(result.structured_content).decode())
    return "\n".join(lines), pictures


def picture_of(block: object) -> t.ImageContent | None:
    """Return the picture in a block, or None if the declared type or the bytes are not of a type that the APIs accept.

    If the two types differ, the picture gets the type of the bytes: otherwise an API would refuse the whole request.
    """
    if isinstance(block, t.ImageContent):
        data, declared = block.data, block.mime_type
    elif isinstance(block, t.EmbeddedResource) and isinstance(block.resource.blob, bytes):
        data, declared = block.resource.blob, block.resource.mime_type or ""
    else:
        return None
    kind = by_signature(data[:SNIFFED_BYTES])
    return t.ImageContent(data=data, mime_type=kind) if kind in PICTURE_TYPES and declared in PICTURE_TYPES else None


def block_text(block: object) -> str:
    """Return a block as text. Binary content is only described."""
    if isinstance(block, t.TextContent):
        return block.text
    if isinstance(block, t.EmbeddedResource):
        resource = block.resource
        if isinstance(resource.text, str):
            return f"{resource.uri}:\n{resource.text}"
        kind = resource.mime_type if isinstance(resource.mime_type, str) else "bytes"
        size = len(resource.blob) if isinstance(resource.blob, bytes) else 0
        return f"[{resource.uri}: {kind}, {size:,} bytes, not shown]"
    if isinstance(block, t.ResourceLink):
        return f"[resource {block.uri}: {block.title or block.name}]"
    if isinstance(block, (t.ImageContent, t.AudioContent)):
        return f"[{block.mime_type}, {len(block.data):,} bytes, not shown]"
    return "[content of an unknown type]"
