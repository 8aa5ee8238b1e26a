"""Telling which files, directories and lists of a tree change, by the system's watcher or else by looking again.

What a watcher says is only a hint to look: every change that is told was seen through the tree, so that nothing which
is not published shows. Refuses to know who is told.
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
from typing import TYPE_CHECKING, NamedTuple

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.folder.safe_open import NotServed, holds, stat_entry
from wharfinger.sources.folder.tree import SETTLED, SETTLED_COARSE, FileTree, Parts

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

__all__ = ["TreeWatch"]

log = logging.getLogger("wharfinger.sources")

DEBOUNCE = 50  # ms from a first change until it is told, while more follow
STEP = 25  # ms between looks at what the watcher has gathered; also how soon a stop is noticed
RETRY = 1.0  # seconds until what the watcher cannot watch (a missing root, odd names) is looked at again
POLL = 1.0  # seconds between looks, where there is no watcher
POLL_SHARE = 20  # looking takes at most one part in so many of the time
BURST = 4_096  # changes at once, with which some may have been lost
QUICKLY_SEEN = 1_000  # directories that are all seen again at once; with more of them, what can be told is told first
LISTED = 1_000  # entries of a directory whose times and sizes are part of its reading
LIST_DELAY = 0.15  # seconds that a new watch of the list leaves to the first answers, before it walks the tree
GIVE_WAY = 0.1  # seconds after a listing in which the walk of a tree leaves the interpreter to the next one
PATIENCE = 3.0  # seconds that it gives way in all, so that an endless lister does not keep it from watching
CLOCK_TICK = 20_000_000  # ns by which a file system's clock may be behind

SYSTEM = {"linux": "inotify", "darwin": "FSEvents", "win32": "ReadDirectoryChangesW"}
# On Linux a recursive watch would follow links out of the tree, and watch what .gitignore leaves out; elsewhere the
# system watches a whole tree at once and follows none.
RECURSIVE = sys.platform != "linux"

ADDED, DELETED = 1, 3  # kinds of `watchfiles`; 2 is modified

Locate = Callable[[str], tuple[Parts, bool]]
Changed = Callable[[str | None], None]
Shown = Callable[[str, int], bytes | None]
"""What a URI shows, in short, given how many are watched; None where that is not known without reading much."""
Identity = tuple[int, int]  # device and inode of a directory


class _Sight(NamedTuple):
    """What something looks like: differs when it changed; `latest` is when it last did, in ns."""

    mark: int
    latest: int


_GONE = _Sight(0, 0)


class _Watched:
    """One URI, or the list, and how it last looked."""

    __slots__ = ("changed", "only_directory", "parts", "seen", "shown", "since")

    def __init__(self, changed: Changed, parts: Parts, only_directory: bool) -> None:
        self.changed = changed
        self.parts = parts
        self.only_directory = only_directory
        self.seen: _Sight | None = None
        self.shown: bytes | None = None
        self.since = time.time_ns()


class _Wake:
    """Ends a wait: to stop, or because what is watched is another now. `is_set` is what the watcher asks for."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.dirty = True

    def is_set(self) -> bool:
        return self.dirty or self.stopped.is_set()


