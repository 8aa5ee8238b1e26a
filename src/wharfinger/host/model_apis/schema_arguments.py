"""Turns the arguments of a model, which fit the narrowed schema, into arguments for the original schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wharfinger.content.decoded_json import is_list, is_object
from wharfinger.host.model_apis.schema_keywords import REFERENCES, names_in, types_of
from wharfinger.host.model_apis.schema_references import SchemaPlaces

__all__ = ["restore"]

Schema = dict[str, Any]

MAX_LEVELS = 40
"""Maximum depth of nested values in which nulls are left out."""


def restore(arguments: dict[str, Any], schema: Any, renamed: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a call as the original schema has them.

    Names that were replaced become the original ones again. A null is left out if its property is optional and does not
    allow null: strict mode makes models give all properties.
    """
    if not is_object(schema):
        return arguments
    original = {renamed.get(name, name): value for name, value in arguments.items()}
    places = SchemaPlaces(schema)
    restored: dict[str, Any] = _without_nulls(original, [schema], places, 0)
    return restored


def _without_nulls(value: Any, schemas: list[Any], places: SchemaPlaces, depth: int) -> Any:
    if depth > MAX_LEVELS:
        return value
    if is_list(value):
        items = [schema["items"] for schema in places.alternatives(schemas) if "items" in schema]
        return [_without_nulls(item, items, places, depth + 1) for item in value] if items else value
    if not is_object(value):
        return value
    possible = [schema for schema in places.alternatives(schemas) if is_object(schema.get("properties"))]
    required = frozenset(name for schema in possible for name in names_in(schema.get("required")))
    members: dict[str, Any] = {}
    for name, member in value.items():
        declared = [schema["properties"][name] for schema in possible if name in schema["properties"]]
        is_optional_null = member is None and declared and name not in required
        if is_optional_null and not any(map(_allows_null, places.alternatives(declared))):
            continue
        members[name] = _without_nulls(member, declared, places, depth + 1)
    return members


def _allows_null(schema: Schema) -> bool:
    if "const" in schema:
        return schema["const"] is None
    if is_list(schema.get("enum")):
        return None in schema["enum"]
    if schema.get("nullable") is True:
        return True
    if "type" in schema:
        return "null" in types_of(schema["type"])
    return not schema.keys() & {"anyOf", "oneOf", "allOf", *REFERENCES}
