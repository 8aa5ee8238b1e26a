"""The changes that are not committed: `git://label/changes` and `git://label/changes/{+path}`.

git compares the working tree with HEAD through a copy of the index, so that it never writes the repository's own. Its
configuration is that of the private directory, without filters, hooks and file monitors; attributes in the working tree
can name such programs, but not define them. Of submodules, only staged changes are listed: to compare their folders,
git would start another git there with the configuration of the submodule.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

from wharfinger import types as t
from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument
from wharfinger.policy.current import may_read, may_read_below, reads_all_below
from wharfinger.source import VERSION
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_differences import (
    DIFF,
    MAX_COMPARED_PATHS,
    TreeChange,
    WorkingTree,
    changes,
    changes_after,
    compared_paths,
    patches,
    window_contents,
)
from wharfinger.sources.git_repository.git_process import SAFE_DIFF, GitFailed, run_git
from wharfinger.sources.git_repository.git_text import change_line
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.private_directory import INDEX_BYTES
from wharfinger.sources.git_repository.readable_history import parts_of
from wharfinger.sources.windows.window_budget import WINDOW_BYTES, first_that_fit, within_budget

__all__ = ["ChangesAnswer"]

MAX_PATHS = 200
"""Maximum number of changed paths, and of untracked paths, that the text names."""
UNTRACKED_BYTES = 1 << 20
"""Maximum bytes of names of untracked files that are read."""
UNTRACKED_SECONDS = 5.0
COMPARISON_SECONDS = 5.0
"""Timeout for comparing the working tree with the index."""


class ChangesAnswer(GitAnswer):
    """The differences between HEAD and the working tree, and which of them are staged."""

    only_references = False

    _tree: str
    _head: str
    _changed: list[TreeChange]
    _staged: list[TreeChange]
    _untracked: list[bytes]
    _incomplete: bool
    """Whether git ended before it had found all changes."""

    async def load(self) -> None:
        repository = self.repository.private_directory.found
        if not repository.work_tree:
            raise InvalidArgument("This repository is bare: it has no working tree, and so no changes to commit.")
        if self.references.head is None:
            raise InvalidArgument("There are no commits yet with which the working tree could be compared.")
        self._tree = (await self.objects.commit_of(self.references.head)).tree
        self._head = (await self.revision("HEAD")).oid
        await asyncio.to_thread(_check_files, repository.work_tree)
        index = await asyncio.to_thread(self.repository.private_directory.copy_index)
        try:
            await self._compare(WorkingTree(repository.work_tree, index))
        finally:
            await asyncio.to_thread(_remove, index)

    async def _compare(self, working_tree: WorkingTree) -> None:
        private_directory, path_filter = self.repository.private_directory, self.path_filter
        # Refresh the copy of the index, so that a file with new times and the same contents does not count as changed.
        await run_git(
            private_directory, "update-index", "-q", "--refresh", "--ignore-submodules", "--unmerged",
            work_tree=working_tree.folder, index=working_tree.index_file, max_file_bytes=2 * INDEX_BYTES,
            seconds=COMPARISON_SECONDS, codes=(0, 1),
        )  # fmt: skip
        staged = WorkingTree("", working_tree.index_file)
        paths = await compared_paths(private_directory, self._tree, "", self.path, path_filter, working=working_tree)
        staged_paths = await compared_paths(private_directory, self._tree, "", self.path, path_filter, working=staged)
        (self._changed, changes_cut), (self._staged, staged_cut) = await asyncio.gather(
            changes(private_directory, self._tree, "", paths, working=working_tree),
            changes(private_directory, self._tree, "", staged_paths, working=staged),
        )
        self._changed = await self._without_undone(working_tree)
        self._untracked, untracked_cut = await self._find_untracked(working_tree, self._paths)
        self._incomplete = changes_cut or staged_cut or untracked_cut
        if path_filter is not None:
            self._untracked, untracked_cut = await self._readable_untracked(working_tree)
            self._incomplete = self._incomplete or untracked_cut
        self._patches: list[str] = []
        self._failure = ""
        self._listed = changes_after(self._changed, os.fsencode("/".join(self.path_parameter("after"))))
        if self._listed:
            try:
                self._patches, _ = await patches(
                    private_directory, self._tree, "", self._listed, paths, WINDOW_BYTES, working=working_tree
                )
            except GitFailed as error:  # such as a pipe in place of a file: other paths can still be read
                self._failure = error.why or error.message
        # The name of the tree also depends on files that the caller may not read.
        tree = self._tree if path_filter is None else ""
        lists = tree, self._changed, self._staged, self._incomplete
        digest = hashlib.blake2b(repr(lists).encode(), digest_size=16)
        digest.update("".join(self._patches).encode("utf-8", "surrogateescape"))
        digest.update(b"\0".join(self._untracked))
        # A file that changed again may be in a later window, so its status is part of the version.
        digest.update(repr(await asyncio.to_thread(_statuses, working_tree.folder, self._changed)).encode())
        self.version = digest.hexdigest()

    async def _without_undone(self, working_tree: WorkingTree) -> list[TreeChange]:
        """Return `_changed` without the files that are as in HEAD again, while the index has another content.

        `git diff-index` lists them, because it compares no contents, but it prints no patches of them.
        """
        staged_paths = self._staged_paths()
        suspects = [  # of a file that is not as in the index, `new` is all zeros
            change.path
            for change in self._changed
            if change.status == "M" and change.old_mode == change.new_mode and not change.new.strip("0")
            and change.path in staged_paths
        ]  # fmt: skip
        undone = set(suspects)
        for begin in range(0, len(suspects), MAX_COMPARED_PATHS):
            output = await run_git(
                self.repository.private_directory, "diff-index", *SAFE_DIFF, "--ignore-submodules=all",
                "--numstat", "-z", "--no-renames", self._tree, "--", *suspects[begin : begin + MAX_COMPARED_PATHS],
                work_tree=working_tree.folder, index=working_tree.index_file, seconds=COMPARISON_SECONDS,
            )  # fmt: skip
            undone.difference_update(line.split(b"\t", 2)[2] for line in output.data.split(b"\0")[:-1])
        return [change for change in self._changed if change.path not in undone]

    def _staged_paths(self) -> set[bytes]:
        return {path for change in self._staged for path in (change.path, change.old_path)}

    @property
    def path_filter(self) -> Callable[[bytes], bool] | None:
        reads_all = self.readable is None or (
            reads_all_below(f"{self.uris.changes()}/") and reads_all_below(f"{self.uris.tree('HEAD')}/")
        )
        return None if reads_all else self.may_read

    def may_read(self, path: Parts | bytes) -> bool:
        """Return whether the caller may read a file both in the working tree and in HEAD."""
        parts = parts_of(path) if isinstance(path, bytes) else path
        return may_read(self.uris.changes(parts)) and may_read(self.uris.tree("HEAD", parts))

    async def _readable_untracked(self, working_tree: WorkingTree) -> tuple[list[bytes], bool]:
        """Return the untracked files, and folders (with a final slash) with a file, that the caller may read.

        The second value is whether git ended before it had found all files in these folders.
        """
        files = [path for path in self._untracked if not path.endswith(b"/")]
        folders = [
            path
            for path in self._untracked
            if path.endswith(b"/") and may_read_below(self.uris.tree("HEAD", parts_of(path[:-1])) + "/")
        ]
        cut = False
        if folders:
            paths = folders if len(folders) <= MAX_COMPARED_PATHS else self._paths
            inner_files, cut = await self._find_untracked(working_tree, paths, ())
            files += inner_files
        readable: set[bytes] = set()
        for path in filter(self.may_read, files):
            readable.add(path)
            readable.update(path[: match.end()] for match in re.finditer(b"/", path))
        return [path for path in self._untracked if path in readable], cut

    @property
    def _paths(self) -> list[bytes]:
        """The path in the URI, if it has one."""
        return [self.path] if self.path else []

    async def _find_untracked(
        self,
        working_tree: WorkingTree,
        paths: Sequence[bytes],
        options: Sequence[str] = ("--directory", "--no-empty-directory"),
    ) -> tuple[list[bytes], bool]:
        """Return the files that are neither in the index nor ignored by a `.gitignore`.

        With the default options, a folder of such files is returned in their place. The second value is whether git
        ended before it had found all of them.
        """
        arguments = ["-z", "--others", "--exclude-per-directory=.gitignore", *options, "--"]
        try:
            output = await run_git(
                self.repository.private_directory, "ls-files", *arguments, *paths,
                work_tree=working_tree.folder, index=working_tree.index_file, max_output_bytes=UNTRACKED_BYTES,
                seconds=UNTRACKED_SECONDS, partial=True,
            )  # fmt: skip
        except GitFailed:
            return [], True
        return output.data.split(b"\0")[:-1], bool(output.cut)

    async def resource(self) -> t.Resource:
        where = " of " + "/".join(self.address.parts) if self.address.parts else ""
        return t.Resource(
            uri=self.uri,
            name="changes",
            title=shown(f"Changes{where} that are not committed"),
            mime_type=DIFF,
            meta={VERSION: self.version},
        )

    async def contents(self) -> list[t.ResourceContents]:
        overview = "" if "after" in self.address.query else self._overview()
        shown_patches = first_that_fit(self._patches, within_budget(WINDOW_BYTES) - len(overview) - 1)
        text = "\n".join(filter(None, (overview, "".join(shown_patches))))
        if self._failure:
            text += f"\nThe contents cannot be compared ({self._failure}): read the paths one by one.\n"
        listed = () if self._failure else self._listed
        base = self.uris.changes(self.address.parts)
        return window_contents(self.uri, self.version, text, listed, len(shown_patches), base)

    def _overview(self) -> str:
        """Return the list of changed paths. `git apply` skips these lines."""
        head = f"{shown(self.references.head_name)} ({self._head[:12]})"
        incomplete = f"Not all changes since {head} were found, because git ended too early: ask for one path.\n"
        if not (self._changed or self._staged or self._untracked):
            where = f" of {shown('/'.join(self.address.parts))}" if self.address.parts else ""
            return incomplete if self._incomplete else f"Nothing{where} is changed since {head}.\n"
        staged_paths = self._staged_paths()
        lines = [f"Changes since {head} that are not committed:"]
        # If a change was staged and then undone in the working tree, only `staged` has it.
        all_changes = {change.path: change for change in (*self._staged, *self._changed)}
        lines += [
            change_line(all_changes[path]) + ("  (staged)" if path in staged_paths else "")
            for path in sorted(all_changes)[:MAX_PATHS]
        ]
        lines += [f"  and {len(all_changes) - MAX_PATHS:,} more"] * (len(all_changes) > MAX_PATHS)
        lines += [f"  ? {shown(os.fsdecode(path))}  (untracked)" for path in self._untracked[:MAX_PATHS]]
        lines += [f"  and {len(self._untracked) - MAX_PATHS:,} more untracked"] * (len(self._untracked) > MAX_PATHS)
        return "\n".join(lines) + "\n" + (incomplete if self._incomplete else "")


def _check_files(folder: str) -> None:
    """Refuse pipes in the top folder that git would open and wait for. In other folders, the deadline ends the wait.

    Raises:
        InvalidArgument: there is such a pipe.
    """
    for name in (".gitattributes", ".gitignore"):
        with suppress(OSError):
            mode = os.lstat(os.path.join(folder, name)).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                raise InvalidArgument(f"{name} in the working tree is a pipe, for which git would wait: remove it.")


def _remove(path: str) -> None:
    for name in (path, f"{path}.lock"):
        with suppress(OSError):
            os.unlink(name)


def _statuses(folder: str, changed: list[TreeChange]) -> list[tuple[int, int, int]]:
    statuses: list[tuple[int, int, int]] = []
    for change in changed:
        try:
            status = os.lstat(os.path.join(os.fsencode(folder), change.path))
        except OSError:
            continue
        statuses.append((status.st_mode, status.st_size, status.st_mtime_ns))
    return statuses
