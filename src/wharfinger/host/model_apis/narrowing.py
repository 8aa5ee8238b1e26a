"""Narrows a tool's JSON Schema to the keywords that a model API accepts, and reports the dropped ones.

MCP allows any JSON Schema (2020-12, or a draft that `$schema` names). The APIs accept subsets, and refuse the whole
request for one keyword too many (docs/model_apis.md). Narrowing works on a copy, in this order:

- the root becomes an object with `properties`: references are followed, `allOf` is merged, and the members of `anyOf`
  and `oneOf` become optional properties of one object;
- keywords of older drafts get their present form (`definitions`, `items` as a list, `exclusiveMinimum: true`,
  `nullable`), malformed ones are dropped, and references are rewritten to `#/$defs/NAME`;
- a keyword that the API refuses is replaced by one that means the same (`const` by `enum`), or else dropped: then the
  result allows more than the original, and the restriction is repeated in the description. Keywords that would allow
  less if something in them were dropped (`not`, `if`, `unevaluatedProperties`, …) are always dropped;
- property names that the API refuses are replaced; `restore` puts the original ones back into the arguments.

The server still checks the arguments against the original schema, so a dropped keyword costs at most another attempt.
In strict mode some schemas cannot be expressed: `NotExpressible` says why, and the tool is defined without strict mode.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Literal, NamedTuple

import msgspec

from wharfinger.content.decoded_json import is_list, is_object
from wharfinger.host.model_apis.schema_keywords import (
    ABOUT_THE_SCHEMA,
    ANNOTATIONS,
    KEYWORDS,
    NAMED_SCHEMAS,
    NEVER_KEPT,
    NOT_NOTED,
    ONE_SCHEMA,
    REFERENCES,
    SEVERAL_SCHEMAS,
    is_names,
    is_nonempty_list,
    is_number,
    is_schema,
    is_text,
    is_type,
    items_of,
    members_of,
    names_in,
    text_in,
    types_of,
)
from wharfinger.host.model_apis.schema_references import SchemaPlaces, direct_schemas, reference_groups, refers_to

__all__ = ["DroppedKeyword", "NarrowedSchema", "NotExpressible", "SchemaRules", "narrow"]

Schema = dict[str, Any]

MAX_DEPTH = 40
"""Maximum depth of nested schemas; deeper ones become `{}`, which allows any value."""
MAX_SCHEMAS = 10_000
"""Maximum number of schemas in one tool's schema, with each copy of them; further ones become `{}`."""
TOO_MANY = f"over {MAX_SCHEMAS} schemas, or {MAX_DEPTH} levels of them"
MAX_SCHEMA_BYTES = 256 * 1024
"""Maximum size of a schema as JSON; a larger one becomes an object with any members."""
MAX_COPIED_BYTES = 4 * MAX_SCHEMA_BYTES
"""Maximum size as JSON of all schemas that replace references to them; further references allow any value."""
MAX_REPORTED = 1_000
"""Maximum number of dropped keywords that are reported of one schema."""
MAX_PATH_CHARACTERS = 1_000
"""Maximum length of the path, and of the keyword, in a report."""
MAX_NOTE_CHARACTERS = 200
"""Maximum length as JSON of a restriction that is repeated in the description."""

_ABOUT_NAMES = ("dependentRequired", "dependentSchemas", "if", "then", "else", "propertyNames", "patternProperties")
# Of two values, the higher one (`_HIGHER`) or the lower one (`_LOWER`) allows less.
_HIGHER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
_LOWER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains")
_LOOK_AROUND = re.compile(r"\(\?[=!<]|\\[1-9]|\(\?P[=<]")
_TEXTS = ("title", "description")


