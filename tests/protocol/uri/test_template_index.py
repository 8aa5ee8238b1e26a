"""Which template a URI belongs to: the most specific one, in little time, whatever the order of registration."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import permutations

import pytest

from wharfinger.protocol.uri.template import InvalidTemplate
from wharfinger.protocol.uri.template_index import FEW, AmbiguousTemplate, TemplateIndex

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
FINDS = {
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
        assert {uri: (index.find(uri) or ("",))[0] for uri in FINDS} == FINDS


def test_nothing_is_found_where_nothing_matches() -> None:
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
    ],
)
def test_equally_specific_templates_are_refused_by_name(one: str, other: str) -> None:
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
def test_templates_that_cannot_match_the_same_uri_live_together(one: str, other: str) -> None:
    index: TemplateIndex[int] = TemplateIndex()
    index.add(one, 1)
    index.add(other, 2)
    assert len(index) == 2


def test_a_removed_template_is_gone_and_may_come_back() -> None:
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
def test_finding_among_a_thousand_takes_less_than_a_tenth_of_a_millisecond(
    build: Callable[[int], str], uri: str
) -> None:
    index: TemplateIndex[int] = TemplateIndex()
    for number in range(1000):
        index.add(build(number), number)
    assert (index.find(uri) or (None,))[0] == 999
    times: list[float] = []
    for _ in range(200):
        start = time.perf_counter()
        index.find(uri)
        times.append(time.perf_counter() - start)
    assert sorted(times)[100] < 1e-4


ALIKE = [
    *(f"a://x/{{v}}/n{i}" for i in range(FEW + 1)),
    *(f"a://y/{{v}}/n{i}" for i in range(FEW)),
    "a://x/{v}", "a://x/{v}/{w}", "a://x/{+p}", "a://{v}/{w}/n1", "a://{+p}", "a://x/n1/{v}", "{s}://x/{v}", "{+p}",
]  # fmt: skip
"""Some beginnings of so many templates that the tree is asked, some of fewer."""


@pytest.mark.parametrize("removed", [None, "a://x/{v}/n0", "a://{+p}"])
def test_many_and_few_that_begin_alike_are_found_as_if_each_were_tried(removed: str | None) -> None:
    index: TemplateIndex[str] = TemplateIndex()
    for text in ALIKE:
        index.add(text, text)
    if removed is not None:
        index.remove(removed)
    ranked = sorted((entry for entry in index._entries.values()), key=lambda entry: entry.rank)
    first = ["a://", "a://x/", "a://y/", "b://x/", "z"]
    last = ["", "n1", "v", "v/n1", "v/n8", "n1/n1", "v/w/n1", "v/n99", "../n1", "v%2Fn1"]
    for uri in (begin + end for begin in first for end in last):
        one_by_one = ((entry.value, entry.template.match(uri)) for entry in ranked)
        assert index.find(uri) == next((found for found in one_by_one if found[1] is not None), None), uri


def test_a_uri_of_many_segments_is_refused_in_little_time() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    for number in range(100):
        index.add(f"a/{{x}}/{number}/{{y}}{{/z*}}", number)
    start = time.perf_counter()
    assert index.find("a/b/100" + "/c" * 50_000) is None
    assert time.perf_counter() - start < 0.1


def test_what_stands_before_a_query_tells_templates_apart_only_where_it_differs() -> None:
    index: TemplateIndex[int] = TemplateIndex()
    index.add("x://h/{v}-one{?w}", 1)
    index.add("x://h/{v}-two{?w}", 2)
    assert index.find("x://h/a-two?w=1") == (2, {"v": "a", "w": "1"})
    assert index.find("x://h/a-one") == (1, {"v": "a"})
    with pytest.raises(AmbiguousTemplate):
        index.add("x://h/{u}-two{?z}", 3)
