"""JSON Schemas from outside, by an author's hand or from a peer: checked, then they check; fetches nothing, ever.

Wanted are bounds that hold whatever the schema says: on its size, on how deep it is and how many schemas are in it, on
how much of it one value may have to pass, and on patterns, which run in linear time or with bounded backtracking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from wharfinger.content.text import printable
from wharfinger.errors import MissingExtra

__all__ = ["DIALECTS", "CompiledSchema", "InvalidSchema", "path_text"]

MAX_DEPTH = 64
"""Schemas inside each other."""
MAX_SCHEMAS = 2000
MAX_SCHEMA_BYTES = 256 * 1024
"""Bytes of a schema as JSON."""
MAX_APPLIED_SCHEMAS = 100_000
"""Schemas that may have to be applied on the way to one value, each counted as often as it is referred to."""
MAX_EXPLAINED_SCHEMAS = 2_000
"""Schemas that may be gone through to say what is wrong: alternatives inside each other multiply with each level."""
MAX_COLLECTED_CHECKS = 10_000
"""The same times the members and items of a value, for all that is wrong to be collected: the validator makes every
error before it gives the first one, at 10 to 60 µs each."""
MAX_REPORTED_ERRORS = 16
MAX_PATTERN_STEPS = 10_000**2
"""Squares of the lengths of all texts in a value, where a pattern may be tried from each of their characters anew."""
_BACKTRACKS = 100_000
_REGEX_BYTES = 1024 * 1024
_UNTRUSTED_REGEX_BYTES = 64 * 1024

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""What `$schema` may say, without a trailing "#"; the first where it says nothing (2025-11-25, JSON Schema usage)."""

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
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))
"""Keywords whose members are names, not keywords."""
_NO_SCHEMAS = frozenset(("const", "enum", "default", "examples", "required", "type", "x-mcp-header"))
_ALTERNATIVES = frozenset(("anyOf", "oneOf"))
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class InvalidSchema(ValueError):
    """A schema that cannot be used: it is none, in an unknown dialect, points outside itself, or is beyond a bound."""


class CompiledSchema:
    """A schema and its validator; `what` names it in errors, such as "input_schema of tool 'berth'".

    Raises:
        InvalidSchema: it cannot be used.
        MissingExtra: the extra `schema` is not installed.
    """

    __slots__ = ("_paths", "_searches", "_validator", "patterns", "schema", "weight")

    schema: dict[str, Any]
    """As it was given, member for member."""
    weight: int
    """How many schemas may have to be applied on the way to one value."""
    patterns: int
    """How many regular expressions are in it."""

    def __init__(self, schema: Mapping[str, Any], what: str, *, trusted: bool = True) -> None:
        """A schema that is not `trusted` has patterns of linear time only, and small ones."""
        self.schema = _own_copy(schema, what)
        self.weight = _check_shape(self.schema, what)
        patterns = list(_patterns(self.schema))
        self.patterns = len(patterns)
        self._validator, backtracks = _compile(self.schema, what, trusted)
        self._searches = backtracks and any("|" in pattern or pattern[:1] != "^" for pattern in patterns)
        self._paths: _Paths | None = None

    def fits(self, value: Any) -> bool:
        """Whether a decoded JSON value fits."""
        fits: bool = self._validator.is_valid(value)
        return fits

    def faults(self, value: Any) -> list[str]:
        """One line for each thing that is wrong, with its path and without the value; none if it fits."""
        if self._searches and _searched(value) > MAX_PATTERN_STEPS:
            return ["arguments: have longer texts than patterns with look-around may be searched for"]
        if self.fits(value):
            return []
        if self._paths is None:
            self._paths = _Paths(self.schema)
        found: list[str] = []
        paths = self._paths.through(value)
        if paths <= MAX_EXPLAINED_SCHEMAS and paths * _size(value) <= MAX_COLLECTED_CHECKS:
            for error in self._validator.iter_errors(value):
                found += _lines(error)
                if len(found) >= MAX_REPORTED_ERRORS:
                    break
        elif not self._paths.alternatives:  # whose errors are all made for one
            try:
                self._validator.validate(value)
            except ValueError as error:
                found += _lines(error)
        return found or ["arguments: do not fit the schema"]


