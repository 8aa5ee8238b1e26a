"""The tools `read_resource`, for any resource in parts, and `fetch`, for a result of `search` (ChatGPT's connectors).

If the source has windows, a part is a window, and its end names the next one. The text of a source without windows,
such as the result of a function, is cut here, and `start` continues it. Each answer ends with the call that continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.decoded_json import as_object
from wharfinger.content.text import many, size_text
from wharfinger.errors import ToolError
from wharfinger.server.context import Context
from wharfinger.server.features.resource import MAX_RESOURCE_URI_CHARACTERS
from wharfinger.source import Source
from wharfinger.sources.resource_tool_set.answer_budget import (
    DEFAULT_TOKENS,
    NOTES_CHARACTERS,
    Budget,
    end_of_part,
    json_length,
)
from wharfinger.sources.resource_tool_set.tool_text import clipped, read
from wharfinger.sources.resource_tool_set.uri_queries import parameters_at, parameters_of_type, queries_of
from wharfinger.sources.windows.window import NEXT, PREVIOUS, REMARK, SUMMARY, WINDOW

__all__ = ["MAX_IMAGE_BYTES", "fetch", "read_resource"]

MAX_IMAGE_BYTES = 3 << 20
"""Maximum size of an image that is returned without `binary`. Hosts refuse larger images."""
MAX_LINKS = 16
"""Maximum number of members of a content's `_meta` that are looked up in remarks."""
HINT_CHARACTERS = 700
"""Maximum length of a list of further queries."""
MAX_FILES = 50
"""Maximum number of contents in an answer that are not text."""
MAX_READS = 3
"""Maximum number of further reads, each of a smaller window, if the text of a window is too long for the answer."""


