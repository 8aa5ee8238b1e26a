"""Absolute commands, for a host or a person who runs them in another folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["absolute_command", "own_command"]


def own_command() -> tuple[str, ...]:
    """Return the absolute command of this `wharfinger`.

    Links are not resolved: the path in a virtual environment's `bin` is the one that works.
    """
    name = Path(sys.argv[0] if sys.argv else "")
    if name.name.startswith("wharfinger") and name.is_file():
        return (str(name.absolute()),)
    beside = Path(sys.executable).parent / ("wharfinger.exe" if os.name == "nt" else "wharfinger")
    if beside.is_file():
        return (str(beside.absolute()),)
    return (sys.executable, "-m", "wharfinger")


def absolute_command(words: list[str]) -> tuple[str, ...]:
    """Make the executable, and every argument that is clearly a path in the current folder, absolute.

    Raises:
        FileNotFoundError: there is no such executable.
    """
    import shutil

    found = shutil.which(words[0])
    if found is None:
        raise FileNotFoundError(2, "no such command", words[0])
    return (str(Path(found).absolute()), *(str(Path(word).absolute()) if is_path(word) else word for word in words[1:]))


def is_path(word: str) -> bool:
    """Return whether an argument names a file or folder: a bare word may be a sub-command."""
    path = Path(word)
    looks = os.sep in word or word in (".", "..") or (path.suffix != "" and path.is_file())
    return looks and not word.startswith("-") and path.exists()
