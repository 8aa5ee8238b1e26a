"""Looking for the words of a query in texts, for sources that search without an index; reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["COMPLETIONS", "SNIPPET", "begins_then_holds", "has_all", "line_with", "words_of"]

COMPLETIONS = 100
"""Values of one completion (all revisions, completion)."""
SNIPPET = 200
"""Characters of a text that are shown of a hit."""
WORDS = 16
"""Words of one query that are looked for."""


def words_of(query: str) -> list[str]:
    """The words of a query, which must all be there, in any case."""
    return query.casefold().split()[:WORDS]


def has_all(text: str, words: Sequence[str]) -> bool:
    """Whether a text has all of the words; never where there are none."""
    folded = text.casefold()
    return bool(words) and all(word in folded for word in words)


def line_with(text: str, words: Sequence[str]) -> str:
    """A piece of the first line that has the longest of the words, with its number: `3: Soundings in fathoms`."""
    word = max(words, key=len)
    for number, line in enumerate(text.split("\n"), 1):
        at = line.casefold().find(word)
        if at >= 0:
            begin = max(0, at - SNIPPET // 2)
            return f"{number}: {line[begin : begin + SNIPPET].strip()}"
    return ""


def begins_then_holds(names: Iterable[str], value: str) -> list[str]:
    """The names that begin with what was typed, then those that hold it, in any case."""
    wanted = value.casefold()
    begin: list[str] = []
    hold: list[str] = []
    for name in names:
        folded = name.casefold()
        if folded.startswith(wanted):
            begin.append(name)
        elif wanted in folded and len(hold) < COMPLETIONS:
            hold.append(name)
        if len(begin) == COMPLETIONS:
            break
    return (begin + hold)[:COMPLETIONS]
