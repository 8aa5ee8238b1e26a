"""Whatever a server says of its arguments, each API accepts the definition, and it allows what the server allows."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.host.model_apis.checkers import tool_faults
from wharfinger import types as t
from wharfinger.host.model_apis import MODEL_APIS, OfferedTool, define_tools
from wharfinger.host.model_apis.narrowing import MAX_DEPTH, MAX_SCHEMA_BYTES, SchemaRules, narrow
from wharfinger.host.model_apis.schema_arguments import restore

FORMATS = tuple(MODEL_APIS)
STRICT = tuple(name for name, api in MODEL_APIS.items() if api.strict_rules is not None)


def defined(schema: Any, format: str, strict: bool = False) -> tuple[Any, list[str]]:
    """Return the schema as it is defined for an API, and what was dropped."""
    tool = t.Tool(name="tide", input_schema=schema)
    definitions = define_tools([OfferedTool("tide", tool)], MODEL_APIS[format], strict=strict)
    assert tool_faults(format, definitions) == []
    (item,) = definitions
    item = item.get("function", item)
    if format == "gemini":
        item = item["functionDeclarations"][0]
    kept = item.get("parameters", item.get("input_schema", item.get("parametersJsonSchema")))
    return kept, [str(each) for each in definitions.dropped]


@pytest.mark.parametrize("format", FORMATS)
def test_a_plain_schema_is_unchanged(format: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "ship": {"type": "string", "description": "Her name"},
            "hours": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 23}},
            "quay": {"type": "string", "enum": ["north", "south"]},
            "where": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["ship"],
        "additionalProperties": False,
    }
    before = json.dumps(schema)
    assert defined(schema, format) == (schema, [])
    assert json.dumps(schema) == before


def test_keywords_that_gemini_refuses_are_reported_and_stated_in_the_description() -> None:
    schema = {
        "type": "object",
        "properties": {
            "ship": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$", "description": "Her name"},
            "berth": {"const": "north"},
            "state": {"type": ["string", "null"], "enum": ["in", "out", None]},
        },
    }
    kept, dropped = defined(schema, "gemini")
    assert kept["properties"] == {
        "ship": {"type": "string", "description": "Her name (minLength: 2; pattern: ^[a-z]+$)"},
        "berth": {"enum": ["north"]},
        "state": {"anyOf": [{"type": "string", "enum": ["in", "out"]}, {"type": "null"}]},
    }
    assert dropped == [
        "tide: properties.ship.minLength: not accepted",
        "tide: properties.ship.pattern: not accepted",
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "string"}, {"type": ["null"]}, {"type": "array", "items": {"type": "string"}}, {"enum": [1]}],
)
def test_a_schema_that_is_not_an_object_is_wrapped(format: str, schema: Any) -> None:
    kept, dropped = defined(schema, format)
    assert kept in (None, {"type": "object", "properties": {}})  # Gemini takes a function without parameters
    assert bool(dropped) is (schema != {})


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_schema_becomes_an_object(format: str) -> None:
    for schema in (None, [], "object", 3):
        assert defined(schema, format)[1] == ["tide: the schema of the arguments is missing, or is not an object"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_alternatives_at_the_root_become_optional_properties(format: str, keyword: str) -> None:
    schema = {
        "type": "object",
        "properties": {"quay": {"type": "string"}},
        "required": ["quay"],
        keyword: [
            {"properties": {"ship": {"type": "string"}, "hour": {"type": "integer"}}, "required": ["ship", "hour"]},
            {"properties": {"crew": {"type": "string"}, "hour": {"type": "string"}}, "required": ["crew", "hour"]},
        ],
    }
    kept, dropped = defined(schema, format)
    assert sorted(kept["properties"]) == ["crew", "hour", "quay", "ship"]
    assert kept["properties"]["hour"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert kept["required"] == ["quay", "hour"]
    assert "ship, hour; crew, hour" in kept["description"]
    assert len(dropped) == 1 and keyword in dropped[0]


@pytest.mark.parametrize("format", FORMATS)
def test_all_of_at_the_root_is_merged(format: str) -> None:
    base = {"properties": {"ship": {"type": "string"}}, "required": ["ship"]}
    schema = {
        "definitions": {"base": base},
        "allOf": [{"$ref": "#/definitions/base"}, {"properties": {"hour": {"type": "integer"}}}],
    }
    kept, dropped = defined(schema, format)
    assert kept["properties"] == {"ship": {"type": "string"}, "hour": {"type": "integer"}}
    assert kept["required"] == ["ship"]
    assert dropped == []


NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "next": {"$ref": "#/definitions/Node"},
        "all": {"type": "array", "items": {"$ref": "#/definitions/Node"}},
    },
    "required": ["name", "next"],
}
TREE = {"type": "object", "properties": {"root": {"$ref": "#/definitions/Node"}}, "definitions": {"Node": NODE}}


@pytest.mark.parametrize("format", FORMATS)
def test_a_recursive_schema_stays_recursive(format: str) -> None:
    kept, dropped = defined(TREE, format)
    assert kept["properties"]["root"] == {"$ref": "#/$defs/Node"}
    assert kept["$defs"]["Node"]["properties"]["all"] == {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    if format == "gemini":
        assert kept["$defs"]["Node"]["required"] == ["name"]
        assert dropped == ["tide: $defs.Node.required: requires next, which refers to itself"]
    else:
        assert kept["$defs"]["Node"]["required"] == ["name", "next"] and dropped == []


def test_a_value_of_any_json_is_cut_for_gemini() -> None:
    schema = {
        "type": "object",
        "properties": {"value": {"$ref": "#/$defs/JSON"}},
        "$defs": {"JSON": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/JSON"}}]}},
    }
    kept, dropped = defined(schema, "gemini")
    assert kept["$defs"]["JSON"]["anyOf"][1] == {"type": "array", "items": {}}
    assert len(dropped) == 1
    assert defined(schema, "anthropic") == (schema, [])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "reference",
    ["https://example.test/schema.json", "#/definitions/missing", "#anchor", "other.json#/x", 3, "#/properties/x/9/y"],
)
def test_an_unresolvable_reference_is_dropped(format: str, reference: Any) -> None:
    kept, dropped = defined({"type": "object", "properties": {"x": {"$ref": reference, "title": "X"}}}, format)
    assert kept["properties"]["x"] == {"title": "X"}
    assert len(dropped) == 1 and "refers to no place in the schema" in dropped[0]


@pytest.mark.parametrize("format", FORMATS)
def test_references_by_anchor_by_pointer_and_to_the_root_are_followed(format: str) -> None:
    schema = {
        "$id": "https://example.test/tide",
        "type": "object",
        "properties": {
            "a": {"$anchor": "first", "type": "string"},
            "b": {"$ref": "#first"},
            "c/d": {"type": "integer"},
            "e": {"$ref": "#/properties/c~1d"},
            "f": {"$ref": "https://example.test/tide#first"},
            "g": {"$ref": "#"},
        },
    }
    kept, dropped = defined(schema, format)
    targets = {name: kept["properties"][name]["$ref"].removeprefix("#/$defs/") for name in "befg"}
    assert kept["$defs"][targets["b"]] == kept["$defs"][targets["f"]] == {"type": "string"}
    assert kept["$defs"][targets["e"]] == {"type": "integer"}
    assert kept["$defs"][targets["g"]]["properties"]["c/d"] == {"type": "integer"}
    assert not any("refers" in line for line in dropped)


@pytest.mark.parametrize("format", FORMATS)
def test_keywords_of_older_drafts_are_translated(format: str) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            "depth": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "note": {"type": "string", "nullable": True},
            "kind": {"type": "any"},
        },
    }
    kept, dropped = defined(schema, format)
    assert kept["properties"]["pair"]["prefixItems"] == [{"type": "string"}, {"type": "integer"}]
    assert kept["properties"]["note"] == {"type": ["string", "null"]}
    assert kept["properties"]["kind"] == {}
    assert "tide: properties.kind.type: malformed" in dropped
    if format != "gemini":
        assert kept["properties"]["depth"] == {"type": "integer", "exclusiveMinimum": 0}


# Names of properties.


def test_names_that_an_api_refuses_are_replaced_and_put_back() -> None:
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "integer"}, "filter[id]": {"type": "string"}, "top": {}, "x" * 70: {}},
        "required": ["$top"],
    }
    for format in ("anthropic", "gemini"):
        narrowed = narrow(schema, MODEL_APIS[format].rules)
        defined(schema, format)
        assert sorted(narrowed.renamed.values()) == sorted(["$top", "filter[id]", "x" * 70])
        assert narrowed.schema["required"] == [next(n for n, old in narrowed.renamed.items() if old == "$top")]
        given = dict.fromkeys(narrowed.schema["properties"], 1)
        assert restore(given, schema, narrowed.renamed) == dict.fromkeys(schema["properties"], 1)
    assert defined(schema, "openai")[0]["properties"] == schema["properties"]


def test_nested_names_are_unchanged_for_anthropic() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"$b": {"type": "string"}}}}}
    assert defined(schema, "anthropic") == (schema, [])


# Strict mode.


@pytest.mark.parametrize("format", STRICT)
def test_a_strict_schema_is_closed(format: str) -> None:
    schema = {
        "type": "object",
        "properties": {"ship": {"type": "string"}, "hour": {"type": "integer", "default": 3}, "north": {"const": 1}},
        "required": ["ship"],
    }
    kept, dropped = defined(schema, format, strict=True)
    assert kept["additionalProperties"] is False
    assert dropped == ["tide: properties.hour.default: not accepted"]
    if format == "anthropic":
        assert kept["required"] == ["ship"]
    else:
        assert kept["required"] == ["ship", "hour", "north"]
        assert kept["properties"]["hour"]["type"] == ["integer", "null"]
        assert kept["properties"]["north"] == {"anyOf": [{"const": 1}, {"type": "null"}]}


@pytest.mark.parametrize("format", STRICT)
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "properties": {"x": {"type": "object"}}}, "properties.x is an object with any members"),
        ({"type": "object", "properties": {"x": {}}}, "properties.x allows values of any type"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "the root allows other members"),
        ({"type": "object", "properties": {"x": {"type": "array"}}}, "properties.x.items allows values of any type"),
    ],
)
def test_a_tool_that_strict_mode_cannot_express_is_defined_without_it(format: str, schema: Any, reason: str) -> None:
    _, dropped = defined(schema, format, strict=True)
    assert len(dropped) == 1 and dropped[0].startswith(f"tide: strict: not strict: {reason}")


def test_limits_of_strict_mode_are_exact() -> None:
    for number, strict in ((5_000, True), (5_001, False)):
        rules = SchemaRules(closed=True, all_required=True, max_properties=5_000)
        schema = {"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(number // 2)}}
        schema["properties"]["q"] = {  # type: ignore[index]
            "type": "object",
            "properties": {f"p{n}": {"type": "null"} for n in range(number - number // 2 - 1)},
        }
        try:
            narrow(schema, rules)
            assert strict
        except ValueError as error:
            assert not strict and "5,001 properties" in str(error)


def test_anthropic_has_no_recursion_in_strict_mode_and_openai_has() -> None:
    tree = {"type": "object", "properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": {
        "type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}}}  # fmt: skip
    assert defined(tree, "anthropic", strict=True)[1] == ["tide: strict: not strict: $defs.Node refers to itself"]
    assert defined(tree, "openai", strict=True)[1] == []


def test_nulls_for_optional_arguments_in_strict_mode_are_removed() -> None:
    schema = {
        "type": "object",
        "properties": {
            "ship": {"type": "string"},
            "hour": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "any": {},
            "node": {"$ref": "#/definitions/Node"},
        },
        "required": ["ship"],
        "definitions": {"Node": NODE},
    }
    given = {"ship": None, "hour": None, "note": None, "any": None, "node": {"name": "a", "next": None, "all": None}}
    assert restore(given, schema, {}) == {"ship": None, "note": None, "any": None, "node": {"name": "a", "next": None}}
    inner = {"node": {"name": "a", "all": [{"name": "b", "all": None}]}}
    assert restore(inner, schema, {}) == {"node": {"name": "a", "all": [{"name": "b"}]}}


# Bounds.


def test_the_size_of_a_schema_is_bounded() -> None:
    empty = len(json.dumps({"type": "object", "description": ""}, separators=(",", ":")))
    for size, used in ((MAX_SCHEMA_BYTES, True), (MAX_SCHEMA_BYTES + 1, False)):
        kept, dropped = defined({"type": "object", "description": "x" * (size - empty)}, "anthropic")
        assert ("description" in kept) is used and bool(dropped) is not used


def test_the_depth_of_a_schema_is_bounded() -> None:
    def nested(levels: int) -> Any:
        schema: Any = {"type": "string"}
        for _ in range(levels):
            schema = {"type": "array", "items": schema}
        return {"type": "object", "properties": {"x": schema}}

    assert defined(nested(MAX_DEPTH - 1), "openai")[1] == []
    assert len(defined(nested(MAX_DEPTH), "openai")[1]) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_schema_that_multiplies_when_it_is_merged_is_bounded(format: str) -> None:
    definitions: Any = {"d0": {"type": "object", "properties": {"x": {"type": "string"}}}}
    for n in range(1, 40):
        both = [{"$ref": f"#/$defs/d{n - 1}"}, {"$ref": f"#/$defs/d{n - 1}"}]
        definitions[f"d{n}"] = {"allOf": both, "title": f"d{n}"}
    schema = {"type": "object", "properties": {"all": {"$ref": "#/$defs/d39"}}, "$defs": definitions}
    defined(schema, format)


# Any schema.

NAMES = st.sampled_from(["a", "b", "c d", "$e", "f" * 65])
POINTERS = st.sampled_from(
    ["#", "#/$defs/a", "#/definitions/b", "#/properties/a", "#x", "http://x.test/y", "#/$defs/b"]
)
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "x", "north"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)


def keyword_strategies(inner: st.SearchStrategy[Any], name: st.SearchStrategy[str]) -> dict[str, Any]:
    counts, schemas = st.integers(0, 3), st.lists(inner, min_size=1, max_size=2)
    members = st.dictionaries(name, inner, max_size=2)
    types = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
    return {
        "type": types | st.lists(types, min_size=1, max_size=2, unique=True),
        "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
        "const": SCALARS,
        "default": VALUES,
        "description": st.sampled_from(["", "d"]),
        "format": st.sampled_from(["date", "email", "regex", "zip"]),
        "pattern": st.sampled_from(["^a", "(?=b)", "x$"]),
        "minLength": counts,
        "maxLength": counts,
        "minimum": counts,
        "exclusiveMaximum": counts,
        "multipleOf": st.integers(1, 3),
        "items": inner,
        "prefixItems": schemas,
        "minItems": counts,
        "maxItems": counts,
        "uniqueItems": st.booleans(),
        "contains": inner,
        "properties": members,
        "required": st.lists(name, max_size=2, unique=True),
        "additionalProperties": inner | st.booleans(),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "."]), inner, max_size=1),
        "propertyNames": inner,
        "maxProperties": counts,
        "dependentRequired": st.dictionaries(name, st.lists(name, max_size=1), max_size=1),
        "anyOf": schemas,
        "oneOf": schemas,
        "allOf": schemas,
        "not": inner,
        "if": inner,
        "then": inner,
        "$ref": POINTERS,
        "$defs": members,
        "definitions": members,
        "$anchor": st.just("x"),
        "x-own": VALUES,
    }


def schemas_of(*, garbage: bool) -> st.SearchStrategy[Any]:
    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        known = keyword_strategies(inner, NAMES)
        some = st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True)
        values = {keyword: value | VALUES for keyword, value in known.items()} if garbage else known
        return some.flatmap(lambda keywords: st.fixed_dictionaries({keyword: values[keyword] for keyword in keywords}))

    return st.recursive(st.booleans() | st.just({}) | st.just({"type": "string"}), extend, max_leaves=12)


@given(schema=schemas_of(garbage=True) | VALUES, name=st.text(max_size=80), format=st.sampled_from(FORMATS))
def test_no_schema_makes_a_definition_that_an_api_refuses(schema: Any, name: str, format: str) -> None:
    tools = [OfferedTool(name or "x", t.Tool(name=name or "x", input_schema=schema))]
    for strict in (False, True) if format in STRICT else (False,):
        definitions = define_tools(tools, MODEL_APIS[format], strict=strict)
        assert tool_faults(format, definitions) == []
        assert list(definitions.names.values()) == [name or "x"]


@given(
    schema=schemas_of(garbage=False).filter(lambda schema: isinstance(schema, dict)),
    arguments=st.dictionaries(NAMES, VALUES, max_size=3),
    format=st.sampled_from(FORMATS),
)
def test_arguments_that_the_server_allows_are_allowed(schema: Any, arguments: Any, format: str) -> None:
    """Except for alternatives at the root: their properties are those of one object afterwards."""
    if schema.keys() & {"anyOf", "oneOf", "$ref", "allOf"}:
        return
    schema = {"type": "object", **schema}
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        allowed = jsonschema.Draft202012Validator(schema).is_valid(arguments)
    except Exception:  # a reference to nowhere, or to itself without end
        return
    if not allowed:
        return
    narrowed = narrow(schema, MODEL_APIS[format].rules)
    new_names = {old: new for new, old in narrowed.renamed.items()}
    given_names = {new_names.get(name, name): value for name, value in arguments.items()}
    if any(name in narrowed.renamed and name not in new_names for name in arguments):
        return
    jsonschema.Draft202012Validator(narrowed.schema).validate(given_names)
