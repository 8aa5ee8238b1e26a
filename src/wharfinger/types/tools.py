"""Tools: definitions, calls and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType, ValidationError, field

from .base import Icon, JSONObject, JSONValue, Meta, PaginatedResult, Result, WireStruct
from .content import Content, decode_content, split_content
from .requests import InputResponseRequestParams, TaskMetadata

__all__ = [
    "CallToolRequestParams",
    "CallToolResult",
    "ListToolsResult",
    "Tool",
    "ToolAnnotations",
    "ToolExecution",
    "decode_call_tool_result",
]


class ToolAnnotations(WireStruct, kw_only=True):
    """Hints of the server about what a tool does.

    Absent hints mean: not read-only, destructive, not idempotent, open world.
    """

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class ToolExecution(WireStruct, kw_only=True):
    """Whether calls of a tool may or must be tasks (2025-11-25); absent means forbidden."""

    task_support: Literal["forbidden", "optional", "required"] | UnsetType = UNSET


class Tool(WireStruct, kw_only=True):
    """A function that a model can call. Both schemas are JSON Schema 2020-12, unless `$schema` names another dialect.

    The schemas are kept as they were sent, including keywords that this package does not know.
    """

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    input_schema: JSONObject
    output_schema: JSONObject | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = UNSET
    execution: ToolExecution | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ListToolsResult(PaginatedResult, kw_only=True):
    """Result of `tools/list`."""

    tools: list[Tool]


class CallToolRequestParams(InputResponseRequestParams, kw_only=True):
    """Params of `tools/call`; `arguments` stay raw JSON for the tool's own decoder, and may be absent."""

    name: str
    arguments: Raw | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET


class CallToolResult(Result, kw_only=True):
    """Result of `tools/call`.

    Since 2026-07-28 `structured_content` may be null: compare it with UNSET. `is_error` means that the tool failed, and
    that the model should read why.
    """

    content: Sequence[Content]
    structured_content: JSONValue = UNSET
    is_error: bool | UnsetType = UNSET


def decode_call_tool_result(raw: Raw | bytes) -> CallToolResult:
    """Read a result of a peer; blocks of unknown types become `UnknownContent`.

    Raises:
        msgspec.ValidationError: it is not a valid result.
    """
    try:
        return msgspec.json.decode(raw, type=CallToolResult)
    except ValidationError:
        result, blocks = split_content(raw, CallToolResult, "content")
        result.content = [decode_content(block) for block in blocks]
        return result
