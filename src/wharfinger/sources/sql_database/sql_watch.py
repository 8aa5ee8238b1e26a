"""Telling what changes in a database: it is asked for its token often, and only where that differs is looked closer.

Refuses to know which database it is, and how a version is found.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

from wharfinger.errors import ResourceNotFound
from wharfinger.source import Changed
from wharfinger.sources.polling import Polling
from wharfinger.sources.sql_database.database_engine import DatabaseEngine, DatabaseUnreachable

__all__ = ["EVERY", "SqlWatch"]

log = logging.getLogger("wharfinger.sources")

EVERY = 0.1
"""Seconds between two questions for the token, which take well under a millisecond."""
SHARE = 4
"""Asking, and looking after it, takes at most one part in so many of the time."""
LEAVING = 2.0
"""Seconds for the last question when all ends."""
SAFE = 5.0
"""Seconds after which is looked in any case."""


class SqlWatch:
    """The watchers of one database. `version(uri)` is that of a URI, of None that of the list."""

    def __init__(
        self, name: str, engine: DatabaseEngine, version: Callable[[str | None], str], every: float = EVERY
    ) -> None:
        self._name = name
        self._engine = engine
        self._version = version
        self._lock = threading.Lock()
        self._watched: set[str | None] = set()
        self._looked: dict[str | None, tuple[Hashable, str]] = {}
        self._token: Hashable = None
        self._down = False
        self._every = every
        self._looking = 0.0
        self._ended: threading.Event | None = None
        self._asking: threading.Thread | None = None
        self._polling = Polling(f"wharfinger-{name}", self._look, every=SAFE, prepare=self._prepare)

    def saw(self, uri: str, version: str) -> None:
        """Say which version somebody was told, who may watch from now on."""
        self._polling.saw(uri, version)

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Tell `changed` of this URI, or of the list."""
        with self._lock:
            first = not self._watched
            self._watched.add(uri)
        if first:
            self._begin()
        self._polling.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop telling of it."""
        self._polling.unwatch(uri)
        with self._lock:
            self._watched.discard(uri)
            self._looked.pop(uri, None)
            last = not self._watched
        if last:
            self._end()

    def close(self) -> None:
        """Stop telling of anything; waits a little for a question that is still asked."""
        self._polling.close()
        with self._lock:
            self._watched.clear()
            self._looked.clear()
        self._end()
        if self._asking is not None:
            self._asking.join(LEAVING)
            self._asking = None

    def _begin(self) -> None:
        self._engine.listen(self._polling.nudge)
        self._ended = threading.Event()
        name = f"wharfinger-{self._name}-token"
        self._asking = threading.Thread(target=self._ask, args=(self._ended,), name=name, daemon=True)
        self._asking.start()

    def _end(self) -> None:
        if self._ended is not None:
            self._ended.set()
            self._ended = None
        self._engine.unlisten()

    def _ask(self, ended: threading.Event) -> None:
        """Ask for the token again and again, and have everything looked at where it is another one."""
        wait = self._every
        while not ended.wait(wait):
            began = time.monotonic()
            try:
                changed = self._engine.token() != self._token
            except Exception:  # the next look logs it
                changed = not self._down
            if changed or self._down:
                self._polling.nudge()
            wait = max(self._every, SHARE * (time.monotonic() - began + (self._looking if changed else 0.0)))

    def _prepare(self) -> None:
        self._looking = 0.0
        try:
            self._token = self._engine.token()
            if self._down:
                log.info("%s: the database answers again", self._name)
            self._down = False
        except DatabaseUnreachable as error:
            if not self._down:
                log.warning("%s: %s Its watchers are told once it is back.", self._name, error)
            self._down = True

    def _look(self, uri: str | None) -> Hashable:
        token = self._token
        known = self._looked.get(uri)
        if known is not None and (self._down or known[0] == token):
            return known[1]
        began = time.monotonic()
        try:
            version = self._version(uri)
        except ResourceNotFound:
            version = ""
        except DatabaseUnreachable:
            if known is None:
                raise
            return known[1]
        self._looked[uri] = (token, version)
        self._looking += time.monotonic() - began
        return version
