"""Completing a name from a list of names."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["COMPLETIONS", "begins_then_holds"]

COMPLETIONS = 101
"""Values of one completion, at most: 100 are shown (all revisions, completion), one more says that there are others."""


def begins_then_holds(names: Iterable[str], value: str) -> list[str]:
    """The names that begin with `value`, then those that contain it; upper and lower case are the same."""
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
