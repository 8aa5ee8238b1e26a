"""URLs of pages: each has one spelling, and a scope covers those below the operator's URL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.policy.patterns import segments_of
from wharfinger.sources.web_pages import page_urls
from wharfinger.sources.web_pages.page_urls import Scope, normalized, resolved

BASE = "https://docs.example/guide/index.html"


@pytest.mark.parametrize(
    ("link", "url"),
    [
        ("install", "https://docs.example/guide/install"),
        ("../a/./b/", "https://docs.example/a/b/"),
        ("/", "https://docs.example/"),
        ("?page=2", "https://docs.example/guide/index.html?page=2"),
        ("#part", BASE),
        ("HTTPS://Docs.Example:443/A", "https://docs.example/A"),
        ("https://docs.example", "https://docs.example/"),
        ("/caf%c3%a9/%7Euser/a%20b", "https://docs.example/caf%C3%A9/~user/a%20b"),
        ("/café/a b", "https://docs.example/caf%C3%A9/a%20b"),
        ("/100%", "https://docs.example/100%25"),
        ("/a?q=[x]|y", "https://docs.example/a?q=%5Bx%5D%7Cy"),
        ("//other.example/x", "https://other.example/x"),
        ("https://docs.example/a/./b/../c", "https://docs.example/a/c"),
        ("//other.example/../a/..", "https://other.example/"),
        ("https://docs.example/a/../?b=../c", "https://docs.example/?b=../c"),
        ("https://docs.example//a/../b", None),
        ("https://docs.example/a/..//b", None),
        ("/a//b", None),
        ("/a/%2e%2e/b", None),
        ("/a%2Fb", None),
        ("/a%00b", None),
        ("/a\\b", None),
        ("javascript:alert(1)", None),
        ("mailto:a@docs.example", None),
        ("ftp://docs.example/", None),
        ("https://user:pass@docs.example/", None),
        ("https://[::1", None),
        ("https://docs.example:99999/", None),
        ("https://hárbour.example/", None),
    ],
)
def test_a_link_is_resolved_to_a_normalized_url_or_refused(link: str, url: str | None) -> None:
    assert resolved(link, BASE) == url


@given(st.text(max_size=60))
def test_a_resolved_url_is_normalized_and_usable_in_a_policy(link: str) -> None:
    url = resolved(link, BASE)
    if url is not None:
        assert segments_of(url) is not None
        assert normalized(url) == url


def test_overlong_urls_are_refused() -> None:
    prefix = "https://docs.example/"
    longest = prefix + "x" * (page_urls.MAX_URL_CHARACTERS - len(prefix))
    assert normalized(longest) == longest
    assert normalized(longest + "x") is None


@pytest.mark.parametrize(
    ("url", "covered"),
    [
        ("https://docs.example/guide/", True),
        ("https://docs.example/guide", True),
        ("https://docs.example/guide?x=1", True),
        ("https://docs.example/guide/a/b?x=/", True),
        ("https://docs.example/guidebook", False),
        ("https://docs.example/", False),
        ("https://docs.example/?/guide/", False),
        ("http://docs.example/guide/a", False),
        ("https://docs.example.evil.test/guide/a", False),
        ("https://docs.example:444/guide/a", False),
    ],
)
def test_a_scope_covers_the_paths_below_its_segments(url: str, covered: bool) -> None:
    assert Scope("https://docs.example", "/guide/").covers(url) is covered
