"""Chooses the labels of sources in URIs, and checks the folders to publish. Opens no file."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from pathlib import PurePath

from wharfinger.source import UnusableSource

__all__ = ["UnusableFolder", "default_label", "first_free_label", "resolve_root", "split_label", "usable_label"]

_LABELLED = re.compile(r"([^\W_][\w. -]*)=(.+)", re.DOTALL).fullmatch


class UnusableFolder(UnusableSource):
    """A folder cannot be published. The message says why."""


def split_label(argument: str) -> tuple[str, str | None]:
    """Split `WORD` or `LABEL=WORD` into the word and the label, if any. A path that exists is not split."""
    match = _LABELLED(argument)
    if match is None or os.path.lexists(argument):
        return argument, None
    return match[2], match[1]


def first_free_label(labels: Sequence[str], taken: Container[str]) -> str:
    """Return the first of these labels that is not taken; if all are taken, the last one with a number after it."""
    for label in labels:
        if label not in taken:
            return label
    number = 2
    while (label := f"{labels[-1]}-{number}") in taken:
        number += 1
    return label


def usable_label(label: str, error_class: type[UnusableSource] = UnusableSource) -> str:
    """Return the label, if it can be a segment of a URI.

    Raises:
        UnusableSource: the label cannot be a segment. `error_class` is the class to raise.
    """
    if label in ("", ".", "..") or "/" in label or "\0" in label:
        raise error_class(f"{label!r} cannot be part of a URI: choose another label.")
    return label


def default_label(root: str) -> str:
    """Return the name of the folder, or `"root"` if it has none, like `/`."""
    return os.path.basename(root.rstrip("/\\")) or "root"


def resolve_root(path: str | os.PathLike[str]) -> str:
    """Resolve the path of a folder to publish.

    Raises:
        UnusableFolder: it is missing, is not a folder, or cannot be read. A relative path to the user's home folder, or
            to a folder above that, is refused too.
    """
    text = os.fsdecode(os.fspath(path))
    if "\0" in text:
        raise UnusableFolder(f"{text!r} has a NUL, which no path can have.")
    resolved = os.path.realpath(text)
    if not os.path.lexists(resolved):
        origin = f" (from {text!r})" if text != resolved else ""
        raise UnusableFolder(f"There is no folder {resolved}{origin}.")
    if not os.path.isdir(resolved):
        parent = os.path.dirname(resolved)
        raise UnusableFolder(f"{resolved} is not a folder: publish {parent}, and select the file with include.")
    if not os.access(resolved, os.R_OK | os.X_OK):
        raise UnusableFolder(f"{resolved} cannot be read by this user.")
    if not os.path.isabs(text) and _contains_home(resolved):
        raise UnusableFolder(
            f"{text!r} is {resolved}, and everything in it would be published: give the full path to confirm that."
        )
    return resolved


def _contains_home(resolved: str) -> bool:
    """Return whether this is `/`, the home folder, or a folder that contains it."""
    home = os.path.realpath(os.path.expanduser("~"))
    return resolved == os.path.dirname(resolved) or PurePath(home).is_relative_to(resolved)
