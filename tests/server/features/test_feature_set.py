"""One ordered set of features: stable pages during changes, fallbacks that are replaced, and speed at any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.conftest import examples
from wharfinger.protocol.request import Request
from wharfinger.server.features.feature_set import Features, MountedFeatures


@dataclass
class Named:
    definition: str


def features() -> tuple[Features[Named], list[int]]:
    changes: list[int] = []
    return Features("thing", lambda: changes.append(1)), changes


def names(some: Features[Named]) -> list[str]:
    return [feature.definition for feature in some]


def test_features_keep_the_order_of_their_registration() -> None:
    some, changes = features()
    for name in "cab":
        some.add(name, Named(name))
    assert (names(some), len(some), len(changes)) == (["c", "a", "b"], 3, 3)
    some.remove("a")
    some.add("a", Named("new"))
    assert (names(some), len(some), len(changes)) == (["c", "b", "new"], 3, 5)


def test_duplicate_and_unknown_names_are_refused_with_the_name() -> None:
    some, changes = features()
    some.add("a", Named("a"))
    with pytest.raises(ValueError, match="thing 'a' is registered already"):
        some.add("a", Named("b"))
    with pytest.raises(KeyError, match="no thing 'b'"):
        some.remove("b")
    assert (names(some), len(changes), some.version) == (["a"], 1, 1)


@pytest.mark.parametrize("first", ["fallback", "own"])
def test_a_fallback_is_replaced_in_any_order_of_registration(first: str) -> None:
    some, _ = features()
    for kind in (first, "own" if first == "fallback" else "fallback"):
        some.add("search", Named(kind), fallback=kind == "fallback")
    assert names(some) == ["own"]
    with pytest.raises(ValueError, match="is registered already"):
        some.add("search", Named("second own"))
    some.remove("search")
    some.add("search", Named("fallback"), fallback=True)
    assert names(some) == ["fallback"]


def test_pages_have_each_permanent_entry_once() -> None:
    some, _ = features()
    for number in range(7):
        some.add(str(number), Named(str(number)))
    page, key = some.page(0, 3)
    assert ([f.definition for _, f in page], key) == (["0", "1", "2"], 3)
    some.remove("2")
    some.remove("4")
    some.add("7", Named("7"))
    page, key = some.page(3, 3)
    assert [f.definition for _, f in page] == ["3", "5", "6"]
    assert key is not None
    assert ([f.definition for _, f in some.page(key, 3)[0]], some.page(key, 3)[1]) == (["7"], None)
    assert some.page(99, 3) == ([], None)


class Changing(RuleBasedStateMachine):
    """A list that is paged through while it changes, next to a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.features, _ = features()
        self.added = 0
        self.model: list[str] = []
        self.staying: set[str] = set()
        self.seen: list[str] = []
        self.key: int | None = 0

    @rule()
    def add(self) -> None:
        self.added += 1
        self.features.add(str(self.added), Named(str(self.added)))
        self.model.append(str(self.added))

    @rule(place=st.integers(0, 20))
    def remove(self, place: int) -> None:
        if self.model:
            name = self.model.pop(place % len(self.model))
            self.features.remove(name)
            self.staying.discard(name)

    @rule(limit=st.integers(1, 4))
    def turn(self, limit: int) -> None:
        if self.key is None:
            assert self.staying <= set(self.seen)
            self.key, self.seen = 0, []
        if self.key == 0:
            self.staying = set(self.model)
        page, self.key = self.features.page(self.key, limit)
        self.seen += [feature.definition for _, feature in page]
        assert len(set(self.seen)) == len(self.seen)

    @invariant()
    def same(self) -> None:
        assert names(self.features) == self.model


TestChanging = Changing.TestCase
TestChanging.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)


