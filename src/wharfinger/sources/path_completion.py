"""Completes a path below a folder: first entries that start with what was typed, then those that contain it."""

from __future__ import annotations

import time
from collections.abc import Callable

from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, quote, split_path
from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.folder.tree import DirectoryListing, FileTree, Parts, TreePosition, TreeView
from wharfinger.sources.name_completion import MAX_COMPLETIONS

__all__ = ["complete_path", "typed_name"]

SEARCH_SECONDS = 0.1
"""How long subdirectories are searched."""


def complete_path(
    tree: FileTree, value: str, view: TreeView | None, accepts: Callable[[str], bool] | None = None
) -> list[str]:
    """Return paths that start with `value`, then those whose name contains its last part. Directories end with `/`.

    With a view, they are paths that it shows. `accepts` returns whether a file is wanted, by its name; None if all are.
    """
    head, _, typed = value.rpartition("/")
    try:
        parts = split_path(head)[0] if head else ()
        if view is not None and not view.may_read_below(parts):
            return []
        with tree.directory(parts) as place:
            listing = tree.listing(place)
    except (NotServed, UnreadableUri):
        return []
    wanted = typed_name(typed)
    found = _completions(parts, listing, wanted, None if view is None else view.names(parts), accepts)
    if wanted and len(found) < MAX_COMPLETIONS:
        found += _complete_deeper(tree, parts, wanted, MAX_COMPLETIONS - len(found), set(found), view, accepts)
    return found[:MAX_COMPLETIONS]


def _complete_deeper(
    tree: FileTree,
    parts: Parts,
    wanted: str,
    most: int,
    known: set[str],
    view: TreeView | None,
    accepts: Callable[[str], bool] | None,
) -> list[str]:
    """Return paths in subdirectories whose name contains what was typed: those found within `SEARCH_SECONDS`."""
    deadline = time.monotonic() + SEARCH_SECONDS
    found: list[str] = []
    entries = tree.walk(TreePosition(True, parts) if parts else None, view)
    try:
        for number, entry in enumerate(entries):
            if entry.parts[: len(parts)] != parts or len(found) >= most:
                break
            if number % 256 == 255 and time.monotonic() > deadline:
                break
            if wanted in entry.name.casefold() and (accepts is None or entry.is_directory or accepts(entry.name)):
                path = join_parts(entry.parts) + ("/" if entry.is_directory else "")
                if path not in known:
                    found.append(path)
    finally:
        entries.close()
    return found


def typed_name(typed: str) -> str:
    """Decode the part of a name that was typed. Its percent-encoding may be incomplete."""
    try:
        return split_path(typed)[0][0].casefold() if typed else ""
    except (UnreadableUri, IndexError):
        return typed.casefold()


def _completions(
    parts: Parts,
    listing: DirectoryListing,
    wanted: str,
    shows: Callable[[str], bool] | None,
    accepts: Callable[[str], bool] | None,
) -> list[str]:
    """Return the entries of one directory that start with what was typed, then those that contain it."""
    before = join_parts(parts) + "/" if parts else ""
    begin: list[str] = []
    contain: list[str] = []
    for names, end in ((listing.directories, "/"), (listing.files, "")):
        for name in names:
            folded = name.casefold()
            if (shows is not None and not shows(name)) or not (accepts is None or end or accepts(name)):
                continue
            if folded.startswith(wanted):
                begin.append(before + quote(name) + end)
                if len(begin) >= MAX_COMPLETIONS:
                    return begin
            elif wanted in folded and len(contain) < MAX_COMPLETIONS:
                contain.append(before + quote(name) + end)
    return begin + contain
