"""Finds changes in a database.

A database has a token that is cheap to read and changes with every write (SQLite's `data_version`, PostgreSQL's
snapshot). One thread reads the token several times a second. If it has changed, another thread (`sources.polling`)
reads the watched URIs and compares their versions. This polling thread also reads the token itself every few seconds.
While the database cannot be reached, each read of the token also wakes the polling thread, so that watchers are soon
notified when the database is back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

from wharfinger.errors import Overloaded, ResourceNotFound
from wharfinger.source import Changed
from wharfinger.sources.polling import Polling
from wharfinger.sources.sql_database.database_engine import DatabaseEngine, DatabaseUnreachable

__all__ = ["TOKEN_SECONDS", "SqlWatch"]

TOKEN_SECONDS = 0.1
"""Minimum time between two reads of the token. For a file, each takes well under a millisecond."""
SLEEP_RATIO = 4
"""Minimum pause between two reads of the token, as a multiple of the time for the last read and comparison."""
JOIN_SECONDS = 2.0
"""Longest time that `close` waits for the thread that reads the token."""
LOOK_SECONDS = 5.0
"""Seconds between the beginnings of two rounds of the polling thread, if nothing wakes it earlier (`Polling`)."""


class SqlWatch:
    """The watchers of one database.

    `version(uri)` returns the version of a resource. `version(None)` returns the version of the list of resources.
    """

    def __init__(self, name: str, engine: DatabaseEngine, version: Callable[[str | None], str]) -> None:
        self._name = name
        self._engine = engine
        self._version = version
        self._lock = threading.Lock()
        self._watched: set[str | None] = set()
        self._versions: dict[str | None, tuple[Hashable, str]] = {}
        self._token: Hashable = None
        self._down = False
        self._comparison_seconds = 0.0
        self._ended: threading.Event | None = None
        self._token_thread: threading.Thread | None = None
        self._polling = Polling(f"wharfinger-{name}", self._look, every=LOOK_SECONDS, prepare=self._prepare)

    def record(self, uri: str, version: str) -> None:
        """Record the current version of a URI (see `Polling.record`)."""
        self._polling.record(uri, version)

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed` after each change of a resource, or of the list of resources if `uri` is None."""
        with self._lock:
            first = not self._watched
            self._watched.add(uri)
        if first:
            self._engine.listen(self._polling.look_now)
            self._ended = threading.Event()
            name = f"wharfinger-{self._name}-token"
            self._token_thread = threading.Thread(target=self._poll_token, args=(self._ended,), name=name, daemon=True)
            self._token_thread.start()
        self._polling.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a resource, or the list of resources if `uri` is None."""
        self._polling.unwatch(uri)
        with self._lock:
            self._watched.discard(uri)
            self._versions.pop(uri, None)
            last = not self._watched
        if last:
            self._end()

    def close(self) -> None:
        """Stop watching everything. Waits a short time for the thread that reads the token."""
        self._polling.close()
        with self._lock:
            self._watched.clear()
            self._versions.clear()
        self._end()
        if self._token_thread is not None:
            self._token_thread.join(JOIN_SECONDS)
            self._token_thread = None

    def _end(self) -> None:
        if self._ended is not None:
            self._ended.set()
            self._ended = None
        self._engine.unlisten()

    def _poll_token(self, ended: threading.Event) -> None:
        """Read the token regularly, and start a comparison of all versions when it has changed."""
        wait = TOKEN_SECONDS
        while not ended.wait(wait):
            began = time.monotonic()
            try:
                changed = self._engine.token() != self._token
            except Exception:  # the next comparison logs it
                changed = not self._down
            if changed or self._down:
                self._polling.look_now()
            worked = time.monotonic() - began + (self._comparison_seconds if changed else 0.0)
            wait = max(TOKEN_SECONDS, SLEEP_RATIO * worked)

    def _prepare(self) -> None:
        self._comparison_seconds = 0.0
        try:
            self._token = self._engine.token()
            self._down = False
        except Overloaded:  # such as a locked file: the token thread soon reads it again
            self._down = False
        except DatabaseUnreachable:
            self._down = True
            raise

    def _look(self, uri: str | None) -> Hashable:
        token = self._token
        cached = self._versions.get(uri)
        if cached is not None and cached[0] == token:
            return cached[1]
        began = time.monotonic()
        try:
            version = self._version(uri)
        except ResourceNotFound:
            version = ""
        except Overloaded:
            self._token = None  # differs from the next token, so that the comparison is soon repeated
            if cached is None:
                raise
            return cached[1]
        with self._lock:
            if uri in self._watched:  # `unwatch` may have been called meanwhile
                self._versions[uri] = (token, version)
        self._comparison_seconds += time.monotonic() - began
        return version
