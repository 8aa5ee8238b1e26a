"""The rows of the tree while they load."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from tests.conftest import absent
from tests.waiting import wait_until_async
from wharfinger import Server
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.server_connections import ServerConnections


def test_a_row_may_be_closed_while_it_loads() -> None:
    """A bug: a KeyError."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from wharfinger.web.tree_rows import TreeRows

    async def test() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()
        server = Server("harbour")
        server.tool(lambda: "deep", name="sound")

        @server.middleware
        async def delay(request: Any, next: Any) -> Any:
            if request.method == "tools/list":
                asked.set()
                await answer.wait()
            return await next(request)

        async with ServerConnections([ServerConfig(name="harbour", target=server)]) as connections, asyncio.timeout(40):
            await connections.upstreams.ready(30)
            rows = TreeRows(connections)
            opening = asyncio.create_task(rows.toggle(("server", "harbour", "")))
            await asked.wait()
            await rows.toggle(("server", "harbour", ""))
            answer.set()
            await opening
            assert [row["expanded"] for row in rows.rows()] == [False]

    asyncio.run(test())


def test_a_second_click_on_a_row_that_offers_the_last_rows_does_nothing() -> None:
    """A bug: the folder then showed its first rows only."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from wharfinger.web.tree_rows import PAGE_ROWS, TreeRows, decode_key

    async def test() -> None:
        server = Server("harbour")
        for number in range(PAGE_ROWS + 1):
            server.resource(f"log://harbour/{number:04}")(lambda: "calm")
        async with ServerConnections([ServerConfig(name="harbour", target=server)]) as connections, asyncio.timeout(40):
            await connections.upstreams.ready(30)
            rows = TreeRows(connections)
            await wait_until_async(lambda: connections.catalogue.find("log://harbour/0000"), "the resources are listed")
            await rows.toggle(("server", "harbour", ""))
            (more,) = [decode_key(row["key"]) for row in rows.rows() if row["kind"] == "more"]
            assert more is not None
            await rows.toggle(more)
            loaded = rows.rows()
            await rows.toggle(more)
            assert rows.rows() == loaded

    asyncio.run(test())


def test_a_row_that_offers_more_rows_can_load_them() -> None:
    """A bug: if the rows below it left no room, the row still offered to show more, and did nothing when chosen."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from wharfinger.web.tree_rows import MAX_ROWS, PAGE_ROWS, TreeRows, decode_key

    async def test() -> None:
        servers = {name: Server(name) for name in ("first", "second")}
        for name, server in servers.items():
            for number in range(MAX_ROWS):
                server.resource(f"log://{name}/{number:04}")(lambda: "calm")
        configs = [ServerConfig(name=name, target=server) for name, server in servers.items()]
        async with ServerConnections(configs) as connections, asyncio.timeout(40):
            await connections.upstreams.ready(30)
            rows = TreeRows(connections)
            for name in servers:
                await wait_until_async(
                    lambda name=name: connections.catalogue.find(f"log://{name}/0000", server=name), f"{name} is listed"
                )
                await rows.toggle(("server", name, ""))

            def offers() -> list[dict[str, Any]]:
                return [row for row in rows.rows() if row["kind"] == "more"]

            while len(found := offers()) == 2 and found[1]["label"] == f"Show {PAGE_ROWS} more":
                count = len(rows.rows())
                key = decode_key(found[1]["key"])
                assert key is not None
                await rows.toggle(key)
                assert len(rows.rows()) == count + PAGE_ROWS
            assert [row["label"] for row in found] == ["Search for the others"] * 2

    asyncio.run(test())
