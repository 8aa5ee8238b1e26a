"""Case folding: one character for one, and as `grep -i` compares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content.folding import fold


@given(st.text())
def test_a_place_in_the_folded_text_is_the_same_place_in_the_text(text: str) -> None:
    assert len(fold(text)) == len(text)
    assert [fold(character) for character in text] == list(fold(text))


@given(st.text())
def test_folding_twice_changes_nothing_more(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@pytest.mark.parametrize(
    ("one", "other"), [("HAVN", "havn"), ("ÆØÅ", "æøå"), ("ΣΊΣΥΦΟΣ", "σίσυφος"), ("ſ", "S"), ("Ж", "ж"), ("ẞ", "ß")]
)
def test_cases_are_the_same(one: str, other: str) -> None:
    assert fold(one) == fold(other)
