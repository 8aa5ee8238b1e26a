"""A conversation with a model: its messages, their resources, and the tokens used.

A conversation is always valid for every API: each tool call has its result in the next message, even after Ctrl-C, and
the first message is a question of the user, even after old messages were dropped.
"""

from __future__ import annotations

import time

import msgspec

from wharfinger import types as t
from wharfinger.chat.model_clients.message_parts import blocks_of
from wharfinger.chat.model_clients.streamed_answer import Usage
from wharfinger.content.text import printable

__all__ = ["STOPPED", "Conversation", "stopped_result"]

STOPPED = "The user stopped this call; it may or may not have had an effect."
"""The result of a tool call that was stopped."""
TITLE_CHARACTERS = 80


class Conversation(msgspec.Struct):
    """The messages so far, oldest first. `versions` has the version of each resource that they contain."""

    messages: list[t.SamplingMessage] = msgspec.field(default_factory=list[t.SamplingMessage])
    versions: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    usage: Usage = msgspec.field(default_factory=Usage)
    model: str = ""
    started: float = msgspec.field(default_factory=time.time)
    """Unix time in seconds."""
    title: str = ""
    """The beginning of the first question."""
    format: int = 1
    """The version of the stored form."""

    def add_question(self, question: str, context: list[t.SamplingContent]) -> None:
        """Add a question, preceded by the resources that belong to it."""
        self.title = self.title or printable(question, TITLE_CHARACTERS)
        self.messages.append(t.SamplingMessage(role="user", content=[*context, t.TextContent(text=question)]))

    def add_answer(self, content: list[t.SamplingContent]) -> None:
        """Add an answer of the model. An empty one is not added, because APIs refuse it."""
        if content:
            self.messages.append(t.SamplingMessage(role="assistant", content=content))

    def add_results(self, results: list[t.ToolResultContent]) -> None:
        """Add the results of the tool calls in the last answer."""
        self.messages.append(t.SamplingMessage(role="user", content=[*results]))

    def repair(self) -> None:
        """If the tool calls of the last answer have no results, add results that say that the user stopped them."""
        if not self.messages or self.messages[-1].role != "assistant":
            return
        open_calls = [block for block in blocks_of(self.messages[-1]) if isinstance(block, t.ToolUseContent)]
        if open_calls:
            self.add_results([stopped_result(call.id) for call in open_calls])

    def clear(self) -> None:
        """Forget the messages. Their tokens still count."""
        self.messages.clear()
        self.versions.clear()
        self.title = ""

    def drop_oldest(self) -> list[t.SamplingMessage]:
        """Drop the oldest question with its answer, and return them; an empty list if only one question is left."""
        for index, message in enumerate(self.messages):
            if index and is_question(message):
                dropped, self.messages[:index] = self.messages[:index], []
                self.versions.clear()  # the resources in dropped messages have to be sent again
                return dropped
        return []


def is_question(message: t.SamplingMessage) -> bool:
    """Return whether a message is a question of the user, rather than results of tools."""
    return message.role == "user" and not any(isinstance(b, t.ToolResultContent) for b in blocks_of(message))


def stopped_result(id: str) -> t.ToolResultContent:
    """Return the result of a tool call that was stopped."""
    return t.ToolResultContent(tool_use_id=id, content=[t.TextContent(text=STOPPED)], is_error=True)
