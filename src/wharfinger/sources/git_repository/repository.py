"""Finding the repository that a path means, and opening files of its git directory so that nothing leads out of it.

Refuses to know what the files mean, except where they would lead elsewhere: such a repository is refused as a whole.
No git process is ever started, and of the configuration only the format of the repository is looked at.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable
from typing import TypeVar

from wharfinger.content.text import shown
from wharfinger.source import UnusableSource
from wharfinger.sources.folder.safe_open import (
    Handle,
    NotServed,
    close,
    holds,
    open_directory,
    open_file,
    open_root,
    stat_entry,
)
from wharfinger.sources.labels import UnusableFolder, resolve_root

_Result = TypeVar("_Result")
_SECTION = re.compile(r"\s*\[([^\]\n]*)\](.*)").fullmatch
_COMMENT = re.compile(r"[#;].*").sub

__all__ = ["OpenRepository", "PureDirectory", "find_pure_repository"]

SMALL = 1 << 20  # bytes of a file that is read whole: HEAD, config, shallow
PACKED_REFS = 64 << 20  # bytes of packed-refs: about a million references
SCANNED = 200_000  # entries of one directory that are looked at

_FORMATS = {"noop", "noop-v1", "preciousobjects", "partialclone", "worktreeconfig", "relativeworktrees"}
"""Extensions of a repository's format that change nothing for whoever only reads references and objects."""


class OpenRepository:
    """A file that is open for reading at any place, by several threads; closed with its last user."""

    __slots__ = ("descriptor", "size")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; fewer only at the end, or where the file was cut meanwhile."""
        if hasattr(os, "pread"):
            return os.pread(self.descriptor, length, offset)
        with _seeking:  # a descriptor has one position for all threads (Windows)
            os.lseek(self.descriptor, offset, os.SEEK_SET)
            return os.read(self.descriptor, length)


_seeking = threading.Lock()


class PureDirectory:
    """The directory that holds objects and references. No symbolic link in it is followed.

    `root` is the path that was given, resolved; `inside` the names from there to the git directory.
    """

    def __init__(self, root: str, inside: tuple[str, ...]) -> None:
        self.root = root
        self._inside = inside

    def open(self, *names: str) -> OpenRepository:
        """Open a regular file.

        Raises:
            NotServed: there is none, or a link in its place.
        """
        return self._with_directory(names[:-1], lambda directory: OpenRepository(open_file(directory, names[-1])))

    def scan(self, *names: str) -> list[tuple[str, os.stat_result]]:
        """The entries of a directory and what they are, links themselves.

        Raises:
            NotServed: there is no such directory, or a link in its place.
        """
        return self._with_directory(names, _scan)

    def look(self, *names: str) -> os.stat_result | None:
        """What an entry is, a link itself; None where there is none."""
        try:
            return self._with_directory(names[:-1], lambda directory: stat_entry(directory, names[-1]))
        except NotServed:
            return None

    def read(self, *names: str, most: int = SMALL) -> bytes:
        """A small file's bytes; at most `most` of them.

        Raises:
            NotServed: there is none, or a link in its place.
        """
        return self.open(*names).read(0, most)

    def _with_directory(self, names: tuple[str, ...], use: Callable[[Handle], _Result]) -> _Result:
        with holds():
            handle = open_root(self.root)
            try:
                for name in (*self._inside, *names):
                    inner = open_directory(handle, name)
                    close(handle)
                    handle = inner
                return use(handle)
            finally:
                close(handle)


def _scan(directory: Handle) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                found.append((entry.name, entry.stat(follow_symlinks=False)))
            except OSError:  # it went meanwhile
                continue
            if len(found) >= SCANNED:
                break
    return found


# Finding


def find_pure_repository(path: str | os.PathLike[str]) -> PureDirectory:
    """The repository whose top folder, or bare directory, this is. None above it is looked for.

    Raises:
        UnusableSource: it is not a repository, parts of it are stored elsewhere, or its format is not supported.
    """
    try:
        root = resolve_root(path)
    except UnusableFolder as error:
        raise UnusableSource(str(error)) from None
    directory = PureDirectory(root, _inside(root))
    for check in (_check_parts, _check_borrowing, _check_format):
        check(directory)
    return directory


def _inside(root: str) -> tuple[str, ...]:
    """The names from a repository's top to its git directory: `.git`, or none where it is bare."""
    top = PureDirectory(root, ())
    planted = top.look(".git")
    if planted is None:
        return _bare(root, top)
    if stat.S_ISLNK(planted.st_mode):
        raise UnusableSource(
            f"{root}/.git is a symbolic link, which is not followed: publish the repository that it leads to."
        )
    if not stat.S_ISDIR(planted.st_mode):
        raise UnusableSource(
            f"{root}/.git is a file that leads to {_leads_to(top)}, as in a submodule or a linked worktree: "
            "publish the main repository instead, or a clone of it."
        )
    return (".git",)


