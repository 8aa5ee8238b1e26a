"""Paths are converted to URIs and back without loss, and manipulated paths are refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.sources.folder.file_uri import (
    MAX_CACHED_CHARACTERS,
    MAX_PATH_CHARACTERS,
    UnreadableUri,
    join_parts,
    quote,
    split_path,
    unquote,
)

NAMES = st.binary(min_size=1, max_size=30).filter(
    lambda raw: b"/" not in raw and b"\0" not in raw and raw not in (b".", b"..")
)


@given(st.lists(NAMES, min_size=1, max_size=5))
def test_every_path_survives_the_round_trip_through_a_uri(raw: list[bytes]) -> None:
    parts = tuple(os.fsdecode(name) for name in raw)
    path = join_parts(parts)
    assert path.isascii()
    assert split_path(path) == (parts, False)
    assert [os.fsencode(part) for part in split_path(path)[0]] == raw


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("guide.md", "guide.md"),
        ("a b.txt", "a%20b.txt"),
        ("100%.txt", "100%25.txt"),
        ("what?#.md", "what%3F%23.md"),
        ("é.txt", "%C3%A9.txt"),
        ("{x}.txt", "%7Bx%7D.txt"),
        ("a+b(1)@c.txt", "a+b(1)@c.txt"),
        (os.fsdecode(b"\xff"), "%FF"),
    ],
)
def test_names_are_percent_encoded_as_in_rfc_3986(name: str, encoded: str) -> None:
    assert quote(name) == encoded
    assert unquote(encoded) == name


@pytest.mark.parametrize("path", ["", "/"])
def test_an_empty_path_is_the_root(path: str) -> None:
    assert split_path(path)[0] == ()


def test_a_trailing_slash_is_reported() -> None:
    assert split_path("a/b/") == (("a", "b"), True)


def test_unescaped_and_escaped_letters_are_equal() -> None:
    assert split_path("é/%C3%A9") == (("é", "é"), False)


def test_escapes_are_decoded_once() -> None:
    assert split_path("%252e%252e") == (("%2e%2e",), False)


@pytest.mark.parametrize(
    "path",
    [
        "..", ".", "a/../b", "%2e%2e/x", "%2E./x", ".%2e", "a//b", "//", "a%2Fb", "a%2fb", "a%00b", "\0", "%", "%4",
        "%zz", "a%", "a?b", "a#b", "\ud800", "x" * (MAX_PATH_CHARACTERS + 1),
    ],
)  # fmt: skip
def test_an_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(UnreadableUri):
        split_path(path)


def test_the_parts_of_a_long_path_are_not_cached() -> None:
    short, long = "k" * MAX_CACHED_CHARACTERS, "l" * (MAX_CACHED_CHARACTERS + 1)
    assert split_path(short) == ((short,), False)
    assert split_path(short)[0] is split_path(short)[0]
    assert split_path(long) == ((long,), False)
    assert split_path(long)[0] is not split_path(long)[0]
