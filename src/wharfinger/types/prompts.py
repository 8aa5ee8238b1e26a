"""Prompts: templates of messages for a user to choose."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, ValidationError, field

from .base import Icon, Meta, PaginatedResult, Result, Role, WireStruct
from .content import Content, decode_content, split_content
from .requests import InputResponseRequestParams

__all__ = [
    "GetPromptRequestParams",
    "GetPromptResult",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "decode_get_prompt_result",
]


class PromptArgument(WireStruct, kw_only=True):
    """One argument of a prompt; it is optional unless `required` is set."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class Prompt(WireStruct, kw_only=True):
    """A template of one or more messages, for a user to choose."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    arguments: list[PromptArgument] | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class PromptMessage(WireStruct, kw_only=True):
    """One message of a prompt with its arguments filled in."""

    role: Role
    content: Content


class ListPromptsResult(PaginatedResult, kw_only=True):
    """Result of `prompts/list`."""

    prompts: list[Prompt]


class GetPromptRequestParams(InputResponseRequestParams, kw_only=True):
    """Params of `prompts/get`; all arguments are strings."""

    name: str
    arguments: Mapping[str, str] | UnsetType = UNSET


class GetPromptResult(Result, kw_only=True):
    """Result of `prompts/get`."""

    messages: list[PromptMessage]
    description: str | UnsetType = UNSET


class _RawMessage(Struct, gc=False):
    role: Role
    content: Raw


def decode_get_prompt_result(raw: Raw | bytes) -> GetPromptResult:
    """Decode a result of a peer; content of unknown types becomes `UnknownContent`.

    Raises:
        msgspec.ValidationError: it is not a valid result.
    """
    try:
        return msgspec.json.decode(raw, type=GetPromptResult)
    except ValidationError:
        result, items = split_content(raw, GetPromptResult, "messages")
        messages = [msgspec.json.decode(item, type=_RawMessage) for item in items]
        result.messages = [PromptMessage(role=m.role, content=decode_content(m.content)) for m in messages]
        return result
