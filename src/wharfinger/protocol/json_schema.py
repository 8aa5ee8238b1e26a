"""Compiles JSON Schemas that authors or strangers provide, and validates values with them. Never fetches a `$ref`.

jsonschema-rs does the validation. This module bounds its work for any schema:

- The schema: its size, depth and number of subschemas. References must stay inside the schema.
- One value: references and `unevaluated…` keywords multiply, so a few subschemas can be applied to one value, and to
  those that contain it, a very large number of times. This number, the *weight*, is computed in advance, once for each
  subschema. A reference may lead back to a subschema that is being counted, as in the recursive output schemas of some
  tools. If it leads back through a member or an item, it counts as 1, because the validator caches results there. If it
  stays at the same value, the schema is refused.
- Error messages: the validator does not cache results while it collects errors, so the subschemas that it visits are
  counted again, for the depth of the value. Beyond a limit, the message only says that the value does not match.
- Patterns: those of strangers take linear time; those of authors may backtrack, with a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from wharfinger.content.text import printable
from wharfinger.errors import MissingExtra

__all__ = ["DIALECTS", "CompiledSchema", "InvalidSchema", "path_text"]

MAX_DEPTH = 64
"""The maximum number of nested subschemas."""
MAX_SCHEMAS = 2000
MAX_SCHEMA_BYTES = 256 * 1024
"""The maximum size of a schema as JSON."""
MAX_APPLIED_SCHEMAS = 100_000
"""The maximum weight of a schema."""
MAX_EXPLAINED_SCHEMAS = 2_000
"""The maximum number of subschemas visited to collect errors: nested alternatives multiply with each level."""
MAX_COLLECTED_CHECKS = 10_000
"""Errors are collected only if the visited subschemas, times the members and items of the value, are at most this many:
the validator creates every error before it returns the first one, at 10 to 60 µs each."""
MAX_REPORTED_ERRORS = 16
MAX_PATTERN_STEPS = 10_000**2
"""The maximum of `_pattern_steps`, for patterns that may be tried at each character."""
_MAX_BACKTRACKS = 100_000
_MAX_REGEX_BYTES = 1024 * 1024
_MAX_UNTRUSTED_REGEX_BYTES = 64 * 1024
"""The maximum size of one pattern after it is compiled."""

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""The values of `$schema`, without a trailing "#"; the first is the default (2025-11-25, JSON Schema usage)."""

_IN_PLACE = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"))
"""Keywords whose schemas are applied to the same value."""
_INSIDE = frozenset(
    (
        "items",
        "prefixItems",
        "additionalItems",
        "additionalProperties",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
"""Keywords whose schemas are applied to members or items."""
_UNEVALUATED = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))
"""Keywords whose members are names, not keywords."""
_WITHOUT_SCHEMAS = frozenset(("const", "enum", "default", "examples", "required", "type", "x-mcp-header"))
"""Keywords whose values contain no schemas."""
_ALTERNATIVES = frozenset(("anyOf", "oneOf"))
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")


class InvalidSchema(ValueError):
    """The schema cannot be used: it is invalid, in an unknown dialect, refers outside itself, or is over a limit."""


