"""Looking for words in pieces of text finds what is in the whole, wherever the pieces are cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content.folding import fold
from wharfinger.content.match_lines import SNIPPET, look


def test_the_line_is_shown_with_its_number() -> None:
    seen = look(["# Charts\n\n  Soundings in FATHOMS.  \n"], ["fathoms"])
    assert seen is not None
    assert (seen.snippet, seen.line, seen.counts) == ("3: Soundings in FATHOMS.", 3, (1,))


def test_the_line_that_has_more_of_the_words_is_shown() -> None:
    seen = look(["depth\nsomething\ntide and depth\n"], ["depth", "tide"])
    assert seen is not None
    assert seen.snippet == "3: tide and depth"


def test_all_words_must_occur() -> None:
    assert look(["one two"], ["one", "three"]) is None


def test_a_very_long_line_is_shown_in_part() -> None:
    seen = look(["x" * 10_000 + " depth " + "y" * 10_000], ["depth"])
    assert seen is not None
    assert "depth" in seen.snippet
    assert len(seen.snippet) <= SNIPPET + 5


@given(
    st.text(alphabet="abİß\n", max_size=60),
    st.lists(st.integers(0, 60), max_size=5),
    st.lists(st.text(alphabet="abİß", min_size=1, max_size=5), min_size=1, max_size=3, unique=True),
)
def test_where_a_text_is_cut_changes_nothing(text: str, cuts: list[int], words: list[str]) -> None:
    words = [fold(word) for word in words]
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[begin:end] for begin, end in itertools.pairwise(places)]
    seen = look(pieces, words)
    assert (seen is not None) == all(word in fold(text) for word in words)
    if seen is not None:
        line = text.split("\n")[seen.line - 1]
        assert seen.snippet.startswith(f"{seen.line}: ")
        assert any(word in fold(line) for word in words)
        assert any(fold(text).startswith(word, seen.offset) for word in words)
