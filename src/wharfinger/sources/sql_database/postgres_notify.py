"""LISTEN on a channel of PostgreSQL, for as long as somebody watches; counts what was notified of each table."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["NotifyListener"]

log = logging.getLogger("wharfinger.sources")

BURST = 0.05
"""Seconds in which notices are one."""
AGAIN = (0.2, 0.5, 1.0, 2.0)
"""Seconds until the next attempt to connect, and so on with the last."""
TABLES = 10_000


class NotifyListener:
    """What a channel told. A payload is `table` or `schema.table`; of any other, all tables may have changed."""

    def __init__(self, channel: str, connect: Callable[[], Awaitable[Any]], place: str) -> None:
        self.channel = channel
        self._connect = connect
        self._place = place
        self._lock = threading.Lock()
        self._all = 0
        self._tables: Counter[str] = Counter()
        self._pending: asyncio.TimerHandle | None = None

    def count(self, table: str) -> int:
        """How often this table was notified of; `""`: any."""
        with self._lock:
            return self._all + (self._tables.total() if not table else self._tables[table])

    async def run(self, told: Callable[[], None]) -> None:
        """Listen until cancelled; connects again where the connection is lost, and then holds all for changed."""
        failures = 0

        def notice(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
            self._notice(payload, told)

        while True:
            lost = asyncio.Event()
            try:
                connection = await self._connect()
            except Exception as error:
                if failures == 0:
                    log.warning("%s: LISTEN is tried again: %s", self._place, type(error).__name__)
                await asyncio.sleep(AGAIN[min(failures, len(AGAIN) - 1)])
                failures += 1
                continue
            failures = 0
            try:
                connection.add_termination_listener(_setting(lost))
                await connection.add_listener(self.channel, notice)
                self._notice("", told)
                await lost.wait()
            finally:
                connection.terminate()

    def _notice(self, payload: str, told: Callable[[], None]) -> None:
        table = payload.rpartition(".")[2].strip('"')
        with self._lock:
            if table and len(self._tables) < TABLES:
                self._tables[table] += 1
            else:
                self._all += 1
        if self._pending is None:
            self._pending = asyncio.get_running_loop().call_later(BURST, self._tell, told)

    def _tell(self, told: Callable[[], None]) -> None:
        self._pending = None
        told()


def _setting(lost: asyncio.Event) -> Callable[[Any], None]:
    return lambda connection: lost.set()
