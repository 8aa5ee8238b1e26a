"""Finds the URIs at which a server publishes a directory of this machine, for rules of a policy that name it (`roots`).

Paths are compared name by name after all symbolic links are resolved, so `/data` never includes `/data-old`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from wharfinger.source import Source

__all__ = ["patterns_in"]


def patterns_in(directory: str, sources: Iterable[Source]) -> list[str]:
    """Return patterns for everything in a directory that these sources publish; none if they publish none of it."""
    names = _names(os.path.realpath(os.path.expanduser(directory)))
    patterns: list[str] = []
    for source in sources:
        if not source.root:
            continue
        root = _names(os.path.realpath(source.root))
        if _begins_with(root, names):
            patterns += source.patterns_below(())
        elif _begins_with(names, root):
            patterns += source.patterns_below(names[len(root) :])
    return patterns


def _names(path: str) -> tuple[str, ...]:
    return Path(path).parts


def _begins_with(names: tuple[str, ...], beginning: tuple[str, ...]) -> bool:
    compared = zip(names, beginning, strict=False)
    return len(names) >= len(beginning) and all(
        os.path.normcase(one) == os.path.normcase(other) for one, other in compared
    )
