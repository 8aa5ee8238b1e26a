"""Problems found in rules, the public view, explanations of decisions, and the containment of patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.policy import Policy
from wharfinger.policy.explanation import explain
from wharfinger.policy.findings import Published, find_problems, public_view, top_of, unmatched_beginnings
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
    outer_pattern, inner_pattern = parse_pattern(outer), parse_pattern(inner)
    if contains(outer_pattern, inner_pattern) and pattern_matches(inner_pattern, uri):
        assert pattern_matches(outer_pattern, uri)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [("x://a/**", "x://a/b", True), ("x://a/**", "x://a/b/*/**", True), ("x://a/*", "x://a/*b", True),
     ("x://a/b*", "x://a/*", False), ("x://a/b", "x://a/**", False), ("**", "x://**", True), ("tool:a", "tool:a", True),
     ("x://**/c", "x://a/b/c", True), ("tool:*", "tool:a*", True), ("tool:a", "tool:*", False),
     ("x://a/**", "tool:a", False), ("x://a/**", "x://a", True)],
)  # fmt: skip
def test_a_pattern_contains_another_if_it_matches_all_of_its_uris(outer: str, inner: str, expected: bool) -> None:
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


def allow(what: str, who: str = "anyone", extra: str = "") -> str:
    return f'[[allow]]\nwho = "{who}"\nwhat = "{what}"\n{extra}\n[[test]]\nas = "anyone"\n'


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
     (allow("tool:search", extra='do = "read"'), [],
      ["tool:search is never matched: the rule is about read, not call."]),
     (allow("file:///docs/a.md", extra='[[deny]]\nwho = "anyone"\nwhat = "file:///docs/**"'), [],
      ["file:///docs/a.md has no effect: deny 1 refuses all of it."]),
     (allow("file:///docs/a.md", extra='[[deny]]\nwho = "signed-in"\nwhat = "file:///docs/**"'), [], []),
     (allow("file:///docs/a.md", "sub:x", '[[deny]]\nwho = "signed-in"\nwhat = "file:///docs/**"'), [],
      ["file:///docs/a.md has no effect: deny 1 refuses all of it."]),
     (allow("**", extra='[[deny]]\nwho = "anyone"\nwhat = "git://docs/tree/HEAD/private/**"'), [],
      [REVISION]),
     (allow("**", extra='[[deny]]\nwho = "anyone"\nwhat = "git://docs/*/*/private/**"'), [], []),
     (allow("file:///docs/**", extra='roots = "/nowhere"'), [], ["Nothing in the directory /nowhere is published."]),
     (allow("file:///docs/**") + 'deny = "read file:///docs/a.md"', [],
      ["test 1 fails: 'read file:///docs/a.md' is allowed by allow 1."])],
)  # fmt: skip
def test_problems_of_rules_are_reported(text: str, missing: list[str], expected: list[str]) -> None:
    published = PUBLISHED._replace(missing=frozenset(missing), roots=lambda directory: [])
    assert [
        finding.message for finding in find_problems(Policy.from_toml(text), published) if finding.problem
    ] == expected


def test_unmatched_beginnings_leave_out_published_uris() -> None:
    policy = Policy.from_toml(
        allow("file:///docs/**") + '[[deny]]\nwho = "anyone"\nwhat = ["git://docs/*/*/x/**", "**"]'
    )
    assert unmatched_beginnings(policy, PUBLISHED.uris) == ["git://docs"]


def test_the_public_view_has_all_that_a_caller_without_a_token_may_do() -> None:
    policy = Policy.from_toml(
        allow("file:///docs/**", extra='[[deny]]\nwho = "anyone"\nwhat = "file:///docs/private/**"')
        + '[[allow]]\nwho = "signed-in"\n[[allow]]\nwho = "anyone"\nwhat = "tool:s*"\nname = "searching"\n'
    )
    view = public_view(policy, PUBLISHED)
    assert view == (("allow 1", "searching"), 2, ("file:///docs", "file:///docs/a.md"), ("search",), ())


@pytest.mark.parametrize("condition", ['scopes = ["docs.read"]', 'scopes = "docs.read"\nreveal = true', 'issuer = "x"'])
def test_a_rule_that_needs_a_token_is_not_in_the_public_view(condition: str) -> None:
    """A bug: `policy check` said that anyone may do what such a rule allows."""
    policy = Policy.from_toml(allow("file:///docs/**", extra=condition))
    assert public_view(policy, PUBLISHED) == ((), 0, (), (), ())


EXPLAINED_POLICY = Policy.from_toml(
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
    ("claims", "action", "target", "allowed", "rule", "near_misses"),
    [({"sub": "bob"}, "read", "file:///docs/a", False, "",
      [("allow 1", "it needs group:staff"), ("allow 2", "it needs the scope docs.read")]),
     ({"sub": "bob", "iss": "https://id.example"}, "read", "file:///docs/a", False, "",
      [("allow 1", "it needs group:staff")]),
     ({"sub": "bob", "scope": "docs.read"}, "read", "file:///docs/a", True, "allow 2", []),
     ({"sub": "bob", "groups": ["staff"]}, "read", "file:///docs/private/a", False, "private", []),
     ({"sub": "bob"}, "call", "tool:x", False, "", [("allow 3", "it allows read only")])],
)  # fmt: skip
def test_explanations_name_the_rule_or_the_near_misses(
    claims: dict[str, object], action: str, target: str, allowed: bool, rule: str, near_misses: list[tuple[str, str]]
) -> None:
    found = explain(EXPLAINED_POLICY, principal_of(claims), action, target)
    assert (found.allowed, found.rule, list(found.near_misses)) == (allowed, rule, near_misses)


def test_a_spelling_that_no_rule_can_match_is_explained() -> None:
    found = explain(EXPLAINED_POLICY, principal_of({"sub": "bob", "groups": ["staff"]}), "read", "file:///docs/%61")
    assert "No rule matches this spelling" in found.remark
    assert explain(EXPLAINED_POLICY, principal_of({"sub": "bob"}), "inspect", "tool:a b").remark == ""


@pytest.mark.parametrize(
    ("uri", "top"),
    [("file:///my%20docs/a.md?lines=1-2", "file:///my%20docs"), ("file:///docs", "file:///docs"),
     ("file:///docs/", "file:///docs"), ("file://host/docs/a", "file://host"), ("git://flask/HEAD/a%20b", "git://flask"),
     ("web://caf%C3%A9/", "web://caf%C3%A9"), ("note:a/b", "note:a"), ("system://?x=1", "system://"),
     ("file:///my docs/a.md", ""), ("no uri", "")],
)  # fmt: skip
def test_the_top_of_a_uri_is_written_as_in_the_uri(uri: str, top: str) -> None:
    assert top_of(uri) == top


def test_the_suggestion_for_a_folder_whose_name_has_a_space_can_be_written_into_a_rule() -> None:
    """A bug: the suggestion had the space itself, which a rule refuses."""
    policy = Policy.from_toml('[[allow]]\nwho = "anyone"\nwhat = "file:///my%20dosc/**"\n')
    published = Published(["file:///my%20docs"], missing=frozenset(["file:///my%20dosc"]))
    (finding,) = (finding for finding in find_problems(policy, published) if finding.problem)
    assert "file:///my%20dosc is not published. Did you mean file:///my%20docs?" in finding.message
