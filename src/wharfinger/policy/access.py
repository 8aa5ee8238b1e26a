"""`RuleAccess`: the rules that apply to a principal, compiled for fast decisions.

A list asks about each of its URIs, most of which are in the same few directories. The patterns that can still match
below a directory are therefore remembered (`_Directory`), and for each URI in it only the last segment is compared:

- a pattern whose next segment is a plain name is found by that name in a dictionary;
- a pattern that matches everything below (`file:///docs/**`) is not compared, and of several such rules only the first
  of each kind is kept;
- only the others, such as `**/*.md`, are compared one by one.

Rules about other directories cost nothing, however many there are. The directories of all accesses of a policy share
one bounded memory: callers who ask for many URIs can make each other's decisions slower, but only by microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from wharfinger.content.globs import Matcher
from wharfinger.policy.patterns import Segments, TargetPattern, has_unusual_character, segments_below, segments_of
from wharfinger.protocol.interfaces import Decision

__all__ = ["CompiledRule", "Decisions", "RuleAccess"]

MAX_DECISIONS = 16_384
"""The maximum number of decisions that the accesses of a policy remember together."""
MAX_DIRECTORIES = 32_768
"""The maximum number of directories that are remembered for all accesses of a policy."""
MAX_REMEMBERED_CHARACTERS = 512
"""Longer URIs are not remembered, so that a caller cannot fill the memory with them."""


class CompiledRule(NamedTuple):
    """One rule that applies to a principal, or would if the token had `missing_scopes`."""

    id: str
    denies: bool
    actions: frozenset[str]
    patterns: Sequence[TargetPattern]
    missing_scopes: tuple[str, ...] = ()
    """All scopes that the rule needs, also those that the token has; empty if it lacks none. If the rule has several
    `scope:` selectors, one of which is enough, only one of their scopes is named."""


class _Candidate(NamedTuple):
    """A pattern that may still match below a directory, and its positions there."""

    number: int
    """The number of the rule: of several rules that decide in the same way, the one with the lowest number is named."""
    rule: CompiledRule
    pattern: TargetPattern
    positions: int


class _Directory:
    """The possible matches of one access's patterns at and below a directory."""

    __slots__ = ("_by_name", "_certain", "_elsewhere", "_others", "is_empty", "may_read", "reads_all")

    def __init__(self, candidates: Iterable[_Candidate]) -> None:
        self._by_name: dict[str, list[_Candidate]] = {}
        """The candidates whose next segment can only be this name."""
        self._others: list[_Candidate] = []
        """The other candidates that may match below."""
        self._elsewhere: _Directory | None = None
        """The directory after a segment that no candidate is about: as `**/x` in `a/`, which is the same in `a/b/`."""
        certain: dict[tuple[bool, frozenset[str], tuple[str, ...]], _Candidate] = {}
        allows = allows_all = denies = denies_all = False
        for candidate in candidates:
            _, rule, pattern, positions = candidate
            is_certain = pattern.covers(positions)
            if is_certain:
                kind = (rule.denies, rule.actions, rule.missing_scopes)
                if kind not in certain or candidate.number < certain[kind].number:
                    certain[kind] = candidate
            elif (name := pattern.next_name(positions)) is not None:
                self._by_name.setdefault(name, []).append(candidate)
            elif positions != pattern.final:  # otherwise it matches the directory itself, and nothing below it
                self._others.append(candidate)
            if "read" in rule.actions:
                if rule.denies:
                    denies = True
                    denies_all = denies_all or is_certain
                elif not rule.missing_scopes:
                    allows = True
                    allows_all = allows_all or is_certain
        self._certain = list(certain.values())
        """The candidates that match everything below: of those with equal effects, the first."""
        self.is_empty = not (certain or self._by_name or self._others)
        """Whether nothing below can match."""
        self.may_read = allows and not denies_all
        """Whether something below may be readable."""
        self.reads_all = allows_all and not denies
        """Whether everything below is certainly readable."""

    def candidates(self) -> Iterator[_Candidate]:
        """Yield all patterns that can match below."""
        yield from self._certain
        yield from chain.from_iterable(self._by_name.values())
        yield from self._others

    def after(self, segment: str) -> _Directory:
        """Return the directory after one more segment. All whose names no pattern has share one (`_elsewhere`)."""
        named = self._by_name.get(segment, ())
        is_elsewhere = not named
        candidates = list(self._certain)
        for candidate in (*named, *self._others):
            positions = candidate.pattern.step(candidate.positions, segment)
            if positions != candidate.positions:
                is_elsewhere = False
                candidate = candidate._replace(positions=positions)
            if positions:
                candidates.append(candidate)
        if not is_elsewhere:
            return _Directory(candidates)
        if self._elsewhere is None:
            self._elsewhere = _Directory(candidates)
        return self._elsewhere

    def decide(self, action: str, segment: str) -> Decision:
        """Decide about an action on the URI or name that ends with this segment."""
        matching = [candidate for candidate in self._certain if action in candidate.rule.actions]
        for candidate in (*self._by_name.get(segment, ()), *self._others):
            pattern = candidate.pattern
            if action in candidate.rule.actions and pattern.step(candidate.positions, segment) & pattern.final:
                matching.append(candidate)
        if not matching:
            return REFUSED
        # A denial wins, then a rule that allows without further scopes; of several, the first.
        rule = min(
            matching, key=lambda match: (not match.rule.denies, bool(match.rule.missing_scopes), match.number)
        ).rule
        return Decision(False, "", rule.missing_scopes) if rule.missing_scopes else Decision(not rule.denies, rule.id)


