"""Splits a pattern such as `logs/*.log` into a folder and the choice of files in it."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from wharfinger.source import UnusableSource
from wharfinger.sources.folder.ignore import PublishChoice

__all__ = ["Pattern", "read_pattern"]

_WILD = re.compile(r"[*?\[]").search


class Pattern(NamedTuple):
    """The folder before the first wildcard of a pattern, the rest of the pattern, and the files that it publishes."""

    root: str
    rest: str
    choice: PublishChoice


def read_pattern(pattern: str | os.PathLike[str]) -> Pattern:
    """Split a pattern into a folder and the rest: the parts from the first with a wildcard, or else the file's name.

    Raises:
        UnusableSource: the folder is missing or may not be read, or the pattern is a folder or cannot be matched.
    """
    text = os.fsdecode(os.fspath(pattern))
    if "\0" in text:
        raise UnusableSource(f"{text!r} has a NUL, which no path can have.")
    parts = text.replace(os.sep, "/").split("/")
    first_wild = next((index for index, part in enumerate(parts[:-1]) if _WILD(part)), len(parts) - 1)
    root = os.path.realpath("/".join(parts[:first_wild]) or ("/" if first_wild else "."))
    rest = "/".join(parts[first_wild:])
    if not rest or os.path.isdir(os.path.join(root, rest)):
        raise UnusableSource(f"{text} is a folder: write {text.rstrip('/')}/*.log for the logs in it.")
    if ".." in parts[first_wild:] or "" in parts[first_wild:]:
        raise UnusableSource(f"{text}: write the part after the first * without '..' and '//'.")
    if not os.path.isdir(root):
        raise UnusableSource(f"There is no folder {root} (from {text!r}).")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UnusableSource(f"{root} may not be read by this user.")
    return Pattern(root, rest, _choice(rest))


def _choice(rest: str) -> PublishChoice:
    """Choose the files that match the rest of a pattern, and the directories that can contain them."""
    # In a .gitignore pattern, spaces at the end count only if they are escaped.
    parts = re.sub(r" +$", lambda found: "\\ " * len(found[0]), rest).split("/")
    excluded: list[str] = []
    prefix = ""
    for part in parts:
        if part == "**":
            break
        excluded.append(f"{prefix}/*/")
        prefix += f"/{part}"
        if len(excluded) < len(parts):
            excluded.append(f"!{prefix}/")
    hidden = any(part.startswith(".") for part in parts)
    return PublishChoice(include=("/" + "/".join(parts),), exclude=excluded, hidden=hidden)
