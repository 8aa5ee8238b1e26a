"""Decisions compared with the oracle, decisions about whole directories, and their cost."""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.policy import oracle, universe
from wharfinger.policy import Policy, Rule
from wharfinger.policy.access import MAX_DIRECTORIES, MAX_REMEMBERED_CHARACTERS
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.sources.folder import file_uri

several_rules = st.lists(universe.rules, max_size=5)
ANN = Principal(subject="ann")
FILES = "file:///docs/**"


@given(several_rules, several_rules, st.sampled_from(universe.PRINCIPALS))
@settings(max_examples=300, deadline=None)
def test_every_decision_agrees_with_the_oracle(allow: list[Rule], deny: list[Rule], who: Principal) -> None:
    access = Policy(allow=allow, deny=deny).access(who)
    for action in universe.ACTIONS:
        fitting = {"call": ("tool",), "prompt": ("prompt",), "inspect": ("tool", "prompt", "uri")}.get(action, ("uri",))
        for target in universe.TARGETS:
            kind = target.partition(":")[0]
            if (kind if kind in ("tool", "prompt") else "uri") not in fitting:
                continue
            expected = oracle.allowed(allow, deny, who, action, target)
            assert access.allows(action, target) == expected, (action, target)
            assert access.decide(action, target).allowed == expected


PREFIXES = sorted({uri[:cut] for uri in universe.URIS for cut in range(len(uri) + 1)})


@given(several_rules, several_rules, st.sampled_from(universe.PRINCIPALS))
@example([Rule(who="anyone", what="git://**")], [], ANN)
@example([Rule(who="anyone", what="note:**")], [], ANN)
@example([Rule(who="anyone", what="file:///a/*")], [Rule(who="anyone", what="file:///a/**/b")], ANN)
@example([Rule(who="anyone", what="file:///a")], [Rule(who="anyone", what="file:///a/*/**")], ANN)
@settings(max_examples=150, deadline=None)
def test_decisions_about_prefixes_agree_with_the_oracle(allow: list[Rule], deny: list[Rule], who: Principal) -> None:
    access = Policy(allow=allow, deny=deny).access(who)
    readable = {uri for uri in universe.URIS if oracle.allowed(allow, deny, who, "read", uri)}
    for prefix in PREFIXES:
        below = {uri for uri in universe.URIS if uri.startswith(prefix)}
        if not access.may_read_below(prefix):
            assert not below & readable, prefix
        if access.reads_all_below(prefix):
            assert below <= readable, prefix


ODD_NAMES = [
    "a",
    "b",
    "a b",
    "a*b",
    "aab",
    "é",
    "\udcff",
    "a\\b",
    "a\n",
    "a\x7f",
    "%",
    "%2F",
    "a?b",
    "a#b",
    "a%b",
    "~a",
    "[a]",
]


@given(several_rules, several_rules, st.sampled_from(["file:///", "file:///a/", "git://a/b/", "git://", "note:b/"]))
@settings(deadline=None)
def test_readable_names_agree_with_decisions_about_their_uris(
    allow: list[Rule], deny: list[Rule], directory: str
) -> None:
    access = Policy(allow=allow, deny=deny).access(ANN)
    readable = access.readable_names(directory)
    for name in ODD_NAMES:
        assert readable(name) == access.allows("read", directory + file_uri.quote(name)), name


@given(several_rules, several_rules, st.lists(st.sampled_from(universe.PRINCIPALS), min_size=2, max_size=2))
@settings(deadline=None)
def test_public_uris_are_readable_by_every_principal(allow: list[Rule], deny: list[Rule], who: list[Principal]) -> None:
    policy = Policy(allow=allow, deny=deny)
    for uri in universe.URIS[:40]:
        if policy.access(who[0]).is_public(uri):
            assert all(policy.access(principal).allows("read", uri) for principal in (*who, ANONYMOUS))


@given(several_rules, several_rules)
@settings(deadline=None)
def test_equal_keys_mean_equal_decisions(allow: list[Rule], deny: list[Rule]) -> None:
    policy = Policy(allow=allow, deny=deny)
    for principal in universe.PRINCIPALS:
        for other_principal in universe.PRINCIPALS:
            if policy.access(principal).key == policy.access(other_principal).key:
                for uri in universe.URIS[::7]:
                    assert policy.access(principal).decide("read", uri) == policy.access(other_principal).decide(
                        "read", uri
                    )


