"""Reading a policy: its errors, its own tests, issuers, roots and versions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy import universe
from wharfinger.auth.server.token_verifier import principal_of as token_principal
from wharfinger.policy import Limit, Policy, PolicyTest, Rule, UnusablePolicy
from wharfinger.policy.policy import MAX_FILE_BYTES, principal_of
from wharfinger.protocol.principal import ANONYMOUS, LOCAL, Principal

EXAMPLE = """
[[allow]]
who  = ["group:staff", "email:*@example.com"]
do   = ["read"]
what = ["file:///docs/**", "git://**"]

[[deny]]
who  = "anyone"
what = ["file:///docs/private/**"]

[[limit]]
who      = "signed-in"
calls    = "100/min"
bytes    = "50MiB/min"
parallel = 8

[[test]]
as    = { sub = "bob", groups = ["staff"] }
allow = ["read file:///docs/a.md", "list git://flask/HEAD", "search file:///docs"]
deny  = ["read file:///docs/private/pay.md", "call tool:x", "query db://main"]

[[test]]
as   = "anyone"
deny = "read file:///docs/a.md"
"""


def test_a_file_and_python_objects_make_the_same_policy() -> None:
    from_file = Policy.from_toml(EXAMPLE)
    from_objects = Policy(
        allow=[Rule(who=("group:staff", "email:*@example.com"), do=("read",), what=("file:///docs/**", "git://**"))],
        deny=[Rule(who="anyone", what=("file:///docs/private/**",))],
        limits=[Limit(who="signed-in", calls="100/min", bytes="50MiB/min", parallel=8)],
    )
    assert from_file.version == from_objects.version
    assert from_file.check_tests() == []


def test_actions_that_no_rule_allows_are_refused() -> None:
    for policy in (Policy(), Policy.from_toml(""), Policy(deny=[Rule(who="sub:nobody")])):
        for principal in universe.PRINCIPALS:
            access = policy.access(principal)
            assert not access.may_read_below("")
            for action in universe.ACTIONS:
                for target in ("file:///a", "tool:a", "prompt:a"):
                    assert access.decide(action, target) == (False, "", ())


# -- mistakes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[alow]]\nwho = 'anyone'", ["'alow'", "did you mean 'allow'", "[[deny]]"]),
        ("[[rules]]\nwho = 'anyone'", ["'rules'", "[[allow]]"]),
        ("[allow]\nwho = 'anyone'", ["[[allow]]"]),
        ("allow = 'anyone'", ["[[allow]]"]),
        ("allow = ['anyone']", ["[[allow]]"]),
        ("[[allow]]\nwho = 'anyone'\nwaht = '**'", ["allow 1", "'waht'", "did you mean 'what'"]),
        ("[[allow]]\nwho = 'anyone'\n[[allow]]\nwho = 'anyone'\ndoes = 'read'", ["allow 2", "'does'", "use who"]),
        ("[[deny]]\nname = 'pay'\nwho = 'anyone'\nWhat = '**'", ["pay: 'What'", "did you mean 'what'"]),
        ("[[allow]]\nwhat = '**'", ["allow 1", "who is missing"]),
        ("[[allow]]\nwho = 3", ["allow 1", "who = 3 is not valid", "a string in quotes"]),
        ("[[allow]]\nwho = ['anyone', 3]", ["allow 1", 'who = ["anyone", 3]']),
        ("[[allow]]\nwho = []", ["allow 1", "who is empty", '"anyone"']),
        ("[[allow]]\nwho = ''", ["allow 1", "who is empty"]),
        ("[[allow]]\nwho = ['sub:a', '']", ["allow 1", "who contains an empty string"]),
        ("[[allow]]\nwho = ['', 'x']", ["allow 1", "who contains an empty string"]),
        ("[[deny]]\nwho = 'anyone'\nroots = ['docs', '']", ["deny 1", "roots contains an empty string"]),
        ("[[allow]]\nwho = 'anyone'\ndo = []", ["allow 1", "do is empty"]),
        ("[[allow]]\nwho = 'anyone'\nwhat = []", ["allow 1", "what is empty"]),
        ("[[deny]]\nwho = 'anyone'\nroots = []", ["deny 1", "roots is empty"]),
        ("[[allow]]\nwho = 'anyone'\nroots = ''", ["allow 1", "roots is empty"]),
        ("[[allow]]\nwho = 'anyone'\ndo = 'raed'", ["allow 1", "'raed'", "did you mean 'read'"]),
        ("[[allow]]\nwho = 'anyone'\ndo = ['read', 'prompts']", ["allow 1", "'prompts'", "did you mean 'prompt'"]),
        ("[[allow]]\nwho = 'anyone'\ndo = 'Read'", ["allow 1", "'Read'", "did you mean 'read'"]),
        ("[[allow]]\nwho = 'anyone'\ndo = 'delete'", ["allow 1", "'delete'", "call"]),
        ("[[allow]]\nwho = 'anyone'\nlevel = 'wirte'", ["allow 1", "did you mean 'write'"]),
        ("[[allow]]\nwho = 'anyone'\nlevel = 'owner'", ["allow 1", "read, write, execute, admin"]),
        ("[[allow]]\nwho = 'anyone'\nlevel = 'read'\ndo = 'read'", ["allow 1", "do or level, not both"]),
        ("[[allow]]\nwho = 'everybody'", ["allow 1", "'everybody'", "anyone"]),
        ("[[allow]]\nwho = 'gruop:staff'", ["allow 1", "did you mean 'group'"]),
        ("[[allow]]\nwho = 'anyone'\nwhat = '/srv/docs/**'", ["allow 1", "begin with a scheme"]),
        ("[[allow]]\nwho = 'anyone'\nwhat = 'file:///docs/../x'", ["allow 1", "in another way"]),
        ("[[allow]]\nwho = 'anyone'\nreveal = 'yes'", ["allow 1", "reveal", "true or false"]),
        ("[[limit]]\nwho = 'anyone'", ["limit 1", "calls, bytes or parallel"]),
        ("[[limit]]\ncalls = '10'", ["limit 1", "'100/min'"]),
        ("[[limit]]\ncalls = 10", ["limit 1", "calls = 10 is not valid", "string in quotes"]),
        ("[[limit]]\nparallel = 0", ["limit 1", "at least 1"]),
        ("[[limit]]\nparallel = '8'", ["limit 1", "whole number"]),
        ("[[limit]]\nparalel = 8", ["limit 1", "did you mean 'parallel'"]),
        ("[[limit]]\nparallel = 8\nwho = 'grup:a'", ["limit 1", "did you mean 'group'"]),
        ("[[limit]]\nparallel = 8\ndo = 'cal'", ["limit 1", "did you mean 'call'"]),
        ("[[limit]]\nparallel = 8\nwho = []", ["limit 1", "who is empty, so the limit applies to no principal"]),
        ("[[limit]]\nparallel = 8\nwho = ''", ["limit 1", "who is empty"]),
        ("[[limit]]\nparallel = 8\ndo = []", ["limit 1", "do is empty, so the limit is about no action"]),
        ("[[limit]]\nparallel = 8\nwho = ['sub:a', '']", ["limit 1", "who contains an empty string"]),
        ("[[test]]\nallow = 'read file:///a'", ["test 1", "as is missing", "sub"]),
        ("[[test]]\nas = 'ann'\nallow = 'read file:///a'", ["test 1", 'as = "ann"', "claims of a principal"]),
        ("[[test]]\nas = 'anyone'\nallow = 'raed file:///a'", ["test 1", "write an action"]),
        ("[[test]]\nas = 'anyone'\nallows = 'read file:///a'", ["test 1", "did you mean 'allow'"]),
        ("[[test]]\nas = {groups = ['a']}\nallow = 'read file:///a'", ["test 1", "need a sub"]),
        ("[[test]]\nas = {sub = 'ann', scope = 5}", ["test 1", "scope = 5 is not valid", "a string in quotes"]),
        ("[[test]]\nas = {sub = 'ann', scopes = [5]}", ["test 1", "scopes = [5] is not valid", "a string in quotes"]),
        ("[[test]]\nas = {sub = 'ann', scopes = [['a']]}", ["test 1", 'scopes = [["a"]] is not valid']),
        ("[[allow", ["is not TOML", "]]"]),
        ("a = " + "[" * 100_000, ["is not TOML", "nested too deeply"]),
        ("\x00", ["is not TOML"]),
    ],
)
def test_mistakes_are_reported_with_their_rule_and_a_hint(text: str, words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(UnusablePolicy) as raised:
        Policy.load(file)
    message = str(raised.value)
    assert message.startswith(str(file))
    assert [word for word in words if word not in message] == [], message
    assert len(message) < 700


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"who": []}, "who is empty"),
        ({"who": None}, "who is empty"),
        ({"who": "anyone", "level": "wirte"}, "did you mean 'write'"),
        ({"who": "anyone", "what": ()}, "what is empty"),
        ({"who": "anyone", "roots": []}, "roots is empty"),
    ],
)
def test_mistakes_in_python_objects_are_reported_with_their_rule(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(UnusablePolicy, match=f"allow 1: .*{words}"):
        Policy(allow=[Rule(**rule)])


def test_file_in_another_encoding_is_refused() -> None:
    with pytest.raises(UnusablePolicy, match="not in UTF-8"):
        Policy.from_toml("[[allow]]\nwho = 'sub:é'".encode("latin-1"))


def test_a_missing_file_a_folder_and_an_unreadable_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(UnusablePolicy, match="cannot be read"):
            Policy.load(path)
    if os.geteuid():
        secret = tmp_path / "secret.toml"
        secret.touch(0)
        with pytest.raises(UnusablePolicy, match="cannot be read"):
            Policy.load(secret)


def test_file_size_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_bytes(b"#" * MAX_FILE_BYTES)
    assert Policy.load(file).rules == ()
    file.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(UnusablePolicy, match="larger than 4 MiB"):
        Policy.load(file)


@given(st.text(max_size=80))
def test_any_text_is_a_policy_or_refused(text: str) -> None:
    for form in (text, f"[[allow]]\nwho = 'anyone'\n{text}", f"[[{text}]]"):
        try:
            Policy.from_toml(form)
        except UnusablePolicy as error:
            assert str(error)


# -- tests of the policy itself


def test_a_failing_test_of_the_policy_is_an_error_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(EXAMPLE + '[[test]]\nname = "guests"\nas = "anyone"\nallow = ["read file:///docs/a.md"]')
    with pytest.raises(
        UnusablePolicy, match=r"guests fails: 'read file:///docs/a.md' is refused because no rule allows"
    ):
        Policy.load(file)
    file.write_text(EXAMPLE + '[[test]]\nas = {sub = "a", groups = "staff"}\ndeny = "read git://x"')
    with pytest.raises(UnusablePolicy, match="test 3 fails: 'read git://x' is allowed by allow 1"):
        Policy.load(file)


@given(universe.rules)
@settings(max_examples=20, deadline=None)
def test_tests_decide_as_requests_do(rule: Rule) -> None:
    policy = Policy(allow=[rule])
    claims = {"sub": "bob", "client": "app", "groups": "staff", "scope": "docs.read x"}
    principal = Principal(subject="bob", client="app", scopes=frozenset({"docs.read", "x"}), claims={"groups": "staff"})
    for uri in universe.URIS[::9]:
        expected = policy.access(principal).allows("read", uri)
        test = PolicyTest(principal=claims, **{"allow" if expected else "deny": (f"read {uri}",)})  # type: ignore[arg-type]
        assert Policy(allow=[rule], tests=[test]).check_tests() == []


def test_claims_of_a_test_become_a_principal() -> None:
    principal = principal_of({"sub": "ann", "iss": "https://a.example", "scope": "a b", "client_id": "app", "team": 1})
    assert (principal.subject, principal.issuer, principal.scopes, principal.client) == (
        "ann",
        "https://a.example",
        {"a", "b"},
        "app",
    )
    assert principal.claims["team"] == 1
    assert principal_of("local") is LOCAL
    assert principal_of("anyone") is ANONYMOUS
    assert principal_of({"sub": "ann", "scopes": ["a", "b"]}).scopes == {"a", "b"}


@pytest.mark.parametrize(
    "who", ["scope:admin", "client:app", "sub:ann", "claim.sub:ann", "claim.iss:https://id.example", "claim.azp:app"]
)
def test_a_test_decides_as_the_server_does_for_a_token_with_these_claims(who: str) -> None:
    """A bug: a test left out `scp`, `azp`, and rules about claims such as `claim.sub`, and so passed wrongly."""
    claims = {"sub": "ann", "iss": "https://id.example", "scp": ["admin"], "azp": "app"}
    policy = Policy(
        allow=[Rule(who=who)], tests=[PolicyTest(principal=claims, allow="read file:///a", deny="read file:/b")]
    )
    assert policy.access(token_principal(claims, "https://id.example", ())).allows("read", "file:///a")
    assert policy.check_tests() == []


# -- issuers


def test_one_subject_at_two_issuers_is_two_principals() -> None:
    policy = Policy(allow=[Rule(who="sub:ann", issuer="https://one.example", what="file:///**")])
    one, two = (Principal(subject="ann", issuer=f"https://{name}.example") for name in ("one", "two"))
    assert policy.access(one).allows("read", "file:///a")
    assert not policy.access(two).allows("read", "file:///a")
    assert not policy.access(Principal(subject="ann")).allows("read", "file:///a")
    assert policy.access(one).key != policy.access(two).key


@pytest.mark.parametrize("who", ["sub:ann", "group:a", "scope:a", "client:a", "email:*@a.example", "claim.x:y"])
def test_with_several_issuers_a_rule_about_claims_must_name_its_issuer(who: str) -> None:
    issuers = ["https://one.example", "https://two.example"]
    policy = Policy(deny=[Rule(who=who)])
    policy.check_issuers(issuers[:1])
    with pytest.raises(UnusablePolicy, match=r'deny 1: .*add issuer = "https://one.example"'):
        policy.check_issuers(issuers)
    Policy(deny=[Rule(who=who, issuer=issuers[1])]).check_issuers(issuers)


def test_with_several_issuers_scopes_need_an_issuer_and_anyone_does_not() -> None:
    issuers = ["https://one.example", "https://two.example"]
    Policy(allow=[Rule(who=("anyone", "signed-in", "local"))]).check_issuers(issuers)
    with pytest.raises(UnusablePolicy, match=r"allow 1: .*several issuers"):
        Policy(allow=[Rule(who="signed-in", scopes="a")]).check_issuers(issuers)


def test_rule_of_an_unknown_issuer_is_refused() -> None:
    policy = Policy(allow=[Rule(who="sub:ann", issuer="https://three.example")])
    with pytest.raises(UnusablePolicy, match=r"does not trust the issuer 'https://three.example'.*https://one.example"):
        policy.check_issuers(["https://one.example"])
    with pytest.raises(UnusablePolicy, match="it trusts none"):
        policy.check_issuers([])


# -- roots


def published_patterns(root: str) -> list[str]:
    return {"/data": ["file:///data/**", "git://data/**"], "/data-evil": ["file:///evil/**"]}.get(root, [])


def test_roots_match_only_the_uris_that_a_directory_publishes() -> None:
    policy = Policy(allow=[Rule(who="anyone", do="read", roots="/data")])
    assert policy.has_roots
    access = policy.bind_roots(published_patterns).access(ANONYMOUS)
    assert access.allows("read", "file:///data/a")
    assert access.allows("read", "git://data/HEAD/a")
    assert not access.allows("read", "file:///data-evil/a")
    assert not access.allows("read", "file:///evil/a")


@pytest.mark.parametrize("root", ["/dat", "/data/", "/other", "data", "/data-evi"])
def test_root_that_is_not_published_allows_nothing(root: str) -> None:
    access = Policy(allow=[Rule(who="anyone", roots=root)]).bind_roots(published_patterns).access(ANONYMOUS)
    assert not access.may_read_below("")


def test_targets_and_roots_of_one_rule_add_up() -> None:
    rule = Rule(who="anyone", what="tool:x", roots=("/data", "/other"))
    access = Policy(allow=[rule]).bind_roots(published_patterns).access(ANONYMOUS)
    assert access.allows("call", "tool:x")
    assert access.allows("read", "file:///data/a")
    assert not access.allows("read", "file:///evil/a")


def test_rule_with_roots_allows_nothing_before_they_are_bound() -> None:
    policy = Policy(allow=[Rule(who="anyone", roots="/data")])
    assert not policy.access(ANONYMOUS).may_read_below("")


def test_binding_again_starts_from_the_rules_and_drops_decisions() -> None:
    policy = Policy(allow=[Rule(who="anyone", what="**")], deny=[Rule(who="anyone", roots="/data")])
    assert policy.access(ANONYMOUS).is_public("file:///data/a")
    bound = policy.bind_roots(published_patterns)
    assert not bound.access(ANONYMOUS).allows("read", "file:///data/a")
    assert not bound.access(ANONYMOUS).is_public("file:///data/a")
    rebound = bound.bind_roots(lambda root: ["file:///moved/**"])
    assert rebound.access(ANONYMOUS).allows("read", "file:///data/a")
    assert not rebound.access(ANONYMOUS).allows("read", "file:///moved/a")
    assert policy.access(ANONYMOUS).allows("read", "file:///moved/a")


def test_tests_of_a_policy_with_roots_pass_once_they_are_bound(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(
        '[[allow]]\nwho = "anyone"\nroots = "/data"\n[[test]]\nas = "anyone"\nallow = "read file:///data/a"'
    )
    policy = Policy.load(file)
    assert policy.check_tests() != []
    assert policy.bind_roots(published_patterns).check_tests() == []


# -- versions


def test_version_changes_with_every_rule_and_not_with_its_tests() -> None:
    texts = [
        EXAMPLE,
        EXAMPLE.replace("staff", "all"),
        EXAMPLE.replace("/private", "/pay"),
        EXAMPLE.replace("100/min", "99/min"),
        EXAMPLE + "[[deny]]\nwho = 'sub:bob'",
        EXAMPLE.replace("[[deny]]", "[[allow]]"),
    ]
    assert len({Policy.from_toml(text).version for text in texts}) == len(texts)
    assert Policy.from_toml(EXAMPLE).version == Policy.from_toml(EXAMPLE.replace("bob", "eve")).version


def test_key_of_an_access_changes_with_the_policy() -> None:
    one, other = Policy.from_toml(EXAMPLE), Policy.from_toml(EXAMPLE + "[[deny]]\nwho = 'sub:bob'")
    assert one.access(ANONYMOUS).key != other.access(ANONYMOUS).key


def test_an_empty_scope_is_refused() -> None:
    """A bug: a denial with such a scope, as of a missing setting, never applied."""
    with pytest.raises(UnusablePolicy, match="deny 1: scopes contains an empty string"):
        Policy(deny=[Rule(who="anyone", scopes="")])
    assert Policy(deny=[Rule(who="anyone", scopes=())]).rules


def test_scopes_in_one_string_are_refused() -> None:
    """A bug: a denial with `scopes = "a b"` never applied, since no token has a scope with a space."""
    with pytest.raises(UnusablePolicy, match="deny 1: scopes = 'a b' has a space"):
        Policy(deny=[Rule(who="anyone", scopes="a b")])


def test_a_root_in_the_home_folder_of_an_unknown_user_is_kept(tmp_path: Path) -> None:
    """A bug: the policy failed to load with a RuntimeError."""
    policy = Policy(deny=[Rule(who="anyone", roots="~nobody-of-this-name/x")]).relative_to(tmp_path)
    assert policy.rules[0].rule.roots == (f"{tmp_path}/~nobody-of-this-name/x",)
