"""Reports which files, directories and lists of a tree change, by the system's watcher or by polling.

One thread per watched tree keeps a snapshot (a hash of names, sizes, times) of each watched URI, and of the list of
all resources. An event of the system's watcher (inotify, FSEvents, ReadDirectoryChangesW) is only a hint: the thread
takes a new snapshot through the tree, compares it with the last one, and reports a difference. So files that are not
published are never reported, and a lost or repeated event does no harm. Three cases need care:
- before the first snapshot nothing can be compared: the time of the last change decides;
- two changes within one tick of the file system's clock have the same snapshot: a hinted file that changed just now is
  reported even if its snapshot is the same;
- directories are added and removed: the set of watched directories is computed again (`_plan`), and all watched URIs
  are compared.
A window of a file is reported only if the digest of its content differs too, if there is one (`DigestContent`).
If the system cannot watch (a limit is reached, watchfiles is not installed), the thread polls.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, cast

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import Changed
from wharfinger.sources.folder.inotify import ADDED, DELETED, Hints, InotifyNotifier, StopSignal
from wharfinger.sources.folder.safe_open import NotServed, missing_as_not_served, stat_entry
from wharfinger.sources.folder.tree import FileTree, Parts, is_settled

__all__ = ["TreeWatch"]

log = logging.getLogger("wharfinger.sources")

DEBOUNCE_MS = 50  # the wait after a change, so that changes that follow are reported with it
STEP_MS = 25  # the time between two requests for events, and the longest time until a stop is noticed
RETRY_SECONDS = 1.0  # the time between two checks of paths that the watcher cannot watch (a missing root, odd names)
ERROR_SECONDS = 5.0  # the time after an unexpected error until the thread tries again
ROOT_CHECK_SECONDS = 2.0  # the time between two checks of the root: renaming a directory above it causes no event
POLL_SECONDS = 1.0  # the time between two rounds of polling, if the system cannot watch
POLL_WAIT_RATIO = 20  # after a round of polling, wait at least 20 times as long as it took, to bound the load
MAX_EVENTS = 4_096  # if more events arrive at once, some may have been lost, so everything is compared
FEW_DIRECTORIES = 1_000  # if fewer are watched, an outdated plan is renewed before the hints are followed, else after
LISTED_ENTRIES = 1_000  # a read of a directory shows the times and sizes of at most so many entries
LIST_DELAY_SECONDS = 0.15  # the time until a new thread walks the list, so that first requests are not slowed
PAUSE_SECONDS = 0.1  # a walk pauses for this time after a client listed a page, because the next page may follow
MAX_PAUSE_SECONDS = 3.0  # the sum of all pauses of one walk, so that endless listing does not prevent watching
CLOCK_TICK_NS = 20_000_000  # how late a file system's clock may be

SYSTEM = {"linux": "inotify", "darwin": "FSEvents", "win32": "ReadDirectoryChangesW"}
# On Linux a recursive watch would follow links out of the tree, and watch ignored directories. Other systems watch a
# whole tree at once, and do not follow links.
RECURSIVE = sys.platform != "linux"

LocatePath = Callable[[str], tuple[Parts, bool]]
DigestContent = Callable[[str, int], bytes | None]
"""Returns a digest of the content of a window, or None for other URIs, or if too much would have to be read.

The second argument is the number of watched URIs, which share the reading."""
Identity = tuple[int, int]  # device and inode of a directory


class Notifier(Protocol):
    """The system's watcher: `InotifyNotifier`, or that of `watchfiles` on other systems."""

    def watch(self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: StopSignal) -> Hints: ...
    def close(self) -> None: ...


class _Snapshot(NamedTuple):
    """The state of a file, directory or list. `latest` is the time of its last change (ns)."""

    fingerprint: int
    latest: int


_MISSING = _Snapshot(0, 0)


class _Watched:
    """One URI, or the list, and its last snapshot."""

    __slots__ = ("changed", "content_digest", "last_snapshot", "only_directory", "parts", "since_ns")

    def __init__(self, changed: Changed, parts: Parts, only_directory: bool) -> None:
        self.changed = changed
        self.parts = parts
        self.only_directory = only_directory
        self.last_snapshot: _Snapshot | None = None
        self.content_digest: bytes | None = None
        self.since_ns = time.time_ns()


