"""Finds the tool calls in the answer of a model, in each form that an application may have.

An answer may be the object of the API's client, a dict, JSON, or the list of a stream's events. A call may also be
given alone. Each API has one function that returns the calls of a plain value, or None if the value is not of that API.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import msgspec

from wharfinger.content.decoded_json import is_list, is_mapping, is_object

__all__ = [
    "CUT_CALL",
    "ModelToolCall",
    "StreamedCalls",
    "anthropic_calls",
    "chat_calls",
    "gemini_calls",
    "plain_value",
    "response_calls",
]

Plain = dict[str, Any]

MAX_DEPTH = 64
"""Maximum depth of nested objects in an answer."""
MAX_ARGUMENT_CHARACTERS = 4_000_000
"""Maximum length of the arguments of one call. The APIs' own limits on answers are far lower."""
CUT_CALL = "Your answer was cut by its token limit in this call. Call the tool again, with shorter arguments."
"""The error for the model if a call is not complete because the answer reached its token limit."""


class ModelToolCall(msgspec.Struct, frozen=True):
    """A model's call of a tool."""

    id: str
    """The API's identifier of the call; empty if the call has no identifier (Gemini)."""
    name: str
    """The name as the model wrote it."""
    arguments: dict[str, Any]
    fault: str = ""
    """An error for the model if the arguments cannot be used, or an empty string."""


class StreamedCall(msgspec.Struct):
    """A tool call as far as its pieces have arrived."""

    id: str = ""
    name: str = ""
    arguments: list[str] = msgspec.field(default_factory=list[str])
    """The pieces of the arguments, which are JSON only together."""


class StreamedCalls:
    """Joins the pieces of the tool calls in a stream. `calls` has the calls in the order of their first pieces."""

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []
        self._last: dict[int | str, StreamedCall] = {}
        """The last call of each index."""

    def add(self, index: int | str | None, id: str, name: str, arguments: str, *, position: int = 0) -> None:
        """Add a piece to the last call with its index, or begin a new call with it.

        The first piece of a call has the name and usually an id. Some endpoints give several calls the same index, so a
        piece with another id begins a new call. If the ids cannot be compared, a piece with a second name does.

        `index` is None if the endpoint gives none. The position of the piece in its list is then used as the index, and
        ids are not compared, since they may be the same for all calls.
        """
        key = position if index is None else index
        call = self._last.get(key)
        if call is None:
            begins_call = True
        elif index is not None and id and call.id:
            begins_call = id != call.id
        else:
            begins_call = bool(name and call.name)
        if call is None or begins_call:
            call = self._last[key] = StreamedCall()
            self.calls.append(call)
        call.id, call.name = call.id or id, call.name or name
        call.arguments.append(arguments)


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return an answer, or a call, as JSON values: from an API client's object, a struct, a dataclass, or JSON itself.

    Raises:
        ValueError: it is a text that is not JSON, or is nested too deeply.
        TypeError: it has another type.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"The answer has more than {MAX_DEPTH} levels of objects.")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | bytes):
        if depth:
            return value
        try:
            return plain_value(msgspec.json.decode(value), 1)
        except (msgspec.MsgspecError, UnicodeEncodeError) as error:
            raise ValueError(f"The answer of the model is not JSON: {error}") from None
        except RecursionError:
            raise ValueError(f"The answer has more than {MAX_DEPTH} levels of objects.") from None
    if is_mapping(value):
        return {str(key): plain_value(member, depth + 1) for key, member in value.items()}
    if _is_sequence(value):
        return [plain_value(item, depth + 1) for item in value]
    if hasattr(value, "model_dump"):  # a pydantic model, as the clients of all three providers return
        return value.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain_value(dataclasses.asdict(value), depth)
    raise TypeError(f"The answer of a model is an object of its client, a dict or JSON, not {type(value).__name__}.")


