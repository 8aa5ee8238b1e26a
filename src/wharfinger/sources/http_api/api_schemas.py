"""Converts a schema of an OpenAPI document to a JSON Schema (2020-12), small enough for a model.

The result contains all that it refers to, below `$defs`, the nearest first, and may be recursive. If that is more than
the budget, the rest accepts any value, which the API checks itself. OpenAPI 3.0 has a dialect of its own
(`nullable`, `exclusiveMinimum: true`), which is translated. Keywords that do not help to write a value, such
as examples and the names of XML elements, are left out.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from wharfinger.content.decoded_json import as_list, as_object
from wharfinger.content.text import printable
from wharfinger.sources.http_api.api_document import JsonObject, UnresolvedReference, resolve

__all__ = ["MAX_SCHEMA_CHARACTERS", "items_of", "json_schema", "types_of", "value_text", "values_of"]

MAX_SCHEMA_CHARACTERS = 8_000
"""Maximum size of one schema, about 2,000 tokens."""
MAX_SCHEMA_DEPTH = 24
"""Maximum depth of nested schemas. The target of a reference begins at 0 again."""
MAX_TEXT_CHARACTERS = 200
"""Maximum length of a description. A pattern or format may be ten times as long; a longer one is left out."""
MAX_LISTED_VALUES = 1_000
"""Maximum number of values of an `enum`; a longer one is left out."""

MAX_ALTERNATIVES = 100
"""Maximum number of schemas that are visited to find the types and values of a parameter."""

_COPIED = frozenset(
    (
        "type", "enum", "const", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
        "required", "default", "description", "dependentRequired", "minContains", "maxContains",
    )
)  # fmt: skip
_SINGLE_SCHEMAS = frozenset(
    (
        "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
        "unevaluatedProperties", "unevaluatedItems",
    )
)  # fmt: skip
"""Keywords whose value is a schema."""
_SCHEMA_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
"""Keywords whose value is a list of schemas."""
_SCHEMA_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas"))
"""Keywords whose value is an object of schemas."""
_LIMITS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))


def json_schema(
    root: JsonObject, schema: Any, *, version: str, max_characters: int = MAX_SCHEMA_CHARACTERS
) -> JsonObject:
    """Return a JSON Schema of about `max_characters` characters that stands alone.

    Raises:
        UnresolvedReference: the schema itself is a reference that cannot be followed. Inside the schema, such a
            reference becomes a schema that accepts any value.
    """
    writer = _Writer(root, version, max_characters)
    result = writer.write(resolve(root, schema), 0)
    definitions = writer.definitions()
    return {**result, "$defs": definitions} if definitions else result


def types_of(schema: JsonObject) -> frozenset[str]:
    """Return the JSON types that a schema made by `json_schema` names; empty if it names none."""
    result: set[str] = set()
    for each in _alternatives(schema):
        kinds = each.get("type")
        result |= {kinds} if isinstance(kinds, str) else set(as_list(kinds))
    return frozenset(result)


def values_of(schema: JsonObject) -> list[Any]:
    """Return the values that a schema made by `json_schema` lists, without null, arrays and objects.

    The list is empty if the schema also allows values that it does not list.
    """
    result: list[Any] = []
    for each in _alternatives(schema):
        if "const" in each:
            result.append(each["const"])
        elif "enum" in each:
            result += each["enum"]
        elif each.get("type") == "boolean":
            result += [True, False]
        elif each.get("type") != "null":
            return []
    return [value for value in result if value is not None and not isinstance(value, (dict, list))]


def value_text(value: Any) -> str:
    """Return a value as it is written in a URI."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def items_of(schema: JsonObject) -> JsonObject | None:
    """Return the schema of the items, with its definitions, if the value is a list; else None."""
    for each in _alternatives(schema):
        if "array" in (each.get("type") or ()):
            return {**as_object(each.get("items")), "$defs": as_object(schema.get("$defs"))}
    return None


def _alternatives(schema: JsonObject) -> Iterator[JsonObject]:
    """Yield the schema, or if it only refers to others or combines them (`anyOf`, `oneOf`, `allOf`), those instead."""
    definitions = as_object(schema.get("$defs"))
    waiting: list[Any] = [schema]
    for _ in range(MAX_ALTERNATIVES):
        if not waiting:
            return
        node = as_object(waiting.pop(0))
        if isinstance(reference := node.get("$ref"), str):
            waiting.append(definitions.get(reference.removeprefix("#/$defs/")))
            continue
        parts = [part for keyword in ("anyOf", "oneOf", "allOf") for part in node.get(keyword) or ()]
        if parts and "type" not in node and "enum" not in node:
            waiting += parts
        else:
            yield node


