"""Checks of the shape of decoded JSON."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from wharfinger.content.decoded_json import as_list, as_object, is_list, is_mapping, is_object


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, (True, True, False)),
        (MappingProxyType({"a": 1}), (False, True, False)),
        ([1], (False, False, True)),
        ((1,), (False, False, False)),
        ("[1]", (False, False, False)),
        (None, (False, False, False)),
    ],
)
def test_objects_mappings_and_lists_are_recognised(value: Any, expected: tuple[bool, bool, bool]) -> None:
    assert (is_object(value), is_mapping(value), is_list(value)) == expected


def test_a_value_of_another_shape_counts_as_empty() -> None:
    assert (as_object({"a": 1}), as_object([1]), as_object(None)) == ({"a": 1}, {}, {})
    assert (as_list([1]), as_list({"a": 1}), as_list("text")) == ([1], [], [])