class DocumentText(msgspec.Struct, kw_only=True):
    """The result of `fetch`."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, str]


async def read_resource(
    uri: str, ctx: Context[Any], start: int = 0, max_tokens: int = DEFAULT_TOKENS, binary: bool = False
) -> t.CallToolResult:
    """Read one resource: text, an image, the listing of a folder. A long one ends with the call that continues.

    Args:
        uri: URI as listed or found, with a query to read a part.
        start: Characters to skip, as the end of an answer says.
        max_tokens: How much to return at most, up to 100,000.
        binary: Also return audio and other data, as blocks that few hosts accept.
    """
    budget = Budget.of(max_tokens)
    contents = await _read_within(ctx, uri, budget.room(uri))
    answer = _answer(contents, start, budget.room(uri), binary)
    notes = _notes("read_resource with uri", uri, budget, contents, answer)
    notes += _hints(ctx.server.resources.source_of(uri), uri, contents, more=bool(notes))
    if (left_out := sum(content.text is UNSET for content in contents) - MAX_FILES) > 0:
        notes.append(f"{many(left_out, 'content')} left out: an answer has at most {MAX_FILES} that are not text.")
    if not notes and not any(not isinstance(block, t.TextContent) or block.text for block in answer.blocks):
        notes = [_empty_note(uri)]
    blocks = [block for block in answer.blocks if not isinstance(block, t.TextContent) or block.text or not notes]
    return t.CallToolResult(content=[*blocks, *(t.TextContent(text=f"[{note}]") for note in notes)])


async def fetch(id: str, ctx: Context[Any], start: int = 0, max_tokens: int = DEFAULT_TOKENS) -> DocumentText:
    """Fetch the text of one search result. A long one ends with the call that continues.

    Args:
        id: The `id` of a search result.
        start: Characters to skip, as the end of an answer says.
        max_tokens: How much to return at most, up to 100,000.
    """
    budget = Budget.of(max_tokens)
    room = budget.room(id)
    contents = await _read_within(ctx, id, room, json_length)
    first = contents[0]
    metadata = {"mimeType": first.mime_type or ""}
    if first.text is UNSET:
        size = len(first.blob or b"")
        metadata["size"] = str(size)
        text = f"This is not text: {first.mime_type or 'data'}, {size:,} bytes. The tool read_resource returns it."
        hints = _hints(ctx.server.resources.source_of(id), id, contents, more=False)
        text = "\n".join([text, *(f"[{hint}]" for hint in hints)])
    else:
        answer = _answer(contents[:1], start, _room_for_json(first.text, start, room), binary=False)
        text = "".join(block.text for block in answer.blocks if isinstance(block, t.TextContent))
        notes = _notes("fetch with id", id, budget, contents, answer)
        if next_uri := _next_uri(id, contents):
            metadata["next"] = next_uri
        if not text and not notes:
            notes = [_empty_note(id)]
        text = "\n".join([*([text] if text else []), *(f"[{note}]" for note in notes)])
    title = id.rstrip("/").rpartition("/")[2] or id
    return DocumentText(id=id, title=title, text=text, url=id, metadata=metadata)


async def _read_within(
    ctx: Context[Any], uri: str, room: int, length: Callable[[str], int] = len
) -> list[t.ResourceContents]:
    """Read a resource or, if it has windows, a window that fits.

    The text of a window may have more characters than the window has bytes: secrets are replaced, and some characters
    escaped, such as quotes in JSON.
    """
    size = room
    contents = await read(ctx, uri, size)
    for _ in range(MAX_READS):
        text = contents[0].text or ""
        if WINDOW not in _meta(contents[0]) or (text_length := length(text)) <= room:
            break
        size = min(size * room // text_length, size * 9 // 10)
        shorter = await read(ctx, uri, size)
        if len(shorter[0].text or "") >= len(text):
            break
        contents = shorter
    return contents


# Cutting the text


class _Answer(NamedTuple):
    """The blocks of an answer, and the part of the whole text that they contain."""

    blocks: list[t.ContentBlock]
    begin: int
    end: int
    """The index after the last character of the answer; 0 if the answer reaches the end of the text."""
    length: int


def _answer(contents: Sequence[t.ResourceContents], start: int, room: int, binary: bool) -> _Answer:
    """Return the contents as blocks, beginning with character `start`, without summaries and remarks.

    Raises:
        ToolError: `start` is not within the text.
    """
    own_contents = [content for content in contents if SUMMARY not in _meta(content)]
    length = sum(len(content.text or "") for content in own_contents)
    if start < 0 or start > length or (start and start == length):
        raise ToolError(f"start={start:,} is not within this text, which has {length:,} characters.")
    blocks: list[t.ContentBlock] = []
    skip, content_begin, files = start, 0, 0
    for content in own_contents:
        if content.text is UNSET:
            if not skip and files < MAX_FILES:
                blocks.append(_block(content, binary))
                files += 1
            continue
        text = content.text
        if skip and skip >= len(text):
            skip, content_begin = skip - len(text), content_begin + len(text)
            continue
        if room <= 0:
            return _Answer(blocks, start, content_begin + skip, length)
        end = end_of_part(text, skip, room)
        blocks.append(t.TextContent(text=text[skip:end]))
        room -= end - skip
        if end < len(text):
            return _Answer(blocks, start, content_begin + end, length)
        skip, content_begin = 0, content_begin + len(text)
    return _Answer(blocks, start, 0, length)


def _block(content: t.ResourceContents, binary: bool) -> t.ContentBlock:
    blob, kind = content.blob or b"", content.mime_type or ""
    is_image = kind.startswith("image/")
    if is_image and (binary or len(blob) <= MAX_IMAGE_BYTES):
        return t.ImageContent(data=blob, mime_type=kind)
    if not binary:
        note = f"This is {kind or 'data'}, {size_text(len(blob))}: call read_resource with binary=true to get it."
        return t.TextContent(text=note)
    if kind.startswith("audio/"):
        return t.AudioContent(data=blob, mime_type=kind)
    return t.EmbeddedResource(resource=content)


def _room_for_json(text: str, start: int, room: int) -> int:
    """Return the number of characters of the text after `start` that fit in `room` characters of JSON."""
    part = text[start : start + room] if start >= 0 else ""
    while (json_size := json_length(part)) > room:
        part = part[: min(len(part) * room // json_size, len(part) - 1)]
    return len(part)


# The next window, and further queries


_STATES_END = re.compile(r"(?:^|&)(?:lines|bytes)=[0-9]+-[0-9]|(?:^|&)(?:rows|limit)=").search
"""Matches a query that states where its window ends."""


def _next_uri(uri: str, contents: Sequence[t.ResourceContents]) -> str:
    """Return the URI of the next window, or an empty string if that window has no content yet.

    A log always names a next window, for lines that are written later. So more exists only if a remark names the next
    window, or if the query states an end and the content is longer.
    """
    for content in contents[1:]:
        if NEXT in (meta := _meta(content)) and SUMMARY in meta:
            return _link(meta, NEXT)
    meta = _meta(contents[0])
    window = as_object(meta.get(WINDOW))
    end, size = window.get("end", 0), window.get("size", 1)
    more = isinstance(end, int) and isinstance(size, int) and end < size
    return _link(meta, NEXT) if more and _STATES_END(uri.partition("?")[2]) is not None else ""


def _link(meta: dict[str, Any], key: str) -> str:
    """Return a URI from the `_meta` of a content, or an empty string if it has no usable one."""
    uri = meta.get(key)
    return uri if isinstance(uri, str) and len(uri) <= MAX_RESOURCE_URI_CHARACTERS else ""


def _notes(call: str, uri: str, budget: Budget, contents: Sequence[t.ResourceContents], answer: _Answer) -> list[str]:
    """Return remarks about the part that was read, with the exact call that continues."""
    if answer.end:
        sentence = f"Characters {answer.begin + 1:,} to {answer.end:,} of {answer.length:,}."
        return [f"{sentence} To continue, call {call}={uri} and start={answer.end}{budget.argument}"]
    links = _meta(contents[0])
    next_uri, previous = _next_uri(uri, contents), _link(links, PREVIOUS)
    room = NOTES_CHARACTERS + 2 * len(uri)
    remarks: list[str] = []
    for content in contents:
        meta = _meta(content)
        if room > 0 and SUMMARY in meta and (REMARK in meta or NEXT in meta):
            remark = str(meta.get(REMARK) or content.text or "")[:room].strip("[]\n")
            remarks.append(_as_call(remark, call, islice(links.values(), MAX_LINKS)))
            room -= len(remark) + 1
    notes = [" ".join([*remarks, f"To continue, call {call}={next_uri}{budget.argument}"] if next_uri else remarks)]
    query = uri.partition("?")[2]
    if previous and previous not in notes[0] and (not query or "tail=" in query):
        notes.append(f"For the part before this, call {call}={previous}{budget.argument}")
    return [note for note in notes if note]


def _as_call(remark: str, call: str, uris: Iterable[object]) -> str:
    """Replace each `read URI` in a remark with the call of a tool."""
    for uri in uris:
        if isinstance(uri, str) and uri:
            remark = remark.replace(f"read {uri}", f"call {call}={uri}")
    return remark


def _hints(source: Source | None, uri: str, contents: Sequence[t.ResourceContents], *, more: bool) -> list[str]:
    """Return further queries: after a directory, after the first window of a long text, or to read bytes as text."""
    if source is None or "?" in uri:
        return []
    if contents[0].text is UNSET and (queries := parameters_of_type(source, contents[0].mime_type or "")):
        return _hint("Read it as text by ", queries)
    if _names_most(contents, [name for name, known in source.parameters.items() if not known.types]):
        return []
    is_directory = any(SUMMARY in (meta := _meta(content)) and REMARK not in meta for content in contents[1:])
    if is_directory or uri == source.uri:
        return _hint("You can also read ", queries_of(source))
    return _hint("Parts of it: ", parameters_at(source, uri)) if more else []


def _names_most(contents: Sequence[t.ResourceContents], parameters: Iterable[str]) -> bool:
    """Return whether most of these parameters occur in the first content and the remarks."""
    text = " ".join(content.text or "" for content in contents if content is contents[0] or REMARK in _meta(content))
    occurs = [f"{parameter}=" in text for parameter in parameters]
    return sum(occurs) * 2 > len(occurs)


def _hint(words: str, queries: Iterable[str]) -> list[str]:
    hint = "; ".join(queries)
    if not hint:
        return []
    return [words + (hint if len(hint) <= HINT_CHARACTERS else hint[:HINT_CHARACTERS] + "…")]


def _empty_note(uri: str) -> str:
    base, mark, query = uri.partition("?")
    if mark:
        return f"Nothing matched {clipped(query)}. Try other values, or read {clipped(base)} without the query."
    return f"{clipped(uri)} is empty: it has 0 characters."


def _meta(content: t.ResourceContents) -> dict[str, Any]:
    return {} if content.meta is UNSET else content.meta
