"""Values of a database become valid JSON, whatever is in them."""

from __future__ import annotations

import json
import time

import pytest

from wharfinger.sources.sql_database.row_text import json_line, json_value, render, unique_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"\ud83d"', "\ufffd"),
        (r'{"a": ["x\udc00y", 1]}', {"a": ["x\ufffdy", 1]}),
        (r'{"\ud83d": {"\ud83d": null}}', {"\ufffd": {"\ufffd": None}}),
        ('["\udcff"]', ["\ufffd"]),  # a byte that is not valid UTF-8, as drivers decode it
        (r'["\ud83d\ude00", "\\ud83d", "\u00e9"]', ["\U0001f600", r"\ud83d", "é"]),
    ],
)
def test_half_of_a_surrogate_pair_in_json_is_replaced(text: str, expected: object) -> None:
    """A bug: the row, and so its whole table, could not be encoded."""
    assert json.loads(json_line(["j"], [json_value(text, 1000)])) == {"j": expected}


def test_deep_json_with_half_of_a_surrogate_pair_is_shown_as_text() -> None:
    text = "[" * 5_000 + r'"\ud83d"' + "]" * 5_000
    assert json_value(text, 100_000) == text


def test_bytes_in_a_memoryview_are_bytes() -> None:
    """Some drivers of SQLAlchemy return them. A bug: the value was `<memory at 0x…>`."""
    assert render(memoryview(b"\x00\xff"), 100) == {"hex": "00ff", "bytes": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1234567890123456789012", "0.1234567890123456789012"),
        ("-12345678901234567.5", "-12345678901234567.5"),
        ("1e-400", "1e-400"),
        ("1E400", "1E400"),
        ("1e-9999999999999999999", "1e-9999999999999999999"),  # an exponent that Decimal refuses
        ("0.1", 0.1),
        ("-0.10", -0.1),
        ("1.5E+3", 1500.0),
        ("0.30000000000000004", 0.30000000000000004),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("5e-324", 5e-324),
        ("0.12345678901230000000000000", 0.1234567890123),
    ],
)
def test_a_number_in_json_with_more_digits_than_a_float_is_shown_as_text(text: str, expected: object) -> None:
    """A bug: the digits after the 17th were lost."""
    assert json.loads(json_line(["j"], [json_value(f'{{"a": [{text}]}}', 1000)])) == {"j": {"a": [expected]}}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_float_that_json_lacks_is_a_string_inside_json_too(text: str) -> None:
    """A bug: it became null. DuckDB writes an array of such floats as `[NaN]`."""
    assert json.loads(json_line(["j"], [json_value(f"[{text}]", 1000)])) == {"j": [text]}


def test_half_of_a_surrogate_pair_in_the_name_of_a_member_is_replaced() -> None:
    """A bug: a map of a driver with such a name could not be encoded."""
    assert render({"\ud800": 1}, 1000) == {"\ufffd": 1}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["id", "id", "id"], ["id", "id_2", "id_3"]),
        (["id", "id", "id_2", "id"], ["id", "id_3", "id_2", "id_4"]),
        (["id", "id", "id_2", "id_2"], ["id", "id_3", "id_2", "id_2_2"]),
        (["", "", "_2"], ["", "_3", "_2"]),
        (["\ud800", "\ufffd"], ["\ufffd", "\ufffd_2"]),
    ],
)
def test_names_of_columns_become_unique(names: list[str], expected: list[str]) -> None:
    assert unique_names(names) == expected


def test_many_columns_of_the_same_name_are_named_quickly() -> None:
    """A bug: the time was quadratic, so a header of 20,000 equal names took half a minute."""
    start = time.monotonic()
    assert unique_names(["x"] * 20_000)[-1] == "x_20000"
    assert time.monotonic() - start < 5
