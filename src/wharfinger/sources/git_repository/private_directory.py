"""Makes the directory that git opens instead of the repository's own.

It links to the repository's references and objects. It has a configuration of its own, and no hooks, alternates,
grafts or attributes of the repository; replacements are off in the environment of git. The targets of the links to
`objects/00` to `objects/ff` and `packed-refs` need not exist: a link works as soon as git creates its target, so new
commits, `git gc` and `git pack-refs` have effect immediately.

git follows symbolic links, and one among the objects could lead to another repository. `check_links` searches for such
links: first in all directories, later in those that changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import threading
import time
from pathlib import Path

from wharfinger.errors import InvalidArgument
from wharfinger.source import UnusableSource
from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.git_repository.git_directory import FoundRepository, GitDirectory
from wharfinger.sources.git_repository.git_process import find_git

__all__ = ["PrivateDirectory"]

CHECK_SECONDS = 1.0
"""Minimum time between two checks of the 256 directories of loose objects."""
INDEX_BYTES = 256 << 20
"""Maximum bytes of an index that is copied."""
MAX_SHARED_INDEXES = 100
"""Maximum number of shared indexes that are compared with the index: git deletes those that it no longer uses."""
KEEP_SECONDS = 600.0
"""Time after its last use in which the copy of a shared index is kept, if another one has taken its place."""

_CONFIG = """\
[core]
	repositoryFormatVersion = {version}
	bare = true
	fileMode = {file_mode}
	symlinks = {symlinks}
	packedGitWindowSize = 16m
	packedGitLimit = 128m
	bigFileThreshold = 32m
	preloadIndex = false
	untrackedCache = false
	splitIndex = false
	fsmonitor = false
	attributesFile = "{attributes}"
	excludesFile =
	quotePath = false
[index]
	threads = 1
[grep]
	threads = 1
[diff]
	renames = true
	renameLimit = 1000
	noPrefix = false
	mnemonicPrefix = false
[log]
	showSignature = false
	mailmap = false
"""
_DRIVERS = {
    "bash": "sh bash", "bibtex": "bib", "cpp": "c h cc cpp cxx hh hpp", "csharp": "cs", "css": "css",
    "elixir": "ex exs", "fortran": "f f90", "golang": "go", "html": "html htm", "java": "java", "markdown": "md",
    "matlab": "m", "pascal": "pas", "perl": "pl pm", "php": "php", "python": "py pyi", "ruby": "rb", "rust": "rs",
    "tex": "tex",
}  # fmt: skip
"""git's own patterns for the headings of hunks (gitattributes(5)), and the suffixes of the files that get them."""
_FILES = frozenset(("config", "attributes", "HEAD", "refs", "packed-refs", "objects"))
_OBJECTS = frozenset(("pack", *[f"{number:02x}" for number in range(256)]))
"""The names in `objects`."""
_SHARED_INDEX = re.compile(r"sharedindex\.([0-9a-f]{40}|[0-9a-f]{64})").fullmatch


