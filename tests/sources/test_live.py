"""From a change in a folder to a client that watches."""

from __future__ import annotations

import asyncio
from pathlib import Path

from wharfinger import Client, Server
from wharfinger.sources import Folder


def test_a_watching_client_is_notified_of_a_change(source: Folder, charts: Path) -> None:
    """The whole way: a file is written, and a client's watch yields."""
    server = Server("live")
    server.include(source)
    uri = f"{source.uri}/tides.csv"

    async def main() -> None:
        async with Client(server) as client, asyncio.timeout(40):
            changes = client.watch(uri)
            waiting = asyncio.ensure_future(anext(aiter(changes)))
            while not server.watching.watched():
                await asyncio.sleep(0)
            (charts / "tides.csv").write_text("new")
            await waiting

    asyncio.run(main())
