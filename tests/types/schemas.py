"""Express the published schemas and our structs as sets of statements, so that their differences are a set too.

A statement is "<path>: <atom>". A path is `Struct.member`, followed by [] for the items of a list or {} for the values
of an object. An atom is the name of a kind or a struct, or a constant.
"""

from __future__ import annotations

import json
import os
import types as python_types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.types import intended_differences
from wharfinger import types

SPEC = Path(__file__).parents[3] / "shared" / "spec"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

Node = dict[str, Any]

_ENVELOPE_MEMBERS = {"id", "jsonrpc"}


def spec_folder() -> Path:
    """Return the folder of the published schemas. Skips the test without them, or fails it in CI."""
    if SPEC.is_dir():
        return SPEC
    message = f"the published schemas are not at {SPEC}: put them there to compare them"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def load_schemas() -> dict[str, dict[str, Node]]:
    """Return the definitions by revision and name."""
    folder = spec_folder()
    documents = {r: json.loads((folder / f"schema-{r}.json").read_text("utf-8")) for r in REVISIONS}
    return {r: d.get("$defs") or d["definitions"] for r, d in documents.items()}


def our_type(definition: str) -> Any:
    """Return the type in `wharfinger.types` for a definition, or None."""
    name = intended_differences.RENAMED.get(definition, (definition, ""))[0]
    return getattr(types, name, None)


def is_struct(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, msgspec.Struct)


class SchemaReader:
    """Reads the definitions of one revision as statements about our structs."""

    def __init__(self, definitions: dict[str, Node]) -> None:
        self.definitions = definitions
        self.members: dict[str, dict[str, set[str]]] = {}  # struct -> member -> statements
        self.required: dict[str, list[set[str]]] = {}  # struct -> required members of each of its definitions
        self.aliases: dict[str, set[str]] = {}
        self.used: set[str] = set()  # rows of `intended_differences` that were used

    def read_all(self) -> None:
        for name, node in self.definitions.items():
            if (
                name in intended_differences.NOT_HERE
                or name in intended_differences.PLAIN_DICTS
                or name in intended_differences.UNTYPED
            ):
                continue
            if "method" in node.get("properties", {}):
                self.read_envelope(name, node)
            elif is_struct(our_type(name)) and "anyOf" not in node:
                self.read_struct(our_type(name).__name__, node)
            else:
                own = intended_differences.RENAMED.get(name, (name, ""))[0]
                self.aliases.setdefault(own, set()).update(self.statements(node, own))

    def read_envelope(self, name: str, node: Node) -> None:
        """Read the method and params of a request or notification, without the rest of the envelope."""
        members = node["properties"]
        if "const" not in members["method"]:
            return
        if is_struct(our_type(name)):
            own = {
                "properties": {k: members[k] for k in ("method", "params")},
                "required": set(node["required"]) - _ENVELOPE_MEMBERS,
            }
            self.read_struct(name, own)
        params = members.get("params", {})
        if "properties" in params:
            self.used.add(name)
            self.read_struct(intended_differences.PARAMS_STRUCTS.get(name, f"{name}Params"), params)

    def read_struct(self, struct: str, node: Node) -> None:
        members, required = self.merged(node)
        known = self.members.setdefault(struct, {})
        for member, member_node in members.items():
            known.setdefault(member, set()).update(self.statements(member_node, f"{struct}.{member}"))
        self.required.setdefault(struct, []).append(required)

    def merged(self, node: Node) -> tuple[dict[str, Node], set[str]]:
        members: dict[str, Node] = dict(node.get("properties", {}))
        required = set(node.get("required", ()))
        for part in node.get("allOf", ()):
            more, more_required = self.merged(self.definitions[part["$ref"].rsplit("/", 1)[1]])
            members |= more
            required |= more_required
        return members, required

    def statements(self, node: Node, path: str) -> set[str]:
        if "$ref" in node:
            return self.reference(node["$ref"].rsplit("/", 1)[1], path)
        for key in ("anyOf", "oneOf"):
            if key in node:
                return {statement for part in node[key] for statement in self.statements(part, path)}
        if "const" in node:
            return {f"{path}: {node['const']!r}"}
        if "enum" in node:
            return {f"{path}: {value!r}" for value in node["enum"]}
        types = node.get("type", "any")
        kinds = [types] if isinstance(types, str) else types
        return {statement for kind in kinds for statement in self.kind(kind, node, path)}

    def reference(self, name: str, path: str) -> set[str]:
        target = our_type(name)
        if is_struct(target):
            return {f"{path}: {target.__name__}"}
        if name in intended_differences.PLAIN_DICTS:
            return {f"{path}{{}}: any"}
        if name in intended_differences.UNTYPED:
            return {f"{path}: any"}
        return self.statements(self.definitions[name], path)

    def kind(self, kind: str, node: Node, path: str) -> Iterator[str]:
        if kind == "object":
            yield from self.object(node, path)
        elif kind == "array":
            yield from self.statements(node["items"], f"{path}[]")
        elif kind == "string" and node.get("format") == "byte":
            yield f"{path}: bytes"
        else:
            yield f"{path}: {kind}"

    def object(self, node: Node, path: str) -> set[str]:
        if struct := self.inline_struct(path, node):
            self.read_struct(struct, node)
            return {f"{path}: {struct}"}
        values: Any = node.get("additionalProperties")
        described = values not in (None, {}, True, False)
        return self.statements(values, f"{path}{{}}") if described else {f"{path}{{}}: any"}

    def inline_struct(self, path: str, node: Node) -> str | None:
        """Return the name of our struct for an object that the schema describes inline, or None."""
        last = path.rsplit(".", 1)[-1]
        self.used |= {path, last}
        if path in intended_differences.STRUCTS_BY_PATH:
            return intended_differences.STRUCTS_BY_PATH[path]
        if node.get("properties") and path not in intended_differences.KEPT_WHOLE:
            return intended_differences.STRUCTS_BY_LAST_MEMBER.get(last)
        return None