class SchemaRules(msgspec.Struct, frozen=True, kw_only=True):
    """The keywords, values and sizes that an API accepts in a schema."""

    keywords: frozenset[str] = frozenset(KEYWORDS) - NEVER_KEPT
    """The keywords that it accepts."""
    refused_at_root: frozenset[str] = frozenset()
    """Keywords that it refuses at the root only."""
    property_name: str = ""
    """A pattern for the names of the root's properties; empty if any name is accepted."""
    formats: frozenset[str] | None = None
    """The values of `format` that it accepts; None if it accepts any."""
    plain_enums: bool = False
    """Whether the values of `enum` must be strings or numbers."""
    plain_patterns: bool = False
    """Whether look-around and back-references are refused in a `pattern`."""
    bare_references: bool = False
    """Whether other keywords are refused beside `$ref`."""
    recursion: Literal["any", "optional", "none"] = "any"
    """Whether a schema may refer to itself: `optional` allows it inside properties that are not required."""
    known_required: bool = False
    """Whether each name in `required` must be a property."""
    min_items_at_most_one: bool = False
    """Whether `minItems` may be 0 or 1 only."""
    closed: bool = False
    """Whether each object must have `additionalProperties: false`, and each value a type (strict mode)."""
    all_required: bool = False
    """Whether each property must be required; optional ones become nullable."""
    max_nested_objects: int = MAX_DEPTH
    max_properties: int = MAX_SCHEMAS
    max_enum_values: int = 100_000
    max_name_characters: int = 1_000_000
    """Maximum length of all names of properties and definitions, and of all values of `enum` and `const`."""


class DroppedKeyword(msgspec.Struct, frozen=True):
    """A keyword or name in a schema that an API does not accept."""

    path: str
    """The path to its schema, such as `properties.when`; empty for the root."""
    keyword: str
    reason: str


class NarrowedSchema(NamedTuple):
    """A schema that an API accepts."""

    schema: Schema
    dropped: list[DroppedKeyword]
    renamed: dict[str, str]
    """The original names of the root's properties that have another name in the schema."""


class NotExpressible(ValueError):
    """The schema cannot be expressed in strict mode; the message says where and why."""


def narrow(schema: Any, rules: SchemaRules) -> NarrowedSchema:
    """Return a tool's input schema as an API accepts it. The root is an object, whatever `schema` is.

    Raises:
        NotExpressible: these are the rules of a strict mode, and the schema cannot be expressed in it.
    """
    return _Narrowing(schema, rules).run()


