"""Patterns, whoever wrote them, are matched in time linear in the text."""

from __future__ import annotations

import fnmatch
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wharfinger.content.globs import compile_glob

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
def test_no_pattern_takes_more_than_linear_time(pattern: str, path: bool, times: int) -> None:
    """A regular expression needs hours for the first of these, at once."""
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
def test_a_pattern_of_no_path_means_what_fnmatch_says(pattern: str, text: str) -> None:
    assert compile_glob(pattern, path=False)(text) is fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "fits", "not_so"),
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
def test_patterns_of_paths(pattern: str, fits: list[str], not_so: list[str]) -> None:
    matches = compile_glob(pattern, path=True)
    assert [text for text in (*fits, *not_so) if matches(text)] == fits