class TreeWatch:
    """Watches a tree from the first `watch` to the last `unwatch`, in a thread of its own."""

    def __init__(
        self, tree: FileTree, locate: Locate, poll: float | None = None, shown: Shown = lambda uri, watched: None
    ) -> None:
        self._tree = tree
        self._shown = shown
        self._locate = locate
        self._poll = poll
        self._lock = threading.Lock()
        self._watched: dict[str | None, _Watched] = {}
        self._wake: _Wake | None = None
        self._thread: threading.Thread | None = None
        self.means = _polling(poll) if poll else _system()

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Tell `changed`, from a thread, when this URI or (None) the list changes from now on."""
        try:
            parts, only_directory = ((), True) if uri is None else self._locate(uri)
        except (ResourceNotFound, InvalidArgument):
            return
        with self._lock:
            self._watched[uri] = _Watched(changed, parts, only_directory)
            if self._wake is None:
                self._begin()
            else:
                self._wake.dirty = True

    def unwatch(self, uri: str | None) -> None:
        """Stop telling of this URI, or of the list."""
        with self._lock:
            self._watched.pop(uri, None)
            if not self._watched:
                self._end()

    def close(self) -> None:
        """Stop telling of anything."""
        with self._lock:
            self._watched.clear()
            self._end()

    def join(self, timeout: float = 2.0) -> None:
        """Wait until the thread of the last `unwatch` or `close` is gone."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _begin(self) -> None:
        wake = self._wake = _Wake()
        self._thread = threading.Thread(target=_Eye(self, wake).run, name="wharfinger-watch", daemon=True)
        _RUNNING.add(self)
        self._thread.start()

    def _end(self) -> None:
        if self._wake is not None:
            self._wake.stopped.set()
            self._wake = None


