"""Find words in a text that comes in pieces: how often they occur, and the line that shows them best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wharfinger.content.folding import fold

__all__ = ["SNIPPET", "LineMatch", "look"]

SNIPPET = 200
"""Characters of a line that are shown."""
MAX_PLACES = 50
"""Occurrences of a word among which the best line is chosen."""
MAX_COUNT = 1_000
"""Occurrences of one word that are counted."""


class LineMatch(NamedTuple):
    """How often each word occurs, and the best line: `line` counts from 1, `offset` in characters from 0."""

    counts: tuple[int, ...]
    snippet: str
    line: int
    offset: int


def look(pieces: Iterable[str], words: Sequence[str]) -> LineMatch | None:
    """Find all of the `words`, which must be folded; None if one of them does not occur."""
    counts = [0] * len(words)
    keep = max(SNIPPET, *(len(word) for word in words))
    best: tuple[int, str, int, int] | None = None
    tail, lines, length = "", 0, 0
    for piece in pieces:
        text = tail + piece
        folded = fold(text)
        for number, word in enumerate(words):
            # Occurrences that end in the tail were counted with the piece before.
            begin = max(0, len(tail) - len(word) + 1)
            counts[number] = min(MAX_COUNT, counts[number] + folded.count(word, begin))
        if best is None and (found := _best_line(text, folded, words)) is not None:
            fitting, at = found
            best = (fitting, _snippet(text, at, words), lines + text.count("\n", 0, at) + 1, length + at)
        if best is not None and tail and all(counts):
            break  # a large text: more of it says nothing new
        kept = text[-keep:]
        length += len(text) - len(kept)
        lines += text.count("\n", 0, len(text) - len(kept))
        tail = kept
    if best is None or not all(counts):
        return None
    _, snippet, line, offset = best
    return LineMatch(tuple(counts), f"{line}: {snippet}", line, offset)


def _best_line(text: str, folded: str, words: Sequence[str]) -> tuple[int, int] | None:
    """Return how many of the words the best line has, and the place of one; the first of equally good lines."""
    best: tuple[int, int] | None = None
    for word in words:
        at = folded.find(word)
        for _ in range(MAX_PLACES):
            if at < 0:
                break
            begin, end = _line_at(folded, at)
            fitting = sum(folded.find(other, begin, max(end, at + len(word))) >= 0 for other in words)
            if best is None or fitting > best[0]:
                best = (fitting, at)
            if fitting == len(words):
                return best
            at = folded.find(word, at + len(word))
    return best


def _line_at(text: str, at: int) -> tuple[int, int]:
    """Return where the part of a line around a place begins and ends: at most SNIPPET characters."""
    begin = max(text.rfind("\n", max(0, at - SNIPPET), at) + 1, at - SNIPPET // 2, 0)
    end = text.find("\n", at, begin + SNIPPET)
    return begin, min(begin + SNIPPET, len(text)) if end < 0 else end


def _snippet(text: str, at: int, words: Sequence[str]) -> str:
    begin, end = _line_at(text, at)
    return " ".join(text[begin:end].split())
