"""Finds the programs that sources run, such as git."""

from __future__ import annotations

import os
import shutil

__all__ = ["program_path"]


def program_path(name: str) -> str | None:
    """Return the absolute path of a program, or None if it is not in PATH.

    Relative folders in PATH, such as `.`, are left out: they depend on where the server was started, and could be the
    folder that is published, with a program of this name in it.
    """
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    return path if path and os.path.isabs(path) else None  # on Windows, `which` looks in the current folder too
