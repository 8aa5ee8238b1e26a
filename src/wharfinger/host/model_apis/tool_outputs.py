"""Converts the result of a tool to the parts that a model API takes: texts, images and documents, within bounds.

Each block of the result becomes a text or a file. A file is sent only if its bytes are of a type that the API takes,
whatever type is declared, since APIs refuse the whole request for one broken image. Everything else becomes a text that
describes it. Texts together have at most `max_characters`; a note at the end says how to get the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.decoded_json import as_object, is_list
from wharfinger.content.mime import OCTETS, PDF, by_signature, essence_of
from wharfinger.content.text import printable, size_text
from wharfinger.host.model_apis.tool_calls import ModelToolCall

__all__ = ["MAX_RESULT_CHARACTERS", "FileOutput", "OutputLimits", "ToolOutput", "failed_output", "tool_output"]

MAX_RESULT_CHARACTERS = 40_000
"""Maximum number of characters of a tool's result by default, about 10,000 tokens."""
MAX_FILE_BYTES = 3_750_000
"""Maximum bytes of an image or document, 5 MB in base64: the limit of Anthropic's API for an image."""
MAX_FILES = 20
"""Maximum number of images and documents of one result."""
MAX_LABEL_CHARACTERS = 300

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class FileOutput(msgspec.Struct, frozen=True):
    """An image or document in a result."""

    data: bytes
    mime_type: str
    name: str


class ToolOutput(msgspec.Struct, frozen=True):
    """The result of one call, for a model API to write into its message."""

    call: ModelToolCall
    parts: list[str | FileOutput]
    """Texts and files in their order; never empty, and no text is blank."""
    is_error: bool = False

    @property
    def text(self) -> str:
        """All texts, one after the other."""
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def files(self) -> list[FileOutput]:
        """All images and documents."""
        return [part for part in self.parts if isinstance(part, FileOutput)]


class OutputLimits(msgspec.Struct, frozen=True):
    """Limits of the text and the files of a result."""

    max_characters: int = MAX_RESULT_CHARACTERS
    """Maximum number of characters of all texts of one result, without the note about the cut."""
    file_types: frozenset[str] = frozenset()
    """MIME types of files that the API takes in results."""
    max_file_bytes: int = MAX_FILE_BYTES


def failed_output(call: ModelToolCall, reason: str, limits: OutputLimits) -> ToolOutput:
    """Return the output of a call that failed without a result."""
    text = reason.strip() or "The tool failed, without a reason."
    if len(text) > limits.max_characters:
        text = text[: limits.max_characters] + " […]"
    return ToolOutput(call, [text], is_error=True)


def tool_output(
    call: ModelToolCall,
    result: t.CallToolResult,
    limits: OutputLimits,
    *,
    how_to_read: Callable[[str], str] = lambda uri: "",
    how_to_continue: Callable[[str, int], str] = lambda text, shown: "",
) -> ToolOutput:
    """Return the output for a model from a tool's result.

    `how_to_read` is called with the URI of a link, and returns a sentence for the model. `how_to_continue` is called
    with the whole text and the number of characters that are shown, if the text is cut.
    """
    parts: list[str | FileOutput] = []
    has_content = False
    for block in result.content:
        if _is_for_user_only(block):
            parts.append("[A part of the result is meant for the user only.]")
            continue
        block_parts = _parts_of(block, limits, how_to_read)
        has_content = has_content or any(isinstance(part, FileOutput) or part.strip() for part in block_parts)
        parts += block_parts
    structured: Any = result.structured_content
    if not has_content and structured is not UNSET:
        parts.append(msgspec.json.encode(structured).decode())
    parts = _limited(_joined(parts), limits.max_characters, how_to_continue)
    return ToolOutput(call, parts or ["(The tool returned nothing.)"], is_error=result.is_error is True)


