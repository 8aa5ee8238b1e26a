"""OpenAI's Chat Completions, which many endpoints speak: https://platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

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
from wharfinger.chat.model_clients.model_errors import ModelError
from wharfinger.chat.model_clients.streamed_answer import (
    AnswerRequest,
    ModelAnswer,
    ToolCallPieces,
    Usage,
    as_number,
    as_text,
    decode_object,
)
from wharfinger.content.decoded_json import as_list, as_object

__all__ = ["OpenAIAnswerReader", "openai_body", "openai_headers"]

CUT_REASONS = frozenset(("length", "content_filter"))
"""The reasons for which an answer may end within a tool call."""
STOP_REASONS = {"stop": "endTurn", "length": "maxTokens", "tool_calls": "toolUse", "function_call": "toolUse"}


def openai_headers(choice: ModelChoice) -> dict[str, str]:
    """Return the headers that authorise a request."""
    return {"Authorization": f"Bearer {choice.key}"} if choice.key else {}


def openai_body(choice: ModelChoice, request: AnswerRequest, omit: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the body of a request, without the members in `omit`, which some endpoints do not know.

    If `omit` contains `max_completion_tokens`, the limit is sent under its old name, `max_tokens`.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        messages += write_message(message)
    body: dict[str, Any] = {
        "model": choice.name,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.max_tokens is not None:  # OpenAI's own models refuse `max_tokens`, older endpoints the new name
        body["max_tokens" if "max_completion_tokens" in omit else "max_completion_tokens"] = request.max_tokens
    if request.tools:
        body["tools"] = request.tools
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop_sequences:
        body["stop"] = request.stop_sequences[:4]  # the API allows four
    return {name: value for name, value in body.items() if name not in omit}


def write_message(message: t.SamplingMessage) -> list[dict[str, Any]]:
    """Return one message of MCP as messages of the API.

    Each tool result becomes a message of the role `tool`. Such a message may have only text (API reference,
    `messages`), so the pictures of the results follow in a user message.
    """
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for block in blocks_of(message):
        if isinstance(block, t.ToolUseContent):
            arguments = msgspec.json.encode(block.input).decode()
            function = {"name": write_name(block.name), "arguments": arguments}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, t.ToolResultContent):
            text, pictures = result_parts(block)
            text = f"Error: {text}" if block.is_error is True else text
            messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": text or "(no content)"})
            parts += [part for picture in pictures for part in (label_part(block), picture_part(picture))]
        elif (picture := picture_of(block)) is not None:
            parts.append(picture_part(picture))
        else:
            parts.append({"type": "text", "text": block_text(block)})
    if message.role == "assistant":
        text = "".join(str(part.get("text", "")) for part in parts)
        messages.append({"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})})
    elif parts:
        only_text = all(part["type"] == "text" for part in parts)
        content = "\n\n".join(part["text"] for part in parts) if only_text else parts  # some endpoints take no list
        messages.append({"role": "user", "content": content})
    return messages


def label_part(result: t.ToolResultContent) -> dict[str, Any]:
    """Return a part of a message that says where the next picture is from."""
    return {"type": "text", "text": f"A picture in the result of the tool call {result.tool_use_id}:"}


def picture_part(picture: t.ImageContent) -> dict[str, Any]:
    """Return a picture as a part of a message."""
    url = f"data:{picture.mime_type};base64,{base64_text(picture.data)}"
    return {"type": "image_url", "image_url": {"url": url}}


class OpenAIAnswerReader:
    """Reads the chunks of a streamed completion."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls = ToolCallPieces()
        self._reason = ""
        self._usage = Usage()
        self._model = ""
        self._done = False

    def feed(self, data: bytes) -> str:
        """Read the data of one event. Returns the text that it adds; raises ModelError."""
        if data.strip() == b"[DONE]":
            self._done = True
            return ""
        chunk = decode_object(data)
        if chunk.get("error"):
            raise ModelError(f"The endpoint reports an error: {error_text(chunk)}.")
        self._model = as_text(chunk.get("model")) or self._model
        if usage := as_object(chunk.get("usage")):
            cached = as_object(usage.get("prompt_tokens_details")).get("cached_tokens")
            self._usage = Usage(
                as_number(usage.get("prompt_tokens")), as_number(usage.get("completion_tokens")), as_number(cached)
            )
        added = ""
        for choice in as_list(chunk.get("choices"))[:1]:
            # An endpoint that does not stream sends one chunk with the whole `message`.
            delta = as_object(as_object(choice).get("delta")) or as_object(as_object(choice).get("message"))
            added = as_text(delta.get("content")) or as_text(delta.get("refusal"))
            self._calls.count_text(added)
            self._text.append(added)
            for position, call in enumerate(as_list(delta.get("tool_calls"))):
                self._add_call(as_object(call), position)
            self._reason = as_text(as_object(choice).get("finish_reason")) or self._reason
        return added

    def _add_call(self, call: dict[str, Any], position: int) -> None:
        function = as_object(call.get("function"))
        index = call.get("index") if isinstance(call.get("index"), int | str) else None
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # some compatible endpoints send the object itself
            arguments = msgspec.json.encode(arguments).decode()
        id, name = as_text(call.get("id")), as_text(function.get("name"))
        self._calls.add(index, id, name, as_text(arguments), position=position)

    def finish(self) -> ModelAnswer:
        """Return the answer. Raises ModelError if the stream ended before the answer was complete."""
        if not self._reason and not self._done:
            raise ModelError("The endpoint closed the connection in the middle of the answer: ask again.")
        is_cut = self._reason in CUT_REASONS
        calls, invalid = self._calls.finish(is_cut=is_cut)
        reason = "toolUse" if calls and not is_cut else STOP_REASONS.get(self._reason, self._reason or "endTurn")
        return ModelAnswer("".join(self._text), calls, reason, self._usage, self._model, invalid)


def error_text(answer: dict[str, Any], other: str = "no message") -> str:
    """Return the message of an error in the form of OpenAI, Anthropic or Ollama, without its full stop.

    If it has none, return `other`. The text may be long, and contain the key.
    """
    error = answer.get("error")
    text = as_text(error) or as_text(as_object(error).get("message")) or as_text(answer.get("message"))
    return " ".join(text.split()).rstrip(".") or other
