"""Schemas given by hand: which are refused at registration and why, and what is told of values that do not fit."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from tests.server.driving import ALL, STATELESS, ask, looped
from wharfinger import Server
from wharfinger.errors import MissingExtra
from wharfinger.protocol.json_schema import DIALECTS, CompiledSchema, InvalidSchema

DRAFTS = list(DIALECTS)
FULL: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
CREW: dict[str, Any] = {
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


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def doubling(times: int, inside: str = "") -> dict[str, Any]:
    """Few schemas of which very many would be applied to one value, or on the way to one."""
    following = [{"$ref": f"#/$defs/s{n + 1}"} for n in range(times)]
    steps: dict[str, Any] = {
        f"s{n}": {"anyOf": [{inside: {"a": step}}, {inside: {"a": step}}] if inside else [step, step]}
        for n, step in enumerate(following)
    }
    return {"$defs": steps | {f"s{times}": {"type": "string"}}, "$ref": "#/$defs/s0"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "ship"}, "no valid JSON Schema"),
        ({"$ref": "https://example.test/ship.json"}, "refers to 'https://example.test/ship.json'"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "refers to 'file:///etc/passwd'"),
        ({"allOf": [{"$dynamicRef": "other.json#x"}]}, "refers to 'other.json#x'"),
        ({"$ref": "#/$defs/gone"}, "no valid JSON Schema"),
        ({"$schema": "https://example.test/dialect"}, "use one of https://json-schema.org/draft/2020-12/schema"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "dialect"),
        ({"$defs": {"a": {"$schema": 7}}}, "dialect"),
        ({"pattern": "("}, "no valid JSON Schema"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}, "leads back to itself"),
        (nested(65), "more than 64 schemas inside each other"),
        ({"anyOf": [{"const": n} for n in range(2001)]}, "more than 2000 schemas"),
        (doubling(20), "more than 100000 schemas on the way to one value"),
        (doubling(20, "properties"), "more than 100000 schemas on the way to one value"),
        ({"description": "x" * 300_000}, "bytes"),
        ({"const": {1, object()}}, "no form in JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_reason(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSchema, match="input_schema of tool 'berth'") as caught:
        CompiledSchema(schema, "input_schema of tool 'berth'")
    assert words in str(caught.value)


@pytest.mark.parametrize("dialect", [*DRAFTS, *(f"{name}#" for name in DRAFTS)])
def test_the_dialect_that_a_schema_names_is_honoured(dialect: str) -> None:
    schema = CompiledSchema({"$schema": dialect, "type": "object", "properties": {"n": {"type": "integer"}}}, "schema")
    assert schema.faults({"n": 1}) == []
    assert schema.faults({"n": "1"}) == ["n: expected an integer"]


def test_without_a_dialect_it_is_2020_12() -> None:
    schema = CompiledSchema({"prefixItems": [{"type": "integer"}], "items": False}, "schema")  # 2020-12 alone has these
    assert schema.fits([1])
    assert not schema.fits([1, 2])


def test_names_inside_a_schema_are_no_keywords() -> None:
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


def test_a_pattern_that_backtracks_takes_no_time() -> None:
    for pattern in ("^(a+)+$", "^(?=a)(a+)+$", r"^(a|a)*\1$"):
        schema = CompiledSchema({"pattern": pattern}, "schema")
        started = time.monotonic()
        assert not schema.fits("a" * 5000 + "b")
        assert time.monotonic() - started < 5


def test_a_pattern_that_is_tried_from_each_character_anew_takes_no_time() -> None:
    """What has look-around is searched for in quadratic time, unless it must be at the start."""
    for value in ("a" * 200_000, ["a" * 9_000] * 400, {"a" * 200_000: 1}):
        schema = CompiledSchema({"$ref": "#/$defs/deep", "$defs": {"deep": DEEP}}, "schema")
        started = time.monotonic()
        assert schema.faults(value) == [
            "arguments: have longer texts than patterns with look-around may be searched for"
        ]
        assert time.monotonic() - started < 5
    assert CompiledSchema(DEEP, "schema").faults(["ab", "aab"]) == []
    assert CompiledSchema(DEEP, "schema").faults("a" * 5000) != []
    at_start = CompiledSchema({"pattern": "^(?=.*[A-Z])(?=.*[0-9]).{8,}$"}, "schema")
    assert at_start.faults("B" * 200_000 + "1") == []
    assert at_start.faults("b" * 200_000) != []


DEEP: dict[str, Any] = {
    "pattern": "(?!x)a*b",
    "items": {"pattern": "(?!x)a*b"},
    "patternProperties": {"(?!x)a*b": {}},
}


def test_every_fault_is_one_line_with_its_path_and_without_the_value() -> None:
    given = {"ship": "s3cret", "crew": [{"age": 1}, {}, {"age": "s3cret"}], "flag": "s3cret", "s3cret": 1}
    assert CompiledSchema(CREW, "schema").faults(given) == [
        "ship: must match the pattern ^[A-Z]",
        "crew[0].age: must be at least 16",
        "crew[1].age: missing",
        "crew[2].age: expected an integer",
        'flag: must be one of "red","green"',
        "s3cret: no such member",
    ]
    assert CompiledSchema(CREW, "schema").faults([]) == ["arguments: expected an object"]
    assert len(CompiledSchema({"items": {"type": "string"}}, "schema").faults(list(range(1000)))) == 16


@pytest.mark.parametrize("count", [1_000, 10_000, 100_000])
@pytest.mark.parametrize(
    ("inner", "fault"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "v[0]: expected an integer"),
        (
            {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
            "arguments: do not fit the schema",
        ),
    ],
)
def test_a_large_value_with_many_faults_is_refused_in_little_time(count: int, inner: Any, fault: str) -> None:
    """A bug: every fault was collected for sixteen to be reported, 100,000 of them in seconds."""
    schema = CompiledSchema({"type": "object", "properties": {"v": inner}}, "schema")
    started = time.perf_counter()
    found = schema.faults({"v": ["x"] * count})
    assert time.perf_counter() - started < 1
    assert found[0] == fault if count > 2_000 else len(found) > 0


def test_alternatives_inside_of_alternatives_take_no_time() -> None:
    """Each level doubles what there would be to say."""
    again = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    schema = CompiledSchema({"anyOf": [again, again | {"minProperties": 1}]}, "schema")
    value: Any = 3
    for depth in range(60):
        value = {"a": value}
        if depth in (2, 59):
            started = time.monotonic()
            assert schema.faults(value)
            assert time.monotonic() - started < 5
    assert schema.faults(value) == ["arguments: do not fit the schema"]


def test_the_missing_extra_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(MissingExtra, match=r"input_schema of tool 'berth' needs the extra 'schema': pip install 'wh"):
        Server("s").add_tool(lambda arguments: "", name="berth", input_schema=CREW)


@pytest.mark.parametrize("revision", ALL)
@looped
async def test_a_schema_by_hand_is_listed_byte_for_byte(revision: str) -> None:
    server = Server("s")

    @server.tool(input_schema=FULL)
    def contact(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    (shown,) = (await ask(server, "tools/list", revision=revision))["result"]["tools"]
    assert json.dumps(shown["inputSchema"]) == json.dumps(FULL)
    good = {"name": "Mary", "contactMethod": "phone", "phone": "1"}
    result = (await ask(server, "tools/call", {"name": "contact", "arguments": good}, revision))["result"]
    assert json.loads(result["content"][0]["text"]) == good
    result = (await ask(server, "tools/call", {"name": "contact", "arguments": {"phone": 1}}, revision))["result"]
    assert result["isError"]
    assert "phone: expected a string" in result["content"][0]["text"].splitlines()


async def said(server: Server, arguments: Any, name: str = "berth") -> Any:
    result = (await ask(server, "tools/call", {"name": name, "arguments": arguments}))["result"]
    return ("error: " if result.get("isError") else "") + result["content"][0]["text"]


@looped
async def test_a_function_takes_the_properties_by_name_or_in_one_dict_or_as_the_rest() -> None:
    server = Server("s")

    def by_name(ship: str, crew: list[dict[str, int]] = [], flag: str = "none") -> str:  # noqa: B006
        return f"{ship} {crew} {flag}"

    async def whole(everything) -> str:  # type: ignore[no-untyped-def]
        return str(everything)

    def rest(ship: str, **others: Any) -> str:
        return f"{ship} {others}"

    server.add_tool(by_name, input_schema=CREW)
    server.add_tool(whole, input_schema=CREW)
    server.add_tool(rest, input_schema=CREW)
    given = {"ship": "Mary", "crew": [{"age": 20}]}
    assert await said(server, given, "by_name") == "Mary [{'age': 20}] none"
    assert await said(server, given, "whole") == str(given)
    assert await said(server, given, "rest") == "Mary {'crew': [{'age': 20}]}"
    for name in ("by_name", "whole", "rest"):
        assert await said(server, {"ship": "Mary", "mast": 1}, name) == (
            "error: Invalid arguments:\nmast: no such member"
        )


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda ship, crew: "", "has no parameter for 'flag'"),
        (lambda ship, crew, flag, mast: "", "wants 'mast', which is no property"),
    ],
)
def test_a_function_that_takes_something_else_is_refused_at_registration(function: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Server("s").add_tool(function, name="berth", input_schema=CREW)


def test_arguments_are_always_an_object() -> None:
    with pytest.raises(ValueError, match='must say "type": "object"'):
        Server("s").add_tool(lambda arguments: "", name="berth", input_schema={"properties": {}})


@looped
async def test_a_result_conforms_to_the_output_schema_given_by_hand() -> None:
    server = Server("s")
    answers: list[Any] = [{"quay": 3}, {"quay": "three"}, "text"]

    @server.tool(output_schema={"type": "object", "properties": {"quay": {"type": "integer"}}, "required": ["quay"]})
    def berth():  # type: ignore[no-untyped-def]
        return answers.pop(0)

    (shown,) = (await ask(server, "tools/list"))["result"]["tools"]
    assert shown["outputSchema"]["required"] == ["quay"]
    result = (await ask(server, "tools/call", {"name": "berth"}))["result"]
    assert result["structuredContent"] == {"quay": 3}
    assert result["content"] == [{"type": "text", "text": '{"quay":3}'}]
    for _ in range(2):
        assert (await ask(server, "tools/call", {"name": "berth"}))["result"]["isError"] is True


@looped
async def test_an_output_schema_of_another_kind_is_wrapped_where_the_revision_takes_only_objects() -> None:
    server = Server("s")

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    def quays():  # type: ignore[no-untyped-def]
        return [1, 2]

    @server.tool
    def depth() -> float:
        return 2.5

    for revision in ALL:
        shown = (await ask(server, "tools/list", revision=revision))["result"]["tools"]
        types = ("array", "number") if revision == STATELESS else ("object", "object")
        assert tuple(tool["outputSchema"]["type"] for tool in shown) == types
        result = (await ask(server, "tools/call", {"name": "quays"}, revision))["result"]
        assert result["structuredContent"] == ([1, 2] if revision == STATELESS else {"result": [1, 2]})
        assert result["content"] == [{"type": "text", "text": "[1,2]"}]
