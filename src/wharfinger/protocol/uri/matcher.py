"""Matches a URI to a row of literals and placeholders, in time linear in the URI.

A row is a template as the matcher gets it: `a/{name}.{ext}` is `"a/"`, a placeholder, `"."`, a placeholder. Each
row becomes one regular expression, which never tries more than a few ways to read a character:

- A placeholder that cannot hold the first character after it takes the longest run (possessive, no backtracking).
- A placeholder that can hold it, such as `{name}` above, takes as little as it can, while each later placeholder never
  contains the separator just before it. So `a.tar.gz` is read as `a.tar` and `gz`: the last separator counts. These
  placeholders and their separators form a *chain*. It ends at the first character that its first placeholder cannot
  hold, and is atomic: the expression never backtracks into it.
- If these rules do not say where a placeholder ends (`{a}{b}`, `{v}-{+w}`), the row is refused when it is built.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ESCAPED", "Atom", "Matcher", "Placeholder", "UnclearBoundary", "may_meet"]

ESCAPED = "%[0-7].|%[CD].%..|%E.%..%..|%F.%..%..%.."
"""Pattern of one percent-encoded character of valid, upper-case escaped UTF-8 (RFC 3629 §3)."""
_IN_ESCAPES = frozenset("%0123456789ABCDEF")


class Placeholder(NamedTuple):
    """A run of `chars`. With an `opener` the placeholder is optional, and one of the opener's characters begins it.

    `min_count` is 0 or 1; `max_count` is the limit in characters (an escaped character counts once), 0 for no limit.
    `chars` always contains "%", the letters and the digits, so that a run never ends inside an escape.
    """

    chars: frozenset[str]
    opener: str = ""
    min_count: int = 0
    max_count: int = 0


Atom = str | Placeholder


class UnclearBoundary(ValueError):
    """A row does not say where a placeholder ends; `placeholder` is its number, counted from 0."""

    def __init__(self, placeholder: int) -> None:
        super().__init__(f"placeholder {placeholder}")
        self.placeholder = placeholder


class Matcher:
    """A row of atoms, ready to match texts that are ASCII, with well-formed escapes in upper case.

    Raises:
        UnclearBoundary: the row does not say where a placeholder ends.
    """

    __slots__ = ("_pattern", "_regex", "_suffix")

    def __init__(self, atoms: Sequence[Atom]) -> None:
        last = atoms[-1] if len(atoms) > 1 else None
        self._suffix = last if isinstance(last, str) else ""
        self._regex = _write_regex(atoms[:-1] if self._suffix else atoms)
        self._pattern: re.Pattern[str] | None = None

    def fit(self, text: str) -> Sequence[str | None] | None:
        """Return the content of each placeholder (None if it is absent), or None if the text does not match."""
        end = len(text)
        if self._suffix:
            if not text.endswith(self._suffix):
                return None
            end -= len(self._suffix)
        if self._pattern is None:
            self._pattern = re.compile(self._regex)  # on first use: a server may have thousands of templates
        match = self._pattern.fullmatch(text, 0, end)
        return None if match is None else match.groups()


def _write_regex(atoms: Sequence[Atom]) -> str:
    """Return the regular expression of a row."""
    parts: list[str] = []
    outer: frozenset[str] | None = None  # the characters of the first placeholder of the open chain
    inner: frozenset[str] = frozenset()  # the characters of its last placeholder so far
    separator = ""  # the literal between that placeholder and the next one
    placeholder = -1
    following = _following(atoms)
    for index, atom in enumerate(atoms):
        if isinstance(atom, str):
            parts.append(re.escape(atom))
            separator = atom
            if outer is not None and not outer.issuperset(atom):
                parts.append(")")
                outer = None
            continue
        placeholder += 1
        if not atom.opener and index and isinstance(atoms[index - 1], Placeholder):
            raise UnclearBoundary(placeholder)
        if outer is not None and atom.opener and outer.isdisjoint(following[index].union(atom.opener)):
            parts.append(f"(?!{_char_class(outer)}))")
            outer = None
        chars, excluded = atom.chars, ""
        if outer is not None:
            excluded = atom.opener or separator
            if not chars <= inner or not outer.issuperset(atom.opener):
                raise UnclearBoundary(placeholder)
            if len(excluded) == 1 and excluded not in _IN_ESCAPES:
                chars, excluded = chars - {excluded}, ""
        lazy = not chars.isdisjoint(following[index])  # the placeholder can hold the first character after it
        if lazy and (atom.max_count or (atom.opener and outer is not None)):
            raise UnclearBoundary(placeholder)
        if lazy and outer is None:
            parts.append("(?>")
            outer = atom.chars
        inner = atom.chars
        run = _write_run(atom, chars, excluded, lazy)
        if not atom.opener:
            parts.append(f"({run})")
        elif lazy:
            parts.append(f"(?:{_char_class(atom.opener)}({run}))?")
        else:
            if not following[index].isdisjoint(atom.opener):
                # `{/a}{/b}`: if only one is present, it is the first. The second begins where the first ends.
                after = atoms[index + 1]
                if isinstance(after, str) or not after.chars <= chars.union(atom.opener):
                    raise UnclearBoundary(placeholder)
                run += f"(?!{_char_class(chars)})"
            parts.append(f"(?:{_char_class(atom.opener)}({run}))?+")
        separator = ""
    if outer is not None:
        parts.append(f"(?!{_char_class(outer)}))")
    return "".join(parts)


def _following(atoms: Sequence[Atom]) -> list[frozenset[str]]:
    """Return for each atom the characters with which the rest of the row can begin."""
    following: list[frozenset[str]] = []
    first: frozenset[str] = frozenset()
    for atom in reversed(atoms):
        following.append(first)
        if isinstance(atom, str):
            first = frozenset(atom[0])
        elif atom.opener:
            first |= frozenset(atom.opener)
        else:
            first = atom.chars if atom.min_count else first | atom.chars
    following.reverse()
    return following


def _char_class(chars: frozenset[str] | str) -> str:
    return "[" + re.escape("".join(sorted(chars))) + "]"


def _write_run(placeholder: Placeholder, chars: frozenset[str], excluded: str, lazy: bool) -> str:
    """Return the pattern of a placeholder's content, which must not contain the text `excluded`."""
    if placeholder.max_count:
        return f"(?:{ESCAPED}|{_char_class(chars)}){{{placeholder.min_count},{placeholder.max_count}}}+"
    count = "+" if placeholder.min_count else "*"
    if not lazy and not excluded:
        return _char_class(chars) + count + "+"
    # By whole escapes, so that a literal such as "2F" is not found inside one.
    refused = f"(?!{re.escape(excluded)})" if excluded else ""
    return f"(?:{refused}(?:%..|{_char_class(chars - {'%'})})){count}" + ("?" if lazy else "+")


def may_meet(left: Sequence[Atom], right: Sequence[Atom]) -> bool:
    """Return whether some text can match both rows, ignoring limits and escapes: a search over pairs of states."""
    ours, theirs = _states(left), _states(right)
    todo, seen = [(0, 0)], {(0, 0)}
    while todo:
        here, there = todo.pop()
        if here == len(ours) - 1 and there == len(theirs) - 1:
            return True
        (steps, skips), (other_steps, other_skips) = ours[here], theirs[there]
        reached = [(to, there) for to in skips] + [(here, to) for to in other_skips]
        for chars, to in steps:
            reached += [(to, other_to) for other_chars, other_to in other_steps if not chars.isdisjoint(other_chars)]
        for pair in reached:
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return False


_State = tuple[list[tuple[frozenset[str], int]], list[int]]


def _states(atoms: Sequence[Atom]) -> list[_State]:
    """Return the row as states: each has steps (characters, next state) and skips (next states); the last accepts."""
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
        if atom.min_count:
            grow(atom.chars)
        states[-1][0].append((atom.chars, len(states) - 1))
        grow(None)
        if atom.opener:
            before[1].append(len(states) - 1)
    return states
