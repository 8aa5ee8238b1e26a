"""A search finds the right passage for questions that were not used to tune its ranking."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from benchmarks.finding import FIRST, HALVES, TREES, answers, questions, rank_of
from wharfinger.sources.search import index_search

MIN_SHARE = 0.85
"""The share of the questions whose place is among the first results."""


@pytest.mark.timeout(300)
def test_the_right_place_is_among_the_first_five(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine gets the same results as a fast one: their order depends on nothing else."""
    monkeypatch.setattr(index_search, "READING_SECONDS", 60.0)
    monkeypatch.setattr(index_search, "QUICK_SECONDS", 60.0)
    found = asyncio.run(answers("held out"))
    missed = [one.query for one, shown in found if not 0 < rank_of(one, shown) <= FIRST]
    assert len(found) - len(missed) >= MIN_SHARE * len(found), missed


def test_half_of_the_questions_about_each_tree_are_reserved() -> None:
    every = list(questions())
    assert Counter((one.tree, one.half) for one in every) == {(tree, half): 10 for tree in TREES for half in HALVES}
    assert len({one.query for one in every}) == len(every)
    for one in every:
        assert one.places
        assert all(first <= last for _, first, last in one.places)
