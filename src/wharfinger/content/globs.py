"""Glob patterns with `*`, `?`, `[…]` and `**`, as in git's wildmatch.

The time to match is proportional to the length of the text times that of the pattern. A pattern with several `*` is not
translated to a regular expression, which would backtrack for hours over `*a*a*a*a*a*a*b`. It becomes a list of steps,
and the matcher keeps the set of all steps that it may have reached.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["MAX_PATTERN_CHARACTERS", "Matcher", "compile_glob", "is_wild"]

MAX_PATTERN_CHARACTERS = 1_000
"""The maximum number of characters of a pattern that a caller may send."""

Matcher = Callable[[str], bool]

is_wild = re.compile(r"[*?\[\\]").search
"""Finds the first special character of a pattern."""

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \\t\\n\\r",
    "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_NEVER = "(?!)"


class _Step(NamedTuple):
    """One step of a pattern: a regular expression for one character, which may be repeated."""

    character: str
    repeated: bool = False
    optional: bool = False
    """True for the `/` of `**/`, which may also match nothing."""


def compile_glob(pattern: str, *, path: bool) -> Matcher:
    """Return a function that returns whether a whole text matches.

    Args:
        pattern: The pattern. A malformed one (`[a`, or `\\` at the end) matches nothing.
        path: Whether texts are paths: `*`, `?` and `[…]` do not match `/`, and `**` between slashes matches any number
            of directories.
    """
    steps = _steps_of(pattern, path)
    if steps is None:
        return _matches_nothing
    if sum(step.repeated for step in steps) <= 1:  # then a regular expression takes linear time
        matches = re.compile(_regex_of(steps), re.DOTALL).fullmatch
        return lambda text: matches(text) is not None
    return _StepMatcher(steps).matches


def _matches_nothing(text: str) -> bool:
    return False


def _regex_of(steps: list[_Step]) -> str:
    """Return the pattern as a regular expression."""
    source = ""
    for at, step in enumerate(steps):
        opening = "(?:" if _begins_any_directories(steps, at) else ""
        source += opening + step.character + ("*" if step.repeated else "") + (")?" if step.optional else "")
    return source


def _steps_of(pattern: str, path: bool) -> list[_Step] | None:
    """Return the steps of a pattern; None if it is malformed."""
    any_one = "[^/]" if path else "."
    steps: list[_Step] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        at += 1
        if sign == "*":
            first = at - 1
            while at < len(pattern) and pattern[at] == "*":
                at += 1
            at = _add_star(steps, pattern, first, at, path)
        elif sign == "?":
            steps.append(_Step(any_one))
        elif sign == "[":
            parsed = _parse_set(pattern, at)
            if parsed is None:
                return None
            source, at = parsed
            steps.append(_Step(f"(?!/){source}" if path else source))
        elif sign == "\\":
            if at == len(pattern):
                return None
            steps.append(_Step(re.escape(pattern[at])))
            at += 1
        else:
            steps.append(_Step(re.escape(sign)))
    return steps


def _add_star(steps: list[_Step], pattern: str, first: int, at: int, path: bool) -> int:
    """Add the steps of a run of `*`, or of `**/`, and return the position after it."""
    if not path:
        steps.append(_Step(".", repeated=True))
        return at
    follows = pattern[at : at + 1]
    alone = first == 0 or pattern[first - 1] == "/"
    if at - first < 2 or not alone or not (follows in ("", "/") or pattern[at : at + 2] == "\\/"):
        steps.append(_Step("[^/]", repeated=True))
        return at
    if follows != "/":
        steps.append(_Step(".", repeated=True))
        return at
    if not (len(steps) >= 2 and steps[-1].optional):  # `**/**/` is `**/`
        steps += [_Step(".", repeated=True), _Step("/", optional=True)]
    return at + 1


def _parse_set(pattern: str, at: int) -> tuple[str, int] | None:
    """Return the character set whose `[` is before `at` as a regular expression, and the position after it.

    Returns None if the set is malformed.
    """
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    items: list[str] = []
    before = ""  # the character that a range may begin with
    first = True
    while first or pattern[at : at + 1] != "]":
        first = False
        sign = pattern[at : at + 1]
        if not sign:
            return None
        if sign == "-" and before and pattern[at + 1 : at + 2] not in ("", "]"):
            at += 1
            if pattern[at] == "\\":
                at += 1
            end = pattern[at : at + 1]
            if not end:
                return None
            if before <= end:
                items.append(f"{re.escape(before)}-{re.escape(end)}")
            before = ""
        elif sign == "[" and pattern[at + 1 : at + 2] == ":":
            close = pattern.find("]", at + 2)
            if close < 0:
                return None
            if close > at + 2 and pattern[close - 1] == ":":
                name = pattern[at + 2 : close - 1]
                if name not in _POSIX:
                    return None
                items.append(_POSIX[name])
                at = close
                before = ""
            else:
                items.append("\\[")
                before = "["
        else:
            if sign == "\\":
                at += 1
                sign = pattern[at : at + 1]
                if not sign:
                    return None
            items.append(re.escape(sign))
            before = sign
        at += 1
    if not items:  # `[z-a]`
        return ("." if negated else _NEVER), at + 1
    return f"[{'^' if negated else ''}{''.join(items)}]", at + 1


class _StepMatcher:
    """Matches the steps of a pattern. The set of reached steps is one integer, with a bit for each step."""

    def __init__(self, steps: list[_Step]) -> None:
        self._characters = [re.compile(step.character, re.DOTALL).match for step in steps]
        self._repeated = sum(1 << at for at, step in enumerate(steps) if step.repeated)
        """The steps that may match several characters."""
        self._skipped = sum(
            1 << at for at, step in enumerate(steps) if step.repeated and _begins_any_directories(steps, at)
        )
        """The steps that begin a `**/`."""
        self._end = 1 << len(steps)
        self._fits_by_character: dict[str, int] = {}
        """The steps that match a character."""

    def matches(self, text: str) -> bool:
        """Return whether a whole text matches."""
        reached = self._enter(1)
        for character in text:
            fits = self._fits_by_character.get(character)
            if fits is None:
                fits = sum(1 << at for at, match in enumerate(self._characters) if match(character))
                if len(self._fits_by_character) < 1_000:
                    self._fits_by_character[character] = fits
            reached &= fits
            if not reached:
                return False
            stays = reached & self._repeated
            reached = self._enter((reached ^ stays) << 1) | stays
            reached |= stays << 1
        return reached & self._end != 0

    def _enter(self, steps: int) -> int:
        """Return these steps, and those after each `*` or `**/` among them, which may match nothing."""
        steps |= (steps & self._skipped) << 2
        return steps | (steps & self._repeated) << 1


def _begins_any_directories(steps: list[_Step], at: int) -> bool:
    """Return whether this step and the next one make up a `**/`."""
    return at + 1 < len(steps) and steps[at + 1].optional
