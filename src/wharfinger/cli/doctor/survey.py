"""The data about a server that `wharfinger doctor` checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wharfinger import types as t

__all__ = [
    "CHARACTERS_PER_TOKEN",
    "SampleRead",
    "Survey",
    "SurveyedList",
    "ToolCost",
    "app_uri_of",
    "as_json",
    "text_of",
    "tokens",
    "tool_costs",
]

CHARACTERS_PER_TOKEN = 4
"""An estimate, because tokenizers differ."""


class SurveyedList(msgspec.Struct, kw_only=True):
    """One list: its items, whether items were left out, and the error if it failed."""

    items: list[Any] = []
    largest_page: int = 0
    """The number of items on the largest page."""
    more: bool = False
    error: str = ""


class SampleRead(msgspec.Struct, frozen=True, kw_only=True):
    """One resource that was read: its contents, or the error."""

    contents: tuple[t.ResourceContents, ...] = ()
    error: str = ""


class Survey(msgspec.Struct, kw_only=True):
    """The data that was collected about a server."""

    name: str = ""
    version: str = ""
    instructions: str = ""
    capabilities: t.ServerCapabilities
    supported: tuple[str, ...] = ()
    """The protocol revisions that the server speaks, newest first."""
    unsupported: tuple[str, ...] = ()
    """The protocol revisions that were tried without success."""
    tools: SurveyedList
    prompts: SurveyedList
    resources: SurveyedList
    templates: SurveyedList
    reads: Mapping[str, SampleRead] = {}
    """The resources that were read, by URI."""


class ToolCost(msgspec.Struct, frozen=True):
    """The estimated tokens that a tool's definition takes in every conversation."""

    name: str
    tokens: int


def tokens(text: str) -> int:
    """Estimate the number of tokens of a text."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def tool_costs(survey: Survey) -> list[ToolCost]:
    """Estimate the tokens of each tool's name, description and input schema, which hosts send; largest first."""
    costs = [
        ToolCost(tool.name, tokens(as_json([tool.name, text_of(tool.description), tool.input_schema])))
        for tool in survey.tools.items
    ]
    return sorted(costs, key=lambda cost: -cost.tokens)


def as_json(value: Any) -> str:
    """Write a value as JSON without spaces."""
    return msgspec.json.encode(value).decode()


def text_of(value: Any) -> str:
    """Return an optional text without the white space around it, or an empty string if it is absent."""
    return value.strip() if isinstance(value, str) else ""


def app_uri_of(tool: Any) -> str:
    """Return the URI of the MCP App that shows a tool's results, or an empty string."""
    meta: Any = tool.meta or {}
    ui: Any = meta.get("ui") if isinstance(meta, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return text_of(ui.get("resourceUri")) if isinstance(ui, dict) else ""  # pyright: ignore[reportUnknownMemberType]