class PrivateDirectory:
    """A bare GIT_DIR for one repository. `open` makes it, and `close` removes it; it can be opened again.

    `found` is the repository, `path` the directory, and `program` the git that reads it. `oid_length` is the number of
    digits of an object's name.
    """

    def __init__(self, found: FoundRepository, program: str | None = None) -> None:
        self.found = found
        self.program = program or find_git().path
        self.oid_length = 64 if found.sha256 else 40
        self.path = ""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()
        self._links = _LinkSearch(found.common)
        self._shallow_bytes = b""
        self.shallow: frozenset[str] = frozenset()
        """The commits of a shallow clone whose parents are missing."""
        self.times_made = 0
        """How many times the directory was made: more than once if the system deleted it."""

    def open(self) -> None:
        """Make the directory, unless it exists. Blocks.

        Raises:
            UnusableSource: it cannot be made, or something among the objects is a symbolic link, or neither a file nor
                a folder.
        """
        with self._lock:
            if self._is_complete():
                return
            self._remove()  # systems delete old files from the folder of temporary files
            if refusal := self._refusal():
                raise UnusableSource(refusal)
            try:
                self._folder = tempfile.TemporaryDirectory(prefix="wharfinger-git-", ignore_cleanup_errors=True)
                self.path = self._folder.name
                self._fill()
                if not self.times_made:  # later, only `copy_shallow` does this, so that its caller learns of changes
                    self._copy_shallow()
            except OSError as error:
                self._remove()
                advice = "turn on developer mode" if os.name == "nt" else "make space there, or set TMPDIR"
                raise UnusableSource(
                    f"No links to the repository {self.found.root} can be made in the folder of temporary files "
                    f"({error.strerror}): {advice}."
                ) from None
            self.times_made += 1

    def close(self) -> None:
        """Remove the directory. Blocks."""
        with self._lock:
            self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _is_complete(self) -> bool:
        if self._folder is None:
            return False
        try:
            present = {*os.listdir(self.path), *os.listdir(os.path.join(self.path, "objects"))}
        except OSError:
            return False
        optional = (("reftable", self.found.reftable), ("shallow", bool(self._shallow_bytes)))
        expected = _FILES | _OBJECTS | {name for name, is_expected in optional if is_expected}
        return expected <= present

    def _fill(self) -> None:
        repository = self.found
        attributes = Path(self.path, "attributes").as_posix().replace("\\", r"\\").replace('"', r"\"")
        extensions = "\tobjectFormat = sha256\n" * repository.sha256 + "\trefStorage = reftable\n" * repository.reftable
        config = _CONFIG.format(
            version=int(bool(extensions)), attributes=attributes,
            file_mode=str(repository.has_file_modes).lower(), symlinks=str(repository.has_symlinks).lower(),
        )  # fmt: skip
        if extensions:
            config += f"[extensions]\n{extensions}"
        _write(self.path, "config", os.fsencode(config))
        lines = [f"*.{suffix} diff={name}\n" for name, suffixes in _DRIVERS.items() for suffix in suffixes.split()]
        _write(self.path, "attributes", "".join(lines).encode())
        # git needs this file, but not its value: commands get names of objects, and a reftable has a HEAD of its own.
        _write(self.path, "HEAD", b"ref: refs/heads/.invalid\n" if repository.reftable else b"ref: refs/heads/main\n")
        if self._shallow_bytes:
            _write(self.path, "shallow", self._shallow_bytes)
        os.mkdir(os.path.join(self.path, "objects"))
        names = ["refs", "packed-refs", *[f"objects/{name}" for name in sorted(_OBJECTS)]]
        for name in names + ["reftable"] * repository.reftable:
            parts = name.split("/")
            os.symlink(
                os.path.join(repository.common.path, *parts),
                os.path.join(self.path, *parts),
                target_is_directory=name != "packed-refs",
            )

    def check_links(self) -> None:
        """Refuse links among the objects, which may lead out of the repository, and pipes, which block git. Blocks.

        Raises:
            InvalidArgument: something is a symbolic link, or neither a file nor a folder.
        """
        with self._lock:
            refusal = self._refusal()
        if refusal:
            raise InvalidArgument(refusal)

    def _refusal(self) -> str:
        """Return why the objects cannot be read, or an empty string. The caller has the lock."""
        link = self._links.find()
        return link and (
            f"In the repository {self.found.root}, {link} is a symbolic link, which is not followed, or neither "
            "a file nor a folder: replace it by what it leads to, or remove it."
        )

    def copy_shallow(self) -> bool:
        """Copy the boundary of a shallow clone, and return whether it changed. Blocks."""
        with self._lock:
            return self._copy_shallow()

    def _copy_shallow(self) -> bool:
        try:
            shallow = self.found.common.read("shallow", max_bytes=16 << 20)
        except NotServed:
            shallow = b""
        if shallow == self._shallow_bytes:
            return False
        self._shallow_bytes = shallow
        self.shallow = frozenset(shallow.decode("ascii", "replace").split())
        if shallow:
            _write(self.path, "shallow", shallow)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, "shallow"))
        return True

    def copy_index(self) -> str:
        """Copy the index, and return the path of the copy, which the caller removes. Blocks.

        Raises:
            InvalidArgument: there is no index, or it is too large.
        """
        data, status = self._read_index("index")
        with self._lock:
            self._copy_shared_index(data)
        descriptor, path = tempfile.mkstemp(prefix="index-", dir=self.path)
        with open(descriptor, "wb") as file:
            file.write(data)
        # git compares the contents of files that are not older than the index, because they may have changed since.
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return path

    def _read_index(self, name: str) -> tuple[bytes, os.stat_result]:
        status = self.found.own.status(name)
        if status is None:
            raise InvalidArgument("This repository has no index that can be read.")
        if status.st_size > INDEX_BYTES:
            raise InvalidArgument(
                f"The index of this repository has {status.st_size:,} bytes, and at most {INDEX_BYTES:,} can be read."
            )
        try:
            return self.found.own.read(name, max_bytes=INDEX_BYTES), status
        except NotServed:
            raise InvalidArgument("This repository has no index that can be read.") from None

    def _copy_shared_index(self, index: bytes) -> None:
        """Copy what a split index refers to (git-update-index(1)). Copies that are no longer used are removed."""
        shared = [name for name in os.listdir(self.found.own.path) if _SHARED_INDEX(name)][:MAX_SHARED_INDEXES]
        used = {name for name in shared if bytes.fromhex(name.partition(".")[2]) in index}  # its digest names it
        copies = set(filter(_SHARED_INDEX, os.listdir(self.path)))
        for name in copies:
            with contextlib.suppress(FileNotFoundError):
                path = os.path.join(self.path, name)
                if name in used:
                    os.utime(path)
                elif time.time() - os.stat(path).st_mtime > KEEP_SECONDS:  # others may still read it
                    os.unlink(path)
        for name in used - copies:
            _write(self.path, name, self._read_index(name)[0])