@pytest.mark.parametrize(
    ("prefix", "may_read", "reads_all"),
    [
        ("", True, False),
        ("file:///docs/", True, False),
        ("file:///docs/open/", True, True),
        ("file:///docs/open/x/y", True, True),
        ("file:///docs/private/", False, False),
        ("file:///docs/private/x", False, False),
        ("file:///docs-evil/", False, False),
        ("file:///doc", True, False),
        ("file:///docs/../docs/open/", False, False),
        ("other://", False, False),
    ],
)
def test_a_prefix_is_fully_readable_only_without_hidden_files(prefix: str, may_read: bool, reads_all: bool) -> None:
    policy = Policy(
        allow=[Rule(who="anyone", what="file:///docs/**")], deny=[Rule(who="anyone", what="file:///docs/private/**")]
    )
    access = policy.access(ANN)
    assert (access.may_read_below(prefix), access.reads_all_below(prefix)) == (may_read, reads_all)


def test_directory_that_may_contain_a_hidden_file_is_not_fully_readable() -> None:
    policy = Policy(allow=[Rule(who="anyone", what=FILES)], deny=[Rule(who="anyone", what="file:///docs/**/pay.md")])
    access = policy.access(ANN)
    assert not access.reads_all_below("file:///docs/a/")
    assert access.may_read_below("file:///docs/a/")


def test_a_deny_rule_wins_in_any_order_and_is_named() -> None:
    policy = Policy(
        allow=[Rule(who="anyone", what=FILES, name="all"), Rule(who="anyone", what="file:///docs/*.md", name="texts")],
        deny=[Rule(who="sub:bob", what="**", name="bob"), Rule(who="anyone", what="file:///docs/pay.md", name="pay")],
    )
    access = policy.access(ANN)
    assert access.decide("read", "file:///docs/a.md") == (True, "all", ())
    assert access.decide("read", "file:///docs/pay.md") == (False, "pay", ())
    assert access.decide("read", "file:///other") == (False, "", ())


def test_the_first_rule_that_allows_is_named() -> None:
    names = ["**/x", "**", "file:///**", "file:///a/x", "file:///a/*"]
    for first in range(len(names)):
        order = names[first:] + names[:first]
        policy = Policy(
            allow=[Rule(who="anyone", what=what, name=what) for what in ("file:///b", *order) if what != "**/x"]
        )
        expected = next(what for what in order if what != "**/x")
        assert policy.access(ANN).decide("read", "file:///a/x").rule == expected


@pytest.mark.parametrize("action", ["read", "query", "inspect"])
def test_a_deny_rule_without_what_applies_to_everything(action: str) -> None:
    policy = Policy(allow=[Rule(who="anyone")], deny=[Rule(who="sub:ann")])
    assert policy.access(ANONYMOUS).allows(action, "file:///a")
    assert not policy.access(ANN).allows(action, "file:///a")
    assert not policy.access(ANN).allows("call", "tool:x")
    assert not policy.access(ANN).allows("prompt", "prompt:x")
    assert not policy.access(ANN).may_read_below("")


def test_two_stars_match_every_uri_but_no_tool_or_prompt() -> None:
    access = Policy(allow=[Rule(who="anyone", what="**")]).access(ANN)
    assert access.allows("read", "any://thing")
    assert not access.allows("call", "tool:x")
    assert not access.allows("prompt", "prompt:x")


@pytest.mark.parametrize("target", ["tool:", "x", "", "file:///a", "prompt:x", "Tool:x", "tool", ":x"])
def test_only_tools_can_be_called(target: str) -> None:
    access = Policy(allow=[Rule(who="anyone", what=["tool:x", "file:///a", "prompt:x"])]).access(ANN)  # type: ignore[arg-type]
    assert access.allows("call", "tool:x")
    assert not access.allows("call", target)


def test_tool_name_with_a_slash_is_one_segment() -> None:
    access = Policy(allow=[Rule(who="anyone", what="tool:a*")]).access(ANN)
    assert access.allows("call", "tool:a/b")
    assert access.allows("call", "tool:a")
    assert not access.allows("call", "tool:/a")


