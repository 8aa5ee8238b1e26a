"""Checks of tools: schemas, annotations, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wharfinger.cli.doctor.offer import Finding, Offer, Severity, as_json, costs, found
from wharfinger.cli.doctor.words import MANY_RESOURCES

__all__ = ["check_amount", "check_annotations", "check_schemas"]

LARGE_SCHEMA = 8192
"""Characters of one tool's input schema, as JSON."""
COSTLY = 20_000
"""Tokens of all tools together: a tenth of a context window that is common."""
MANY_TOOLS, TOO_MANY_TOOLS = 40, 128


def check_schemas(offer: Offer) -> Iterator[Finding]:
    """Input schemas that hosts or models do not take."""
    tools = [tool for tool in offer.tools.items if isinstance(tool.input_schema, dict)]
    rows: tuple[tuple[Severity, str, str, Callable[[dict[str, Any]], bool], str], ...] = (
        ("problem", "schema-not-object", "Input schemas are not those of an object", _not_object,
         'Arguments are a JSON object: write "type": "object" at the root.'),
        ("advice", "schema-choice", "Input schemas have oneOf, anyOf or allOf at the root", _chooses_at_root,
         "Several models' interfaces refuse that: put the choice into a property."),
        ("problem", "schema-reaches-out", "Input schemas refer to something outside of them", _reaches_out,
         "Nobody fetches it: copy it into $defs."),
        ("advice", "large-schema", f"Input schemas have more than {LARGE_SCHEMA:,} characters",
         lambda schema: len(as_json(schema)) > LARGE_SCHEMA,
         "All of it is in every conversation: split the tool, or take fewer arguments."),
    )  # fmt: skip
    for severity, name, what, is_so, change in rows:
        yield from found(severity, name, what, (tool.name for tool in tools if is_so(tool.input_schema)), change)
    yield from found(
        "problem",
        "invalid-header",
        "Tools have an x-mcp-header that cannot be",
        (f"{tool.name} ({problem})" for tool in tools if (problem := _header_problem(tool.input_schema))),
        "Clients of stateless HTTP must leave these tools out.",
    )


def _not_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") != "object"


def _chooses_at_root(schema: dict[str, Any]) -> bool:
    return bool({"oneOf", "anyOf", "allOf"} & schema.keys())


def _reaches_out(schema: dict[str, Any]) -> bool:
    """Whether a reference leads out of the schema; bounded, since the schema is a stranger's."""
    stack: list[Any] = [schema]
    for _ in range(20_000):
        if not stack:
            return False
        node = stack.pop()
        if isinstance(node, dict):
            reference: Any = node.get("$ref")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
            if isinstance(reference, str) and "://" in reference:
                return True
            stack += node.values()  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(node, list):
            stack += node  # pyright: ignore[reportUnknownArgumentType]
    return False


def _header_problem(schema: dict[str, Any]) -> str:
    from wharfinger.protocol.http.headers import InvalidHeaderAnnotation, find_header_params

    try:
        find_header_params(schema)
    except InvalidHeaderAnnotation as error:
        return str(error)
    return ""


def check_annotations(offer: Offer) -> Iterator[Finding]:
    """Hints by which hosts decide whether to ask before a call."""
    hinted = [(tool.name, tool.annotations) for tool in offer.tools.items]
    yield from found(
        "advice",
        "no-annotations",
        "Tools do not say whether they change anything",
        (name for name, hints in hinted if not _says_whether_it_changes(hints)),
        "Hosts ask a person before each call: set readOnlyHint, and destructiveHint where it changes something.",
    )
    yield from found(
        "problem",
        "contradicting-annotations",
        "Tools say that they change nothing and that they destroy",
        (
            name
            for name, hints in hinted
            if getattr(hints, "read_only_hint", None) is True and getattr(hints, "destructive_hint", None) is True
        ),
        "Set one of readOnlyHint and destructiveHint.",
    )


def _says_whether_it_changes(hints: Any) -> bool:
    """Whether the hints tell a host what it asks about: what destroys is not read-only, as the specification has it."""
    return any(getattr(hints, hint, None) in (True, False) for hint in ("read_only_hint", "destructive_hint"))


def check_amount(offer: Offer) -> Iterator[Finding]:
    """More than hosts and models can take."""
    number = len(offer.tools.items)
    if number > MANY_TOOLS:
        yield Finding(
            severity="problem" if number > TOO_MANY_TOOLS else "advice",
            check="many-tools",
            what=f"The server has {number}{' or more' if offer.tools.more else ''} tools.",
            change=(
                f"Hosts send at most {TOO_MANY_TOOLS} of all servers together: split the server, or merge tools."
                if number > TOO_MANY_TOOLS
                else "Models choose worse among many: merge some, or split the server."
            ),
        )
    total = sum(cost.tokens for cost in costs(offer))
    if total > COSTLY:
        yield Finding(
            severity="advice",
            check="costly-tools",
            what=f"The tools' definitions take about {total:,} tokens of every conversation.",
            change="Shorten the dearest ones: descriptions, enums, nested objects.",
        )
    resources = len(offer.resources.items)
    if resources > MANY_RESOURCES:
        yield Finding(
            severity="advice",
            check="many-resources",
            what=f"The server lists {resources:,}{' or more' if offer.resources.more else ''} resources.",
            change="Some hosts put all of it into a menu or a prompt: list what matters, reach the rest by a template.",
        )