class CompiledSchema:
    """A schema and its validator; `what` names it in errors, such as "input_schema of tool 'berth'".

    Raises:
        InvalidSchema: it cannot be used.
        MissingExtra: the extra `schema` is not installed.
    """

    __slots__ = ("_may_backtrack", "_validator", "_visits", "pattern_count", "schema", "weight")

    schema: dict[str, Any]
    """The schema, unchanged."""
    weight: int
    """The maximum number of subschemas that may apply to one value and to those that contain it, each counted as often
    as it is applied."""
    pattern_count: int
    """The number of regular expressions."""

    def __init__(self, schema: Mapping[str, Any], what: str, *, trusted: bool = True) -> None:
        """Unless the schema is `trusted`, its patterns must be small and take linear time, and it must not refer to
        anything by `$id`, or to an anchor that occurs twice."""
        self.schema = _own_copy(schema, what)
        _check_shape(self.schema, what)
        self.weight = _weigh(self.schema, what)
        if not trusted:
            _refuse_unclear_references(self.schema, what)
        patterns = list(_patterns(self.schema))
        self.pattern_count = len(patterns)
        self._validator, backtracks = _compile(self.schema, what, trusted)
        # A pattern that begins with ^, and has no alternatives, is tried only at the beginning of a text.
        self._may_backtrack = backtracks and any("|" in pattern or pattern[:1] != "^" for pattern in patterns)
        self._visits: _VisitCounter | None = None

    def fits(self, value: Any) -> bool:
        """Return whether a decoded JSON value matches."""
        fits: bool = self._validator.is_valid(value)
        return fits

    def faults(self, value: Any, root: str = "arguments") -> list[str]:
        """Return a line for each of the first errors, with its path and without the value.

        The list is empty if the value matches. If a pattern with look-around would have to search texts that are too
        long, the only error is their length. `root` is the path of the value itself.
        """
        if self._may_backtrack and _pattern_steps(value) > MAX_PATTERN_STEPS:
            return [f"{root}: must have shorter texts for patterns with look-around"]
        if self.fits(value):
            return []
        if self._visits is None:
            self._visits = _VisitCounter(self.schema)
        lines: list[str] = []
        visits = self._visits.count(value)
        if visits <= MAX_EXPLAINED_SCHEMAS and visits * _count_values(value) <= MAX_COLLECTED_CHECKS:
            for error in self._validator.iter_errors(value):
                lines += _describe(error, root)
                if len(lines) >= MAX_REPORTED_ERRORS:
                    break
        elif not self._visits.has_alternatives:  # with alternatives, the validator creates all errors to return one
            try:
                self._validator.validate(value)
            except ValueError as error:
                lines += _describe(error, root)
        return lines or [f"{root}: must match the schema"]


