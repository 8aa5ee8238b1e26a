"""Glob patterns: their syntax, and matching in linear time even with hostile patterns."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wharfinger.content.globs import _StepMatcher, _steps_of, compile_glob

HOSTILE_PATTERNS = [
    "*a" * 13 + "b",
    "**/a/" * 13 + "b",
    "*?" * 13 + "b",
    "[a-z]*" * 13 + "b",
    "*a*" + "?" * 30 + "*b",
    "a*" * 299 + "b",
]


@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("pattern", HOSTILE_PATTERNS)
@pytest.mark.parametrize("repetitions", [1, 10, 100])
def test_hostile_patterns_are_matched_in_linear_time(pattern: str, path: bool, repetitions: int) -> None:
    """The regular expression of the first pattern needs hours."""
    matches = compile_glob(pattern, path=path)
    text = ("a" * 200 + "/a") * repetitions
    start = time.process_time()
    assert not matches(text)
    assert time.process_time() - start < 0.02 * repetitions + 0.5


@settings(max_examples=400, deadline=None)
@given(
    pattern=st.text("ab/*?", max_size=12) | st.lists(st.sampled_from(["*", "a", "[ab]", "[!a]", "/"])).map("".join),
    text=st.text("ab/", max_size=12),
)
def test_a_pattern_for_names_matches_as_in_fnmatch(pattern: str, text: str) -> None:
    assert compile_glob(pattern, path=False)(text) is fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
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
def test_a_pattern_for_paths_matches_whole_paths(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = compile_glob(pattern, path=True)
    assert [text for text in (*matching, *others) if matches(text)] == matching


@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("template", ["{}", "*/{}/*"])
@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
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
    path: bool, template: str, pattern: str, matching: str, others: str
) -> None:
    matches = compile_glob(template.format(pattern), path=path)
    assert [c for c in matching if not matches(template.format(c).replace("*", "x"))] == []
    assert [c for c in others if matches(template.format(c).replace("*", "x"))] == []


@pytest.mark.parametrize(
    ("name", "matching", "others"),
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
def test_every_posix_class_matches_its_characters(name: str, matching: str, others: str) -> None:
    matches = compile_glob(f"[[:{name}:]]", path=False)
    assert [c for c in matching + others if matches(c)] == list(matching)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
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
def test_stars_in_paths_match_as_in_git(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = compile_glob(pattern, path=True)
    assert [text for text in (*matching, *others) if matches(text)] == matching
    longer = compile_glob(f"*{pattern}" if pattern[:1] not in ("*", "/") else pattern, path=True)
    assert [text for text in matching if not longer(text)] == []


@settings(max_examples=200, deadline=None)
@given(
    pattern=st.lists(st.sampled_from(["**/", "*", "?", "a", "b", "[ab]", "/"]), max_size=6).map("".join),
    text=st.text("ab/", max_size=8),
)
def test_a_pattern_matches_like_the_equivalent_regular_expression(pattern: str, text: str) -> None:
    """The patterns are matched by the step matcher or by a regular expression, depending on their stars."""
    source, rest, at_edge = "", pattern, True
    while rest:
        if at_edge and (match := re.match(r"\*\*+/", rest)):
            source += "(?:.*/)?"
            rest = rest[match.end() :]
            continue
        if at_edge and re.fullmatch(r"\*\*+", rest):
            source += ".*"
            break
        if match := re.match(r"\*+", rest):
            source += "[^/]*"
        elif match := re.match(r"\?", rest):
            source += "[^/]"
        elif match := re.match(r"\[ab\]|.", rest):
            source += match[0]
        assert match is not None
        rest = rest[match.end() :]
        at_edge = match[0] == "/"
    assert compile_glob(pattern, path=True)(text) is (re.fullmatch(source, text) is not None)


class CountingStr(str):
    """A string that counts how many of its characters are read."""

    __slots__ = ("read_characters",)

    def __iter__(self) -> Iterator[str]:
        self.read_characters = 0
        for character in str.__iter__(self):
            self.read_characters += 1
            yield character


@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("pattern", HOSTILE_PATTERNS)
def test_a_pattern_of_several_stars_reads_each_character_once(pattern: str, path: bool) -> None:
    """The count of characters is exact, unlike a measurement of time."""
    steps = compile_glob(pattern, path=path).__self__  # type: ignore[attr-defined]
    assert isinstance(steps, _StepMatcher)
    text = CountingStr("a" * 5_000)
    assert not steps.matches(text)
    assert text.read_characters <= 5_000
    assert len(steps._fits_by_character) == 1  # the matching steps are computed once per distinct character


@given(pattern=st.text("ab/*?[]!-\\", max_size=30), path=st.booleans())
def test_only_a_pattern_with_at_most_one_repetition_is_a_regular_expression(pattern: str, path: bool) -> None:
    """A regular expression tries one repetition once per position, but combines the positions of several."""
    parts = _steps_of(pattern, path)
    if parts is None:
        return
    several = sum(part.repeated for part in parts) > 1
    assert isinstance(getattr(compile_glob(pattern, path=path), "__self__", None), _StepMatcher) is several
