"""One log and its rotated files, newest first, each opened for random access.

Only regular files in the log's own directory are opened, through a handle of that directory.
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
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple, TypeVar

from wharfinger.sources.folder.file_content import DuplicatedFile, FileContent
from wharfinger.sources.folder.safe_open import Handle, NotServed, missing_as_not_served, open_file, stat_entry
from wharfinger.sources.folder.tree import FileTree, Parts

__all__ = [
    "MAX_INFLATED_BYTES",
    "InflatedLogs",
    "LogContent",
    "LogFile",
    "LogFiles",
    "LogMoved",
    "open_log",
    "with_log",
]

T = TypeVar("T")

MAX_INFLATED_BYTES = 64 << 20
"""Maximum decompressed bytes of one compressed file that are read. A remark says that the rest is left out."""
MAX_GZIP_MEMBERS = 10_000
"""Maximum number of members of a compressed log that are read. A program adds one each time it appends to the file."""
MAX_FILES = 1_000
"""Maximum number of files of one log that are read, newest first: the live file and its rotated ones."""
MAX_LISTINGS = 50
"""Maximum number of further listings of a directory until two agree: files may be renamed in between."""
LISTING_PAUSE_SECONDS = 0.002
MAX_TRIES = 16
"""Maximum number of attempts to read files that are being renamed, with pauses of about half a second in all."""

# `app.log` is rotated to `app.log.1`, `app.log.1.gz`, `app.log-20261120.gz`, `app.log.2026-11-20_10`, `app.log.old`, or
# (log4j and others, by date only) `app-2026-11-20.log`.
_ROTATED_SUFFIX = re.compile(r"[.-](old|[0-9][0-9T_:.-]{0,30})(\.gz)?").fullmatch
_DATE_BEFORE_ENDING = re.compile(r"[.-]([0-9]{4}[0-9T_:.-]{4,26})").fullmatch


class LogMoved(Exception):
    """A file was renamed, replaced or truncated after its directory was listed: list the directory again."""


class LogFile(NamedTuple):
    """One file of a log. `size` (bytes) and `modified` (ns) are from the listing of its directory.

    `identity` is its device and inode. `live` is True for the file that the program writes to, and False for a rotated
    one.
    """

    name: str
    identity: tuple[int, int]
    size: int
    modified: int
    live: bool

    @property
    def is_compressed(self) -> bool:
        """Whether it has the name of a gzip file."""
        return self.name.endswith(".gz")


class LogContent:
    """An open file, up to its size when it was opened. If `more` is True, bytes after `size` are left out."""

    def __init__(self, file: LogFile, content: FileContent, *, more: bool = False) -> None:
        self.file = file
        self.more = more
        self.status = os.fstat(content.descriptor)
        self.size = content.size
        self.modified = file.modified if file.is_compressed else self.status.st_mtime_ns
        self._content = content

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes from `offset`. Returns fewer if the file ends earlier or was truncated."""
        return self._content.read(offset, length)

    def grew(self) -> bool:
        """Return whether the file has grown since it was opened."""
        return os.fstat(self._content.descriptor).st_size > self.size


class InflatedLogs:
    """Decompressed logs in unnamed files. The last few are kept."""

    def __init__(self, max_bytes: int = MAX_INFLATED_BYTES, max_files: int = 2) -> None:
        self.max_bytes = max_bytes
        self._max_files = max_files
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[object, ...], tuple[DuplicatedFile, bool]] = OrderedDict()

    def open(self, compressed: IO[bytes], file: LogFile) -> LogContent:
        """Decompress a file. The content ends at the first damaged byte, or at the limit."""
        key = (file.identity, file.size, file.modified)
        with self._lock:
            known = self._files.pop(key, None)
            inflated, more = self._files[key] = known or _inflate(compressed, self.max_bytes)
            while len(self._files) > self._max_files:
                self._files.popitem(last=False)
        return LogContent(file, inflated, more=more)

    def close(self) -> None:
        """Close all files that are not in use."""
        with self._lock:
            self._files.clear()


