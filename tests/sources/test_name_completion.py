"""Names are completed by their beginning first, then by what they contain, up to a hundred."""

from __future__ import annotations

from wharfinger.sources.name_completion import MAX_COMPLETIONS, complete_name


def test_names_with_the_prefix_come_first_in_any_case() -> None:
    assert complete_name(["whale", "Hull", "hulk", "ahull"], "hul") == ["Hull", "hulk", "ahull"]


def test_no_more_than_a_hundred_names_are_returned() -> None:
    names = [f"a{number}" for number in range(MAX_COMPLETIONS + 1)]
    assert complete_name(names, "a") == names[:MAX_COMPLETIONS]
    assert len(complete_name([f"b{name}" for name in names], "a")) == MAX_COMPLETIONS
    assert complete_name(["xa", *names], "a") == names[:MAX_COMPLETIONS]
