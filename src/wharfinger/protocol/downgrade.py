"""Converts results for older revisions: content blocks that a revision lacks become text.

`request.seal_result` wraps structured values in objects for the revisions that allow only objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from wharfinger import types as t

__all__ = ["WRAPPED_KEY", "is_object", "without_unknown_blocks"]

WRAPPED_KEY = "x-fastmcp-wrap-result"
"""A mark in an output schema: the value is wrapped, as the member `result` of an object. FastMCP's client then unwraps
it. Our client does not need the schema for that: it decides by the result alone (`client.results`)."""


def _audio_text(block: t.AudioContent) -> str:
    return f"[Sound ({block.mime_type}, {len(block.data)} bytes): this revision of the protocol cannot carry it.]"


def _link_text(block: t.ResourceLink) -> str:
    title = block.title or block.name
    return f"[{title}]({block.uri})" + (f": {block.description}" if block.description else "")


_AS_TEXT: dict[type, tuple[str, Callable[[Any], str]]] = {
    t.AudioContent: ("audio", _audio_text),
    t.ResourceLink: ("resource_link", _link_text),
}
"""Content blocks that some revisions lack: the name on the wire, and a function that returns the text to send instead.
"""


def without_unknown_blocks(result: Any, unknown: frozenset[str]) -> Any:
    """Return the result with blocks of the kinds in `unknown` as text. Does not change the argument."""
    if isinstance(result, t.CallToolResult):
        content = _as_text(result.content, unknown)
        return result if content is None else msgspec.structs.replace(result, content=content)
    if isinstance(result, t.GetPromptResult):
        content = _as_text([message.content for message in result.messages], unknown)
        if content is not None:
            messages = [
                msgspec.structs.replace(message, content=block)
                for message, block in zip(result.messages, content, strict=True)
            ]
            return msgspec.structs.replace(result, messages=messages)
    return result


def is_object(structured: Any) -> bool:
    """Return whether structured content is a JSON object."""
    data = bytes(structured) if isinstance(structured, Raw) else msgspec.json.encode(structured)
    return data[:1] == b"{"


def _as_text(blocks: Sequence[Any], unknown: frozenset[str]) -> list[Any] | None:
    """Return the blocks with those of unknown kinds as text, or None if all kinds are known."""
    rows = [_AS_TEXT.get(type(cast("object", block))) for block in blocks]
    if not any(row is not None and row[0] in unknown for row in rows):
        return None
    return [
        t.TextContent(text=row[1](block), annotations=block.annotations) if row and row[0] in unknown else block
        for row, block in zip(rows, blocks, strict=True)
    ]
