"""Which principals a selector matches, and which selectors are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy import oracle, universe
from wharfinger.policy.who import MAX_EMAIL_STARS, MAX_VALUE_CHARACTERS, UnusableSelector, parse_selector
from wharfinger.protocol.principal import ANONYMOUS, LOCAL, Principal


def applies(selector: str, subject: str = "ann", **claims: Any) -> bool:
    return parse_selector(selector).applies_to(Principal(subject=subject, claims=claims))


def test_an_email_pattern_without_a_domain_may_have_32_stars() -> None:
    selector = parse_selector("email:" + "*a" * MAX_EMAIL_STARS)
    email = "a" * (MAX_EMAIL_STARS - 1) + "@a"
    assert selector.applies_to(Principal(subject="ann", claims={"email": email, "email_verified": True}))
    parse_selector("email:" + "*a" * (MAX_EMAIL_STARS + 1) + "@corp")


@given(universe.who, st.sampled_from(universe.PRINCIPALS))
def test_selectors_match_the_principals_that_the_oracle_selects(selector: str, who: Principal) -> None:
    assert parse_selector(selector).applies_to(who) == oracle.selector_applies(selector, who)


@pytest.mark.parametrize(
    ("selector", "matched"),
    [
        ("anyone", {"local", "anonymous", "ann"}),
        ("signed-in", {"ann"}),
        ("local", {"local"}),
        ("sub:*", {"ann"}),
        ("sub:local", set()),  # LOCAL has no token
        ("sub:ann", {"ann"}),
        ("claim.groups:*", set()),
    ],
)
def test_only_a_token_makes_a_caller_signed_in(selector: str, matched: set[str]) -> None:
    callers = {"local": LOCAL, "anonymous": ANONYMOUS, "ann": Principal(subject="ann")}
    assert {name for name, who in callers.items() if parse_selector(selector).applies_to(who)} == matched


def test_a_subject_named_local_is_not_the_local_caller() -> None:
    assert not parse_selector("local").applies_to(Principal(subject="local"))
    assert parse_selector("sub:local").applies_to(Principal(subject="local"))


@pytest.mark.parametrize(
    ("verified", "expected"), [(True, True), (False, False), ("true", False), (1, False), (None, False)]
)
def test_email_counts_only_if_verified(verified: Any, expected: bool) -> None:
    assert applies("email:*@a.example", email="ann@a.example", email_verified=verified) is expected


def test_case_matters_in_the_local_part_of_an_email_and_not_in_its_domain() -> None:
    assert applies("email:*@A.example", email="ann@a.EXAMPLE", email_verified=True)
    assert applies("email:ann@a.example", email="ann@A.example", email_verified=True)
    assert not applies("email:ann@a.example", email="Ann@a.example", email_verified=True)


def test_the_local_part_of_a_pattern_without_an_at_sign_keeps_its_case() -> None:
    """A bug: `email:Ann*` matched nobody, so that a denial had no effect."""
    assert applies("email:Ann*", email="Ann.B@a.example", email_verified=True)
    assert not applies("email:Ann*", email="ann.b@a.example", email_verified=True)
    assert applies("email:*A.Example", email="ann@a.example", email_verified=True)
    assert applies("email:Ann*A.Example", email="Ann@a.example", email_verified=True)


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("*Corp*", "ann@Corp.example", True),
        ("*Corp*", "ann@it.corp.example", True),
        ("*Corp*", "Corp.X@a.example", True),
        ("*Corp*", "corp.x@a.example", False),
        ("Ann*Corp*", "Ann.B@corp.example", True),
        ("Ann*Corp*", "ann.b@corp.example", False),
        ("*Ann*Corp*", "x@ann.corp.example", True),
        ("*Ann*Corp*", "x.Ann@corp.example", True),
        ("*Ann*Corp*", "x.ann@corp.example", False),
        ("*Corp**", "ann@corp.example", True),
        ("*[Corp]*", "ann@[corp]", True),
        ("*Corp*", "ann@c", False),
    ],
)
def test_the_middle_part_of_a_pattern_matches_a_domain_in_any_case(pattern: str, address: str, expected: bool) -> None:
    """A bug: `email:*Corp*` did not match the domain `corp.example`, so that a denial had no effect."""
    assert applies(f"email:{pattern}", email=address, email_verified=True) is expected


def test_the_value_of_a_claim_may_be_a_url() -> None:
    """A bug: such a selector was refused as not known."""
    assert applies("claim.site:https://a.example/x", site="https://a.example/x")
    assert applies("claim.site:https://a.example:8443/*", site="https://a.example:8443/x")
    assert applies("claim.https://a.example/site:https://b.example", **{"https://a.example/site": "https://b.example"})


@pytest.mark.parametrize(
    "address", ["ann@a.example.evil", "a.example", "ann@evil-a.example", "ann@b.example", "", None]
)
def test_email_of_another_domain_does_not_match(address: Any) -> None:
    assert not applies("email:*@a.example", email=address, email_verified=True)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (["staff"], True),
        (("tea", "staff"), True),
        ("staff", True),
        ("staff tea", False),  # a string is one group, and is not split
        ("staffing", False),
        ([["staff"]], False),
        ([{"name": "staff"}], False),
        ({"staff": True}, False),
        ({"groups": ["staff"]}, False),
        ([], False),
        (None, False),
        ([None, 3, "staff"], True),
    ],
)
def test_groups_are_a_string_or_a_list_of_strings(groups: Any, expected: bool) -> None:
    assert applies("group:staff", groups=groups) is expected


@pytest.mark.parametrize(
    ("selector", "value", "expected"),
    [
        ("claim.team:blue", "blue", True),
        ("claim.team:blue", ["red", "blue"], True),
        ("claim.team:b*", "blue", True),
        ("claim.team:true", True, True),
        ("claim.team:1", True, False),
        ("claim.team:7", 7, True),
        ("claim.team:7", 7.0, False),
        ("claim.team:*", {"blue": 1}, False),
        ("claim.team:*", [[["blue"]]], False),
        ("claim.team:*", 10**4000, False),
        ("claim.team:nan", float("nan"), True),
        ("claim.https://a.example/team:blue", "blue", False),
    ],
)
def test_claims_are_compared_as_strings(selector: str, value: Any, expected: bool) -> None:
    assert applies(selector, team=value) is expected


def test_name_of_a_claim_may_be_a_url() -> None:
    assert applies("claim.https://a.example/team:blue", **{"https://a.example/team": "blue"})
    assert not applies("claim.https://a.example/team:blue", https="//a.example/team:blue")
    assert applies("claim.https://a.example:8443/team:blue", **{"https://a.example:8443/team": "blue"})
    assert applies("claim.https://a.example:8443/x", **{"https://a.example": "8443/x"})


def test_stars_are_the_only_wildcards_in_subjects() -> None:
    assert applies("sub:auth0|a?[b]", subject="auth0|a?[b]")
    assert not applies("sub:a?c*", subject="abcd")
    assert not applies("sub:[ab]*", subject="a")
    assert applies("sub:[ab]*", subject="[ab]c")


def test_claim_of_a_hundred_thousand_values_is_read_once_for_all_selectors() -> None:
    class CountingClaims(dict[str, Any]):
        reads = 0

        def get(self, key: str, default: Any = None) -> Any:
            CountingClaims.reads += key == "groups"
            return super().get(key, default)

    groups = [f"g{number}" for number in range(100_000)]
    principal = Principal(subject="ann", claims=CountingClaims(groups=groups))
    known: dict[str, frozenset[str]] = {}
    for number in range(1_000):
        assert parse_selector(f"group:g{number}").applies_to(principal, known)
        assert not parse_selector(f"group:h{number}").applies_to(principal, known)
    assert CountingClaims.reads == 1


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("", "write one of anyone"),
        ("everyone", "write one of anyone"),
        ("anyon", "did you mean 'anyone'"),
        ("signed_in", "did you mean 'signed-in'"),
        ("groups:staff", "did you mean 'group'"),
        ("Sub:ann", "did you mean 'sub'"),
        ("sub", "sub:…"),
        ("sub:", "sub:…"),
        ("claim.:x", "claim.NAME:…"),
        ("claim.team", "claim.NAME:…"),
        ("scope:a b", "has a space, so no token has it"),
        ("sub:" + "a" * (MAX_VALUE_CHARACTERS + 1), "longer than 1,000 characters"),
        ("email:" + "*a" * (MAX_EMAIL_STARS + 1), "more than 32 `*`: write the `@`"),
    ],
)
def test_unusable_selectors_are_refused_with_a_hint(selector: str, message: str) -> None:
    with pytest.raises(UnusableSelector, match="who = ") as raised:
        parse_selector(selector)
    assert message in str(raised.value)


@given(st.text(max_size=30))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    for selector in (text, f"sub:{text}", f"claim.{text}:a"):
        try:
            parse_selector(selector).applies_to(Principal(subject="ann", claims={"a": text}))
        except UnusableSelector as error:
            assert str(error)
