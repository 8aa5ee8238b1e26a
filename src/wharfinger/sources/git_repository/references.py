"""Reads HEAD, branches, tags and remote branches with `git for-each-ref`.

git runs only if something changed: each check compares the status of HEAD, `packed-refs`, the list of a reftable and
every file of `refs` with that of the previous check. Calls that arrive during a check share the next check, so each
call sees all commits that were made before it. No name that a client sends becomes a path.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator

from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument
from wharfinger.sources.git_repository.git_process import QUICK_SECONDS, GitFailed, run_git
from wharfinger.sources.git_repository.private_directory import PrivateDirectory

__all__ = ["BRANCHES", "REMOTES", "TAGS", "ReferenceReader", "References", "RepositoryGone", "read_references"]

BRANCHES, TAGS, REMOTES = "refs/heads/", "refs/tags/", "refs/remotes/"
MAX_REFERENCES = 200_000
"""Maximum number of references that are read."""
MAX_FOLDER_LEVELS = 64
"""Maximum number of levels of folders of references."""
SETTLED_NS = 100_000_000
"""Age of a file after which any change gives it another status: file system clocks tick every few milliseconds."""

_REFERENCE = re.compile(r"refs/[^\0]{1,4096}").fullmatch
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}").fullmatch


class RepositoryGone(InvalidArgument):
    """The repository was moved or removed."""


class References:
    """HEAD, branches, tags and remote branches at one moment. If none changed, a check returns the same object."""

    def __init__(self, head: str, names: dict[str, str]) -> None:
        self.branch = head.removeprefix("ref:").strip() if head.startswith("ref:") else None
        """The full name of HEAD's branch, such as `refs/heads/main`; None if HEAD is detached."""
        self.names = names
        """The object of each full name, such as `refs/tags/v1`."""
        self.head = names.get(self.branch) if self.branch is not None else head if _OID(head) else None
        """The object of HEAD; None if its branch has no commits yet."""
        self.tag_times: dict[str, int] | None = None
        """The time of each tag in seconds since 1970, by its full name; None if they were not read."""

    def same(self, other: References) -> bool:
        """Return whether both have the same references."""
        return (self.branch, self.head, self.names) == (other.branch, other.head, other.names)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A text that changes if any reference does."""
        digest = hashlib.blake2b(repr((self.branch, self.head)).encode("utf-8", "surrogateescape"), digest_size=10)
        for name in self._sorted:
            digest.update(f"{name} {self.names[name]}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @functools.cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.names)

    def under(self, prefix: str) -> Iterator[str]:
        """Yield the names under `BRANCHES`, `TAGS` or `REMOTES`, without that prefix, in order."""
        names = self._sorted
        for index in range(bisect_left(names, prefix), len(names)):
            if not names[index].startswith(prefix):
                return
            yield names[index][len(prefix) :]

    def count(self, prefix: str) -> int:
        """Return the number of names under a prefix."""
        return bisect_left(self._sorted, prefix + "\U0010ffff") - bisect_left(self._sorted, prefix)

    @property
    def head_name(self) -> str:
        """HEAD's branch, or `detached`."""
        return "detached" if self.branch is None else self.branch.removeprefix(BRANCHES)


async def read_references(private_directory: PrivateDirectory, links: frozenset[str] = frozenset()) -> References:
    """Read HEAD, branches, tags and remote branches, except those reached through a symbolic link in `links`.

    Raises:
        RepositoryGone: the repository was moved or removed.
        GitFailed: git cannot read them.
        UnusableSource: the private directory cannot be made again.
    """
    await asyncio.to_thread(private_directory.open)
    head = await asyncio.to_thread(private_directory.found.own.text, "HEAD")
    if private_directory.found.reftable:
        output = await run_git(private_directory, "symbolic-ref", "-q", "HEAD", codes=(0, 1))
        head = os.fsdecode(output.data).strip()
        if head:
            head = f"ref: {head}"
        else:
            output = await run_git(private_directory, "rev-parse", "-q", "--verify", "HEAD", codes=(0, 1))
            head = output.data.decode().strip()
    elif not head and private_directory.found.own.status("HEAD") is None:
        raise RepositoryGone(f"The repository {private_directory.found.root} was moved or removed.")
    kinds = (BRANCHES, TAGS, REMOTES)
    target = head.removeprefix("ref:").strip()  # HEAD may name any reference
    patterns = (*kinds, target) if _REFERENCE(target) else kinds
    arguments = (f"--count={MAX_REFERENCES}", "--format=%(objectname) %(refname)", *patterns)
    names: dict[str, str] = {}
    output = await run_git(private_directory, "for-each-ref", *arguments, seconds=QUICK_SECONDS)
    for line in output.data.split(b"\n")[:-1]:
        oid, _, name = os.fsdecode(line).partition(" ")
        if not name.startswith(kinds) and name != target:
            continue  # `target` is a pattern
        if not any(name == link or name.startswith(f"{link}/") for link in links):
            names[name] = oid
    return References(head, names)