class _Writer:
    def __init__(self, root: JsonObject, version: str, max_characters: int) -> None:
        self._root = root
        self._is_3_0 = version == "3.0"
        self._remaining_characters = max_characters
        self._names: dict[str, str] = {}
        """The name below `$defs` of each reference."""
        self._waiting: deque[tuple[str, Any]] = deque()

    def definitions(self) -> JsonObject:
        """Write the schemas that were referred to, and those that they refer to, until the budget is used up."""
        result: JsonObject = {}
        while self._waiting:
            name, node = self._waiting.popleft()
            result[name] = self.write(node, 0) if self._remaining_characters > 0 else _anything()
        return result

    def write(self, node: Any, depth: int) -> JsonObject:
        if not isinstance(node, dict) or depth > MAX_SCHEMA_DEPTH or self._remaining_characters <= 0:
            return {}
        schema = as_object(node)
        if isinstance(reference := schema.get("$ref"), str):
            return self._reference(reference)
        result: JsonObject = {}
        for key, value in schema.items():
            if key in _COPIED:
                self._copy(result, key, value)
            elif key in _SINGLE_SCHEMAS:
                result[key] = value if isinstance(value, bool) else self.write(value, depth + 1)
                self._remaining_characters -= len(key) + 8
            elif key in _SCHEMA_LISTS and isinstance(value, list) and value:
                result[key] = [self.write(each, depth + 1) for each in as_list(value)]
                self._remaining_characters -= len(key) + 8
            elif key in _SCHEMA_MAPS and isinstance(value, dict):
                result[key] = self._members(
                    as_object(value), frozenset(map(str, as_list(schema.get("required")))), depth
                )
        if len(as_object(result.get("properties"))) < len(as_object(schema.get("properties"))):
            result.pop("additionalProperties", None)  # it would refuse the members that were left out
            result.pop("unevaluatedProperties", None)
        if "required" in result:
            read_only = _read_only(schema)
            names = [
                name for name in as_list(result.pop("required")) if isinstance(name, str) and name not in read_only
            ]
            result |= {"required": list(dict.fromkeys(names))} if names else {}
        return self._from_3_0(schema, result) if self._is_3_0 else result

    def _members(self, members: JsonObject, required: frozenset[str], depth: int) -> JsonObject:
        """Write the members of an object except read-only ones, the required ones first.

        When the budget is used up, the other optional ones are left out.
        """
        result: JsonObject = {}
        for name, value in sorted(members.items(), key=lambda member: member[0] not in required):
            if as_object(value).get("readOnly") is True:
                continue
            if self._remaining_characters <= 0 and name not in required:
                break
            self._remaining_characters -= len(name) + 6
            result[name] = value if isinstance(value, bool) else self.write(value, depth + 1)
        return result

    def _copy(self, result: JsonObject, key: str, value: Any) -> None:
        if key == "type" and not _is_type(value):
            return
        if key == "enum" and (not 0 < len(as_list(value)) <= MAX_LISTED_VALUES):
            return
        if key in ("description", "pattern", "format"):
            if not isinstance(value, str) or (key != "description" and len(value) > 10 * MAX_TEXT_CHARACTERS):
                return
            if key == "description":
                value = printable(" ".join(value.split()), MAX_TEXT_CHARACTERS)
        if key == "default" and isinstance(value, (dict, list)):
            return
        result[key] = value
        self._remaining_characters -= len(key) + len(str(value)) + 6

    def _reference(self, reference: str) -> JsonObject:
        if reference not in self._names:
            try:
                node = resolve(self._root, {"$ref": reference})
            except UnresolvedReference:
                return _anything()
            name = base = re.sub(r"[^A-Za-z0-9_.\-]", "_", reference.rpartition("/")[2])[:64] or "schema"
            number = 2
            used_names = set(self._names.values())
            while name in used_names:
                name, number = f"{base}_{number}", number + 1
            self._names[reference] = name
            self._waiting.append((name, node))
        pointer = f"#/$defs/{self._names[reference]}"
        self._remaining_characters -= len(pointer) + 12
        return {"$ref": pointer}

    def _from_3_0(self, schema: JsonObject, result: JsonObject) -> JsonObject:
        """Return `result`, which was written from a schema of OpenAPI 3.0, in the terms of JSON Schema."""
        for exclusive, limit in _LIMITS:
            if isinstance(result.get(exclusive), bool) and result.pop(exclusive) and limit in result:
                result[exclusive] = result.pop(limit)
        if schema.get("nullable") is not True:
            return result
        if isinstance(kind := result.get("type"), str):
            result["type"] = [kind, "null"]
            if "enum" in result and None not in result["enum"]:
                result["enum"] = [*result["enum"], None]
            return result
        return {"anyOf": [result, {"type": "null"}]} if result else result


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        names = as_list(value)
        return bool(names) and all(isinstance(each, str) and each in _TYPES for each in names)
    return isinstance(value, str) and value in _TYPES


def _read_only(schema: JsonObject) -> frozenset[str]:
    """Return the members that an API sends and does not accept."""
    members = as_object(schema.get("properties"))
    return frozenset(name for name, each in members.items() if as_object(each).get("readOnly") is True)


def _anything() -> JsonObject:
    return {"description": "Any value: it is not described here."}
