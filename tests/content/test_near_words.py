"""The word nearest to a misspelled one is found, and no word that is too different."""

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
    ("word", "text", "meant"),
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
def test_a_misspelled_word_is_found(word: str, text: str, meant: str) -> None:
    assert nearest(word, text) == meant


def test_the_nearest_comes_first_then_the_most_frequent() -> None:
    assert nearest("harbours", "harburs", "harbor harbor harbor") == "harburs"
    assert nearest("anchor", "anchur anchor2 anchop anchop") == "anchop"


def test_words_that_are_too_long_or_too_many_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * near_words.MAX_CHARACTERS
    assert nearest(long, long[:-1] + "y")
    assert nearest(long + "x", long + "y") == ""
    monkeypatch.setattr(near_words, "MAX_COMPARED_WORDS", 2)
    assert nearest("anchor", "anchxx anchyy", "anchur") == ""
    assert nearest("anchor", "anchxx", "anchur") == "anchur"


def table_distance(one: str, other: str) -> int:
    """Return the distance of two words, from the complete table of Damerau's definition."""
    table = {(-1, -1): 0}
    for at in range(-1, len(one)):
        for to in range(-1, len(other)):
            if at < 0 or to < 0:
                table[at, to] = at + to + 2
                continue
            same = one[at] == other[to]
            table[at, to] = min(table[at - 1, to] + 1, table[at, to - 1] + 1, table[at - 1, to - 1] + (not same))
            if at > 0 and to > 0 and one[at] == other[to - 1] and one[at - 1] == other[to]:
                table[at, to] = min(table[at, to], table[at - 2, to - 2] + 1)
    return table[len(one) - 1, len(other) - 1]


@given(st.text("abc", max_size=8), st.text("abc", max_size=8), st.integers(0, 3))
def test_the_distance_equals_that_of_the_complete_table(one: str, other: str, most: int) -> None:
    assert distance(one, other, most) == min(table_distance(one, other), most + 1)
