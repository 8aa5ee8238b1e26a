"""A real client of either era lists, reads, pages, completes and watches a database through a server."""

from __future__ import annotations

import asyncio

import pytest

from wharfinger import Client, Server
from wharfinger.errors import ResourceNotFound

from .conftest import Shop


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_client_reads_pages_and_watches_during_writes(shop: Shop, revision: str) -> None:
    """Within a second of the commit, with the new rows."""
    asyncio.run(visit(shop, revision))


async def visit(shop: Shop, revision: str) -> None:
    server = Server("shop")
    server.include(shop.source)
    async with Client(server, revision=revision) as client:
        listed = await client.list_resources()
        tables = [f"{shop.top}/{name}" for name in ("busy", "customers", "orders")]
        assert [item.uri for item in listed] == [shop.source.uri, *tables]
        lines: list[str] = []
        following: object = f"{shop.top}/orders/rows?limit=2"
        while following:
            content = (await client.read_resource(str(following))).contents[0]
            lines += str(content.text).splitlines()
            following = (content.meta or {}).get("wharfinger/next")
        assert len(lines) == 3
        with pytest.raises(ResourceNotFound):
            await client.read_resource(f"{shop.top}/nothing")
        async with client.watch(f"{shop.top}/orders/rows") as changes:
            for number in range(3):
                await asyncio.to_thread(shop.run, f"INSERT INTO orders VALUES ({number + 10}, 1, 1)")
                change = await asyncio.wait_for(anext(changes), 40)
                text = str((await client.read_resource(change.uri)).contents[0].text)
                assert f'"id":{number + 10}' in text
