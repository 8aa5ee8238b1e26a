"""Finds the word nearest to a misspelled one: a letter is missing, wrong or added, or two are swapped."""

from __future__ import annotations

import re
from collections import Counter

from wharfinger.content.folding import fold
from wharfinger.content.search_query import identifier_parts

__all__ = ["MAX_CHARACTERS", "NearWords", "distance"]

MIN_CHARACTERS, LONG_CHARACTERS, MAX_CHARACTERS = 4, 8, 64
"""A misspelled word of MIN_CHARACTERS to MAX_CHARACTERS has near words: they differ from it in one place, or in up to
two if it has LONG_CHARACTERS or more."""
MAX_COMPARED_WORDS = 50_000
"""The maximum number of different words that are compared."""

_NAME = re.compile(r"\w+")


class NearWords:
    """Collects the words of some texts that are spelled like a given word."""

    def __init__(self, word: str) -> None:
        self._word = fold(word)
        self._max_distance = (
            0 if not MIN_CHARACTERS <= len(word) <= MAX_CHARACTERS else 1 if len(word) < LONG_CHARACTERS else 2
        )
        self._compared: set[str] = set()
        self._near: Counter[str] = Counter()

    def add(self, text: str) -> None:
        """Compare the words of a text, and the parts of its identifiers."""
        if not self._max_distance or len(self._compared) >= MAX_COMPARED_WORDS:
            return
        size, limit = len(self._word), self._max_distance
        names = Counter(_NAME.findall(text))
        for name, count in names.items():
            whole = fold(name)
            parts = () if len(name) < size - limit else {whole, whole.strip("_"), *map(fold, identifier_parts(name))}
            for part in parts:
                if abs(len(part) - size) > limit or part == self._word:
                    continue
                if part in self._near:
                    self._near[part] += count
                elif part not in self._compared and len(self._compared) < MAX_COMPARED_WORDS:
                    self._compared.add(part)
                    if distance(self._word, part, limit) <= limit:
                        self._near[part] += count

    def best(self) -> str:
        """Return the nearest word, or an empty string. Of equally near words, the most frequent is returned."""
        if not self._near:
            return ""
        return min(
            self._near, key=lambda word: (distance(self._word, word, self._max_distance), -self._near[word], word)
        )


def distance(one: str, other: str, limit: int) -> int:
    """Return the number of edits that turn one word into the other; `limit + 1` if there are more.

    An edit adds, removes or replaces a letter, or swaps it with the next one. This is the optimal string alignment
    distance (Damerau, 1964), without the rows and columns that exceed `limit`.
    """
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    previous: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        previous, second_previous, row = row, previous, [at] + [limit + 1] * len(other)
        for to in range(max(1, at - limit), min(len(other), at + limit) + 1):
            same = letter == other[to - 1]
            value = min(previous[to - 1] + (not same), previous[to] + 1, row[to - 1] + 1)
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == other[to - 1]:
                value = min(value, second_previous[to - 2] + 1)
            row[to] = value
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)
