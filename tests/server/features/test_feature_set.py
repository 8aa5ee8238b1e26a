"""Ordered sets of features: pages that are stable during changes, fallbacks, and mounted sets."""

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
class StubFeature:
    definition: str


def make_features() -> tuple[Features[StubFeature], list[int]]:
    changes: list[int] = []
    return Features("thing", lambda: changes.append(1)), changes


def names(features: Features[StubFeature]) -> list[str]:
    return [feature.definition for feature in features]


def test_features_keep_the_order_of_their_registration() -> None:
    features, changes = make_features()
    for name in "cab":
        features.add(name, StubFeature(name))
    assert (names(features), len(features), len(changes)) == (["c", "a", "b"], 3, 3)
    features.remove("a")
    features.add("a", StubFeature("new"))
    assert (names(features), len(features), len(changes)) == (["c", "b", "new"], 3, 5)


def test_duplicate_and_unknown_names_are_refused_with_the_name() -> None:
    features, changes = make_features()
    features.add("a", StubFeature("a"))
    with pytest.raises(ValueError, match="thing 'a' is registered already"):
        features.add("a", StubFeature("b"))
    with pytest.raises(KeyError, match="no thing 'b'"):
        features.remove("b")
    assert (names(features), len(changes), features.version) == (["a"], 1, 1)


@pytest.mark.parametrize("first", ["fallback", "own"])
def test_a_fallback_is_replaced_in_any_order_of_registration(first: str) -> None:
    features, _ = make_features()
    for kind in (first, "own" if first == "fallback" else "fallback"):
        features.add("search", StubFeature(kind), fallback=kind == "fallback")
    assert names(features) == ["own"]
    with pytest.raises(ValueError, match="is registered already"):
        features.add("search", StubFeature("second own"))
    features.remove("search")
    features.add("search", StubFeature("fallback"), fallback=True)
    assert names(features) == ["fallback"]


def test_pages_have_each_permanent_feature_once() -> None:
    features, _ = make_features()
    for number in range(7):
        features.add(str(number), StubFeature(str(number)))
    page, key = features.page(0, 3)
    assert ([f.definition for _, f in page], key) == (["0", "1", "2"], 3)
    features.remove("2")
    features.remove("4")
    features.add("7", StubFeature("7"))
    page, key = features.page(3, 3)
    assert [f.definition for _, f in page] == ["3", "5", "6"]
    assert key is not None
    assert ([f.definition for _, f in features.page(key, 3)[0]], features.page(key, 3)[1]) == (["7"], None)
    assert features.page(99, 3) == ([], None)


class FeatureSetMachine(RuleBasedStateMachine):
    """Reads the pages of a feature set while it changes, and compares it with a list."""

    def __init__(self) -> None:
        super().__init__()
        self.features, _ = make_features()
        self.added_count = 0
        self.model: list[str] = []
        self.permanent: set[str] = set()
        self.read_names: list[str] = []
        self.key: int | None = 0

    @rule()
    def add(self) -> None:
        self.added_count += 1
        self.features.add(str(self.added_count), StubFeature(str(self.added_count)))
        self.model.append(str(self.added_count))

    @rule(index=st.integers(0, 20))
    def remove(self, index: int) -> None:
        if self.model:
            name = self.model.pop(index % len(self.model))
            self.features.remove(name)
            self.permanent.discard(name)

    @rule(limit=st.integers(1, 4))
    def read_page(self, limit: int) -> None:
        if self.key is None:
            assert self.permanent <= set(self.read_names)
            self.key, self.read_names = 0, []
        if self.key == 0:
            self.permanent = set(self.model)
        page, self.key = self.features.page(self.key, limit)
        self.read_names += [feature.definition for _, feature in page]
        assert len(set(self.read_names)) == len(self.read_names)

    @invariant()
    def feature_set_equals_its_model(self) -> None:
        assert names(self.features) == self.model


TestFeatureSet = FeatureSetMachine.TestCase
TestFeatureSet.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)


