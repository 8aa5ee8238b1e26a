"""Rows of literals and placeholders against a search that tries every fit, and the bounds of a placeholder."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

import pytest

from wharfinger.protocol.uri.matcher import ESCAPED, Atom, Matcher, Placeholder, UnclearBoundary, may_meet

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%")
SEGMENT = PLAIN | frozenset(".-")
PATH = SEGMENT | {"/"}
NAME = Placeholder(SEGMENT, "", 1)
TOKENS = ["a", "b", "/", ".", "-", "2", "%2F", "%C3%BC", "%E2%82%AC", "%F0%9F%98%80"]


def every_fit(atoms: Sequence[Atom], tokens: list[str]) -> Iterator[list[str | None]]:
    """Yield all texts that the placeholders may have. A token is a character, escaped or not."""
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
        if atom.min_count <= count and (not atom.max_count or count <= atom.max_count):
            for fit in every_fit(rest, tokens[count:]):
                yield ["".join(tokens[:count]), *fit]


def best_fit(atoms: Sequence[Atom], tokens: list[str]) -> list[str | None] | None:
    """Return the fit with every optional placeholder if there is one, and of those the one with the longest values."""
    fits = list(every_fit(atoms, tokens))
    whole = [fit for fit in fits if None not in fit]
    return max(whole or fits, key=lambda fit: [-1 if held is None else len(held) for held in fit], default=None)


def some_row(choose: random.Random) -> list[Atom]:
    row: list[Atom] = []
    for _ in range(choose.randint(0, 4)):
        if choose.random() < 0.35 and (not row or isinstance(row[-1], Placeholder)):
            row.append(choose.choice(["a", "b", "/", ".", "-", "a/", "/a", "2", "%2F", "%C3%BC", "2F", "a/a", "aa"]))
        else:
            chars = choose.choice([PLAIN, SEGMENT, PATH, PLAIN | {"-"}, PLAIN | {"/"}])
            opener = choose.choice(["", "", "/", ".", "-/"])
            row.append(Placeholder(chars, opener, choose.choice([0, 1]), choose.choice([0, 0, 1, 2, 3])))
    return row


def some_text(choose: random.Random, row: list[Atom]) -> str:
    """Return a text that is likely to match."""
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


def split(row: Sequence[Atom], text: str) -> list[str] | None:
    """Return the text as tokens; None if a literal cuts an escape."""
    if re.search("%(?!2F|C3%BC|E2%82%AC|F0%9F%98%80)", text) is not None:
        return None
    return re.findall(f"{ESCAPED}|.", text)


def holds_its_separator(row: Sequence[Atom], fit: Sequence[str | None]) -> bool:
    """Return whether a placeholder contains the separator before it, which it must not: the last separator counts."""
    contents = iter(fit)
    separators: Sequence[str] = ()
    for index, atom in enumerate(row):
        if isinstance(atom, str):
            separators = [atom] if index else ()
            continue
        content = next(contents) or ""
        if any(separator in content for separator in ((atom.opener if index else "") or separators)):
            return True
        separators = ()
    return False


def test_row_fits_in_one_of_the_ways_to_fit_it() -> None:
    choose = random.Random(6570)
    fitted = refused = alike = 0
    for _ in range(6000):
        row = some_row(choose)
        try:
            matcher = Matcher(row)
        except UnclearBoundary:
            refused += 1
            continue
        text = some_text(choose, row)
        tokens = split(row, text)
        if tokens is None:
            continue
        fits = list(every_fit(row, tokens))
        found = matcher.fit(text)
        if found is not None:
            assert list(found) in fits, (row, text)
            alike += list(found) == best_fit(row, tokens)
        else:
            assert all(holds_its_separator(row, fit) for fit in fits), (row, text, fits)
        fitted += found is not None
    assert refused > 1000
    assert fitted > 500
    assert alike > 0.9 * fitted


@pytest.mark.parametrize(
    ("row", "text", "held"),
    [
        ([NAME, ".", NAME], "a.b.c", ["a.b", "c"]),
        ([NAME, ".", NAME], "a", None),
        ([NAME, ".", NAME], ".a", None),
        ([NAME, ".", NAME], "a.", None),
        ([NAME, "-", NAME, "-", NAME], "a-b-c-d", ["a-b", "c", "d"]),
        ([NAME, "--", NAME], "a--b--c", ["a--b", "c"]),
        ([NAME, "2F", NAME], "a%2Fb2Fc", ["a%2Fb", "c"]),
        ([NAME, ".", NAME, "/", NAME], "a.b.c/d.e", ["a.b", "c", "d.e"]),
        ([NAME, "./", NAME], "a./b", ["a", "b"]),
        ([Placeholder(PATH), "/", NAME], "a/b/c", ["a/b", "c"]),
        ([Placeholder(PATH), "/", NAME], "/c", ["", "c"]),
        ([NAME, Placeholder(SEGMENT, ".")], "a.b.c", ["a.b", "c"]),
        ([NAME, Placeholder(SEGMENT, ".")], "a", ["a", None]),
        ([NAME, Placeholder(SEGMENT, ".")], "a.", ["a", ""]),
        ([NAME, Placeholder(SEGMENT, "."), Placeholder(PLAIN, "/")], "a.b/c", ["a", "b", "c"]),
        ([Placeholder(PATH, "/"), Placeholder(SEGMENT, "/")], "/a/b/c", ["a/b", "c"]),
        ([Placeholder(PATH, "/"), Placeholder(SEGMENT, "/")], "/a", ["a", None]),
        ([Placeholder(SEGMENT, "/"), Placeholder(SEGMENT, "/")], "/a", ["a", None]),
        ([Placeholder(SEGMENT, "/"), Placeholder(SEGMENT, "/")], "/a/b", ["a", "b"]),
        ([Placeholder(SEGMENT, "/", 0, 1), Placeholder(SEGMENT, "/")], "/ab", [None, "ab"]),
    ],
)
def test_last_separator_counts(row: list[Atom], text: str, held: list[str | None] | None) -> None:
    found = Matcher(row).fit(text)
    assert (None if found is None else list(found)) == held


@pytest.mark.parametrize(
    ("row", "placeholder"),
    [
        ([NAME, NAME], 1),
        (["a", NAME, "/", NAME, NAME], 2),
        ([NAME, "-", Placeholder(PATH)], 1),
        ([Placeholder(SEGMENT, "", 1, 3), ".", NAME], 0),
        ([Placeholder(PLAIN, "/"), "/", NAME], 0),
        ([Placeholder(PATH), "/", NAME, "/", Placeholder(PATH)], 2),
        ([NAME, Placeholder(SEGMENT, "."), "-", NAME], 1),
    ],
)
def test_a_row_with_an_ambiguous_end_of_a_placeholder_is_refused(row: list[Atom], placeholder: int) -> None:
    with pytest.raises(UnclearBoundary) as caught:
        Matcher(row)
    assert caught.value.placeholder == placeholder


def test_rows_that_fit_one_text_meet() -> None:
    choose = random.Random(3986)
    met = 0
    for _ in range(5000):
        one, other = some_row(choose), some_row(choose)
        tokens = split(one, some_text(choose, choose.choice([one, other])))
        if tokens is not None and any(every_fit(one, tokens)) and any(every_fit(other, tokens)):
            assert may_meet(one, other), (one, other, tokens)
            assert may_meet(other, one)
            met += 1
    assert met > 50


LETTERS = Placeholder(PLAIN, "", 1)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (["a"], ["a"], True),
        (["a"], ["b"], False),
        (["a"], ["aa"], False),
        ([], [], True),
        ([], ["a"], False),
        ([], [LETTERS], False),
        ([], [Placeholder(PLAIN)], True),
        ([], [Placeholder(PLAIN, "/", 1)], True),
        (["/"], [Placeholder(PLAIN, "/", 1)], False),
        (["/a"], [Placeholder(PLAIN, "/", 1)], True),
        (["/"], [Placeholder(PLAIN, "/")], True),
        (["//"], [Placeholder(PLAIN, "/")], False),
        (["-a"], [Placeholder(PLAIN, "/")], False),
        (["-a"], [Placeholder(PLAIN, "/-")], True),
        (["a-"], [LETTERS], False),
        ([LETTERS, "-"], [LETTERS, "/"], False),
        ([LETTERS, "-", LETTERS], [Placeholder(SEGMENT, "", 1)], True),
        ([LETTERS, "/", LETTERS], [Placeholder(SEGMENT, "", 1)], False),
        ([LETTERS, "/b"], [LETTERS, "/", LETTERS], True),
        ([LETTERS, "/b/"], [LETTERS, "/", LETTERS], False),
    ],
)
def test_rows_meet_only_if_some_text_fits_both(one: list[Atom], other: list[Atom], meet: bool) -> None:
    assert may_meet(one, other) is meet
    assert may_meet(other, one) is meet


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_bound_of_a_placeholder_counts_characters_and_not_bytes(count: int) -> None:
    matcher = Matcher([Placeholder(SEGMENT, "", 1, count)])
    for token in TOKENS:
        if token != "/":
            assert list(matcher.fit(token * count) or ()) == [token * count]
            assert matcher.fit(token * (count + 1)) is None
    assert matcher.fit("") is None
    assert matcher.fit("/") is None


def test_prefix_and_suffix_may_not_share_a_character() -> None:
    for row in (["ab", Placeholder(PLAIN), "ba"], ["ab", Placeholder(SEGMENT), "ba"]):
        matcher = Matcher(row)
        assert matcher.fit("aba") is None
        assert list(matcher.fit("abba") or ()) == [""]
        assert list(matcher.fit("abxba") or ()) == ["x"]
        assert matcher.fit("xabba") is None
        assert matcher.fit("abbax") is None
