"""Cuts windows out of a text: the lines that answer a question, as many as fit.

`content.match_lines` finds the best lines. A window grows around each of them by whole lines, three times as fast after
the line as before it, and faster around a better line. If no line matches, the window is the beginning of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wharfinger.content.folding import fold
from wharfinger.content.match_lines import match_text
from wharfinger.content.search_query import Query
from wharfinger.host.context.token_counts import CountTokens
from wharfinger.server.search_ranking import is_prose

__all__ = ["Segment", "TextWindows", "cut_windows"]

MAX_PLACES = 3
"""Places of one text around which windows grow."""
MIN_PLACE_SHARE = 0.6
"""A further place needs at least this share of the best one's score."""
AFTER_FACTOR = 3.0
LINE_CHARACTERS = 1_000
"""A longer line is shown in part: around the first word of the question in it, or else its beginning."""
MAX_ATTEMPTS = 12
GAP = "…"


class Segment(NamedTuple):
    """A part of a text that was read."""

    first: int
    """The number of its first line."""
    text: str


class TextWindows(NamedTuple):
    """The chosen lines of a text."""

    text: str
    lines: tuple[tuple[int, int], ...]
    whole: bool
    """Whether they are all lines, in full."""
    shortened: bool = False
    """Whether only a part of a long line is there."""


def cut_windows(
    segments: Sequence[Segment], query: Query, title: str, budget: int, count: CountTokens, places: Sequence[int] = ()
) -> TextWindows:
    """Return the lines of a text that fit the query best, in their order, with at most `budget` tokens.

    `places` are the numbers of lines that a search found. Empty if not even one line fits.
    """
    numbered = _lines_of(segments)
    text = _joined(numbered, range(len(numbered)))
    if not numbered:
        return TextWindows("", (), True)
    total = count(text)
    if total <= budget:
        return TextWindows(text, _runs(numbered, range(len(numbered))), True)
    short = [(number, _clipped(line, query)) for number, line in numbered]
    order = _by_use(short, _centres(short, query, title, places))
    room = budget * len(text) / max(1, total)
    for _ in range(MAX_ATTEMPTS):
        chosen = _fitting(short, order, room)
        if not chosen:
            break
        shown = _joined(short, chosen)
        if (tokens := count(shown)) <= budget:
            shortened = any(short[at] != numbered[at] for at in chosen)
            return TextWindows(shown, _runs(short, chosen), False, shortened)
        room *= min(0.95, budget / tokens)
    return TextWindows("", (), False)


def _lines_of(segments: Sequence[Segment]) -> list[tuple[int, str]]:
    """Return the lines of all segments with their numbers, in order, each once."""
    found: dict[int, str] = {}
    for segment in segments:
        lines = segment.text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, segment.first):
            found.setdefault(number, line)
    return sorted(found.items())


def _clipped(line: str, query: Query) -> str:
    if len(line) <= LINE_CHARACTERS:
        return line
    folded = fold(line)
    found = [at for word in query.words for probe in word.probes if (at := folded.find(probe)) >= 0]
    begin = max(0, min(min(found, default=0) - LINE_CHARACTERS // 4, len(line) - LINE_CHARACTERS))
    return f"{GAP if begin else ''}{line[begin : begin + LINE_CHARACTERS]}{GAP}"


def _centres(
    lines: Sequence[tuple[int, str]], query: Query, title: str, places: Sequence[int]
) -> list[tuple[int, float]]:
    """Return the indices of the best lines, each with its weight."""
    found: list[tuple[int, float]] = []
    if query.words:
        match = match_text(["\n".join(line for _, line in lines)], query, prose=is_prose(title))
        passages = match.passages[:MAX_PLACES] if match is not None else ()
        least = MIN_PLACE_SHARE * passages[0].score if passages else 0.0
        found = [(one.line - 1, one.score) for one in passages if one.score >= least]
    best = max((score for _, score in found), default=1.0)
    index = {number: at for at, (number, _) in enumerate(lines)}
    known = {at for at, _ in found}
    found += [
        (index[place], 0.8 * best) for place in places[:MAX_PLACES] if place in index and index[place] not in known
    ]
    return [(at, max(0.1, score / best)) for at, score in found] or [(0, 1.0)]


def _by_use(lines: Sequence[tuple[int, str]], centres: Sequence[tuple[int, float]]) -> list[int]:
    """Return the indices of all lines, the most useful first: by their distance to the next centre."""

    def distance(at: int) -> float:
        return min(
            ((at - centre) / AFTER_FACTOR if at >= centre else float(centre - at)) / weight
            for centre, weight in centres
        )

    return sorted(range(len(lines)), key=lambda at: (distance(at), at))


def _fitting(lines: Sequence[tuple[int, str]], order: Sequence[int], room: float) -> list[int]:
    """Return the indices of the most useful lines that have at most `room` characters, in the order of the text."""
    chosen: list[int] = []
    for at in order:
        room -= len(lines[at][1]) + 1
        if room < 0:
            break
        chosen.append(at)
    return sorted(chosen)


def _joined(lines: Sequence[tuple[int, str]], chosen: Sequence[int]) -> str:
    parts: list[str] = []
    last = None
    for at in chosen:
        number, line = lines[at]
        if last is not None and number != last + 1:
            parts.append(GAP)
        parts.append(line)
        last = number
    return "\n".join(parts)


def _runs(lines: Sequence[tuple[int, str]], chosen: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the numbers of the chosen lines as `(first, last)`."""
    runs: list[tuple[int, int]] = []
    for at in chosen:
        number = lines[at][0]
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return tuple(runs)
