"""What older revisions get of content that they do not know: text for blocks, an object around structured values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from wharfinger import types as t

__all__ = ["WRAPPED", "is_object", "without_unknown_blocks"]

WRAPPED = "x-fastmcp-wrap-result"
"""In an output schema: the value stands in `result`. FastMCP's clients and ours unwrap it again."""


def _sound(block: t.AudioContent) -> str:
    return f"[Sound ({block.mime_type}, {len(block.data)} bytes): this revision of the protocol cannot carry it.]"


def _link(block: t.ResourceLink) -> str:
    title = block.title or block.name
    return f"[{title}]({block.uri})" + (f": {block.description}" if block.description else "")


_AS_TEXT: dict[type, tuple[str, Callable[[Any], str]]] = {
    t.AudioContent: ("audio", _sound),
    t.ResourceLink: ("resource_link", _link),
}
"""Kinds of blocks that some revisions lack: the wire's name, and what is said instead."""


def without_unknown_blocks(result: Any, unknown: frozenset[str]) -> Any:
    """A result whose blocks of the kinds `unknown` are text; the result itself where it has none. Changes nothing."""
    if isinstance(result, t.CallToolResult):
        content = _told(result.content, unknown)
        return result if content is None else msgspec.structs.replace(result, content=content)
    if isinstance(result, t.GetPromptResult):
        content = _told([message.content for message in result.messages], unknown)
        if content is not None:
            messages = [
                msgspec.structs.replace(message, content=block)
                for message, block in zip(result.messages, content, strict=True)
            ]
            return msgspec.structs.replace(result, messages=messages)
    return result


def is_object(structured: Any) -> bool:
    """Whether structured content is an object in JSON."""
    data = bytes(structured) if isinstance(structured, Raw) else msgspec.json.encode(structured)
    return data[:1] == b"{"


def _told(blocks: Sequence[Any], unknown: frozenset[str]) -> list[Any] | None:
    found = [_AS_TEXT.get(type(cast("object", block))) for block in blocks]
    if not any(row is not None and row[0] in unknown for row in found):
        return None
    return [
        t.TextContent(text=row[1](block), annotations=block.annotations) if row and row[0] in unknown else block
        for row, block in zip(found, blocks, strict=True)
    ]