# -- scopes, and rules that reveal them


def revealing_policy(**rule: object) -> Policy:
    return Policy(allow=[Rule(**{"do": "read", "what": FILES, "reveal": True, **rule})])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "scopes", "expected"),
    [
        (revealing_policy(who="signed-in", scopes="docs.read"), {"docs.read"}, (True, "allow 1", ())),
        (revealing_policy(who="signed-in", scopes="docs.read"), set(), (False, "", ("docs.read",))),
        (revealing_policy(who="signed-in", scopes=("a", "b")), {"a"}, (False, "", ("a", "b"))),
        (revealing_policy(who="scope:docs.read"), set(), (False, "", ("docs.read",))),
        (revealing_policy(who="scope:docs.*"), set(), (False, "", ())),
        (revealing_policy(who="scope:a", scopes="b"), set(), (False, "", ("b", "a"))),
        (revealing_policy(who="scope:a", scopes="b"), {"a"}, (False, "", ("b", "a"))),
        (revealing_policy(who="scope:a", scopes="b"), {"b"}, (False, "", ("b", "a"))),
        (revealing_policy(who="scope:a.*", scopes="b"), {"a.y", "a.x"}, (False, "", ("b", "a.x"))),
        (revealing_policy(who=("scope:a", "scope:b")), set(), (False, "", ("a",))),
        (revealing_policy(who=("scope:a", "scope:b"), scopes="c"), {"b"}, (False, "", ("c", "b"))),
        (revealing_policy(who=("scope:a", "sub:ann"), scopes="b"), {"a"}, (False, "", ("b",))),
        (revealing_policy(who="claim.scope:a"), set(), (False, "", ())),
        (revealing_policy(who="group:staff", scopes="docs.read"), set(), (False, "", ())),
        (revealing_policy(who="signed-in", scopes="docs.read", reveal=False), set(), (False, "", ())),
    ],
)
def test_missing_scopes_are_named_only_if_the_rule_reveals_them(
    policy: Policy, scopes: set[str], expected: tuple[object, ...]
) -> None:
    who = Principal(subject="ann", scopes=frozenset(scopes))
    access = policy.access(who)
    assert access.decide("read", "file:///docs/a") == expected
    assert access.decide("read", "file:///docs/missing") == expected  # whether the file exists makes no difference
    assert access.decide("read", "file:///other") == (False, "", ())
    assert access.may_read_below("file:///docs/") == expected[0]
    assert access.reads_all_below("file:///docs/") == expected[0]


def test_nothing_is_revealed_to_callers_without_a_token_or_about_denied_resources() -> None:
    assert revealing_policy(who="anyone", scopes="a").access(ANONYMOUS).decide("read", "file:///docs/a") == (
        False,
        "",
        (),
    )
    policy = Policy(
        allow=[Rule(who="signed-in", what=FILES, scopes="a", reveal=True)],
        deny=[Rule(who="anyone", what=FILES, name="closed")],
    )
    assert policy.access(ANN).decide("read", "file:///docs/a") == (False, "closed", ())


def test_a_deny_rule_with_scopes_applies_only_to_principals_with_those_scopes() -> None:
    deny = [Rule(who="anyone", what=FILES, scopes="guest", reveal=True)]
    policy = Policy(allow=[Rule(who="anyone", what=FILES)], deny=deny)
    assert policy.access(ANN).allows("read", "file:///docs/a")
    guest = Principal(subject="ann", scopes=frozenset({"guest"}))
    assert not policy.access(guest).allows("read", "file:///docs/a")


# -- costs and bounds


def thousand_rules() -> Policy:
    return Policy(
        allow=[
            *(Rule(who="anyone", do="read", what=f"file:///docs/team{number}/**") for number in range(500)),
            *(Rule(who="anyone", do="read", what=f"file:///flat/{number}.md") for number in range(490)),
            *(Rule(who="anyone", do="read", what=f"file:///wild/**/*{number}.md") for number in range(10)),
        ]
    )