def test_a_disabled_feature_keeps_its_name_and_its_position() -> None:
    features, changes = make_features()
    for name in "abc":
        features.add(name, StubFeature(name))
    features.disable("b")
    features.disable("b")
    assert (names(features), len(features), len(changes), features.is_disabled("b")) == (["a", "c"], 2, 4, True)
    assert "b" not in features.by_key
    with pytest.raises(ValueError, match="registered already"):
        features.add("b", StubFeature("other"))
    _, key = features.page(0, 1)
    features.enable("b")
    features.enable("b")
    assert (names(features), len(changes), features.is_disabled("b")) == (["a", "b", "c"], 5, False)
    assert key is not None
    assert [f.definition for _, f in features.page(key, 9)[0]] == ["b", "c"]
    features.disable("a")
    features.remove("a")
    for change in (features.enable, features.disable, features.remove):
        with pytest.raises(KeyError, match="no thing 'a'"):
            change("a")


def test_a_disabled_fallback_is_replaced_too() -> None:
    features, _ = make_features()
    features.add("search", StubFeature("fallback"), fallback=True)
    features.disable("search")
    features.add("search", StubFeature("own"))
    assert names(features) == ["own"]
    assert not features.is_disabled("search")


class StubServer:
    """A mounted server with only the members that feature sets use."""

    direct: ClassVar[dict[str, bool]] = {}

    def __init__(self, name: str = "part") -> None:
        self.name = name

    async def serve(self, request: Request, **own: Any) -> Any: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    def watch(self, uri: str | None) -> None: ...
    def unwatch(self, uri: str | None) -> None: ...


def mount(parent: Features[StubFeature], *parts: Features[StubFeature]) -> None:
    for number, part in enumerate(parts):
        MountedFeatures(StubServer(f"part {number}"), part, parent, "parent", prefix=f"{number}_").show()


def test_each_change_of_a_mounted_server_changes_the_version_of_its_parent_once() -> None:
    (parent, changes), (part, _) = make_features(), make_features()
    mount(parent, part)
    before = parent.version
    part.add("a", StubFeature("a"))
    part.disable("a")
    part.disable("a")
    part.enable("a")
    part.enable("a")
    part.remove("a")
    part.add("b", StubFeature("b"), fallback=True)
    part.add("b", StubFeature("c"))
    part.add("b", StubFeature("d"), fallback=True)
    assert parent.version - before == 6
    assert [key for key, _ in parent.items()] == ["0_b"]
    assert changes == []


def test_a_feature_that_one_parent_refuses_is_not_added() -> None:
    (first, _), (second, _), (part, changes) = make_features(), make_features(), make_features()
    mount(first, part)
    mount(second, part)
    second.add("0_b", StubFeature("own"))
    part.add("a", StubFeature("a"))
    with pytest.raises(ValueError, match=r"'parent' and 'part 0' both have the thing '0_b'"):
        part.add("b", StubFeature("b"))
    assert (names(part), part.has("b"), len(changes), names(first)) == (["a"], False, 1, ["a"])
    assert names(second) == ["own", "a"]
    second.remove("0_b")
    part.add("b", StubFeature("b"))
    assert names(first) == names(second) == ["a", "b"]


def test_keys_are_listed_in_order_including_disabled_features() -> None:
    features, _ = make_features()
    for name in "abc":
        features.add(name, StubFeature(name), fallback=name == "b")
    features.disable("a")
    assert list(features.taken()) == [("a", False), ("b", True), ("c", False)]
    assert [features.is_disabled(name) for name in "abx"] == [True, False, False]
    assert [features.has(name) for name in "abx"] == [True, True, False]
    for change in (features.disable, features.enable, features.remove):
        with pytest.raises(KeyError, match="no thing 'x'"):
            change("x")


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_each_page_starts_after_the_previous_one_and_the_last_has_no_position(limit: int) -> None:
    features, _ = make_features()
    for name in "abcd":
        features.add(name, StubFeature(name))
    pages: list[list[str]] = []
    after: int | None = 0
    while after is not None:
        page, after = features.page(after, limit)
        pages.append([feature.definition for _, feature in page])
    assert [name for page in pages for name in page] == list("abcd")
    assert len(pages) == -(-4 // limit)
    assert features.page(0, 0) == ([], None)


def test_a_key_that_a_part_removed_is_shown_again_although_a_parent_had_hidden_it() -> None:
    """A bug: the parent hid the new feature, if the old one was that of the part's own part."""
    (parent, _), (middle, _), (part, _) = make_features(), make_features(), make_features()
    part.add("a", StubFeature("old"))
    mount(middle, part)
    mount(parent, middle)
    parent.remove("0_0_a")
    middle.remove("0_a")
    middle.add("0_a", StubFeature("new"))
    assert names(parent) == names(middle) == ["new"]
