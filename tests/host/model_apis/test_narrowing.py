"""Any input schema becomes a definition that the API accepts, and that allows the arguments that the server allows."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.host.model_apis.checkers import tool_faults
from wharfinger import types as t
from wharfinger.host.model_apis import MODEL_APIS, ModelAPI, OfferedTool, define_tools
from wharfinger.host.model_apis.definitions import accepted_names
from wharfinger.host.model_apis.narrowing import MAX_DEPTH, MAX_SCHEMA_BYTES, NotExpressible, SchemaRules, narrow
from wharfinger.host.model_apis.schema_arguments import restore

FORMATS = tuple(MODEL_APIS)
STRICT_FORMATS = tuple(name for name, api in MODEL_APIS.items() if api.strict_rules is not None)


def define(schema: Any, format: str, strict: bool = False) -> tuple[Any, list[str]]:
    """Return the schema in the definition for an API, and the reports of dropped keywords."""
    tool = t.Tool(name="tide", input_schema=schema)
    definitions = define_tools([OfferedTool("tide", tool)], MODEL_APIS[format], strict=strict)
    assert tool_faults(format, definitions) == []
    (definition,) = definitions
    definition = definition.get("function", definition)
    if format == "gemini":
        definition = definition["functionDeclarations"][0]
    schemas = [definition.get(field) for field in ("parameters", "input_schema", "parametersJsonSchema")]
    defined = next((schema for schema in schemas if schema is not None), None)
    return defined, [str(drop) for drop in definitions.dropped]


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
    assert define(schema, format) == (schema, [])
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
    defined, dropped = define(schema, "gemini")
    assert defined["properties"] == {
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
    defined, dropped = define(schema, format)
    assert defined in (None, {"type": "object", "properties": {}})  # Gemini takes a function without parameters
    assert bool(dropped) is (schema != {})


@pytest.mark.parametrize("format", FORMATS)
def test_repeated_names_of_types_and_properties_are_left_out(format: str) -> None:
    """A bug: they are not valid in JSON Schema 2020-12, so an API refused the whole request."""
    kinds = {name: {"type": types} for name, types in (("a", ["string", "string"]), ("b", ["null", "string", "null"]))}
    schema = {"type": ["object", "object"], "properties": kinds, "required": ["a", "b", "a"]}
    defined, _ = define(schema | {"dependentRequired": {"a": ["b", "b"]}}, format)
    assert defined["properties"] == {"a": {"type": "string"}, "b": {"type": ["null", "string"]}}
    assert defined["required"] == ["a", "b"]


def test_patterns_with_flags_are_kept_and_checked_quickly() -> None:
    """A bug: each range beyond Latin-1, or that ignores case, took milliseconds, so one tool could block the host."""
    patterns = {str(number): {"type": "string", "pattern": "(?i)^" + "[\0-\uffff]" * 500} for number in range(10)}
    patterns["group"] = {"type": "string", "pattern": "^(?i:a|(?-i:b))$"}
    patterns["escaped"] = {"type": "string", "pattern": r"[\u4e00-\u9fff\U0001f600-\U0001f64f]\\[а-я]"}
    invalid = {name: {"pattern": name} for name in (r"[\u4e01-\u0400]", r"\U00110000", "(", "[z-a]")}
    began = time.process_time()
    schema = {"type": "object", "properties": patterns | invalid}
    assert narrow(schema, SchemaRules()).schema["properties"] == patterns | {name: {} for name in invalid}
    assert time.process_time() - began < 2


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_schema_becomes_an_object(format: str) -> None:
    for schema in (None, [], "object", 3):
        assert define(schema, format)[1] == ["tide: the schema of the arguments is missing, or is not an object"]


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
    defined, dropped = define(schema, format)
    assert sorted(defined["properties"]) == ["crew", "hour", "quay", "ship"]
    assert defined["properties"]["hour"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert defined["required"] == ["quay", "hour"]
    assert "ship, hour; crew, hour" in defined["description"]
    assert len(dropped) == 1 and keyword in dropped[0]


@pytest.mark.parametrize("format", FORMATS)
def test_all_of_at_the_root_is_merged(format: str) -> None:
    base = {"properties": {"ship": {"type": "string"}}, "required": ["ship"]}
    schema = {
        "definitions": {"base": base},
        "allOf": [{"$ref": "#/definitions/base"}, {"properties": {"hour": {"type": "integer"}}}],
    }
    defined, dropped = define(schema, format)
    assert defined["properties"] == {"ship": {"type": "string"}, "hour": {"type": "integer"}}
    assert defined["required"] == ["ship"]
    assert dropped == []


@pytest.mark.parametrize(
    ("types", "others", "both"),
    [
        (["integer", "string"], ["number", "string"], ["string", "integer"]),
        (["number", "null"], ["integer", "null"], ["null", "integer"]),
        ("number", "integer", "integer"),
        (["integer", "number"], "number", "number"),
    ],
)
def test_merged_types_allow_the_values_that_both_allow(types: Any, others: Any, both: Any) -> None:
    schema = {"properties": {"x": {"$ref": "#/$defs/x", "type": types}}, "$defs": {"x": {"type": others}}}
    defined, _ = define(schema, "gemini")
    assert defined["properties"]["x"]["type"] == both


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
    defined, dropped = define(TREE, format)
    assert defined["properties"]["root"] == {"$ref": "#/$defs/Node"}
    assert defined["$defs"]["Node"]["properties"]["all"] == {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    if format == "gemini":
        assert defined["$defs"]["Node"]["required"] == ["name"]
        assert dropped == ["tide: $defs.Node.required: requires next, which refers to itself"]
    else:
        assert defined["$defs"]["Node"]["required"] == ["name", "next"] and dropped == []


def test_recursion_in_required_parts_is_cut_for_gemini() -> None:
    schema = {
        "type": "object",
        "properties": {"value": {"$ref": "#/$defs/JSON"}},
        "$defs": {"JSON": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/JSON"}}]}},
    }
    defined, dropped = define(schema, "gemini")
    assert defined["$defs"]["JSON"]["anyOf"][1] == {"type": "array", "items": {}}
    assert len(dropped) == 1
    assert define(schema, "anthropic") == (schema, [])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "reference",
    ["https://example.test/schema.json", "#/definitions/missing", "#anchor", "other.json#/x", 3, "#/properties/x/9/y"],
)
def test_an_unresolvable_reference_is_dropped(format: str, reference: Any) -> None:
    defined, dropped = define({"type": "object", "properties": {"x": {"$ref": reference, "title": "X"}}}, format)
    assert defined["properties"]["x"] == {"title": "X"}
    assert len(dropped) == 1 and "refers to no place in the schema" in dropped[0]


@pytest.mark.parametrize("strict", [False, True])
def test_a_reference_with_other_keywords_is_merged_without_a_false_report(strict: bool) -> None:
    """A bug: it was reported that the reference refers to itself, and the definition stayed, although unused."""
    schema = {
        "type": "object",
        "properties": {"port": {"$ref": "#/$defs/Port", "minLength": 3}},
        "$defs": {"Port": {"type": "string"}},
    }
    defined, dropped = define(schema, "anthropic" if strict else "gemini", strict=strict)
    assert defined["properties"] == {"port": {"type": "string", "description": "(minLength: 3)"}}
    assert "$defs" not in defined
    assert dropped == ["tide: properties.port.minLength: not accepted"]


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
    defined, dropped = define(schema, format)
    targets = {name: defined["properties"][name]["$ref"].removeprefix("#/$defs/") for name in "befg"}
    assert defined["$defs"][targets["b"]] == defined["$defs"][targets["f"]] == {"type": "string"}
    assert defined["$defs"][targets["e"]] == {"type": "integer"}
    assert defined["$defs"][targets["g"]]["properties"]["c/d"] == {"type": "integer"}
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
    defined, dropped = define(schema, format)
    assert defined["properties"]["pair"]["prefixItems"] == [{"type": "string"}, {"type": "integer"}]
    assert defined["properties"]["note"] == {"type": ["string", "null"]}
    assert defined["properties"]["kind"] == {}
    assert "tide: properties.kind.type: malformed" in dropped
    if format != "gemini":
        assert defined["properties"]["depth"] == {"type": "integer", "exclusiveMinimum": 0}


# Names of properties.


def test_names_that_an_api_refuses_are_replaced_and_restored() -> None:
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "integer"}, "filter[id]": {"type": "string"}, "top": {}, "x" * 70: {}},
        "required": ["$top"],
    }
    for format in ("anthropic", "gemini"):
        narrowed = narrow(schema, MODEL_APIS[format].rules)
        define(schema, format)
        assert sorted(narrowed.renamed.values()) == sorted(["$top", "filter[id]", "x" * 70])
        assert narrowed.schema["required"] == [next(n for n, old in narrowed.renamed.items() if old == "$top")]
        arguments = dict.fromkeys(narrowed.schema["properties"], 1)
        assert restore(arguments, schema, narrowed.renamed) == dict.fromkeys(schema["properties"], 1)
    assert define(schema, "openai")[0]["properties"] == schema["properties"]


def test_nested_names_are_unchanged_for_anthropic() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"$b": {"type": "string"}}}}}
    assert define(schema, "anthropic") == (schema, [])


# Strict mode.


@pytest.mark.parametrize("format", STRICT_FORMATS)
def test_a_strict_schema_allows_no_additional_properties(format: str) -> None:
    schema = {
        "type": "object",
        "properties": {"ship": {"type": "string"}, "hour": {"type": "integer", "default": 3}, "north": {"const": 1}},
        "required": ["ship"],
    }
    defined, dropped = define(schema, format, strict=True)
    assert defined["additionalProperties"] is False
    assert dropped == ["tide: properties.hour.default: not accepted"]
    if format == "anthropic":
        assert defined["required"] == ["ship"]
    else:
        assert defined["required"] == ["ship", "hour", "north"]
        assert defined["properties"]["hour"]["type"] == ["integer", "null"]
        assert defined["properties"]["north"] == {"anyOf": [{"const": 1}, {"type": "null"}]}


@pytest.mark.parametrize("format", STRICT_FORMATS)
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "properties": {"x": {"type": "object"}}}, "properties.x is an object with any members"),
        ({"type": "object", "properties": {"x": {}}}, "properties.x allows values of any type"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "the root allows other members"),
        ({"type": "object", "properties": {"x": {"type": "array"}}}, "properties.x.items allows values of any type"),
    ],
)
def test_a_schema_that_strict_mode_cannot_express_is_defined_without_strict_mode(
    format: str, schema: Any, reason: str
) -> None:
    _, dropped = define(schema, format, strict=True)
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


def test_a_recursive_schema_is_strict_for_openai_but_not_for_anthropic() -> None:
    tree = {"type": "object", "properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": {
        "type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}}}  # fmt: skip
    assert define(tree, "anthropic", strict=True)[1] == ["tide: strict: not strict: $defs.Node refers to itself"]
    assert define(tree, "openai", strict=True)[1] == []


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
    arguments = {
        "ship": None,
        "hour": None,
        "note": None,
        "any": None,
        "node": {"name": "a", "next": None, "all": None},
    }
    assert restore(arguments, schema, {}) == {
        "ship": None,
        "note": None,
        "any": None,
        "node": {"name": "a", "next": None},
    }
    nested = {"node": {"name": "a", "all": [{"name": "b", "all": None}]}}
    assert restore(nested, schema, {}) == {"node": {"name": "a", "all": [{"name": "b"}]}}


def test_nulls_for_an_argument_that_another_alternative_requires_are_removed() -> None:
    """A bug: the server refused the null, which strict mode makes models give."""
    kinds = [
        {"type": "object", "properties": {"kind": {"const": kind}, "hour": {"type": "integer"}}, "required": required}
        for kind, required in (("tide", ["kind", "hour"]), ("ship", ["kind"]))
    ]
    schema = {"type": "object", "properties": {"call": {"anyOf": kinds}}}
    assert restore({"call": {"kind": "ship", "hour": None}}, schema, {}) == {"call": {"kind": "ship"}}


def test_thousands_of_items_are_restored_quickly() -> None:
    """A bug: the alternatives of a schema were looked up again for each item."""
    kinds = [{"type": "object", "properties": {"hour": {"type": "integer"}}, "required": ["x"] * 500}] * 2
    kinds += [{**kinds[0]} for _ in range(150)]
    schema = {"type": "object", "properties": {"calls": {"type": "array", "items": {"anyOf": kinds}}}}
    began = time.process_time()
    assert restore({"calls": [{"hour": None}] * 20_000}, schema, {}) == {"calls": [{}] * 20_000}
    assert time.process_time() - began < 2


# Names of tools.


def test_a_name_that_many_other_tools_anticipate_stays_short() -> None:
    """A bug: each tool with the next name made it longer, and for one with over 64 characters an API refuses all."""
    digest = hashlib.sha256(b"tide.now").hexdigest()
    names = ["tide.now", *(f"{'tide_now'[: 63 - length]}_{digest[:length]}" for length in range(8, 64))]
    accepted = accepted_names(names)
    assert sorted(accepted.values()) == sorted(names)
    assert all(len(name) <= 64 for name in accepted)


def test_a_tool_without_arguments_has_no_schema_for_gemini() -> None:
    """A bug: Gemini got a schema without properties, which it refuses, if it said that there are no others."""
    assert define({"type": "object", "properties": {}, "additionalProperties": False}, "gemini") == (None, [])
    assert define({"type": "object", "additionalProperties": True}, "gemini")[0] is not None


# Limits.


def test_a_report_is_short_although_names_of_properties_are_long() -> None:
    """A bug: a thousand reports had the whole path each, 100 MB together."""
    leaves = {str(number): {"type": "string", "minLength": 1} for number in range(1_000)}
    schema = {"type": "object", "properties": {"x" * 100_000: {"properties": leaves}}}
    dropped = narrow(schema, MODEL_APIS["gemini"].rules).dropped
    assert len(dropped) == 1_000
    assert sum(len(drop.path) for drop in dropped) <= 1_000_000


def test_the_size_of_a_schema_is_limited() -> None:
    overhead = len(json.dumps({"type": "object", "description": ""}, separators=(",", ":")))
    for size, accepted in ((MAX_SCHEMA_BYTES, True), (MAX_SCHEMA_BYTES + 1, False)):
        defined, dropped = define({"type": "object", "description": "x" * (size - overhead)}, "anthropic")
        assert ("description" in defined) is accepted and bool(dropped) is not accepted


@pytest.mark.parametrize(
    "members",
    [
        {"properties": {"name": {"type": "string", "description": "x" * MAX_SCHEMA_BYTES}}},
        {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False},
        {"minProperties": 1},
        {"$ref": "#/nowhere"},
    ],
)
@pytest.mark.parametrize("format", STRICT_FORMATS)
def test_arguments_that_no_property_describes_are_not_strict(format: str, members: Any) -> None:
    """Bug: in strict mode they became an object without properties, so the model could give no argument at all."""
    _, dropped = define({"type": "object", **members}, format, strict=True)
    assert any("not strict: the root is an object with any members" in report for report in dropped)


@pytest.mark.parametrize("format", STRICT_FORMATS)
def test_a_tool_without_arguments_is_strict(format: str) -> None:
    defined, dropped = define({"type": "object", "examples": [{}]}, format, strict=True)
    assert defined["additionalProperties"] is False
    assert not any("not strict" in report for report in dropped)


def test_what_is_too_deep_in_all_of_is_reported() -> None:
    """Bug: it was dropped silently, and in strict mode the model could give no argument."""
    schema: dict[str, Any] = {"properties": {"ship": {"type": "string"}}}
    for _ in range(MAX_DEPTH + 1):
        schema = {"allOf": [schema]}
    for strict in (False, True):
        defined, dropped = define({"type": "object", **schema}, "openai", strict)
        assert defined == {"type": "object", "properties": {}}
        assert any("40 levels" in report for report in dropped)


def test_the_depth_of_a_schema_is_limited() -> None:
    def nested_schema(levels: int) -> Any:
        schema: Any = {"type": "string"}
        for _ in range(levels):
            schema = {"type": "array", "items": schema}
        return {"type": "object", "properties": {"x": schema}}

    assert define(nested_schema(MAX_DEPTH - 1), "openai")[1] == []
    assert len(define(nested_schema(MAX_DEPTH), "openai")[1]) == 1


def test_thousands_of_definitions_with_the_same_name_take_little_time() -> None:
    """A bug: the time grew with the cube of their number. The schema of one tool could block a host for minutes."""
    numbers = range(2_500)
    schema = {
        "type": "object",
        "properties": {f"p{number}": {"$ref": f"#/$defs/d{number}/x"} for number in numbers},
        "$defs": {f"d{number}": {"x": {"const": number}} for number in numbers},
    }
    began = time.monotonic()
    defined, _ = define(schema, "openai")
    assert time.monotonic() - began < 10
    assert [defined["$defs"]["x" if number == 0 else f"x_{number + 1}"] for number in numbers] == [
        {"const": number} for number in numbers
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_a_schema_that_grows_exponentially_when_merged_is_limited(format: str) -> None:
    definitions: Any = {"d0": {"type": "object", "properties": {"x": {"type": "string"}}}}
    for n in range(1, 40):
        both = [{"$ref": f"#/$defs/d{n - 1}"}, {"$ref": f"#/$defs/d{n - 1}"}]
        definitions[f"d{n}"] = {"allOf": both, "title": f"d{n}"}
    schema = {"type": "object", "properties": {"all": {"$ref": "#/$defs/d39"}}, "$defs": definitions}
    define(schema, format)


def test_properties_that_thousands_of_alternatives_declare_are_merged() -> None:
    """A bug: the merged schemas were so deep that a RecursionError ended the definition of all tools."""
    kinds = [{"properties": {"ship": {"type": kind}}} for kind in ("string", "integer")]
    for schema in ({"anyOf": [{"allOf": kinds * 1_000}, {}]}, {"allOf": kinds * 1_000}):
        assert "ship" in (define({"type": "object", **schema}, "openai")[0])["properties"]


@pytest.mark.parametrize("api", MODEL_APIS.values(), ids=FORMATS)
@pytest.mark.parametrize("keyword", ["properties", "anyOf"])
def test_the_copies_of_a_schema_with_many_references_are_limited(api: ModelAPI, keyword: str) -> None:
    """A bug: a schema of 220 KB became a definition of 250 MB, or took ten seconds."""
    definitions = {"large": {"properties": {f"p{number}": {} for number in range(9_000)}}}
    references = [{"$ref": "#/$defs/large", "minProperties": number} for number in range(2_000)]
    members = {str(number): reference for number, reference in enumerate(references)}
    schema = {"type": "object", "$defs": definitions, keyword: members if keyword == "properties" else references}
    began = time.process_time()
    narrowed = narrow(schema, api.rules)
    assert time.process_time() - began < 3
    assert len(json.dumps(narrowed.schema)) < 6 * MAX_SCHEMA_BYTES
    if api.strict_rules is not None:
        with pytest.raises(NotExpressible):
            narrow(schema, api.strict_rules)


def test_lists_of_thousands_of_names_and_values_are_merged_quickly() -> None:
    """A bug: each took seconds."""
    numbers = range(20_000)
    values = {"allOf": [{"enum": [*numbers, [1]]}, {"enum": [*reversed(numbers), [1], "x"]}]}
    required = {"allOf": [{"required": [f"p{number}"]} for number in range(9_000)]}
    began = time.process_time()
    assert define({"properties": {"x": values}}, "gemini")[0]["properties"]["x"] == {}  # a value is a list
    assert narrow({"properties": {"x": values}}, SchemaRules(keywords=frozenset({"properties", "enum"}))).schema[
        "properties"
    ] == {"x": {"enum": [*numbers, [1]]}}
    assert len(define(required, "openai")[0]["required"]) == 9_000
    assert time.process_time() - began < 2


# Generated schemas.

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


def schemas_of(*, malformed: bool) -> st.SearchStrategy[Any]:
    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        strategies = keyword_strategies(inner, NAMES)
        keyword_lists = st.lists(st.sampled_from(sorted(strategies)), max_size=4, unique=True)
        values = {keyword: value | VALUES for keyword, value in strategies.items()} if malformed else strategies
        return keyword_lists.flatmap(
            lambda keywords: st.fixed_dictionaries({keyword: values[keyword] for keyword in keywords})
        )

    return st.recursive(st.booleans() | st.just({}) | st.just({"type": "string"}), extend, max_leaves=12)


@given(schema=schemas_of(malformed=True) | VALUES, name=st.text(max_size=80), format=st.sampled_from(FORMATS))
def test_every_schema_becomes_a_definition_that_the_api_accepts(schema: Any, name: str, format: str) -> None:
    tools = [OfferedTool(name or "x", t.Tool(name=name or "x", input_schema=schema))]
    for strict in (False, True) if format in STRICT_FORMATS else (False,):
        definitions = define_tools(tools, MODEL_APIS[format], strict=strict)
        assert tool_faults(format, definitions) == []
        assert list(definitions.names.values()) == [name or "x"]


@given(
    schema=schemas_of(malformed=False).filter(lambda schema: isinstance(schema, dict)),
    arguments=st.dictionaries(NAMES, VALUES, max_size=3),
    format=st.sampled_from(FORMATS),
)
def test_arguments_that_the_server_allows_match_the_definition(schema: Any, arguments: Any, format: str) -> None:
    """Alternatives at the root are excluded, because their properties become the properties of one object."""
    if schema.keys() & {"anyOf", "oneOf", "$ref", "allOf"}:
        return
    schema = {"type": "object", **schema}
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        allowed = jsonschema.Draft202012Validator(schema).is_valid(arguments)
    except Exception:  # an unresolvable or endlessly recursive reference
        return
    if not allowed:
        return
    narrowed = narrow(schema, MODEL_APIS[format].rules)
    new_names = {old: new for new, old in narrowed.renamed.items()}
    renamed_arguments = {new_names.get(name, name): value for name, value in arguments.items()}
    if any(name in narrowed.renamed and name not in new_names for name in arguments):
        return
    jsonschema.Draft202012Validator(narrowed.schema).validate(renamed_arguments)