class _WakeSignal:
    """Asks the thread to stop, or to plan again for other URIs.

    Both end a wait of the system's watcher, which polls `is_set`, and interrupt the wait between two rounds of polling.
    Other waits end only for a stop.
    """

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.plan_outdated = threading.Event()

    def stop(self) -> None:
        self.stopped.set()
        self.plan_outdated.set()  # ends a wait for it; `stopped` is checked first

    def is_set(self) -> bool:
        return self.plan_outdated.is_set() or self.stopped.is_set()


class TreeWatch:
    """Watches a tree from the first `watch` to the last `unwatch`, in a thread of its own."""

    def __init__(
        self,
        tree: FileTree,
        locate: LocatePath,
        poll: float | None = None,
        digest_content: DigestContent = lambda uri, watched_count: None,
    ) -> None:
        self.tree = tree
        self.digest_content = digest_content
        self.poll = poll
        self._locate = locate
        self._lock = threading.Lock()
        self._watched: dict[str | None, _Watched] = {}
        self._wake: _WakeSignal | None = None
        self._thread: threading.Thread | None = None
        self.means = _describe_polling(poll) if poll else _system_watcher()

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed` from a thread when this URI, or the list if it is None, changes from now on."""
        try:
            parts, only_directory = ((), True) if uri is None else self._locate(uri)
        except (ResourceNotFound, InvalidArgument):
            return
        with self._lock:
            self._watched[uri] = _Watched(changed, parts, only_directory)
            if self._wake is None:
                self._begin()
            else:
                self._wake.plan_outdated.set()

    def unwatch(self, uri: str | None) -> None:
        """Stop reporting this URI, or the list."""
        with self._lock:
            self._watched.pop(uri, None)
            if not self._watched:
                self._end()
            elif uri is None and self._wake is not None:
                self._wake.plan_outdated.set()  # most directories need not be watched any longer

    def close(self) -> None:
        """Stop reporting anything."""
        with self._lock:
            self._watched.clear()
            self._end()

    def join(self, timeout: float = 2.0) -> None:
        """Wait until the thread that the last `unwatch` or `close` stopped has ended."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def watched(self) -> dict[str | None, _Watched]:
        """Return the current watches by URI; None is the list."""
        with self._lock:
            return dict(self._watched)

    def is_watched(self, uri: str | None, item: _Watched) -> bool:
        """Return whether this watch still exists."""
        return self._watched.get(uri) is item

    @property
    def watched_count(self) -> int:
        """The number of watched URIs, including the list."""
        return len(self._watched)

    def _begin(self) -> None:
        wake = self._wake = _WakeSignal()
        self._thread = threading.Thread(target=_WatchThread(self, wake).run, name="wharfinger-watch", daemon=True)
        _RUNNING.add(self)
        self._thread.start()

    def _end(self) -> None:
        if self._wake is not None:
            self._wake.stop()
            self._wake = None


_RUNNING: weakref.WeakSet[TreeWatch] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop all threads before the interpreter ends: a later return from `watchfiles`' Rust would abort the process."""
    running = list(_RUNNING)
    for watch in running:
        watch.close()
    for watch in running:
        watch.join()


class _WatchThread:
    """The work of one thread: plan what to watch, wait for a hint, compare, report."""

    def __init__(self, watch: TreeWatch, wake: _WakeSignal) -> None:
        self.watch = watch
        self.tree = watch.tree
        self.wake = wake
        self.poll = watch.poll
        self.notifier: Notifier | None = None
        self.directories: dict[str, Identity] = {}  # directories whose entries are watched, by path
        self.fingerprints: dict[str, int] = {}  # of their listings, if the list is watched
        self.has_unwatchable = False  # whether some directories cannot be watched, or the root is missing

    def run(self) -> None:
        """Work until stopped. After an error, try again with the last snapshots, so that no change is missed."""
        if None in self.watch.watched():
            self.wake.stopped.wait(LIST_DELAY_SECONDS)
        failed = False
        while not self.wake.stopped.is_set():
            try:
                self._follow_plan()
                failed = False
            except Exception:
                if not failed:  # logged once, not at each attempt
                    log.exception("Watching %s failed; trying again every %g s", self.tree.root, ERROR_SECONDS)
                failed = True
                self._drop_notifier()
                self.wake.stopped.wait(ERROR_SECONDS)
        self._drop_notifier()

    def _follow_plan(self) -> None:
        """Plan what to watch, then follow hints until the plan has to change."""
        began = time.monotonic()
        self.wake.plan_outdated.clear()
        watched = self.watch.watched()
        self._plan(watched)
        if not self.poll and not self._watch_directories():
            self._plan(watched)  # again: directories may have changed before they were watched
        self._compare_uris(watched, None)
        if self.poll:
            now = time.monotonic()
            self._wait_for_next_round(now + max(self.poll, POLL_WAIT_RATIO * (now - began)))
        elif self.notifier is not None or not self.directories:
            while not self.wake.is_set() and self._follow():
                pass

    def _wait_for_next_round(self, until: float) -> None:
        """Wait between two rounds of polling, but take the first snapshots of new watches at once.

        Until its first snapshot, only times show a change, and the clock of a network file system may be wrong.
        """
        wake = self.wake
        while not wake.stopped.is_set() and wake.plan_outdated.wait(max(0.0, until - time.monotonic())):
            wake.plan_outdated.clear()
            watched = self.watch.watched()
            if None in watched and watched[None].last_snapshot is None:
                return  # a round takes that of the list
            self._compare_uris(watched, set())

    # The directories to watch

    def _plan(self, watched: dict[str | None, _Watched]) -> None:
        """Determine the directories to watch: all of them for the list, else those of the watched URIs and above."""
        directories: dict[str, Identity] = {}
        if None in watched:
            directories = self._walk_list(watched[None])
        else:
            self.fingerprints.clear()
            for item in watched.values():
                self._add_path(item.parts, directories)
        if directories != self.directories:
            self.directories = directories
            self._drop_notifier()

    def _walk_list(self, item: _Watched) -> dict[str, Identity]:
        """Walk the tree, report the list if it changed, and return the directories."""
        directories: dict[str, Identity] = {}
        fingerprints: dict[str, int] = {}
        latest = 0
        pause_left = MAX_PAUSE_SECONDS
        for number, entry in enumerate(self.tree.walk_directories()):
            if number % 4 == 3 and self.wake.stopped.wait(0.001):  # so that other threads run
                return self.directories
            while pause_left > 0 and time.monotonic() - self.tree.listed_at < PAUSE_SECONDS:
                pause_left -= STEP_MS / 1000
                if self.wake.stopped.wait(STEP_MS / 1000):
                    return self.directories
            path = "/".join(entry.parts)
            try:
                with missing_as_not_served():
                    status = os.stat(entry.handle)
            except NotServed:  # removed meanwhile, on a platform without directory handles
                continue
            directories[path] = (status.st_dev, status.st_ino)
            fingerprints[path] = entry.listing.fingerprint
            latest = max(latest, status.st_mtime_ns, status.st_ctime_ns)
        self.fingerprints = fingerprints
        self._compare(None, item, _Snapshot(hash(frozenset(fingerprints.items())), latest))
        return directories

    def _add_path(self, parts: Parts, directories: dict[str, Identity]) -> None:
        """Add the directories on a path, from the root on."""
        for depth in range(len(parts) + 1):
            path = "/".join(parts[:depth])
            if path in directories:
                continue
            try:
                with self.tree.directory(parts[:depth]) as directory, missing_as_not_served():
                    status = os.stat(directory.handle)
            except NotServed:
                return
            directories[path] = (status.st_dev, status.st_ino)

    # The system's watcher

    def _watch_directories(self) -> bool:
        """Let the system watch the directories. Return False if they may have changed since they were planned."""
        if self.notifier is not None:
            return True
        paths = [self._absolute(path) for path in ([""] if RECURSIVE else self.directories)]
        watchable = [path for path in paths if not RECURSIVE or _is_utf8(path)]
        self.has_unwatchable = len(watchable) < len(paths) or not self.directories
        if not self.directories:
            return True
        try:
            self.notifier = _open_notifier(watchable)
            self.watch.means = _system_watcher()
        except (FileNotFoundError, NotADirectoryError):  # one of them was removed or replaced meanwhile
            self.wake.stopped.wait(STEP_MS / 1000)
        except Exception as error:  # inotify's limits, no watchfiles, a file system without events
            self.poll = POLL_SECONDS
            self.watch.means = f"{_describe_polling(POLL_SECONDS)} ({_explain(error)})"
            log.warning("%s is watched by %s", self.tree.root, self.watch.means)
        return False

    def _drop_notifier(self) -> None:
        if self.notifier is not None:
            self.notifier.close()
            self.notifier = None

    def _absolute(self, path: str) -> str:
        return os.path.join(self.tree.root, *path.split("/")) if path else self.tree.root

    def _follow(self) -> bool:
        """Wait for hints and follow them. Return False if the directories to watch may have changed."""
        if self.notifier is None:
            self.wake.stopped.wait(RETRY_SECONDS)
            return False
        try:
            timeout = RETRY_SECONDS if self.has_unwatchable else ROOT_CHECK_SECONDS
            hints = self.notifier.watch(DEBOUNCE_MS, STEP_MS, int(timeout * 1000), self.wake)
        except Exception as error:  # watchfiles fails for a name that is not UTF-8, without naming it
            log.debug("The watcher of %s failed: %r", self.tree.root, error)
            self._drop_notifier()
            self.wake.stopped.wait(DEBOUNCE_MS / 1000)
            return False
        if isinstance(hints, str):
            # `watchfiles` returns "signal" if a signal arrived.
            return hints == "signal" or (hints == "timeout" and not self.has_unwatchable and self._root_is_watched())
        return self._handle(hints)

    def _root_is_watched(self) -> bool:
        """Return whether the root is still the watched directory. Renaming a directory above it causes no event."""
        try:
            status = os.stat(self.tree.root)
        except OSError:
            return False
        return self.directories.get("") == (status.st_dev, status.st_ino)

    def _handle(self, hints: set[tuple[int, str]]) -> bool:
        """Follow hints. Return False if a new plan is needed.

        A new plan is needed if directories were added or removed, if a `.gitignore` or the root has changed, if the
        list was not walked yet, or if there are too many hints.
        """
        base = self.tree.root if self.tree.root.endswith(os.sep) else self.tree.root + os.sep
        touched: set[str] = set()
        changed_directories: set[str] = set()
        plan_is_current = True
        if len(hints) > MAX_EVENTS:
            return False
        for kind, absolute in hints:
            if not absolute.startswith(base):  # the root itself, which also stands for lost events
                return False
            path = absolute[len(base) :].replace(os.sep, "/")
            parent, _, name = path.rpartition("/")
            if name == ".gitignore" or (kind in (ADDED, DELETED) and self._is_new_or_watched_directory(path)):
                plan_is_current = False
            touched.update((path, parent))
            if kind in (ADDED, DELETED):
                changed_directories.add(parent)
        if not plan_is_current and len(self.directories) < FEW_DIRECTORIES:
            return False
        watched = self.watch.watched()
        item = watched.get(None)
        # The watch of the list may have begun after the plan was made: then the list was not walked yet.
        if item is not None and (item.last_snapshot is None or not self._compare_listings(item, changed_directories)):
            return False
        self._compare_uris(watched, touched)
        return plan_is_current

    def _is_new_or_watched_directory(self, path: str) -> bool:
        """Return whether a path that was added or removed is a watched directory, or a new directory in one."""
        if path in self.directories:
            return True
        absolute = self._absolute(path)
        return path.rpartition("/")[0] in self.directories and os.path.isdir(absolute) and not os.path.islink(absolute)

    def _compare_listings(self, item: _Watched, changed_directories: Iterable[str]) -> bool:
        """Compare the listings of these directories. Return False if one is gone."""
        for path in changed_directories:
            if path not in self.fingerprints:
                continue
            try:
                with self.tree.directory(tuple(path.split("/")) if path else ()) as directory:
                    self.fingerprints[path] = self.tree.listing(directory).fingerprint
            except NotServed:
                return False
        self._compare(None, item, _Snapshot(hash(frozenset(self.fingerprints.items())), 0))
        return True

    # Snapshots

    def _compare_uris(self, watched: dict[str | None, _Watched], touched: set[str] | None) -> None:
        """Compare all watched URIs, or only touched ones, with their last snapshots, and report differences."""
        for uri, item in watched.items():
            if uri is None or self.wake.stopped.is_set():
                continue
            path = "/".join(item.parts)
            if touched is None or path in touched or item.last_snapshot is None:
                if item.last_snapshot is None:  # before the snapshot, whose times then show later changes
                    item.content_digest = self.watch.digest_content(uri, len(watched))
                self._compare(uri, item, self._take_snapshot(item), hinted=touched is not None)

    def _take_snapshot(self, item: _Watched) -> _Snapshot:
        parts = item.parts
        try:
            if item.only_directory:
                return self._directory_snapshot(parts)
            with self.tree.directory(parts[:-1]) as directory:
                if not self.tree.is_directory(directory, parts[-1]):
                    with missing_as_not_served():
                        return _snapshot_of(stat_entry(directory.handle, parts[-1]))
            return self._directory_snapshot(parts)
        except (NotServed, OSError):
            return _MISSING

    def _directory_snapshot(self, parts: Parts) -> _Snapshot:
        """Return a snapshot of what a read of a directory shows: names, and sizes and times of the first entries."""
        with self.tree.directory(parts) as directory:
            listing = self.tree.listing(directory)
            with missing_as_not_served():
                latest = os.stat(directory.handle).st_mtime_ns
            fingerprints = [listing.fingerprint]
            for names in (listing.directories, listing.files):
                for name in names[: LISTED_ENTRIES + 1 - len(fingerprints)]:
                    try:
                        with missing_as_not_served():
                            snapshot = _snapshot_of(stat_entry(directory.handle, name))
                    except NotServed:
                        snapshot = _MISSING
                    fingerprints.append(snapshot.fingerprint)
                    latest = max(latest, snapshot.latest)
        return _Snapshot(hash(tuple(fingerprints)), latest)

    def _compare(self, uri: str | None, item: _Watched, now: _Snapshot, hinted: bool = False) -> None:
        """Report a URI if its snapshot differs, or if it may have changed twice within one tick of the clock.

        If the content of a URI has a digest, the digest must differ too.
        """
        before, item.last_snapshot = item.last_snapshot, now
        if before is None:
            # Nothing was seen between `watch` and now: only times can show a change.
            differs = now is _MISSING or now.latest >= item.since_ns - CLOCK_TICK_NS
        else:
            differs = before.fingerprint != now.fingerprint or (hinted and not is_settled(now.latest))
        if differs and before is not None and uri is not None and item.content_digest is not None:
            # The digest is newer than the snapshot: it includes all changes that a client which reads now sees.
            last_digest = item.content_digest
            item.content_digest = self.watch.digest_content(uri, self.watch.watched_count)
            differs = last_digest != item.content_digest
        if differs and not self.wake.stopped.is_set() and self.watch.is_watched(uri, item):
            item.changed(uri)


def _open_notifier(paths: list[str]) -> Notifier:
    """Return the system's watcher of these directories."""
    if not RECURSIVE:
        return InotifyNotifier(paths)
    from watchfiles._rust_notify import RustNotify

    # debug, force_polling, poll_delay_ms, recursive, ignore_permission_denied
    return cast("Notifier", RustNotify(paths, False, False, 300, True, True))


def _snapshot_of(status: os.stat_result) -> _Snapshot:
    fingerprint = hash((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode))
    return _Snapshot(fingerprint, max(status.st_mtime_ns, status.st_ctime_ns))


def _system_watcher() -> str:
    return SYSTEM.get(sys.platform, "the system")


def _describe_polling(seconds: float) -> str:
    return f"polling every {seconds:g} s"


def _explain(error: Exception) -> str:
    text = str(error)
    if isinstance(error, ImportError):
        return "watchfiles is not installed"
    if "No space left" in text or "os error 28" in text:
        return "the limit of inotify watches is reached: raise fs.inotify.max_user_watches"
    if "Too many open files" in text or "os error 24" in text:
        return "the limit of inotify instances is reached: raise fs.inotify.max_user_instances"
    return text or type(error).__name__


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
