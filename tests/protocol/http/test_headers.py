"""Values of headers: their base64 encoding, and the arguments that `x-mcp-header` repeats in headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType

from wharfinger.errors import HeaderMismatch
from wharfinger.protocol.http.headers import (
    HeaderParam,
    InvalidHeaderAnnotation,
    check_arguments,
    check_params,
    decode_value,
    encode_value,
    find_header_params,
    param_headers,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", b"plain"),
        ("two words", b"two words"),
        ("", b""),
        ("file:///a%20b", b"file:///a%20b"),
        (" edge", b"=?base64?IGVkZ2U=?="),
        ("edge ", b"=?base64?ZWRnZSA=?="),
        ("a\nb", b"=?base64?YQpi?="),
        ("a\tb", b"=?base64?YQli?="),
        ("héllo", b"=?base64?aMOpbGxv?="),
        ("=?base64?x?=", b"=?base64?PT9iYXNlNjQ/eD89?="),
        ("=?base64?x", b"=?base64?x"),
        ("x?=", b"x?="),
    ],
)
def test_only_unsafe_values_are_encoded_in_base64(text: str, value: bytes) -> None:
    """2026-07-28, header encoding."""
    assert encode_value(text) == value
    assert decode_value(value) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_survives_a_round_trip(text: str) -> None:
    value = encode_value(text)
    assert value.isascii()
    assert not set(value) & {10, 13, 0}
    assert decode_value(value) == text


@pytest.mark.parametrize(
    "value", [b"=?base64?SGVsbG8?=", b"=?base64?SGVs!!!bG8=?=", b"=?base64?/w==?=", b"=?base64?YQ==YQ==?=", b"\xff"]
)
def test_a_value_with_invalid_base64_or_utf_8_is_refused(value: bytes) -> None:
    with pytest.raises(HeaderMismatch):
        decode_value(value)


@pytest.mark.parametrize("value", [b"=?BASE64?YQ==?=", b"=?base64?=", b"=?base64?"])
def test_a_value_without_both_markers_is_not_decoded(value: bytes) -> None:
    assert decode_value(value) == value.decode()


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "page": {"type": "object", "properties": {"size": {"type": "integer", "x-mcp-header": "Size"}}},
        "x-mcp-header": {"type": "string"},
        "note": {"type": "string", "default": {"x-mcp-header": "not a schema"}},
    },
}
HEADER_PARAMS = (
    HeaderParam(b"mcp-param-dry-run", ("dry",)),
    HeaderParam(b"mcp-param-region", ("region",)),
    HeaderParam(b"mcp-param-size", ("page", "size")),
)


def test_each_annotated_property_has_a_header_param() -> None:
    assert find_header_params(SCHEMA) == HEADER_PARAMS


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "string", "x-mcp-header": ""}},
        {"a": {"type": "string", "x-mcp-header": "two words"}},
        {"a": {"type": "string", "x-mcp-header": "Ä"}},
        {"a": {"type": "string", "x-mcp-header": 1}},
        {"a": {"type": "number", "x-mcp-header": "A"}},
        {"a": {"type": ["string", "null"], "x-mcp-header": "A"}},
        {"a": {"x-mcp-header": "A"}},
        {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
        {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
        {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}},
    ],
)
def test_an_invalid_or_misplaced_annotation_is_an_error(properties: dict[str, Any]) -> None:
    with pytest.raises(InvalidHeaderAnnotation):
        find_header_params({"type": "object", "properties": properties})


def test_client_sends_a_header_for_each_present_value() -> None:
    assert param_headers(HEADER_PARAMS, {"region": "ä", "dry": False, "page": {"size": 42.0}}) == [
        (b"mcp-param-dry-run", b"false"),
        (b"mcp-param-region", b"=?base64?w6Q=?="),
        (b"mcp-param-size", b"42"),
    ]
    assert param_headers(HEADER_PARAMS, {"region": None, "page": 7}) == []
    with pytest.raises(ValueError, match="within"):
        param_headers(HEADER_PARAMS, {"page": {"size": 2**53}})


@pytest.mark.parametrize(
    ("headers", "arguments"),
    [
        ({}, {}),
        ({}, {"region": None}),
        ({b"mcp-param-region": b"eu"}, {"region": "eu"}),
        ({b"mcp-param-dry-run": b"true"}, {"dry": True}),
        ({b"mcp-param-size": b"42"}, {"page": {"size": 42}}),
        ({b"mcp-param-size": b"42.0"}, {"page": {"size": 42}}),
        ({b"mcp-param-other": b"x"}, {}),
    ],
)
def test_server_accepts_headers_that_match_the_arguments(
    headers: dict[bytes, bytes], arguments: dict[str, Any]
) -> None:
    check_params(HEADER_PARAMS, headers, arguments)


@pytest.mark.parametrize(
    ("headers", "arguments"),
    [
        ({}, {"region": "eu"}),
        ({b"mcp-param-region": b"eu"}, {}),
        ({b"mcp-param-region": b"EU"}, {"region": "eu"}),
        ({b"mcp-param-dry-run": b"True"}, {"dry": True}),
        ({b"mcp-param-size": b"x"}, {"page": {"size": 1}}),
        ({b"mcp-param-size": b"1"}, {"page": {"size": [1]}}),
        ({b"mcp-param-size": b"1_0"}, {"page": {"size": 10}}),
        ({b"mcp-param-size": b"+10"}, {"page": {"size": 10}}),
        ({b"mcp-param-size": b"10."}, {"page": {"size": 10}}),
        ({b"mcp-param-size": "١٠".encode()}, {"page": {"size": 10}}),
        ({b"mcp-param-size": encode_value(" 10")}, {"page": {"size": 10}}),
        ({b"mcp-param-region": b"=?base64?!?="}, {"region": "eu"}),
    ],
)
def test_server_refuses_headers_that_differ_from_the_arguments(
    headers: dict[bytes, bytes], arguments: dict[str, Any]
) -> None:
    with pytest.raises(HeaderMismatch):
        check_params(HEADER_PARAMS, headers, arguments)


def test_an_encoded_value_may_be_empty_and_blanks_around_it_are_ignored() -> None:
    assert decode_value(b"=?base64??=") == ""
    assert decode_value(b"\t =?base64?YQ==?= \t") == "a"
    assert decode_value(" é\t".encode()) == "é"


@pytest.mark.parametrize(("size", "header"), [(2**53 - 1, b"9007199254740991"), (1 - 2**53, b"-9007199254740991")])
def test_only_integers_that_are_exact_in_javascript_are_sent(size: int, header: bytes) -> None:
    assert param_headers(HEADER_PARAMS, {"page": {"size": size}}) == [(b"mcp-param-size", header)]
    for beyond in (size + (1 if size > 0 else -1), float(size + (1 if size > 0 else -1))):
        with pytest.raises(ValueError, match="within"):
            param_headers(HEADER_PARAMS, {"page": {"size": beyond}})


@pytest.mark.parametrize(("value", "header"), [(1.5, b"1.5"), (True, b"true"), (False, b"false"), (0, b"0")])
def test_values_are_written_as_in_json(value: object, header: bytes) -> None:
    assert param_headers(HEADER_PARAMS, {"region": value}) == [(b"mcp-param-region", header)]


@pytest.mark.parametrize(("header", "matches"), [(b"1." + b"0" * 30, True), (b"1." + b"0" * 31, False), (b"1e0", True)])
def test_a_number_in_a_header_has_at_most_32_characters(header: bytes, matches: bool) -> None:
    def check() -> None:
        check_params(HEADER_PARAMS, {b"mcp-param-size": header}, {"page": {"size": 1}})

    if matches:
        check()
    else:
        with pytest.raises(HeaderMismatch, match="differ"):
            check()


@pytest.mark.parametrize(
    ("arguments", "matches"),
    [
        (Raw(b'{"region":"eu"}'), True),
        (Raw(b'{"region":"us"}'), False),
        (Raw(b"{}"), False),
        (Raw(b"[]"), False),
        (Raw(b"null"), False),
        (Raw(b'{"region":"\\ud800"}'), False),
        (UNSET, False),
    ],
)
def test_headers_are_compared_with_the_arguments_in_json(arguments: Raw | UnsetType, matches: bool) -> None:
    headers = {b"mcp-param-region": b"eu"}
    check_arguments((), headers, arguments)
    if matches:
        check_arguments(HEADER_PARAMS, headers, arguments)
    else:
        with pytest.raises(HeaderMismatch):
            check_arguments(HEADER_PARAMS, headers, arguments)
    if arguments is UNSET or bytes(arguments) in (b"{}", b"[]", b"null"):
        check_arguments(HEADER_PARAMS, {}, arguments)


def test_annotations_are_found_only_below_properties() -> None:
    annotated = {"type": "string", "x-mcp-header": "A"}
    for schema in (
        annotated,
        {"$defs": {"properties": {"a": annotated}}},
        {"items": [{"properties": {"a": annotated}}]},
        {"properties": {"a": {"items": {"properties": {"b": annotated}}}}},
        {"properties": [annotated]},
    ):
        with pytest.raises(InvalidHeaderAnnotation, match="reachable through properties"):
            find_header_params(schema)
    for keyword in ("const", "enum", "default", "examples"):
        assert find_header_params({"properties": {"a": {keyword: [annotated]}}}) == ()
