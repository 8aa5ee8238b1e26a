"""Input for a form field is parsed according to the field's schema, and invalid input is explained."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wharfinger import types as t
from wharfinger.cli.targets.terminal_forms import choices_of, plain_host, read_field


def field(**schema: Any) -> t.PrimitiveSchema:
    return msgspec.convert(schema, t.PrimitiveSchema)


QUAYS = {"type": "string", "enum": ["n", "s"], "enumNames": ["North", "South"]}
SEVERAL = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "Ay"}, {"const": "b", "title": "Bee"}]}}


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "x y", "x y"),
        ({"type": "string", "format": "email"}, "a@b.test", "a@b.test"),
        ({"type": "string", "format": "uri"}, "https://b.test/", "https://b.test/"),
        ({"type": "string", "format": "date"}, "2026-07-28", "2026-07-28"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T09:30:00Z", "2026-07-28T09:30:00Z"),
        ({"type": "integer"}, "-3", -3),
        ({"type": "number"}, "3", 3),
        ({"type": "number"}, "3.5", 3.5),
        ({"type": "boolean"}, "Y", True),
        ({"type": "boolean"}, "no", False),
        (QUAYS, "s", "s"),
        (QUAYS, "north", "n"),
        (QUAYS, "2", "s"),
        (SEVERAL, "bee, 1, a", ["b", "a"]),
        (SEVERAL, "", []),
    ],
)
def test_valid_answers_are_accepted(schema: dict[str, Any], typed: str, value: object) -> None:
    assert read_field(field(**schema), typed) == value
    assert type(read_field(field(**schema), typed)) is type(value)


@pytest.mark.parametrize(
    ("schema", "typed", "error"),
    [
        ({"type": "string", "minLength": 2}, "x", "at least 2"),
        ({"type": "string", "maxLength": 2}, "xyz", "at most 2"),
        ({"type": "string", "format": "email"}, "me", "e-mail"),
        ({"type": "string", "format": "uri"}, "me", "URI"),
        ({"type": "string", "format": "date"}, "28.7.", "2026-07-28"),
        ({"type": "string", "format": "date"}, "20260728", "2026-07-28"),
        ({"type": "string", "format": "date"}, "2026-W31-2", "2026-07-28"),
        ({"type": "string", "format": "date"}, "2026-02-30", "2026-07-28"),
        ({"type": "string", "format": "date-time"}, "2026-07-28", "09:30"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T09:30:00", "with its zone"),
        ({"type": "string", "format": "date-time"}, "20260728T093000Z", "09:30"),
        ({"type": "integer"}, "1.5", "whole number"),
        ({"type": "number"}, "nan", "number"),
        ({"type": "number"}, "1e999", "number"),
        ({"type": "number", "minimum": 2}, "1", "2 or more"),
        ({"type": "integer", "maximum": 2}, "3", "2 or less"),
        ({"type": "boolean"}, "perhaps", "y or n"),
        (QUAYS, "3", "not one of the choices"),
        ({**SEVERAL, "minItems": 1}, "", "at least 1"),
        ({**SEVERAL, "maxItems": 1}, "a,b", "at most 1"),
    ],
)
def test_invalid_answers_are_explained(schema: dict[str, Any], typed: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        read_field(field(**schema), typed)


def test_choices_have_their_labels() -> None:
    assert choices_of(field(**QUAYS)) == [("n", "North"), ("s", "South")]
    assert choices_of(field(**SEVERAL)) == [("a", "Ay"), ("b", "Bee")]
    assert choices_of(field(type="string", enum=["x"])) == [("x", "x")]
    assert choices_of(field(type="string")) == []


def test_a_host_in_another_alphabet_is_written_in_ascii() -> None:
    assert plain_host("b\u00e4nk.test").startswith("xn--bnk-qla.test")