@pytest.mark.parametrize(
    "uri",
    [
        "file:///docs/team7/x/{}.md",
        "file:///flat/{}.md",
        "file:///docs/team{}/a",
        "file:///flat{}/a",
        "file:///wild/{}",
    ],
)
def test_decision_takes_microseconds_with_a_thousand_rules(uri: str) -> None:
    access = thousand_rules().access(ANN)
    access.decide("read", uri.format(0))
    best = float("inf")
    for _ in range(5):
        started = time.thread_time()
        for number in range(1_000):
            access.decide("read", uri.format(number))
        best = min(best, time.thread_time() - started)
    assert best / 1_000 < 100e-6  # measured: 2 to 20


def test_access_of_a_known_principal_is_compiled_once() -> None:
    policy = thousand_rules()
    assert policy.access(ANN) is policy.access(ANN)
    assert policy.access(Principal(subject="bob")) is policy.access(ANN)  # the same rules apply to both


def test_flood_of_uris_and_principals_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wharfinger.policy.access.MAX_DIRECTORIES", 1_000)
    monkeypatch.setattr("wharfinger.policy.policy.MAX_PRINCIPALS", 100)
    monkeypatch.setattr("wharfinger.policy.policy.MAX_COMPILED_RULES", 200)
    policy = Policy(
        allow=[Rule(who="anyone", what="file:///**")],
        deny=[Rule(who=f"sub:u{number}", what="file:///x") for number in range(500)],
    )
    for number in range(3_000):
        who = Principal(subject=f"u{number % 500}")
        assert policy.access(who).allows("read", f"file:///{number}/b")
        assert len(policy._directories) <= 1_000
        assert len(policy._by_principal) <= 100
        assert sum(len(access.rules) + 1 for access in policy._by_rules.values()) <= 200


def test_cached_directories_take_little_memory() -> None:
    """A bug: each directory kept its own copy of the patterns that begin with `**`: 300 MB with a hundred of them."""
    secrets = tuple(f"file:///**/{number}.key" for number in range(100))
    access = Policy(
        allow=[Rule(who="anyone", what="file:///**")], deny=[Rule(who="anyone", what=(*secrets, "file:///b/**"))]
    ).access(ANN)
    tracemalloc.start()
    try:
        for number in range(2_000):
            access.decide("read", f"file:///{number}/a/b")
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / 4_000 * MAX_DIRECTORIES < 60e6


def test_long_uris_are_decided_and_not_cached() -> None:
    policy = Policy(allow=[Rule(who="anyone", what="file:///a/**")], deny=[Rule(who="anyone", what="file:///a/**/z")])
    access = policy.access(ANN)
    path = "file:///a/" + "/".join("b" * (MAX_REMEMBERED_CHARACTERS // 2))
    assert not access.allows("read", f"{path}/z")
    before = len(policy._directories)
    assert access.allows("read", f"{path}/" + "/".join("c" * 100) + "/y")
    assert not access.allows("read", f"{path}/" + "/".join("c" * 100) + "/z")
    assert len(policy._directories) - before <= 2


@pytest.mark.parametrize("segments", [500, 510, 511, 2_000, 15_000])
def test_deep_uri_is_decided_in_bounded_time_and_without_recursion(segments: int) -> None:
    policy = Policy(allow=[Rule(who="anyone", what=f"file:///**/{number}/**") for number in range(200)])
    started = time.thread_time()
    allowed = policy.access(ANN).allows("read", "file:///" + "/".join("7" * segments))
    assert allowed == (segments <= 510)  # with the scheme and the empty authority
    assert time.thread_time() - started < 5
    assert segments > sys.getrecursionlimit() or segments <= 2_000


def test_threads_agree_while_the_cache_is_cleared() -> None:
    policy = Policy(allow=[Rule(who="anyone", what=FILES)], deny=[Rule(who="anyone", what="file:///docs/*/private")])
    wrong: list[str] = []

    def decide(thread: int) -> None:
        for number in range(3_000):
            access = policy.access(Principal(subject=f"{thread}"))
            if number % 10 == 0:
                policy._directories.clear()
            for name, expected in (("a", True), ("private", False)):
                uri = f"file:///docs/{number % 50}/{name}"
                if access.allows("read", uri) != expected:
                    wrong.append(uri)

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
