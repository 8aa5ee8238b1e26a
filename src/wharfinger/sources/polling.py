"""Telling what changes by looking again and again, for sources whose data tells nothing by itself.

Refuses to know what is looked at, and who is told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

from wharfinger.errors import ResourceNotFound
from wharfinger.source import Changed

__all__ = ["Polling"]

log = logging.getLogger("wharfinger.sources")

EVERY = 1.0  # seconds between looks, where nothing tells of changes
KNOWN = 1_024  # URIs of which is kept what was seen before anybody watched
SHARE = 20  # looking takes at most one part in so many of the time

_GONE = object()
_UNSEEN = object()


class Polling:
    """Looks at what is watched, in a thread of its own, from the first `watch` to the last `unwatch`.

    `look(uri)` returns something that differs when the content of the URI (None: the list) does; what it raises as
    ResourceNotFound is a state like any other, anything else is logged and looked at again later. It is called from
    one thread at a time. `every` is the time between looks in seconds; `prepare()` is called before each round, for
    what can be looked at once for all.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[str | None], Hashable],
        *,
        every: float = EVERY,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self.every = every
        self._name = name
        self._look = look
        self._prepare = prepare
        self._lock = threading.Lock()
        self._watched: dict[str | None, _Watched] = {}
        self._known: dict[str | None, Hashable] = {}
        self._round: _Round | None = None

    @property
    def means(self) -> str:
        """What tells of changes, in words."""
        return f"polling every {self.every:g} s"

    def saw(self, uri: str | None, seen: Hashable) -> None:
        """Say what `look` returned, or would have: who watches next misses nothing that happens until its first look.

        A watch begins with `Source.stat`, so that this is called there.
        """
        with self._lock:
            self._known.pop(uri, None)
            self._known[uri] = seen
            if len(self._known) > KNOWN:
                del self._known[next(iter(self._known))]

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Tell `changed`, from a thread, when this URI or (None) the list changes from now on."""
        with self._lock:
            self._watched[uri] = _Watched(changed, self._known.pop(uri, _UNSEEN))
            if self._round is None:
                self._round = _Round()
                threading.Thread(target=self._run, args=(self._round,), name=self._name, daemon=True).start()
            else:
                self._round.wake.set()

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

    def nudge(self) -> None:
        """Look now: something may have changed. From any thread."""
        now = self._round
        if now is not None:
            now.wake.set()

    def _end(self) -> None:
        if self._round is not None:
            self._round.stopped = True
            self._round.wake.set()
            self._round = None

    def _run(self, now: _Round) -> None:
        while not now.stopped:
            now.wake.clear()
            began = time.monotonic()
            self._look_at_all(now)
            now.wake.wait(max(self.every, SHARE * (time.monotonic() - began)))

    def _look_at_all(self, now: _Round) -> None:
        try:
            if self._prepare is not None:
                self._prepare()
        except Exception:
            log.warning("%s: looking failed, and is tried again", self._name, exc_info=True)
            return
        with self._lock:
            watched = list(self._watched.items())
        for uri, watch in watched:
            if now.stopped:
                return
            seen = self._seen(uri)
            if seen is _UNSEEN:
                continue
            before, watch.seen = watch.seen, seen
            if before is not _UNSEEN and before != seen and self._watched.get(uri) is watch:
                watch.changed(uri)

    def _seen(self, uri: str | None) -> object:
        try:
            return self._look(uri)
        except ResourceNotFound:
            return _GONE
        except Exception:
            log.warning("%s: looking at %s failed, and is tried again", self._name, uri or "the list", exc_info=True)
            return _UNSEEN


class _Watched:
    """One URI, or the list, and how it last looked."""

    __slots__ = ("changed", "seen")

    def __init__(self, changed: Changed, seen: object) -> None:
        self.changed = changed
        self.seen = seen


class _Round:
    """One thread's life: ended by `stopped`, woken by `wake`."""

    def __init__(self) -> None:
        self.stopped = False
        self.wake = threading.Event()
