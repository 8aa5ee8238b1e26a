"""Determines which paths differ between two trees, or a tree and a working tree, and their patches."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.source import VERSION
from wharfinger.sources.folder.file_uri import join_parts
from wharfinger.sources.git_repository.git_process import SAFE_DIFF, GitFailed, run_git
from wharfinger.sources.git_repository.private_directory import PrivateDirectory
from wharfinger.sources.git_repository.readable_history import parts_of, readable_paths
from wharfinger.sources.windows.window import NEXT, continuation, with_query

__all__ = [
    "DIFF",
    "EMPTY_TREES",
    "MAX_COMPARED_PATHS",
    "ComparedPaths",
    "TreeChange",
    "WorkingTree",
    "changes",
    "changes_after",
    "compared_paths",
    "patches",
    "window_contents",
]

EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The empty tree, by the length of its name. git knows it in every repository."""
LISTED_BYTES = 32 << 20
"""Maximum bytes of the list of paths that git prints."""
MAX_COMPARED_PATHS = 500
"""Maximum number of paths that are passed to a command."""
PATCH_BYTES = 1 << 20
"""Maximum bytes of patches that git prints. If the first patch is larger, git runs again with `LARGEST_PATCH_BYTES`."""
LARGEST_PATCH_BYTES = 16 << 20
"""Maximum bytes of the patch of one path."""
LARGEST_BINARY_BYTES = 2 << 20
"""Maximum bytes of the patch of a binary file."""
SHORTEST_PATCH_CHARACTERS = 50
"""Every patch is longer than this, even that of a changed mode. So it bounds the number of patches in a window."""
DIFF_SECONDS = 10.0
DIFF = "text/x-diff"

_RAW = re.compile(rb":([0-7]{6}) ([0-7]{6}) ([0-9a-f]+) ([0-9a-f]+) ([A-Z])\d*").fullmatch


class WorkingTree(NamedTuple):
    """A copy of the index, and a folder to compare a tree with; without a folder, only the index is compared."""

    folder: str
    index_file: str


NO_WORKING_TREE = WorkingTree("", "")


class TreeChange(NamedTuple):
    """One path that differs. `status` is A, D, M, R or T (git-diff-tree(1)).

    `old` and `new` are the names of its objects, and `old_path` is its path before a rename.
    """

    path: bytes
    status: str
    old_mode: int
    new_mode: int
    old: str
    new: str
    old_path: bytes = b""

    @property
    def patch_count(self) -> int:
        """The number of patches that git prints: two if the type of the file changed."""
        return 2 if self.status == "T" else 1


class ComparedPaths(NamedTuple):
    """The files and folders to compare (all if `paths` is empty), and whether to find renames among them.

    If the caller may read none of the changed paths, or more than a command takes, `paths` is empty, and `listed` has
    the changes of the paths that may be read.
    """

    paths: Sequence[bytes] = ()
    renames: bool = True
    listed: Sequence[TreeChange] | None = None
    cut: bool = False
    """Whether git ended before it had listed all paths that changed."""


EVERYTHING = ComparedPaths()


async def compared_paths(
    private_directory: PrivateDirectory,
    old: str,
    new: str,
    path: bytes,
    is_readable: Callable[[bytes], bool] | None,
    *,
    working: WorkingTree = NO_WORKING_TREE,
) -> ComparedPaths:
    """Return the paths to compare. For a caller who may not read everything, git gets only the paths that may be read.

    So a rename from a name that may not be read appears as an addition.

    Args:
        private_directory: The directory of the repository.
        old: The object name of the older tree or commit.
        new: The object name of the newer one.
        path: Only this file or folder.
        is_readable: Returns whether the caller may read a path; None if the caller may read all.
        working: A working tree, which takes the place of `new`.

    Raises:
        GitFailed: git cannot compare them.
    """
    everything = ComparedPaths([path] if path else [])
    if is_readable is None:
        return everything
    listed, cut = await changes(private_directory, old, new, everything._replace(renames=False), working=working)
    paths = readable_paths([change.path for change in listed], is_readable)
    if cut and listed:
        # If a folder replaced a file, its files come later in git's order, and may be among those that are not listed.
        paths = [path for path in paths if not listed[-1].path.startswith(path)]
    if len(paths) == len(listed) and not cut:
        return everything
    if 0 < len(paths) <= MAX_COMPARED_PATHS:
        return ComparedPaths(paths, cut=cut)
    chosen = set(paths)
    return ComparedPaths((), False, [change for change in listed if change.path in chosen], cut)


