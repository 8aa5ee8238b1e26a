"""Names are completed by their beginning first, then by what they contain, up to a hundred."""

from __future__ import annotations

from wharfinger.sources.name_completion import MAX_COMPLETIONS, begins_then_holds


def test_names_that_begin_so_come_first_in_any_case() -> None:
    assert begins_then_holds(["whale", "Hull", "hulk", "ahull"], "hul") == ["Hull", "hulk", "ahull"]


def test_no_more_than_a_hundred_names_are_returned() -> None:
    names = [f"a{number}" for number in range(MAX_COMPLETIONS + 1)]
    assert begins_then_holds(names, "a") == names[:MAX_COMPLETIONS]
    assert len(begins_then_holds([f"b{name}" for name in names], "a")) == MAX_COMPLETIONS
    assert begins_then_holds(["xa", *names], "a") == names[:MAX_COMPLETIONS]
