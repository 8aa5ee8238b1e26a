"""Completes a name from a list of names."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["MAX_COMPLETIONS", "complete_name"]

MAX_COMPLETIONS = 101
"""Maximum number of values of one completion: the protocol allows 100, and one more shows that there are others."""


def complete_name(names: Iterable[str], value: str) -> list[str]:
    """Return the names that begin with `value`, then those that contain it, ignoring case."""
    folded_value = value.casefold()
    starting: list[str] = []
    containing: list[str] = []
    for name in names:
        folded = name.casefold()
        if folded.startswith(folded_value):
            starting.append(name)
        elif folded_value in folded and len(containing) < MAX_COMPLETIONS:
            containing.append(name)
        if len(starting) == MAX_COMPLETIONS:
            break
    return (starting + containing)[:MAX_COMPLETIONS]
