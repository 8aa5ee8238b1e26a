"""Descriptions of parameters in docstrings of three styles."""

from __future__ import annotations

import functools

import pytest

from wharfinger.server.signature.docstrings import description_of, parse_docstring


def parse(text: str | None) -> tuple[str, dict[str, str]]:
    def function() -> None: ...

    function.__doc__ = text
    return parse_docstring(function)


@pytest.mark.parametrize(
    ("text", "descriptions"),
    [
        ("Args:\n    a: One.\n    b: Two.", {"a": "One.", "b": "Two."}),
        ("Args:\n    a (int): One,\n        and more.\n    *b: Two.", {"a": "One, and more.", "b": "Two."}),
        ("Args:\n    a:\n        Below.", {"a": "Below."}),
        ("Args:\n\n    a: One.\n\n    b: Two.", {"a": "One.", "b": "Two."}),
        ("Args:\n    a: One.\nReturns:\n    c: no.", {"a": "One."}),
        ("Args:\n    a: One.\n\nMore text: of it.", {"a": "One."}),
        ("Args:\n    no colon\n    a: One.", {"a": "One."}),
        ("Args:\n    a: One.\n        b: not one.", {"a": "One. b: not one."}),
        ("Raises:\n    a: no.\n\nArgs:\n    a: One.", {"a": "One."}),
        ("Returns:\n    x\nArgs:\n    a: One.", {"a": "One."}),
        ("Raises:\nArgs:\n    a: One.", {"a": "One."}),
        ("Keyword Args :\n    a: One.", {"a": "One."}),
        ("Keyword Arguments:\n    a: One.", {"a": "One."}),
        ("Args:\n    a (tuple(int, int)): One (x): y.\n    b: Two.", {"a": "One (x): y.", "b": "Two."}),
        ("Args:", {}),
    ],
)
def test_google_sections_are_parsed_to_their_end(text: str, descriptions: dict[str, str]) -> None:
    assert parse(f"Do it.\n\n{text}") == ("Do it.", descriptions)


@pytest.mark.parametrize("text", ["Args: text\n    a: One.", "Others:\n    a: One.", "Args"])
def test_a_line_that_does_not_begin_a_section_is_text(text: str) -> None:
    assert parse(f"Do it.\n\n{text}") == (f"Do it.\n\n{text}", {})


@pytest.mark.parametrize(
    ("text", "descriptions"),
    [
        ("Parameters\n----------\na : int\n    One,\n    and more.\nb\n    Two.", {"a": "One, and more.", "b": "Two."}),
        ("Parameters\n---\na\n    One.", {"a": "One."}),
        ("Parameters\n---\na, b : int\n    Both.", {"a": "Both.", "b": "Both."}),
        ("Parameters\n---\n*a, **b\n    Both.", {"a": "Both.", "b": "Both."}),
        ("Parameters:\n---\na : int\n    One.", {"a": "One."}),
        ("Parameters\n---\na\n    One.\nReturns\n-------\nb\n    No.", {"a": "One."}),
        ("Parameters\n---\na\n\n    One.\n\n*rest\n    Two.", {"a": "One.", "rest": "Two."}),
        ("Parameters\n---\na\n    One.\n(odd) line\n    No.", {"a": "One."}),
        ("Parameters\n---\nx\n    X.\na\n    One.", {"x": "X.", "a": "One."}),
        ("Parameters\n---\n", {}),
        ("Returns\n-------\nb\n    No.\n\nParameters\n----------\na\n    One.", {"a": "One."}),
    ],
)
def test_numpy_sections_are_parsed_to_their_end(text: str, descriptions: dict[str, str]) -> None:
    assert parse(f"Do it.\n\n{text}") == ("Do it.", descriptions)


@pytest.mark.parametrize("line", ["--", "-", "", "- -", "-=-", "==="])
def test_a_numpy_section_needs_at_least_three_dashes_below_its_name(line: str) -> None:
    text = f"Do it.\n\nParameters\n{line}\na\n    One."
    assert parse(text) == (text, {})


@pytest.mark.parametrize(
    ("text", "descriptions"),
    [
        (":param a: One.\n:param int b: Two.", {"a": "One.", "b": "Two."}),
        (":param a: One,\n    and more.\n:returns: no.", {"a": "One, and more."}),
        (":param a:\n    Below.\n    More.", {"a": "Below. More."}),
        (":type a: int\n:param a: One.", {"a": "One."}),
        (":raises ValueError: no.\n    more: of it.\n:key a: One.", {"a": "One."}),
        (":param a: One.\n x\nb: not one.", {"a": "One. x"}),
        (":param a: One.\n\n  b: not one.", {"a": "One."}),
    ],
)
def test_sphinx_fields_are_parsed_to_their_end(text: str, descriptions: dict[str, str]) -> None:
    assert parse(f"Do it.\n\n{text}") == ("Do it.", descriptions)


def test_a_docstring_without_sections_is_the_summary_and_a_partial_has_that_of_its_function() -> None:
    def function(a: int) -> None:
        """Do it: now.

        More.
        """

    class Object:
        """Of a class."""

        def __call__(self) -> None: ...

    assert parse_docstring(functools.partial(functools.partial(function), 1)) == ("Do it: now.\n\nMore.", {})
    assert description_of(function) == "Do it: now.\n\nMore."
    assert parse(None) == parse("") == ("", {})
    assert description_of(Object()) == "Of a class."
    assert parse("Do it.\n\nNotes") == ("Do it.\n\nNotes", {})
