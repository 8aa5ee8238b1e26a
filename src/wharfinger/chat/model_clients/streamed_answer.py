"""The request to a model, its answer, and the joining of the answer's streamed pieces within bounds."""

from __future__ import annotations

from secrets import token_hex
from typing import Any, Protocol

import msgspec

from wharfinger import types as t
from wharfinger.chat.model_clients.model_errors import ModelError
from wharfinger.host.model_apis.tool_calls import CUT_CALL, StreamedCalls

__all__ = [
    "AnswerReader",
    "AnswerRequest",
    "ModelAnswer",
    "ToolCallPieces",
    "Usage",
    "as_number",
    "as_text",
    "decode_object",
]

MAX_ANSWER_CHARACTERS = 4_000_000
"""Maximum number of characters of one answer, text and tool calls together."""
MAX_TOOL_CALLS = 64
"""Maximum number of tool calls in one answer."""
ENCLOSING_LEVELS = 40
"""Levels that a request may have around the arguments of a call, with the functions that encode it."""


class Usage(msgspec.Struct):
    """Tokens that the endpoint counted. All are 0 if it does not report them."""

    input: int = 0
    """Tokens of the requests."""
    output: int = 0
    """Tokens of the answers."""
    cached: int = 0
    """Tokens of the requests that were in the cache of the endpoint; they also count in `input`."""

    def add(self, other: Usage) -> None:
        """Add the tokens of another request."""
        self.input += other.input
        self.output += other.output
        self.cached += other.cached


class ModelAnswer(msgspec.Struct):
    """One answer of a model: its text, its tool calls, why it stopped, and the tokens.

    `stop_reason` is one of MCP's: endTurn, stopSequence, maxTokens, toolUse, or the API's own word. For each tool
    call whose arguments cannot be used, `invalid` has an error for the model, by the call's id.
    """

    text: str
    calls: list[t.ToolUseContent]
    stop_reason: str
    usage: Usage
    model: str = ""
    invalid: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def content(self) -> list[t.SamplingContent]:
        """The text and the calls as blocks of a message."""
        text: list[t.SamplingContent] = [t.TextContent(text=self.text)] if self.text else []
        return [*text, *self.calls]


class AnswerRequest(msgspec.Struct, kw_only=True):
    """A request: the messages, the system prompt, the tools in the format of the API, and the limit of the answer.

    Without `max_tokens` the limit of the endpoint applies, or `DEFAULT_MAX_TOKENS` for Anthropic's API.
    """

    messages: list[t.SamplingMessage]
    system: str = ""
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    max_tokens: int | None = None
    temperature: float | None = None
    stop_sequences: list[str] = msgspec.field(default_factory=list[str])


class AnswerReader(Protocol):
    """Reads the pieces of one streamed answer."""

    def feed(self, data: bytes) -> str:
        """Read one piece: JSON, or OpenAI's `[DONE]`. Returns the text that it adds, if any; raises ModelError."""
        ...

    def finish(self) -> ModelAnswer:
        """Return the whole answer. Raises ModelError if it is not complete."""
        ...


class ToolCallPieces:
    """Joins tool calls whose arguments arrive as pieces of JSON text, within the bounds of one answer.

    It also counts the text of the answer, so that one limit covers both.
    """

    def __init__(self) -> None:
        self._streamed = StreamedCalls()
        self._size = 0

    def count_text(self, text: str) -> None:
        """Count text of the answer. Raises ModelError if the answer is over the limit."""
        self._size += len(text)
        if self._size > MAX_ANSWER_CHARACTERS:
            raise ModelError(f"The model's answer has more than {MAX_ANSWER_CHARACTERS:,} characters.")

    def add(self, index: int | str | None, id: str, name: str, arguments: str, *, position: int = 0) -> None:
        """Add a piece of a call, as `StreamedCalls.add` does. Raises ModelError if the answer is over a limit."""
        self.count_text(id + name + arguments)
        self._streamed.add(index, id, name, arguments, position=position)
        if len(self._streamed.calls) > MAX_TOOL_CALLS:
            raise ModelError(f"The model calls more than {MAX_TOOL_CALLS} tools at once.")

    def finish(self, *, is_cut: bool = False) -> tuple[list[t.ToolUseContent], dict[str, str]]:
        """Return the calls in order, and errors by the id of each call whose arguments cannot be used.

        If the answer `is_cut` by its token limit, its last call may have only a part of its arguments, or none.
        A call without an id, or with the id of an earlier call, gets a random id.
        """
        calls: list[t.ToolUseContent] = []
        invalid: dict[str, str] = {}
        used: set[str] = set()
        for call in self._streamed.calls:
            # Mistral's API refuses ids that are not 9 letters and digits.
            id = call.id if call.id and call.id not in used else token_hex(5)[:9]
            used.add(id)
            text = "".join(call.arguments)
            try:
                arguments = msgspec.json.decode(text, type=dict[str, Any]) if text.strip() else {}
                msgspec.json.decode("[" * ENCLOSING_LEVELS + text + "]" * ENCLOSING_LEVELS)  # can it be sent again?
            except (msgspec.MsgspecError, RecursionError):
                arguments = {}
                invalid[id] = "The arguments are not a JSON object: send the call again with a valid one."
            calls.append(t.ToolUseContent(id=id, name=call.name, input=arguments))
        if is_cut and calls and not calls[-1].input:
            invalid[calls[-1].id] = CUT_CALL
        return calls, invalid


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode one piece of a stream.

    Raises:
        ModelError: it is not a JSON object.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        raise ModelError(
            "The endpoint's answer is not the JSON of its API: check that the address is that of the API."
        ) from None


def as_text(value: Any) -> str:
    """Return a value of JSON if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


def as_number(value: Any) -> int:
    """Return a value of JSON if it is a whole number of at least 0, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
