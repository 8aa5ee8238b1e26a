"""One log and the files that rotation made of it, newest first, each opened as bytes that can be read anywhere.

Only regular files in the log's own directory are opened, by a handle of that directory.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import IO, NamedTuple

from wharfinger.sources.folder.safe_open import Handle, NotServed, holds, open_file, stat_entry
from wharfinger.sources.folder.tree import FileTree, Parts

__all__ = ["INFLATED", "Chain", "Generation", "Inflated", "LogContent", "LogMoved", "open_chain"]

INFLATED = 64 << 20
"""Bytes of a compressed log that are read; the rest is left out, and a remark says so."""
MEMBERS = 10_000
"""Members of a compressed log that are read: one for each time that it was appended to."""
HISTORY = 1_000
"""Rotated files of one log that are read, the newest ones."""
SETTLING = 50  # looks at a directory in which files are being renamed, until it stays the same
PAUSE = 0.002  # seconds between them

# `app.log` is rotated to `app.log.1`, `app.log.1.gz`, `app.log-20261120.gz`, `app.log.2026-11-20_10`, `app.log.old`, or
# (log4j and others, by date only) `app-2026-11-20.log`.
_BEHIND = re.compile(r"[.-](old|[0-9][0-9T_:.-]{0,30})(\.gz)?").fullmatch
_BETWEEN = re.compile(r"[.-]([0-9]{4}[0-9T_:.-]{4,26})").fullmatch


class LogMoved(Exception):
    """A file is not the one that the directory listed: list it again."""


class Generation(NamedTuple):
    """One file of a log; `size` and `modified` (ns) as they were when the directory was listed."""

    name: str
    identity: tuple[int, int]
    size: int
    modified: int
    live: bool

    @property
    def packed(self) -> bool:
        """Whether it is compressed."""
        return self.name.endswith(".gz")


class LogContent:
    """An open file up to its size when it was opened. `more`: bytes after `size` are left out."""

    more = False
    holder: object = None
    """What keeps the file open."""

    def __init__(self, file: IO[bytes], generation: Generation) -> None:
        self.file = file
        self.generation = generation
        self.status = os.fstat(file.fileno())
        self.size = self.status.st_size
        self.modified = self.status.st_mtime_ns
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on, fewer if the file ends or has been cut meanwhile."""
        length = max(0, min(length, self.size - offset))
        if hasattr(os, "pread"):
            data = os.pread(self.file.fileno(), length, offset)
            while len(data) < length and (
                piece := os.pread(self.file.fileno(), length - len(data), offset + len(data))
            ):
                data += piece
            return data
        with self._lock:
            self.file.seek(offset)
            return self.file.read(length)

    def grew(self) -> bool:
        """Whether the file is longer now."""
        return os.fstat(self.file.fileno()).st_size > self.size


class _Unpacked:
    """An inflated log in a file without a name, closed with the last reference to this."""

    def __init__(self, file: IO[bytes], more: bool) -> None:
        self.file = file
        self.more = more

    def content(self, generation: Generation) -> LogContent:
        """Its bytes as the content of the compressed file."""
        content = LogContent(self.file, generation)
        content.modified, content.more, content.holder = generation.modified, self.more, self
        return content

    def __del__(self) -> None:
        self.file.close()