async def changes(
    private_directory: PrivateDirectory,
    old: str,
    new: str,
    compared: ComparedPaths = EVERYTHING,
    *,
    limit: int | None = None,
    seconds: float = DIFF_SECONDS,
    working: WorkingTree = NO_WORKING_TREE,
) -> tuple[list[TreeChange], bool]:
    """Return the paths that differ between two trees or commits, in order, and whether there may be more.

    Args:
        private_directory: The directory of the repository.
        old: The object name of the older tree or commit.
        new: The object name of the newer one.
        compared: Which paths are compared, and how.
        limit: Maximum number of paths to return.
        seconds: Maximum time of the comparison.
        working: A working tree, which takes the place of `new`.

    Raises:
        GitFailed: git cannot compare them.
    """
    if compared.listed is not None:
        return list(compared.listed[:limit]), compared.cut or (limit is not None and len(compared.listed) > limit)
    output = await run_git(
        private_directory, *_command(working), "-z", "-M" if compared.renames else "--no-renames", "--raw",
        "--no-abbrev", *_sides(old, new, working), "--", *compared.paths,
        max_output_bytes=LISTED_BYTES, seconds=seconds, partial=True, work_tree=working.folder,
        index=working.index_file,
    )  # fmt: skip
    tree_changes: list[TreeChange] = []
    more = bool(output.cut) or compared.cut
    parts = iter(output.data.split(b"\0")[:-1])  # what follows the last NUL was cut
    with suppress(StopIteration):
        for part in parts:
            raw = _RAW(part)
            if raw is None:
                break
            if limit is not None and len(tree_changes) >= limit:
                return tree_changes, True
            modes, names, status = [int(mode, 8) for mode in raw.group(1, 2)], raw.group(3, 4), raw[5].decode()
            first = next(parts)
            second = next(parts) if status == "R" else b""
            old_oid, new_oid = [name.decode() for name in names]
            old_path = first if second else b""
            tree_changes.append(TreeChange(second or first, status, modes[0], modes[1], old_oid, new_oid, old_path))
    return tree_changes, more


