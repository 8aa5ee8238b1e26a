"""What a page hears of changes, also of those before its watch began."""

from __future__ import annotations

import asyncio
from pathlib import Path

from wharfinger import Server
from wharfinger.sources import files
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.live_changes import LiveChanges
from wharfinger.web.offer import Offer


def test_each_begin_of_a_watch_is_reported_so_that_earlier_changes_can_be_read(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one")
    server = Server("harbour")
    server.include(files(tmp_path, label="quay"))
    first, second = "file:///quay/a.txt", "file:///quay/b.txt"

    async def test() -> None:
        events: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()

        async def changed(server: str, uri: str) -> None:
            await events.put(("changed", server, uri))

        async def began(server: str) -> None:
            await events.put(("began", server))

        async def until(*event: str) -> None:
            while await events.get() != event:  # one write may be reported twice
                pass

        async with Offer([ServerConfig(name="harbour", target=server)]) as offer, asyncio.timeout(20):
            await offer.upstreams.ready(10)
            live = LiveChanges(offer, changed, began)
            live.watch({}, ("harbour", first))
            await until("began", "harbour")
            (tmp_path / "a.txt").write_text("two")
            await until("changed", "harbour", first)
            live.watch({"harbour": [second]}, ("harbour", first))  # another watch, and a gap before it
            await until("began", "harbour")
            (tmp_path / "b.txt").write_text("two")
            await until("changed", "harbour", second)
            await live.close()

    asyncio.run(test())
