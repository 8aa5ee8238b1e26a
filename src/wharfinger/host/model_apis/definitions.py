"""Definitions of tools for a model API: names and schemas that it accepts, and a report of dropped keywords."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UnsetType

from wharfinger import types as t
from wharfinger.content.text import printable
from wharfinger.host.model_apis.api_table import ModelAPI
from wharfinger.host.model_apis.narrowing import NarrowedSchema, NotExpressible, narrow

__all__ = ["DroppedFromTool", "OfferedTool", "ToolDefinitions", "accepted_names", "define_tools", "narrowed_schema"]

MAX_NAME_CHARACTERS = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}").fullmatch
"""A name that every API accepts: the intersection of their rules."""


class OfferedTool(NamedTuple):
    """A tool and its public name in the host."""

    name: str
    tool: t.Tool


class DroppedFromTool(msgspec.Struct, frozen=True):
    """A part of a tool that an API does not accept."""

    tool: str
    """The public name of the tool."""
    path: str
    """The place in its schema, such as `properties.when`; empty for the root or the tool itself."""
    keyword: str
    reason: str

    def __str__(self) -> str:
        path = ".".join(filter(None, [self.path, self.keyword]))
        return f"{self.tool}: {path}: {self.reason}" if path else f"{self.tool}: {self.reason}"


class ToolDefinitions(list[dict[str, Any]]):
    """The definitions to pass as `tools` to an API's client, with the names and parts that were changed."""

    def __init__(
        self, items: Iterable[dict[str, Any]], format: str, names: Mapping[str, str], dropped: list[DroppedFromTool]
    ) -> None:
        super().__init__(items)
        self.format = format
        self.names = dict(names)
        """The public name of each tool, by its name in the definitions."""
        self.resource_tools: Mapping[str, str] = {}
        """The original names of the tools that `resources=True` added, by their public names."""
        self.dropped = dropped
        """The parts of the tools that the API does not accept. Restrictions of values are repeated in descriptions."""


def accepted_names(names: Iterable[str]) -> dict[str, str]:
    """Return the original names of tools, by the names that are sent, which every API accepts.

    A name that is accepted stays as it is. Any other gets a suffix made from its original form, and not from other
    tools, so that a call does not reach a tool that came later. It gets another suffix only if another tool has
    exactly the resulting name.
    """
    originals = dict.fromkeys(names)
    accepted = {name: name for name in originals if _NAME(name)}
    for name in originals:
        if name in accepted:
            continue
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        words = re.sub(r"[^A-Za-z0-9_-]+", "_", name)
        words = words if words[:1].isalpha() or words[:1] == "_" else f"_{words}"
        while (new := f"{words[: MAX_NAME_CHARACTERS - 9]}_{digest[:8]}") in accepted:
            digest = hashlib.sha256(digest.encode()).hexdigest()
        accepted[new] = name
    return accepted


def narrowed_schema(tool: t.Tool, api: ModelAPI, *, strict: bool = False) -> tuple[NarrowedSchema, str]:
    """Return the schema for an API, and why it could not be strict, or an empty string."""
    if strict and api.strict_rules is not None:
        try:
            return narrow(tool.input_schema, api.strict_rules), ""
        except NotExpressible as error:
            return narrow(tool.input_schema, api.rules), str(error)
    return narrow(tool.input_schema, api.rules), ""


def define_tools(tools: Iterable[OfferedTool], api: ModelAPI, *, strict: bool = False) -> ToolDefinitions:
    """Return the definitions of tools for an API, in their order.

    With `strict` the API guarantees that arguments match the schema. A tool whose schema strict mode cannot express is
    defined without it, and reported.

    Raises:
        ValueError: the API has no strict mode.
    """
    if strict and api.strict_rules is None:
        raise ValueError(f"{api.title} has no strict mode: leave out strict=True.")
    by_name = {offered.name: offered.tool for offered in tools}
    dropped: list[DroppedFromTool] = []
    names: dict[str, str] = {}
    definitions: list[dict[str, Any]] = []
    accepted = {original: name for name, original in accepted_names(by_name).items()}
    for original, tool in by_name.items():
        name = accepted[original]
        shown_name = printable(original, 128)
        if api.max_tools is not None and len(definitions) >= api.max_tools:
            dropped.append(DroppedFromTool(shown_name, "", "", f"left out: {api.title} takes {api.max_tools} tools"))
            continue
        narrowed, why_not_strict = narrowed_schema(tool, api, strict=strict)
        dropped += [DroppedFromTool(shown_name, each.path, each.keyword, each.reason) for each in narrowed.dropped]
        if why_not_strict:
            dropped.append(DroppedFromTool(shown_name, "", "strict", f"not strict: {why_not_strict}"))
        description, schema = _description(tool, narrowed.schema, api.max_description_characters)
        definitions.append(api.define(name, description, schema, strict and not why_not_strict))
        names[name] = original
    return ToolDefinitions(api.gather(definitions), api.name, names, dropped)


def _description(tool: t.Tool, schema: dict[str, Any], limit: int | None) -> tuple[str, dict[str, Any]]:
    """Return the description and the schema. A description over the limit continues in the root of the schema."""
    title = tool.title if not isinstance(tool.title, UnsetType) else ""
    text = tool.description if not isinstance(tool.description, UnsetType) and tool.description.strip() else title
    text = text or tool.name
    if limit is None or len(text) <= limit:
        return text, schema
    end = text.rfind(" ", limit // 2, limit - 2) + 1 or limit - 2
    description = " ".join(filter(None, [f"… {text[end:]}", schema.get("description")]))
    return f"{text[:end].rstrip()} …", {**schema, "description": description}