def _write(folder: str, name: str, data: bytes) -> None:
    """Replace a file atomically, because git may be reading the old one."""
    descriptor, path = tempfile.mkstemp(prefix=f"{name}-", dir=folder)
    with open(descriptor, "wb") as file:
        file.write(data)
    os.replace(path, os.path.join(folder, name))


class _LinkSearch:
    """Searches the directories of objects for symbolic links. A directory is searched again only if it changed."""

    def __init__(self, common: GitDirectory) -> None:
        self._common = common.path
        self._folder = os.path.join(common.path, "objects")
        self._stamps: dict[str, tuple[int, int]] = {}
        self._found = ""
        self._next_check = 0.0

    def find(self) -> str:
        """Return the path of a symbolic link, or of a pipe that would block git, or an empty string."""
        for part in ("", "objects", "refs", "packed-refs", "reftable"):
            with contextlib.suppress(OSError):
                mode = os.lstat(os.path.join(self._common, part) if part else self._common).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    return part or self._common
        names = ["", "pack"]
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + CHECK_SECONDS
            names += [f"{number:02x}" for number in range(256)]
        elif self._found:
            return self._found
        self._found = next((link for link in map(self._search, names) if link), "")
        return self._found

    def _search(self, name: str) -> str:
        folder, link = os.path.join(self._folder, name), ""
        try:
            status = os.lstat(folder)
            stamp = status.st_ino, status.st_mtime_ns
            if self._stamps.get(name) == stamp:
                return ""
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                        link = f"objects/{name}/{entry.name}"
                        break
        except OSError:  # it is missing, or not a directory
            self._stamps.pop(name, None)
            return ""
        # Another change within the same tick of the clock would leave the same time, so a recent stamp is not kept.
        if not link and time.time_ns() - status.st_mtime_ns > 100_000_000:
            self._stamps[name] = stamp
        return link.replace("//", "/")
