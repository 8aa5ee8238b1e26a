"""Walks the published files and directories of a folder, in a stable order and in pages, while directories change.

The order: a directory, then its files by name, then its sub-directories by name, each with its contents. Names are
compared by code point. A position in this order is a path, and whether it names a directory. A page begins after a
position, which is searched for by its names, so nothing is listed twice or skipped because other entries were added or
removed.

Reading a directory and matching its names against the rules is the expensive part, so its sorted listing is kept, with
the directory's times. A kept listing is used while the times are the same, and kept only if the last change is older
than the tick of the file system's clock (`SETTLED_NS`): otherwise a later change might have the same time.
`CACHE_BYTES` bounds all kept listings. A walk holds one open handle for each directory on its path: that of the root,
and of at most `MAX_DEPTH` below it.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, Protocol, overload

from wharfinger.content.text import shown
from wharfinger.policy.current import CURRENT_ACCESS
from wharfinger.sources.folder.ignore import (
    IGNORE_FILE,
    IGNORE_FILE_BYTES,
    PublishChoice,
    Rules,
    Verdict,
    read_ignore_file,
)
from wharfinger.sources.folder.safe_open import (
    Handle,
    NotServed,
    OpenFile,
    close,
    has_another_spelling,
    is_missing,
    missing_as_not_served,
    open_directory,
    open_file,
    open_root,
    open_with_status,
    stamp_of,
    stat_entry,
)
from wharfinger.sources.page_keys import bad_cursor

__all__ = [
    "MAX_DEPTH",
    "DirectoryListing",
    "FileTree",
    "Names",
    "OpenDirectory",
    "TreeEntry",
    "TreePosition",
    "TreeView",
    "is_settled",
    "read_key",
    "write_key",
]

log = logging.getLogger("wharfinger.sources")

MAX_DEPTH = 100  # maximum number of parts of a directory's path
MAX_WALKED_PATH_CHARACTERS = 3_072  # maximum length of a directory's path in a walk: a position must fit into a cursor
MAX_KEPT_IGNORE_FILES = 4_096  # maximum number of .gitignore files that are kept
MAX_KEPT_PATTERNS = 100_000  # maximum number of patterns in all of them
MAX_SHARED_DIRECTORIES = 8  # maximum number of open directories that calls of one thread share
CACHE_BYTES = 12 << 20  # memory for the listings that are kept
SETTLED_NS = 100_000_000  # more than the tick of a file system's clock, so that a later change has another time
SETTLED_COARSE_NS = 2_500_000_000  # the same for file systems that store whole seconds (FAT: even seconds)

# On these systems `readme` may open `README`: names are looked up in the listing, so that the rules see the real name.
# For callers with a policy, the same is done on a mounted disk of such a system (`has_another_spelling`).
FOLDS_NAMES = sys.platform in ("darwin", "win32", "cygwin")

Parts = tuple[str, ...]


class TreePosition(NamedTuple):
    """A position in the order: just after this entry."""

    is_directory: bool
    parts: Parts


_UNSAFE_IN_KEY = re.compile("[%\udc80-\udcff]")
_KEY_ESCAPE = re.compile("%([0-9A-F]{2})")


def write_key(position: TreePosition) -> str:
    """Write a position as text that JSON can carry."""
    path = _UNSAFE_IN_KEY.sub(lambda match: f"%{ord(match[0]) & 0xFF:02X}", "/".join(position.parts))
    return ("d:" if position.is_directory else "f:") + path


def read_key(key: str) -> TreePosition:
    """Read a key that `write_key` wrote.

    Raises:
        InvalidArgument: it does not begin like such a key.
    """
    if key[:2] not in ("d:", "f:"):
        raise bad_cursor()
    path = _KEY_ESCAPE.sub(_unescape_key, key[2:])
    return TreePosition(key[0] == "d", tuple(path.split("/")) if path else ())


def _unescape_key(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if code < 0x80 else chr(0xDC00 + code)


class Names(Sequence[str]):
    """Sorted file names in one string: 100,000 of them take 2 MiB instead of 7."""

    __slots__ = ("_ends", "_joined", "fingerprint")

    def __init__(self, names: list[str]) -> None:
        names.sort()
        self._joined = "".join(names)
        self._ends = array("Q" if len(self._joined) > 0xFFFFFFFF else "I", accumulate(map(len, names)))
        self.fingerprint = hash((self._joined, self._ends.tobytes()))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if index < 0:
            raise IndexError(index)
        end = self._ends[index]
        return self._joined[self._ends[index - 1] if index else 0 : end]

    def index_after(self, name: str) -> int:
        """Return the index of the first name after `name`."""
        return bisect_right(self, name)

    def index_where(self, begin: int, test: Callable[[str], bool]) -> int:
        """Return the index of the first name from `begin` on that passes a test; the number of names if none does."""
        joined, start = self._joined, self._ends[begin - 1] if begin else 0
        for index in range(begin, len(self._ends)):
            end = self._ends[index]
            if test(joined[start:end]):
                return index
            start = end
        return len(self._ends)

    def count_where(self, test: Callable[[str], bool]) -> int:
        """Return the number of names that pass a test."""
        return sum(1 for name in self if test(name))

    def __iter__(self) -> Iterator[str]:
        joined, start = self._joined, 0
        for end in self._ends:
            yield joined[start:end]
            start = end

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        index = self.index_after(name)
        return index > 0 and self[index - 1] == name

    @property
    def cost(self) -> int:
        """Bytes of memory that this takes."""
        return sys.getsizeof(self._joined) + sys.getsizeof(self._ends)


class DirectoryListing:
    """The published names of one directory, and how many are withheld."""

    __slots__ = ("directories", "files", "fingerprint", "withheld")

    def __init__(self, files: list[str], directories: list[str], withheld: dict[Verdict, int]) -> None:
        self.files = Names(files)
        self.directories = Names(directories)
        self.withheld = withheld
        self.fingerprint = hash((self.files.fingerprint, self.directories.fingerprint))  # equal for equal names

    def __len__(self) -> int:
        return len(self.files) + len(self.directories)

    @property
    def cost(self) -> int:
        """Bytes of memory that this takes."""
        return 512 + self.files.cost + self.directories.cost


class OpenDirectory(NamedTuple):
    """An open directory and its rules."""

    handle: Handle
    rules: Rules


class TreeView(Protocol):
    """The part of a tree that one caller sees."""

    def name_filter(self, parts: Parts) -> Callable[[str], bool] | None:
        """Return a function that returns whether an entry of a directory is shown; None if all of them are."""
        ...

    def may_read_below(self, parts: Parts) -> bool:
        """Return whether anything below a directory may be shown."""
        ...


class TreeEntry(NamedTuple):
    """A published directory that is open at `handle`, or the file `name` in that directory.

    `listing` has the published names of the directory at `handle`.
    """

    parts: Parts
    is_directory: bool
    handle: Handle
    name: str
    listing: DirectoryListing


class _KeptListing(NamedTuple):
    """A kept listing, and the facts on which it depends: the directory's identity and times, and its rules."""

    stamp: tuple[int, ...]
    rules: Rules
    listing: DirectoryListing


