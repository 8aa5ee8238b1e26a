"""Completion of a prompt's argument or a template's variable."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from .base import Result, WireStruct
from .requests import RequestParams

__all__ = [
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "CompletionReference",
    "PromptReference",
    "ResourceReference",
    "ResourceTemplateReference",
]


class PromptReference(WireStruct, kw_only=True, tag_field="type", tag="ref/prompt"):
    """A prompt, by name."""

    name: str
    title: str | UnsetType = UNSET


class ResourceTemplateReference(WireStruct, kw_only=True, tag_field="type", tag="ref/resource"):
    """A resource template, by its text; or a resource, by its URI."""

    uri: str


ResourceReference = ResourceTemplateReference
"""The name in revisions before 2025-06-18."""

CompletionReference = PromptReference | ResourceTemplateReference
"""The prompt or template whose argument or variable is completed."""


class CompletionArgument(WireStruct, kw_only=True):
    """The argument or variable, and the text that was typed."""

    name: str
    value: str


class CompletionContext(WireStruct, kw_only=True):
    """The values of the other arguments or variables."""

    arguments: dict[str, str] | UnsetType = UNSET


class CompleteRequestParams(RequestParams, kw_only=True):
    """Params of `completion/complete`."""

    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = UNSET


class Completion(WireStruct, kw_only=True):
    """At most 100 values; `total` is the number of all matches."""

    values: list[str]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class CompleteResult(Result, kw_only=True):
    """Result of `completion/complete`."""

    completion: Completion
