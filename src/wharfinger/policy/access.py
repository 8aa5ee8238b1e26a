"""`RuleAccess`: the rules that apply to one principal, compiled for fast decisions.

Reading a list asks about each of its URIs, most of which are in the same few directories. So the positions of all
patterns after a directory are remembered (`_places`), and a URI costs one more step of those patterns that can still
match there. Rules about other directories cost nothing, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from wharfinger.content.globs import Matcher
from wharfinger.policy.patterns import Segments, TargetPattern, has_unusual_character, segments_below, segments_of
from wharfinger.protocol.interfaces import Decision

__all__ = ["CompiledRule", "RuleAccess"]

MAX_PLACES = 4_096
"""Most directories whose positions are remembered."""
MAX_DECISIONS = 16_384
"""Most decisions that are remembered."""
MAX_REMEMBERED_CHARACTERS = 512
"""Longer URIs are decided each time, so that a caller cannot fill the memory with them."""


class CompiledRule(NamedTuple):
    """One rule that applies to a principal, or would if the token had `missing_scopes`."""

    id: str
    denies: bool
    actions: frozenset[str]
    patterns: Sequence[TargetPattern]
    missing_scopes: tuple[str, ...] = ()


class _Candidate(NamedTuple):
    """A pattern that may still match below a directory, and its positions there."""

    rule: CompiledRule
    pattern: TargetPattern
    positions: int


_Place = tuple[_Candidate, ...]

REFUSED = Decision(False)


class RuleAccess:
    """What one principal may do by the rules that apply to it; see `protocol.interfaces.Access`."""

    def __init__(self, key: str, rules: Sequence[CompiledRule], is_public: Callable[[str], bool]) -> None:
        self.key = key
        self.rules = rules
        self.is_public = is_public
        self._names = [
            _Candidate(rule, pattern, pattern.first)
            for rule in rules
            for pattern in rule.patterns
            if pattern.kind != "uri"
        ]
        self._top: _Place = tuple(
            _Candidate(rule, pattern, pattern.first)
            for rule in rules
            for pattern in rule.patterns
            if pattern.kind in ("uri", "any")
        )
        self._places: dict[Segments, _Place] = {(): self._top}
        self._decisions: dict[tuple[str, str], Decision] = {}

    def decide(self, action: str, target: str) -> Decision:
        """Decide about one action on a URI, or on `tool:NAME` or `prompt:NAME`."""
        known = self._decisions.get((action, target))
        if known is not None:
            return known
        decision = self._decide_name(action, target) if action in ("call", "prompt") else self._decide(action, target)
        if len(target) <= MAX_REMEMBERED_CHARACTERS:
            if len(self._decisions) >= MAX_DECISIONS:
                self._decisions.clear()
            self._decisions[action, target] = decision
        return decision

    def allows(self, action: str, target: str) -> bool:
        """Return whether `decide` allows it."""
        return self.decide(action, target).allowed

    def may_read_below(self, prefix: str) -> bool:
        """Return whether any URI that begins with a text may be allowed."""
        place = self._place_of(prefix)
        if any(rule.denies and "read" in rule.actions and pattern.covers(at) for rule, pattern, at in place):
            return False
        rules = [one.rule for one in place]
        return any(not rule.denies and not rule.missing_scopes and "read" in rule.actions for rule in rules)

    def reads_all_below(self, prefix: str) -> bool:
        """Return whether every URI that begins with a text is allowed."""
        covered = False
        for rule, pattern, at in self._place_of(prefix):
            if "read" in rule.actions:
                if rule.denies:
                    return False
                covered = covered or (not rule.missing_scopes and pattern.covers(at))
        return covered

    def readable_names(self, prefix: str) -> Callable[[str], bool]:
        """Return a function that returns whether an entry of a directory may be read, by its decoded name.

        It decides like `allows`, but in a fraction of the time: the list of a directory with 100,000 files asks it
        about each of them.
        """
        allowed, denied = _NameTests(), _NameTests()
        for rule, pattern, at in self._place_of(prefix):
            if "read" in rule.actions and (rule.denies or not rule.missing_scopes):
                (denied if rule.denies else allowed).add(pattern, at)
        if denied.all or not (allowed.all or allowed.names or allowed.matchers):
            return _refuses_all
        unusual = has_unusual_character
        if not denied.names and not denied.matchers:
            allows = allowed.test()
            return lambda name: not unusual(name) and allows(name)
        allows, denies = allowed.test(), denied.test()
        return lambda name: not unusual(name) and allows(name) and not denies(name)

    def _place_of(self, prefix: str) -> _Place:
        if not prefix:
            return self._top
        segments = segments_below(prefix)
        return () if segments is None else self._place(segments)

    def _decide(self, action: str, uri: str) -> Decision:
        segments = segments_of(uri)
        if segments is None:
            return REFUSED
        last = segments[-1]
        matching = (
            rule
            for rule, pattern, at in self._place(segments[:-1])
            if action in rule.actions and pattern.step(at, last) & pattern.final
        )
        return _decision(matching)

    def _decide_name(self, action: str, target: str) -> Decision:
        kind, _, name = target.partition(":")
        matching = (
            rule
            for rule, pattern, at in self._names
            if action in rule.actions
            and (pattern.kind == "any" or (pattern.kind == kind and pattern.step(at, name) & pattern.final))
        )
        return _decision(matching)

    def _place(self, segments: Segments) -> _Place:
        """Return the patterns that may match below these segments."""
        place = self._places.get(segments)
        if place is not None:
            return place
        place = self._place(segments[:-1])
        last = segments[-1]
        place = tuple(
            _Candidate(rule, pattern, after) for rule, pattern, at in place if (after := pattern.step(at, last))
        )
        if sum(map(len, segments)) <= MAX_REMEMBERED_CHARACTERS:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
                self._places[()] = self._top
            self._places[segments] = place
        return place


class _NameTests:
    """The tests of the last segment of URIs in one directory."""

    def __init__(self) -> None:
        self.all = False
        self.names: set[str] = set()
        self.matchers: list[Matcher] = []

    def add(self, pattern: TargetPattern, positions: int) -> None:
        """Add what a pattern at these positions matches with one more segment."""
        for item in pattern.last_items(positions):
            if item is None:
                self.all = True
            elif isinstance(item, str):
                self.names.add(item)
            else:
                self.matchers.append(item)

    def test(self) -> Callable[[str], bool]:
        """Return a function that returns whether a name passes any of the tests."""
        if self.all:
            return lambda name: True
        names, matchers = self.names, self.matchers
        if not matchers:
            return names.__contains__
        if len(matchers) == 1 and not names:
            return matchers[0]
        return lambda name: name in names or any(matches(name) for matches in matchers)


def _refuses_all(name: str) -> bool:
    return False


def _decision(matching: Iterable[CompiledRule]) -> Decision:
    """Return the decision of the rules that match: a denial wins, then the first that allows."""
    allowed: Decision | None = None
    missing: tuple[str, ...] = ()
    for rule in matching:
        if rule.denies:
            return Decision(False, rule.id)
        if rule.missing_scopes:
            missing = missing or rule.missing_scopes
        elif allowed is None:
            allowed = Decision(True, rule.id)
    if allowed is not None:
        return allowed
    return Decision(False, "", missing) if missing else REFUSED
