"""What is published under which label, and whether a path may be published at all; opens nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Container

from wharfinger.source import UnusableSource

__all__ = ["UnusableFolder", "default_label", "free", "resolve_root", "split_label", "usable_label"]

_NAMED = re.compile(r"([^\W_][\w. -]*)=(.+)", re.DOTALL).fullmatch


class UnusableFolder(UnusableSource):
    """This path cannot be published; `str()` shows what it resolved to, and what to give instead."""


def split_label(argument: str) -> tuple[str, str | None]:
    """Read `WORD` or `name=WORD` into the word and the label. A path that exists is a path, whatever is in its name."""
    named = _NAMED(argument)
    if named is None or os.path.lexists(argument):
        return argument, None
    return named[2], named[1]


def free(wanted: str, taken: Container[str]) -> str:
    """The label itself, or with a number where it is taken."""
    label, number = wanted, 1
    while label in taken:
        number += 1
        label = f"{wanted}-{number}"
    return label


def usable_label(label: str, refused: type[UnusableSource] = UnusableSource) -> str:
    """The label itself, where it can be one part of a URI.

    Raises:
        UnusableSource: it cannot; as the kind of it that is given.
    """
    if label in ("", ".", "..") or "/" in label or "\0" in label:
        raise refused(f"{label!r} cannot be a name in URIs: choose another label.")
    return label


def default_label(root: str) -> str:
    """The folder's own name."""
    return os.path.basename(root.rstrip("/\\")) or "root"


def resolve_root(path: str | os.PathLike[str]) -> str:
    """Find the folder that a path means.

    Raises:
        UnusableFolder: it is missing, no folder, not readable, or more than anybody means by a relative path.
    """
    given = os.fsdecode(os.fspath(path))
    resolved = os.path.realpath(given)
    if not os.path.lexists(resolved):
        origin = f" (from {given!r})" if given != resolved else ""
        raise UnusableFolder(f"There is no folder {resolved}{origin}.")
    if not os.path.isdir(resolved):
        parent = os.path.dirname(resolved)
        raise UnusableFolder(f"{resolved} is not a folder: publish {parent}, and choose with include.")
    if not os.access(resolved, os.R_OK | os.X_OK):
        raise UnusableFolder(f"{resolved} may not be read by this user.")
    if not os.path.isabs(given) and _holds_home(resolved):
        raise UnusableFolder(
            f"{given!r} is {resolved}, which would publish everything in it: give that path in full if you mean it."
        )
    return resolved


def _holds_home(resolved: str) -> bool:
    """Whether this is `/`, the home folder, or something that the home folder is in."""
    home = os.path.realpath(os.path.expanduser("~"))
    return resolved == os.path.dirname(resolved) or os.path.commonpath([resolved, home]) == resolved
