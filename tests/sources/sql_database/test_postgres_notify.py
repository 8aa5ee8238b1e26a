"""The listener for notifications of PostgreSQL, with connections of the test instead of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from wharfinger.sources.sql_database import postgres_notify
from wharfinger.sources.sql_database.postgres_notify import NotifyListener

Notify = Callable[[Any, int, str, str], None]


class Connection:
    """A connection that notifies of `payloads` as soon as somebody listens, and then ends if `is_lost`."""

    def __init__(self, *payloads: str, is_lost: bool = False) -> None:
        self.payloads = payloads
        self.is_lost = is_lost
        self.end: Callable[[Any], None] = lambda connection: None

    def add_termination_listener(self, end: Callable[[Any], None]) -> None:
        self.end = end

    async def add_listener(self, channel: str, notify: Notify) -> None:
        for payload in self.payloads:
            notify(self, 1, channel, payload)
        if self.is_lost:
            self.end(self)

    def terminate(self) -> None:
        pass


async def listen_until_changed(*connections: Connection) -> NotifyListener:
    """Listen with one connection after the other, until the last one has notified."""
    waiting = list(connections)
    changed = asyncio.Event()

    async def connect() -> Connection:
        return waiting.pop(0)

    listener = NotifyListener("shop", connect, "postgresql://shop")
    listening = asyncio.ensure_future(listener.run(lambda: changed.set() if not waiting else None))
    try:
        async with asyncio.timeout(30):
            await changed.wait()
    finally:
        listening.cancel()
    return listener


@pytest.mark.parametrize(
    ("payload", "table"),
    [
        ("orders", "orders"),
        ("public.orders", "orders"),
        ('public."Orders"', "Orders"),
        ("v1.2", "v1.2"),
        ('"v1.2"', "v1.2"),
        ('public."v1.2"', "v1.2"),
        ('"my.schema".orders', "orders"),
    ],
)
async def test_a_notification_counts_for_the_table_of_its_payload(payload: str, table: str) -> None:
    """A bug: `public."v1.2"` counted for a table `2`, and so did `v1.2`, which is what TG_TABLE_NAME contains."""
    listener = await listen_until_changed(Connection(payload))
    assert listener.count(table) - listener.count("other") == 1
    assert listener.count("") > 1


@pytest.mark.parametrize("payload", ["", "public.v1.2", '"with ""quotes"""', "x" * 64])
async def test_a_notification_that_names_no_certain_table_counts_for_every_table(payload: str) -> None:
    listener = await listen_until_changed(Connection(payload))
    assert listener.count("any") == 2  # one of them is from the beginning


async def test_connections_that_end_after_listen_are_opened_again_after_a_longer_delay_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: they were opened again at once, hundreds of times in a second, and nothing was logged."""
    monkeypatch.setattr(postgres_notify, "RETRY_SECONDS", 0.01)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await listen_until_changed(*[Connection(is_lost=True) for _ in range(4)], Connection())
    assert loop.time() - began >= 0.01 + 0.02 + 0.04 + 0.08
    messages = [record.message for record in caplog.records if record.name == "wharfinger.sources"]
    assert messages == ["postgresql://shop sends no notifications now; retrying: ConnectionError"]