def _inflate(file: IO[bytes], max_bytes: int) -> tuple[DuplicatedFile, bool]:
    """Decompress the members of a gzip file. Returns the bytes, and whether more bytes are left out."""
    remaining, data, members, is_complete = max_bytes, b"", 0, True
    decompressor = zlib.decompressobj(wbits=31)
    with tempfile.TemporaryFile(buffering=0) as target:
        try:
            # Empty members take time, but never reach the limit of bytes.
            while remaining and members < MAX_GZIP_MEMBERS and (data := data or file.read(1 << 16)):
                remaining -= target.write(decompressor.decompress(data, min(remaining, 1 << 20)))
                data, is_complete = decompressor.unconsumed_tail, decompressor.eof
                if decompressor.eof:
                    data, decompressor = decompressor.unused_data, zlib.decompressobj(wbits=31)
                    members += 1
        except zlib.error:
            is_complete = False
        more = bool(data) or not remaining or members == MAX_GZIP_MEMBERS or not is_complete
        return DuplicatedFile(target.fileno(), max_bytes - remaining), more


FileCheck = Callable[[str], bool]
"""Returns whether the caller may read a file of a log, by its name."""


class LogFiles:
    """A log's files at one moment, newest first. They are opened when they are needed."""

    def __init__(self, handle: Handle, name: str, inflated: InflatedLogs, may_read: FileCheck | None = None) -> None:
        self.files = _list_settled_files(handle, name, may_read)
        self._handle = handle
        self._may_read = may_read
        self._name = name
        self._inflated = inflated
        self._open: dict[int, LogContent] = {}

    @property
    def live(self) -> LogFile | None:
        """The file that the program writes to, or None if it is missing."""
        return self.files[0] if self.files and self.files[0].live else None

    def content(self, at: int) -> LogContent:
        """Open one of `files`.

        Raises:
            LogMoved: the file with this name was replaced or removed.
        """
        content = self._open.get(at)
        if content is None:
            file = self.files[at]
            with self._open_file(file) as opened:
                status = os.fstat(opened.fileno())
                if (status.st_dev, status.st_ino) != file.identity:
                    raise LogMoved
                if file.is_compressed:
                    content = self._inflated.open(opened, file)
                else:
                    content = LogContent(file, DuplicatedFile(opened.fileno(), status.st_size))
            self._open[at] = content
        return content

    def _open_file(self, file: LogFile) -> IO[bytes]:
        try:
            with missing_as_not_served():
                return os.fdopen(open_file(self._handle, file.name), "rb", 0)
        except NotServed:
            raise LogMoved from None

    def close_file(self, at: int) -> None:
        """Close one of the files."""
        self._open.pop(at, None)

    def is_current(self) -> bool:
        """Return whether the directory still has the same files, and the rotated ones have the same sizes."""
        return _states(_list_files(self._handle, self._name, self._may_read)) == _states(self.files)

    def length(self, at: int) -> int:
        """Return the length of one of `files`. For a compressed file, it is an estimate from the last bytes."""
        file = self.files[at]
        if not file.is_compressed:
            return file.size
        with self._open_file(file) as opened:
            opened.seek(max(0, file.size - 4))
            return min(int.from_bytes(opened.read(4), "little"), self._inflated.max_bytes)


@contextmanager
def open_log(
    tree: FileTree, parts: Parts, inflated: InflatedLogs, may_read: FileCheck | None = None
) -> Generator[LogFiles, None, None]:
    """Open the files of the log at `parts`. Its own file may be missing if there are rotated ones.

    If `may_read` is given, only files for which it returns True are used.

    Raises:
        NotServed: the log and its rotated files do not exist, or may not be read.
        LogMoved: the files are renamed too often to be listed.
    """
    if not parts:
        raise NotServed
    name = parts[-1]
    with tree.directory(parts[:-1]) as directory:
        if directory.rules.judge(name, False):
            raise NotServed
        log = LogFiles(directory.handle, name, inflated, may_read)
        if not log.files:
            raise NotServed
        yield log


