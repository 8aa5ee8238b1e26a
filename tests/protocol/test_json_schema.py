"""Explicit JSON Schemas: schemas refused at registration, limits, and errors for invalid values."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from wharfinger.errors import MissingExtra
from wharfinger.protocol.json_schema import DIALECTS, CompiledSchema, InvalidSchema, path_text, printable

DRAFTS = list(DIALECTS)
CREW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ship": {"type": "string", "minLength": 2, "pattern": "^[A-Z]"},
        "crew": {
            "type": "array",
            "items": {"type": "object", "properties": {"age": {"type": "integer", "minimum": 16}}, "required": ["age"]},
        },
        "flag": {"enum": ["red", "green"]},
    },
    "required": ["ship"],
    "additionalProperties": False,
}

UNANCHORED: dict[str, Any] = {
    "pattern": "(?!x)a*b",
    "items": {"pattern": "(?!x)a*b"},
    "patternProperties": {"(?!x)a*b": {}},
}


def nested_in_properties(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def doubling_schema(times: int, inside: str = "") -> dict[str, Any]:
    """Return a small schema with subschemas that apply 2**times times to one value, or along one path."""
    following = [{"$ref": f"#/$defs/s{n + 1}"} for n in range(times)]
    steps: dict[str, Any] = {
        f"s{n}": {"anyOf": [{inside: {"a": step}}, {inside: {"a": step}}] if inside else [step, step]}
        for n, step in enumerate(following)
    }
    return {"$defs": steps | {f"s{times}": {"type": "string"}}, "$ref": "#/$defs/s0"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "ship"}, "not a valid JSON Schema"),
        ({"$ref": "https://example.test/ship.json"}, "refers to 'https://example.test/ship.json'"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "refers to 'file:///etc/passwd'"),
        ({"allOf": [{"$dynamicRef": "other.json#x"}]}, "refers to 'other.json#x'"),
        ({"$ref": "#/$defs/gone"}, "not a valid JSON Schema"),
        ({"$schema": "https://example.test/dialect"}, "use one of https://json-schema.org/draft/2020-12/schema"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "dialect"),
        ({"$defs": {"a": {"$schema": 7}}}, "dialect"),
        ({"pattern": "("}, "not a valid JSON Schema"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}, "leads back to itself"),
        (nested_in_properties(65), "more than 64 nested schemas"),
        ({"anyOf": [{"const": n} for n in range(2001)]}, "more than 2000 schemas"),
        (doubling_schema(20), "more than 100000 schemas on the way to one value"),
        (doubling_schema(20, "properties"), "more than 100000 schemas on the way to one value"),
        ({"description": "x" * 300_000}, "bytes"),
        ({"const": {1, object()}}, "cannot be encoded as JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_reason(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSchema, match="input_schema of tool 'berth'") as caught:
        CompiledSchema(schema, "input_schema of tool 'berth'")
    assert message in str(caught.value)


@pytest.mark.parametrize("dialect", [*DRAFTS, *(f"{name}#" for name in DRAFTS)])
def test_the_declared_dialect_is_used(dialect: str) -> None:
    schema = CompiledSchema({"$schema": dialect, "type": "object", "properties": {"n": {"type": "integer"}}}, "schema")
    assert schema.faults({"n": 1}) == []
    assert schema.faults({"n": "1"}) == ["n: expected an integer"]


def test_the_default_dialect_is_2020_12() -> None:
    """Only 2020-12 has `prefixItems`."""
    schema = CompiledSchema({"prefixItems": [{"type": "integer"}], "items": False}, "schema")
    assert schema.fits([1])
    assert not schema.fits([1, 2])


def test_names_of_properties_are_not_keywords() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}, "$schema": {}, "enum": {"type": "integer"}}}
    assert CompiledSchema(schema, "schema").fits({"$ref": "https://example.test", "enum": 1})
    assert CompiledSchema({"examples": [{"$ref": "https://example.test"}]}, "schema").fits(1)


def test_a_schema_may_refer_to_its_own_parts() -> None:
    tree = {
        "$id": "https://example.test/tree",
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "tree"}, "next": {"$ref": "#it"}},
        "$defs": {"tree": {"$anchor": "it", "type": ["object", "null"]}},
    }
    assert CompiledSchema(tree, "schema").faults({"left": {}, "right": {"left": 3}}) == [
        "right.left: expected null or an object"
    ]


def test_a_backtracking_pattern_is_evaluated_in_bounded_time() -> None:
    for pattern in ("^(a+)+$", "^(?=a)(a+)+$", r"^(a|a)*\1$"):
        schema = CompiledSchema({"pattern": pattern}, "schema")
        started = time.thread_time()
        assert not schema.fits("a" * 5000 + "b")
        assert time.thread_time() - started < 5


def test_long_texts_are_refused_for_unanchored_patterns_with_look_around() -> None:
    """A pattern with look-around is searched for in quadratic time, unless it is anchored at the start."""
    for value in ("a" * 200_000, ["a" * 9_000] * 400, {"a" * 200_000: 1}):
        schema = CompiledSchema({"$ref": "#/$defs/a", "$defs": {"a": UNANCHORED}}, "schema")
        started = time.thread_time()
        assert schema.faults(value) == ["arguments: must have shorter texts for patterns with look-around"]
        assert time.thread_time() - started < 5
    assert CompiledSchema(UNANCHORED, "schema").faults(["ab", "aab"]) == []
    assert CompiledSchema(UNANCHORED, "schema").faults("a" * 5000) != []
    anchored = CompiledSchema({"pattern": "^(?=.*[A-Z])(?=.*[0-9]).{8,}$"}, "schema")
    assert anchored.faults("B" * 200_000 + "1") == []
    assert anchored.faults("b" * 200_000) != []


def test_each_fault_is_one_line_with_its_path_and_without_the_value() -> None:
    value = {"ship": "s3cret", "crew": [{"age": 1}, {}, {"age": "s3cret"}], "flag": "s3cret", "s3cret": 1}
    assert CompiledSchema(CREW_SCHEMA, "schema").faults(value) == [
        "ship: must match the pattern ^[A-Z]",
        "crew[0].age: must be at least 16",
        "crew[1].age: missing",
        "crew[2].age: expected an integer",
        'flag: must be one of "red","green"',
        "s3cret: no such member",
    ]
    assert CompiledSchema(CREW_SCHEMA, "schema").faults([]) == ["arguments: expected an object"]
    assert len(CompiledSchema({"items": {"type": "string"}}, "schema").faults(list(range(1000)))) == 16


@pytest.mark.parametrize("count", [1_000, 10_000, 100_000])
@pytest.mark.parametrize(
    ("inner", "fault"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "v[0]: expected an integer"),
        (
            {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
            "arguments: must match the schema",
        ),
    ],
)
def test_a_large_value_with_many_faults_is_refused_within_a_second(count: int, inner: Any, fault: str) -> None:
    """Regression: all faults were collected to report sixteen, which took seconds for 100,000."""
    schema = CompiledSchema({"type": "object", "properties": {"v": inner}}, "schema")
    started = time.thread_time()
    faults = schema.faults({"v": ["x"] * count})
    assert time.thread_time() - started < 1
    assert faults[0] == fault if count > 2_000 else len(faults) > 0


def test_nested_alternatives_are_refused_in_bounded_time() -> None:
    """Each level doubles the number of faults."""
    branch = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    schema = CompiledSchema({"anyOf": [branch, branch | {"minProperties": 1}]}, "schema")
    value: Any = 3
    for depth in range(60):
        value = {"a": value}
        if depth in (2, 59):
            started = time.thread_time()
            assert schema.faults(value)
            assert time.thread_time() - started < 5
    assert schema.faults(value) == ["arguments: must match the schema"]


def test_a_missing_extra_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(MissingExtra, match=r"input_schema of tool 'berth' needs the extra 'schema'. Run pip "):
        CompiledSchema(CREW_SCHEMA, "input_schema of tool 'berth'")


def compile_schema(schema: Any, **options: Any) -> CompiledSchema:
    return CompiledSchema(schema, "schema", **options)


# --- limits


def schema_of_size(size: int) -> dict[str, Any]:
    return {"description": "x" * (size - len('{"description":""}'))}


def nested_in_arrays(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"allOf": [schema]}
    return schema


def schema_of_weight(times: int) -> dict[str, Any]:
    """Return a schema with this many subschemas that apply to one value."""
    many, rest = divmod(times - 1, 500)
    return {"$defs": {"a": {"allOf": [{}] * 498}}, "allOf": [{"$ref": "#/$defs/a"}] * many + [{}] * rest}


@pytest.mark.parametrize(
    ("fits", "beyond", "message"),
    [
        (schema_of_size(262_144), schema_of_size(262_145), "has 262145 bytes; the limit is 262144"),
        (nested_in_properties(63), nested_in_properties(64), "more than 64 nested schemas"),
        (nested_in_arrays(63), nested_in_arrays(64), "more than 64 nested schemas"),
        (
            {"anyOf": [{"const": n} for n in range(1999)]},
            {"anyOf": [{"const": n} for n in range(2000)]},
            "more than 2000 schemas",
        ),
        (schema_of_weight(100_000), schema_of_weight(100_001), "more than 100000 schemas on the way to one value"),
    ],
    ids=["bytes", "depth", "depth in lists", "schemas", "applied"],
)
def test_a_schema_may_reach_but_not_exceed_each_limit(
    fits: dict[str, Any], beyond: dict[str, Any], message: str
) -> None:
    compile_schema(fits)
    with pytest.raises(InvalidSchema, match=message):
        compile_schema(beyond)


@pytest.mark.parametrize(
    ("schema", "weight"),
    [
        ({}, 1),
        ({"allOf": [{}, {}], "not": {}, "if": {}, "then": {}, "else": {}}, 7),
        ({"anyOf": [{}], "oneOf": [{}, True]}, 3),
        ({"dependentSchemas": {"a": {}, "b": {}}}, 3),
        ({"properties": {"a": {}, "b": {"not": {}}}}, 3),
        ({"items": {}, "prefixItems": [{}, {}]}, 2),
        ({"unevaluatedItems": {}, "prefixItems": [{}, {}]}, 2),
        ({"unevaluatedProperties": {}, "allOf": [{}, {"not": {}}]}, 9),  # 1 + 3 + 1, and 1 + 3 to ask
        ({"patternProperties": {"a": {"not": {"not": {}}}}, "propertyNames": {}}, 4),
        ({"$defs": {"a": {"not": {}}}, "$ref": "#/$defs/a"}, 3),
        ({"$defs": {"a": {"$anchor": "it", "not": {}}}, "$ref": "#it"}, 3),
        ({"$defs": {"a": {"$dynamicAnchor": "it"}}, "$dynamicRef": "#it"}, 2),
        ({"properties": {"a": {"$ref": "#"}}}, 3),
        ({"const": {"not": {}}, "enum": [{"not": {}}], "default": {"not": {}}}, 1),
        ({"$defs": {"heavy": {"not": {"not": {}}}}}, 3),
        ({"title": "#", "description": "#/not", "not": {}}, 2),
        (
            {
                "$id": "https://a.test/",
                "$defs": {"a": {"not": {"not": {}}}, "b": {"$id": "x/$defs/a"}},
                "properties": {"c": {"$ref": "x/$defs/a"}},
            },
            3,
        ),
    ],
)
def test_weight_counts_the_schemas_applied_to_one_value(schema: dict[str, Any], weight: int) -> None:
    assert compile_schema(schema).weight == weight


@pytest.mark.parametrize("keyword", ["unevaluatedItems", "unevaluatedProperties"])
def test_a_schema_with_deeply_nested_unevaluated_members_is_refused(keyword: str) -> None:
    """A bug: 18 levels took seconds for a value of two members, and each further level 2.6 times as long."""
    schema: dict[str, Any] = {}
    for _ in range(18):
        schema = {"allOf": [schema], keyword: {"minimum": 0}}
    with pytest.raises(InvalidSchema, match="on the way to one value"):
        compile_schema(schema)


def test_alternatives_are_explained_for_up_to_2000_schemas() -> None:
    """Above the limit, the only fault is `must match the schema`."""
    for schemas, explained in ((2000, True), (2001, False)):
        refs, rest = divmod(schemas - 2, 2)
        inner: list[Any] = [{"$ref": "#/$defs/a"}] * refs + [{}] * rest
        schema = compile_schema({"type": "object", "$defs": {"a": {}}, "allOf": inner, "anyOf": [{}]})
        expected = "expected an object" if explained else "must match the schema"
        assert schema.faults(3) == [f"arguments: {expected}"]


def test_schemas_of_members_count_towards_the_limit_of_explained_schemas() -> None:
    """The members of a value are visited once for each schema that applies to it."""
    for schemas, explained in ((1999, True), (2000, False)):
        refs, rest = divmod(schemas - 2, 2)
        inner: list[Any] = [{"$ref": "#/$defs/a"}] * refs + [{}] * rest
        whole: dict[str, Any] = {"$defs": {"a": {}}, "allOf": inner, "anyOf": [{}]}
        schema = compile_schema(whole | {"properties": {"a": {"type": "string"}}})
        assert schema.faults({"a": 1}) == ["a: expected a string" if explained else "arguments: must match the schema"]
        assert compile_schema(whole | {"minimum": 3, "items": {"not": {}}}).faults(2) == [
            "arguments: must be at least 3"
        ]


def test_alternatives_are_explained_for_up_to_10000_members_times_schemas() -> None:
    schema = compile_schema({"type": "object", "anyOf": [{}]})
    assert schema.faults([1] * 4999) == ["arguments: expected an object"]
    assert schema.faults([1] * 5000) == ["arguments: must match the schema"]
    odd = compile_schema({"type": "object", "anyOf": [{}], "allOf": [{}] * 71})  # 73 schemas
    assert odd.faults([1] * 136) == ["arguments: must match the schema"]  # 73 * 137 is 10,001
    for value in ([{"a": 1, "b": [2]}] * 1249 + [1, 2], [{"a": [[1], 2]}] * 1000 + [0]):  # 4,999 and 5,002
        explained = schema.faults(value) == ["arguments: expected an object"]
        assert explained is (sum(count_values(item) for item in value) + 1 <= 5000)


@pytest.mark.parametrize("kind", ["members", "items"])
@pytest.mark.parametrize("end", [1, "x", {}, []])
@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_schemas_below_the_depth_of_a_value_are_not_counted(kind: str, end: Any, levels: int) -> None:
    """An object or an array is one level, even if it is empty."""
    heavy = [{"$ref": "#/$defs/a"}] * 999 + [{}]
    inner: dict[str, Any] = {"allOf": heavy, "anyOf": [{}]}
    value = end
    for _ in range(2):
        inner = {"properties": {"a": inner}} if kind == "members" else {"items": inner}
    for _ in range(levels):
        value = {"a": value} if kind == "members" else [value]
    depth = levels + (end in ({}, []))
    schema = compile_schema({"$defs": {"a": {}}, "not": {}} | inner)
    message = "has a form that is not allowed" if depth < 2 else "must match the schema"
    assert schema.faults(value) == [f"arguments: {message}"]


def test_alternatives_are_not_explained_for_a_value_too_deep_to_count_its_schemas() -> None:
    chain: dict[str, Any] = {f"s{n}": {"$ref": f"#/$defs/s{n + 1}"} for n in range(100)}
    last = {"type": "array", "items": {"$ref": "#/$defs/s0"}}
    value: Any = 3
    for _ in range(60):
        value = [value]
    without_alternatives = compile_schema({"$defs": chain | {"s100": last}, "$ref": "#/$defs/s0"})
    assert without_alternatives.faults(value) == ["[0]" * 60 + ": expected an array"]
    with_alternatives = compile_schema({"$defs": chain | {"s100": last}, "$ref": "#/$defs/s0", "anyOf": [{}]})
    assert with_alternatives.faults(value) == ["arguments: must match the schema"]


def count_values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count_values, inner))


@pytest.mark.parametrize("shape", ["text", "list", "name"])
def test_texts_for_patterns_with_look_around_are_limited_by_the_sum_of_their_squares(shape: str) -> None:
    schema = compile_schema({"pattern": "(?!x)b", "patternProperties": {"(?!x)b": {}}, "items": {"pattern": "(?!x)b"}})
    assert schema.faults(["a" * 10_000, 1, None, True]) != schema.faults("a" * 10_001)
    for last, searched in ((0, True), (1, False)):
        value: Any = {
            "text": "a" * (10_000 + last),
            "list": ["a" * 6_000, "b" * 8_000, "c" * last],
            "name": {"a" * 6_000: "b" * 8_000, "c": 1} if last else {"a" * 6_000: "b" * 8_000},
        }[shape]
        refused = schema.faults(value) == ["arguments: must have shorter texts for patterns with look-around"]
        assert refused is not searched


@pytest.mark.parametrize(
    ("pattern", "bounded"),
    [("^(?=a)b", False), ("(?=a)b", True), ("^(?=a)b|c", True), ("a", False), ("a|b", False)],
)
def test_only_unanchored_patterns_with_look_around_limit_the_texts(pattern: str, bounded: bool) -> None:
    schema = compile_schema({"anyOf": [{"type": "string"}, {"pattern": pattern}]})
    assert (schema.faults("x" * 10_001) != []) is bounded


def test_at_most_16_faults_of_the_validator_are_reported() -> None:
    required = [f"m{number}" for number in range(20)]
    assert len(compile_schema({"required": required}).faults({})) == 16
    assert len(compile_schema({"required": required[:15]}).faults({})) == 15
    both = compile_schema({"required": required[:15], "properties": {"a": True}, "additionalProperties": False})
    faults = both.faults({f"x{number}": 1 for number in range(9)})
    assert len([fault for fault in faults if fault.endswith("no such member")]) == 8
    assert len(faults) == 23


# --- valid and invalid schemas


@pytest.mark.parametrize("schema", [[], "x", 3, None, True])
def test_a_schema_that_is_not_an_object_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match="must be a JSON object"):
        compile_schema(schema)


@pytest.mark.parametrize("schema", [{"const": "\ud800"}, {"const": object()}])
def test_a_schema_that_cannot_be_encoded_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match="cannot be encoded as JSON"):
        compile_schema(schema)


def test_a_compiled_schema_is_a_copy() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    copy = compile_schema(schema)
    schema["properties"]["a"] = {"type": "ship"}
    assert copy.schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("reference", "inside"),
    [
        ("#/$defs/a", True),
        ("https://a.test/x/tree", True),
        ("https://a.test/x/tree#/$defs/a", True),
        ("tree", True),
        ("x/tree", True),
        ("ree", False),
        ("https://a.test/x/other", False),
        ("other#/$defs/a", False),
        ("https://json-schema.org/draft/2020-12/schema", True),
        ("https://json-schema.org/draft/2020-13/schema", False),
    ],
)
def test_external_references_are_refused(reference: str, inside: bool) -> None:
    schema = {"$id": "https://a.test/x/tree#", "$defs": {"a": {}}, "properties": {"b": {"$ref": reference}}}
    if inside:
        try:
            compile_schema(schema)
        except InvalidSchema as error:  # the validator cannot resolve all of them
            assert "refers to" not in str(error)
    else:
        with pytest.raises(InvalidSchema, match="refers to"):
            compile_schema(schema)


def chain_of_references(name: Any, reference: Any) -> dict[str, Any]:
    """Return definitions of which each refers twice to the next, by keywords instead of pointers."""
    links = {f"a{n}": name(n) | {"allOf": [{"$ref": reference(n + 1)}] * 2} for n in range(40)}
    return links | {"a40": name(40) | {"type": "object"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": chain_of_references(lambda n: {"$id": f"https://a.test/{n}"}, str), "$ref": "https://a.test/0"},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": chain_of_references(lambda n: {"$id": f"#a{n}"}, lambda n: f"#a{n}"),
            "allOf": [{"$ref": "#a0"}],
        },
        {
            "$id": "https://a.test/",
            "$defs": chain_of_references(lambda n: {}, lambda n: f"https://a.test/#/$defs/a{n}"),
            "$ref": "#/$defs/a0",
        },
        {
            "$defs": {"a": {"$anchor": "it", "not": {}}, "b": {"$anchor": "it", "type": "integer"}},
            "$ref": "#it",
        },
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "definitions": {"a": {"id": "https://a.test/a"}},
            "allOf": [{"$ref": "#/definitions/a"}],
        },
    ],
    ids=["$id", "fragment in $id", "$id of the root", "repeated anchor", "id of draft 4"],
)
def test_untrusted_references_that_cannot_be_counted_are_refused(schema: dict[str, Any]) -> None:
    """40 subschemas that each refer twice to the next would be applied 2**40 times."""
    with pytest.raises(InvalidSchema, match="references by"):
        compile_schema(schema, trusted=False)


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$id": "https://a.test/",
            "$defs": {"a": {"$anchor": "it"}, "b": True},
            "$ref": "#it",
            "not": {"$ref": "#/$defs/b"},
        },
        {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}},
        {"properties": {"a": {"id": "vendor"}, "b": {"$ref": "#"}}},
        {"properties": {"a": {"$id": "https://a.test/"}, "id": {"type": "string"}}},
    ],
)
def test_untrusted_schemas_may_have_clear_references_or_identifiers(schema: dict[str, Any]) -> None:
    compile_schema(schema, trusted=False)


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_external_references_of_every_keyword_are_refused(keyword: str) -> None:
    with pytest.raises(InvalidSchema, match="refers to"):
        compile_schema({"items": {keyword: "https://a.test"}})


@pytest.mark.parametrize(
    "pointer",
    ["#/$defs/a~1b", "#/$defs/c~0d", "#/$defs/e%20f", "#/$defs/%C3%BC", "#/anyOf/1", "#/$defs/~01"],
)
def test_loops_through_escaped_pointers_are_refused(pointer: str) -> None:
    """RFC 6901."""
    loop = {"$ref": pointer}
    with pytest.raises(InvalidSchema, match="leads back to itself"):
        compile_schema(
            {
                "$defs": {"a/b": loop, "c~d": loop, "e f": loop, "ü": loop, "~1": loop},
                "anyOf": [{}, loop],
            }
        )


@pytest.mark.parametrize(
    "pointer",
    ["#/$defs/gone", "#/anyOf/2", "#/anyOf/x", "#/anyOf/²", "#/anyOf/" + "9" * 5000, "#/type/x", "#gone", "#/title"],
)
def test_a_pointer_to_a_missing_schema_is_refused(pointer: str) -> None:
    """Regression: an array index that `int()` cannot parse raised another error."""
    with pytest.raises(InvalidSchema, match="not a valid JSON Schema"):
        compile_schema({"$defs": {}, "anyOf": [{}, {}], "type": "string", "title": "x", "not": {"$ref": pointer}})


def test_an_annotation_may_have_a_member_properties_that_is_no_object() -> None:
    schema = compile_schema({"type": "object", "x-form": {"properties": ["a"]}}, trusted=False)
    assert schema.fits({"a": 1})


@pytest.mark.parametrize("keyword", ["properties", "patternProperties"])
def test_properties_that_are_no_object_are_refused(keyword: str) -> None:
    with pytest.raises(InvalidSchema, match="is not of type"):
        compile_schema({keyword: ["a"]}, trusted=False)


def test_a_dialect_that_is_null_is_refused() -> None:
    """Regression: a KeyError, with which `call_tool` failed although the result was valid."""
    with pytest.raises(InvalidSchema, match=r"\$schema: null is not of type"):
        compile_schema({"$schema": None, "type": "object"}, trusted=False)


def test_long_chain_of_references_is_refused() -> None:
    steps = {f"s{n}": {"$ref": f"#/$defs/s{n + 1}"} for n in range(1900)}
    with pytest.raises(InvalidSchema, match="too long a chain"):
        compile_schema({"$defs": steps | {"s1900": {}}, "$ref": "#/$defs/s0"})


def test_a_schema_may_refer_to_itself_through_items() -> None:
    tree = compile_schema({"$defs": {"t": {"items": {"$ref": "#/$defs/t"}, "type": "array"}}, "$ref": "#/$defs/t"})
    assert tree.faults([[], [[1]]]) == ["[1][0][0]: expected an array"]


def test_patterns_are_counted() -> None:
    schema = {"pattern": "a", "properties": {"pattern": {"patternProperties": {"b": {}, "c": {"pattern": "d"}}}}}
    assert compile_schema(schema).pattern_count == 4
    assert (
        compile_schema(
            {"properties": {"pattern": {}, "patternProperties": {}}, "default": {"pattern": "a"}}
        ).pattern_count
        == 0
    )


def test_patterns_of_untrusted_schemas_must_take_linear_time() -> None:
    look_ahead = {"pattern": "^(?=a)b"}
    compile_schema(look_ahead)
    with pytest.raises(InvalidSchema, match="not a valid JSON Schema"):
        compile_schema(look_ahead, trusted=False)
    compile_schema({"pattern": "^a+$"}, trusted=False)
    large = {"pattern": "(?:a{100}){30}"}
    compile_schema(large)
    with pytest.raises(InvalidSchema, match="not a valid JSON Schema"):
        compile_schema(large, trusted=False)


def test_the_reason_of_an_invalid_schema_is_one_line_of_at_most_200_characters() -> None:
    with pytest.raises(InvalidSchema) as caught:
        compile_schema({"properties": {"a": {"type": "x" * 1000}}})
    head, _, reason = str(caught.value).partition(": properties/a/type: ")
    assert head.endswith("schema)")
    assert len(reason) == 200
    with pytest.raises(InvalidSchema) as caught:
        compile_schema({"pattern": "(" * 300 + "\n"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"$ref": "x" * 300 + "\n"}, f"refers to '{'x' * 200}…', which is not in it"),
        ({"$ref": "a\x1b[31m"}, "refers to 'a?[31m', which is not in it"),
        ({"$schema": "x" * 300}, f"unknown dialect ($schema: '{'x' * 199}…): use one of"),
        ({"$schema": ["x\x1b"]}, "unknown dialect ($schema: ['x\\x1b']): use one of"),
    ],
)
def test_references_and_dialects_are_shown_in_200_printable_characters(schema: dict[str, Any], shown: str) -> None:
    """Regression: a warning in the log of a client had a reference of a peer at its full length."""
    with pytest.raises(InvalidSchema) as caught:
        compile_schema(schema, trusted=False)
    assert shown in str(caught.value)


# --- error messages about values

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
FAULTS: list[tuple[dict[str, Any], Any, str]] = [
    ({"minimum": 3}, 2, "must be at least 3"),
    ({"maximum": 3}, 4, "must be at most 3"),
    ({"exclusiveMinimum": 3}, 3, "must be more than 3"),
    ({"exclusiveMaximum": 3}, 3, "must be less than 3"),
    ({"multipleOf": 3}, 4, "must be a multiple of 3"),
    ({"minLength": 3}, "ab", "must have at least 3 characters"),
    ({"maxLength": 3}, "abcd", "must have at most 3 characters"),
    ({"minItems": 2}, [1], "must have at least 2 items"),
    ({"maxItems": 1}, [1, 2], "must have at most 1 items"),
    ({"minProperties": 1}, {}, "must have at least 1 members"),
    ({"maxProperties": 1}, {"a": 1, "b": 2}, "must have at most 1 members"),
    ({"pattern": "^a"}, "b", "must match the pattern ^a"),
    ({"uniqueItems": True}, [1, 1], "must not have the same item twice"),
    ({"contains": {"const": 1}}, [2], "lacks a required item"),
    ({"$schema": DRAFT_7, "items": [{}], "additionalItems": False}, [1, 2], "has too many items"),
    ({"anyOf": [{"type": "string"}]}, 1, "matches none of the allowed forms"),
    ({"oneOf": [{}, {}]}, 1, "must match exactly one of the allowed forms"),
    ({"not": {}}, 1, "has a form that is not allowed"),
    ({"then": False, "if": {}}, 1, "is not allowed"),
    ({"$schema": DRAFT_7, "format": "ipv4"}, "x", "is not in the format ipv4"),
    ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "is not valid here"),
    ({"enum": [1, "a"]}, 2, 'must be one of 1,"a"'),
    ({"const": [3]}, 4, "must be [3]"),
    ({"enum": ["x" * 300]}, 2, 'must be one of "' + "x" * 199 + "…"),
    ({"enum": ["x" * 198]}, 2, 'must be one of "' + "x" * 198 + '"'),
    ({"const": "x" * 300}, 4, 'must be "' + "x" * 199 + "…"),
    ({"const": "x" * 198}, 4, 'must be "' + "x" * 198 + '"'),
    ({"pattern": "^" + "x" * 300}, "", "must match the pattern ^" + "x" * 176 + "…"),
    ({"type": "integer"}, "", "expected an integer"),
    ({"type": "string"}, 1, "expected a string"),
    ({"type": "number"}, "", "expected a number"),
    ({"type": "boolean"}, 1, "expected true or false"),
    ({"type": "array"}, 1, "expected an array"),
    ({"type": "object"}, 1, "expected an object"),
    ({"type": "null"}, 1, "expected null"),
]


@pytest.mark.parametrize(("schema", "value", "fault"), FAULTS)
def test_each_keyword_has_its_own_error_message(schema: dict[str, Any], value: Any, fault: str) -> None:
    assert compile_schema(schema).faults(value) == [f"arguments: {fault}"]
    schema = dict(schema)
    dialect = {"$schema": schema.pop("$schema")} if "$schema" in schema else {}
    assert compile_schema({**dialect, "properties": {"a": schema}}).faults({"a": value}) == [f"a: {fault}"]


def test_a_forbidden_member_is_reported_as_not_allowed() -> None:
    """Regression: the error did not report that the member is not allowed."""
    assert compile_schema({"properties": {"a": False}}).faults({"a": 1}) == ["a: is not allowed"]


def test_fault_of_a_large_value_is_reported_by_its_path() -> None:
    schema = compile_schema({"items": {"type": "integer"}})
    assert schema.faults([1] * 20_000 + ["x"]) == ["[20000]: expected an integer"]


def test_missing_and_unknown_members_are_reported_with_their_names() -> None:
    schema = compile_schema(
        {"properties": {"a": {"required": ["b"], "additionalProperties": False, "properties": {"b": {}}}}}
    )
    assert sorted(schema.faults({"a": {"\nc": 1}})) == ["a.?c: no such member", "a.b: missing"]
    unevaluated = compile_schema({"unevaluatedProperties": False})
    assert unevaluated.faults({"x" * 65: 1}) == ["x" * 64 + "…: no such member"]


def test_the_name_of_a_missing_member_is_printable_and_short() -> None:
    """Regression: the name was shown as the schema of a peer has it."""
    schema = compile_schema({"required": ["\x1b[31m", "x" * 65]}, trusted=False)
    assert schema.faults({}) == ["?[31m: missing", "x" * 64 + "…: missing"]


def test_a_fault_of_the_whole_value_has_the_name_that_the_caller_gives() -> None:
    schema = compile_schema({"type": "object", "properties": {"a": {"type": "string"}}})
    assert schema.faults(1, "result") == ["result: expected an object"]
    assert schema.faults({"a": 1}, "result") == ["a: expected a string"]
    with_alternatives = compile_schema({"type": "object", "anyOf": [{}]})
    assert with_alternatives.faults([1] * 5000, "result") == ["result: must match the schema"]
    assert compile_schema({"pattern": "(?=a)b"}).faults("x" * 10_001, "result") == [
        "result: must have shorter texts for patterns with look-around"
    ]


@pytest.mark.parametrize(
    ("path", "start", "text"),
    [
        ([], "", ""),
        (["crew", 2, "age"], "", "crew[2].age"),
        ([0, 1], "", "[0][1]"),
        (["a"], "start", "start.a"),
        ([3], "start", "start[3]"),
        (["x" * 65, "\t"], "", "x" * 64 + "….?"),
    ],
)
def test_a_path_is_written_like_a_python_expression(path: list[str | int], start: str, text: str) -> None:
    assert path_text(path, start) == text


@pytest.mark.parametrize(
    ("text", "expected"), [("x" * 64, "x" * 64), ("x" * 65, "x" * 64 + "…"), ("a\nb\u2028ü", "a?b?ü"), ("", "")]
)
def test_printable_replaces_control_characters_and_shortens_text(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert printable(text, 1) == (expected if len(text) <= 1 else text[:1] + "…")
