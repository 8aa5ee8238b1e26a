"""Sampling: requests of a server to its client's model."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType, field

from .base import JSONObject, Meta, Result, Role, WireStruct
from .content import SamplingContent, TextContent
from .requests import TaskAugmentedRequestParams
from .tools import Tool

__all__ = [
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "ToolChoice",
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
