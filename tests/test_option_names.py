"""Options that are not declared are refused, with a suggestion."""

from __future__ import annotations

from typing import TypedDict

import pytest

from wharfinger.option_names import check_option_names


class Base(TypedDict, total=False):
    colour: str


class Options(Base, total=False):
    size: int
    style: str


def test_declared_and_inherited_names_pass() -> None:
    check_option_names("A sail", [], Options)
    check_option_names("A sail", ["size", "colour"], Options)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["size", "stile"], "A sail has no option 'stile': did you mean 'style'?"),
        (["color", "sise"], "A sail has no option 'color': did you mean 'colour'?"),
        (["qqq"], "A sail has no option 'qqq': there are colour, size, style."),
    ],
)
def test_the_first_unknown_name_is_refused_with_the_nearest_one_or_all(names: list[str], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        check_option_names("A sail", names, Options)
    assert str(caught.value) == message