class _Frame:
    """A directory during a walk, with the indexes of the next file and sub-directory.

    `shows` returns whether an entry is shown; it is None if all of them are.
    """

    __slots__ = ("directory", "listing", "next_directory", "next_file", "parts", "shows")

    def __init__(
        self, directory: OpenDirectory, parts: Parts, listing: DirectoryListing, shows: Callable[[str], bool] | None
    ) -> None:
        self.directory = directory
        self.parts = parts
        self.listing = listing
        self.shows = shows
        self.next_file = 0
        self.next_directory = 0


class _SharedDirectories(threading.local):
    """The directories that a thread has open in a `share` block, by the prefix of their rules. None outside a block."""

    directories: dict[str, OpenDirectory] | None = None


class FileTree:
    """The published files and directories of a folder. Its methods may be called from several threads at once."""

    def __init__(
        self, root: str, choice: PublishChoice, *, gitignore: bool = True, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self.root = root
        self.choice = choice
        self.gitignore = gitignore
        self.cache_bytes = cache_bytes
        self.listed_at = 0.0
        """When a page was last listed (monotonic clock): the walk of a watcher pauses after a listing."""
        self._shared = _SharedDirectories()
        self._lock = threading.Lock()
        # While one thread lists a directory, others that need its listing wait.
        self._listing_locks = tuple(threading.Lock() for _ in range(16))
        self._kept: dict[str, _KeptListing] = {}  # by the path of the directory; least recently used first
        self._kept_bytes = 0
        # By the path of the directory: the stamp of its .gitignore, and the rules that include it.
        self._ignore_files: dict[str, tuple[tuple[int, ...], Rules]] = {}
        self._kept_patterns = 0

    @contextmanager
    def directory(self, parts: Parts) -> Generator[OpenDirectory, None, None]:
        """Open a published directory.

        Raises:
            NotServed: it, or a directory above it, is missing, not published, or not a directory.
        """
        directory = self.open_directory(parts)
        try:
            yield directory
        finally:
            self.close_directory(directory)

    def open_directory(self, parts: Parts) -> OpenDirectory:
        """Open a published directory. Close it with `close_directory`.

        Raises:
            NotServed: it, or a directory above it, is missing, not published, or not a directory.
        """
        if len(parts) > MAX_DEPTH:
            raise NotServed
        shared = self._shared.directories
        if shared is not None:
            prefix = "".join([f"{part}/" for part in parts])
            if (kept := shared.get(prefix)) is not None:
                return kept
        directory = self._open_root() if shared is None else shared[""]
        for depth, name in enumerate(parts):
            try:
                with missing_as_not_served():
                    child = self._open_child(directory, name)
            finally:
                if depth or shared is None:  # a shared root stays open
                    close(directory.handle)
            directory = child
        if shared is not None and len(shared) < MAX_SHARED_DIRECTORIES:
            shared[directory.rules.prefix] = directory
        return directory

    def close_directory(self, directory: OpenDirectory) -> None:
        """Close a directory, unless it is shared (see `share`)."""
        shared = self._shared.directories
        if shared is None or shared.get(directory.rules.prefix) is not directory:
            close(directory.handle)

    def _open_root(self) -> OpenDirectory:
        with missing_as_not_served():
            handle = open_root(self.root)
        try:
            with missing_as_not_served():
                return OpenDirectory(handle, self._with_ignore_file(handle, Rules(self.choice)))
        except BaseException:
            close(handle)
            raise

    @contextmanager
    def share(self) -> Generator[None]:
        """Leave open the directories that this thread opens in the `with` block, and let its next calls use them.

        The root is opened first. The calls do not notice if such a directory is replaced meanwhile. So use this only
        for requests that arrived before the block began.
        """
        shared: dict[str, OpenDirectory] = {}
        try:
            with suppress(NotServed, OSError):  # then each call raises its own error
                shared[""] = self._open_root()
                self._shared.directories = shared
            yield
        finally:
            self._shared.directories = None
            for directory in shared.values():
                close(directory.handle)

    @contextmanager
    def file(self, parts: Parts) -> Generator[int, None, None]:
        """Open a published regular file for reading.

        Raises:
            NotServed: it, or a directory above it, is missing, not published, or not a regular file.
        """
        descriptor, _ = self.open_file(parts)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open_file(self, parts: Parts, *, was_opened: bool = False) -> OpenFile:
        """Open a published regular file for reading. The caller closes the descriptor.

        Set `was_opened` only if you opened the file under this name before, and will compare its status with the
        earlier one. Then the type of its entry and, for callers with a policy, its spelling are not checked again.

        Raises:
            NotServed: it, or a directory above it, is missing, not published, or not a regular file.
        """
        if not parts:
            raise NotServed
        name = parts[-1]
        directory = self.open_directory(parts[:-1])
        try:
            self._check(directory, name, is_directory=False, was_opened=was_opened)
            return open_with_status(directory.handle, name, was_regular=was_opened)
        except (OSError, ValueError) as error:
            if is_missing(error):
                raise NotServed from None
            raise
        finally:
            self.close_directory(directory)

    def is_directory(self, directory: OpenDirectory, name: str) -> bool:
        """Return whether a published entry of an open directory is a directory.

        Raises:
            NotServed: it is missing, not published, or neither a directory nor a regular file.
        """
        with missing_as_not_served():
            mode = stat_entry(directory.handle, name).st_mode
        is_directory = stat.S_ISDIR(mode)
        if not is_directory and not stat.S_ISREG(mode):
            raise NotServed
        self._check(directory, name, is_directory)
        return is_directory

    def walk(self, after: TreePosition | None = None, view: TreeView | None = None) -> Generator[TreeEntry, None, None]:
        """Yield all published entries after a position, in order.

        Directories that have vanished are left out, and those that are too deep or have too long a path. A file may
        have vanished since its directory was listed.

        With a view, yield what it shows. Directories below which it shows nothing are not opened.

        A handle is valid until the next entry is yielded. Close the iterator to release the handles early.
        """
        return self._walk([], after, view)

    def _walk(
        self, frames: list[_Frame], after: TreePosition | None = None, view: TreeView | None = None
    ) -> Generator[TreeEntry, None, None]:
        try:
            try:
                directory = self._open_root()
            except NotServed:
                return
            try:
                shows = None if view is None else view.name_filter(())
                frames.append(_Frame(directory, (), self.listing(directory), shows))
            except BaseException:
                close(directory.handle)
                raise
            if after is None:
                yield TreeEntry((), True, directory.handle, "", frames[0].listing)
            else:
                self._seek(frames, after, view)
            yield from self._walk_on(frames, view)
        finally:
            for frame in frames:
                close(frame.directory.handle)

    def walk_directories(self) -> Generator[TreeEntry, None, None]:
        """Yield only the published directories, in the order of `walk`."""
        frames: list[_Frame] = []
        entries = self._walk(frames)
        try:
            for entry in entries:
                frames[-1].next_file = len(entry.listing.files)  # skips the files
                yield entry
        finally:
            entries.close()

    def _seek(self, frames: list[_Frame], after: TreePosition, view: TreeView | None) -> None:
        """Let the frames continue after the position `after`, even if its entry is gone."""
        for depth, name in enumerate(after.parts):
            frame = frames[-1]
            if depth == len(after.parts) - 1 and not after.is_directory:
                frame.next_file = frame.listing.files.index_after(name)
                return
            frame.next_file = len(frame.listing.files)
            frame.next_directory = frame.listing.directories.index_after(name)
            if name not in frame.listing.directories or not self._push(frames, name, view):
                return

    def _walk_on(self, frames: list[_Frame], view: TreeView | None) -> Iterator[TreeEntry]:
        """Yield the entries that the frames have not passed yet."""
        while frames:
            frame = frames[-1]
            listing, handle, parts = frame.listing, frame.directory.handle, frame.parts
            shows = frame.shows
            while frame.next_file < len(listing.files):
                if (
                    shows is not None
                    and (index := listing.files.index_where(frame.next_file, shows)) != frame.next_file
                ):
                    frame.next_file = index
                    continue
                name = listing.files[frame.next_file]
                frame.next_file += 1
                yield TreeEntry((*parts, name), False, handle, name, listing)
            if frame.next_directory < len(frame.listing.directories):
                name = frame.listing.directories[frame.next_directory]
                frame.next_directory += 1
                is_shown = shows is None or shows(name)
                if not is_shown and view is not None and not view.may_read_below((*parts, name)):
                    continue
                if self._push(frames, name, view) and is_shown:
                    inner = frames[-1]
                    yield TreeEntry(inner.parts, True, inner.directory.handle, name, inner.listing)
            else:
                close(frames.pop().directory.handle)

    def _push(self, frames: list[_Frame], name: str, view: TreeView | None) -> bool:
        """Add a frame for a sub-directory of the last frame. Return False if it cannot be listed."""
        frame = frames[-1]
        if len(frames) > MAX_DEPTH or len(frame.directory.rules.prefix) + len(name) > MAX_WALKED_PATH_CHARACTERS:
            return False
        try:
            with missing_as_not_served():
                directory = self._open_child(frame.directory, name)
            try:
                listing = self.listing(directory)
            except BaseException:
                close(directory.handle)
                raise
        except NotServed:
            return False
        parts = (*frame.parts, name)
        frames.append(_Frame(directory, parts, listing, None if view is None else view.name_filter(parts)))
        return True

    def listing(self, directory: OpenDirectory) -> DirectoryListing:
        """Return the published names of an open directory. They are kept until the directory or the rules change.

        Raises:
            NotServed: it cannot be listed.
        """
        prefix = directory.rules.prefix
        listing = self._kept_listing(directory)
        if listing is not None:
            return listing
        with self._listing_locks[hash(prefix) % len(self._listing_locks)]:
            listing = self._kept_listing(directory)  # another thread listed it meanwhile
            if listing is not None:
                return listing
            now = time.time_ns()
            with missing_as_not_served():
                stamp = _directory_stamp(directory.handle)
                listing = _list(directory)
            self._keep(
                prefix,
                _KeptListing(stamp, directory.rules, listing) if is_settled(max(stamp[2], stamp[3]), now) else None,
            )
        return listing

    def _kept_listing(self, directory: OpenDirectory) -> DirectoryListing | None:
        prefix = directory.rules.prefix
        with self._lock:
            cached = self._kept.pop(prefix, None)
            if cached is None:
                return None
            self._kept[prefix] = cached  # now the most recently used
        with missing_as_not_served():
            stamp = _directory_stamp(directory.handle)
        return cached.listing if cached.stamp == stamp and _same_rules(cached.rules, directory.rules) else None

    def _keep(self, prefix: str, new: _KeptListing | None) -> None:
        with self._lock:
            previous = self._kept.pop(prefix, None)
            if previous is not None:
                self._kept_bytes -= previous.listing.cost
            if new is None or new.listing.cost > self.cache_bytes:
                return
            self._kept[prefix] = new
            self._kept_bytes += new.listing.cost
            while self._kept_bytes > self.cache_bytes:
                self._kept_bytes -= self._kept.pop(next(iter(self._kept))).listing.cost

    def _open_child(self, directory: OpenDirectory, name: str) -> OpenDirectory:
        self._check(directory, name, is_directory=True)
        handle = open_directory(directory.handle, name)
        try:
            return OpenDirectory(handle, self._with_ignore_file(handle, directory.rules.enter(name)))
        except BaseException:
            close(handle)
            raise

    def _check(self, directory: OpenDirectory, name: str, is_directory: bool, was_opened: bool = False) -> None:
        """Raise NotServed if the rules withhold an entry, or if its name is spelled differently on the disk."""
        if directory.rules.judge(name, is_directory):
            raise NotServed
        # A file that was opened before is still spelled in this way: a new link would have changed its status.
        may_differ = not was_opened and CURRENT_ACCESS.get() is not None
        if FOLDS_NAMES or (may_differ and has_another_spelling(directory.handle, name)):
            listing = self.listing(directory)
            if name not in (listing.directories if is_directory else listing.files):
                raise NotServed

    def _with_ignore_file(self, handle: Handle, rules: Rules) -> Rules:
        """Return the rules with this directory's .gitignore, which is compiled again only if it changed."""
        if not self.gitignore:
            return rules
        try:
            status = stat_entry(handle, IGNORE_FILE)
            descriptor = open_file(handle, IGNORE_FILE)
        except (FileNotFoundError, NotServed):
            return rules  # missing, or no regular file: git does not follow a link either
        except PermissionError:
            _report_unreadable(f"{self.root}/{rules.prefix}{IGNORE_FILE}")
            raise  # like other errors (too many open files, a failing disk): its patterns may withhold something
        try:
            # If it changed just now, its content is compared too: a later change may have the same time.
            is_old = is_settled(max(status.st_mtime_ns, status.st_ctime_ns))
            data = None if is_old else _read_beginning(descriptor, IGNORE_FILE_BYTES + 1)
            stamp = (*stamp_of(status), hash(data))
            cached = self._ignore_files.get(rules.prefix)
            if cached is not None and cached[0] == stamp and _same_rules(cached[1], rules, ignore_own=True):
                return cached[1]
            if data is None:
                data = _read_beginning(descriptor, IGNORE_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
        own_rules = rules.with_patterns(read_ignore_file(data, rules.prefix))
        if len(self._ignore_files) >= MAX_KEPT_IGNORE_FILES or self._kept_patterns > MAX_KEPT_PATTERNS:
            self._ignore_files.clear()
            self._kept_patterns = 0
        self._kept_patterns += sum(len(level.patterns) for level in own_rules.levels[:1])
        self._ignore_files[rules.prefix] = (stamp, own_rules)
        return own_rules


@lru_cache(1_024)  # reported once, not for each request
def _report_unreadable(path: str) -> None:
    log.warning("%s may not be read: nothing in this directory is published.", shown(path))


def _same_rules(kept: Rules, rules: Rules, ignore_own: bool = False) -> bool:
    """Return whether both use the same compiled .gitignore files.

    With `ignore_own`, the file of the directory itself in `kept` is not compared.
    """
    levels = kept.levels
    if ignore_own and levels and levels[0].prefix_bytes == kept.prefix_bytes:
        levels = levels[1:]
    return len(levels) == len(rules.levels) and all(
        one.patterns is other.patterns for one, other in zip(levels, rules.levels, strict=True)
    )


def _directory_stamp(handle: Handle) -> tuple[int, ...]:
    status = os.stat(handle)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def is_settled(changed: int, now: int | None = None) -> bool:
    """Return whether a later change would have another time than `changed` (ns): file systems' clocks tick slowly."""
    age = (time.time_ns() if now is None else now) - changed
    return age > (SETTLED_NS if changed % 1_000_000_000 else SETTLED_COARSE_NS)


def _list(directory: OpenDirectory) -> DirectoryListing:
    files: list[str] = []
    directories: list[str] = []
    withheld: dict[Verdict, int] = {}
    judge = directory.rules.judge
    with os.scandir(directory.handle) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                names = files
            elif entry.is_dir(follow_symlinks=False) and not _is_junction(entry):
                names = directories
            else:
                continue  # links, sockets, FIFOs and devices are not served
            name = entry.name
            verdict = judge(name, names is directories)
            if verdict:
                withheld[verdict] = withheld.get(verdict, 0) + 1
            else:
                names.append(name)
    return DirectoryListing(files, directories, withheld)


def _is_junction(entry: os.DirEntry[str]) -> bool:
    return sys.platform == "win32" and bool(entry.stat(follow_symlinks=False).st_reparse_tag)


def _read_beginning(descriptor: int, max_bytes: int) -> bytes:
    data = os.read(descriptor, max_bytes)
    while len(data) < max_bytes and (more := os.read(descriptor, max_bytes - len(data))):
        data += more
    return data