def _own_copy(schema: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A copy that nobody else changes, if the schema has a form in JSON."""
    try:
        data = msgspec.json.encode(schema)
        if len(data) > MAX_SCHEMA_BYTES:
            raise InvalidSchema(f"The {what} has {len(data)} bytes; {MAX_SCHEMA_BYTES} are allowed.")
        copied = msgspec.json.decode(data)
    except (TypeError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidSchema(f"The {what} has no form in JSON: {error}") from None
    if not isinstance(copied, dict):
        raise InvalidSchema(f"The {what} must be a JSON object.")
    return cast("dict[str, Any]", copied)


# --- bounds -----------------------------------------------------------------------------------------------------------


def _check_shape(schema: dict[str, Any], what: str) -> int:
    """How many schemas one value may have to pass.

    Raises InvalidSchema where one of the bounds is passed, or a reference leads outside.
    """
    here = _identifiers(schema, what)
    for count, (node, depth) in enumerate(_schemas(schema), 1):
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"The {what} has more than {MAX_DEPTH} schemas inside each other.")
        if count > MAX_SCHEMAS:
            raise InvalidSchema(f"The {what} has more than {MAX_SCHEMAS} schemas in it.")
        for keyword in _REFERENCES:
            reference = node.get(keyword)
            if isinstance(reference, str) and not _leads_inside(reference, here):
                raise InvalidSchema(
                    f"The {what} refers to {reference!r}, which is not in it: nothing is fetched, "
                    f"so put it below $defs and refer to it as #/$defs/…."
                )
    return _weigh(schema, what)


def _schemas(schema: Any, depth: int = 1) -> Iterator[tuple[dict[str, Any], int]]:
    """Every object that may be a schema, with its depth; without recursion, as the depth is what is in question."""
    stack: list[tuple[Any, int, bool]] = [(schema, depth, False)]
    while stack:
        node, level, named = stack.pop()
        if isinstance(node, list):
            items = cast("list[object]", node)
            stack.extend((item, level, False) for item in items)
        elif isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            if named:
                stack.extend((value, level, False) for value in members.values())
                continue
            yield members, level
            stack.extend((value, level + 1, key in _NAMED) for key, value in members.items() if key not in _NO_SCHEMAS)


def _identifiers(schema: dict[str, Any], what: str) -> frozenset[str]:
    """What the document calls its own parts: `$id`, absolute or not, and the dialects, which validators hold."""
    found = set(DIALECTS)
    for node, _ in _schemas(schema):
        for key in ("$id", "id"):
            if isinstance(node.get(key), str):
                found.add(node[key].partition("#")[0])
        dialect = node.get("$schema")
        if dialect is not None and (not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS):
            raise InvalidSchema(
                f"The {what} is in a dialect that is not known here ($schema: {dialect!r}): "
                f"use one of {', '.join(DIALECTS)}."
            )
    return frozenset(found)


def _leads_inside(reference: str, here: frozenset[str]) -> bool:
    document = reference.partition("#")[0]
    return not document or document in here or any(name.endswith("/" + document) for name in here)


def _weigh(schema: dict[str, Any], what: str) -> int:
    """Bound the work for one value: references multiply, so that few schemas can be applied very many times.

    Raises InvalidSchema also where a schema leads back to itself without going into the value.
    """
    anchors = _anchors(schema)
    weights: dict[int, int] = {}
    entered: set[int] = set()

    def weight(node: dict[str, Any], here: frozenset[int]) -> int:
        key = id(node)
        if key in weights:
            return weights[key]
        if key in here:
            raise InvalidSchema(f"The {what} has a reference that leads back to itself for the same value.")
        if key in entered:  # by way of a member: validators remember the answers of what refers to itself
            return 1
        entered.add(key)
        total = 1 + sum(weight(other, here | {key}) for other in _applied_in_place(node, schema, anchors))
        total += max((weight(child, frozenset()) for child in _applied_inside(node)), default=0)
        entered.discard(key)
        weights[key] = total
        return total

    try:
        heaviest = max(weight(node, frozenset()) for node, _ in _schemas(schema))
    except RecursionError:
        raise InvalidSchema(f"The {what} has too long a chain of references.") from None
    if heaviest > MAX_APPLIED_SCHEMAS:
        raise InvalidSchema(f"The {what} could apply more than {MAX_APPLIED_SCHEMAS} schemas on the way to one value.")
    return heaviest


class _Paths:
    """How many schemas are gone through for one path into a value, if none of the answers were remembered.

    A validator remembers answers while it decides whether a value fits, but not while it collects what is wrong.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._anchors = _anchors(schema)
        self._counted: dict[tuple[int, int], int] = {}
        self.alternatives = any(not _ALTERNATIVES.isdisjoint(node) for node, _ in _schemas(schema))

    def through(self, value: Any) -> int:
        """The number for this value, or one more than `MAX_EXPLAINED_SCHEMAS`."""
        try:
            return self._count(self._schema, _depth(value))
        except RecursionError:
            return MAX_EXPLAINED_SCHEMAS + 1

    def _count(self, node: dict[str, Any], depth: int) -> int:
        key = (id(node), depth)
        if key not in self._counted:
            total = 1 + sum(self._count(other, depth) for other in _applied_in_place(node, self._schema, self._anchors))
            if depth:
                total += max((self._count(child, depth - 1) for child in _applied_inside(node)), default=0)
            self._counted[key] = min(total, MAX_EXPLAINED_SCHEMAS + 1)
        return self._counted[key]


def _patterns(schema: dict[str, Any]) -> Iterator[str]:
    """Every regular expression in a schema."""
    for node, _ in _schemas(schema):
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        if isinstance(node.get("patternProperties"), dict):
            yield from node["patternProperties"]


def _searched(value: Any) -> int:
    """The squares of the lengths of all texts in a value, names of members among them."""
    if isinstance(value, str):
        return len(value) ** 2
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return sum(len(name) ** 2 + _searched(member) for name, member in members.items())
    return sum(map(_searched, cast("list[object]", value))) if isinstance(value, list) else 0


def _size(value: Any) -> int:
    """How many members and items a value has, at every level, and itself."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, cast("dict[str, object]", value).values()))
    return 1 + sum(map(_size, cast("list[object]", value))) if isinstance(value, list) else 1


def _depth(value: Any) -> int:
    """Arrays and objects inside each other; they are bounded for all messages."""
    if isinstance(value, dict):
        return 1 + max(map(_depth, cast("dict[str, object]", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, cast("list[object]", value)), default=0)
    return 0


def _applied_inside(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas that are applied to members and items."""
    for key, value in node.items():
        if key in ("properties", "patternProperties"):
            yield from (child for child in value.values() if isinstance(child, dict))
        elif key in _INSIDE:
            items = cast("list[object]", value if isinstance(value, list) else [value])
            yield from (cast("dict[str, Any]", item) for item in items if isinstance(item, dict))


def _anchors(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "#" + node[key]: node
        for node, _ in _schemas(schema)
        for key in ("$anchor", "$dynamicAnchor")
        if isinstance(node.get(key), str)
    }


def _applied_in_place(
    node: dict[str, Any], root: dict[str, Any], anchors: Mapping[str, dict[str, Any]]
) -> Iterable[dict[str, Any]]:
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
    """What `#/a/b` points at (RFC 6901); None for anything else."""
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
    """The validator, and whether its patterns backtrack."""
    try:
        import jsonschema_rs
    except ImportError:
        raise MissingExtra("schema", f"The {what}") from None
    dialect = str(schema.get("$schema", next(iter(DIALECTS)))).removesuffix("#")
    validator = getattr(jsonschema_rs, DIALECTS[dialect])
    # Linear engine first; look-around and back-references exist in the other one only, which may backtrack so often.
    engines: tuple[Callable[[], Any], ...] = (
        lambda: jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES),
        lambda: jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=_REGEX_BYTES),
    )
    if not trusted:
        engines = (lambda: jsonschema_rs.RegexOptions(size_limit=_UNTRUSTED_REGEX_BYTES),)
    failure = ""
    for backtracks, engine in enumerate(engines):
        try:
            return validator(schema, pattern_options=engine(), retriever=_refuse), bool(backtracks)
        except jsonschema_rs.ValidationError as error:
            failure = f"{'/'.join(map(str, error.instance_path)) or 'schema'}: "
            failure += error.message.splitlines()[0][:200]
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            failure = str(error).splitlines()[0][:200]
    raise InvalidSchema(f"The {what} is no valid JSON Schema ({dialect}): {failure}")


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not in the schema, and nothing is fetched")


