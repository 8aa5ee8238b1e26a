"""The rows of the tree while they load."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from tests.conftest import absent
from wharfinger import Server
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.offer import Offer


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

        async with Offer([ServerConfig(name="harbour", target=server)]) as offer, asyncio.timeout(40):
            await offer.upstreams.ready(30)
            rows = TreeRows(offer)
            opening = asyncio.create_task(rows.toggle(("server", "harbour", "")))
            await asked.wait()
            await rows.toggle(("server", "harbour", ""))
            answer.set()
            await opening
            assert [row["expanded"] for row in rows.rows()] == [False]

    asyncio.run(test())