_KINDS = {"call": ("tool", "method"), "prompt": ("prompt",), "inspect": ("tool", "prompt")}
"""For each action on names: the kinds of these names. `inspect` is also about URIs, the others are not."""
_NO_MATCHES = _Directory(())
REFUSED = Decision(False)
Directories = dict[tuple[str, Segments], _Directory]
Decisions = dict[tuple[str, str, str], Decision]
"""Decisions by key of the access, action and target."""


class RuleAccess:
    """The permissions of all principals to whom the same rules apply; see `protocol.interfaces.Access`.

    `directories` and `decisions` are memory that several accesses with different keys may share.
    """

    def __init__(
        self,
        key: str,
        rules: Sequence[CompiledRule],
        is_public: Callable[[str], bool],
        directories: Directories | None = None,
        decisions: Decisions | None = None,
    ) -> None:
        self.key = key
        self.rules = rules
        self._is_public = is_public
        candidates = [
            _Candidate(number, rule, pattern, pattern.first)
            for number, rule in enumerate(rules)
            for pattern in rule.patterns
        ]
        self._names = {
            kind: _Directory(candidate for candidate in candidates if candidate.pattern.kind in (kind, "any"))
            for kinds in _KINDS.values()
            for kind in kinds
        }
        self._top = _Directory(candidate for candidate in candidates if candidate.pattern.kind in ("uri", "any"))
        self._directories: Directories = {} if directories is None else directories
        self._decisions: Decisions = {} if decisions is None else decisions

    def decide(self, action: str, target: str) -> Decision:
        """Decide about one action on a URI, `tool:NAME` or `prompt:NAME`, and remember the decision."""
        decision = self._decisions.get((self.key, action, target))
        if decision is None:
            decision = self._decide(action, target)
            if len(target) <= MAX_REMEMBERED_CHARACTERS:
                if len(self._decisions) >= MAX_DECISIONS:
                    self._decisions.clear()
                self._decisions[self.key, action, target] = decision
        return decision

    def _decide(self, action: str, target: str) -> Decision:
        kinds = _KINDS.get(action)
        if kinds is not None:
            kind, _, name = target.partition(":")
            if kind in kinds:
                return self._names[kind].decide(action, name) if name else REFUSED
            if action != "inspect":
                return REFUSED
        segments = segments_of(target)
        return REFUSED if segments is None else self._directory(segments[:-1]).decide(action, segments[-1])

    def allows(self, action: str, target: str) -> bool:
        """Return whether `decide` allows the action. Lists ask for each entry, so the decision is not remembered."""
        return self._decide(action, target).allowed

    def may_read_below(self, prefix: str) -> bool:
        """Return whether any URI that begins with `prefix` may be allowed."""
        return self._directory_of(prefix).may_read

    def reads_all_below(self, prefix: str) -> bool:
        """Return whether every URI that begins with `prefix` is allowed."""
        return self._directory_of(prefix).reads_all

    def readable_names(self, prefix: str) -> Callable[[str], bool]:
        """Return a function that returns whether an entry of a directory may be read, by its decoded name.

        It decides like `allows`, but in a fraction of the time: the list of a directory with 100,000 files asks it
        about each of them.
        """
        allowed, denied = _NameTests(), _NameTests()
        for _, rule, pattern, positions in self._directory_of(prefix).candidates():
            if "read" in rule.actions and (rule.denies or not rule.missing_scopes):
                (denied if rule.denies else allowed).add(pattern, positions)
        if denied.accepts_all or not (allowed.accepts_all or allowed.names or allowed.matchers):
            return lambda name: False
        unusual = has_unusual_character
        if not denied.names and not denied.matchers:
            allows = allowed.test()
            return lambda name: allows(name) and not unusual(name)  # most names are refused by the first test
        allows, denies = allowed.test(), denied.test()
        return lambda name: allows(name) and not denies(name) and not unusual(name)

    def is_public(self, uri: str) -> bool:
        """Return whether every caller may read a URI."""
        return self._is_public(uri)

    def _directory_of(self, prefix: str) -> _Directory:
        segments = segments_below(prefix)
        return _NO_MATCHES if segments is None else self._directory(segments)

    def _directory(self, segments: Segments) -> _Directory:
        """Return the directory with these segments, computed from the nearest one above it that is remembered."""
        directory = self._directories.get((self.key, segments))
        if directory is not None:
            return directory
        depth = len(segments) - 1
        while depth > 0 and (directory := self._directories.get((self.key, segments[:depth]))) is None:
            depth -= 1
        if directory is None:
            directory, depth = self._top, 0
        characters = sum(map(len, segments[:depth])) + depth
        for index in range(depth, len(segments)):
            directory = _NO_MATCHES if directory.is_empty else directory.after(segments[index])
            characters += len(segments[index]) + 1
            if characters <= MAX_REMEMBERED_CHARACTERS:
                if len(self._directories) >= MAX_DIRECTORIES:
                    self._directories.clear()
                self._directories[self.key, segments[: index + 1]] = directory
        return directory


class _NameTests:
    """The tests of the last segment of URIs in one directory."""

    def __init__(self) -> None:
        self.accepts_all = False
        self.names: set[str] = set()
        self.matchers: list[Matcher] = []

    def add(self, pattern: TargetPattern, positions: int) -> None:
        """Add the names that a pattern at these positions matches with one more segment."""
        for item in pattern.last_items(positions):
            if item is None:
                self.accepts_all = True
            elif isinstance(item, str):
                self.names.add(item)
            else:
                self.matchers.append(item)

    def test(self) -> Callable[[str], bool]:
        """Return a function that returns whether a name passes any of the tests."""
        if self.accepts_all:
            return lambda name: True
        names, matchers = self.names, self.matchers
        if not matchers:
            return names.__contains__
        if len(matchers) == 1 and not names:
            return matchers[0]
        return lambda name: name in names or any(matches(name) for matches in matchers)
