"""Determines the repository at a path, and opens files of its git directory so that no link leads out of it.

A repository has two directories: its own, with HEAD and the index, and the common one, with references and objects.
They differ only in a linked worktree. A repository is refused if a part of it is a symbolic link, or is elsewhere. Its
configuration is read only for its format, for the working tree of a submodule, and for what its file system can store.

A `.git` file leads to another directory. It is followed if that directory is inside the published folder, or if the
operator named the directory (as the path itself, or as `git_dir`) and the directory points back to this folder.
Otherwise a file in a folder could publish any repository of this machine.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from wharfinger.content.text import shown
from wharfinger.source import UnusableSource
from wharfinger.sources.folder.safe_open import (
    Handle,
    NotServed,
    close,
    missing_as_not_served,
    open_directory,
    open_file,
    open_root,
    stat_entry,
)
from wharfinger.sources.labels import UnusableFolder, resolve_root

_Result = TypeVar("_Result")
_SECTION = re.compile(r"\s*\[([^\]\n]*)\](.*)").fullmatch
_QUOTED_OR_DROPPED = re.compile(r"""("(?:[^"\\\n]+|\\[\s\S])*"?|\\.)|[#;].*|\\\n""").sub
"""Matches what is kept, the quoted and escaped parts (group 1), and what is dropped: comments and escaped line ends."""
_QUOTE_OR_ESCAPE = re.compile(r'"|\\(.)').sub

__all__ = ["FoundRepository", "GitDirectory", "find_repository"]

SMALL_BYTES = 1 << 20
"""Maximum number of bytes that are read of a small file, such as HEAD or config."""

_HARMLESS_EXTENSIONS = frozenset(
    ("noop", "noop-v1", "preciousobjects", "partialclone", "worktreeconfig", "relativeworktrees")
)
"""Extensions of a repository's format that do not change how references and objects are read."""
_FALSE = frozenset(("false", "no", "off", "0", ""))
"""The values that mean no (git-config(1))."""


class GitDirectory:
    """The git directory at the path `below` in `root`. No name below `root` may be a symbolic link."""

    def __init__(self, root: str, below: tuple[str, ...] = ()) -> None:
        self.root = root
        self.below = below
        self.path = os.path.join(root, *below)

    def status(self, *names: str) -> os.stat_result | None:
        """Return the status of an entry, or None if it is missing. Links are not followed."""
        try:
            return self._with_directory(names[:-1], lambda directory: stat_entry(directory, names[-1]))
        except NotServed:
            return None

    def read(self, *names: str, max_bytes: int = SMALL_BYTES) -> bytes:
        """Return the bytes of a regular file, at most `max_bytes` of them.

        Raises:
            NotServed: the file is missing, or something else is in its place.
        """

        def read(directory: Handle) -> bytes:
            with open(open_file(directory, names[-1]), "rb") as file:
                return file.read(max_bytes)

        return self._with_directory(names[:-1], read)

    def text(self, *names: str) -> str:
        """Return the text of a small file without white space around it, or an empty string if there is no file."""
        try:
            return os.fsdecode(self.read(*names)).strip()
        except NotServed:
            return ""

    def _with_directory(self, names: tuple[str, ...], use: Callable[[Handle], _Result]) -> _Result:
        with missing_as_not_served():
            handle = open_root(self.root)
            try:
                for name in (*self.below, *names):
                    inner = open_directory(handle, name)
                    close(handle)
                    handle = inner
                return use(handle)
            finally:
                close(handle)


class FoundRepository(NamedTuple):
    """A repository that can be published."""

    root: str
    """The path that the operator gave, resolved."""
    own: GitDirectory
    """The directory with HEAD and the index."""
    common: GitDirectory
    """The directory with references and objects."""
    work_tree: str
    """The folder of the working tree, or an empty string if the repository is bare."""
    sha256: bool
    """Whether names of objects have 64 digits."""
    reftable: bool
    """Whether references are stored in tables."""
    has_file_modes: bool
    """Whether the working tree can mark files as executable (`core.fileMode`)."""
    has_symlinks: bool
    """Whether the working tree can have symbolic links (`core.symlinks`)."""