class ReferenceReader:
    """Reads the references again if they may have changed."""

    def __init__(self, private_directory: PrivateDirectory, restart: Callable[[], None]) -> None:
        self._private_directory = private_directory
        self._restart = restart
        self._last: References | None = None
        self._signature: object = None
        self._checked_at = 0.0
        self._next: asyncio.Task[References] | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the task and the lock."""
        self._objects_stamp: object = None  # changes if objects may have been pruned or replaced
        self.boundary_version = 0
        """How many times the boundary of a shallow clone has changed. Running processes do not notice a change."""

    async def now(self, within: float = 0.0) -> References:
        """Return the current references, or those of at most `within` seconds ago.

        Raises:
            RepositoryGone: the repository was moved or removed.
            GitFailed: git cannot read them.
            InvalidArgument: a symbolic link is among the objects, or something in the repository would block git.
            UnusableSource: the private directory cannot be made again.
        """
        if self._last is not None and within and time.monotonic() - self._checked_at < within:
            return self._last
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a lock for which a task has waited is bound to that task's loop
            self._loop, self._lock, self._next = loop, asyncio.Lock(), None
        if self._next is None:
            self._next = loop.create_task(self._check())
        return await asyncio.shield(self._next)

    async def _check(self) -> References:
        async with self._lock:
            began = time.monotonic()
            self._next = None  # later calls need another check
            objects_stamp, signature, links = await asyncio.to_thread(self._read_signature)
            if self._objects_stamp not in (None, objects_stamp):
                self._restart()
            self._objects_stamp = objects_stamp
            if signature is None or signature != self._signature or self._last is None:
                self._signature = None
                current = await read_references(self._private_directory, links)
                if self._last is None or not current.same(self._last):
                    self._last = current
                self._signature = signature
            self._checked_at = began
            return self._last

    def forget(self) -> None:
        """Check the references at the next call, whatever its `within`."""
        self._checked_at = 0.0

    async def tags(self, references: References) -> list[str]:
        """Return the names of tags without `TAGS`, newest first."""
        times = await self.tag_times(references)
        return sorted(references.under(TAGS), key=lambda name: (-times.get(TAGS + name, 0), name))

    async def tag_times(self, references: References) -> dict[str, int]:
        """Return the time of each tag, or of the commit that it names, by the tag's full name."""
        if not references.count(TAGS):
            return {}  # saves a process, and so a few milliseconds of the first page
        if references.tag_times is None:
            times: dict[str, int] = {}
            try:
                format_ = "--format=%(creatordate:unix) %(refname)"
                output = await run_git(
                    self._private_directory,
                    "for-each-ref",
                    f"--count={MAX_REFERENCES}",
                    format_,
                    TAGS,
                    seconds=QUICK_SECONDS,
                )
                for line in output.data.split(b"\n")[:-1]:
                    seconds, _, name = os.fsdecode(line).partition(" ")
                    times[name] = int(seconds) if seconds.lstrip("-").isdecimal() else 0
            except GitFailed:  # a tag names a missing object: sort the tags by name
                times.clear()
            references.tag_times = times
        return references.tag_times

    def _read_signature(self) -> tuple[object, object, frozenset[str]]:
        """Return a stamp of the objects, the signature of the references, and the links among their files. Blocks.

        The signature is the status of all files of references, or None if a file just changed.

        Raises:
            InvalidArgument: a link is among the objects, or a file would block git.
            UnusableSource: the private directory cannot be made again.
        """
        private_directory = self._private_directory
        private_directory.check_links()
        private_directory.open()
        self.boundary_version += private_directory.copy_shallow()
        common, own = private_directory.found.common.path, private_directory.found.own.path
        objects_stamp = (
            self.boundary_version,
            private_directory.times_made,
            _stamp(common, "objects")[:1],
            _stamp(common, "objects", "pack"),
        )
        stamps: list[tuple[str, int, int, int]] = []
        links: list[str] = []
        for path in (
            os.path.join(own, "HEAD"),
            os.path.join(common, "packed-refs"),
            os.path.join(common, "reftable", "tables.list"),
        ):
            try:
                status = os.lstat(path)
            except OSError:
                continue
            stamps.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
        _scan(os.path.join(common, "refs"), "refs", stamps, links, 0)
        newest = max((stamp[3] for stamp in stamps), default=0)
        settled = abs(time.time_ns() - newest) > SETTLED_NS
        return objects_stamp, (stamps if settled else None), frozenset(links)


def _stamp(*names: str) -> tuple[int, ...]:
    """Return a value that changes if a folder is replaced, or if its entries change."""
    try:
        status = os.lstat(os.path.join(*names))
    except OSError:
        return ()
    return status.st_ino, status.st_dev, status.st_mtime_ns


def _scan(folder: str, name: str, stamps: list[tuple[str, int, int, int]], links: list[str], depth: int) -> None:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                path = f"{name}/{entry.name}"
                if not (entry.is_file() or entry.is_dir() or (entry.is_symlink() and not os.path.exists(entry.path))):
                    raise InvalidArgument(
                        f"The reference {shown(path)} is neither a file nor a folder, and git would wait for it: "
                        "remove it."
                    )
                if entry.is_symlink():
                    links.append(path)
                elif entry.is_dir(follow_symlinks=False):
                    if depth < MAX_FOLDER_LEVELS:
                        _scan(entry.path, path, stamps, links, depth + 1)
                elif len(stamps) < MAX_REFERENCES:
                    status = entry.stat(follow_symlinks=False)
                    stamps.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
    except OSError:  # it was removed meanwhile
        return
