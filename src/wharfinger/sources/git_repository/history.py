"""Reads the commits that led to a revision, newest first, in windows that stay the same while commits arrive.

`git log` returns more commits than a window needs, and their names are kept for the next windows. If it takes too long,
the commits found so far are used, and kept for some seconds only. The last window says where the search ended.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import NamedTuple

from wharfinger.errors import InvalidArgument
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.git_repository.git_objects import GitObjects
from wharfinger.sources.git_repository.git_process import SAFE_DIFF, SAFE_LOG, GitFailed, run_git

__all__ = [
    "DEFAULT_COMMITS",
    "EVERYTHING",
    "MAX_LOG_COMMITS",
    "CommitWindow",
    "Histories",
    "LogSelection",
    "LoggedCommit",
    "NotInLog",
]

MAX_LOG_COMMITS = 100_000
"""Maximum number of commits of one log. For older ones, read the log of its last commit."""
DEFAULT_COMMITS = 50
"""Maximum number of commits of a window whose URI has no `limit`."""
MIN_RUN_COMMITS = 500
"""Minimum number of commits that a run of `git log` returns, if the history has as many and there is no `pickaxe`."""
SEARCH_SECONDS = 10.0
"""Time after which a search ends, and returns the commits found so far."""
CUT_HISTORY_SECONDS = 10.0
"""Time for which a history is kept if its search ended early: the next search may find more."""
MAX_CACHED_COMMITS = 8 * MAX_LOG_COMMITS
"""Maximum number of commits in all histories that are kept."""


class LogSelection(NamedTuple):
    """The conditions of a log. Times are seconds since 1970, both ends included; texts are searched for literally."""

    path: bytes = b""
    follow: bool = False
    """Whether the path is a file, which is followed through renames."""
    since: int | None = None
    until: int | None = None
    author: str = ""
    grep: str = ""
    pickaxe: str = ""


EVERYTHING = LogSelection()


class NotInLog(InvalidArgument):
    """The last commit of the previous window is not in this log."""

    def __init__(self, after: str | None) -> None:
        super().__init__(f"after={after} is not a commit of this log: leave it out to start again.")


class LoggedCommit(NamedTuple):
    """A commit of a log. If a file is followed, `path` is its path in this commit, and `status` a letter such as M.

    git-diff-tree(1) explains the letters.
    """

    oid: str
    status: str = ""
    path: bytes = b""
    old_path: bytes = b""
    """The path before the commit, if the commit renamed the file."""


class CommitWindow(NamedTuple):
    """Consecutive commits of a log, newest first. `after` is the last of them, None at the end of the log.

    `cut` is why the log ends before the oldest commit: `time`, `failure`, or `size` after `MAX_LOG_COMMITS` commits.
    """

    commits: list[LoggedCommit]
    after: str | None
    cut: str = ""

    @property
    def ended_early(self) -> bool:
        """Whether the same search may find more commits later."""
        return self.cut in ("time", "failure")


class _History(NamedTuple):
    """The first commits of a log. If `complete` is true, the log ends with them; `cut` is as in `CommitWindow`."""

    commits: list[LoggedCommit]
    complete: bool
    cut: str
    expires: float = math.inf
    """When the search is repeated, by the monotonic clock."""


class Histories:
    """The histories of one repository."""

    def __init__(self, objects: GitObjects) -> None:
        self._objects = objects
        self._kept: BoundedCache[tuple[str, int, LogSelection], _History] = BoundedCache(MAX_CACHED_COMMITS)

    async def window(
        self, tip: str, boundary_version: int, after: str | None, limit: int, selection: LogSelection = EVERYTHING
    ) -> CommitWindow:
        """Return at most `limit` commits that led to `tip`, newest first, after the commit `after`.

        Args:
            tip: The name of a commit.
            boundary_version: How many times the boundary of a shallow clone has changed.
            after: The last commit of the previous window.
            limit: Maximum number of commits.
            selection: The commits to return.

        Raises:
            InvalidArgument: `after` is not a commit of this log.
            GitFailed: git cannot read the history.
        """
        key = (tip, boundary_version, selection)
        # `-S` compares all files of each commit, so read no more commits than requested.
        max_commits = limit + 1 if selection.pickaxe else max(MIN_RUN_COMMITS, limit + 1)
        while True:
            kept = history = self._kept.get(key)
            if (
                history is None
                or time.monotonic() >= history.expires
                or not (history.complete or len(history.commits) >= max_commits)
            ):
                history = await self._read(tip, selection, min(max_commits, MAX_LOG_COMMITS))
                if kept is not None and history.complete and len(history.commits) < len(kept.commits):
                    # This search ended earlier than the previous one, and clients may have read windows of that one.
                    history = history._replace(commits=kept.commits)
                self._kept.put(key, history, len(history.commits) + 100)  # an empty history costs memory too
            begin: int | None = 0
            if after is not None:
                begin = next((index + 1 for index, commit in enumerate(history.commits) if commit.oid == after), None)
            if begin is not None and (history.complete or len(history.commits) > begin + limit):
                commits = history.commits[begin : begin + limit]
                more = begin + limit < len(history.commits)
                return CommitWindow(commits, commits[-1].oid if more else None, "" if more else history.cut)
            if history.complete:
                raise NotInLog(after)
            max_commits = max(2 * len(history.commits), (begin or 0) + limit + 1)

    async def _read(self, tip: str, selection: LogSelection, max_commits: int) -> _History:
        # The additional commit shows whether there are more.
        arguments = [f"--max-count={max_commits + 1}", "-z", "--format=%H"]
        if selection.since is not None:
            arguments.append(f"--max-age={selection.since}")
        if selection.until is not None:
            arguments.append(f"--min-age={selection.until}")
        if selection.author or selection.grep:
            arguments += ["--fixed-strings", "--regexp-ignore-case"]
            arguments += [f"--author={selection.author}"] * bool(selection.author)
            arguments += [f"--grep={selection.grep}"] * bool(selection.grep)
        if selection.pickaxe:
            arguments.append(f"-S{selection.pickaxe}")
        follow = selection.follow and not selection.pickaxe
        command = ["log", *SAFE_DIFF, *SAFE_LOG, *arguments, *(["--follow", "--name-status"] if follow else [])]
        path = [selection.path] if selection.path else []
        private_directory = self._objects.private_directory
        try:
            output = await run_git(private_directory, *command, tip, "--", *path, seconds=SEARCH_SECONDS, partial=True)
        except GitFailed:
            if not follow:
                raise
            # To follow renames, git reads the whole tree, and fails if a part of it is missing.
            return await self._read(tip, selection._replace(follow=False), max_commits)
        commits = _parse_followed(output.data, selection.path) if follow else _parse_names(output.data)
        if output.cut:
            return _History(commits, True, output.cut, time.monotonic() + CUT_HISTORY_SECONDS)
        if len(commits) > max_commits:
            return _History(
                commits[:max_commits], max_commits >= MAX_LOG_COMMITS, "size" if max_commits >= MAX_LOG_COMMITS else ""
            )
        return _History(commits, True, "")


def _parse_names(data: bytes) -> list[LoggedCommit]:
    """Parse names of commits. The last one may have been cut."""
    return [LoggedCommit(name) for name in data.decode("ascii").split("\0") if len(name) in (40, 64)]


def _parse_followed(data: bytes, path: bytes) -> list[LoggedCommit]:
    r"""Parse the output of `--follow --name-status -z` for a path.

    Each commit is `OID\0\nSTATUS\0PATH\0`, with two paths for a rename. If the path once was a folder, a commit may
    have several of its files, and gets no path.
    """
    parts = iter(data.split(b"\0")[:-1])  # what follows the last NUL was cut
    commits: list[LoggedCommit] = []
    oid = ""
    with suppress(StopIteration):
        for part in parts:
            if len(part) in (40, 64):
                oid = part.decode("ascii")
                continue
            status = part.lstrip(b"\n").decode("ascii")[:1]
            first = next(parts)
            second = next(parts) if status in ("R", "C") else b""
            if not commits or commits[-1].oid != oid:
                commits.append(LoggedCommit(oid))
            if (second or first) == path:
                commits[-1] = LoggedCommit(oid, status, path, first if second else b"")
                path = commits[-1].old_path or path
    return commits
