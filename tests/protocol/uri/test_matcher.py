"""The matcher of URI templates, compared with an exhaustive search for all fits, and the bounds of placeholders."""

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


def all_fits(atoms: Sequence[Atom], tokens: list[str]) -> Iterator[list[str | None]]:
    """Yield all values that the placeholders may have. A token is a character, escaped or not."""
    if not atoms:
        if not tokens:
            yield []
        return
    atom, rest = atoms[0], atoms[1:]
    if isinstance(atom, str):
        for count in range(1, len(tokens) + 1):
            if "".join(tokens[:count]) == atom:
                yield from all_fits(rest, tokens[count:])
        return
    if atom.opener:
        for fit in all_fits(rest, tokens):
            yield [None, *fit]
        if not tokens or tokens[0] not in atom.opener:
            return
        tokens = tokens[1:]
    for count in range(len(tokens) + 1):
        if count and not atom.chars.issuperset(tokens[count - 1]):
            return
        if atom.min_count <= count and (not atom.max_count or count <= atom.max_count):
            for fit in all_fits(rest, tokens[count:]):
                yield ["".join(tokens[:count]), *fit]


def best_fit(atoms: Sequence[Atom], tokens: list[str]) -> list[str | None] | None:
    """Return the fit with the longest values, and with every optional placeholder if possible."""
    fits = list(all_fits(atoms, tokens))
    complete = [fit for fit in fits if None not in fit]
    return max(complete or fits, key=lambda fit: [-1 if value is None else len(value) for value in fit], default=None)


def random_row(rng: random.Random) -> list[Atom]:
    row: list[Atom] = []
    for _ in range(rng.randint(0, 4)):
        if rng.random() < 0.35 and (not row or isinstance(row[-1], Placeholder)):
            row.append(rng.choice(["a", "b", "/", ".", "-", "a/", "/a", "2", "%2F", "%C3%BC", "2F", "a/a", "aa"]))
        else:
            chars = rng.choice([PLAIN, SEGMENT, PATH, PLAIN | {"-"}, PLAIN | {"/"}])
            opener = rng.choice(["", "", "/", ".", "-/"])
            row.append(Placeholder(chars, opener, rng.choice([0, 1]), rng.choice([0, 0, 1, 2, 3])))
    return row


def random_text(rng: random.Random, row: list[Atom]) -> str:
    """Return a text that is likely to match."""
    parts: list[str] = []
    for atom in row:
        if isinstance(atom, str):
            parts.append(atom)
            continue
        if atom.opener and rng.random() < 0.7:
            parts.append(rng.choice(atom.opener))
        parts += rng.choices(TOKENS, k=rng.randint(0, 3))
    if rng.random() < 0.2:
        parts.append(rng.choice(TOKENS))
    return "".join(parts)


def tokenize(text: str) -> list[str] | None:
    """Return the tokens of a text, or None if it has an incomplete escape."""
    if re.search("%(?!2F|C3%BC|E2%82%AC|F0%9F%98%80)", text) is not None:
        return None
    return re.findall(f"{ESCAPED}|.", text)


def holds_its_separator(row: Sequence[Atom], fit: Sequence[str | None]) -> bool:
    """Return whether a value contains the separator before it. The matcher never returns such a fit."""
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


def test_the_matcher_returns_one_of_all_fits() -> None:
    rng = random.Random(6570)
    fitted = refused = equal = 0
    for _ in range(6000):
        row = random_row(rng)
        try:
            matcher = Matcher(row)
        except UnclearBoundary:
            refused += 1
            continue
        text = random_text(rng, row)
        tokens = tokenize(text)
        if tokens is None:
            continue
        fits = list(all_fits(row, tokens))
        values = matcher.fit(text)
        if values is not None:
            assert list(values) in fits, (row, text)
            equal += list(values) == best_fit(row, tokens)
        else:
            assert all(holds_its_separator(row, fit) for fit in fits), (row, text, fits)
        fitted += values is not None
    assert refused > 1000
    assert fitted > 500
    assert equal > 0.9 * fitted


@pytest.mark.parametrize(
    ("row", "text", "values"),
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
def test_values_are_split_at_the_last_separator(row: list[Atom], text: str, values: list[str | None] | None) -> None:
    fit = Matcher(row).fit(text)
    assert (None if fit is None else list(fit)) == values


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


def test_rows_that_fit_the_same_text_may_meet() -> None:
    rng = random.Random(3986)
    met = 0
    for _ in range(5000):
        first, second = random_row(rng), random_row(rng)
        tokens = tokenize(random_text(rng, rng.choice([first, second])))
        if tokens is not None and any(all_fits(first, tokens)) and any(all_fits(second, tokens)):
            assert may_meet(first, second), (first, second, tokens)
            assert may_meet(second, first)
            met += 1
    assert met > 50


LETTERS = Placeholder(PLAIN, "", 1)


@pytest.mark.parametrize(
    ("first", "second", "meet"),
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
def test_may_meet_is_true_only_if_a_text_fits_both_rows(first: list[Atom], second: list[Atom], meet: bool) -> None:
    assert may_meet(first, second) is meet
    assert may_meet(second, first) is meet


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
