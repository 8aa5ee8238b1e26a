"""Anthropic's Messages API: https://docs.anthropic.com/en/api/messages and /en/api/messages-streaming."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from wharfinger import types as t
from wharfinger.chat.model_clients.choosing import ModelChoice
from wharfinger.chat.model_clients.message_parts import (
    base64_text,
    block_text,
    blocks_of,
    picture_of,
    result_parts,
    write_name,
)
from wharfinger.chat.model_clients.model_errors import ModelError, ModelUnreachable
from wharfinger.chat.model_clients.openai_chat import error_text
from wharfinger.chat.model_clients.streamed_answer import (
    AnswerRequest,
    ModelAnswer,
    ToolCallPieces,
    Usage,
    as_number,
    as_text,
    decode_object,
)
from wharfinger.content.decoded_json import as_object

__all__ = ["AnthropicAnswerReader", "anthropic_body", "anthropic_headers"]

VERSION = "2023-06-01"
"""The version of the API that these requests are written for."""
DEFAULT_MAX_TOKENS = 8192
"""Maximum tokens of one answer, if the request has no limit: this API requires one."""
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+").fullmatch
"""Matches the ids of calls that the API accepts."""
STOP_REASONS = {
    "end_turn": "endTurn",
    "stop_sequence": "stopSequence",
    "max_tokens": "maxTokens",
    "tool_use": "toolUse",
}
CUT_REASONS = frozenset(("max_tokens", "model_context_window_exceeded", "refusal"))
"""The reasons for which an answer may end within a tool call."""


def anthropic_headers(choice: ModelChoice) -> dict[str, str]:
    """Return the headers that authorise a request and name the version."""
    return {"anthropic-version": VERSION, **({"x-api-key": choice.key} if choice.key else {})}


def anthropic_body(choice: ModelChoice, request: AnswerRequest, omit: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the body of a request, without the members in `omit`."""
    messages = [
        {"role": message.role, "content": content}
        for message in request.messages
        if (content := [part for block in blocks_of(message) if (part := write_block(block)) is not None])
    ]
    body: dict[str, Any] = {
        "model": choice.name,
        "messages": messages,
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "stream": True,
    }
    if request.system:
        body["system"] = request.system
    if request.tools:
        body["tools"] = request.tools
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop_sequences:
        body["stop_sequences"] = request.stop_sequences
    return {name: value for name, value in body.items() if name not in omit}


def write_block(block: t.SamplingContent) -> dict[str, Any] | None:
    """Return one block as the API takes it, or None if its text is empty: the API refuses such a block."""
    if isinstance(block, t.ToolUseContent):
        return {"type": "tool_use", "id": write_id(block.id), "name": write_name(block.name), "input": block.input}
    if isinstance(block, t.ToolResultContent):
        text, pictures = result_parts(block)
        parts = [{"type": "text", "text": text}] if text.strip() else []
        content = [*parts, *map(picture_block, pictures)]
        error = {"is_error": True} if block.is_error is True else {}
        return {"type": "tool_result", "tool_use_id": write_id(block.tool_use_id), "content": content, **error}
    picture = picture_of(block)
    if picture is not None:
        return picture_block(picture)
    text = block_text(block)
    return {"type": "text", "text": text} if text.strip() else None


def write_id(id: str) -> str:
    """Return the id of a call as the API takes it. Another API may have made it, such as `functions.read:0`."""
    return id if PLAIN_ID(id) else id.encode("utf-8", "surrogatepass").hex()


def picture_block(picture: t.ImageContent) -> dict[str, Any]:
    """Return a picture as a block."""
    source = {"type": "base64", "media_type": picture.mime_type, "data": base64_text(picture.data)}
    return {"type": "image", "source": source}


class AnthropicAnswerReader:
    """Reads the events of a streamed message."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls = ToolCallPieces()
        self._reason = ""
        self._usage = Usage()
        self._model = ""
        self._done = False

    def feed(self, data: bytes) -> str:
        """Read the data of one event. Returns the text that it adds; raises ModelError."""
        event = decode_object(data)
        kind = event.get("type")
        if kind == "error":
            if as_object(event.get("error")).get("type") in ("overloaded_error", "rate_limit_error", "api_error"):
                raise ModelUnreachable(f"The endpoint cannot answer now: {error_text(event)}. Ask again in a minute.")
            raise ModelError(f"The endpoint reports an error: {error_text(event)}.")
        if kind == "message_start":
            message = as_object(event.get("message"))
            self._model = as_text(message.get("model"))
            self._count_tokens(as_object(message.get("usage")))
        elif kind == "content_block_start":
            return self._start_block(event)
        elif kind == "content_block_delta":
            return self._add_delta(event)
        elif kind == "message_delta":
            self._reason = as_text(as_object(event.get("delta")).get("stop_reason")) or self._reason
            self._count_tokens(as_object(event.get("usage")))
        elif kind == "message_stop":
            self._done = True
        return ""  # `ping`, `content_block_stop`, and events of later versions

    def _start_block(self, event: dict[str, Any]) -> str:
        block = as_object(event.get("content_block"))
        if block.get("type") == "tool_use":
            arguments = as_object(block.get("input"))  # empty while streaming; its JSON follows in pieces
            text = msgspec.json.encode(arguments).decode() if arguments else ""
            self._calls.add(as_number(event.get("index")), as_text(block.get("id")), as_text(block.get("name")), text)
            return ""
        return self._add_text(as_text(block.get("text"))) if block.get("type") == "text" else ""

    def _add_delta(self, event: dict[str, Any]) -> str:
        delta = as_object(event.get("delta"))
        if delta.get("type") == "text_delta":
            return self._add_text(as_text(delta.get("text")))
        if delta.get("type") == "input_json_delta":
            self._calls.add(as_number(event.get("index")), "", "", as_text(delta.get("partial_json")))
        return ""

    def _add_text(self, text: str) -> str:
        self._calls.count_text(text)
        self._text.append(text)
        return text

    def _count_tokens(self, usage: dict[str, Any]) -> None:
        """Keep the totals that an event reports. `message_delta` has those of the input only if they have changed."""
        cached = as_number(usage.get("cache_read_input_tokens"))
        sent = as_number(usage.get("input_tokens")) + cached + as_number(usage.get("cache_creation_input_tokens"))
        self._usage.input = sent or self._usage.input
        self._usage.cached = cached or self._usage.cached
        self._usage.output = as_number(usage.get("output_tokens")) or self._usage.output

    def finish(self) -> ModelAnswer:
        """Return the answer. Raises ModelError if the stream ended before the answer was complete."""
        if not self._reason and not self._done:
            raise ModelError("The endpoint closed the connection in the middle of the answer: ask again.")
        calls, invalid = self._calls.finish(is_cut=self._reason in CUT_REASONS)
        reason = STOP_REASONS.get(self._reason, self._reason or "endTurn")
        return ModelAnswer("".join(self._text), calls, reason, self._usage, self._model, invalid)
