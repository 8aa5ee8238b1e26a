"""Patterns, also hostile ones, are matched in time linear in the text."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wharfinger.content.globs import _StepMatcher, _steps_of, compile_glob

HOSTILE = [
    "*a" * 13 + "b",
    "**/a/" * 13 + "b",
    "*?" * 13 + "b",
    "[a-z]*" * 13 + "b",
    "*a*" + "?" * 30 + "*b",
    "a*" * 299 + "b",
]


@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("pattern", HOSTILE)
@pytest.mark.parametrize("times", [1, 10, 100])
def test_hostile_patterns_are_matched_in_linear_time(pattern: str, path: bool, times: int) -> None:
    """A regular expression needs hours for the first of these."""
    matches = compile_glob(pattern, path=path)
    text = ("a" * 200 + "/a") * times
    began = time.process_time()
    assert not matches(text)
    assert time.process_time() - began < 0.02 * times + 0.5


@settings(max_examples=400, deadline=None)
@given(
    pattern=st.text("ab/*?", max_size=12) | st.lists(st.sampled_from(["*", "a", "[ab]", "[!a]", "/"])).map("".join),
    text=st.text("ab/", max_size=12),
)
def test_a_pattern_that_is_not_for_paths_matches_as_in_fnmatch(pattern: str, text: str) -> None:
    assert compile_glob(pattern, path=False)(text) is fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("*.md", ["a.md", ".md"], ["a/b.md", "a.mdx"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["xa", "x/ya"]),
        ("a/**", ["a/b", "a/b/c", "a/"], ["a", "ab"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("a/**/b*/**/c*", ["a/b/c", "a/x/bb/y/z/cc"], ["a/c", "a/xb/c"]),
        ("a**b*", ["ab", "axxbc"], ["a/b", "ax/b"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("[a", [], ["[a", "a"]),
        ("a\\", [], ["a\\", "a"]),
    ],
)
def test_a_pattern_of_paths_matches_whole_paths(pattern: str, fits: list[str], others: list[str]) -> None:
    matches = compile_glob(pattern, path=True)
    assert [text for text in (*fits, *others) if matches(text)] == fits


@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("around", ["{}", "*/{}/*"])
@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("[abc]", "abc", "d[]"),
        ("[a-c]", "abc", "d-"),
        ("[a-a]", "a", "b-"),
        ("[c-a]", "c", "ab-"),
        ("[!c-a]", "abd-", "c"),
        ("[!a-c]", "d-!", "abc"),
        ("[^a-c]", "d-^", "abc"),
        ("[a!]", "a!", "b"),
        ("[]a]", "]a", "b["),
        ("[!]a]", "b[", "]a"),
        ("[a-]", "a-", "b]"),
        ("[-a]", "-a", "b"),
        ("[--0]", "-.0", "1,"),
        ("[a-c-e]", "abc-e", "d"),
        ("[a-c-]", "abc-", "d"),
        ("[+-\\-]", "+,-", "*."),
        ("[\\]]", "]", "\\["),
        ("[\\a]", "a", "\\b"),
        ("[a\\-c]", "a-c", "b\\"),
        ("[\\\\]", "\\", "a"),
        ("[a-\\c]", "abc", "d\\"),
        ("[[]", "[", "a]"),
        ("[[a]", "[a", "b]"),
        ("[[-a]", "[\\]^_`a", "bZ-"),
        ("[[:digit:]]", "059", "a:["),
        ("[[:digit:]a]", "0a", "b:d"),
        ("[![:digit:]]", "ab:", "09"),
        ("[[:digit:]-z]", "0-z", "ay"),
        ("[x[:digit:]]", "x0", "y:"),
        ("[[:upper:][:digit:]]", "AZ0", "a"),
        ("[[:d]", "[:d", "e"),
        ("[[:]", "[:", "]a"),
        ("[[:]-a]", "", ""),
        ("[[:-a]", "[:_a;", "b9"),
        ("[a.+^$]", "a.+^$", "b"),
        ("[a", "", "a["),
        ("[", "", "[a"),
        ("[]", "", "[]"),
        ("[!", "", "!a"),
        ("[!]", "", "!]a"),
        ("[a-", "", "a-"),
        ("[a-\\", "", "a-\\"),
        ("[\\", "", "\\"),
        ("[\\]", "", "\\]"),
        ("[[:digit:]", "", "0"),
        ("[[:digit:", "", "0:"),
        ("[[:nothing:]]", "", "n:"),
        ("[[:", "", "[:"),
        ("\\[", "[", "\\a"),
        ("\\a", "a", "\\"),
        ("\\\\", "\\", "a"),
        ("?", "ab*?", ""),
        (".", ".", "a"),
    ],
)
def test_a_character_class_matches_its_characters(
    path: bool, around: str, pattern: str, fits: str, others: str
) -> None:
    matches = compile_glob(around.format(pattern), path=path)
    assert [c for c in fits if not matches(around.format(c).replace("*", "x"))] == []
    assert [c for c in others if matches(around.format(c).replace("*", "x"))] == []


@pytest.mark.parametrize(
    ("name", "fits", "others"),
    [
        ("alnum", "09azAZ", "-_ ["),
        ("alpha", "azAZ", "09_"),
        ("blank", " \t", "\na"),
        ("cntrl", "\x00\x1f\x7f", " a~"),
        ("digit", "09", "a/:"),
        ("graph", "!~a", " \x7f"),
        ("lower", "az", "AZ0`{"),
        ("print", " !~a", "\x1f\x7f"),
        ("punct", "!-:@[]`{~\\", "a0Z "),
        ("space", " \t\n\r", "a"),
        ("upper", "AZ", "az@["),
        ("xdigit", "09afAF", "gG"),
    ],
)
def test_every_posix_class_matches_its_characters(name: str, fits: str, others: str) -> None:
    matches = compile_glob(f"[[:{name}:]]", path=False)
    assert [c for c in fits + others if matches(c)] == list(fits)


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("", [""], ["a"]),
        ("?", ["a"], ["/", "", "ab"]),
        ("[!a]", ["b"], ["/", "a"]),
        ("[/]", [], ["/"]),
        ("[.-0]", [".", "0"], ["/"]),
        ("*", ["", "a", "\n"], ["/", "a/b"]),
        ("**", ["", "a", "a/b"], []),
        ("***", ["", "a/b"], []),
        ("**/", ["", "a/", "a/b/"], ["a"]),
        ("**/*", ["a", "a/b"], []),
        ("**/**/a", ["a", "x/a", "x/y/a"], ["xa"]),
        ("**/a/**/**/b", ["a/b", "x/a/y/z/b"], ["ab", "a/xb"]),
        ("/**/a", ["/a", "/x/a"], ["a", "x/a", "//"]),
        ("x**/a", ["x/a", "xy/a"], ["x/y/a", "xa"]),
        ("**x/a", ["x/a", "yx/a"], ["y/x/a"]),
        ("**\\/a", ["x/a", "x/y/a", "/a"], ["a"]),
        ("**\\a", ["a", "xa"], ["x/a"]),
        ("a/**\\/b", ["a//b", "a/x/b"], ["a/b"]),
        ("*a*", ["a", "xax"], ["x", "/a"]),
        ("*a*b", ["ab", "xaxb"], ["abx", "a/b"]),
        ("**/*a", ["a", "x/ya"], ["x/b"]),
        ("a/**/*", ["a/b", "a/b/c"], ["a", "b/a"]),
        ("é*ß?", ["éßx", "éxxßy"], ["éß", "é/ßx"]),
    ],
)
def test_stars_in_paths_match_as_in_git(pattern: str, fits: list[str], others: list[str]) -> None:
    matches = compile_glob(pattern, path=True)
    assert [text for text in (*fits, *others) if matches(text)] == fits
    several = compile_glob(f"*{pattern}" if pattern[:1] not in ("*", "/") else pattern, path=True)
    assert [text for text in fits if not several(text)] == []


@settings(max_examples=200, deadline=None)
@given(
    pattern=st.lists(st.sampled_from(["**/", "*", "?", "a", "b", "[ab]", "/"]), max_size=6).map("".join),
    text=st.text("ab/", max_size=8),
)
def test_a_pattern_matches_as_the_regular_expression_of_its_parts(pattern: str, text: str) -> None:
    """With both matchers: step by step, and by one regular expression."""
    source, rest, at_edge = "", pattern, True
    while rest:
        if at_edge and (found := re.match(r"\*\*+/", rest)):
            source += "(?:.*/)?"
            rest = rest[found.end() :]
            continue
        if at_edge and re.fullmatch(r"\*\*+", rest):
            source += ".*"
            break
        if found := re.match(r"\*+", rest):
            source += "[^/]*"
        elif found := re.match(r"\?", rest):
            source += "[^/]"
        elif found := re.match(r"\[ab\]|.", rest):
            source += found[0]
        assert found is not None
        rest = rest[found.end() :]
        at_edge = found[0] == "/"
    assert compile_glob(pattern, path=True)(text) is (re.fullmatch(source, text) is not None)


class Counted(str):
    """A text that counts the characters that are read."""

    __slots__ = ("read_characters",)

    def __iter__(self) -> Iterator[str]:
        self.read_characters = 0
        for character in str.__iter__(self):
            self.read_characters += 1
            yield character


@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_of_several_stars_reads_each_character_once(pattern: str, path: bool) -> None:
    """It counts characters instead of time."""
    steps = compile_glob(pattern, path=path).__self__  # type: ignore[attr-defined]
    assert isinstance(steps, _StepMatcher)
    text = Counted("a" * 5_000)
    assert not steps.matches(text)
    assert text.read_characters <= 5_000
    assert len(steps._known) == 1  # the steps that fit a character are found once for each character


@given(pattern=st.text("ab/*?[]!-\\", max_size=30), path=st.booleans())
def test_only_a_pattern_with_at_most_one_repetition_is_a_regular_expression(pattern: str, path: bool) -> None:
    """One repetition is tried at most once at each position of the text. Two would multiply."""
    parts = _steps_of(pattern, path)
    if parts is None:
        return
    several = sum(part.repeated for part in parts) > 1
    assert isinstance(getattr(compile_glob(pattern, path=path), "__self__", None), _StepMatcher) is several
