"""Ollama's own chat API: https://github.com/ollama/ollama/blob/main/docs/api.md#generate-a-chat-completion."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger import types as t
from wharfinger.chat.model_clients.choosing import ModelChoice
from wharfinger.chat.model_clients.message_parts import base64_text, block_text, blocks_of, picture_of, result_parts
from wharfinger.chat.model_clients.model_errors import ModelError
from wharfinger.chat.model_clients.openai_chat import error_text, openai_headers
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

__all__ = ["OllamaAnswerReader", "ollama_body", "ollama_headers"]

STOP_REASONS = {"stop": "endTurn", "length": "maxTokens"}
DEFAULT_WINDOW_TOKENS = 4096
"""The context window that Ollama gives a model by default."""
MAX_WINDOW_TOKENS = 65_536
"""The largest context window that a request asks for."""
ANSWER_TOKENS = 1024
"""Tokens of the window that are kept free for the answer."""
BYTES_PER_TOKEN = 3
"""A cautious estimate: Ollama cuts the beginning of a conversation that is longer than the window, without an error.

A Chinese character has three bytes, and often a token of its own."""

ollama_headers = openai_headers
"""The key in OLLAMA_API_KEY is for Ollama's cloud, or for a server behind a proxy."""


def ollama_body(choice: ModelChoice, request: AnswerRequest, omit: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the body of a request, without the members in `omit`. Asks for a window in which the conversation fits."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    names: dict[str, str] = {}
    for message in request.messages:
        messages += write_message(message, names)
    options: dict[str, Any] = {}
    if request.max_tokens is not None:
        options["num_predict"] = request.max_tokens
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.stop_sequences:
        options["stop"] = request.stop_sequences
    texts: list[dict[str, Any]] = [{**message, "images": []} for message in messages]
    tokens = len(msgspec.json.encode([texts, request.tools])) // BYTES_PER_TOKEN + ANSWER_TOKENS
    if tokens > DEFAULT_WINDOW_TOKENS:  # a power of two: Ollama loads the model again whenever the window changes
        options["num_ctx"] = min(1 << (tokens - 1).bit_length(), MAX_WINDOW_TOKENS)
    body: dict[str, Any] = {"model": choice.name, "messages": messages, "stream": True, "options": options}
    if request.tools:
        body["tools"] = request.tools
    return {name: value for name, value in body.items() if name not in omit}


def write_message(message: t.SamplingMessage, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return one message of MCP as messages of the API.

    `names` collects the tool of each call by its id, since a later message with the result must name the tool.
    """
    texts: list[str] = []
    pictures: list[str] = []
    calls: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for block in blocks_of(message):
        if isinstance(block, t.ToolUseContent):
            names[block.id] = block.name
            calls.append({"function": {"name": block.name, "arguments": block.input}})
        elif isinstance(block, t.ToolResultContent):
            text, result_pictures = result_parts(block)
            text = f"Error: {text}" if block.is_error is True else text or "(no content)"
            messages.append({"role": "tool", "tool_name": names.get(block.tool_use_id, ""), "content": text})
            pictures += [base64_text(picture.data) for picture in result_pictures]
        elif (picture := picture_of(block)) is not None:
            pictures.append(base64_text(picture.data))
        else:
            texts.append(block_text(block))
    if texts or calls or pictures:
        content = "\n\n".join(texts) or ("Pictures in the results:" if messages and pictures else "")
        tool_calls = {"tool_calls": calls} if calls else {}
        images = {"images": pictures} if pictures else {}
        messages.append({"role": message.role, "content": content, **tool_calls, **images})
    return messages


class OllamaAnswerReader:
    """Reads the lines of a streamed answer. A tool call comes whole, in one line."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls = ToolCallPieces()
        self._call_count = 0
        self._reason = ""
        self._usage = Usage()
        self._model = ""
        self._done = False

    def feed(self, data: bytes) -> str:
        """Read one line. Returns the text that it adds; raises ModelError."""
        line = decode_object(data)
        if line.get("error"):
            raise ModelError(f"The endpoint reports an error: {error_text(line)}.")
        self._model = as_text(line.get("model")) or self._model
        message = as_object(line.get("message"))
        added = as_text(message.get("content"))
        self._calls.count_text(added)
        self._text.append(added)
        for call in as_list(message.get("tool_calls")):
            function = as_object(as_object(call).get("function"))
            arguments = msgspec.json.encode(function.get("arguments") or {}).decode()
            self._calls.add(
                self._call_count, as_text(as_object(call).get("id")), as_text(function.get("name")), arguments
            )
            self._call_count += 1
        if line.get("done") is True:
            self._done = True
            self._reason = as_text(line.get("done_reason"))
            self._usage = Usage(as_number(line.get("prompt_eval_count")), as_number(line.get("eval_count")))
        return added

    def finish(self) -> ModelAnswer:
        """Return the answer. Raises ModelError if the stream ended before the answer was complete."""
        if not self._done:
            raise ModelError("The endpoint closed the connection in the middle of the answer: ask again.")
        calls, invalid = self._calls.finish()
        reason = "toolUse" if calls else STOP_REASONS.get(self._reason, self._reason or "endTurn")
        return ModelAnswer("".join(self._text), calls, reason, self._usage, self._model, invalid)
