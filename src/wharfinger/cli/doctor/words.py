"""Checks of what models and people read: names, descriptions, titles, arguments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from wharfinger.cli.doctor.offer import Finding, Offer, found, said

__all__ = ["MANY_RESOURCES", "check_arguments", "check_descriptions", "check_names", "check_titles"]

LONG_NAME = 64
"""Characters of a tool's name that models' interfaces take, with what a host puts before it."""
LONG_DESCRIPTION = 1024
MANY_RESOURCES = 200

VAGUE = frozenset(
    {
        "action", "add", "api", "call", "check", "cmd", "command", "create", "data", "delete", "do", "execute",
        "fetch", "find", "fn", "foo", "func", "function", "get", "go", "handle", "handler", "helper", "info",
        "input", "item", "list", "main", "manage", "method", "misc", "my_function", "my_tool", "new", "object",
        "op", "operation", "output", "post", "process", "put", "query", "read", "request", "run", "save",
        "send", "set", "start", "stuff", "submit", "task", "test", "thing", "tool", "update", "use", "util",
        "utils", "value", "work", "write",
    }
)  # fmt: skip
_NUMBERED = re.compile(r"(?:tool|func|function|command|action|prompt|resource|test|item|thing)[_-]?\d+")
_PORTABLE = re.compile(r"[A-Za-z0-9_-]+")
_ALLOWED = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
# What mirrors and hosts' own conventions are called, and so mean something: `search` and `fetch` of connectors.
MEANT = frozenset({"search", "fetch", "query"})


def _is_vague(name: str) -> bool:
    plain = name.casefold()
    return plain not in MEANT and (plain in VAGUE or _NUMBERED.fullmatch(plain) is not None or len(plain) < 3)


def check_names(offer: Offer) -> Iterator[Finding]:
    """Names that models confuse, or that hosts cannot send."""
    for kind, listed in (("tools", offer.tools), ("prompts", offer.prompts)):
        names = [item.name for item in listed.items]
        counted = Counter(names)
        yield from found(
            "problem",
            "duplicate-name",
            f"Several {kind} have the same name",
            (name for name, number in counted.items() if number > 1),
            "Only one of them can be called: rename the others.",
        )
        alike: dict[str, list[str]] = {}
        for name in counted:
            alike.setdefault(re.sub(r"[^a-z0-9]", "", name.casefold()), []).append(name)
        yield from found(
            "advice",
            "confusable-names",
            f"Names of {kind} differ only in case or punctuation",
            (" / ".join(same) for same in alike.values() if len(same) > 1),
            "A model mixes them up: give them names that say how they differ.",
        )
        yield from found(
            "advice",
            "vague-name",
            f"Names of {kind} say nothing",
            (name for name in counted if _is_vague(name)),
            "Name what it does to what, such as find_berth: a model sees it among the tools of other servers.",
        )
    yield from _tool_names([tool.name for tool in offer.tools.items], offer.name)


def _tool_names(names: list[str], server: str) -> Iterator[Finding]:
    yield from found(
        "problem",
        "invalid-name",
        "Names of tools have characters that the protocol does not allow, or more than 128",
        (repr(name) for name in names if not _ALLOWED.fullmatch(name)),
        "Use letters, digits, '_' and '-'.",
    )
    yield from found(
        "advice",
        "unportable-name",
        "Names of tools have '.' or '/'",
        (name for name in names if _ALLOWED.fullmatch(name) and not _PORTABLE.fullmatch(name)),
        "Models' interfaces take letters, digits, '_' and '-': hosts must rename these, or leave them out.",
    )
    prefix = f"mcp__{re.sub(r'[^A-Za-z0-9_-]', '_', server)}__"
    yield from found(
        "problem",
        "long-name",
        f"Names of tools have more than {LONG_NAME} characters",
        (name for name in names if LONG_NAME < len(name) <= 128),
        f"Models' interfaces take {LONG_NAME}.",
    )
    yield from found(
        "advice",
        "long-name-with-prefix",
        f"Names of tools have more than {LONG_NAME} characters as hosts write them ({prefix}…)",
        (name for name in names if len(name) <= LONG_NAME < len(prefix) + len(name)),
        "Shorten the name of the tool, or of the server.",
    )


# -- descriptions


def check_descriptions(offer: Offer) -> Iterator[Finding]:
    """Descriptions that are missing, too short or too long."""
    for kind, listed in (("tools", offer.tools), ("prompts", offer.prompts)):
        yield from found(
            "problem",
            "no-description",
            f"{kind} without a description".capitalize(),
            (item.name for item in listed.items if not said(item.description)),
            "It is what they are chosen by: write a docstring, or pass description=.",
        )
        yield from found(
            "advice",
            "short-description",
            f"Descriptions of {kind} hardly say more than the name",
            (item.name for item in listed.items if 0 < len(said(item.description)) < 12),
            "Say what it does, when to use it, and what comes back.",
        )
        yield from found(
            "advice",
            "long-description",
            f"Descriptions of {kind} have more than {LONG_DESCRIPTION:,} characters",
            (item.name for item in listed.items if len(said(item.description)) > LONG_DESCRIPTION),
            "They are in every conversation, and some hosts cut them: keep what a choice needs.",
        )
    yield from found(
        "advice",
        "no-description",
        "Resource templates without a description",
        (item.uri_template for item in offer.templates.items if not said(item.description)),
        "Say what their variables mean: it is all that a person or model knows of them.",
    )
    few = offer.resources.items if len(offer.resources.items) <= MANY_RESOURCES else ()
    yield from found(
        "advice",
        "no-description",
        "Resources without a description or a title",
        (item.uri for item in few if not said(item.description) and not said(item.title)),
        "Menus show it beside the name: pass title= or description=.",
    )


def check_titles(offer: Offer) -> Iterator[Finding]:
    """Titles, which people read where models read names."""
    for kind, listed in (("tools", offer.tools), ("prompts", offer.prompts)):
        yield from found(
            "advice",
            "no-title",
            f"{kind} without a title".capitalize(),
            (item.name for item in listed.items if not _title(item)),
            "Menus show it instead of the name: pass title=.",
        )


def _title(item: Any) -> str:
    annotations = getattr(item, "annotations", None)
    return said(item.title) or said(getattr(annotations, "title", ""))


def check_arguments(offer: Offer) -> Iterator[Finding]:
    """Arguments that nobody can know how to fill."""
    untold: list[str] = []
    untyped: list[str] = []
    for tool in offer.tools.items:
        for name, schema in _properties(tool.input_schema).items():
            described = isinstance(schema, dict) and said(schema.get("description"))  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
            if not described:
                untold.append(f"{tool.name}.{name}")
            if schema is True or schema == {} or (isinstance(schema, dict) and not _TYPED & schema.keys()):
                untyped.append(f"{tool.name}.{name}")
    for prompt in offer.prompts.items:
        arguments = prompt.arguments or ()
        untold += [f"{prompt.name}.{argument.name}" for argument in arguments if not said(argument.description)]
    yield from found(
        "advice",
        "argument-without-description",
        "Arguments without a description",
        untold,
        'Say what goes in, with unit and form: `Args:` in the docstring, or Annotated[str, "…"].',
    )
    yield from found(
        "advice",
        "argument-without-type",
        "Arguments without a type",
        untyped,
        "A model sends anything: annotate the parameter.",
    )


_TYPED = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"})


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]