async def patches(
    private_directory: PrivateDirectory,
    old: str,
    new: str,
    listed: Sequence[TreeChange],
    compared: ComparedPaths,
    room: int,
    working: WorkingTree = NO_WORKING_TREE,
) -> tuple[list[str], bool]:
    """Return one text for each of the first changes, with its patches: at least one text, and more while `room` lasts.

    `room` is a number of characters. The second value is whether git ended too early, so that another call may return
    more texts. `git apply` accepts the texts, except those of contents that are too large or not in UTF-8. Patches of
    binary files have the full names of objects, other patches abbreviate them.

    Raises:
        GitFailed: git cannot compare them.
    """
    if compared.listed is not None:
        listed = listed[:MAX_COMPARED_PATHS]
        compared = ComparedPaths([change.path for change in listed], False)
    first = listed[0]
    plain = all(_is_plain(change) for change in listed[: room // SHORTEST_PATCH_CHARACTERS + 1])
    arguments: list[str | bytes] = [
        "-p",
        "-M" if compared.renames else "--no-renames",
        "--binary",
        "--abbrev=8",
        "--no-color",
    ]
    arguments += [b"--skip-to=" + first.path, *_sides(old, new, working), "--", *compared.paths]
    pieces: list[bytes] = []
    cut = "size"
    for max_output_bytes in (PATCH_BYTES, LARGEST_PATCH_BYTES):
        if len(pieces) >= first.patch_count or cut != "size":
            break
        data, cut, _ = await run_git(
            private_directory, "-c", f"core.quotePath={'false' if plain else 'true'}", *_command(working), *arguments,
            max_output_bytes=max_output_bytes, seconds=DIFF_SECONDS, partial=True, work_tree=working.folder,
            index=working.index_file,
        )  # fmt: skip
        # No other line of a patch begins like this.
        begins = [match.start() for match in re.finditer(rb"^diff --git ", data, re.MULTILINE)]
        pieces = [data[begin:end] for begin, end in pairwise([*begins, len(data)])]
        if cut:
            del pieces[-1:]  # it is incomplete
    texts: list[str] = []
    size = index = 0
    for change in listed:
        change_pieces = pieces[index : index + change.patch_count]
        text = "".join([_text(piece) for piece in change_pieces])
        size += len(text)
        if len(change_pieces) < change.patch_count or (texts and size > room):
            break
        index += change.patch_count
        texts.append(text)
    if not texts:
        if not cut:
            raise GitFailed("`git diff-tree` printed no patches: see `git fsck`.")
        name = shown(os.fsdecode(first.path))
        reason = {"size": "are too large to compare", "time": f"were not compared within {DIFF_SECONDS:g} s"}
        words = reason.get(cut, "cannot be compared: see `git fsck`")
        texts = [f"diff --git a/{name} b/{name}\nThe contents differ, and {words}.\n"]
    return texts, cut in ("time", "failure") and len(texts) < len(listed)


def _command(working: WorkingTree) -> tuple[str, ...]:
    """Return the command that compares, with its safety options."""
    if not working.index_file:
        return ("diff-tree", "-r", *SAFE_DIFF)
    # ADMRT leaves out merge conflicts, which a patch cannot show.
    if not working.folder:
        # After `git add --intent-to-add`, the content of a file is not staged.
        return ("diff-index", "--cached", "--ita-invisible-in-index", "--diff-filter=ADMRT", *SAFE_DIFF)
    # For a submodule, git would start another git with the configuration of the submodule.
    return ("diff-index", "--diff-filter=ADMRT", *SAFE_DIFF, "--ignore-submodules=all")


def _sides(old: str, new: str, working: WorkingTree) -> tuple[str, ...]:
    return (old,) if working.index_file else (old, new)


def changes_after(listed: list[TreeChange], after: bytes) -> list[TreeChange]:
    """Return the changes after a path, in git's order."""
    if not after:
        return listed
    begin = next((index + 1 for index, change in enumerate(listed) if change.path == after), None)
    return listed[begin:] if begin is not None else [change for change in listed if change.path > after]


def window_contents(
    uri: str, version: str, text: str, listed: Sequence[TreeChange], shown_count: int, next_base: str
) -> list[t.ResourceContents]:
    """Return a window of a difference: its text and, if there are more changes, a link to the next window.

    Args:
        uri: The URI of the difference.
        version: Its version.
        text: The text of the window.
        listed: The changes from the beginning of this window on.
        shown_count: How many of them the text shows.
        next_base: The URI of the next window, without its query.
    """
    meta: dict[str, object] = {VERSION: version}
    contents = [t.ResourceContents(uri=uri, mime_type=DIFF, text=text, meta=meta)]
    if shown_count < len(listed):
        last = join_parts(parts_of(listed[shown_count - 1].path))
        meta[NEXT] = next_uri = with_query(next_base, f"after={last.replace('&', '%26')}")
        words = f"{many(shown_count, 'path')} in this window, {len(listed) - shown_count:,} after it."
        contents.append(continuation(next_uri, words))
    return contents


def _is_plain(change: TreeChange) -> bool:
    """Return whether the paths of a change can be shown unchanged. If not, git has to quote them byte by byte."""
    try:
        return change.path.decode().isprintable() and change.old_path.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _text(patch: bytes) -> str:
    position = patch.find(b"\nGIT binary patch\n")
    if position >= 0 and len(patch) > LARGEST_BINARY_BYTES:
        patch = patch[: position + 1] + b"Binary contents differ, and are too large to show.\n"
    decoded = mime.decode_text(patch)
    return patch.decode("utf-8", "backslashreplace") if decoded is None else decoded[0]
