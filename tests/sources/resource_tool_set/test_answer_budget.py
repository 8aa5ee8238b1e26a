"""How large an answer is, and where a longer text is cut."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger import ToolError
from wharfinger.sources.resource_tool_set.answer_budget import (
    MAX_TOKENS,
    MIN_TOKENS,
    Budget,
    end_of_part,
    fitting,
    json_length,
    short_cell,
    short_rows,
)


@pytest.mark.parametrize("tokens", [MIN_TOKENS - 1, MAX_TOKENS + 1, -1])
def test_a_budget_out_of_bounds_is_refused(tokens: int) -> None:
    with pytest.raises(ToolError, match=r"give a number from 500 to 100,000"):
        Budget.of(tokens)


def test_a_budget_leaves_room_for_the_next_call() -> None:
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
def test_a_text_is_cut_at_the_best_place(text: str, room: int, part: str) -> None:
    assert text[: end_of_part(text, 0, room)] == part


@given(st.text(alphabet="ab \n,}", max_size=200), st.integers(1, 50))
def test_parts_joined_are_the_text_and_each_one_fits(text: str, room: int) -> None:
    begin, parts = 0, []
    while begin < len(text):
        end = end_of_part(text, begin, room)
        parts.append(text[begin:end])
        begin = end
    assert "".join(parts) == text
    assert all(0 < len(part) <= room for part in parts)


@given(st.lists(st.text(max_size=20), max_size=20), st.integers(2, 100))
def test_as_many_items_are_kept_as_fit(items: list[str], room: int) -> None:
    number = fitting(items, room)
    assert number >= min(1, len(items))
    if number > 1:
        assert json_length(items[:number]) <= room + 1
    if number < len(items):
        assert json_length(items[: number + 1]) > room


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


PNG = b"\x89PNG\r\n\x1a\n" + bytes(2_040)


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ({"base64": encoded(PNG)}, "(image/png, 2.0 KiB)"),
        ({"base64": encoded(PNG[:30]), "cut": True, "bytes": 5 << 20}, "(image/png, 5.0 MiB)"),
        ({"base64": "", "bytes": 0}, "(text/plain, 0 B)"),
        ({"text": "abc", "cut": True, "characters": 90_000}, "abc… (90000 characters)"),
        ({"text": "abc", "cut": True}, "abc… (cut)"),
        ("x" * 10, None),
        ("x" * 11, "x" * 10 + "… (11 characters)"),
        ([1] * 6, "[1,1,1,1,1… (13 characters)"),
        (1.5, None),
        (None, None),
    ],
)
def test_a_value_of_a_row_is_made_short(value: Any, short: Any) -> None:
    assert short_cell(value, 10) == (value if short is None else short)


@pytest.mark.parametrize(
    "value",
    [
        {"base64": "no base64!"},
        {"base64": encoded(PNG), "name": "x"},
        {"base64": 5},
        {"text": "abc"},
        {"text": "abc", "cut": True, "author": "x"},
    ],
)
def test_an_object_of_the_data_that_looks_like_one_of_ours_stays(value: Any) -> None:
    assert short_cell(value) == value


def test_a_row_keeps_its_text_unless_a_value_is_shortened() -> None:
    kept = '{"id":  1,"x":null}\n'
    assert short_rows(kept + '{"id":2,"pic":' + msgspec.json.encode({"base64": encoded(PNG)}).decode() + "}\n") == (
        kept + '{"id":2,"pic":"(image/png, 2.0 KiB)"}\n'
    )
