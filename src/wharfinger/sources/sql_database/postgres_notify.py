"""Listens on a channel of PostgreSQL while a client watches, and counts the notifications of each table."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from wharfinger.protocol.backoff import Backoff

__all__ = ["NotifyListener"]

log = logging.getLogger("wharfinger.sources")

COALESCE_SECONDS = 0.05
"""Notifications within this time are passed on as one."""
RETRY_SECONDS, MAX_RETRY_SECONDS = 0.2, 2.0
"""The first and the longest delay before another attempt to listen. Each failure doubles it."""
RESET_SECONDS = 5.0
"""A connection that lasts as long as this resets the delay."""
MAX_TABLES = 10_000
"""Maximum number of tables that are counted separately."""
_PAYLOAD = re.compile(r'(?:(?:"[^"]{0,63}"|[^".]{0,63})\.)?(?:"([^"]{1,63})"|([^".]{1,63}))').fullmatch
"""`table` or `schema.table`. Names with dots are in quotes, as `format('%I.%I', …)` writes them."""


class NotifyListener:
    """Counts notifications. Their payload is `table` or `schema.table`. If it is empty, any table may have changed."""

    def __init__(self, channel: str, connect: Callable[[], Awaitable[Any]], location: str) -> None:
        self.channel = channel
        self._connect = connect
        self._location = location
        self._lock = threading.Lock()
        self._any_table_count = 0
        self._table_counts: Counter[str] = Counter()
        self._pending: asyncio.TimerHandle | None = None

    def count(self, table: str) -> int:
        """Return a number that grows with each notification for this table, or for any table if the name is empty."""
        with self._lock:
            return self._any_table_count + (self._table_counts[table] if table else self._table_counts.total())

    async def run(self, changed: Callable[[], None]) -> None:
        """Listen until cancelled, and call `changed` after notifications.

        Connects again after each failure, and then assumes that every table has changed.
        """
        backoff = Backoff(RETRY_SECONDS, MAX_RETRY_SECONDS, reset_after=RESET_SECONDS)
        self._pending = None  # the loop of an earlier call may have ended
        while True:
            try:
                await self._listen(changed, backoff)
            except Exception as error:
                if backoff.failures == 0:
                    log.warning("%s sends no notifications now; retrying: %s", self._location, type(error).__name__)
                await asyncio.sleep(backoff.failed())

    async def _listen(self, changed: Callable[[], None], backoff: Backoff) -> None:
        """Listen until the connection is lost.

        Raises:
            ConnectionError: the connection was lost after listening began.
            Exception: the driver's error if it cannot listen.
        """
        lost = asyncio.Event()

        def notify(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
            self._record(payload, changed)

        def end(_connection: Any) -> None:
            lost.set()

        connection = await self._connect()
        try:
            connection.add_termination_listener(end)
            await connection.add_listener(self.channel, notify)
            began = asyncio.get_running_loop().time()
            self._record("", changed)
            await lost.wait()
            backoff.succeeded(asyncio.get_running_loop().time() - began)
            raise ConnectionError("The connection that listens was lost.")
        finally:
            connection.terminate()

    def _record(self, payload: str, changed: Callable[[], None]) -> None:
        match = _PAYLOAD(payload)
        # `a.b` may also be the name of a table, as TG_TABLE_NAME contains it.
        names = {match[1] or match[2], payload} if match else ()
        with self._lock:
            if names and len(self._table_counts) < MAX_TABLES:
                self._table_counts.update(names)
            else:
                self._any_table_count += 1
        if self._pending is None:
            self._pending = asyncio.get_running_loop().call_later(COALESCE_SECONDS, self._notify, changed)

    def _notify(self, changed: Callable[[], None]) -> None:
        self._pending = None
        changed()
