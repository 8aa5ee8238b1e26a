"""What was seen of a server, and what is told of it, as data; it refuses to judge, and to connect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from wharfinger import types as t

__all__ = [
    "TOKEN",
    "Cost",
    "Finding",
    "Listed",
    "Offer",
    "Read",
    "Severity",
    "app_of",
    "as_json",
    "costs",
    "found",
    "said",
    "tokens",
]

TOKEN = 4
"""Characters that are counted as one token; models differ, and none has exactly this."""

Severity = Literal["problem", "advice"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to change: `what` is the case in `where`, and `change` says what to do about it."""

    severity: Severity
    check: str
    what: str
    change: str
    where: tuple[str, ...] = ()


class Listed(msgspec.Struct, kw_only=True):
    """One list of the server: its items, how large its largest page was, whether there are more, or why it failed."""

    items: list[Any] = []
    largest_page: int = 0
    more: bool = False
    error: str = ""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """One resource that was read: what came, or why it did not."""

    contents: tuple[t.ResourceContents, ...] = ()
    error: str = ""


class Offer(msgspec.Struct, kw_only=True):
    """Everything that was seen of a server."""

    name: str = ""
    version: str = ""
    instructions: str = ""
    capabilities: t.ServerCapabilities
    revisions: tuple[str, ...] = ()
    """Those that it speaks, newest first."""
    unspoken: tuple[str, ...] = ()
    """Those that were tried in vain."""
    tools: Listed
    prompts: Listed
    resources: Listed
    templates: Listed
    reads: Mapping[str, Read] = {}


class Cost(msgspec.Struct, frozen=True):
    """What one definition takes of a model's context, about."""

    name: str
    tokens: int


def tokens(text: str) -> int:
    """How many tokens a text has, about."""
    return -(-len(text) // TOKEN)


def costs(offer: Offer) -> list[Cost]:
    """What each tool's definition costs, the dearest first: name, description and input schema, as hosts send them."""
    each = [
        Cost(tool.name, tokens(as_json([tool.name, said(tool.description), tool.input_schema])))
        for tool in offer.tools.items
    ]
    return sorted(each, key=lambda cost: -cost.tokens)


def as_json(value: Any) -> str:
    """A value as JSON text, without spaces."""
    return msgspec.json.encode(value).decode()


def said(value: Any) -> str:
    """What may be left out, as text without spaces around it."""
    return value.strip() if isinstance(value, str) else ""


def found(severity: Severity, name: str, what: str, where: Iterable[str], change: str) -> Iterator[Finding]:
    """One finding about several things; none about nothing."""
    places = tuple(where)
    if places:
        yield Finding(severity=severity, check=name, what=what, change=change, where=places)


def app_of(tool: Any) -> str:
    """The URI of the page that shows a tool's results; empty for none."""
    meta: Any = tool.meta or {}
    ui: Any = meta.get("ui") if isinstance(meta, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return said(ui.get("resourceUri")) if isinstance(ui, dict) else ""  # pyright: ignore[reportUnknownMemberType]