def with_log(
    tree: FileTree,
    parts: Parts,
    inflated: InflatedLogs,
    use: Callable[[LogFiles], T],
    may_read: FileCheck | None = None,
) -> T:
    """Call `use` with the files of a log, and again if they were moved during the call.

    Raises:
        NotServed: as for `open_log`, or the files keep moving.
    """
    for number in range(MAX_TRIES):
        with suppress(LogMoved), open_log(tree, parts, inflated, may_read) as log:
            return use(log)
        time.sleep(min(0.001 * 2**number, 0.05))
    raise NotServed


def _list_settled_files(handle: Handle, name: str, may_read: FileCheck | None) -> list[LogFile]:
    """List the files until two listings agree: a listing may miss a file that is renamed at that moment."""
    previous = _list_files(handle, name, may_read)
    for _ in range(MAX_LISTINGS):
        current = _list_files(handle, name, may_read)
        if [(new.name, new.identity) for new in current] == [(old.name, old.identity) for old in previous]:
            return current
        previous = current
        time.sleep(LISTING_PAUSE_SECONDS)
    raise LogMoved


def _states(files: list[LogFile]) -> list[tuple[object, ...]]:
    """Return the name, identity and size of each file. The size of the live one is left out, because it grows."""
    return [(item.name, item.identity, item.live or item.size) for item in files]


def _list_files(handle: Handle, name: str, may_read: FileCheck | None) -> list[LogFile]:
    keyed: list[tuple[tuple[int, int, str], LogFile]] = []
    try:
        with missing_as_not_served(), os.scandir(handle) as entries:
            names = [entry.name for entry in entries if entry.name != name and _age(name, entry.name) is not None]
    except NotServed:
        names = []
    for other in [name, *names]:
        if may_read is not None and not may_read(other):
            continue
        age = _age(name, other)
        try:
            with missing_as_not_served():
                status = stat_entry(handle, other)
        except NotServed:
            continue
        if stat.S_ISREG(status.st_mode) and age is not None:
            identity = (status.st_dev, status.st_ino)
            keyed.append((age, LogFile(other, identity, status.st_size, status.st_mtime_ns, other == name)))
    keyed.sort(key=lambda pair: pair[0])
    # While gzip compresses a file, both files exist, and the compressed one is not complete.
    plain = {file.name for _, file in keyed if not file.is_compressed}
    files = [file for _, file in keyed if not (file.is_compressed and file.name.removesuffix(".gz") in plain)]
    return files[:MAX_FILES]


def _age(name: str, other: str) -> tuple[int, int, str] | None:
    """Return the key that sorts the files of a log, newest first, or None if `other` does not belong to the log."""
    if other == name:
        return (0, 0, "")
    stem, dot, ending = name.rpartition(".")
    if other.startswith(name) and (match := _ROTATED_SUFFIX(other[len(name) :])):
        mark = match[1]
    elif dot and stem and other.removesuffix(".gz").endswith(f".{ending}") and other.startswith(stem):
        between = _DATE_BEFORE_ENDING(other.removesuffix(".gz")[len(stem) : -len(ending) - 1])
        if between is None:
            return None
        mark = between[1]
    else:
        return None
    if mark == "old":
        return (1, 0, "")
    if mark.isdecimal() and len(mark) < 8:
        return (2, int(mark), "")
    padded = re.sub(r"\d+", lambda number: number[0].zfill(8), mark)
    return (3, 0, padded.translate(_BACKWARDS) + "~")


# Dates are sorted by their digits, the latest first. 2026-11-20.10 comes before 2026-11-20.9, which comes before
# 2026-11-20. Numbers are padded for this.
_BACKWARDS = str.maketrans("0123456789", "9876543210")