def find_repository(
    path: str | os.PathLike[str], git_dir: str | os.PathLike[str] | None = None, version: tuple[int, ...] = (2, 45)
) -> FoundRepository:
    """Return the repository whose top folder, or git directory, is `path`. Folders above it are not searched.

    Args:
        path: The path that the operator gave.
        git_dir: The directory to which a `.git` file may lead, or a directory above it.
        version: The version of git, which may be too old for a format.

    Raises:
        UnusableSource: `path` is not a repository, parts of it are elsewhere, or its format is not supported.
    """
    root = _resolved(path)
    own, work_tree = _own_directory(root, None if git_dir is None else _resolved(git_dir))
    common = _common_directory(own, root, own.path == root or git_dir is not None)
    _check_parts(own, common)
    if common.status("objects", "info", "alternates") is not None:
        raise UnusableSource(
            f"The repository {root} borrows objects from another one (objects/info/alternates), which is not "
            "supported: run `git repack -a -d` and remove that file, or clone it with --dissociate."
        )
    try:
        extensions, core = _configured(common, "extensions"), _configured(common, "core")
    except ValueError:
        raise UnusableSource(f"The configuration of the repository {root} cannot be read.") from None
    sha256, reftable = _format(extensions, common.root, version)
    has_file_modes, has_symlinks = [core.get(name, "true").lower() not in _FALSE for name in ("filemode", "symlinks")]
    return FoundRepository(root, own, common, work_tree, sha256, reftable, has_file_modes, has_symlinks)


def _resolved(path: str | os.PathLike[str]) -> str:
    try:
        return resolve_root(path)
    except UnusableFolder as error:
        raise UnusableSource(str(error)) from None


# The repository's own directory


def _own_directory(root: str, git_dir: str | None) -> tuple[GitDirectory, str]:
    """Return the directory with HEAD, and the working tree (empty for a bare repository)."""
    top = GitDirectory(root)
    entry = top.status(".git")
    if entry is None:
        return _named_directory(top)
    if stat.S_ISLNK(entry.st_mode):
        raise UnusableSource(
            f"{root}/.git is a symbolic link, which is not followed: publish the repository that it leads to."
        )
    if stat.S_ISDIR(entry.st_mode):
        return GitDirectory(root, (".git",)), root
    target = _target(top)
    own = GitDirectory(target or root)
    inside = bool(target) and _contains(root, target)
    named = git_dir is not None and bool(target) and _contains(git_dir, target) and _work_tree_of(own) == root
    if not (inside or named):
        raise UnusableSource(
            f"{root}/.git is a file that leads to {shown(target) or 'nowhere'}, as in a submodule or a linked "
            "worktree: to publish it, name that directory, as git:DIRECTORY or git(…, git_dir=DIRECTORY)."
        )
    return own, root


def _named_directory(top: GitDirectory) -> tuple[GitDirectory, str]:
    """Like `_own_directory`, if the path itself is the git directory of a repository, a worktree or a submodule."""
    root = top.root
    above = _repository_above(root)
    linked = top.status("commondir") is not None
    if top.status("HEAD") is None or not (linked or (top.status("objects") and top.status("refs"))):
        hint = f"it is inside {above}: publish that" if above else "run `git init` there, or give another path"
        raise UnusableSource(f"{root} is not a git repository; {hint}.")
    work_tree = _work_tree_of(top)
    if work_tree and _target(GitDirectory(work_tree)) == root:
        return top, work_tree
    if linked:
        raise UnusableSource(
            f"{root} is the directory of a linked worktree, but {shown(work_tree) or 'no worktree'} does not lead back "
            "to it: run `git worktree repair`, or publish the main repository."
        )
    if above and os.path.join(above, ".git") != root:
        raise UnusableSource(
            f"{root} is a bare repository inside {above}, where it may have been planted: move it out, or clone it "
            "to another place, and publish that."
        )
    return top, os.path.dirname(root) if os.path.basename(root) == ".git" else ""


def _target(top: GitDirectory) -> str:
    """Return the directory to which the `.git` file of a folder leads, resolved, or an empty string."""
    link = top.text(".git")
    if not link.startswith("gitdir:") or "\0" in link:
        return ""
    target = os.path.realpath(os.path.join(top.root, link.removeprefix("gitdir:").strip()))
    return target if os.path.isdir(target) else ""


def _work_tree_of(own: GitDirectory) -> str:
    """Return the folder to which a git directory points back, by `gitdir` (worktree) or `core.worktree` (submodule)."""
    pointer = own.text("gitdir").removesuffix("/.git")
    if not pointer:
        try:
            pointer = _configured(own, "core").get("worktree", "")
        except ValueError:
            return ""
    if not pointer or "\0" in pointer:
        return ""
    folder = os.path.realpath(os.path.join(own.path, pointer))
    return folder if os.path.isdir(folder) else ""