_KINDS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", bytes: "bytes", None: "null"}
_KINDS[type(None)] = "null"


def type_statements(kind: Any, path: str) -> set[str]:
    """Return the statements of one of our types."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {f"{path}: any"}
    if kind in (msgspec.Raw, msgspec.UnsetType):
        return {f"{path}: raw"} if kind is msgspec.Raw else set()
    if origin in (typing.Union, python_types.UnionType):
        statements = {statement for part in arguments for statement in type_statements(part, path)}
        return statements - {f"{path}: integer"} if f"{path}: number" in statements else statements
    if origin is typing.Literal:
        return {f"{path}: {value!r}" for value in arguments}
    if is_struct(kind):
        return {f"{path}: {kind.__name__}"}
    if origin is not None and len(arguments) == 2:
        return type_statements(arguments[1], f"{path}{{}}")
    if origin is not None:
        return type_statements(arguments[0], f"{path}[]")
    return {f"{path}: {_KINDS[kind]}"}


def struct_members(struct: type[msgspec.Struct]) -> tuple[dict[str, set[str]], set[str]]:
    """Return the statements of a struct by the wire names of its members, and its required members."""
    hints = typing.get_type_hints(struct)
    fields = msgspec.structs.fields(struct)
    name = struct.__name__
    members = {f.encode_name: type_statements(hints[f.name], f"{name}.{f.encode_name}") for f in fields}
    required = {f.encode_name for f in fields if f.required}
    config = struct.__struct_config__
    if config.tag is not None and config.tag_field is not None:
        members[config.tag_field] = {f"{name}.{config.tag_field}: {config.tag!r}"}
        required.add(config.tag_field)
    return members, required


def without_narrower(statements: set[str]) -> set[str]:
    """Leave out the statements that a broader one includes: `any` includes all values, and `number` integers."""
    anywhere = tuple(a.removesuffix(": any") for a in statements if a.endswith(": any"))
    narrower = {f"{place}{more}" for place in anywhere for more in ("{}: any", "[]: any")}
    return {
        a
        for a in statements - narrower
        if not (a.endswith(": integer") and a.removesuffix("integer") + "number" in statements)
    }


def read(schemas: dict[str, dict[str, Node]]) -> list[SchemaReader]:
    readers = [SchemaReader(definitions) for definitions in schemas.values()]
    for reader in readers:
        reader.read_all()
    return readers


def differences(schemas: dict[str, dict[str, Node]]) -> set[str]:
    """Return all differences between the structs and the schemas."""
    readers = read(schemas)
    found: set[str] = set()
    for struct in sorted({s for reader in readers for s in reader.members}):
        found |= struct_differences(struct, readers)
    for alias in sorted({a for reader in readers for a in reader.aliases}):
        found |= alias_differences(alias, readers)
    return found


def struct_differences(struct: str, readers: list[SchemaReader]) -> set[str]:
    target: Any = getattr(types, struct, None)
    if not is_struct(target):
        return {f"{struct}: not here"}
    members, required = struct_members(target)
    theirs: dict[str, set[str]] = {}
    for reader in readers:
        for member, statements in reader.members.get(struct, {}).items():
            theirs.setdefault(member, set()).update(statements)
    their_required = set(theirs).intersection(*(r for reader in readers for r in reader.required.get(struct, ())))
    found = {f"{struct}.{m}: not here" for m in theirs.keys() - members.keys()}
    found |= {f"{struct}.{m}: in no schema" for m in members.keys() - theirs.keys()}
    found |= {f"{struct}.{m}: optional here" for m in (their_required - required) & members.keys()}
    found |= {f"{struct}.{m}: required here" for m in (required - their_required) & theirs.keys()}
    for member in theirs.keys() & members.keys():
        found |= statement_differences(theirs[member], members[member])
    return found


def alias_differences(alias: str, readers: list[SchemaReader]) -> set[str]:
    target = getattr(types, alias, None)
    if target is None:
        return {f"{alias}: not here"}
    theirs = {statement for reader in readers for statement in reader.aliases.get(alias, ())}
    return statement_differences(theirs, type_statements(target, alias))


def statement_differences(theirs: set[str], own: set[str]) -> set[str]:
    theirs, own = without_narrower(theirs), without_narrower(own)
    return {f"{theirs_only} (not here)" for theirs_only in theirs - own} | {
        f"{ours_only} (in no schema)" for ours_only in own - theirs
    }
