"""Where HEAD, branches and tags are: looked at as a whole, so that a name is only ever found among those there are.

No name that somebody asks for becomes a path. Knows nothing of objects.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from wharfinger.sources.folder.safe_open import NotServed
from wharfinger.sources.git_repository.repository import PACKED_REFS, PureDirectory

__all__ = ["BRANCHES", "REMOTES", "TAGS", "ReferenceReader", "References"]

BRANCHES, TAGS, REMOTES = "refs/heads/", "refs/tags/", "refs/remotes/"
SHOWN = ("heads", "tags", "remotes")
MOST = 200_000  # references that are looked at
DEEP = 64  # folders in folders of references
HOPS = 5  # symbolic references that lead to others
SETTLED = 0.1  # seconds after which a file that looks the same is the same

_OID = re.compile(rb"[0-9a-f]{40}").fullmatch
_SYMBOLIC = b"ref: "


class References:
    """All references at one moment; another moment with the same ones is the same object."""

    def __init__(self, head: str | None, detached: str | None, names: dict[str, str], shallow: frozenset[str]) -> None:
        self.branch = head
        """The full name that HEAD stands for, such as `refs/heads/main`; None where it stands for a commit."""
        self.names = names
        """The object of each full name, such as `refs/tags/v1`."""
        self.shallow = shallow
        """Commits whose parents are not there, in a shallow clone."""
        self.head = detached if head is None else names.get(head)
        """The object that HEAD is; None in a repository without commits."""

    def same(self, other: References | None) -> bool:
        """Whether both say the same."""
        return other is not None and (self.branch, self.head, self.names, self.shallow) == (
            other.branch, other.head, other.names, other.shallow
        )  # fmt: skip

    @functools.cached_property
    def mark(self) -> str:
        """Differs when anything moved."""
        digest = hashlib.blake2b(repr((self.branch, self.head)).encode("utf-8", "surrogateescape"), digest_size=10)
        for name in self._sorted:
            digest.update(f"{name} {self.names[name]}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @functools.cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.names)

    def under(self, prefix: str, after: str = "") -> Iterator[str]:
        """The names under one of `BRANCHES`, `TAGS`, `REMOTES`, without it, in order, behind another one."""
        names = self._sorted
        for at in range(bisect_left(names, prefix + after), len(names)):
            name = names[at]
            if not name.startswith(prefix):
                return
            if name != prefix + after:
                yield name[len(prefix) :]

    def many(self, prefix: str) -> int:
        """How many there are under a prefix."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        return bisect_left(self._sorted, end) - bisect_left(self._sorted, prefix)

    @property
    def head_name(self) -> str:
        """What HEAD is, for people: a branch's name, or `detached`."""
        return "detached" if self.branch is None else self.branch.removeprefix(BRANCHES)


class _Mark(NamedTuple):
    inode: int
    size: int
    modified: int


class ReferenceReader:
    """Reads the references again where they may have changed. Used by several threads at once."""

    def __init__(self, directory: PureDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._files: dict[str, tuple[_Mark, bytes]] = {}
        self._packed: dict[str, str] = {}
        self._packed_from: bytes | None = None
        self._last: References | None = None

    def now(self) -> References:
        """The references as they are."""
        with self._lock:
            read = self._read()
            if read.same(self._last):
                assert self._last is not None
                return self._last
            self._last = read
            return read

    def _read(self) -> References:
        files: dict[str, tuple[_Mark, bytes]] = {}
        head = self._file("HEAD", self._directory.look("HEAD"), files)
        # First what is in files, then what is packed: `git pack-refs` writes the pack before it removes files.
        loose: dict[str, bytes] = {}
        for kind in SHOWN:
            self._scan(("refs", kind), loose, files)
        names = dict(self._read_packed(files))
        shallow = self._file("shallow", self._directory.look("shallow"), files)
        self._files = files
        symbolic: dict[str, str] = {}
        for name, content in loose.items():
            if _OID(content):
                names[name] = content.decode()
            elif content.startswith(_SYMBOLIC):
                names.pop(name, None)
                symbolic[name] = _target(content)
        for name in symbolic:
            found = _follow(name, symbolic, names)
            if found is not None:
                names[name] = found
        detached = head.strip()
        return References(
            _target(head) if head.startswith(_SYMBOLIC) else None,
            detached.decode() if _OID(detached) else None,
            names,
            frozenset(line.decode() for line in shallow.split() if _OID(line)),
        )

    def _scan(
        self, names: tuple[str, ...], loose: dict[str, bytes], files: dict[str, tuple[_Mark, bytes]], deep: int = 0
    ) -> None:
        try:
            entries = self._directory.scan(*names)
        except NotServed:
            return
        for name, status in entries:
            path = "/".join((*names, name))
            if stat.S_ISDIR(status.st_mode):
                if deep < DEEP and not name.startswith("."):
                    self._scan((*names, name), loose, files, deep + 1)
            elif stat.S_ISREG(status.st_mode) and len(files) < MOST and _is_reference(path):
                loose[path] = self._file(path, status, files).strip()

    def _file(self, path: str, status: os.stat_result | None, files: dict[str, tuple[_Mark, bytes]]) -> bytes:
        """The content of a small file, read only where it may be another than before."""
        if status is None:
            return b""
        mark = _Mark(status.st_ino, status.st_size, status.st_mtime_ns)
        before = self._files.get(path)
        if before is not None and before[0] == mark:
            files[path] = before
            return before[1]
        try:
            content = self._directory.read(*path.split("/"))
        except NotServed:
            return b""
        if abs(time.time() - status.st_mtime) > SETTLED:
            files[path] = mark, content
        return content

    def _read_packed(self, files: dict[str, tuple[_Mark, bytes]]) -> dict[str, str]:
        status = self._directory.look("packed-refs")
        if status is None:
            self._packed, self._packed_from = {}, None
            return self._packed
        mark = _Mark(status.st_ino, status.st_size, status.st_mtime_ns)
        before = self._files.get("packed-refs")
        if before is not None and before[0] == mark:
            files["packed-refs"] = before
            return self._packed
        try:
            content = self._directory.read("packed-refs", most=PACKED_REFS)
        except NotServed:
            content = b""
        self._packed = _parse_packed(content)
        if abs(time.time() - status.st_mtime) > SETTLED:
            files["packed-refs"] = mark, b""
        return self._packed


def _parse_packed(content: bytes) -> dict[str, str]:
    """The names in packed-refs, but for lines that are none (comments, what tags stand for, damage)."""
    packed: dict[str, str] = {}
    for line in content.split(b"\n"):
        oid, space, name = line.partition(b" ")
        if not space or not _OID(oid) or not name.startswith(b"refs/"):
            continue
        path = os.fsdecode(name)
        if path.split("/", 2)[1] in SHOWN and _is_reference(path) and len(packed) < MOST:
            packed[path] = oid.decode()
    return packed


def _is_reference(path: str) -> bool:
    """Whether git could have made a reference of this name (git-check-ref-format(1))."""
    from dulwich.refs import Ref, check_ref_format

    try:
        return check_ref_format(Ref(os.fsencode(path)))
    except ValueError:
        return False


def _target(content: bytes) -> str:
    return os.fsdecode(content[len(_SYMBOLIC) :].split(b"\n", 1)[0].strip())


def _follow(name: str, symbolic: dict[str, str], names: dict[str, str]) -> str | None:
    for _ in range(HOPS):
        if name not in symbolic:
            return names.get(name)
        name = symbolic[name]
    return None