def _is_sequence(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


# --- OpenAI, Chat Completions -----------------------------------------------------------------------------------------


def chat_calls(value: Any) -> list[ModelToolCall] | None:
    """Return the calls of a completion, a message, one call, or the chunks of a stream."""
    if is_list(value):
        items = _objects(value)
        if any("delta" in choice for item in items for choice in _objects(item.get("choices"))):
            return _joined_chunks(items)
        if items and all("choices" in item for item in items):
            return []  # a stream without any delta
        return _all_calls(items, chat_calls)
    if not is_object(value):
        return None
    if _kind(value) == "function" and is_object(value.get("function")):
        return [_chat_call(value)]
    if is_list(value.get("choices")):
        choices = _objects(value["choices"])
        if any("delta" in choice for choice in choices):
            return _joined_chunks([value])
        if not choices:
            return []
        calls = chat_calls(choices[0].get("message")) or []  # a message without calls may have content of any type
        return _check_last_call(calls, choices[0].get("finish_reason"))
    if is_list(value.get("tool_calls")):
        return [_chat_call(call) for call in _objects(value["tool_calls"]) if is_object(call.get("function"))]
    plain_message = value.get("role") == "assistant" and isinstance(value.get("content") or "", str)
    return [] if value == {} or plain_message else None


def _chat_call(call: Plain) -> ModelToolCall:
    function: Plain = call["function"]
    return _tool_call(call.get("id"), function.get("name"), function.get("arguments"))


def _joined_chunks(chunks: list[Plain]) -> list[ModelToolCall]:
    """Return the calls in the chunks of a stream, each joined from its pieces."""
    joined = StreamedCalls()
    reason = None
    for chunk in chunks:
        # With `n`, a stream has several answers. Only the first one is used.
        choices = [choice for choice in _objects(chunk.get("choices")) if not choice.get("index")]
        for choice in choices:
            reason = choice.get("finish_reason") or reason
        for delta in (choice["delta"] for choice in choices if is_object(choice.get("delta"))):
            for position, piece in enumerate(_objects(delta.get("tool_calls"))):
                function: Plain = piece["function"] if is_object(piece.get("function")) else {}
                index = piece.get("index")
                joined.add(
                    index if isinstance(index, int | str) else None,
                    _string(piece.get("id")),
                    _string(function.get("name")),
                    _string(function.get("arguments")),
                    position=position,
                )
    calls = [_tool_call(call.id, call.name, "".join(call.arguments)) for call in joined.calls]
    return _check_last_call(calls, reason)


def _check_last_call(calls: list[ModelToolCall], finish_reason: Any) -> list[ModelToolCall]:
    """Return the calls of an answer. If it was cut by its token limit, the last call may have only part of its JSON."""
    if finish_reason == "length" and calls and (calls[-1].fault or not calls[-1].arguments):
        return [*calls[:-1], _cut_call(calls[-1])]
    return calls


# --- OpenAI, Responses ------------------------------------------------------------------------------------------------


def response_calls(value: Any) -> list[ModelToolCall] | None:
    """Return the calls of a response, its output, one item, or the events of a stream."""
    if is_list(value):
        items = _objects(value)
        if any(_kind(item).startswith("response.") for item in items):
            finished = [item["item"] for item in items if _kind(item) == "response.output_item.done" and "item" in item]
            ends = ("response.completed", "response.incomplete")
            responses = [item["response"] for item in items if _kind(item) in ends and "response" in item]
            # An item that the token limit cut may be in the whole response only, which some endpoints leave empty.
            return max(_calls_in(finished), _calls_in(responses), key=len)
        if not any(_is_output(item) or is_list(item.get("output")) for item in items):
            return None
        return _calls_in(items)
    if not is_object(value):
        return None
    if _kind(value) == "function_call":
        call = _tool_call(value.get("call_id"), value.get("name"), value.get("arguments"))
        return [_cut_call(call) if value.get("status") == "incomplete" else call]
    if is_list(value.get("output")):
        return _calls_in(_objects(value["output"]))
    return [] if _is_output(value) else None


def _calls_in(items: list[Any]) -> list[ModelToolCall]:
    return [call for item in items for call in response_calls(item) or ()]


def _is_output(item: Plain) -> bool:
    """Return whether this is an item of a response's output, and not a message of Anthropic's."""
    return _kind(item) in ("function_call", "reasoning") or (_kind(item) == "message" and not _is_anthropic(item))


# --- Anthropic, Messages ----------------------------------------------------------------------------------------------


def anthropic_calls(value: Any) -> list[ModelToolCall] | None:
    """Return the calls of a message, its content, one block, or the events of a stream."""
    if is_list(value):
        items = _objects(value)
        if any(_kind(item) in ("message_start", "content_block_start") for item in items):
            ends = [item.get("delta") for item in items if _kind(item) == "message_delta"]
            reason = next((end["stop_reason"] for end in ends if is_object(end) and "stop_reason" in end), None)
            return anthropic_calls({"content": list(_joined_blocks(items)), "stop_reason": reason})
        if not any(_kind(item) in _BLOCKS or _is_anthropic(item) for item in items):
            return None
        return _all_calls(items, anthropic_calls)
    if not is_object(value):
        return None
    if _kind(value) == "tool_use":
        return [_tool_call(value.get("id"), value.get("name"), value.get("input"))]
    if _is_anthropic(value):
        blocks = _objects(value["content"])
        calls = [call for block in blocks for call in anthropic_calls(block) or ()]
        if calls and value.get("stop_reason") == "max_tokens" and _kind(blocks[-1]) == "tool_use":
            calls[-1] = _cut_call(calls[-1])  # its input may be an object, but without its last members
        return calls
    return [] if _kind(value) in _BLOCKS else None


_BLOCKS = frozenset(("tool_use", "text", "thinking", "redacted_thinking", "server_tool_use"))


def _is_anthropic(item: Plain) -> bool:
    """Return whether this is a message of Anthropic's. In OpenAI's Responses, a message has blocks of other types."""
    content = item.get("content")
    if not is_list(content) or item.get("role", "assistant") != "assistant":
        return False
    kinds = {_kind(block) for block in _objects(content)}
    return not kinds & {"output_text", "refusal", "input_text"} and "tool_calls" not in item


def _joined_blocks(events: list[Plain]) -> Iterator[Plain]:
    """Yield the blocks of a stream; the input of a call comes as pieces of its JSON."""
    blocks: dict[str, Plain] = {}
    pieces: dict[str, list[str]] = {}
    for event in events:
        index = str(event.get("index"))
        if _kind(event) == "content_block_start" and is_object(event.get("content_block")):
            blocks[index] = event["content_block"]
        elif _kind(event) == "content_block_delta" and is_object(event.get("delta")):
            pieces.setdefault(index, []).append(_string(event["delta"].get("partial_json")))
    for index, block in blocks.items():
        text = "".join(pieces.get(index, ()))
        yield {**block, "input": text} if text and _kind(block) == "tool_use" else block


# --- Gemini, generateContent ------------------------------------------------------------------------------------------


def gemini_calls(value: Any) -> list[ModelToolCall] | None:
    """Return the calls of a response, a content, its parts, one part or call, or the responses of a stream."""
    if is_list(value):
        return _all_calls(_objects(value), gemini_calls)
    if not is_object(value):
        return None
    if is_list(value.get("candidates")):
        candidates = _objects(value["candidates"])
        # If thinking took all tokens, the content has no parts.
        return gemini_calls(candidates[0].get("content")) or [] if candidates else []
    if is_list(value.get("parts")):
        return [call for part in _objects(value["parts"]) for call in gemini_calls(part) or ()]
    call = value.get("functionCall") or value.get("function_call")
    if is_object(call):
        return gemini_calls(call)
    if isinstance(value.get("name"), str) and not value.keys() & _NOT_GEMINI:
        return [_tool_call(value.get("id"), value["name"], value.get("args"))]
    if value.keys() & _RESPONSE_MEMBERS:
        return []  # an event of a stream, or an answer that was blocked
    return [] if value.keys() & _PART_MEMBERS and "type" not in value else None


_NOT_GEMINI = frozenset(("type", "function", "arguments", "input"))
"""Members of a call of another API, whose arguments would be lost."""
_RESPONSE_MEMBERS = frozenset((
    "usageMetadata", "responseId", "promptFeedback", "usage_metadata", "response_id", "prompt_feedback",
))  # fmt: skip
_PART_MEMBERS = frozenset((
    "text", "thought", "thoughtSignature", "thought_signature", "inlineData", "inline_data", "fileData", "file_data",
    "executableCode", "executable_code", "codeExecutionResult", "code_execution_result",
))  # fmt: skip


# --- shared -----------------------------------------------------------------------------------------------------------


def _kind(item: Plain) -> str:
    """Return the `type` of an object; empty if it has none."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else ""


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _objects(value: Any) -> list[Plain]:
    """Return the objects of a list; an empty list for anything else."""
    return [item for item in value if is_object(item)] if is_list(value) else []


def _all_calls(items: list[Plain], calls_of: Callable[[Any], list[ModelToolCall] | None]) -> list[ModelToolCall] | None:
    """Return the calls of several items, or None if one is not of the API."""
    tool_calls: list[ModelToolCall] = []
    for item in items:
        calls = calls_of(item)
        if calls is None:
            return None
        tool_calls += calls
    return tool_calls


def _cut_call(call: ModelToolCall) -> ModelToolCall:
    return ModelToolCall(call.id, call.name, {}, CUT_CALL)


def _tool_call(identifier: Any, name: Any, arguments: Any) -> ModelToolCall:
    identifier = identifier if isinstance(identifier, str) else ""
    name = name if isinstance(name, str) else ""
    if isinstance(arguments, str):
        if not arguments.strip():
            arguments = None
        elif len(arguments) > MAX_ARGUMENT_CHARACTERS:
            return ModelToolCall(
                identifier, name, {}, f"The arguments have over {MAX_ARGUMENT_CHARACTERS:,} characters."
            )
        else:
            try:
                arguments = msgspec.json.decode(arguments)
            except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
                fault = f"The arguments are not JSON ({error}). Call the tool again, with one JSON object as arguments."
                return ModelToolCall(identifier, name, {}, fault)
    if arguments is None:
        arguments = {}
    if not is_object(arguments):
        fault = "The arguments are not a JSON object. Call the tool again, with one JSON object as arguments."
        return ModelToolCall(identifier, name, {}, fault)
    return ModelToolCall(identifier, name, arguments)
