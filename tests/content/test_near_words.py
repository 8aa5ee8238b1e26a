"""The nearest word to a misspelled word is found, unless it is too different."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content import near_words
from wharfinger.content.near_words import NearWords, distance


def nearest(word: str, *texts: str) -> str:
    near = NearWords(word)
    for text in texts:
        near.add(text)
    return near.best()


@pytest.mark.parametrize(
    ("word", "text", "expected"),
    [
        ("heartbaet", "def _reset_heartbeat(self):", "heartbeat"),
        ("ClientSesion", "class ClientSession:", "clientsession"),
        ("jsonfy", "return jsonify(x)", "jsonify"),
        ("declaritive_base", "Base = declarative_base()", "declarative_base"),
        ("timout", "connTimeout = 3", "timeout"),
        ("timeout", "timeout timeouts", "timeouts"),
        ("tide", "ride", "ride"),
        ("tid", "tide", ""),
        ("anchor", "an other word", ""),
        ("harbour", "hrbuor", ""),
        ("harbours", "hrbuors", "hrbuors"),
    ],
)
def test_a_misspelled_word_is_found(word: str, text: str, expected: str) -> None:
    assert nearest(word, text) == expected


def test_the_nearest_word_is_preferred_then_the_most_frequent() -> None:
    assert nearest("harbours", "harburs", "harbor harbor harbor") == "harburs"
    assert nearest("anchor", "anchur anchor2 anchop anchop") == "anchop"


def test_words_that_are_too_long_or_too_many_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "x" * near_words.MAX_CHARACTERS
    assert nearest(longest, longest[:-1] + "y")
    assert nearest(longest + "x", longest + "y") == ""
    monkeypatch.setattr(near_words, "MAX_COMPARED_WORDS", 2)
    assert nearest("anchor", "anchxx anchyy", "anchur") == ""
    assert nearest("anchor", "anchxx", "anchur") == "anchur"


def table_distance(first: str, second: str) -> int:
    """Return the restricted Damerau-Levenshtein distance, computed with the complete table."""
    table = {(-1, -1): 0}
    for i in range(-1, len(first)):
        for j in range(-1, len(second)):
            if i < 0 or j < 0:
                table[i, j] = i + j + 2
                continue
            same = first[i] == second[j]
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (not same))
            if i > 0 and j > 0 and first[i] == second[j - 1] and first[i - 1] == second[j]:
                table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[len(first) - 1, len(second) - 1]


@given(st.text("abc", max_size=8), st.text("abc", max_size=8), st.integers(0, 3))
def test_the_distance_equals_the_distance_of_the_complete_table(first: str, second: str, limit: int) -> None:
    assert distance(first, second, limit) == min(table_distance(first, second), limit + 1)
