"""Fits a text to a row of literals and holes in time linear in the text; knows nothing of templates or of values.

Where every hole ends before something that it cannot hold, one pattern of possessive quantifiers decides, and cannot
backtrack. Every other row is decided by sets of positions kept as bits of one integer: a hole or a literal maps the
set of all places where the rest can begin to the set of all places where it can begin itself, so that no choice is
ever tried and taken back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

__all__ = ["ESCAPED", "Atom", "Hole", "Matcher", "may_meet"]

ESCAPED = "%[0-7].|%[CD].%..|%E.%..%..|%F.%..%..%.."
"""Pattern of one percent-encoded character of valid, upper-case escaped UTF-8 (RFC 3629 §3)."""


class Hole(NamedTuple):
    """A run of `chars`; with an `opener` the hole is optional, and one of the opener's characters begins it.

    `least` is 0 or 1; `most` counts characters (an escaped one is one), 0 for no bound. `chars` always holds "%", the
    letters and the digits, so that a run never ends inside of an escape.
    """

    chars: frozenset[str]
    opener: str = ""
    least: int = 0
    most: int = 0

    @property
    def pattern(self) -> str:
        """The longest run from a place, as a regular expression that does not backtrack."""
        plain = "[" + re.escape("".join(sorted(self.chars))) + "]"
        if not self.most:
            return plain + ("++" if self.least else "*+")
        return f"(?:{ESCAPED}|{plain}){{{self.least},{self.most}}}+"


Atom = str | Hole


class Matcher:
    """A row of atoms, ready to be fitted to texts that are ASCII and whose escapes are well formed and upper case."""

    __slots__ = ("_atoms", "_field", "_holes", "_pattern", "_prefix", "_suffix")

    def __init__(self, atoms: Sequence[Atom], *, settle: bool = True) -> None:
        rest = list(atoms)
        self._prefix: str = rest.pop(0) if rest and isinstance(rest[0], str) else ""  # type: ignore[assignment]
        self._suffix: str = rest.pop() if rest and isinstance(rest[-1], str) else ""  # type: ignore[assignment]
        self._atoms = tuple(rest)
        self._holes = tuple(re.compile(atom.pattern) if isinstance(atom, Hole) else None for atom in rest)
        settled = settle and is_settled(self._atoms)
        self._pattern = re.compile("".join(map(_source, (self._prefix, *self._atoms)))) if settled else None

    def fit(self, text: str) -> Sequence[str | None] | None:
        """What each hole holds, None for one that is absent; None if the text does not fit.

        Where several fits exist: every optional hole is present if that is possible at all, and of the fits that
        are left, the first hole is the longest, then the second, and so on.
        """
        end = len(text)
        if self._suffix:
            if not text.endswith(self._suffix):
                return None
            end -= len(self._suffix)
        if self._pattern is not None:
            found = self._pattern.fullmatch(text, 0, end)
            return None if found is None else found.groups()
        start = len(self._prefix)
        if end < start or not text.startswith(self._prefix):
            return None
        middle = text[start:end]
        field = _Field(middle)
        optional = any(isinstance(atom, Hole) and atom.opener for atom in self._atoms)
        for all_present in (True, False) if optional else (True,):
            ends = self._ends(field, all_present)
            if ends is not None:
                return self._walk(middle, ends)
        return None

    def _ends(self, field: _Field, all_present: bool) -> list[int] | None:
        """For each atom the set of places from which the atoms after it fit; None if the whole row does not."""
        here = 1
        ends: list[int] = []
        for atom in reversed(self._atoms):
            ends.append(here)
            here = field.before(atom, here, all_present)
            if not here:
                return None
        if not here >> field.length & 1:
            return None
        ends.reverse()
        return ends

    def _walk(self, text: str, ends: list[int]) -> list[str | None]:
        place = 0
        held: list[str | None] = []
        for atom, run, later in zip(self._atoms, self._holes, ends, strict=True):
            if isinstance(atom, str):
                place += len(atom)
                continue
            assert run is not None
            start = place
            if atom.opener:
                if text[place : place + 1] not in tuple(atom.opener):
                    held.append(None)
                    continue
                start += 1
            end = _furthest(run, text, start, later)
            if end is None or end - start < atom.least:
                held.append(None)
            else:
                held.append(text[start:end])
                place = end
        return held


def is_settled(atoms: Sequence[Atom]) -> bool:
    """Whether every hole is followed only by what it cannot hold, so that the longest run is the only possible one."""
    following: frozenset[str] = frozenset()
    for atom in reversed(atoms):
        if isinstance(atom, str):
            following = frozenset(atom[0])
            continue
        if not following.isdisjoint(atom.chars) or not following.isdisjoint(atom.opener):
            return False
        first = frozenset(atom.opener) if atom.opener else atom.chars
        following = first if atom.least and not atom.opener else first | following
    return True


def _source(atom: Atom) -> str:
    if isinstance(atom, str):
        return re.escape(atom)
    if not atom.opener:
        return f"({atom.pattern})"
    return f"(?:[{re.escape(atom.opener)}]({atom.pattern}))?+"


def _furthest(run: re.Pattern[str], text: str, start: int, later: int) -> int | None:
    """The last place of the run from `start` that is in the set `later`."""
    found = run.match(text, start)
    if found is None:
        return None
    beyond = len(text) - found.end()
    later >>= beyond
    if not later:
        return None
    end = len(text) - beyond - ((later & -later).bit_length() - 1)
    return end if end >= start else None


class _Field:
    """A text as sets of places. Place `p` of `n` is bit `n - p`, so that going back in the text is going up in bits."""

    __slots__ = ("bounds", "length", "masks", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = len(text)
        self.masks: dict[frozenset[str], int] = {}
        self.bounds = self._bounds()

    def _bounds(self) -> int:
        """Every place that is not inside of an escaped character."""
        if "%" not in self.text:
            return (1 << self.length + 1) - 1
        marks = bytearray(b"1") * (self.length + 1)
        for found in re.finditer(ESCAPED, self.text):
            marks[found.start() + 1 : found.end()] = b"0" * (found.end() - found.start() - 1)
        return int(marks, 2)

    def before(self, atom: Atom, here: int, all_present: bool) -> int:
        """The places from which `atom` reaches one of the places in `here`."""
        if isinstance(atom, str):
            return here << len(atom) & self._starts(atom) & self.bounds
        among = self._mask(atom.chars)
        if atom.most:
            reached = self._bounded(here, among, atom)
        else:
            reached = _flood(self._step(here, among) if atom.least else here, among) & self.bounds
        if not atom.opener:
            return reached
        opened = (reached & self._mask(frozenset(atom.opener))) << 1
        return opened if all_present else opened | here

    def _bounded(self, here: int, among: int, atom: Hole) -> int:
        reached = 0 if atom.least else here
        for _ in range(atom.most):
            here = self._step(here, among)
            if not here & ~reached:
                break
            reached |= here
        return reached

    def _step(self, here: int, among: int) -> int:
        """One character back: over a whole escape where there is one."""
        return _flood((here & among) << 1, among & ~self.bounds) & self.bounds

    def _mask(self, chars: frozenset[str]) -> int:
        """Bit `n - 1 - p` tells whether the character at `p` is one of `chars`: that between places `p` and `p + 1`."""
        mask = self.masks.get(chars)
        if mask is None:
            mask = self.masks[chars] = int(self.text.translate(_digits(chars)) or "0", 2)
        return mask

    def _starts(self, literal: str) -> int:
        marks = bytearray(b"0") * (self.length + 1)
        for found in re.finditer(f"(?={re.escape(literal)})", self.text):
            marks[found.start()] = 0x31
        return int(marks, 2)


@cache
def _digits(chars: frozenset[str]) -> dict[int, str]:
    return {code: "1" if chr(code) in chars else "0" for code in range(128)}


def _flood(places: int, among: int) -> int:
    """All places up from `places` over set bits of `among`: the carry of one addition runs through each run of ones."""
    return (((places & among) + among) ^ among) | places


def may_meet(left: Sequence[Atom], right: Sequence[Atom]) -> bool:
    """Whether some text fits both rows (bounds on the number of characters and escapes are not looked at)."""
    ours, theirs = _automaton(left), _automaton(right)
    todo, seen = [(0, 0)], {(0, 0)}
    while todo:
        here, there = todo.pop()
        if here == len(ours) - 1 and there == len(theirs) - 1:
            return True
        (steps, skips), (other_steps, other_skips) = ours[here], theirs[there]
        reached = [(to, there) for to in skips] + [(here, to) for to in other_skips]
        for chars, to in steps:
            reached += [(to, other) for among, other in other_steps if not chars.isdisjoint(among)]
        for pair in reached:
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return False


_State = tuple[list[tuple[frozenset[str], int]], list[int]]


def _automaton(atoms: Sequence[Atom]) -> list[_State]:
    """States, each with its steps (characters, next state) and its skips (next states); the last one accepts."""
    states: list[_State] = [([], [])]

    def grow(chars: frozenset[str] | None) -> None:
        steps, skips = states[-1]
        if chars is None:
            skips.append(len(states))
        else:
            steps.append((chars, len(states)))
        states.append(([], []))

    for atom in atoms:
        if isinstance(atom, str):
            for char in atom:
                grow(frozenset(char))
            continue
        before = states[-1]
        if atom.opener:
            grow(frozenset(atom.opener))
        if atom.least:
            grow(atom.chars)
        states[-1][0].append((atom.chars, len(states) - 1))
        grow(None)
        if atom.opener:
            before[1].append(len(states) - 1)
    return states
