"""Completes a path below a folder: first entries that start with the typed text, then those that contain it."""

from __future__ import annotations

import time
from collections.abc import Callable

from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, quote, split_path
from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.folder.tree import DirectoryListing, FileTree, Parts, TreePosition, TreeView
from wharfinger.sources.name_completion import MAX_COMPLETIONS

__all__ = ["complete_path", "typed_name"]

SEARCH_SECONDS = 0.1
"""Longest search of subdirectories."""


def complete_path(
    tree: FileTree, value: str, view: TreeView | None, accepts: Callable[[str], bool] | None = None
) -> list[str]:
    """Return paths that start with `value`, then those whose name contains its last part. Directories end with `/`.

    With a view, only paths that it shows are returned; with `accepts`, only directories, and files whose names it
    accepts.
    """
    head, _, typed = value.rpartition("/")
    try:
        parts = split_path(head)[0] if head else ()
        if view is not None and not view.may_read_below(parts):
            return []
        with tree.directory(parts) as directory:
            listing = tree.listing(directory)
    except (NotServed, UnreadableUri):
        return []
    typed_text = typed_name(typed)
    paths = _completions(parts, listing, typed_text, None if view is None else view.name_filter(parts), accepts)
    if typed_text and len(paths) < MAX_COMPLETIONS:
        paths += _complete_deeper(tree, parts, typed_text, MAX_COMPLETIONS - len(paths), set(paths), view, accepts)
    return paths[:MAX_COMPLETIONS]


def _complete_deeper(
    tree: FileTree,
    parts: Parts,
    typed_text: str,
    limit: int,
    listed: set[str],
    view: TreeView | None,
    accepts: Callable[[str], bool] | None,
) -> list[str]:
    """Return the files and directories below `parts` whose name contains the typed text, found in `SEARCH_SECONDS`."""
    deadline = time.monotonic() + SEARCH_SECONDS
    paths: list[str] = []
    entries = tree.walk(TreePosition(is_directory=True, parts=parts) if parts else None, view)
    try:
        for number, entry in enumerate(entries):
            if entry.parts[: len(parts)] != parts or len(paths) >= limit:
                break
            if number % 256 == 255 and time.monotonic() > deadline:
                break
            if typed_text in entry.name.casefold() and (accepts is None or entry.is_directory or accepts(entry.name)):
                path = join_parts(entry.parts) + ("/" if entry.is_directory else "")
                if path not in listed:
                    paths.append(path)
    finally:
        entries.close()
    return paths


def typed_name(typed: str) -> str:
    """Decode and casefold the typed part of a name. Its percent-encoding may be incomplete."""
    try:
        return split_path(typed)[0][0].casefold() if typed else ""
    except (UnreadableUri, IndexError):
        return typed.casefold()


def _completions(
    parts: Parts,
    listing: DirectoryListing,
    typed_text: str,
    shows: Callable[[str], bool] | None,
    accepts: Callable[[str], bool] | None,
) -> list[str]:
    """Return the entries of one directory that start with the typed text, then those that contain it."""
    prefix = join_parts(parts) + "/" if parts else ""
    starting: list[str] = []
    containing: list[str] = []
    for names, end in ((listing.directories, "/"), (listing.files, "")):
        is_directory = end == "/"
        for name in names:
            folded = name.casefold()
            if shows is not None and not shows(name):
                continue
            if accepts is not None and not is_directory and not accepts(name):
                continue
            if folded.startswith(typed_text):
                starting.append(prefix + quote(name) + end)
                if len(starting) >= MAX_COMPLETIONS:
                    return starting
            elif typed_text in folded and len(containing) < MAX_COMPLETIONS:
                containing.append(prefix + quote(name) + end)
    return starting + containing
