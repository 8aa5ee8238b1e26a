"""The panel of a resource while reads, changes and other choices overlap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from tests.conftest import absent
from wharfinger import Server
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.offer import Offer

URI = "log://today"


class Reads:
    """A resource, each read of which waits until the test lets it end."""

    def __init__(self) -> None:
        self.text = "first"
        self.begun: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def read(self) -> str:
        text, end = self.text, asyncio.get_running_loop().create_future()
        self.begun.put_nowait(end)
        await end
        return text


class OpenPanel:
    """The panel, in a page that no browser shows."""

    def __init__(self, reads: Reads, panel: Any, container: Any, shelf: ContentShelf) -> None:
        self.reads, self.panel, self.container, self.shelf = reads, panel, container, shelf

    def texts(self) -> list[str]:
        """Return the texts of the content that is shown."""
        return [each.text for each in self.container.descendants() if each.tag == "pre"]


@asynccontextmanager
async def open_panel(mime_type: str = "text/plain") -> AsyncGenerator[OpenPanel]:
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from nicegui import Client, ui

    from wharfinger.web.html_elements import node
    from wharfinger.web.resource_panel import ResourcePanel

    server, reads, shelf = Server("harbour"), Reads(), ContentShelf()
    server.resource(URI, mime_type=mime_type)(reads.read)
    async with Offer([ServerConfig(name="harbour", target=server)]) as offer, asyncio.timeout(40):
        await offer.upstreams.ready(30)
        client = Client(ui.page("/"))
        with client:
            container = node("main")
            yield OpenPanel(reads, ResourcePanel(container, offer, shelf, "visitor", "harbour", URI), container, shelf)
        client.delete()


def test_a_read_that_is_wanted_during_another_one_follows_it() -> None:
    """A bug: a watch that began during the first read did not show what had changed before."""

    async def test() -> None:
        async with open_panel() as page:
            showing = asyncio.create_task(page.panel.show())
            first = await page.reads.begun.get()
            page.reads.text = "second"
            await page.panel.read()
            first.set_result(None)
            (await page.reads.begun.get()).set_result(None)
            await showing
            assert page.texts() == ["second"]

    asyncio.run(test())


def test_a_read_that_ends_after_the_panel_was_closed_adds_nothing() -> None:
    """A bug: its content stayed on the shelf, and its elements in the memory of the tab."""

    async def test() -> None:
        async with open_panel() as page:
            showing = asyncio.create_task(page.panel.show())
            first = await page.reads.begun.get()
            page.panel.close()
            page.container.clear()
            elements = len(page.container.client.elements)
            first.set_result(None)
            await showing
            assert len(page.container.client.elements) == elements

    asyncio.run(test())
