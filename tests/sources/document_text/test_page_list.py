"""Pages are kept within bounds, without what no one can show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.sources.document_text.page_list import PageList, TooMuchText, plain


def test_pages_fit_up_to_the_bound_and_the_rest_is_left_out() -> None:
    pages = PageList(max_pages=2)
    pages.add("one")
    pages.add("two")
    assert (pages.pages, pages.cut) == (["one", "two"], "")
    with pytest.raises(TooMuchText):
        pages.add("three")
    assert (pages.pages, pages.cut) == (["one", "two"], "Only the first 2 pages were read.")


def test_characters_fit_up_to_the_bound_and_the_rest_is_left_out() -> None:
    pages = PageList(max_characters=6)
    pages.add("one")
    pages.add("two")
    assert pages.cut == ""
    with pytest.raises(TooMuchText):
        pages.add("x")
    assert pages.pages == ["one", "two", ""]
    pages = PageList(max_characters=5)
    with pytest.raises(TooMuchText):
        pages.add("longer")
    assert (pages.pages, pages.cut) == (
        ["longe"],
        "The text ends within page 1, since it is too long to be read whole.",
    )


@given(st.text(st.characters(), max_size=200))
def test_a_text_has_one_kind_of_line_end_and_no_control_characters(text: str) -> None:
    shown = plain(text)
    assert plain(shown) == shown
    assert not any(ord(character) < 32 and character not in "\t\n" for character in shown)
    assert shown.splitlines() == (shown.split("\n") if shown else [])
    shown.encode()


def test_text_of_all_scripts_stays_as_it_is() -> None:
    text = "é e\u0301 中文 עברית 🚢\n\tindented | table"
    assert plain(text) == text
    assert plain("a\r\nb\rc\u2028d\x0be \n\n\n\n\nf\0\ud800") == "a\nb\nc\nd\ne\n\n\nf"


def test_spaces_are_removed_at_the_ends_of_lines_in_linear_time() -> None:
    """In quadratic time, this number of spaces would take hours."""
    spaces = " \t" * 1_000_000
    assert plain(f"a{spaces}b{spaces}\nc \t\n") == f"a{spaces}b\nc"
