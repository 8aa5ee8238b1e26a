"""A tab that no browser shows: what is chosen while an earlier view is still loading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from tests.conftest import absent
from tests.waiting import wait_until_async
from wharfinger import Server
from wharfinger.protocol.inspection import Inspection
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.server_connections import ServerConnections
from wharfinger.web.visitors import Visitor


class Site:
    """The part of a site that a tab uses. A view of another principal opens when `opened` is set."""

    name = "harbour"
    inspection: Inspection | None = None

    def __init__(self, view: ServerConnections | None = None) -> None:
        self.shelf = ContentShelf()
        self.asked, self.opened = asyncio.Event(), asyncio.Event()
        self._view = view

    async def view_as(self, viewer: Principal, principal: Principal) -> ServerConnections:
        assert self._view is not None
        self.asked.set()
        await self.opened.wait()
        await self._view.__aenter__()
        await self._view.upstreams.ready(30)
        return self._view


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

        async with ServerConnections([ServerConfig(name="harbour", target=server)]) as connections, asyncio.timeout(40):
            await connections.upstreams.ready(30)
            with Client(ui.page("/")) as client:
                bench: Any = Workbench(client, Site(), Visitor("visitor", ANONYMOUS, b"", 0.0), connections)
                bench.build()
                costs = asyncio.create_task(bench._show_costs())
                await asked.wait()
                await bench._choose(encode_key(("resource", "harbour", "log://today")))
                answer.set()
                await costs
                texts = [getattr(each, "text", "") for each in bench._main.descendants()]
                await bench.close()
            assert "calm" in texts
            assert "Cost in tokens" not in texts

    asyncio.run(test())


def test_a_view_that_opens_after_its_tab_was_closed_is_closed() -> None:
    """A bug: its connections stayed open, and a task watched its notes until the server ended."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from nicegui import Client, ui

    from wharfinger.web.html_elements import node
    from wharfinger.web.workbench import Workbench

    async def test() -> None:
        configs = [ServerConfig(name="harbour", target=Server("harbour"))]
        view = ServerConnections(configs, read_only=True)
        site = Site(view)
        async with ServerConnections(configs) as connections, asyncio.timeout(40):
            with Client(ui.page("/")) as client:
                bench: Any = Workbench(client, site, Visitor("visitor", ANONYMOUS, b"", 0.0), connections)
                bench.build()
                viewing = asyncio.create_task(bench._view_as({"sub": "mary"}, node("p")))
            await site.asked.wait()
            client.delete()
            await bench.close()
            site.opened.set()
            await viewing
            assert not bench._following
            assert view.upstreams["harbour"].status != "ready"

    asyncio.run(test())


async def test_the_heading_names_the_view_that_was_chosen_last() -> None:
    """A bug: if the first of two views took longer to open, its name stood above the second."""
    slow, asked, answer = slow_server()
    async with open_bench(Server("harbour")) as bench:
        slow_view, fast_view = await open_view(slow), await open_view(Server("harbour"))
        first = asyncio.create_task(bench._show_connections(slow_view, "As mary"))
        await asked.wait()
        second = asyncio.create_task(bench._show_connections(fast_view, "As tom"))
        done, _ = await asyncio.wait({second}, timeout=0.2)  # a bug would end it now
        answer.set()
        await asyncio.gather(first, second)
        assert not done
        assert bench._whose.text == "As tom"
        assert bench._connections is fast_view


async def test_all_views_end_with_a_tab_that_is_closed_while_it_changes_the_view() -> None:
    """A bug: the view before, and one that waited, stayed connected."""
    slow, asked, _ = slow_server()
    async with open_bench(Server("harbour")) as bench:
        views = [await open_view(server) for server in (Server("harbour"), slow, Server("harbour"))]
        await bench._show_connections(views[0], "As mary")
        changes = [asyncio.create_task(bench._show_connections(view, "As tom")) for view in views[1:]]
        await asked.wait()
        bench._client.delete()
        await bench.close()
        await asyncio.wait(changes)
        assert [view.upstreams["harbour"].status for view in views].count("ready") == 0
        assert not bench._following


def slow_server() -> tuple[Server, asyncio.Event, asyncio.Event]:
    """Return a server, an event that says that its tools were asked for, and one that lets it answer."""
    server, asked, answer = Server("harbour"), asyncio.Event(), asyncio.Event()
    server.tool(lambda: "deep", name="sound")

    @server.middleware
    async def delay(request: Any, next: Any) -> Any:
        if request.method == "tools/list":
            asked.set()
            await answer.wait()
        return await next(request)

    return server, asked, answer


async def open_view(server: Server) -> ServerConnections:
    view = ServerConnections([ServerConfig(name="harbour", target=server)], read_only=True)
    await view.__aenter__()
    await view.upstreams.ready(30)
    return view


@asynccontextmanager
async def open_bench(server: Server) -> AsyncIterator[Any]:
    """Yield a tab with the tree of one server."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from nicegui import Client, ui

    from wharfinger.web.workbench import Workbench

    async with ServerConnections([ServerConfig(name="harbour", target=server)]) as connections, asyncio.timeout(40):
        await connections.upstreams.ready(30)
        with Client(ui.page("/")) as client:
            bench: Any = Workbench(client, Site(), Visitor("visitor", ANONYMOUS, b"", 0.0), connections)
            bench.build()
            await bench.start()
            yield bench
            await bench.close()


async def test_the_hits_of_a_search_that_began_in_another_view_are_not_shown() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()
    server = Server("harbour")

    @server.resource("log://today")
    async def log() -> str:
        asked.set()
        await answer.wait()
        return "calm sea"

    async with open_bench(server) as bench:
        catalogue = bench._connections.catalogue
        await wait_until_async(lambda: catalogue.search("log", contents=False), "the catalogue has the resource")
        search = asyncio.create_task(bench._search("log", True))
        await asked.wait()
        await bench._follow(bench._connections)
        answer.set()
        await search
        assert bench._found_rows is None
