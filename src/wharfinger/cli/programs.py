"""How this program is called from elsewhere: the absolute command that a host or a person can run as it stands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["absolute_command", "ourselves", "shell"]


def ourselves() -> tuple[str, ...]:
    """Return the absolute command that is this `wharfinger`.

    The path is not resolved through links: the one in a virtual environment's `bin` is the one that works.
    """
    name = Path(sys.argv[0] if sys.argv else "")
    if name.name.startswith("wharfinger") and name.is_file():
        return (str(name.absolute()),)
    beside = Path(sys.executable).parent / ("wharfinger.exe" if os.name == "nt" else "wharfinger")
    if beside.is_file():
        return (str(beside.absolute()),)
    return (sys.executable, "-m", "wharfinger")


def absolute_command(words: list[str]) -> tuple[str, ...]:
    """Return a command whose executable, and every argument that is clearly a path here, is absolute.

    A host starts it in a folder of its own choice. Raises FileNotFoundError where there is no such executable.
    """
    import shutil

    found = shutil.which(words[0])
    if found is None:
        raise FileNotFoundError(2, "no such command", words[0])
    return (str(Path(found).absolute()), *(str(Path(word).absolute()) if is_path(word) else word for word in words[1:]))


def is_path(word: str) -> bool:
    """Tell whether an argument names something here: a bare word may as well be a sub-command."""
    path = Path(word)
    looks = os.sep in word or word in (".", "..") or (path.suffix != "" and path.is_file())
    return looks and not word.startswith("-") and path.exists()


def shell(words: tuple[str, ...] | list[str]) -> str:
    """Write a command as a shell takes it."""
    import shlex

    return shlex.join(words)
