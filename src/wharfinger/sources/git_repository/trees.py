"""Finding a path in a tree, walking all paths below one from any position, and what differs between two trees.

Walks are lazy: a tree that holds itself many times over costs what is asked of it. Knows no URIs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.objects import PureDamaged, PureMissing, PureReader
from wharfinger.sources.git_repository.parsing import GitTree, GitTreeEntry

__all__ = ["NoSuchPath", "TreeChange", "changes", "find", "is_link", "is_module", "is_tree", "name_of", "walk"]

DEEPEST = 512  # folders in folders


class NoSuchPath(LookupError):
    """The tree has no such path."""


class TreeChange(NamedTuple):
    """One path that differs; `old` and `new` are None where it is not there. `moved` is where it was before."""

    path: bytes
    old: GitTreeEntry | None
    new: GitTreeEntry | None
    moved: bytes | None = None


def is_tree(mode: int) -> bool:
    """Whether an entry is a folder."""
    return stat.S_ISDIR(mode)


def is_link(mode: int) -> bool:
    """Whether an entry is a symbolic link, whose content is where it leads."""
    return stat.S_ISLNK(mode)


def is_module(mode: int) -> bool:
    """Whether an entry is a submodule: a commit of another repository."""
    return mode & 0o170000 == 0o160000


def name_of(entry: GitTreeEntry) -> str:
    """An entry's name as a part of a path."""
    return os.fsdecode(entry.name)


def find(objects: PureReader, tree: str, parts: Parts) -> GitTreeEntry:
    """The entry at a path; the tree itself for none.

    Raises:
        NoSuchPath: there is none.
        PureMissing: a tree on the way is not in the repository.
    """
    found = GitTreeEntry(b"", stat.S_IFDIR, tree)
    for part in parts:
        if not is_tree(found.mode):
            raise NoSuchPath("/".join(parts))
        entries = objects.tree(found.oid)
        place = entries.place_of(os.fsencode(part))
        if place is None:
            raise NoSuchPath("/".join(parts))
        found = entries[place]
    return found


def walk(objects: PureReader, tree: str, after: Parts = ()) -> Iterator[tuple[Parts, GitTreeEntry]]:
    """Everything below a tree, folders before what they hold, behind a path of the same tree.

    Raises:
        NoSuchPath: the tree has no such path.
    """
    stack: list[tuple[Parts, GitTree, int]] = []
    at = tree
    parts: Parts = ()
    for part in after:
        entries = objects.tree(at)
        place = entries.place_of(os.fsencode(part))
        if place is None:
            raise NoSuchPath(part)
        stack.append((parts, entries, place + 1))
        entry = entries[place]
        parts, at = (*parts, part), entry.oid
        if not is_tree(entry.mode):
            break
    else:
        stack.append((parts, objects.tree(at), 0))
    while stack:
        parts, entries, place = stack.pop()
        if place >= len(entries):
            continue
        stack.append((parts, entries, place + 1))
        entry = entries[place]
        path = (*parts, name_of(entry))
        yield path, entry
        if is_tree(entry.mode) and len(path) < DEEPEST:
            try:
                stack.append((path, objects.tree(entry.oid), 0))
            except (PureMissing, PureDamaged):  # reading it says so
                continue


class _Trees:
    """The objects as dulwich's comparison of trees wants them."""

    def __init__(self, objects: PureReader) -> None:
        self._objects = objects

    def __getitem__(self, oid: bytes) -> Any:
        from dulwich.objects import Tree as DulwichTree

        name = oid.decode("ascii")
        self._objects.tree(name)  # which refuses what is none
        _, data = self._objects.whole(name)
        return DulwichTree.from_raw_string(DulwichTree.type_num, data)


def changes(objects: PureReader, old: str | None, new: str | None) -> Iterator[TreeChange]:
    """The paths that differ between two trees, in order. None is the tree that holds nothing."""
    from dulwich.diff_tree import tree_changes

    store: Any = _Trees(objects)
    pairs = tree_changes(store, old and old.encode(), new and new.encode(), change_type_same=True)  # type: ignore[arg-type]
    for pair in pairs:
        before, after = _entry(pair.old), _entry(pair.new)
        path = (pair.old and pair.old.path) if after is None else (pair.new and pair.new.path)
        if path is not None:
            yield TreeChange(path, before, after)


def _entry(side: Any) -> GitTreeEntry | None:
    if side is None or side.path is None or side.sha is None:
        return None
    return GitTreeEntry(side.path.rpartition(b"/")[2], side.mode, side.sha.decode("ascii"))