class _Narrowing:
    """The state of one `narrow`."""

    def __init__(self, schema: Any, rules: SchemaRules) -> None:
        self._rules = rules
        self._dropped: list[DroppedKeyword] = []
        fault = _size_fault(schema)
        if fault:
            self._drop("", "", fault)
        self._root: Schema = {} if fault else schema
        self._places = SchemaPlaces(self._root)
        self._names: dict[int, str] = {}  # of definitions, by the identity of the original schema
        self._used_names: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The next number after each base name: thousands of definitions may have the same one."""
        self._waiting: list[tuple[str, Any, str]] = []
        """The definitions to narrow: the name, the original schema, and its path."""
        self._narrowed_count = 0
        self._merged_count = 0
        self._copied_bytes = 0

    def run(self) -> NarrowedSchema:
        root, renamed = self._object_of_root()
        narrowed = self._narrow(root, "", 0, at_root=True)
        narrowed.setdefault("type", "object")
        narrowed.setdefault("properties", {})
        definitions: Schema = {}
        while self._waiting:
            name, schema, path = self._waiting.pop()
            definitions[name] = self._narrow(schema, path, 1)
        if definitions:
            if self._rules.recursion != "any":
                self._limit_recursion(definitions)
            narrowed["$defs"] = dict(sorted(definitions.items()))
        if self._rules.closed:
            self._check_sizes(narrowed)
        return NarrowedSchema(narrowed, self._dropped, renamed)

    def _drop(self, path: str, keyword: str, reason: str) -> None:
        if len(self._dropped) < MAX_REPORTED:
            self._dropped.append(DroppedKeyword(path[:MAX_PATH_CHARACTERS], keyword[:MAX_PATH_CHARACTERS], reason))

    # The root.

    def _object_of_root(self) -> tuple[Schema, dict[str, str]]:
        """Return the root as an object without refused keywords, and the names that were replaced."""
        root = self._merged(self._root, "")
        kind = root.get("type")
        if kind != "object" and kind is not None and "object" not in (kind if is_list(kind) else ()):
            self._drop("", "type", f"arguments are an object, not {kind!r}"[:MAX_NOTE_CHARACTERS])
            root = {key: root[key] for key in _TEXTS if key in root}
        root["type"] = "object"
        for keyword in ("anyOf", "oneOf"):
            if keyword in root and keyword in self._rules.refused_at_root:
                root = self._one_object(root, keyword)
        for keyword in self._rules.refused_at_root & root.keys():
            self._drop("", keyword, "refused at the root")
            del root[keyword]
        if not is_object(root.get("properties")):
            root["properties"] = {}
        return self._with_accepted_names(root)

    def _one_object(self, root: Schema, keyword: str) -> Schema:
        """Return the root with the properties of all alternatives, each required only if every alternative requires it.

        The properties of the root itself stay as they are.
        """
        branches = [self._merged(branch, f"{keyword}.{number}") for number, branch in items_of(root.pop(keyword))]
        branches = [branch for branch in branches if branch.get("type", "object") == "object"]
        if not branches:
            self._drop("", keyword, "refused at the root")
            return root
        properties: Schema = dict(root["properties"]) if is_object(root.get("properties")) else {}
        declared = frozenset(properties)
        different: dict[str, dict[bytes, Any]] = {}  # the schemas of each property, by their JSON
        for branch in branches:
            for name, schema in members_of(branch.get("properties")):
                if name not in declared:
                    different.setdefault(name, {}).setdefault(msgspec.json.encode(schema), schema)
        for name, schemas in different.items():
            alternatives = list(schemas.values())
            properties[name] = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
        required_by_each = [
            [name for name in names_in(branch.get("required")) if name in properties] for branch in branches
        ]
        required_by_all = set(required_by_each[0]).intersection(*required_by_each[1:])
        common = [name for name in required_by_each[0] if name in required_by_all]
        root["properties"] = properties
        required = [*dict.fromkeys([*names_in(root.get("required")), *common])]
        if required:
            root["required"] = required
        closed = [
            branch.get("additionalProperties") is False and "patternProperties" not in branch for branch in branches
        ]
        if not all(closed):
            if root.get("additionalProperties") is False and any(name not in declared for name in properties):
                del root["additionalProperties"]
        else:
            root.setdefault("additionalProperties", False)
        texts = [", ".join(names) for names in required_by_each if names and names != common]
        if texts:
            which = "at least one" if keyword == "anyOf" else "exactly one"
            text = f"Give {which} of these sets of arguments: {'; '.join(dict.fromkeys(texts))}."
            if len(text) <= 10 * MAX_NOTE_CHARACTERS:
                root["description"] = " ".join(filter(None, [text_in(root.get("description")), text]))
        self._drop("", keyword, "refused at the root: its alternatives became optional properties of one object")
        return root

    def _with_accepted_names(self, root: Schema) -> tuple[Schema, dict[str, str]]:
        """Return the root with names of properties that the API accepts, and the names that were replaced."""
        properties: Schema = root["properties"]
        accepted = re.compile(self._rules.property_name or "(?s).*").fullmatch
        if all(map(accepted, properties)):
            return root, {}
        used_names = {name for name in properties if accepted(name)}
        new_names: dict[str, str] = {}
        for name in properties:
            if name not in used_names:
                new_names[name] = _accepted_name(name, used_names)
                used_names.add(new_names[name])
                self._drop(
                    "properties", name[:MAX_NOTE_CHARACTERS], f"the name is refused: {new_names[name]!r} instead"
                )
        root["properties"] = {new_names.get(name, name): schema for name, schema in properties.items()}
        if is_names(root.get("required")):
            root["required"] = [new_names.get(name, name) for name in root["required"]]
        for keyword in _ABOUT_NAMES:
            if keyword in root:
                self._drop("", keyword, "names of properties were replaced")
                del root[keyword]
        return root, {new: old for old, new in new_names.items()}

    # Merging, of original schemas.

    def _merged(self, schema: Any, path: str, seen: frozenset[int] = frozenset()) -> Schema:
        """Return a schema with its reference followed and its `allOf` merged, one level deep."""
        self._merged_count += 1
        if self._merged_count > MAX_SCHEMAS or len(seen) > MAX_DEPTH:
            self._drop(path, "", TOO_MANY)
            return {}
        if not is_object(schema):
            return {}
        own = dict(schema)
        parts: list[Any] = [part for _, part in items_of(own.pop("allOf", None))]
        for keyword in REFERENCES:
            if keyword in own:
                target = self._places.find(own.pop(keyword))
                if target is None:
                    self._drop(path, keyword, "refers to no place in the schema")
                elif id(target) in seen:
                    self._drop(path, keyword, "refers to itself")
                elif self._may_copy(target, path, keyword):
                    parts.insert(0, target)
        for part in parts:
            other = self._merged(part, path, seen | {id(part)})
            self._merge_into(own, other, path)
        return own

    def _may_copy(self, target: Schema, path: str, keyword: str) -> bool:
        """Return whether a reference may be replaced by its schema: a large one may have thousands of references.

        Raises NotExpressible in strict mode if not.
        """
        if self._copied_bytes <= MAX_COPIED_BYTES:
            self._copied_bytes += len(msgspec.json.encode(target))
        if self._copied_bytes <= MAX_COPIED_BYTES:
            return True
        reason = f"the copies of schemas with references have over {MAX_COPIED_BYTES:,} bytes"
        if self._rules.closed:
            raise NotExpressible(reason)
        self._drop(path, keyword, reason)
        return False

    def _merge_into(self, own: Schema, other: Schema, path: str) -> None:
        """Add the keywords of another schema that applies to the same value."""
        for key, value in other.items():
            mine: Any = own.get(key)
            if key in ABOUT_THE_SCHEMA or mine == value:
                continue
            if key not in own:
                own[key] = value
            elif key in ("properties", "patternProperties") and is_object(mine) and is_object(value):
                own[key] = {
                    **mine,
                    **{
                        name: _both(mine[name], schema) if name in mine and mine[name] != schema else schema
                        for name, schema in value.items()
                    },
                }
            elif key == "required" and is_list(mine) and is_names(value):
                own[key] = [*mine, *value]  # `_present_form` leaves out repeated names
            elif key == "type" and is_type(mine) and is_type(value):
                common = _common_types(types_of(mine), types_of(value))
                if common:
                    own[key] = common[0] if len(common) == 1 else common
            elif key == "enum" and is_list(mine) and is_list(value):
                both = set(map(_hashable, value))
                own[key] = [item for item in mine if _hashable(item) in both] or mine
            elif key in _HIGHER and is_number(mine) and is_number(value):
                own[key] = max(mine, value)
            elif key in _LOWER and is_number(mine) and is_number(value):
                own[key] = min(mine, value)
            elif key == "prefixItems" and is_list(mine) and is_list(value) and len(value) > len(mine):
                own[key] = value  # `items` starts after it
                self._drop(path, key, "given twice, in allOf: only one is kept")
            elif key == "additionalProperties" and (mine is False or value is False):
                own[key] = False
            elif key in ("items", "additionalProperties") and is_schema(mine) and is_schema(value):
                own[key] = _both(mine, value)
            elif key not in ANNOTATIONS:
                self._drop(path, key, "given twice, in allOf: only one is kept")

    # One schema.

    def _narrow(self, given: Any, path: str, depth: int, *, at_root: bool = False) -> Schema:
        self._narrowed_count += 1
        if self._narrowed_count > MAX_SCHEMAS or depth > MAX_DEPTH:
            self._drop(path, "", TOO_MANY)
            return self._anything(path)
        if not is_object(given):
            if given is not True:
                self._drop(path, "", "allows no value" if given is False else "is not a schema")
            return self._anything(path)
        schema = _present_form(given)
        if any(keyword in schema for keyword in REFERENCES):
            return self._reference(schema, path, depth)
        if "allOf" in schema and "allOf" not in self._rules.keywords:
            schema = _present_form(self._merged(schema, path))
        if self._rules.plain_enums:
            schema = _with_null_apart(schema)
        narrowed: Schema = {}
        notes: list[str] = []
        for keyword, value in schema.items():
            if keyword in ABOUT_THE_SCHEMA:
                continue
            fault = self._fault(keyword, value, schema)
            if fault:
                replacement = self._replacement(keyword, value, schema) if fault == "not accepted" else None
                if replacement is None:
                    self._drop(path, keyword, fault)
                    if fault == "not accepted" and keyword not in NOT_NOTED:
                        notes += _note(keyword, value)
                    continue
                keyword, value = replacement
            narrowed[keyword] = self._value(keyword, value, path, depth)
        if "patternProperties" in schema and "patternProperties" not in narrowed:
            narrowed.pop("additionalProperties", None)  # else names that match a pattern would be refused
        if notes:
            narrowed["description"] = " ".join(filter(None, [narrowed.get("description"), f"({'; '.join(notes)})"]))
        self._complete(narrowed, path, at_root=at_root)
        return narrowed

    def _value(self, keyword: str, value: Any, path: str, depth: int) -> Any:
        """Return the value of a keyword, with the schemas in it narrowed."""
        value_path = f"{path}.{keyword}".lstrip(".")
        if keyword in ONE_SCHEMA:
            return (
                value if isinstance(value, bool) and keyword != "items" else self._narrow(value, value_path, depth + 1)
            )
        if keyword in SEVERAL_SCHEMAS:
            return [self._narrow(each, f"{value_path}.{number}", depth + 1) for number, each in enumerate(value)]
        if keyword in NAMED_SCHEMAS:
            return {name: self._narrow(each, f"{value_path}.{name}", depth + 1) for name, each in value.items()}
        return value

    def _fault(self, keyword: str, value: Any, schema: Schema) -> str:
        """Return why a keyword is dropped, or an empty string."""
        rules, check = self._rules, KEYWORDS.get(keyword)
        if check is None:
            return "not a keyword of JSON Schema 2020-12"
        if not check(value):
            return "malformed"
        if keyword not in rules.keywords:
            return "not accepted"
        if keyword == "format" and rules.formats is not None and value not in rules.formats:
            return "not accepted"
        if keyword == "pattern" and rules.plain_patterns and _LOOK_AROUND.search(value):
            return "not accepted"
        if keyword == "minItems" and rules.min_items_at_most_one and value > 1:
            return "not accepted"
        if keyword == "enum" and rules.plain_enums and not all(is_text(item) or is_number(item) for item in value):
            return "not accepted"
        return ""

    def _replacement(self, keyword: str, value: Any, schema: Schema) -> tuple[str, Any] | None:
        """Return the keyword and value that replace these, such as `anyOf` for `oneOf`, or None.

        A replacement allows at least what the original allows.
        """
        if keyword == "oneOf" and "anyOf" in self._rules.keywords and "anyOf" not in schema:
            return "anyOf", value
        plain = not self._rules.plain_enums or is_text(value) or is_number(value)
        if keyword == "const" and "enum" in self._rules.keywords and "enum" not in schema and plain:
            return "enum", [value]
        return None

    def _reference(self, schema: Schema, path: str, depth: int) -> Schema:
        """Return the schema with its reference rewritten."""
        rules = self._rules
        keyword = next(keyword for keyword in REFERENCES if keyword in schema)
        target = self._places.find(schema[keyword])
        if target is None:
            self._drop(path, keyword, "refers to no place in the schema")
            other_keywords = {key: value for key, value in schema.items() if key not in REFERENCES}
            return self._narrow(other_keywords, path, depth + 1)
        other_keywords = {key: value for key, value in schema.items() if key not in ABOUT_THE_SCHEMA}
        only_annotations = all(key in ANNOTATIONS for key in other_keywords)
        if not only_annotations and (rules.bare_references or "allOf" not in rules.keywords):
            without_reference = {key: value for key, value in schema.items() if key != keyword}
            own = self._merged(without_reference, path, frozenset({id(target)}))
            if self._may_copy(target, path, keyword):
                self._merge_into(own, self._merged(target, path, frozenset({id(target)})), path)
            return self._narrow(own, path, depth + 1)
        reference: Schema = {"$ref": f"#/$defs/{self._define(target, schema[keyword], path)}"}
        if not other_keywords:
            return reference
        if only_annotations:
            kept = {key: value for key, value in other_keywords.items() if not self._fault(key, value, other_keywords)}
            for key in other_keywords.keys() - kept.keys():
                self._drop(path, key, self._fault(key, other_keywords[key], other_keywords))
            if not kept:
                return reference
            return {"anyOf": [reference], **kept} if rules.bare_references else {**reference, **kept}
        return {**self._narrow(other_keywords, path, depth + 1), **reference}

    def _define(self, target: Any, pointer: str, path: str) -> str:
        """Return the name under which references find a schema. The schema is narrowed later."""
        name = self._names.get(id(target))
        if name is None:
            # A reference to the root ends in no name. A number may follow the name, so the name is cut.
            base_name = re.sub(r"[^A-Za-z0-9_-]", "_", pointer.rpartition("/")[2].lstrip("#"))[:56] or "arguments"
            name, number = base_name, self._numbers.get(base_name, 2)
            while name in self._used_names:
                name, number = f"{base_name}_{number}", number + 1
            self._numbers[base_name] = number
            self._used_names.add(name)
            self._names[id(target)] = name
            self._waiting.append((name, target, f"$defs.{name}"))
        return name

    def _anything(self, path: str) -> Schema:
        """Return the schema of any value. Raises NotExpressible in strict mode, which has no such schema."""
        if self._rules.closed:
            raise NotExpressible(f"{path or 'the root'} allows values of any type")
        return {}

    def _complete(self, schema: Schema, path: str, *, at_root: bool) -> None:
        """Add the keywords that the API requires."""
        rules = self._rules
        kinds = types_of(schema.get("type"))
        if "array" in kinds and "items" not in schema:
            schema["items"] = self._anything(f"{path}.items".lstrip("."))
        if rules.closed and not kinds and not schema.keys() & {"enum", "const", "anyOf", "allOf", "$ref"}:
            if "properties" in schema:
                schema["type"] = "object"
            else:
                self._anything(path)  # raises NotExpressible
        if "properties" in schema and rules.known_required:
            required = names_in(schema.get("required"))
            unknown = [name for name in required if name not in schema["properties"]]
            if unknown:
                self._drop(path, "required", f"requires {', '.join(unknown)[:100]}, which is no property")
                schema["required"] = [name for name in required if name in schema["properties"]]
        if rules.closed and ("object" in kinds or "properties" in schema):
            self._close(schema, path, at_root=at_root)

    def _close(self, schema: Schema, path: str, *, at_root: bool) -> None:
        """Allow only the declared properties, and require all of them if the API demands it."""
        additional = schema.get("additionalProperties")
        if additional is not None and additional is not False:
            raise NotExpressible(f"{path or 'the root'} allows other members than its properties")
        properties: Schema = schema.setdefault("properties", {})
        # A root without properties is a tool without arguments, unless keywords that describe them were dropped.
        takes_nothing = at_root and all(each.keyword in ANNOTATIONS for each in self._dropped)
        if not properties and additional is None and not takes_nothing:
            raise NotExpressible(f"{path or 'the root'} is an object with any members")
        schema["additionalProperties"] = False
        if self._rules.all_required:
            required = names_in(schema.get("required"))
            for name in properties:
                if name not in required:
                    properties[name] = _nullable(properties[name])
            schema["required"] = list(properties)

    def _check_sizes(self, root: Schema) -> None:
        """Raise NotExpressible if the schema is over a limit of strict mode."""
        rules, properties, values, characters = self._rules, 0, 0, 0
        stack: list[tuple[Any, int]] = [(root, 0)]
        while stack:
            schema, level = stack.pop()
            level += schema.get("type") == "object" or "object" in types_of(schema.get("type"))
            if level > rules.max_nested_objects:
                raise NotExpressible(f"objects are nested in more than {rules.max_nested_objects} levels")
            names = [*members_of(schema.get("properties")), *members_of(schema.get("$defs"))]
            properties += len(schema.get("properties", ()))
            characters += sum(len(name) for name, _ in names)
            options = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
            values += len(options)
            characters += sum(len(str(option)) for option in options)
            stack += [(each, level if name in schema.get("properties", ()) else 0) for name, each in names]
            stack += [
                (each, level)
                for key, value in schema.items()
                for each in direct_schemas(key, value)
                if key not in NAMED_SCHEMAS
            ]
        for count, limit, what in (
            (properties, rules.max_properties, "properties"),
            (values, rules.max_enum_values, "values of enum"),
            (characters, rules.max_name_characters, "characters in names and values"),
        ):
            if count > limit:
                raise NotExpressible(f"the schema has {count:,} {what}; the limit is {limit:,}")

    # Recursion.

    def _limit_recursion(self, definitions: Schema) -> None:
        """Allow a definition to refer to itself only inside of properties that are not required."""
        groups = reference_groups(definitions)
        members: dict[int, set[str]] = {}
        for name, group in groups.items():
            members.setdefault(group, set()).add(f"#/$defs/{name}")
        for name, schema in definitions.items():
            cyclic = members[groups[name]]
            if cyclic == {f"#/$defs/{name}"} and not refers_to(schema, cyclic):
                continue
            if self._rules.recursion == "none":
                raise NotExpressible(f"$defs.{name} refers to itself")
            self._open_cycle(schema, f"$defs.{name}", cyclic, inside=False)

    def _open_cycle(self, schema: Schema, path: str, cyclic: set[str], *, inside: bool) -> None:
        """Cut the references in `cyclic`, except inside of properties, and require no property that contains one.

        With `inside`, the schema is in a property.
        """
        if not inside and schema.get("$ref") in cyclic:
            self._drop(path, "$ref", "refers to itself outside of a property that is not required")
            schema.clear()
            return
        required = frozenset(names_in(schema.get("required")))
        for name, each in members_of(schema.get("properties")):
            if name in required and refers_to(each, cyclic):
                self._drop(path, "required", f"requires {name[:100]}, which refers to itself")
                schema["required"] = [other for other in schema["required"] if other != name]
            self._open_cycle(each, f"{path}.properties.{name}", cyclic, inside=True)
        for key, value in schema.items():
            if key != "properties":
                for each in direct_schemas(key, value):
                    self._open_cycle(each, f"{path}.{key}", cyclic, inside=inside)


# --- parts of schemas -------------------------------------------------------------------------------------------------


def _both(schema: Any, other: Any) -> Schema:
    """Return a schema of the values that both schemas allow, which does not get deeper with each further schema."""
    if is_object(schema) and schema.keys() == {"allOf"} and is_list(schema["allOf"]):
        return {"allOf": [*schema["allOf"], other]}
    return {"allOf": [schema, other]}


def _hashable(value: Any) -> Any:
    """Return a key that is equal for equal values of an `enum`."""
    return msgspec.json.encode(value, order="sorted") if isinstance(value, list | dict) else value


def _common_types(kinds: list[str], others: list[str]) -> list[str]:
    """Return the types that both lists allow; each integer is a number."""
    common = [kind for kind in kinds if kind in others]
    crossed = ("number" in kinds and "integer" in others) or ("integer" in kinds and "number" in others)
    return [*common, "integer"] if crossed and not {"integer", "number"} & {*common} else common


def _present_form(schema: Schema) -> Schema:
    """Return a schema of an older draft, or of OpenAPI 3.0, with the keywords of 2020-12."""
    new = dict(schema)
    if is_list(new.get("items")):
        further_items = new.pop("additionalItems", None)
        tuple_items = new.pop("items")
        if tuple_items:
            new["prefixItems"] = tuple_items
        if further_items is not None:
            new["items"] = further_items
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(new.get(exclusive), bool) and new.pop(exclusive) and bound in new:
            new[exclusive] = new.pop(bound)
    if isinstance(new.get("nullable"), bool) and new.pop("nullable") and is_type(new.get("type")):
        new["type"] = [*dict.fromkeys([*types_of(new["type"]), "null"])]
        if is_list(new.get("enum")) and None not in new["enum"]:
            new["enum"] = [*new["enum"], None]
    if is_list(new.get("type")) and is_type(new["type"]):
        kinds = [*dict.fromkeys(new["type"])]  # 2020-12 refuses repeated names
        new["type"] = kinds if len(kinds) > 1 else kinds[0]
    if is_names(new.get("required")):
        new["required"] = [*dict.fromkeys(new["required"])]
    if is_object(needed := new.get("dependentRequired")):
        new["dependentRequired"] = {
            name: [*dict.fromkeys(names)] if is_names(names) else names for name, names in needed.items()
        }
    return new


def _size_fault(schema: Any) -> str:
    """Return why a schema is not used, or an empty string."""
    if not is_object(schema):
        return "the schema of the arguments is missing, or is not an object"
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError) as error:
        return f"the schema cannot be encoded as JSON: {error}"[:MAX_NOTE_CHARACTERS]
    return f"the schema has {size:,} bytes; the limit is {MAX_SCHEMA_BYTES:,}" if size > MAX_SCHEMA_BYTES else ""


def _with_null_apart(schema: Schema) -> Schema:
    """Return a schema in which the null of an `enum` is a separate alternative."""
    values = schema.get("enum")
    if not is_nonempty_list(values) or "anyOf" in schema or None not in values:
        return schema
    texts: Schema = {key: schema[key] for key in _TEXTS if key in schema}
    other_keywords = {key: value for key, value in schema.items() if key not in texts}
    other_keywords["enum"] = [value for value in values if value is not None]
    if "type" in other_keywords and is_type(other_keywords["type"]):
        kinds = [kind for kind in types_of(other_keywords["type"]) if kind != "null"]
        if kinds == types_of(other_keywords["type"]):  # the type refuses null, so no alternative is needed
            return {**schema, "enum": other_keywords["enum"]} if other_keywords["enum"] else schema
        other_keywords["type"] = kinds[0] if len(kinds) == 1 else kinds
    return (
        {**texts, "anyOf": [other_keywords, {"type": "null"}]} if other_keywords["enum"] else {**texts, "type": "null"}
    )


def _nullable(schema: Schema) -> Schema:
    """Return a narrowed schema that also allows null."""
    if "$ref" not in schema and "const" not in schema and "anyOf" not in schema and "type" in schema:
        kinds = [*dict.fromkeys([*types_of(schema["type"]), "null"])]
        more: Schema = {"type": kinds}
        if "enum" in schema:
            more["enum"] = [*schema["enum"], *([] if None in schema["enum"] else [None])]
        return {**schema, **more}
    if "anyOf" in schema and not schema.keys() & {"type", "enum", "const", "$ref"}:
        if {"type": "null"} in schema["anyOf"]:
            return schema
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    texts: Schema = {key: schema[key] for key in _TEXTS if key in schema}
    inner = {key: value for key, value in schema.items() if key not in texts}
    return {**texts, "anyOf": [inner, {"type": "null"}]}


def _accepted_name(name: str, taken: set[str]) -> str:
    """Return an unused name of letters, digits and underscores for a property."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    words = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    words = words if words[:1].isalpha() else f"_{words}".rstrip("_") or "_"
    new = words[:64] if len(words) <= 64 and words not in taken else f"{words[:50]}_{digest[:12]}"
    while new in taken:
        digest = hashlib.sha256(digest.encode()).hexdigest()
        new = f"{words[:50]}_{digest[:12]}"
    return new


def _note(keyword: str, value: Any) -> list[str]:
    """Return the restriction in words, if it is short."""
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError, msgspec.MsgspecError):
        return []
    return [f"{keyword}: {text}"] if len(text) <= MAX_NOTE_CHARACTERS else []
