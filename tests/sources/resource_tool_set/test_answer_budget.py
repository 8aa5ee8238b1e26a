"""The limit of the size of an answer, and the positions at which longer texts are cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger import ToolError
from wharfinger.sources.resource_tool_set.answer_budget import (
    MAX_TOKENS,
    MIN_TOKENS,
    Budget,
    count_fitting,
    end_of_part,
    json_length,
    short_cell,
)


@pytest.mark.parametrize("tokens", [MIN_TOKENS - 1, MAX_TOKENS + 1, -1])
def test_a_budget_out_of_bounds_is_refused(tokens: int) -> None:
    with pytest.raises(ToolError, match=r"give a number from 500 to 100,000"):
        Budget.of(tokens)


def test_a_budget_reserves_characters_for_the_next_call() -> None:
    for tokens in (MIN_TOKENS, 10_000, MAX_TOKENS):
        budget = Budget.of(tokens)
        for uri in ("a:b", "a:" + "b" * 500):
            assert 0 < budget.room(uri) < budget.characters == tokens * 4
    assert Budget().argument == ""
    assert Budget.of(501).argument == " and max_tokens=501"


@pytest.mark.parametrize(
    ("text", "room", "part"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("one\ntwo\nthree", 9, "one\ntwo\n"),
        ("one\n" + "x" * 20, 18, "one\n" + "x" * 14),
        ("a" * 90 + "\n\n" + "b" * 5 + "\n" + "c" * 9, 100, "a" * 90 + "\n\n"),
        ('[{"a":1},{"a":2},{"a":3}]', 20, '[{"a":1},{"a":2},'),
        ("word word word", 12, "word word "),
    ],
)
def test_a_text_is_cut_after_a_paragraph_line_row_or_word(text: str, room: int, part: str) -> None:
    assert text[: end_of_part(text, 0, room)] == part


@given(st.text(alphabet="ab \n,}", max_size=200), st.integers(1, 50))
def test_each_part_fits_and_the_joined_parts_are_the_text(text: str, room: int) -> None:
    begin, parts = 0, []
    while begin < len(text):
        end = end_of_part(text, begin, room)
        parts.append(text[begin:end])
        begin = end
    assert "".join(parts) == text
    assert all(0 < len(part) <= room for part in parts)


@given(st.lists(st.text(max_size=20), max_size=20), st.integers(2, 100))
def test_the_largest_number_of_items_that_fit_is_counted(items: list[str], room: int) -> None:
    number = count_fitting(items, room)
    assert number >= min(1, len(items))
    if number > 1:
        assert json_length(items[:number]) <= room + 1
    if number < len(items):
        assert json_length(items[: number + 1]) > room


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ("x" * 10, None),
        ("x" * 11, {"text": "x" * 10, "cut": True, "characters": 11}),
        ({"text": "x" * 12, "cut": True, "bytes": 900}, {"text": "x" * 10, "cut": True, "bytes": 900}),
        ({"type": "image/png", "bytes": 900}, {"text": '{"type":"i', "cut": True, "characters": 32}),
        ([1] * 4, None),
        ([1] * 6, {"text": "[1,1,1,1,1", "cut": True, "characters": 13}),
        (1.5, None),
        (None, None),
    ],
)
def test_a_long_value_of_a_row_is_replaced_by_its_beginning_and_length(value: Any, short: Any) -> None:
    assert short_cell(value, 10) == (value if short is None else short)
