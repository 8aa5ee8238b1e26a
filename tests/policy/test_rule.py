"""Rules and limits as structs, and the order of the levels."""

from __future__ import annotations

from typing import cast

import pytest

from wharfinger.policy import Limit, Policy, Rule, UnusablePolicy
from wharfinger.policy.rule import ACTIONS, LEVELS, Level, action_and_target
from wharfinger.protocol.principal import Principal

ACTION_BY_LEVEL = {"none": "", "read": "read", "write": "call", "execute": "query", "admin": "inspect"}
"""An action that each level allows and the level below does not."""
ORDERED_LEVELS = list(ACTION_BY_LEVEL)


@pytest.mark.parametrize("held", ORDERED_LEVELS)
@pytest.mark.parametrize("needed", ORDERED_LEVELS)
def test_a_level_allows_its_own_actions_and_those_of_lower_levels(held: str, needed: str) -> None:
    rules = [] if held == "none" else [Rule(who="anyone", level=cast("Level", held))]
    access = Policy(allow=rules).access(Principal(subject="ann"))
    action = ACTION_BY_LEVEL[needed]
    target = {"call": "tool:x", "prompt": "prompt:x"}.get(action, "db://x")
    allowed = not action or access.allows(action, target)
    assert allowed == (ORDERED_LEVELS.index(needed) <= ORDERED_LEVELS.index(held))


def test_each_level_contains_the_levels_below_it() -> None:
    assert LEVELS["read"] < LEVELS["write"] < LEVELS["execute"] < LEVELS["admin"] == ACTIONS


def test_rule_without_do_applies_to_all_actions() -> None:
    assert Rule(who="anyone").actions() == ACTIONS


@pytest.mark.parametrize("word", ["list", "complete", "search", "watch"])
def test_list_complete_search_and_watch_count_as_read(word: str) -> None:
    assert Rule(who="anyone", do=word).actions() == {"read"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100/min", (100, 60.0)),
        ("1/s", (1, 1.0)),
        (" 5 / hour ", (5, 3600.0)),
        ("7/day", (7, 86_400.0)),
    ],
)
def test_rates_of_calls_are_parsed(text: str, expected: tuple[int, float]) -> None:
    assert Limit(calls=text).rate("calls") == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("50MiB/min", (50 * 1024**2, 60.0)), ("1 KiB/s", (1024, 1.0)), ("9/h", (9, 3600.0))]
)
def test_rates_of_bytes_are_parsed(text: str, expected: tuple[int, float]) -> None:
    assert Limit(bytes=text).rate("bytes") == expected


@pytest.mark.parametrize("text", ["", "100", "100/", "/min", "0/min", "-1/min", "1.5/min", "1e3/s", "9MiB/s", "1/week"])
def test_bad_rate_of_calls_names_the_limit_and_an_example(text: str) -> None:
    with pytest.raises(UnusablePolicy, match=r"limit 1: .*'100/min'"):
        Policy(limits=[Limit(calls=text)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read file:///a", ("read", "file:///a")),
        ("  read   file:///a ", ("read", "file:///a")),
        ("list file:///a", ("read", "file:///a")),
        ("call tool:x", ("call", "tool:x")),
        ("call x", ("call", "tool:x")),
        ("prompt x", ("prompt", "prompt:x")),
    ],
)
def test_expected_decision_is_parsed_into_action_and_target(text: str, expected: tuple[str, str]) -> None:
    assert action_and_target(text) == expected


@pytest.mark.parametrize(
    "text", ["", "read", "file:///a", "write file:///a", "Read file:///a", "read docs/a.md", "query /a:b"]
)
def test_invalid_expected_decision_is_refused_with_a_hint(text: str) -> None:
    """A path instead of a URI was accepted: a test that it is refused always passed."""
    with pytest.raises(UnusablePolicy, match="write an action"):
        action_and_target(text)