_RUNNING: weakref.WeakSet[TreeWatch] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End every thread before the interpreter does: one that returns from Rust into a finalised one aborts it."""
    running = list(_RUNNING)
    for watch in running:
        watch.close()
    for watch in running:
        watch.join()


class _Eye:
    """One thread's work: to know what is there, to wait for a hint, to look, to tell."""

    def __init__(self, watch: TreeWatch, wake: _Wake) -> None:
        self.watch = watch
        self.tree = watch._tree
        self.wake = wake
        self.poll = watch._poll
        self.notifier: RustNotify | None = None
        self.directories: dict[str, Identity] = {}  # those whose entries are watched, by their path
        self.marks: dict[str, int] = {}  # of their listings, where the list is watched
        self.unwatchable = False  # some of them cannot be given to the watcher

    def run(self) -> None:
        """Work until stopped."""
        try:
            if None in self._snapshot():
                self.wake.stopped.wait(LIST_DELAY)
            while not self.wake.stopped.is_set():
                self._turn()
        except Exception:
            log.exception("Watching %s ended", self.tree.root)
        finally:
            self._drop_notifier()

    def _turn(self) -> None:
        """See anew what is to be watched, then follow hints until that is another."""
        began = time.monotonic()
        self.wake.dirty = False
        watched = self._snapshot()
        self._plan(watched)
        if not self.poll and not self._watch_directories():
            self._plan(watched)  # once more, for what changed before it was watched
        self._look(watched, None)
        if self.poll:
            self.wake.stopped.wait(max(self.poll, POLL_SHARE * (time.monotonic() - began)))
        elif self.notifier is not None or not self.directories:
            while not self.wake.is_set() and self._follow():
                pass

    def _snapshot(self) -> dict[str | None, _Watched]:
        with self.watch._lock:
            return dict(self.watch._watched)

    # What is to be watched

    def _plan(self, watched: dict[str | None, _Watched]) -> None:
        """Find the directories to watch: all of them for the list, else those on the way to what is watched."""
        found: dict[str, Identity] = {}
        if None in watched:
            found = self._see_list(watched[None])
        else:
            self.marks.clear()
            for item in watched.values():
                self._add_way(item.parts, found)
        if found != self.directories:
            self.directories = found
            self._drop_notifier()

    def _see_list(self, item: _Watched) -> dict[str, Identity]:
        found: dict[str, Identity] = {}
        marks: dict[str, int] = {}
        latest = 0
        patience = PATIENCE
        for number, entry in enumerate(self.tree.walk_directories()):
            if number % 4 == 3 and self.wake.stopped.wait(0.001):  # lets go of the interpreter, for who serves
                return self.directories
            while patience > 0 and time.monotonic() - self.tree.listed_at < GIVE_WAY:
                patience -= STEP / 1000
                if self.wake.stopped.wait(STEP / 1000):
                    return self.directories
            path = "/".join(entry.parts)
            status = os.stat(entry.handle)
            found[path] = (status.st_dev, status.st_ino)
            marks[path] = entry.listing.mark
            latest = max(latest, status.st_mtime_ns, status.st_ctime_ns)
        self.marks = marks
        self._compare(None, item, _Sight(hash(frozenset(marks.items())), latest))
        return found

    def _add_way(self, parts: Parts, found: dict[str, Identity]) -> None:
        """Add a directory, or the parent of a file, and all that is above it."""
        for depth in range(len(parts) + 1):
            path = "/".join(parts[:depth])
            if path in found:
                continue
            try:
                with self.tree.directory(parts[:depth]) as place, holds():
                    status = os.stat(place.handle)
            except NotServed:
                return
            found[path] = (status.st_dev, status.st_ino)

    # The system's watcher

    def _watch_directories(self) -> bool:
        """Have the directories watched; False where they were not until now."""
        if self.notifier is not None:
            return True
        paths = [self._absolute(path) for path in ([""] if RECURSIVE else self.directories)]
        watchable = [path for path in paths if _is_utf8(path)]
        self.unwatchable = len(watchable) < len(paths) or not self.directories
        if not self.directories:
            return True
        try:
            from watchfiles._rust_notify import RustNotify

            # debug, force_polling, poll_delay_ms, recursive, ignore_permission_denied
            self.notifier = RustNotify(watchable, False, False, 300, RECURSIVE, True)
            self.watch.means = _system()
        except FileNotFoundError:  # one of them went meanwhile
            self.wake.stopped.wait(STEP / 1000)
        except Exception as error:  # inotify's limits, no watchfiles, a file system that cannot
            self._fall_back(error)
        return False

    def _fall_back(self, error: Exception) -> None:
        """Look again and again instead, and say so."""
        self.poll = POLL
        self.watch.means = f"{_polling(POLL)} ({_reason(error)})"
        log.warning("%s is watched by %s", self.tree.root, self.watch.means)

    def _drop_notifier(self) -> None:
        if self.notifier is not None:
            self.notifier.close()
            self.notifier = None

    def _absolute(self, path: str) -> str:
        return os.path.join(self.tree.root, *path.split("/")) if path else self.tree.root

    def _follow(self) -> bool:
        """Wait for a hint and look; False if what is to be watched may be another now."""
        if self.notifier is None:
            self.wake.stopped.wait(RETRY)
            return False
        try:
            hints = self.notifier.watch(DEBOUNCE, STEP, int(RETRY * 1000) if self.unwatchable else 0, self.wake)
        except Exception as error:  # a name that is not UTF-8 makes it fail, and not say which
            log.debug("The watcher of %s failed: %r", self.tree.root, error)
            self._drop_notifier()
            self.wake.stopped.wait(DEBOUNCE / 1000)
            return False
        if isinstance(hints, str):
            return hints == "signal"  # "stop", or "timeout" with something to look at anyway
        return self._heed(hints)

    def _heed(self, hints: set[tuple[int, str]]) -> bool:
        """Look at what the hints are about; False if directories came or went, or rules changed."""
        base = self.tree.root if self.tree.root.endswith(os.sep) else self.tree.root + os.sep
        touched: set[str] = set()
        listed: set[str] = set()
        same = True
        if len(hints) > BURST:
            return False
        for kind, absolute in hints:
            if not absolute.startswith(base):  # the root itself
                return False
            path = absolute[len(base) :].replace(os.sep, "/")
            parent, _, name = path.rpartition("/")
            if name == ".gitignore" or (kind in (ADDED, DELETED) and self._matters(path)):
                same = False
            touched.update((path, parent))
            if kind in (ADDED, DELETED):
                listed.add(parent)
        if not same and len(self.directories) < QUICKLY_SEEN:
            return False
        watched = self._snapshot()
        if None in watched and not self._look_at_lists(watched[None], listed):
            return False
        self._look(watched, touched)
        return same

    def _matters(self, path: str) -> bool:
        """Whether a directory that is watched, or is on the way to something watched, came or went."""
        if path in self.directories:
            return True
        absolute = self._absolute(path)
        return path.rpartition("/")[0] in self.directories and os.path.isdir(absolute) and not os.path.islink(absolute)

    def _look_at_lists(self, item: _Watched, listed: Iterable[str]) -> bool:
        """Compare the listings of these directories; False if one is gone."""
        for path in listed:
            if path not in self.marks:
                continue
            try:
                with self.tree.directory(tuple(path.split("/")) if path else ()) as place:
                    self.marks[path] = self.tree.listing(place).mark
            except NotServed:
                return False
        self._compare(None, item, _Sight(hash(frozenset(self.marks.items())), 0))
        return True

    # Looking

    def _look(self, watched: dict[str | None, _Watched], touched: set[str] | None) -> None:
        """Compare what is watched, or that of it which was touched, with how it last looked, and tell."""
        for uri, item in watched.items():
            if uri is None or self.wake.stopped.is_set():
                continue
            path = "/".join(item.parts)
            if touched is None or path in touched or item.seen is None:
                if item.seen is None:  # before the look: what changes between the two is seen by its time
                    item.shown = self.watch._shown(uri, len(watched))
                self._compare(uri, item, self._see(item), hinted=touched is not None)

    def _see(self, item: _Watched) -> _Sight:
        parts = item.parts
        try:
            if item.only_directory:
                return self._see_directory(parts)
            with self.tree.directory(parts[:-1]) as place:
                if not self.tree.kind(place, parts[-1]):
                    with holds():
                        return _sight(stat_entry(place.handle, parts[-1]))
            return self._see_directory(parts)
        except (NotServed, OSError):
            return _GONE

    def _see_directory(self, parts: Parts) -> _Sight:
        """A directory as its reading shows it: names, and sizes and times of the first of them."""
        with self.tree.directory(parts) as place:
            listing = self.tree.listing(place)
            with holds():
                latest = os.stat(place.handle).st_mtime_ns
            marks = [listing.mark]
            for names in (listing.directories, listing.files):
                for name in names[: LISTED + 1 - len(marks)]:
                    try:
                        with holds():
                            sight = _sight(stat_entry(place.handle, name))
                    except NotServed:
                        sight = _GONE
                    marks.append(sight.mark)
                    latest = max(latest, sight.latest)
        return _Sight(hash(tuple(marks)), latest)

    def _compare(self, uri: str | None, item: _Watched, now: _Sight, hinted: bool = False) -> None:
        """Tell if something looks different, or may have changed twice within one tick of its clock."""
        before, item.seen = item.seen, now
        if before is None:
            # Between `watch` and now nobody looked, so that only times can tell.
            differs = now is _GONE or now.latest >= item.since - CLOCK_TICK
        else:
            differs = before.mark != now.mark or (hinted and _is_fresh(now.latest))
        if differs and before is not None and uri is not None and item.shown is not None:
            # After the look: what changes between the two is told now, and is there to be read.
            known, item.shown = item.shown, self.watch._shown(uri, len(self.watch._watched))
            differs = known != item.shown
        if differs and not self.wake.stopped.is_set() and self.watch._watched.get(uri) is item:
            item.changed(uri)


def _sight(status: os.stat_result) -> _Sight:
    mark = hash((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode))
    return _Sight(mark, max(status.st_mtime_ns, status.st_ctime_ns))


def _is_fresh(latest: int) -> bool:
    return time.time_ns() - latest < (SETTLED if latest % 1_000_000_000 else SETTLED_COARSE)


def _system() -> str:
    return SYSTEM.get(sys.platform, "the system")


def _polling(seconds: float) -> str:
    return f"polling every {seconds:g} s"


def _reason(error: Exception) -> str:
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
