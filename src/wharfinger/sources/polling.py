"""Finds changes by polling, for sources whose data does not report changes.

A thread calls `look(uri)` for each watched URI, and compares the result with the previous one. The result is any
hashable value that changes if and only if the content does, such as a modification time, a digest or a row count.
The first look only records the state, so a change between `Source.stat` and that look would be missed. Therefore
`Source.stat` calls `record` with the state that it reports.

A round begins `every` seconds after the last one began, or later if rounds are slow: the thread sleeps at least twenty
times as long as the shorter of the last two rounds took, so that polling does not load this machine. One slow round has
no effect, because a busy machine may have delayed it. If a look mostly waits for another machine, a lower `sleep_ratio`
shortens the sleep. The thread runs from the first `watch` to the last `unwatch`.

If the data is missing or out of reach, `look` or `prepare` raises `SourceUnavailable`. Every watcher is then notified
once, and the round ends, so that a silent peer costs one timeout instead of one for each URI. When looks succeed again,
every watcher is notified again, and can read the current content.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

from wharfinger.errors import ResourceNotFound
from wharfinger.source import Changed, SourceUnavailable

__all__ = ["Polling"]

log = logging.getLogger("wharfinger.sources")

INTERVAL_SECONDS = 1.0
"""Default time between the beginnings of two rounds."""
MAX_RECORDED = 1_024
"""Maximum number of URIs whose state is recorded in case a watch follows."""
SLEEP_RATIO = 20
"""The default of `sleep_ratio`."""

_MISSING = object()
_UNKNOWN = object()
_UNAVAILABLE = object()


class Polling:
    """Calls `look(uri)` regularly for each watched URI, and the watcher if the result differs from the previous one.

    Args:
        name: The name of the thread, and of the source in the log.
        look: Returns the state of a URI, or of the list if it is called with None. It is called from one thread at a
            time; only the last look of a watch that ended may overlap with the first look of a new watch.
            ResourceNotFound counts as a state, and SourceUnavailable as the state of every URI. Any other error is
            logged, and the URI is checked again later.
        every: Seconds between the beginnings of two rounds.
        prepare: Called before each round, for work that all looks of the round share.
        sleep_ratio: After a round, the thread sleeps at least this many times as long as the shorter of the last two
            rounds took.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[str | None], Hashable],
        *,
        every: float = INTERVAL_SECONDS,
        prepare: Callable[[], object] | None = None,
        sleep_ratio: float = SLEEP_RATIO,
    ) -> None:
        self.every = every
        self.sleep_ratio = sleep_ratio
        self._name = name
        self._look = look
        self._prepare = prepare
        self._lock = threading.Lock()
        self._watched: dict[str | None, _Watch] = {}
        self._recorded: dict[str | None, Hashable] = {}
        self._worker: _Worker | None = None
        self._unavailable = ""
        """Why the data was unavailable in the last round, or an empty string if it was available."""

    @property
    def watched(self) -> tuple[str | None, ...]:
        """The URIs that are watched now, and None if the list is."""
        with self._lock:
            return tuple(self._watched)

    @property
    def means(self) -> str:
        """How changes are found, in words."""
        return f"polling every {self.every:g} s"

    def record(self, uri: str | None, state: Hashable) -> None:
        """Record the current state of a URI, as `look` would return it. The first look of a watch compares with it.

        Call this in `Source.stat`, which is called before a watch begins.
        """
        with self._lock:
            self._recorded.pop(uri, None)
            self._recorded[uri] = state
            if len(self._recorded) > MAX_RECORDED:
                del self._recorded[next(iter(self._recorded))]

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed`, from a thread, after each change of this URI, or of the list if it is None."""
        with self._lock:
            self._watched[uri] = _Watch(changed, self._recorded.pop(uri, _UNKNOWN))
            if self._worker is None:
                self._worker = _Worker()
                threading.Thread(target=self._run, args=(self._worker,), name=self._name, daemon=True).start()
            else:
                self._worker.wake.set()

    def unwatch(self, uri: str | None) -> None:
        """Stop watching this URI, or the list."""
        with self._lock:
            self._watched.pop(uri, None)
            if not self._watched:
                self._end()

    def close(self) -> None:
        """Stop watching everything."""
        with self._lock:
            self._watched.clear()
            self._end()

    def look_now(self) -> None:
        """Start a round now, because something may have changed. May be called from any thread."""
        worker = self._worker
        if worker is not None:
            worker.wake.set()

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.stopped = True
            self._worker.wake.set()
            self._worker = None

    def _run(self, worker: _Worker) -> None:
        previous_seconds = 0.0
        while not worker.stopped:
            worker.wake.clear()
            began = time.monotonic()
            self._look_at_all(worker)
            round_seconds = time.monotonic() - began
            worker.wake.wait(max(self.every - round_seconds, self.sleep_ratio * min(round_seconds, previous_seconds)))
            previous_seconds = round_seconds

    def _look_at_all(self, worker: _Worker) -> None:
        try:
            if self._prepare is not None:
                self._prepare()
        except SourceUnavailable as error:
            self._end_round(worker, str(error))
            return
        except Exception:
            log.warning("%s could not be checked; retrying", self._name, exc_info=True)
            return
        with self._lock:
            watched = list(self._watched.items())
        for uri, watch in watched:
            if worker.stopped:
                return
            state: object = _MISSING
            try:
                state = self._look(uri)
            except ResourceNotFound:
                pass
            except SourceUnavailable as error:
                self._end_round(worker, str(error))
                return
            except Exception:
                subject = uri or "the list"
                log.warning("%s: %s could not be checked; retrying", self._name, subject, exc_info=True)
                continue
            if self._unavailable:
                log.info("%s can be checked again", self._name)
                self._unavailable = ""
            before, watch.state = watch.state, state
            if before is not _UNKNOWN and before != state:
                self._notify(uri, watch)

    def _end_round(self, worker: _Worker, reason: str) -> None:
        """Notify each watcher that the data is unavailable, unless it was already notified of that."""
        if not self._unavailable:
            log.warning("%s: %s Its watchers are notified now, and again when it is available", self._name, reason)
        self._unavailable = reason
        with self._lock:
            watched = [(uri, watch) for uri, watch in self._watched.items() if watch.state is not _UNAVAILABLE]
        for uri, watch in watched:
            watch.state = _UNAVAILABLE
            if worker.stopped:
                return
            self._notify(uri, watch)

    def _notify(self, uri: str | None, watch: _Watch) -> None:
        """Notify a watcher, unless its watch has ended. Errors are logged, because all watchers share the thread."""
        if self._watched.get(uri) is not watch:
            return
        try:
            watch.changed(uri)
        except Exception:
            log.exception("%s: the watcher of %s failed", self._name, uri or "the list")


class _Watch:
    """The watcher of one URI or of the list, and the state at the last look."""

    __slots__ = ("changed", "state")

    def __init__(self, changed: Changed, state: object) -> None:
        self.changed = changed
        self.state = state


class _Worker:
    """Controls one thread: `stopped` ends it, `wake` starts the next round."""

    def __init__(self) -> None:
        self.stopped = False
        self.wake = threading.Event()
