"""Rows of literals and holes against a search that tries every fit, and the bounds of a hole."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

import pytest

from wharfinger.protocol.uri.matcher import ESCAPED, Atom, Hole, Matcher, is_settled, may_meet

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%")
SEGMENT = PLAIN | frozenset(".-")
PATH = SEGMENT | {"/"}
TOKENS = ["a", "b", "/", ".", "-", "2", "%2F", "%C3%BC", "%E2%82%AC", "%F0%9F%98%80"]


def every_fit(atoms: Sequence[Atom], tokens: list[str]) -> Iterator[list[str | None]]:
    """What the holes may hold, in every possible way; a token is a character, escaped or not."""
    if not atoms:
        if not tokens:
            yield []
        return
    atom, rest = atoms[0], atoms[1:]
    if isinstance(atom, str):
        for count in range(1, len(tokens) + 1):
            if "".join(tokens[:count]) == atom:
                yield from every_fit(rest, tokens[count:])
        return
    if atom.opener:
        for fit in every_fit(rest, tokens):
            yield [None, *fit]
        if not tokens or tokens[0] not in atom.opener:
            return
        tokens = tokens[1:]
    for count in range(len(tokens) + 1):
        if count and not atom.chars.issuperset(tokens[count - 1]):
            return
        if atom.least <= count and (not atom.most or count <= atom.most):
            for fit in every_fit(rest, tokens[count:]):
                yield ["".join(tokens[:count]), *fit]


def best_fit(atoms: Sequence[Atom], tokens: list[str]) -> list[str | None] | None:
    """The fit with every optional hole if there is one, then with the longest first hole, and so on."""
    fits = list(every_fit(atoms, tokens))
    whole = [fit for fit in fits if None not in fit]
    return max(whole or fits, key=lambda fit: [-1 if held is None else len(held) for held in fit], default=None)


def some_row(choose: random.Random) -> list[Atom]:
    row: list[Atom] = []
    for _ in range(choose.randint(0, 4)):
        if choose.random() < 0.35 and (not row or isinstance(row[-1], Hole)):
            row.append(choose.choice(["a", "b", "/", ".", "-", "a/", "/a", "2", "%2F", "%C3%BC", "2F", "a/a", "aa"]))
        else:
            chars = choose.choice([PLAIN, SEGMENT, PATH, PLAIN | {"-"}, PLAIN | {"/"}])
            opener = choose.choice(["", "", "/", ".", "-/"])
            row.append(Hole(chars, opener, choose.choice([0, 1]), choose.choice([0, 0, 1, 2, 3])))
    return row


def some_text(choose: random.Random, row: list[Atom]) -> str:
    """A text that has a chance to fit."""
    parts: list[str] = []
    for atom in row:
        if isinstance(atom, str):
            parts.append(atom)
            continue
        if atom.opener and choose.random() < 0.7:
            parts.append(choose.choice(atom.opener))
        parts += choose.choices(TOKENS, k=choose.randint(0, 3))
    if choose.random() < 0.2:
        parts.append(choose.choice(TOKENS))
    return "".join(parts)


def test_row_fits_as_the_best_of_every_way_to_fit_it() -> None:
    choose = random.Random(6570)
    fitted = settled = 0
    for _ in range(3000):
        row = some_row(choose)
        text = some_text(choose, row)
        if re.search("%(?!2F|C3%BC|E2%82%AC|F0%9F%98%80)", text) is not None:
            continue  # a literal has cut an escape
        tokens = re.findall(f"{ESCAPED}|.", text)
        expected = best_fit(row, tokens)
        for settle in (True, False):
            found = Matcher(row, settle=settle).fit(text)
            assert (None if found is None else list(found)) == expected, (row, text, settle)
        fitted += expected is not None
        settled += is_settled(row)
    assert fitted > 500
    assert settled > 250


def test_rows_that_fit_one_text_meet() -> None:
    choose = random.Random(3986)
    met = 0
    for _ in range(2000):
        one, other = some_row(choose), some_row(choose)
        text = some_text(choose, choose.choice([one, other]))
        if Matcher(one, settle=False).fit(text) is not None and Matcher(other, settle=False).fit(text) is not None:
            assert may_meet(one, other), (one, other, text)
            assert may_meet(other, one)
            met += 1
    assert met > 50


LETTERS = Hole(PLAIN, "", 1)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (["a"], ["a"], True),
        (["a"], ["b"], False),
        (["a"], ["aa"], False),
        ([], [], True),
        ([], ["a"], False),
        ([], [LETTERS], False),
        ([], [Hole(PLAIN)], True),
        ([], [Hole(PLAIN, "/", 1)], True),
        (["/"], [Hole(PLAIN, "/", 1)], False),
        (["/a"], [Hole(PLAIN, "/", 1)], True),
        (["/"], [Hole(PLAIN, "/")], True),
        (["//"], [Hole(PLAIN, "/")], False),
        (["-a"], [Hole(PLAIN, "/")], False),
        (["-a"], [Hole(PLAIN, "/-")], True),
        (["a-"], [LETTERS], False),
        ([LETTERS, "-"], [LETTERS, "/"], False),
        ([LETTERS, "-", LETTERS], [Hole(SEGMENT, "", 1)], True),
        ([LETTERS, "/", LETTERS], [Hole(SEGMENT, "", 1)], False),
        ([LETTERS, "/b"], [LETTERS, "/", LETTERS], True),
        ([LETTERS, "/b/"], [LETTERS, "/", LETTERS], False),
    ],
)
def test_rows_meet_only_if_some_text_fits_both(one: list[Atom], other: list[Atom], meet: bool) -> None:
    assert may_meet(one, other) is meet
    assert may_meet(other, one) is meet


@pytest.mark.parametrize(
    ("row", "settled"),
    [
        ([LETTERS], True),
        ([LETTERS, "-"], True),
        ([LETTERS, "a"], False),
        ([LETTERS, LETTERS], False),
        ([LETTERS, Hole(PLAIN, "/")], True),
        ([LETTERS, Hole(PLAIN, "/"), Hole(PLAIN, ".")], True),
        ([LETTERS, Hole(PLAIN, "/"), "/"], False),
        ([Hole(PLAIN, "/"), Hole(PLAIN, "/")], False),
        ([LETTERS, Hole(PLAIN, "/"), "a"], False),
        ([LETTERS, Hole(frozenset("/"), "", 1), "a"], True),
        ([LETTERS, Hole(frozenset("/"), "", 0), "a"], False),
        ([LETTERS, Hole(frozenset("-"), "/", 1), "a"], False),
        ([Hole(PLAIN, "-"), "-"], False),
    ],
)
def test_row_is_settled_if_each_hole_ends_before_what_it_cannot_hold(row: list[Atom], settled: bool) -> None:
    assert is_settled(row) is settled


@pytest.mark.parametrize("settle", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_bound_of_a_hole_counts_characters_and_not_bytes(settle: bool, count: int) -> None:
    matcher = Matcher([Hole(SEGMENT, "", 1, count)], settle=settle)
    for token in TOKENS:
        if token != "/":
            assert list(matcher.fit(token * count) or ()) == [token * count]
            assert matcher.fit(token * (count + 1)) is None
    assert matcher.fit("") is None
    assert matcher.fit("/") is None


@pytest.mark.parametrize("settle", [True, False])
def test_prefix_and_suffix_may_not_share_a_character(settle: bool) -> None:
    for row in (["ab", Hole(PLAIN), "ba"], ["ab", Hole(SEGMENT), "ba"]):
        matcher = Matcher(row, settle=settle)
        assert matcher.fit("aba") is None
        assert list(matcher.fit("abba") or ()) == [""]
        assert list(matcher.fit("abxba") or ()) == ["x"]
        assert matcher.fit("xabba") is None
        assert matcher.fit("abbax") is None
