"""Checks of structs that cover several definitions: their members must fit together."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from wharfinger import types


@pytest.mark.parametrize("members", [{"text": ""}, {"blob": b""}])
def test_contents_with_one_of_text_and_blob_are_accepted(members: dict[str, Any]) -> None:
    types.check_contents(types.ResourceContents(uri="a:b", **members))


@pytest.mark.parametrize("members", [{}, {"text": "", "blob": b""}])
def test_contents_with_both_or_neither_are_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="either text or blob"):
        types.check_contents(types.ResourceContents(uri="a:b", **members))


FORM = types.RequestedSchema(type="object", properties={})


@pytest.mark.parametrize(
    "members",
    [{"requested_schema": FORM}, {"mode": "form", "requested_schema": FORM}, {"mode": "url", "url": "https://a.test/"}],
)
def test_form_and_url_elicitations_are_accepted(members: dict[str, Any]) -> None:
    types.check_elicitation(types.ElicitRequestParams(message="?", **members))


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"mode": "form"},
        {"mode": "url"},
        {"url": "https://a.test/"},
        {"mode": "url", "url": "https://a.test/", "requested_schema": FORM},
        {"mode": "form", "url": "https://a.test/", "requested_schema": FORM},
    ],
)
def test_elicitations_with_neither_or_both_modes_are_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="elicitation"):
        types.check_elicitation(types.ElicitRequestParams(message="?", **members))


FIELDS_ACCEPTED: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "format": "email", "minLength": 1, "maxLength": 9, "default": "a"},
    {"type": "string", "enum": ["a", "b"], "default": "a"},
    {"type": "string", "enum": ["a"], "enumNames": ["A"]},
    {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
    {"type": "number", "minimum": 0, "maximum": 1.5, "default": 0.5},
    {"type": "integer", "default": 2},
    {"type": "integer", "default": 2.0},
    {"type": "boolean", "default": False},
    {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1, "default": ["a"]},
    {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "maxItems": 1},
]

FIELDS_REFUSED: list[dict[str, Any]] = [
    {"type": "string", "minimum": 0},
    {"type": "string", "enum": ["a"], "oneOf": []},
    {"type": "string", "enumNames": ["A"]},
    {"type": "string", "default": 1},
    {"type": "number", "default": "1"},
    {"type": "number", "default": True},
    {"type": "integer", "default": 0.5},
    {"type": "boolean", "default": 1},
    {"type": "array"},
    {"type": "array", "items": {}},
    {"type": "array", "items": {"enum": [], "anyOf": []}},
    {"type": "array", "items": {"enum": ["a"]}, "default": "a"},
]


def read(schema: dict[str, Any]) -> types.PrimitiveSchema:
    return msgspec.json.decode(msgspec.json.encode(schema), type=types.PrimitiveSchema)


@pytest.mark.parametrize("schema", FIELDS_ACCEPTED, ids=json.dumps)
def test_valid_form_fields_are_accepted(schema: dict[str, Any]) -> None:
    types.check_primitive_schema(read(schema))


@pytest.mark.parametrize("schema", FIELDS_REFUSED, ids=json.dumps)
def test_invalid_form_fields_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        types.check_primitive_schema(read(schema))


def test_null_and_absent_structured_content_differ() -> None:
    """From 2026-07-28, null is a valid value."""
    assert msgspec.json.encode(types.CallToolResult(content=[])) == b'{"content":[]}'
    null = b'{"content":[],"structuredContent":null}'
    assert msgspec.json.encode(types.CallToolResult(content=[], structured_content=None)) == null
    assert msgspec.json.decode(null, type=types.CallToolResult).structured_content is None


@pytest.mark.parametrize("id", [b"1.5", b"true", b"null", b"{}"])
def test_a_progress_token_must_be_a_string_or_an_integer(id: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"progressToken":%b,"progress":1}' % id, type=types.ProgressNotificationParams)


def test_a_repr_shows_only_what_is_set() -> None:
    result = types.CallToolResult(content=[types.TextContent(text="x")])
    assert repr(result) == "CallToolResult(content=[TextContent(text='x')])"
    assert "UNSET" not in repr(types.Tool(name="it", input_schema={}))