# --- what is wrong with a value ---------------------------------------------------------------------------------------

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
    "contains": "lacks an item that must be there",
    "additionalItems": "has too many items",
    "anyOf": "fits none of the forms that are allowed here",
    "oneOf": "must fit exactly one of the forms that are allowed here",
    "not": "has a form that is not allowed here",
    "falseSchema": "must not be there",
    "format": "is not in the format {format}",
}


def _lines(error: Any) -> list[str]:
    where = path_text(error.instance_path)
    name, facts = error.kind.name, error.kind.as_dict()
    inside = f"{where}." if where else ""
    if name == "required":
        return [f"{inside}{facts['property']}: missing"]
    if name in ("additionalProperties", "unevaluatedProperties"):
        return [f"{inside}{printable(str(member))}: no such member" for member in facts["unexpected"][:8]]
    place = where or "arguments"
    if name == "type":
        return [f"{place}: expected {' or '.join(_TYPES.get(kind, '') for kind in facts['types'])}"]
    if name == "enum":
        shown = msgspec.json.encode(facts["options"]).decode()[1:-1]
        return [f"{place}: must be one of {printable(shown, 200)}"]
    if name == "const":
        return [f"{place}: must be {printable(msgspec.json.encode(facts['expected_value']).decode(), 200)}"]
    reason = _REASONS.get(name, "is not valid here")
    try:
        return [f"{place}: {printable(reason.format(**facts), 200)}"]
    except (KeyError, IndexError):
        return [f"{place}: is not valid here"]


def path_text(path: Iterable[str | int], start: str = "") -> str:
    """`crew[2].age` of a path."""
    text = start
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else ("." if text else "") + printable(str(part))
    return text
