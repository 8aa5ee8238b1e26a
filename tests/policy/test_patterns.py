"""Patterns compared with the oracle, and non-canonical spellings of URIs."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.policy import oracle, universe
from wharfinger.policy.patterns import (
    MAX_PATTERN_CHARACTERS,
    MAX_SEGMENTS,
    MAX_URI_CHARACTERS,
    MAX_URI_SEGMENTS,
    UnusablePattern,
    parse_pattern,
    segments_below,
    segments_of,
)


@pytest.mark.parametrize(
    ("uri", "segments"),
    [
        ("file:///docs/a.md", ("file://", "", "docs", "a.md")),
        ("file:///docs/", ("file://", "", "docs")),
        ("file:///", ("file://", "")),
        ("file:///docs/a%20b.md", ("file://", "", "docs", "a b.md")),
        ("file:///docs/%25", ("file://", "", "docs", "%")),
        ("file:///docs/%252F", ("file://", "", "docs", "%2F")),
        ("file:///docs/é", ("file://", "", "docs", "é")),
        ("file:///docs/%C3%A9", ("file://", "", "docs", "é")),
        ("file:///docs/%FF", ("file://", "", "docs", "\udcff")),
        ("git://flask/HEAD/a.py?lines=1-2", ("git://", "flask", "HEAD", "a.py")),
        ("git://flask", ("git://", "flask")),
        ("note:today", ("note:", "today")),
        ("https://example.com/a", ("https://", "example.com", "a")),
        ("https://example.com:8443/a", ("https://", "example.com:8443", "a")),
        ("git://Flask/HEAD", ("git://", "Flask", "HEAD")),  # a label, not a host
    ],
)
def test_uri_is_split_into_decoded_segments(uri: str, segments: tuple[str, ...]) -> None:
    assert segments_of(uri) == segments


OTHER_SPELLINGS = {
    "file:///docs/a.md": [
        "FILE:///docs/a.md",
        "File:///docs/a.md",
        "file://localhost/docs/a.md",
        "file://LOCALHOST/docs/a.md",
        "file:/docs/a.md",
        "file:///docs//a.md",
        "file:////docs/a.md",
        "file:///docs/a.md//",
        "file:///./docs/a.md",
        "file:///docs/./a.md",
        "file:///docs/x/../a.md",
        "file:///docs/../docs/a.md",
        "file:///docs/a.md/.",
        "file:///docs/a.md/..",
        "file:///docs/%2e/a.md",
        "file:///docs/%2E/a.md",
        "file:///docs/x/%2E%2E/a.md",
        "file:///docs/x/.%2E/a.md",
        "file:///docs%2Fa.md",
        "file:///docs%2fa.md",
        "file:///docs\\a.md",
        "file:///docs%5Ca.md",
        "file:///docs%5ca.md",
        "file:///%64ocs/a.md",
        "file:///docs/%61.md",
        "file:///docs/a%2Emd",
        "file:///docs/a.md#x",
        "file:///docs/a.md#",
        "file:///docs/a.md%00",
        "file:///docs/a.md\0",
        "file:///docs/a.md ",
        " file:///docs/a.md",
        "file:///docs/a.md\n",
        "file:///docs/a.md\t",
        "file:///docs/a\r.md",
        "file:///docs/a.md%",
        "file:///docs/a.md%2",
        "file:///docs/a.md%zz",
    ],
    "file:///docs/%C3%A9.md": ["file:///docs/%c3%a9.md", "file:///docs/%C3%a9.md"],
    "https://example.com/a": [
        "HTTPS://example.com/a",
        "https://EXAMPLE.com/a",
        "https://example.com:443/a",
        "https://example.com:/a",
        "https://example.com:0443/a",
        "https://example.com./a",
        "https://ann@example.com/a",
        "https://ann:secret@example.com/a",
        "https://@example.com/a",
        "https://ex%61mple.com/a",
        "https://exa%6Dple.com/a",
        "https://example%2Ecom/a",
        "https:///a",
        "https:/a",
        "https:a//b",
        "https://éxample.com/a",
        "https://example.com//a",
    ],
    "http://example.com/a": ["http://example.com:80/a"],
    "http://[::1]:8080/a": [
        "http://[0:0:0:0:0:0:0:1]:8080/a",
        "http://[0::1]:8080/a",
        "http://[::0:1]:8080/a",
        "http://[::01]:8080/a",
        "http://[::0.0.0.1]:8080/a",
        "http://[::1:8080/a",
        "http://[1::2::3]:8080/a",
    ],
    "https://[2001:db8::a]/a": ["https://[2001:db8::A]/a", "https://[2001:db8:0::a]/a", "https://[2001:0db8::a]/a"],
    "http://127.0.0.1/a": ["http://[::ffff:127.0.0.1]/a", "http://[::ffff:7f00:1]/a"],
    "http://10.0.0.5:8080/a": [
        "http://167772165:8080/a",
        "http://10.5:8080/a",
        "http://0xa.0.0.5:8080/a",
        "http://10.0.0.0x5:8080/a",
        "http://012.0.0.5:8080/a",
        "http://10.0.0.005:8080/a",
    ],
    "wss://example.com/a": ["wss://example.com:443/a", "wss://Example.com/a"],
    "git://flask/HEAD/a.py": ["git://flask//HEAD/a.py", "git:/flask/HEAD/a.py", "git://flask/HEAD/x/../a.py"],
}


@pytest.mark.parametrize("uri", [other for others in OTHER_SPELLINGS.values() for other in others])
def test_a_non_canonical_spelling_has_no_segments(uri: str) -> None:
    assert segments_of(uri) is None


@pytest.mark.parametrize("uri", OTHER_SPELLINGS)
def test_canonical_spelling_has_segments(uri: str) -> None:
    assert segments_of(uri) is not None


def test_escapes_are_decoded_once() -> None:
    overlong = segments_of("file:///docs/%C0%AE%C0%AE/a.md")
    assert overlong == ("file://", "", "docs", "\udcc0\udcae\udcc0\udcae", "a.md")  # not "..", nor U+FFFD


@given(st.text(max_size=40))
@example("file:///a%2F..%2Fb")
def test_no_segment_is_empty_or_a_dot_or_has_a_separator(text: str) -> None:
    for uri in (text, f"file:///{text}", f"https://h/{text}"):
        segments = segments_of(uri)
        if segments is not None:
            for segment in segments[2:]:
                assert segment not in ("", ".", "..")
                assert not set("/\\\0") & set(segment)


@given(st.lists(st.sampled_from(["a", "..", ".", "", "%2E", "%2e%2E", "b", "%2F", "%61"]), max_size=6))
def test_uris_with_equal_targets_have_equal_segments_or_none(path: list[str]) -> None:
    resolved: list[str] = []
    for part in path:
        name = part.replace("%2E", ".").replace("%2e", ".").replace("%61", "a")
        if name == "..":
            resolved = resolved[:-1]
        elif name not in ("", "."):
            resolved += name.split("%2F")
    segments = segments_of("file:///" + "/".join(path))
    assert segments is None or list(segments[2:]) == [name for name in resolved if name]


def test_uri_is_bounded_in_characters_and_segments() -> None:
    start = "file:///"
    assert segments_of(start + "a" * (MAX_URI_CHARACTERS - len(start))) is not None
    assert segments_of(start + "a" * (MAX_URI_CHARACTERS - len(start) + 1)) is None
    assert segments_of(start + "/".join("a" * (MAX_URI_SEGMENTS - 2))) is not None
    assert segments_of(start + "/".join("a" * (MAX_URI_SEGMENTS - 1))) is None


@given(universe.patterns, st.sampled_from(universe.TARGETS))
@example("file:///a%2Ab", "file:///a*b")
@example("file:///a%2Ab", "file:///aab")
@example("file:///**/a/**", "file:///a")
@example("git://**", "git://a")
def test_patterns_match_as_the_oracle_does(pattern: str, target: str) -> None:
    compiled = parse_pattern(pattern)
    kind, _, name = target.partition(":")
    if kind in ("tool", "prompt"):
        found = compiled.kind == kind and compiled.matches((name,))
    else:
        segments = segments_of(target)
        assert segments is not None
        found = compiled.kind == "uri" and compiled.matches(segments)
    assert found == oracle.matches(pattern, target)


@pytest.mark.parametrize("special", ["?", "[ab]", "{a,b}", "!a", "a|b", "(a)", "a+", "^a", "$", "."])
def test_special_characters_of_other_pattern_languages_are_literal(special: str) -> None:
    exact, wild = parse_pattern(f"tool:{special}"), parse_pattern(f"tool:{special}*")
    assert exact.matches((special,))
    assert wild.matches((f"{special}x",))
    for other in ("a", "b", "x", "aa", "x*"):
        assert other == special or not exact.matches((other,))
        assert not wild.matches((other,))


def test_a_longer_or_shorter_segment_does_not_match() -> None:
    pattern = parse_pattern("file:///data/**")
    for uri in ("file:///data-evil/a", "file:///database", "file:///dat", "file:///DATA/a", "file:///x/data/a"):
        segments = segments_of(uri)
        assert segments is not None
        assert not pattern.matches(segments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1 to 1,000 characters"),
        ("a" * (MAX_PATTERN_CHARACTERS + 1), "1 to 1,000 characters"),
        ("docs/**", "begin with a scheme"),
        ("/srv/docs", "begin with a scheme"),
        ("*", "begin with a scheme"),
        ("*://a", "begin with a scheme"),
        ("File:///docs/**", "scheme in lower case"),
        ("file:///docs/**.md", "'**' must be a whole segment"),
        ("file:///a**", "'**' must be a whole segment"),
        ("file:///docs/../a", "in another way"),
        ("file:///docs//a", "in another way"),
        ("file:///docs/%2F", "in another way"),
        ("file:///docs/%c3%a9", "in another way"),
        ("file://localhost/docs/**", "in another way"),
        ("https://Example.com/**", "in another way"),
        ("https://example.com:443/**", "in another way"),
        ("http://[0:0:0:0:0:0:0:1]/**", "an IPv6 address in its shortest form"),
        ("file:///docs/a b", "in another way"),
        ("file:///docs/a?x=*", "without their query"),
        ("tool:", "has no name"),
        ("prompt://a", "begins with '/'"),
        ("file:///" + "a/" * MAX_SEGMENTS, "more than 64 segments"),
    ],
)
def test_unusable_patterns_are_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(UnusablePattern) as raised:
        parse_pattern(text)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 600


def test_longest_patterns_are_usable() -> None:
    assert parse_pattern("file:///" + "a" * (MAX_PATTERN_CHARACTERS - 8))
    assert parse_pattern("file:///" + "a/" * (MAX_SEGMENTS - 2))


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_refused_with_a_message(text: str) -> None:
    for pattern in (text, f"file:///{text}", f"tool:{text}"):
        try:
            parse_pattern(pattern)
        except UnusablePattern as error:
            assert str(error)


def test_no_name_follows_where_nothing_can_match() -> None:
    """A bug: without positions, the name of the last segment was returned."""
    pattern = parse_pattern("file:///docs/a.md")
    assert pattern.next_name(pattern.first) == "file://"
    assert pattern.next_name(0) is None
    assert pattern.next_name(pattern.final) is None


def test_many_stars_take_time_proportional_to_the_name() -> None:
    pattern = parse_pattern("tool:" + "*a" * 40 + "*b")
    started = time.thread_time()
    assert not pattern.matches(("a" * 10_000,))
    assert time.thread_time() - started < 5


@pytest.mark.parametrize(
    ("prefix", "segments"),
    [
        ("", ()),
        ("g", ()),
        ("git", ()),
        ("git:", ()),  # begins git:a and git://a
        ("git:/", ()),
        ("git://", ("git://",)),
        ("git://fla", ("git://",)),
        ("git://flask/", ("git://", "flask")),
        ("file:///", ("file://", "")),
        ("file:///docs/re", ("file://", "", "docs")),
        ("file:///docs/re?x=/y/z", ("file://", "", "docs", "re")),
        ("note:a", ("note:",)),
        ("G", None),
        ("GIT://", None),
        ("file:///docs/../", None),
        ("file:///docs//", None),
    ],
)
def test_prefix_of_a_uri_is_reduced_to_its_directory(prefix: str, segments: tuple[str, ...] | None) -> None:
    assert segments_below(prefix) == segments
