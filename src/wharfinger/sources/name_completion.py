"""Completes a name from a list of names."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["MAX_COMPLETIONS", "complete_name"]

MAX_COMPLETIONS = 101
"""Maximum number of values of one completion: the protocol allows 100, and one more shows that there are others."""


def complete_name(names: Iterable[str], value: str) -> list[str]:
    """Return the names that begin with `value`, then those that contain it, ignoring case."""
    folded_value = value.casefold()
    begin: list[str] = []
    contain: list[str] = []
    for name in names:
        folded = name.casefold()
        if folded.startswith(folded_value):
            begin.append(name)
        elif folded_value in folded and len(contain) < MAX_COMPLETIONS:
            contain.append(name)
        if len(begin) == MAX_COMPLETIONS:
            break
    return (begin + contain)[:MAX_COMPLETIONS]
