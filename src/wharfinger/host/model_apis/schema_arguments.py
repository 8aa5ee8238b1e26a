"""Turns the arguments of a model, which fit the narrowed schema, into arguments for the original schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from wharfinger.content.decoded_json import is_list, is_object
from wharfinger.host.model_apis.schema_keywords import REFERENCES, members_of, names_in, types_of
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
    restored: dict[str, Any] = _Restoring(schema).without_nulls(original, (schema,), 0)
    return restored


class _Parts(NamedTuple):
    """What the schemas of one value say about its parts."""

    items: tuple[Any, ...]
    """The schemas of the items of a list."""
    members: dict[str, tuple[Any, ...]]
    """The schemas of each member of an object."""
    leave_out: frozenset[str]
    """The members that are left out if they are null: those that may be missing, and may not be null."""


class _Restoring:
    """The state of one `restore`. A list may have thousands of items with the same schemas."""

    def __init__(self, root: Schema) -> None:
        self._places = SchemaPlaces(root)
        self._parts: dict[tuple[int, ...], _Parts] = {}

    def without_nulls(self, value: Any, schemas: tuple[Any, ...], depth: int) -> Any:
        if depth > MAX_LEVELS or not schemas or not isinstance(value, list | dict):
            return value
        parts = self._parts_of(schemas)
        if is_list(value):
            return [self.without_nulls(item, parts.items, depth + 1) for item in value] if parts.items else value
        return {
            name: self.without_nulls(member, parts.members.get(name, ()), depth + 1)
            for name, member in cast("dict[str, Any]", value).items()
            if member is not None or name not in parts.leave_out
        }

    def _parts_of(self, schemas: tuple[Any, ...]) -> _Parts:
        key = tuple(map(id, schemas))
        if key not in self._parts:
            possible = self._places.alternatives([*schemas])
            members: dict[str, tuple[Any, ...]] = {}
            optional: set[str] = set()
            for schema in possible:
                required = frozenset(names_in(schema.get("required")))
                for name, member in members_of(schema.get("properties")):
                    members[name] = (*members.get(name, ()), member)
                    if name not in required:
                        optional.add(name)
            leave_out = frozenset(name for name in optional if not self._allow_null(members[name]))
            items = tuple(schema["items"] for schema in possible if "items" in schema)
            self._parts[key] = _Parts(items, members, leave_out)
        return self._parts[key]

    def _allow_null(self, schemas: tuple[Any, ...]) -> bool:
        return any(map(_allows_null, self._places.alternatives([*schemas])))


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
