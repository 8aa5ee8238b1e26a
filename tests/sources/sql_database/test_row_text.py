"""Values of a database become valid JSON, whatever is in them."""

from __future__ import annotations

import json

import pytest

from wharfinger.sources.sql_database.row_text import json_line, json_value, render


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


def test_half_of_a_surrogate_pair_in_the_name_of_a_member_is_replaced() -> None:
    """A bug: a map of a driver with such a name could not be encoded."""
    assert render({"\ud800": 1}, 1000) == {"\ufffd": 1}
