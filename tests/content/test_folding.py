"""Case folding: one character for one, and as `grep -i` compares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content.folding import fold


@given(st.text())
def test_positions_in_the_folded_text_are_those_of_the_text(text: str) -> None:
    assert len(fold(text)) == len(text)
    assert [fold(character) for character in text] == list(fold(text))


@given(st.text())
def test_folding_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@pytest.mark.parametrize(
    ("one", "other"), [("HAVN", "havn"), ("ÆØÅ", "æøå"), ("ΣΊΣΥΦΟΣ", "σίσυφος"), ("ſ", "S"), ("Ж", "ж"), ("ẞ", "ß")]
)
def test_characters_that_differ_in_case_fold_to_the_same(one: str, other: str) -> None:
    assert fold(one) == fold(other)
