"""Problems found in rules, the public view, explanations of decisions, and the containment of patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.policy import Policy
from wharfinger.policy.explanation import explain
from wharfinger.policy.findings import Published, find_problems, public_view, unmatched_beginnings
from wharfinger.policy.first_policy import first_policy
from wharfinger.policy.pattern_sets import contains, literal_beginning, pattern_matches
from wharfinger.policy.patterns import parse_pattern
from wharfinger.policy.policy import principal_of

PUBLISHED = Published(
    ["file:///docs", "file:///docs/a.md", "file:///docs/private", "file:///docs/private/pay.md", "git://docs"],
    tools=["search", "fetch"],
    prompts=["brief"],
)

segment = st.sampled_from(["a", "b", "ab", "*", "a*", "*b", "**"])
patterns = st.lists(segment, min_size=1, max_size=4).map(lambda parts: "x://t/" + "/".join(parts))
uris = st.lists(st.sampled_from(["a", "b", "ab", "aab"]), max_size=4).map(lambda parts: "/".join(["x://t", *parts]))


@given(patterns, patterns, uris)
def test_a_match_of_a_contained_pattern_is_a_match_of_the_outer_one(outer: str, inner: str, uri: str) -> None:
    one, other = parse_pattern(outer), parse_pattern(inner)
    if contains(one, other) and pattern_matches(other, uri):
        assert pattern_matches(one, uri)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [("x://a/**", "x://a/b", True), ("x://a/**", "x://a/b/*/**", True), ("x://a/*", "x://a/*b", True),
     ("x://a/b*", "x://a/*", False), ("x://a/b", "x://a/**", False), ("**", "x://**", True), ("tool:a", "tool:a", True),
     ("x://**/c", "x://a/b/c", True), ("tool:*", "tool:a*", True), ("tool:a", "tool:*", False),
     ("x://a/**", "tool:a", False), ("x://a/**", "x://a", True)],
)  # fmt: skip
def test_pattern_containment(outer: str, inner: str, expected: bool) -> None:
    assert contains(parse_pattern(outer), parse_pattern(inner)) is expected


@pytest.mark.parametrize(
    ("pattern", "beginning"),
    [("file:///docs/a/**", "file:///docs/a"), ("file:///docs/*/a", "file:///docs"), ("git://**", ""), ("**", ""),
     ("file:///docs/a.md", "file:///docs/a.md"), ("tool:a", ""), ("file:///**", "file://")],
)  # fmt: skip
def test_the_literal_beginning_ends_before_the_first_wildcard(pattern: str, beginning: str) -> None:
    assert literal_beginning(parse_pattern(pattern)) == beginning


REVISION = (
    "git://docs/tree/HEAD/private/** denies the revision HEAD only; the same files can be read at others. "
    "Write git://docs/*/*/private/**."
)


def allow(what: str, who: str = "anyone", more: str = "") -> str:
    return f'[[allow]]\nwho = "{who}"\nwhat = "{what}"\n{more}\n[[test]]\nas = "anyone"\n'


@pytest.mark.parametrize(
    ("text", "missing", "expected"),
    [(allow("file:///docs/**"), [], []),
     ("", [], ["No rule allows anything, so everything is refused."]),
     (allow("file:///dosc/**"), ["file:///dosc"],
      ["file:///dosc/** matches nothing: file:///dosc is not published. Did you mean file:///docs?"]),
     (allow("file:///docs/b/**"), ["file:///docs/b"], ["file:///docs/b/** matches nothing: there is no file:///docs/b."]),
     (allow("file:///docs/b/**"), [], []),
     (allow("tool:serch"), [], ["There is no tool:serch. Did you mean search?"]),
     (allow("prompt:x"), [], ["There is no prompt:x. There is: brief."]),
     (allow("tool:search", more='do = "read"'), [],
      ["tool:search is never matched: the rule is about read, not call."]),
     (allow("file:///docs/a.md", more='[[deny]]\nwho = "anyone"\nwhat = "file:///docs/**"'), [],
      ["file:///docs/a.md has no effect: deny 1 refuses all of it."]),
     (allow("file:///docs/a.md", more='[[deny]]\nwho = "signed-in"\nwhat = "file:///docs/**"'), [], []),
     (allow("file:///docs/a.md", "sub:x", '[[deny]]\nwho = "signed-in"\nwhat = "file:///docs/**"'), [],
      ["file:///docs/a.md has no effect: deny 1 refuses all of it."]),
     (allow("**", more='[[deny]]\nwho = "anyone"\nwhat = "git://docs/tree/HEAD/private/**"'), [],
      [REVISION]),
     (allow("**", more='[[deny]]\nwho = "anyone"\nwhat = "git://docs/*/*/private/**"'), [], []),
     (allow("file:///docs/**", more='roots = "/nowhere"'), [], ["Nothing in the directory /nowhere is published."]),
     (allow("file:///docs/**") + 'deny = "read file:///docs/a.md"', [],
      ["test 1 fails: 'read file:///docs/a.md' is allowed by allow 1."])],
)  # fmt: skip
def test_problems_of_rules_are_reported(text: str, missing: list[str], expected: list[str]) -> None:
    published = PUBLISHED._replace(missing=frozenset(missing), roots=lambda directory: [])
    assert [one.message for one in find_problems(Policy.from_toml(text), published) if one.problem] == expected


def test_unmatched_beginnings_leave_out_published_uris() -> None:
    policy = Policy.from_toml(
        allow("file:///docs/**") + '[[deny]]\nwho = "anyone"\nwhat = ["git://docs/*/*/x/**", "**"]'
    )
    assert unmatched_beginnings(policy, PUBLISHED.uris) == ["git://docs"]


def test_the_public_view_is_what_a_caller_without_a_token_may_do() -> None:
    policy = Policy.from_toml(
        allow("file:///docs/**", more='[[deny]]\nwho = "anyone"\nwhat = "file:///docs/private/**"')
        + '[[allow]]\nwho = "signed-in"\n[[allow]]\nwho = "anyone"\nwhat = "tool:s*"\nname = "searching"\n'
    )
    view = public_view(policy, PUBLISHED)
    assert view == (("allow 1", "searching"), 2, ("file:///docs", "file:///docs/a.md"), ("search",), ())


EXPLAINED = Policy.from_toml(
    """
    [[allow]]
    who = "group:staff"
    what = "file:///docs/**"
    [[allow]]
    who = "sub:bob"
    what = "file:///docs/**"
    scopes = ["docs.read"]
    issuer = ""
    [[allow]]
    who = "sub:bob"
    what = "tool:*"
    do = "read"
    [[deny]]
    who = "anyone"
    what = "file:///docs/private/**"
    name = "private"
    """
)


@pytest.mark.parametrize(
    ("claims", "action", "target", "allowed", "rule", "near"),
    [({"sub": "bob"}, "read", "file:///docs/a", False, "",
      [("allow 1", "it needs group:staff"), ("allow 2", "it needs the scope docs.read")]),
     ({"sub": "bob", "iss": "https://id.example"}, "read", "file:///docs/a", False, "",
      [("allow 1", "it needs group:staff")]),
     ({"sub": "bob", "scope": "docs.read"}, "read", "file:///docs/a", True, "allow 2", []),
     ({"sub": "bob", "groups": ["staff"]}, "read", "file:///docs/private/a", False, "private", []),
     ({"sub": "bob"}, "call", "tool:x", False, "", [("allow 3", "it allows read only")])],
)  # fmt: skip
def test_explanations_name_the_rule_or_the_near_misses(
    claims: dict[str, object], action: str, target: str, allowed: bool, rule: str, near: list[tuple[str, str]]
) -> None:
    found = explain(EXPLAINED, principal_of(claims), action, target)
    assert (found.allowed, found.rule, list(found.near_misses)) == (allowed, rule, near)


def test_a_spelling_that_no_rule_can_match_is_explained() -> None:
    found = explain(EXPLAINED, principal_of({"sub": "bob", "groups": ["staff"]}), "read", "file:///docs/%61")
    assert "No rule matches this spelling" in found.remark


def test_a_first_policy_denies_what_looks_private_and_passes_its_tests() -> None:
    published = PUBLISHED._replace(
        uris=[*PUBLISHED.uris, "sqlite://shop", "sqlite://shop/salaries", "sqlite://shop/ships"]
    )
    text = first_policy(published, ["search"], ["docs"])
    policy = Policy.from_toml(text)
    assert policy.check_tests() == []
    assert len(policy.tests) == 2
    assert [one.message for one in find_problems(policy, published) if one.problem] == []
    ann = policy.access(principal_of({"sub": "ann"}))
    assert ann.allows("read", "file:///docs/a.md")
    assert ann.allows("read", "sqlite://shop/ships")
    assert ann.allows("call", "tool:search")
    for hidden in (
        "file:///docs/private/pay.md",
        "file:///docs/x/secret/y",
        "sqlite://shop/salaries",
        "git://docs/tree/v1/a.pem",
    ):
        assert not ann.allows("read", hidden)
    assert not ann.allows("call", "tool:fetch"), "fetch is not known to be read-only"
    assert public_view(policy, published).number == 0
