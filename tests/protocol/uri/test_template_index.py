"""TemplateIndex finds the most specific template of a URI, quickly and for any order of registration."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import permutations

import pytest

from wharfinger.protocol.uri.template import InvalidTemplate, UnmatchableTemplate
from wharfinger.protocol.uri.template_index import MAX_LINEAR_TEMPLATES, AmbiguousTemplate, TemplateIndex

TEMPLATES = [
    "log://{vessel}/today",
    "log://{vessel}/{day}",
    "log://mary/{day}",
    "log://{vessel}/{day}{?level}",
    "log://{+rest}",
    "{+anything}",
    "file:///charts/{+path}",
    "file:///charts{/path*}",
]
EXPECTED = {
    "log://mary/today": "log://mary/{day}",
    "log://anne/today": "log://{vessel}/today",
    "log://anne/monday": "log://{vessel}/{day}",
    "log://anne/monday?level=3": "log://{vessel}/{day}{?level}",
    "log://anne/monday/noon": "log://{+rest}",
    "log://": "log://{+rest}",
    "other": "{+anything}",
    "file:///charts/a/b": "file:///charts/{+path}",
    "file:///charts": "file:///charts{/path*}",
}


def test_the_most_specific_template_wins_in_any_order() -> None:
    for order in permutations(TEMPLATES[:5]):
        index: TemplateIndex[str] = TemplateIndex()
        for text in [*order, *TEMPLATES[5:]]:
            index.add(text, text)
        assert {uri: (index.find(uri) or ("",))[0] for uri in EXPECTED} == EXPECTED


def test_a_uri_without_a_matching_template_is_not_found() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    assert index.find("a") is None
    index.add("log://{v}", 1)
    assert index.find("log://%FF") is None
    assert index.find("log://a/b") is None
    assert index.find("log://a") == (1, {"v": "a"})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("log://{a}/today", "log://{b}/today"),
        ("a://{x}/b/{y}", "a://{x}/{y}/c"),
        ("x/{+a}", "x/{+b}"),
        ("x{?a}", "x{?b}"),
        ("x{/a*}", "x{/b*}"),
        ("ü/{x}", "%C3%BC/{y}"),
        ("{a}-{b}", "{c}-{d}"),
        ("x/{a}/b/c/{d}", "x/{a}/b/{c}/f"),
    ],
)
def test_equally_specific_templates_are_refused_with_both_texts(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        index: TemplateIndex[int] = TemplateIndex()
        index.add(first, 1)
        with pytest.raises(AmbiguousTemplate) as caught:
            index.add(second, 2)
        assert caught.value.texts == (first, second)
        assert first in str(caught.value) and second in str(caught.value)
        assert len(index) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("log://{a}/x", "log://{a}/y"),
        ("{a}.json", "{a}.html"),
        ("x/{a}/b{?q}", "x/{a}/c{?q}"),
        ("x/{a}/b{/p*}", "x/{a}/c{/p*}"),
    ],
)
def test_templates_that_cannot_match_the_same_uri_coexist(one: str, other: str) -> None:
    index: TemplateIndex[int] = TemplateIndex()
    index.add(one, 1)
    index.add(other, 2)
    assert len(index) == 2


def test_a_removed_template_can_be_added_again() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    index.add("a/{x}/b", 1)
    index.add("a/{x}", 2)
    assert index.remove("a/{x}/b") == 1
    assert index.find("a/1/b") is None
    assert index.find("a/1") == (2, {"x": "1"})
    index.add("a/{y}/b", 3)
    assert index.find("a/1/b") == (3, {"y": "1"})
    assert [template.text for template, _ in index] == ["a/{x}", "a/{y}/b"]
    assert (index.get("a/{x}"), index.get("a/{z}")) == (2, None)
    with pytest.raises(KeyError):
        index.remove("a/{x}/b")


@pytest.mark.parametrize("allow_ambiguous", [False, True])
def test_the_text_of_a_template_is_added_only_once(allow_ambiguous: bool) -> None:
    """A bug: if ambiguous templates were allowed, the first value was found even after the template was removed."""
    index: TemplateIndex[int] = TemplateIndex()
    index.add("a/{x}", 1)
    with pytest.raises(AmbiguousTemplate):
        index.add("a/{x}", 2, allow_ambiguous=allow_ambiguous)
    assert (index.get("a/{x}"), index.find("a/1"), len(index)) == (1, (1, {"x": "1"}), 1)
    assert index.remove("a/{x}") == 1
    assert index.find("a/1") is None


def test_template_that_matches_in_several_ways_is_refused() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    for allow_ambiguous in (False, True):
        with pytest.raises(UnmatchableTemplate, match=r"'a://\{a\}\{b\}' can be read in several ways"):
            index.add("a://{a}{b}", 1, allow_ambiguous=allow_ambiguous)
    assert len(index) == 0 and index.find("a://xy") is None


def test_an_invalid_template_is_refused() -> None:
    with pytest.raises(InvalidTemplate):
        TemplateIndex[int]().add("a{", 1)


SHAPES: list[tuple[str, Callable[[int], str], str]] = [
    ("beginning", lambda i: f"log://a{i}/{{v}}", "log://a999/x"),
    ("end", lambda i: f"log://{{v}}/a{i}", "log://x/a999"),
    ("middle", lambda i: f"log://{{v}}/a{i}/{{w}}", "log://x/a999/y"),
    ("query", lambda i: f"log://{{v}}/a{i}{{?w}}", "log://x/a999?w=1"),
    ("mixed", lambda i: f"s{i % 10}://h{i % 7}/{{v}}/a{i}{{/p*}}{{?w}}", "s9://h5/x/a999/s/d?w=1"),
]


@pytest.mark.parametrize(("build", "uri"), [pytest.param(*row[1:], id=row[0]) for row in SHAPES])
def test_finding_one_of_a_thousand_templates_takes_less_than_0_1_ms(build: Callable[[int], str], uri: str) -> None:
    index: TemplateIndex[int] = TemplateIndex()
    for number in range(1000):
        index.add(build(number), number)
    assert (index.find(uri) or (None,))[0] == 999
    times: list[float] = []
    for _ in range(200):
        start = time.thread_time()
        index.find(uri)
        times.append(time.thread_time() - start)
    assert sorted(times)[100] < 1e-4


SIMILAR = [
    *(f"a://x/{{v}}/n{i}" for i in range(MAX_LINEAR_TEMPLATES + 1)),
    *(f"a://y/{{v}}/n{i}" for i in range(MAX_LINEAR_TEMPLATES)),
    "a://x/{v}", "a://x/{v}/{w}", "a://x/{+p}", "a://{v}/{w}/n1", "a://{+p}", "a://x/n1/{v}", "{s}://x/{v}", "{+p}",
]  # fmt: skip
"""Some prefixes have enough templates for a search in the tree, and some have fewer."""


@pytest.mark.parametrize("removed", [None, "a://x/{v}/n0", "a://{+p}"])
def test_the_index_finds_the_same_template_as_a_linear_search(removed: str | None) -> None:
    index: TemplateIndex[str] = TemplateIndex()
    for text in SIMILAR:
        index.add(text, text)
    if removed is not None:
        index.remove(removed)
    ranked = sorted((entry for entry in index._entries.values()), key=lambda entry: entry.rank)
    prefixes = ["a://", "a://x/", "a://y/", "b://x/", "z"]
    suffixes = ["", "n1", "v", "v/n1", "v/n8", "n1/n1", "v/w/n1", "v/n99", "../n1", "v%2Fn1"]
    for uri in (prefix + suffix for prefix in prefixes for suffix in suffixes):
        matches = ((entry.value, entry.template.match(uri)) for entry in ranked)
        assert index.find(uri) == next((match for match in matches if match[1] is not None), None), uri


def test_a_uri_with_many_segments_is_refused_in_bounded_time() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    for number in range(100):
        index.add(f"a/{{x}}/{number}/{{y}}{{/z*}}", number)
    start = time.thread_time()
    assert index.find("a/b/100" + "/c" * 50_000) is None
    assert time.thread_time() - start < 0.1


def test_templates_that_differ_only_in_their_variables_are_ambiguous() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    index.add("x://h/{v}-one{?w}", 1)
    index.add("x://h/{v}-two{?w}", 2)
    assert index.find("x://h/a-two?w=1") == (2, {"v": "a", "w": "1"})
    assert index.find("x://h/a-one") == (1, {"v": "a"})
    with pytest.raises(AmbiguousTemplate):
        index.add("x://h/{u}-two{?z}", 3)


def test_an_index_whose_templates_are_removed_is_empty() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    texts = ["a/{x}/b", "a/{x}", "a/b/{x}", "a/b/{+x}", "{x}/c", "a/{x}-c", "lone", ""]
    for number, text in enumerate(texts):
        index.add(text, number)
    assert index.remove("a/b/{x}") == 2
    assert index.find("a/b/c") == (3, {"x": "c"})
    assert index.find("a/1/b") == (0, {"x": "1"})
    assert index._lengths == sorted({len(prefix) for prefix in index._by_prefix}, reverse=True) == [4, 2, 0]
    for text in texts:
        if text != "a/b/{x}":
            index.remove(text)
    assert (len(index), index._by_prefix, index._lengths) == (0, {}, [])
    assert (index._root.children, index._root.entries) == ({}, {})


def test_removing_a_template_keeps_the_parts_that_others_share() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    index.add("a/{x}/b{?p}", 1)
    index.add("a/{x}/b{?p,q,r}", 2, allow_ambiguous=True)
    index.add("a/{x}/b{?p,s}", 3, allow_ambiguous=True)
    index.remove("a/{x}/b{?p,q,r}")
    assert index.find("a/1/b?s=2") == (3, {"x": "1", "s": "2"})
    assert index.find("a/1/b?p=2") == (1, {"x": "1", "p": "2"})
    assert index._root.children["a"].children[None].entries


def test_an_empty_template_matches_only_the_empty_uri() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    index.add("", 1)
    index.add("{+x}", 2)
    assert index.find("") == (1, {})
    assert index.find("a") == (2, {"x": "a"})


NUMBERED_TEMPLATES = [
    ("a/{v}/n%d", "a/v/n3", {"v": "v"}),
    ("a/{+v}/n%d", "a/v/w/n3", {"v": "v/w"}),
    ("a{/v}/n%d", "a/v/n3", {"v": "v"}),
    ("a{/v}/n%d", "a/n3", {}),
    ("a{/v*}/n%d", "a/v/w/n3", {"v": ["v", "w"]}),
    ("/{v}/n%d", "/v/n3", {"v": "v"}),
    ("{v}/n%d", "v/n3", {"v": "v"}),
    ("//{v}/n%d", "//v/n3", {"v": "v"}),
    ("a/{v}n%d", "a/vn3", {"v": "v"}),
    ("a/{v}/n%d/", "a/v/n3/", {"v": "v"}),
    ("a/{v}-x/n%d{?q}", "a/v-x/n3?q=/", {"v": "v", "q": "/"}),
]


@pytest.mark.parametrize("number", [1, MAX_LINEAR_TEMPLATES, MAX_LINEAR_TEMPLATES + 1, 3 * MAX_LINEAR_TEMPLATES])
@pytest.mark.parametrize(("pattern", "uri", "values"), NUMBERED_TEMPLATES)
def test_a_template_is_found_among_few_and_among_many(
    pattern: str, uri: str, values: dict[str, str], number: int
) -> None:
    index: TemplateIndex[int] = TemplateIndex()
    for n in range(3, 3 + number):
        index.add(pattern % n, n)
    assert index.find(uri) == (3, values)
    assert index.find(uri.replace("n3", "n2")) is None
    assert index.find(uri.replace("n3", "m3")) is None


def test_a_template_with_a_shorter_prefix_is_found_among_many_longer_ones() -> None:
    index: TemplateIndex[str] = TemplateIndex()
    for number in range(MAX_LINEAR_TEMPLATES + 1):
        index.add(f"a/b/{{v}}/n{number}", f"n{number}")
    index.add("a/{v}/{w}/x", "x")
    index.add("a/{v}/{w}{/rest*}", "rest")
    assert index.find("a/b/c/x") == ("x", {"v": "b", "w": "c"})
    assert index.find("a/b/c/n99") == ("rest", {"v": "b", "w": "c", "rest": ["n99"]})
    assert index.find("a/b/c/n1") == ("n1", {"v": "c"})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x/{a}-{b}one{?q}", "x/{a}one-{b}{?q}"),
        ("x/{v}-one{w}", "x/{v}-two{w}"),
        ("x/h{+c}/b/{a}", "x/h{+c}/{a}/b"),
    ],
)
def test_templates_that_look_different_but_match_one_uri_are_refused(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        index: TemplateIndex[int] = TemplateIndex()
        index.add(first, 1)
        with pytest.raises(AmbiguousTemplate):
            index.add(second, 2)
        index.add(second, 2, allow_ambiguous=True)
        assert len(index) == 2
