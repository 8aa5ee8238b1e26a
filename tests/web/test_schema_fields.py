"""Schemas become forms, and the values of their fields become arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger import types as t
from wharfinger.web.schema_fields import MAX_FIELDS, arguments_of, fields_of, fields_of_prompt


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": ["a"]}


@pytest.mark.parametrize(
    ("property_schema", "value", "expected"),
    [
        ({"type": "string"}, "x", "x"),
        ({"type": "integer"}, " 12 ", 12),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "2", 2),
        ({"type": ["integer", "null"]}, "3", 3),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "4", 4),
        ({"type": "boolean"}, True, True),
        ({"type": "boolean"}, "yes", False),
        ({"enum": ["x", 2, None]}, "1", 2),
        ({"oneOf": [{"const": "s", "title": "Small"}]}, "0", "s"),
        ({"type": "array", "items": {"type": "string"}}, "a\n\nb", ["a", "b"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["1"], ["b"]),
        ({"type": "object"}, '{"b": [1]}', {"b": [1]}),
        ({}, "[1, 2]", [1, 2]),
        ({"$ref": "#/$defs/Depth"}, "7", 7),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_argument(
    property_schema: dict[str, Any], value: Any, expected: Any
) -> None:
    fields = fields_of({**schema(a=property_schema), "$defs": {"Depth": {"type": "integer"}}})
    assert arguments_of(fields, {"a": value}) == ({"a": expected}, {})


def test_a_description_of_several_lines_becomes_one_line() -> None:
    (field,) = fields_of(schema(a={"type": "string", "description": "The port.\n\n  Hull or Dover."}))
    assert field.description == "The port. Hull or Dover."


@pytest.mark.parametrize(
    ("property_schema", "value", "message"),
    [
        ({"type": "integer"}, "2.5", "whole number"),
        ({"type": "number"}, "nan", "Write a number"),
        ({"type": "number"}, "1e999", "Write a number"),
        ({"type": "object"}, "{", "Write JSON"),
        ({"type": "object"}, '{"b": NaN}', "Write JSON: Out of range"),
        ({"type": "object"}, '{"b": 1e999}', "Write JSON: Out of range"),
        ({"type": "object"}, "[" * 100_000, "Write JSON"),
        ({"type": "string"}, "  ", "it is required"),
        ({"enum": ["x"]}, "9", "it is required"),
        ({"type": "string"}, "x" * (512 * 1024 + 1), "at most 524,288"),
    ],
)
def test_an_invalid_value_is_reported(property_schema: dict[str, Any], value: Any, message: str) -> None:
    arguments, errors = arguments_of(fields_of(schema(a=property_schema)), {"a": value})
    assert arguments == {}
    assert message in errors["a"]


def test_an_empty_field_that_is_not_required_is_left_out() -> None:
    assert arguments_of(fields_of({"properties": {"b": {"type": "string"}}}), {"b": ""}) == ({}, {})


@pytest.mark.parametrize(
    ("property_schema", "kind", "arguments"),
    [
        ({"type": "boolean"}, "select", {}),
        ({"type": ["boolean", "null"], "default": None}, "select", {}),
        ({"type": "boolean", "default": True}, "checkbox", {"b": True}),
        ({"type": "boolean", "default": False}, "checkbox", {"b": False}),
        ({"enum": ["x", None]}, "select", {}),
        ({"enum": ["x", None], "default": None}, "select", {"b": None}),
    ],
)
def test_a_choice_that_nobody_made_is_sent_only_if_the_schema_has_a_default(
    property_schema: dict[str, Any], kind: str, arguments: dict[str, Any]
) -> None:
    """A bug: an optional boolean without a default was sent as false, and an optional enum with null as null."""
    (field,) = fields_of({"properties": {"b": property_schema}})
    assert (field.kind, arguments_of([field], {})) == (kind, (arguments, {}))


def test_an_optional_boolean_can_be_chosen() -> None:
    (field,) = fields_of({"properties": {"b": {"type": "boolean"}}})
    chosen = {label: arguments_of([field], {"b": key})[0] for key, label in field.options}
    assert chosen == {"(none)": {}, "true": {"b": True}, "false": {"b": False}}


def test_defaults_are_filled_in() -> None:
    fields = fields_of(
        {"properties": {"n": {"type": "integer", "default": 3}, "e": {"enum": ["x", "y"], "default": "y"}}}
    )
    assert [field.value for field in fields] == ["3", "1"]


def test_a_form_has_at_most_200_fields() -> None:
    many = {f"p{number}": {"type": "string"} for number in range(MAX_FIELDS + 1)}
    assert len(fields_of({"properties": many})) == MAX_FIELDS


def test_the_arguments_of_a_prompt_are_strings() -> None:
    prompt = t.Prompt(name="plan", arguments=[t.PromptArgument(name="day", required=True)])
    fields = fields_of_prompt(prompt)
    assert arguments_of(fields, {"day": "5"}) == ({"day": "5"}, {})
    assert "required" in arguments_of(fields, {"day": ""})[1]["day"]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["type", "properties", "anyOf"]), inner)
    ),
)


@given(JSON)
def test_any_schema_of_a_server_makes_a_form(value: Any) -> None:
    for input_schema in (value, {"properties": {"a": value}}, {"properties": value, "required": value}):
        fields = fields_of(input_schema)
        json.dumps([field.for_browser() for field in fields])
        arguments_of(fields, {})