def _common_directory(own: GitDirectory, root: str, named: bool) -> GitDirectory:
    """Return the directory with references and objects.

    For a linked worktree, this directory contains `own` as `worktrees/NAME`. It must be in the published folder, unless
    the operator `named` it.
    """
    link = own.text("commondir")
    if not link and own.status("commondir") is None:
        return own
    folder, _ = os.path.split(own.path)
    common, worktrees = os.path.split(folder)
    sound = "\0" not in link and os.path.realpath(os.path.join(own.path, link)) == common
    if not (sound and worktrees == "worktrees" and (named or _contains(root, common))):
        raise UnusableSource(
            f"{root} is a linked worktree whose objects are elsewhere ({shown(link)}): publish the main repository."
        )
    return GitDirectory(common)


def _contains(folder: str, path: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _repository_above(root: str) -> str:
    while (parent := os.path.dirname(root)) != root:
        root = parent
        if os.path.lexists(os.path.join(root, ".git")):
            return root
    return ""


# Its parts and its format

_PARTS = (
    ("objects", stat.S_ISDIR, True),
    ("refs", stat.S_ISDIR, True),
    ("config", stat.S_ISREG, False),
    ("packed-refs", stat.S_ISREG, False),
    ("shallow", stat.S_ISREG, False),
    ("reftable", stat.S_ISDIR, False),
    ("objects/pack", stat.S_ISDIR, False),
    ("objects/info", stat.S_ISDIR, False),
)
"""The type of each part of the common directory, and whether the part is required."""


def _check_parts(own: GitDirectory, common: GitDirectory) -> None:
    for directory, name, expected, needed in (
        (own, "HEAD", stat.S_ISREG, True),
        *((common, *part) for part in _PARTS),
    ):
        status = directory.status(*name.split("/"))
        if status is None:
            if needed:
                raise UnusableSource(f"The repository {directory.root} has no {name}: clone it again.")
        elif stat.S_ISLNK(status.st_mode):
            raise UnusableSource(
                f"In the repository {directory.root}, {name} is a symbolic link, which is not followed: "
                "clone it with `git clone --no-local`, and publish the clone."
            )
        elif not expected(status.st_mode):
            raise UnusableSource(f"In the repository {directory.root}, {name} has the wrong type.")


def _format(extensions: dict[str, str], root: str, version: tuple[int, ...]) -> tuple[bool, bool]:
    """Return whether objects are named by SHA-256, and whether references are in tables. Refuse unknown formats."""
    objects = extensions.pop("objectformat", "sha1").lower()
    references = extensions.pop("refstorage", "files").lower()
    unknown = sorted(extensions.keys() - _HARMLESS_EXTENSIONS)
    if objects not in ("sha1", "sha256"):
        unknown.append(f"objectFormat = {objects}")
    if references not in ("files", "reftable"):
        unknown.append(f"refStorage = {references}")
    if unknown:
        raise UnusableSource(f"The repository {root} needs {shown(unknown[0])!r}, which is not supported.")
    if references == "reftable" and version < (2, 45):
        raise UnusableSource(
            f"The repository {root} stores its references in tables (reftable), which needs git 2.45 or newer: "
            f"this is git {'.'.join(map(str, version))}."
        )
    return objects == "sha256", references == "reftable"


def _configured(directory: GitDirectory, section_name: str) -> dict[str, str]:
    """Return the values of one section of a configuration (git-config(1)). Includes are not followed.

    Raises:
        ValueError: it is not a configuration.
    """
    try:
        text = directory.read("config").decode("utf-8", "surrogateescape")
    except NotServed:
        return {}
    text = _QUOTED_OR_DROPPED(lambda match: (match[1] or "").replace("\\\n", ""), text.removeprefix("\ufeff"))
    values: dict[str, str] = {}
    section = ""
    for line in text.split("\n"):
        header = _SECTION(line)
        if header is not None:
            section, line = header[1].strip().lower(), header[2]
        elif line.lstrip().startswith("[") or "\0" in line:
            raise ValueError("no configuration")
        name, equals, value = line.partition("=")
        if section == section_name and name.strip():  # a name alone means yes, and an empty value no
            values[name.strip().lower()] = _QUOTE_OR_ESCAPE(r"\1", value.strip()) if equals else "true"
    return values