def test_a_disabled_feature_keeps_its_name_and_its_position() -> None:
    some, changes = features()
    for name in "abc":
        some.add(name, Named(name))
    some.disable("b")
    some.disable("b")
    assert (names(some), len(some), len(changes), some.is_disabled("b")) == (["a", "c"], 2, 4, True)
    assert "b" not in some.by_key
    with pytest.raises(ValueError, match="registered already"):
        some.add("b", Named("other"))
    _, key = some.page(0, 1)
    some.enable("b")
    some.enable("b")
    assert (names(some), len(changes), some.is_disabled("b")) == (["a", "b", "c"], 5, False)
    assert key is not None
    assert [f.definition for _, f in some.page(key, 9)[0]] == ["b", "c"]
    some.disable("a")
    some.remove("a")
    for refused in (some.enable, some.disable, some.remove):
        with pytest.raises(KeyError, match="no thing 'a'"):
            refused("a")


def test_a_disabled_fallback_is_replaced_too() -> None:
    some, _ = features()
    some.add("search", Named("fallback"), fallback=True)
    some.disable("search")
    some.add("search", Named("own"))
    assert names(some) == ["own"]
    assert not some.is_disabled("search")


class Part:
    """A mounted server with what sets of features use of it."""

    direct: ClassVar[dict[str, bool]] = {}

    def __init__(self, name: str = "part") -> None:
        self.name = name

    async def serve(self, request: Request, **own: Any) -> Any: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    def watch(self, uri: str | None) -> None: ...
    def unwatch(self, uri: str | None) -> None: ...


def mounted(whole: Features[Named], *parts: Features[Named]) -> None:
    for number, part in enumerate(parts):
        MountedFeatures(Part(f"part {number}"), part, whole, "whole", prefix=f"{number}_").show()


def test_each_change_of_a_mounted_server_changes_the_version_of_its_parent_once() -> None:
    (whole, changes), (part, _) = features(), features()
    mounted(whole, part)
    before = whole.version
    part.add("a", Named("a"))
    part.disable("a")
    part.disable("a")
    part.enable("a")
    part.enable("a")
    part.remove("a")
    part.add("b", Named("b"), fallback=True)
    part.add("b", Named("c"))
    part.add("b", Named("d"), fallback=True)
    assert whole.version - before == 6
    assert [key for key, _ in whole.items()] == ["0_b"]
    assert changes == []


def test_a_feature_that_one_server_refuses_is_added_to_none() -> None:
    (first, _), (second, _), (part, changes) = features(), features(), features()
    mounted(first, part)
    mounted(second, part)
    second.add("0_b", Named("own"))
    part.add("a", Named("a"))
    with pytest.raises(ValueError, match=r"'whole' and 'part 0' both have the thing '0_b'"):
        part.add("b", Named("b"))
    assert (names(part), part.has("b"), len(changes), names(first)) == (["a"], False, 1, ["a"])
    assert names(second) == ["own", "a"]
    second.remove("0_b")
    part.add("b", Named("b"))
    assert names(first) == names(second) == ["a", "b"]


def test_keys_are_listed_in_order_including_disabled_features() -> None:
    some, _ = features()
    for name in "abc":
        some.add(name, Named(name), fallback=name == "b")
    some.disable("a")
    assert list(some.taken()) == [("a", False), ("b", True), ("c", False)]
    assert [some.is_disabled(name) for name in "abx"] == [True, False, False]
    assert [some.has(name) for name in "abx"] == [True, True, False]
    for change in (some.disable, some.enable, some.remove):
        with pytest.raises(KeyError, match="no thing 'x'"):
            change("x")


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_pages_continue_at_their_end_and_the_last_has_no_position(limit: int) -> None:
    some, _ = features()
    for name in "abcd":
        some.add(name, Named(name))
    pages: list[list[str]] = []
    after: int | None = 0
    while after is not None:
        page, after = some.page(after, limit)
        pages.append([feature.definition for _, feature in page])
    assert [name for page in pages for name in page] == list("abcd")
    assert len(pages) == -(-4 // limit)
    assert some.page(0, 0) == ([], None)
