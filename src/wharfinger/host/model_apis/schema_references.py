"""References in a JSON Schema: the schemas that they lead to, and the definitions that refer to themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from wharfinger.content.decoded_json import is_list, is_object
from wharfinger.host.model_apis.schema_keywords import (
    NAMED_SCHEMAS,
    ONE_SCHEMA,
    REFERENCES,
    SEVERAL_SCHEMAS,
    items_of,
    members_of,
)

__all__ = ["SchemaPlaces", "direct_schemas", "reference_groups", "refers_to"]

Schema = dict[str, Any]

MAX_PLACES = 5_000
"""Maximum number of schemas that are searched for an anchor."""
MAX_ALTERNATIVES = 200
"""Maximum number of schemas that may apply to one value."""


class SchemaPlaces:
    """Finds the schemas to which references in one schema lead."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._anchors: dict[str, Any] | None = None

    def find(self, reference: Any) -> Any:
        """Return the schema that a reference leads to; None if it is not in this document."""
        if not isinstance(reference, str) or len(reference) > 2_000:
            return None
        own_id = self._root.get("$id")
        if isinstance(own_id, str) and own_id and reference.startswith(own_id.rstrip("#")):
            reference = reference[len(own_id.rstrip("#")) :] or "#"
        if reference in ("#", "#/"):
            return self._root
        if not reference.startswith("#/"):
            return self._find_anchor(reference[1:]) if reference.startswith("#") else None
        node: Any = self._root
        for word in unquote(reference[2:]).split("/"):
            key = word.replace("~1", "/").replace("~0", "~")
            if is_object(node) and key in node:
                node = node[key]
            elif is_list(node) and key.isdecimal() and len(key) < 6 and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return node if is_object(node) else None

    def _find_anchor(self, name: str) -> Any:
        if self._anchors is None:
            self._anchors = {}
            stack: list[Any] = [self._root]
            visited = 0
            while stack and visited < MAX_PLACES:
                visited += 1
                schema = stack.pop()
                for key in ("$anchor", "$dynamicAnchor"):
                    if isinstance(schema.get(key), str):
                        self._anchors.setdefault(schema[key], schema)
                stack += [each for key, value in schema.items() for each in direct_schemas(key, value)]
        return self._anchors.get(name)

    def alternatives(self, schemas: list[Any]) -> list[Schema]:
        """Return the schemas that may apply to one value: references, `anyOf`, `oneOf` and `allOf` are followed."""
        schemas_by_id: dict[int, Schema] = {}
        stack = list(schemas)
        while stack and len(schemas_by_id) < MAX_ALTERNATIVES:
            schema = stack.pop()
            if not is_object(schema) or id(schema) in schemas_by_id:
                continue
            schemas_by_id[id(schema)] = schema
            stack += [self.find(schema[keyword]) for keyword in REFERENCES if keyword in schema]
            for keyword in ("anyOf", "oneOf", "allOf"):
                stack += [each for _, each in items_of(schema.get(keyword))]
        return list(schemas_by_id.values())


def direct_schemas(keyword: str, value: Any) -> Iterator[Schema]:
    """Yield the schemas directly in the value of a keyword."""
    if keyword in ONE_SCHEMA and is_object(value):
        yield value
    elif (keyword in SEVERAL_SCHEMAS or keyword == "items") and is_list(value):
        yield from (each for each in value if is_object(each))
    elif keyword in NAMED_SCHEMAS or keyword in ("$defs", "definitions"):
        yield from (each for _, each in members_of(value) if is_object(each))


def refers_to(schema: Schema, targets: set[str]) -> bool:
    stack = [schema]
    while stack:
        each = stack.pop()
        if each.get("$ref") in targets:
            return True
        stack += [inner for key, value in each.items() for inner in direct_schemas(key, value)]
    return False


def reference_groups(definitions: Schema) -> dict[str, int]:
    """Return a number for each definition; those that reach one another have the same (Kosaraju's algorithm)."""
    forward: dict[str, list[str]] = {name: [] for name in definitions}
    backward: dict[str, list[str]] = {name: [] for name in definitions}
    for name, schema in definitions.items():
        stack: list[Schema] = [schema]
        while stack:
            each = stack.pop()
            target = str(each.get("$ref", "")).removeprefix("#/$defs/")
            if target in forward:
                forward[name].append(target)
                backward[target].append(name)
            stack += [inner for key, value in each.items() for inner in direct_schemas(key, value)]
    order: list[str] = []
    seen: set[str] = set()
    for start in definitions:
        walk: list[tuple[str, Iterator[str]]] = []
        if start not in seen:
            seen.add(start)
            walk.append((start, iter(forward[start])))
        while walk:
            name, targets = walk[-1]
            next_name = next((target for target in targets if target not in seen), None)
            if next_name is None:
                order.append(name)
                walk.pop()
            else:
                seen.add(next_name)
                walk.append((next_name, iter(forward[next_name])))
    groups: dict[str, int] = {}
    for number, start in enumerate(reversed(order)):
        names = [start]
        while names:
            name = names.pop()
            if name not in groups:
                groups[name] = number
                names += backward[name]
    return groups
