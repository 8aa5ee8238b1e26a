"""Sampling: requests of a server to its client's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, UnsetType, field

from .base import JSONObject, Meta, Result, Role, WireStruct
from .content import SamplingContent, TextContent, ToolResultContent, ToolUseContent
from .requests import TaskAugmentedRequestParams
from .tools import Tool

__all__ = [
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "ToolChoice",
    "check_tool_use",
]


class ModelHint(WireStruct, kw_only=True):
    """Part of the name of a suitable model."""

    name: str | UnsetType = UNSET


class ModelPreferences(WireStruct, kw_only=True):
    """Priorities in the choice of a model, each from 0 to 1. Hints are tried first, in their order."""

    hints: list[ModelHint] | UnsetType = UNSET
    cost_priority: float | UnsetType = UNSET
    speed_priority: float | UnsetType = UNSET
    intelligence_priority: float | UnsetType = UNSET


class ToolChoice(WireStruct, kw_only=True):
    """Whether the model may, must or must not use tools; by default it may."""

    mode: Literal["auto", "required", "none"] | UnsetType = UNSET


class SamplingMessage(WireStruct, kw_only=True):
    """One message to the model; several blocks are allowed since 2025-11-25."""

    role: Role
    content: SamplingContent | list[SamplingContent]
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


def check_tool_use(messages: Sequence[SamplingMessage]) -> None:
    """Check that the message after a use of tools has their results, and nothing else (2026-07-28, sampling).

    Raises:
        ValueError: a tool use has no result there, or a result has no tool use before it (the message names their ids);
            or results are repeated, are not in a user message, or are mixed with other content.
    """
    open_uses: set[str] = set()
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)]
        if results and len(results) < len(blocks):
            raise ValueError("A message with tool results must contain nothing else.")
        if results and message.role != "user":
            raise ValueError("Tool results must be in a user message.")
        if len(set(results)) < len(results):
            raise ValueError("A message has two results of the same tool use.")
        if wrong := open_uses.symmetric_difference(results):
            raise ValueError(f"Each tool use needs one result, in the next message. These do not match: {_ids(wrong)}.")
        open_uses = {block.id for block in blocks if isinstance(block, ToolUseContent)}
    if open_uses:
        raise ValueError(
            f"Each tool use needs one result, in the next message. No message follows these: {_ids(open_uses)}."
        )


def _ids(ids: set[str]) -> str:
    """Return at most 8 ids, shortened: they may come from a peer."""
    return ", ".join(id[:64] for id in sorted(ids)[:8])


class CreateMessageRequestParams(TaskAugmentedRequestParams, kw_only=True):
    """Params of `sampling/createMessage`; the client may change or refuse the request."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    include_context: Literal["none", "thisServer", "allServers"] | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    metadata: JSONObject | UnsetType = UNSET
    tools: list[Tool] | UnsetType = UNSET
    tool_choice: ToolChoice | UnsetType = UNSET


class CreateMessageResult(Result, kw_only=True):
    """Result of `sampling/createMessage`; known stop reasons are endTurn, stopSequence, maxTokens and toolUse."""

    model: str
    role: Role
    content: SamplingContent | list[SamplingContent]
    stop_reason: str | UnsetType = UNSET

    @property
    def blocks(self) -> list[SamplingContent]:
        """The content as a list of blocks."""
        return self.content if isinstance(self.content, list) else [self.content]

    @property
    def text(self) -> str:
        """The text blocks of the model's answer, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextContent))