def _parts_of(block: Any, limits: OutputLimits, how_to_read: Callable[[str], str]) -> list[str | FileOutput]:
    if isinstance(block, t.TextContent):
        return [block.text]
    if isinstance(block, t.ImageContent | t.AudioContent):
        return [_file(bytes(block.data), block.mime_type, "", limits)]
    if isinstance(block, t.ResourceLink):
        return [" ".join(filter(None, [_link(block), how_to_read(block.uri)]))]
    if isinstance(block, t.EmbeddedResource):
        contents = block.resource
        if isinstance(contents.text, str):
            return [f"[{_label(contents.uri)}]\n{contents.text}"]
        kind = contents.mime_type if isinstance(contents.mime_type, str) else OCTETS
        return [_file(bytes(contents.blob or b""), kind, _label(contents.uri), limits)]
    return [msgspec.json.encode(block).decode()]  # of a type that is newer than this library


def _file(data: bytes, declared: str, name: str, limits: OutputLimits) -> str | FileOutput:
    """Return the file, or a text that says why it is not sent."""
    kind = by_signature(data)
    described = " ".join(filter(None, [name, f"({_label(declared)}, {size_text(len(data))})"]))
    if kind not in (*IMAGES, PDF) and essence_of(declared) in (*IMAGES, PDF):
        return f"[{described} is not sent: its bytes are of another type.]"
    if kind not in limits.file_types:
        return f"[{described} is not sent: this model takes no such file as the result of a tool.]"
    if len(data) > limits.max_file_bytes:
        return f"[{described} is not sent: the limit is {size_text(limits.max_file_bytes)}.]"
    return FileOutput(data, kind, name)


def _link(link: t.ResourceLink) -> str:
    title = link.title if isinstance(link.title, str) else link.name
    facts = [
        link.mime_type if isinstance(link.mime_type, str) else "",
        size_text(link.size) if isinstance(link.size, int) else "",
    ]
    about = ", ".join(filter(None, facts))
    text = f"Resource: {_label(title)} <{_label(link.uri, 2_000)}>" + (f" ({_label(about)})" if about else "")
    return f"{text}: {_label(link.description)}" if isinstance(link.description, str) and link.description else text


def _label(text: str, limit: int = MAX_LABEL_CHARACTERS) -> str:
    return printable(text, limit)


def _is_for_user_only(block: Any) -> bool:
    if isinstance(block, t.UnknownContent):
        audience: Any = as_object(block.get("annotations")).get("audience")
    else:
        audience = getattr(getattr(block, "annotations", None), "audience", None)
    return is_list(audience) and bool(audience) and "assistant" not in audience


def _joined(parts: list[str | FileOutput]) -> list[str | FileOutput]:
    """Return the parts with neighbouring texts as one, without blank ones, and with a limited number of files."""
    joined: list[str | FileOutput] = []
    texts: list[str] = []
    files = 0
    for part in parts:
        if isinstance(part, str):
            if part.strip():
                texts.append(part)
            continue
        files += 1
        if files > MAX_FILES:
            continue
        if texts:
            joined.append("\n".join(texts))
            texts = []
        joined.append(part)
    if texts:
        joined.append("\n".join(texts))
    if files > MAX_FILES:
        joined.append(f"[{files - MAX_FILES} more images or documents are not sent; the limit is {MAX_FILES}.]")
    return joined


def _limited(
    parts: list[str | FileOutput], limit: int, how_to_continue: Callable[[str, int], str]
) -> list[str | FileOutput]:
    """Return the parts with at most `limit` characters of text, cut at the end of a line if one is near."""
    whole = "\n".join(part for part in parts if isinstance(part, str))
    if len(whole) <= limit:
        return parts
    kept_parts: list[str | FileOutput] = []
    shown_characters = 0
    is_cut = False
    for part in parts:
        if isinstance(part, FileOutput):
            kept_parts.append(part)
        elif not is_cut:
            remaining = limit - shown_characters
            if len(part) <= remaining:
                kept_parts.append(part)
                shown_characters += len(part) + 1  # the line break between texts
                continue
            is_cut = True
            end = part.rfind("\n", max(0, remaining - remaining // 5), max(0, remaining)) + 1 or max(0, remaining)
            shown_characters += end
            if part[:end].strip():
                kept_parts.append(part[:end])
    advice = how_to_continue(whole, shown_characters)
    note = f"[Cut: {min(shown_characters, len(whole)):,} of {len(whole):,} characters. {advice}".rstrip() + "]"
    return _joined([*kept_parts, note])
