"""Parsing of `WWW-Authenticate` headers, including malformed headers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.auth.client.challenge import Challenge, bearer_challenge, parse_challenges

TOKENS = st.text("abcXYZ019-_.!~", min_size=1, max_size=12)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


@pytest.mark.parametrize(
    ("text", "challenges"),
    [
        ("Bearer", [Challenge("bearer", {})]),
        ('Bearer realm="a, b", scope="x y"', [Challenge("bearer", {"realm": "a, b", "scope": "x y"})]),
        ("BEARER Error=invalid_token", [Challenge("bearer", {"error": "invalid_token"})]),
        ('Bearer a = "1" ,b= 2', [Challenge("bearer", {"a": "1", "b": "2"})]),
        (
            'Basic realm="x", Bearer scope="s", DPoP algs="ES256"',
            [
                Challenge("basic", {"realm": "x"}),
                Challenge("bearer", {"scope": "s"}),
                Challenge("dpop", {"algs": "ES256"}),
            ],
        ),
        ("Negotiate YII+/=, Bearer", [Challenge("negotiate", {}), Challenge("bearer", {})]),
        (r'Bearer realm="say \"aye\" \\"', [Challenge("bearer", {"realm": 'say "aye" \\'})]),
        ('Bearer scope="one", scope="two"', [Challenge("bearer", {"scope": "one"})]),
        (
            "Bearer resource_metadata=https://example.com/.well-known/x",
            [Challenge("bearer", {"resource_metadata": "https://example.com/.well-known/x"})],
        ),
        ('Bearer scope="never closed', [Challenge("bearer", {})]),
        ("", []),
        (",,, ,", []),
        ("=", []),
    ],
)
def test_challenges_are_parsed(text: str, challenges: list[Challenge]) -> None:
    assert parse_challenges(text) == challenges


@given(st.lists(st.tuples(TOKENS, st.dictionaries(TOKENS.map(str.lower), VALUES, max_size=4)), max_size=4))
def test_formatted_challenges_are_parsed_to_the_same_values(challenges: list[tuple[str, dict[str, str]]]) -> None:
    text = ", ".join(
        f"{scheme} "
        + ", ".join(
            name + '="' + value.replace("\\", r"\\").replace('"', r"\"") + '"' for name, value in params.items()
        )
        for scheme, params in challenges
    )
    assert parse_challenges(text) == [Challenge(scheme.lower(), params) for scheme, params in challenges]


@given(st.text(max_size=200))
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    for challenge in parse_challenges(text):
        assert challenge.scheme
        assert challenge.scope is not None


@pytest.mark.parametrize("part", [" ", ",", "a ", 'a="', 'a="\\', "a=", "Bearer a ", 'b="c", ', "\t=\t"])
def test_the_time_to_parse_challenges_is_linear_in_their_length(part: str) -> None:
    start = time.thread_time()
    parse_challenges(part * 200_000)
    assert time.thread_time() - start < 1


def test_bearer_challenge_ignores_other_schemes() -> None:
    assert bearer_challenge("") == Challenge("bearer", {})
    assert bearer_challenge('Basic realm="x"') is None
    challenge = bearer_challenge('Basic realm="x", Bearer scope="b a b", error="insufficient_scope"')
    assert challenge is not None
    assert (challenge.scope, challenge.error, challenge.resource_metadata) == (("b", "a"), "insufficient_scope", None)
