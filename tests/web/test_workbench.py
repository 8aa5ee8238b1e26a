"""A tab that no browser shows: what is chosen while an earlier view is still loading."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from tests.conftest import absent
from wharfinger import Server
from wharfinger.protocol.inspection import Inspection
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.offer import Offer
from wharfinger.web.visitors import Visitor


class Site:
    """The part of a site that a tab uses."""

    name = "harbour"
    inspection: Inspection | None = None

    def __init__(self) -> None:
        self.shelf = ContentShelf()

    async def view_as(self, viewer: Principal, principal: Principal) -> Offer:
        raise NotImplementedError


def test_costs_that_arrive_after_something_else_was_chosen_are_not_shown() -> None:
    """A bug: they replaced the newer view."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from nicegui import Client, ui

    from wharfinger.web.tree_rows import encode_key
    from wharfinger.web.workbench import Workbench

    async def test() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()
        server = Server("harbour")
        server.tool(lambda: "deep", name="sound")
        server.resource("log://today")(lambda: "calm")

        @server.middleware
        async def delay(request: Any, next: Any) -> Any:
            if request.method == "tools/list":
                asked.set()
                await answer.wait()
            return await next(request)

        async with Offer([ServerConfig(name="harbour", target=server)]) as offer, asyncio.timeout(40):
            await offer.upstreams.ready(30)
            with Client(ui.page("/")) as client:
                bench: Any = Workbench(client, Site(), Visitor("visitor", ANONYMOUS, b"", 0.0), offer)
                bench.build()
                costs = asyncio.create_task(bench._show_costs())
                await asked.wait()
                await bench._choose(encode_key(("resource", "harbour", "log://today")))
                answer.set()
                await costs
                texts = [getattr(each, "text", "") for each in bench._main.descendants()]
                await bench.close()
            assert "calm" in texts
            assert "What the offer costs" not in texts

    asyncio.run(test())