def _own_copy(schema: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return a copy of the schema, if it can be encoded as JSON."""
    try:
        data = msgspec.json.encode(schema)
        if len(data) > MAX_SCHEMA_BYTES:
            raise InvalidSchema(f"The {what} has {len(data)} bytes; the limit is {MAX_SCHEMA_BYTES}.")
        copied = msgspec.json.decode(data)
    except (TypeError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidSchema(f"The {what} cannot be encoded as JSON: {error}") from None
    if not isinstance(copied, dict):
        raise InvalidSchema(f"The {what} must be a JSON object.")
    return cast("dict[str, Any]", copied)


# --- bounds -----------------------------------------------------------------------------------------------------------


def _check_shape(schema: dict[str, Any], what: str) -> None:
    """Refuse a schema with too many or too deeply nested subschemas, or with a reference that leads outside."""
    identifiers = _identifiers(schema, what)
    for count, (node, depth) in enumerate(_schemas(schema), 1):
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"The {what} has more than {MAX_DEPTH} nested schemas.")
        if count > MAX_SCHEMAS:
            raise InvalidSchema(f"The {what} has more than {MAX_SCHEMAS} schemas.")
        for keyword in _REFERENCES:
            reference = node.get(keyword)
            if isinstance(reference, str) and not _leads_inside(reference, identifiers):
                raise InvalidSchema(
                    f"The {what} refers to {printable(reference, 200)!r}, which is not in it: nothing is fetched, "
                    f"so put it below $defs and refer to it as #/$defs/…."
                )


def _refuse_unclear_references(schema: dict[str, Any], what: str) -> None:
    """Refuse references by `$id` and repeated anchors: `_weigh` cannot count what the validator finds there."""
    nodes, anchors = list(_schemas(schema)), _anchors(schema)
    references = [node[key] for node, _ in nodes for key in _REFERENCES if isinstance(node.get(key), str)]
    id_keywords = ("$id", "id") if any("draft-04" in str(node.get("$schema")) for node, _ in nodes) else ("$id",)
    has_nested_id = any(isinstance(node.get(key), str) for node, depth in nodes if depth > 1 for key in id_keywords)
    repeats_anchor = sum(isinstance(node.get(key), str) for node, _ in nodes for key in _ANCHORS) > len(anchors)
    all_clear = all(
        reference in anchors or reference == "#" or reference[:2] == "#/" or reference.strip("#") in DIALECTS
        for reference in references
    )
    if references and (has_nested_id or repeats_anchor or not all_clear):
        raise InvalidSchema(f"The {what} has references by $id or to repeated anchors: use #/$defs/… instead.")


def _schemas(schema: Any, depth: int = 1) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each object that may be a subschema, with its depth. Not recursive, because the depth is unknown."""
    stack: list[tuple[Any, int, bool]] = [(schema, depth, False)]
    while stack:
        node, level, has_names = stack.pop()
        if isinstance(node, list):
            items = cast("list[object]", node)
            stack.extend((item, level, False) for item in items)
        elif isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            if has_names:
                stack.extend((value, level, False) for value in members.values())
                continue
            yield members, level
            stack.extend(
                (value, level + 1, key in _NAMED) for key, value in members.items() if key not in _WITHOUT_SCHEMAS
            )


def _identifiers(schema: dict[str, Any], what: str) -> frozenset[str]:
    """Return the identifiers that references may use: each `$id`, and the dialects, which the validator knows.

    Refuses a schema in an unknown dialect.
    """
    identifiers = set(DIALECTS)
    for node, _ in _schemas(schema):
        for key in ("$id", "id"):
            if isinstance(node.get(key), str):
                identifiers.add(node[key].partition("#")[0])
        dialect = node.get("$schema")
        if dialect is not None and (not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS):
            raise InvalidSchema(
                f"The {what} is in an unknown dialect ($schema: {printable(repr(dialect), 200)}): "
                f"use one of {', '.join(DIALECTS)}."
            )
    return frozenset(identifiers)


def _leads_inside(reference: str, identifiers: frozenset[str]) -> bool:
    document = reference.partition("#")[0]
    return not document or document in identifiers or any(name.endswith("/" + document) for name in identifiers)


def _weigh(schema: dict[str, Any], what: str) -> int:
    """Return the weight of a schema (see the head of this module).

    Raises:
        InvalidSchema: the number is over the limit, or a subschema leads back to itself for the same value.
    """
    anchors = _anchors(schema)
    weights: dict[int, tuple[int, int]] = {}
    entered: set[int] = set()

    def weigh(node: dict[str, Any], path: frozenset[int]) -> tuple[int, int]:
        """Return the weight of a subschema, and that of finding the members and items that it has evaluated."""
        key = id(node)
        if key in weights:
            return weights[key]
        if key in path:
            raise InvalidSchema(f"The {what} has a reference that leads back to itself for the same value.")
        if key in entered:  # through a member or item: the validator caches the results of recursive schemas
            return 1, 1
        entered.add(key)
        in_place = [weigh(other, path | {key}) for other in _applied_in_place(node, schema, anchors)]
        inside = max((weigh(child, frozenset())[0] for child in _applied_inside(node)), default=0)
        entered.discard(key)
        total = 1 + sum(weight for weight, _ in in_place) + inside
        # `unevaluated…` asks the subschemas what they have evaluated, and they check the value again to answer. Each
        # nested level multiplies the time by 2.6 (measured).
        asking = sum(evaluated for _, evaluated in in_place)
        asks = not _UNEVALUATED.isdisjoint(node)
        weights[key] = total + asks * asking, total + asking + asks * asking
        return weights[key]

    try:
        heaviest = max(weigh(node, frozenset())[0] for node, _ in _schemas(schema))
    except RecursionError:
        raise InvalidSchema(f"The {what} has too long a chain of references.") from None
    if heaviest > MAX_APPLIED_SCHEMAS:
        raise InvalidSchema(f"The {what} could apply more than {MAX_APPLIED_SCHEMAS} schemas on the way to one value.")
    return heaviest


class _VisitCounter:
    """Counts the subschemas that the validator visits on one path into a value while it collects errors.

    The validator then caches no results: it caches them only while it decides whether a value matches.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._anchors = _anchors(schema)
        self._counted: dict[tuple[int, int], int] = {}
        self.has_alternatives = any(not _ALTERNATIVES.isdisjoint(node) for node, _ in _schemas(schema))

    def count(self, value: Any) -> int:
        """Return the number of visited subschemas for this value, at most `MAX_EXPLAINED_SCHEMAS + 1`."""
        try:
            return self._count_from(self._schema, _depth(value))
        except RecursionError:
            return MAX_EXPLAINED_SCHEMAS + 1

    def _count_from(self, node: dict[str, Any], depth: int) -> int:
        key = (id(node), depth)
        if key not in self._counted:
            in_place = _applied_in_place(node, self._schema, self._anchors)
            total = 1 + sum(self._count_from(other, depth) for other in in_place)
            if depth:
                total += max((self._count_from(child, depth - 1) for child in _applied_inside(node)), default=0)
            self._counted[key] = min(total, MAX_EXPLAINED_SCHEMAS + 1)
        return self._counted[key]


def _patterns(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the regular expressions of a schema."""
    for node, _ in _schemas(schema):
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        if isinstance(node.get("patternProperties"), dict):
            yield from node["patternProperties"]


def _pattern_steps(value: Any) -> int:
    """Return the sum of the squared lengths of all strings in a value, including the names of members."""
    if isinstance(value, str):
        return len(value) ** 2
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return sum(len(name) ** 2 + _pattern_steps(member) for name, member in members.items())
    return sum(map(_pattern_steps, cast("list[object]", value))) if isinstance(value, list) else 0


def _count_values(value: Any) -> int:
    """Return the number of values in a value at all levels, including itself."""
    if isinstance(value, dict):
        return 1 + sum(map(_count_values, cast("dict[str, object]", value).values()))
    return 1 + sum(map(_count_values, cast("list[object]", value))) if isinstance(value, list) else 1


def _depth(value: Any) -> int:
    """Return how deep a value is nested. Recursion is safe, because the nesting of messages is limited."""
    if isinstance(value, dict):
        return 1 + max(map(_depth, cast("dict[str, object]", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, cast("list[object]", value)), default=0)
    return 0


def _applied_inside(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the subschemas that apply to members and items."""
    for key, value in node.items():
        if key in ("properties", "patternProperties"):
            if isinstance(value, dict):  # not in an annotation such as `x-form`, whose members may have any names
                children = cast("dict[str, object]", value).values()
                yield from (cast("dict[str, Any]", child) for child in children if isinstance(child, dict))
        elif key in _INSIDE:
            items = cast("list[object]", value if isinstance(value, list) else [value])
            yield from (cast("dict[str, Any]", item) for item in items if isinstance(item, dict))


def _anchors(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"#" + node[key]: node for node, _ in _schemas(schema) for key in _ANCHORS if isinstance(node.get(key), str)}


def _applied_in_place(
    node: dict[str, Any], root: dict[str, Any], anchors: Mapping[str, dict[str, Any]]
) -> Iterable[dict[str, Any]]:
    """Yield the subschemas that apply to the same value as `node`: those of `allOf`, `if` and so on, and references."""
    for key, value in node.items():
        if key in _REFERENCES and isinstance(value, str):
            target = anchors.get(value) or _at_pointer(root, value)
            if target is not None:
                yield target
        elif key in _IN_PLACE:
            inner: Any = value
            if isinstance(inner, dict) and key in _NAMED:
                inner = list(cast("dict[str, Any]", inner).values())
            items = cast("list[object]", inner if isinstance(inner, list) else [inner])
            for item in items:
                if isinstance(item, dict):
                    yield cast("dict[str, Any]", item)


def _at_pointer(root: Any, reference: str) -> dict[str, Any] | None:
    """Return the subschema at a pointer such as `#/a/b` (RFC 6901); None for any other reference."""
    if reference in ("#", ""):
        return cast("dict[str, Any]", root)
    if not reference.startswith("#/"):
        return None
    from urllib.parse import unquote

    node = root
    for part in unquote(reference[2:]).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast("dict[str, Any]", node).get(name)
        elif isinstance(node, list) and name.isascii() and name.isdigit():
            items = cast("list[object]", node)
            node = items[int(name)] if len(name) <= len(str(len(items))) and int(name) < len(items) else None
        else:
            return None
    return cast("dict[str, Any]", node) if isinstance(node, dict) else None


# --- the validator ----------------------------------------------------------------------------------------------------


def _compile(schema: dict[str, Any], what: str, trusted: bool) -> tuple[Any, bool]:
    """Return the validator, and whether its patterns can backtrack."""
    try:
        import jsonschema_rs
    except ImportError:
        raise MissingExtra("schema", f"The {what}") from None
    dialect = str(schema.get("$schema") or next(iter(DIALECTS))).removesuffix("#")
    validator = getattr(jsonschema_rs, DIALECTS[dialect])
    # The linear engine first. Only the second engine, which backtracks, has look-around and back-references.
    engines: tuple[Callable[[], Any], ...] = (
        lambda: jsonschema_rs.RegexOptions(size_limit=_MAX_REGEX_BYTES),
        lambda: jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS, size_limit=_MAX_REGEX_BYTES),
    )
    if not trusted:
        engines = (lambda: jsonschema_rs.RegexOptions(size_limit=_MAX_UNTRUSTED_REGEX_BYTES),)
    failure = ""
    for backtracks, engine in enumerate(engines):
        try:
            return validator(schema, pattern_options=engine(), retriever=_refuse), bool(backtracks)
        except jsonschema_rs.ValidationError as error:
            failure = f"{'/'.join(map(str, error.instance_path)) or 'schema'}: "
            failure += error.message.splitlines()[0][:200]
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            failure = str(error).splitlines()[0][:200]
    raise InvalidSchema(f"The {what} is not a valid JSON Schema ({dialect}): {failure}")


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not in the schema, and nothing is fetched")


# --- the faults of a value --------------------------------------------------------------------------------------------

_TYPES = {
    "integer": "an integer",
    "string": "a string",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_REASONS: dict[str, str] = {
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be more than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "multipleOf": "must be a multiple of {multiple_of}",
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "minProperties": "must have at least {limit} members",
    "maxProperties": "must have at most {limit} members",
    "pattern": "must match the pattern {pattern}",
    "uniqueItems": "must not have the same item twice",
    "contains": "lacks a required item",
    "additionalItems": "has too many items",
    "anyOf": "matches none of the allowed forms",
    "oneOf": "must match exactly one of the allowed forms",
    "not": "has a form that is not allowed",
    "falseSchema": "is not allowed",
    "format": "is not in the format {format}",
}


def _describe(error: Any, root: str) -> list[str]:
    """Return a line for each fault that an error of the validator reports."""
    where = path_text(error.instance_path)
    name, facts = error.kind.name, error.kind.as_dict()
    inside = f"{where}." if where else ""
    if name == "required":
        return [f"{inside}{printable(facts['property'])}: missing"]
    if name in ("additionalProperties", "unevaluatedProperties"):
        return [f"{inside}{printable(str(member))}: no such member" for member in facts["unexpected"][:8]]
    path = where or root
    if name == "type":
        return [f"{path}: expected {' or '.join(_TYPES.get(kind, '') for kind in facts['types'])}"]
    if name == "enum":
        shown = msgspec.json.encode(facts["options"]).decode()[1:-1]
        return [f"{path}: must be one of {printable(shown, 200)}"]
    if name == "const":
        return [f"{path}: must be {printable(msgspec.json.encode(facts['expected_value']).decode(), 200)}"]
    reason = _REASONS.get(name, "is not valid here")
    try:
        return [f"{path}: {printable(reason.format(**facts), 200)}"]
    except (KeyError, IndexError):
        return [f"{path}: is not valid here"]


def path_text(path: Iterable[str | int], start: str = "") -> str:
    """Return a path as text, such as `crew[2].age`."""
    text = start
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else ("." if text else "") + printable(str(part))
    return text
