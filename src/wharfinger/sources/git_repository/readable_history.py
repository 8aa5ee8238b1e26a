"""The part of a repository that the current caller may read by the policy (`policy.current`).

A file is judged by its URI `git://label/tree/{rev}/{path}`, whatever the answer in which it would appear: a log, a
commit, a difference, a blame, a search. `{rev}` is the revision that the caller named, or in a list of commits
the name of the commit. The history is shown as if hidden files, which may not be read, had never been there:

- A commit that changed only hidden files does not exist. A branch, HEAD or `~1` that leads to such a commit means the
  nearest commit before it, along first parents, that is shown. The readable files of both are the same.
- Of any other commit, only the readable paths are shown. Its message may describe hidden paths, so the message is shown
  only if all paths that the commit changed may be read.
- An annotated tag means its commit, and its message is not shown.
- A tree or blob that is named by its object id has no path to judge, so such names are not found.

Without a policy, and for callers who may read everything, `Repository.readable_history` returns None, and none of this
code runs. The paths that a commit changed are read once and kept for all callers; the policy decides for each caller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from wharfinger.policy.current import may_read, may_read_below, reads_all_below
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.git_repository.git_objects import GitObjects, is_tree
from wharfinger.sources.git_repository.git_process import SAFE_DIFF, SAFE_LOG, GitFailed, run_git
from wharfinger.sources.git_repository.git_uris import GitUris, Parts
from wharfinger.sources.git_repository.history import CommitWindow, Histories, LoggedCommit, LogSelection, NotInLog
from wharfinger.sources.git_repository.parsing import Commit, GitTreeEntry
from wharfinger.sources.git_repository.revision_names import UnknownRevision

__all__ = ["ChangedPaths", "ReadableHistory", "parts_of", "readable_paths"]

BATCH_COMMITS = 200
"""Maximum number of commits whose changed paths are read in one run of git."""
MAX_KEPT_PATHS = 400_000
"""Maximum number of changed paths that are kept."""
SEARCH_SECONDS = 10.0
"""Maximum time of a search for commits that may be shown."""


def parts_of(path: bytes) -> Parts:
    """Return the parts of a path that git printed."""
    return tuple(os.fsdecode(path).split("/"))


class ChangedPaths:
    """The paths that commits changed against their first parent, kept for all callers."""

    def __init__(self, objects: GitObjects) -> None:
        self._objects = objects
        self._kept: BoundedCache[tuple[str, int], tuple[bytes, ...]] = BoundedCache(MAX_KEPT_PATHS)

    async def of(self, oids: Sequence[str], boundary_version: int) -> dict[str, tuple[bytes, ...]]:
        """Return the changed paths of commits. Those of commits that git cannot compare are missing.

        Args:
            oids: The full names of the commits.
            boundary_version: How many times the boundary of a shallow clone has changed.
        """
        paths_by_oid: dict[str, tuple[bytes, ...]] = {}
        missing: list[str] = []
        for oid in dict.fromkeys(oids):
            cached = self._kept.get((oid, boundary_version))
            if cached is None:
                missing.append(oid)
            else:
                paths_by_oid[oid] = cached
        for begin in range(0, len(missing), BATCH_COMMITS):
            for oid, paths in (await self._read(missing[begin : begin + BATCH_COMMITS])).items():
                paths_by_oid[oid] = self._kept.put((oid, boundary_version), paths, len(paths) + 5)
        return paths_by_oid

    async def _read(self, oids: list[str]) -> dict[str, tuple[bytes, ...]]:
        arguments = (
            "-z", "--no-walk=unsorted", "--diff-merges=first-parent", "--raw", "--no-renames", "--no-abbrev",
            "--format=%H", "--root",
        )  # fmt: skip
        try:
            output = await run_git(
                self._objects.private_directory, "log", *SAFE_LOG, *SAFE_DIFF, *arguments, *oids, "--", partial=True
            )
        except GitFailed:
            output = None
        if output is not None and not output.cut:
            return _changed_paths(output.data)
        if len(oids) == 1:
            return {}
        half = len(oids) // 2  # a commit cannot be compared, such as in a partial clone, or changed too many paths
        return await self._read(oids[:half]) | await self._read(oids[half:])


def _changed_paths(data: bytes) -> dict[str, tuple[bytes, ...]]:
    r"""Parse `OID\0` and, if the commit changed anything, `\n:MODES OIDS STATUS\0PATH\0:…\0PATH\0`."""
    paths_by_oid: dict[str, list[bytes]] = {}
    paths: list[bytes] = []
    parts = iter(data.split(b"\0"))
    for part in parts:
        part = part.removeprefix(b"\n")
        if part.startswith(b":"):
            paths.append(next(parts, b""))
        elif len(part) in (40, 64):
            paths = paths_by_oid.setdefault(part.decode("ascii"), [])
    return {oid: tuple(paths) for oid, paths in paths_by_oid.items()}


class ReadableHistory:
    """The history that the current caller may read. Make one for each request."""

    def __init__(self, uris: GitUris, objects: GitObjects, changed: ChangedPaths, boundary_version: int) -> None:
        self._uris = uris
        self._objects = objects
        self._changed = changed
        self._boundary_version = boundary_version
        self.reads_all_files = reads_all_below(f"{uris.top}/tree/")

    # Files

    def may_read(self, rev: str, path: Parts | bytes) -> bool:
        """Return whether a file may be read at a revision."""
        parts = parts_of(path) if isinstance(path, bytes) else path
        return self.reads_all_files or may_read(self._uris.tree(rev, parts))

    def may_read_below(self, rev: str, parts: Parts) -> bool:
        """Return whether anything in a folder may be read at a revision."""
        return self.reads_all_files or may_read_below(f"{self._uris.tree(rev, parts)}/")

    def reads_all_below(self, rev: str, parts: Parts) -> bool:
        """Return whether everything in a folder may be read at a revision."""
        return self.reads_all_files or reads_all_below(f"{self._uris.tree(rev, parts)}/")

    def may_read_any(self, rev: str, parts: Parts, entry: GitTreeEntry) -> bool:
        """Return whether a file or folder may be read, or anything in the folder."""
        return self.may_read(rev, parts) or (is_tree(entry.mode) and self.may_read_below(rev, parts))

    # Commits

    async def shows(self, oid: str, rev: str = "") -> bool:
        """Return whether a commit is shown: it changed a readable file, or no file. `rev` is its name in URIs."""
        return self.reads_all_files or self._shows(
            rev or oid, (await self._changed.of([oid], self._boundary_version)).get(oid)
        )

    def _shows(self, rev: str, paths: tuple[bytes, ...] | None) -> bool:
        return paths is not None and (not paths or any(self.may_read(rev, path) for path in paths))

    async def reads_all_of(self, oid: str) -> bool:
        """Return whether all files that a commit changed may be read, so that its message may be shown."""
        if self.reads_all_files:
            return True
        paths = (await self._changed.of([oid], self._boundary_version)).get(oid)
        return paths is not None and all(self.may_read(oid, path) for path in paths)

    async def nearest(self, oid: str, rev: str = "") -> str:
        """Return the commit itself or, if it is hidden, the first commit that is shown along its first parents.

        Raises:
            UnknownRevision: no such commit was found, or not within `SEARCH_SECONDS`.
        """
        if self.reads_all_files:
            return oid
        deadline = time.monotonic() + SEARCH_SECONDS
        size = 1  # most commits are shown
        while time.monotonic() < deadline:
            chain = [await self._objects.commit(oid)]
            while len(chain) < size and chain[-1].parents:
                chain.append(await self._objects.commit(chain[-1].parents[0]))
            changed = await self._changed.of([commit.oid for commit in chain], self._boundary_version)
            for commit in chain:
                if self._shows(rev or commit.oid, changed.get(commit.oid)):
                    return commit.oid
            if not chain[-1].parents:
                break
            oid, size = chain[-1].parents[0], BATCH_COMMITS
        raise UnknownRevision(rev or oid)

    async def without_hidden(self, commit: Commit) -> Commit:
        """Return a commit whose parents are shown commits, and without its message if it changed a hidden file."""
        parents: list[str] = []
        for parent in commit.parents:
            try:
                parents.append(await self.nearest(parent))
            except LookupError:
                continue
        message = commit.message if await self.reads_all_of(commit.oid) else ""
        return commit._replace(message=message, parents=tuple(dict.fromkeys(parents)))

    async def window(
        self, histories: Histories, tip: str, after: str | None, limit: int, selection: LogSelection
    ) -> CommitWindow:
        """Return a window of the commits that may be shown, like `Histories.window` for all commits.

        A commit is found by its message or its changed texts only if all of it may be read: otherwise the result would
        reveal words that may not be read.

        Raises:
            InvalidArgument: `after` is not a commit of this log.
        """
        # The log of a followed file ends where the file had a hidden name. So read the log from its start,
        # to see whether `after` comes before that end.
        skipped_to, after = (after, None) if selection.follow else (None, after)
        if after is not None:
            changed = await self._changed.of([after], self._boundary_version)
            if not self._selects(LoggedCommit(after), changed.get(after), selection):
                raise NotInLog(after)
        deadline = time.monotonic() + SEARCH_SECONDS
        commits: list[LoggedCommit] = []
        while True:
            unfiltered = await histories.window(
                tip, self._boundary_version, after, max(BATCH_COMMITS, limit + 1), selection
            )
            changed = await self._changed.of([commit.oid for commit in unfiltered.commits], self._boundary_version)
            for commit in unfiltered.commits:
                if not self._selects(commit, changed.get(commit.oid), selection):
                    continue
                hides_name = bool(commit.old_path) and not self.may_read(commit.oid, commit.old_path)
                if skipped_to is None:
                    commits.append(commit._replace(status="A", old_path=b"") if hides_name else commit)
                elif commit.oid == skipped_to:
                    skipped_to = None
                if len(commits) > limit:
                    return CommitWindow(commits[:limit], commits[limit - 1].oid)
                if hides_name:  # in older commits, the file has a name that may not be read
                    unfiltered = CommitWindow([], None)
                    break
            if unfiltered.after is None:
                if skipped_to is not None:
                    raise NotInLog(skipped_to)
                return CommitWindow(commits, None, unfiltered.cut)
            if time.monotonic() > deadline:
                return CommitWindow(commits, None, "time")
            after = unfiltered.after

    def _selects(self, commit: LoggedCommit, paths: tuple[bytes, ...] | None, selection: LogSelection) -> bool:
        oid = commit.oid
        if not may_read(self._uris.commit(oid)) or paths is None:
            return False
        if (selection.grep or selection.pickaxe) and not all(self.may_read(oid, path) for path in paths):
            return False
        if commit.path:
            return self.may_read(oid, commit.path)
        if selection.path:  # git did not follow it: a folder, a `pickaxe`, or a tree with missing parts
            below = selection.path + b"/"
            paths = tuple(path for path in paths if path == selection.path or path.startswith(below))
            return any(self.may_read(oid, path) for path in paths)
        return self._shows(oid, paths)


def readable_paths(paths: Sequence[bytes], is_readable: Callable[[bytes], bool]) -> list[bytes]:
    """Return the paths that may be read, except a path that is also a folder with a hidden file.

    A path is both if a folder replaced a file. git would then show the files of the folder too.
    """
    hidden: set[bytes] = set()
    readable: list[bytes] = []
    for path in paths:
        if is_readable(path):
            readable.append(path)
        else:
            while b"/" in path:
                path = path.rpartition(b"/")[0]
                hidden.add(path)
    return [path for path in readable if path not in hidden]