class Inflated:
    """Inflated logs in files without a name; the last few are kept."""

    def __init__(self, most: int = INFLATED, kept: int = 2) -> None:
        self.most = most
        self._kept = kept
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[object, ...], _Unpacked] = OrderedDict()

    def open(self, file: IO[bytes], generation: Generation) -> LogContent:
        """The content of a compressed file. A damaged or too long one ends where it cannot be read further."""
        key = (generation.identity, generation.size, generation.modified)
        with self._lock:
            inflated = self._files.pop(key, None) or _inflate(file, self.most)
            self._files[key] = inflated
            while len(self._files) > self._kept:
                self._files.popitem(last=False)
        return inflated.content(generation)

    def close(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._files.clear()


def _inflate(file: IO[bytes], most: int) -> _Unpacked:
    """Inflate the members of a gzip file."""
    target = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by what is returned
    left, data, members = most, b"", 0
    machine = zlib.decompressobj(wbits=31)
    try:
        while left and (data := data or file.read(1 << 16)):
            left -= target.write(machine.decompress(data, min(left, 1 << 20)))
            data = machine.unconsumed_tail
            if machine.eof:
                data, machine = machine.unused_data, zlib.decompressobj(wbits=31)
                members += 1
                if members == MEMBERS:  # empty ones cost time without reaching the bound of bytes
                    return _Unpacked(target, True)
    except zlib.error:
        return _Unpacked(target, True)
    return _Unpacked(target, bool(data or not left))


class Chain:
    """A log's files as they were at one moment, newest first. Those that are opened are closed by the `ExitStack`."""

    def __init__(self, handle: Handle, name: str, inflated: Inflated, stack: ExitStack) -> None:
        self.generations = _settled(handle, name)
        self._handle = handle
        self._name = name
        self._inflated = inflated
        self._stack = stack
        self._open: dict[int, LogContent] = {}

    @property
    def live(self) -> Generation | None:
        """The file that the program writes to; None while it is missing."""
        return self.generations[0] if self.generations and self.generations[0].live else None

    def content(self, at: int) -> LogContent:
        """The content of one of `generations`.

        Raises:
            LogMoved: there is another file of this name now, or none.
        """
        if at not in self._open:
            self._open[at] = self._open_one(self.generations[at])
        return self._open[at]

    def _open_one(self, generation: Generation) -> LogContent:
        try:
            with holds():
                file = self._stack.enter_context(os.fdopen(open_file(self._handle, generation.name), "rb", 0))
        except NotServed:
            raise LogMoved from None
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) != generation.identity:
            raise LogMoved
        return self._inflated.open(file, generation) if generation.packed else LogContent(file, generation)

    def forget(self, at: int) -> None:
        """Close one of the files."""
        content = self._open.pop(at, None)
        if content is not None and not content.generation.packed:
            content.file.close()

    def is_current(self) -> bool:
        """Whether the directory still has the same files, the rotated ones with the same sizes."""
        return _marks(_look(self._handle, self._name)) == _marks(self.generations)

    def length(self, at: int) -> int:
        """The length of one of `generations`; of a compressed one approximately, from its last bytes."""
        generation = self.generations[at]
        if not generation.packed:
            return generation.size
        try:
            with holds(), os.fdopen(open_file(self._handle, generation.name), "rb", 0) as file:
                file.seek(max(0, generation.size - 4))
                return min(int.from_bytes(file.read(4), "little"), self._inflated.most)
        except NotServed:
            raise LogMoved from None


@contextmanager
def open_chain(tree: FileTree, parts: Parts, inflated: Inflated) -> Generator[Chain, None, None]:
    """The files of the log at `parts`. Its own file may be missing if there are rotated ones.

    Raises:
        NotServed: neither it nor a rotated file of it is there, or it may not be read.
    """
    if not parts:
        raise NotServed
    name = parts[-1]
    with ExitStack() as stack:
        place = stack.enter_context(tree.directory(parts[:-1]))
        if place.rules.judge(name, False):
            raise NotServed
        chain = Chain(place.handle, name, inflated, stack)
        if not chain.generations:
            raise NotServed
        yield chain


def _settled(handle: Handle, name: str) -> list[Generation]:
    """The files, once two listings agree: one may miss a file that is renamed meanwhile."""
    before = _look(handle, name)
    for _ in range(SETTLING):
        now = _look(handle, name)
        if [(one.name, one.identity) for one in now] == [(one.name, one.identity) for one in before]:
            return now
        before = now
        time.sleep(PAUSE)
    raise LogMoved


def _marks(generations: list[Generation]) -> list[tuple[object, ...]]:
    return [(one.name, one.identity, one.live or one.size) for one in generations]


def _look(handle: Handle, name: str) -> list[Generation]:
    found: list[tuple[tuple[int, int, str], Generation]] = []
    try:
        with holds(), os.scandir(handle) as entries:
            names = [entry.name for entry in entries if entry.name != name and _age(name, entry.name) is not None]
    except NotServed:
        names = []
    for other in [name, *names]:
        age = _age(name, other)
        try:
            with holds():
                status = stat_entry(handle, other)
        except NotServed:
            continue
        if stat.S_ISREG(status.st_mode) and age is not None:
            identity = (status.st_dev, status.st_ino)
            found.append((age, Generation(other, identity, status.st_size, status.st_mtime_ns, other == name)))
    found.sort(key=lambda pair: pair[0])
    return [generation for _, generation in found[:HISTORY]]


def _age(name: str, other: str) -> tuple[int, int, str] | None:
    """The place of another file in the order of a log's files, newest first; None if it does not belong to the log."""
    if other == name:
        return (0, 0, "")
    stem, dot, ending = name.rpartition(".")
    if other.startswith(name) and (found := _BEHIND(other[len(name) :])):
        mark = found[1]
    elif dot and stem and other.removesuffix(".gz").endswith(f".{ending}") and other.startswith(stem):
        between = _BETWEEN(other.removesuffix(".gz")[len(stem) : -len(ending) - 1])
        if between is None:
            return None
        mark = between[1]
    else:
        return None
    if mark == "old":
        return (1, 0, "")
    if mark.isdecimal() and len(mark) < 8:
        return (2, int(mark), "")
    return (3, 0, mark.translate(_BACKWARDS) + "~")


# Dates sort by their digits, the latest first, and a longer one before the one that it begins with.
_BACKWARDS = str.maketrans("0123456789", "9876543210")
