"""Cuts windows out of a text: the lines that answer a question, as many as fit.

`content.match_lines` finds the best lines. A window grows around each of them by whole lines: three times as fast after
the line as before it, and faster around a line that fits better. If no line matches, the window is the beginning of the
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wharfinger.content.folding import fold
from wharfinger.content.match_lines import match_text
from wharfinger.content.search_query import Query
from wharfinger.host.context.token_counts import CountTokens
from wharfinger.server.search_ranking import is_prose

__all__ = ["Segment", "TextWindows", "cut_windows", "whole_text"]

MAX_PASSAGES = 3
"""Maximum number of passages of one text around which windows grow, and of lines that a search found."""
MIN_PASSAGE_SHARE = 0.6
"""A further passage needs at least this share of the best score."""
FOUND_LINE_SHARE = 0.8
"""The score of a line that only a search found, as a share of the best score."""
AFTER_FACTOR = 3.0
"""A window grows this many times further after its centre than before it: what follows a match explains it."""
LINE_CHARACTERS = 1_000
"""A longer line is shown in part: the text around the first word of the question in it, or else its beginning.

So is a line that alone does not fit into the budget."""
MIN_LINE_CHARACTERS = 80
"""Minimum number of characters of a part of a line."""
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
    """The numbers of the first and last line of each window."""
    whole: bool
    """Whether `text` is the whole text."""
    shortened: bool = False
    """Whether `text` has only a part of some long line."""
    lines_missing: bool = False
    """Whether `text` lacks some line."""


def cut_windows(
    segments: Sequence[Segment],
    query: Query,
    title: str,
    budget: int,
    count: CountTokens,
    found_lines: Sequence[int] = (),
) -> TextWindows:
    """Return the lines of a text that fit the query best, in their order, with at most `budget` tokens.

    `found_lines` are the numbers of lines that a search found. The result is empty if not even one line fits.
    """
    numbered = _lines_of(segments)
    text = _joined(numbered, range(len(numbered)))
    if not numbered:
        return TextWindows("", (), True)
    total = count(text)
    if total <= budget:
        return TextWindows(text, _runs(numbered, range(len(numbered))), True)
    clipped = [(number, _clipped(line, query, LINE_CHARACTERS)) for number, line in numbered]
    order = _by_distance(clipped, _centres(clipped, query, title, found_lines))
    room = budget * len(text) / max(1, total)
    for _ in range(MAX_ATTEMPTS):
        length = max(MIN_LINE_CHARACTERS, int(room) - 3)  # without a GAP at both ends, and the line end
        if length < LINE_CHARACTERS:
            clipped = [(number, _clipped(line, query, length)) for number, line in numbered]
        chosen = _fitting(clipped, order, room)
        if not chosen:
            break
        text = _joined(clipped, chosen)
        if (tokens := count(text)) <= budget:
            shortened = any(clipped[index] != numbered[index] for index in chosen)
            return TextWindows(text, _runs(clipped, chosen), False, shortened, len(chosen) < len(numbered))
        room *= min(0.95, budget / tokens)
    return TextWindows("", (), False)


def whole_text(segments: Sequence[Segment]) -> str:
    """Return all lines of a text, with a `GAP` between segments that do not adjoin."""
    numbered = _lines_of(segments)
    return _joined(numbered, range(len(numbered)))


def _lines_of(segments: Sequence[Segment]) -> list[tuple[int, str]]:
    """Return the lines of all segments with their numbers, in order, each once."""
    lines_by_number: dict[int, str] = {}
    for segment in segments:
        lines = segment.text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, segment.first):
            lines_by_number.setdefault(number, line)
    return sorted(lines_by_number.items())


def _clipped(line: str, query: Query, length: int) -> str:
    """Return a line or, if it has more than `length` characters, the part around its first word of the query."""
    if len(line) <= length:
        return line
    folded = fold(line)
    positions = [position for word in query.words for probe in word.probes if (position := folded.find(probe)) >= 0]
    begin = max(0, min(min(positions, default=0) - length // 4, len(line) - length))
    end = begin + length
    return f"{GAP if begin else ''}{line[begin:end]}{GAP if end < len(line) else ''}"


def _centres(
    lines: Sequence[tuple[int, str]], query: Query, title: str, found_lines: Sequence[int]
) -> list[tuple[int, float]]:
    """Return the indices of the lines around which windows grow, each with its weight from 0.1 to 1."""
    scored: list[tuple[int, float]] = []
    if query.words:
        match = match_text(["\n".join(line for _, line in lines)], query, prose=is_prose(title))
        passages = match.passages[:MAX_PASSAGES] if match is not None else ()
        least = MIN_PASSAGE_SHARE * passages[0].score if passages else 0.0
        scored = [(passage.line - 1, passage.score) for passage in passages if passage.score >= least]
    best = max((score for _, score in scored), default=1.0)
    index_of = {number: index for index, (number, _) in enumerate(lines)}
    scored_indices = {line_index for line_index, _ in scored}
    scored += [
        (index_of[number], FOUND_LINE_SHARE * best)
        for number in found_lines[:MAX_PASSAGES]
        if number in index_of and index_of[number] not in scored_indices
    ]
    return [(line_index, max(0.1, score / best)) for line_index, score in scored] or [(0, 1.0)]


def _by_distance(lines: Sequence[tuple[int, str]], centres: Sequence[tuple[int, float]]) -> list[int]:
    """Return the indices of all lines, those with the smallest weighted distance to a centre first."""

    def distance(index: int) -> float:
        return min(
            ((index - centre) / AFTER_FACTOR if index >= centre else float(centre - index)) / weight
            for centre, weight in centres
        )

    return sorted(range(len(lines)), key=lambda index: (distance(index), index))


def _fitting(lines: Sequence[tuple[int, str]], order: Sequence[int], room: float) -> list[int]:
    """Return the indices of the most useful lines that have at most `room` characters, in the order of the text."""
    chosen: list[int] = []
    for index in order:
        room -= len(lines[index][1]) + 1
        if room < 0:
            break
        chosen.append(index)
    return sorted(chosen)


def _joined(lines: Sequence[tuple[int, str]], chosen: Sequence[int]) -> str:
    parts: list[str] = []
    last_number = None
    for index in chosen:
        number, line = lines[index]
        if last_number is not None and number != last_number + 1:
            parts.append(GAP)
        parts.append(line)
        last_number = number
    return "\n".join(parts)


def _runs(lines: Sequence[tuple[int, str]], chosen: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the numbers of the chosen lines as ranges `(first, last)`."""
    runs: list[tuple[int, int]] = []
    for index in chosen:
        number = lines[index][0]
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return tuple(runs)