def _leads_to(top: PureDirectory) -> str:
    try:
        return shown(os.fsdecode(top.read(".git", most=4_096)).partition("gitdir:")[2].strip()) or "nowhere"
    except NotServed:
        return "nowhere"


def _bare(root: str, top: PureDirectory) -> tuple[str, ...]:
    above = _repository_above(root)
    if any(top.look(name) is None for name in ("HEAD", "objects", "refs")):
        hint = f"it is inside of {above}: publish that" if above else "run `git init` there, or give another path"
        raise UnusableSource(f"{root} is not a git repository; {hint}.")
    if above and os.path.join(above, ".git") != root:
        raise UnusableSource(
            f"{root} is a bare repository inside of {above}, where it may have been planted: move it out, or clone it "
            "to another place, and publish that."
        )
    return ()


def _repository_above(root: str) -> str:
    while (parent := os.path.dirname(root)) != root:
        root = parent
        if os.path.lexists(os.path.join(root, ".git")):
            return root
    return ""


_PARTS = (
    ("HEAD", stat.S_ISREG, True),
    ("objects", stat.S_ISDIR, True),
    ("refs", stat.S_ISDIR, True),
    ("config", stat.S_ISREG, False),
    ("packed-refs", stat.S_ISREG, False),
    ("shallow", stat.S_ISREG, False),
    ("objects/pack", stat.S_ISDIR, False),
    ("objects/info", stat.S_ISDIR, False),
    ("refs/heads", stat.S_ISDIR, False),
    ("refs/tags", stat.S_ISDIR, False),
    ("refs/remotes", stat.S_ISDIR, False),
)
"""What each part of a git directory has to be, and whether it has to be there."""


def _check_parts(directory: PureDirectory) -> None:
    for name, expected, needed in _PARTS:
        found = directory.look(*name.split("/"))
        if found is None:
            if needed:
                raise UnusableSource(f"The repository {directory.root} has no {name}: clone it again.")
        elif stat.S_ISLNK(found.st_mode):
            raise UnusableSource(
                f"In the repository {directory.root}, {name} is a symbolic link, which is not followed: "
                "clone it with `git clone --no-local`, and publish the clone."
            )
        elif not expected(found.st_mode):
            raise UnusableSource(f"In the repository {directory.root}, {name} has the wrong type.")


def _check_borrowing(directory: PureDirectory) -> None:
    if directory.look("commondir") is not None:
        raise UnusableSource(
            f"{directory.root} is a linked worktree, whose objects are elsewhere: publish the main repository instead."
        )
    if directory.look("objects", "info", "alternates") is not None:
        raise UnusableSource(
            f"The repository {directory.root} borrows objects from another one (objects/info/alternates), which is "
            "not supported: run `git repack -a -d` and remove that file, or clone it with --dissociate."
        )


def _check_format(directory: PureDirectory) -> None:
    """Refuse unsupported formats. Nothing else of the configuration is read."""
    try:
        extensions = _extensions(directory.read("config").decode("utf-8", "replace"))
    except NotServed:
        return
    except ValueError:
        raise UnusableSource(f"The configuration of the repository {directory.root} cannot be read.") from None
    if extensions.pop("objectformat", "sha1") != "sha1":
        raise UnusableSource(f"The repository {directory.root} names its objects by SHA-256, which is not supported.")
    if extensions.pop("refstorage", "files") != "files":
        raise UnusableSource(
            f"The repository {directory.root} stores its references in tables, which is not supported: run "
            "`git refs migrate --ref-format=files`."
        )
    unknown = sorted(extensions.keys() - _FORMATS)
    if unknown:
        raise UnusableSource(f"The repository {directory.root} needs {shown(unknown[0])!r}, which is not supported.")


def _extensions(text: str) -> dict[str, str]:
    """What `[extensions]` of a configuration says (git-config(1), without includes, which git ignores for these)."""
    found: dict[str, str] = {}
    section = ""
    for line in text.replace("\\\n", "").split("\n"):
        header = _SECTION(line)
        if header is not None:
            section, line = header[1].strip().lower(), header[2]
        elif line.lstrip().startswith("[") or "\0" in line:
            raise ValueError("no configuration")
        name, _, value = _COMMENT("", line).partition("=")
        if section == "extensions" and name.strip():
            found[name.strip().lower()] = value.strip().strip('"').lower()
    return found
