"""What a published folder is called in its URIs, and whether a path may be published at all; opens nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from wharfinger.errors import WharfingerError

__all__ = ["LabelledPath", "UnusableFolder", "default_label", "label_paths", "parse_path_argument", "resolve_root"]

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._ -]*)=(.+)", re.DOTALL).fullmatch


class UnusableFolder(WharfingerError, ValueError):
    """This path cannot be published; `str()` shows what it resolved to, and what to give instead."""

    exit_code = 2


class LabelledPath(NamedTuple):
    """A path to publish, and the label it was given; None where the folder's name is to do."""

    path: str
    label: str | None


def parse_path_argument(argument: str) -> LabelledPath:
    """Read `PATH` or `name=PATH`. A path that exists is a path, whatever is in its name."""
    named = _NAMED(argument)
    if named is None or os.path.lexists(argument):
        return LabelledPath(argument, None)
    return LabelledPath(named[2], named[1])


def label_paths(arguments: Iterable[str]) -> list[LabelledPath]:
    """Read several arguments and give each a label of its own: the folder's name, with a number where it is taken.

    Raises:
        UnusableFolder: the same label was chosen twice.
    """
    parsed = [parse_path_argument(argument) for argument in arguments]
    taken: set[str] = set()
    for path, label in parsed:
        if label is not None and label in taken:
            raise UnusableFolder(f"The name {label!r} is given twice: choose another one in {label}={path}.")
        if label is not None:
            taken.add(label)
    labelled: list[LabelledPath] = []
    for path, label in parsed:
        if label is None:
            label = _free(default_label(os.path.realpath(path)), taken)
            taken.add(label)
        labelled.append(LabelledPath(path, label))
    return labelled


def _free(wanted: str, taken: set[str]) -> str:
    label, number = wanted, 1
    while label in taken:
        number += 1
        label = f"{wanted}-{number}"
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
