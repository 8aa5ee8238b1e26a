"""The panel of a resource while reads, changes and other choices overlap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import pytest

from tests.conftest import absent
from wharfinger import Server
from wharfinger.server import Content
from wharfinger.types import ReadResourceResult
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.server_connections import ServerConnections

URI = "log://today"


class Reads:
    """A resource, each read of which waits until the test lets it end."""

    def __init__(self) -> None:
        self.text: str | list[Content] | ReadResourceResult = "first"
        self.begun: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def read(self) -> str | list[Content] | ReadResourceResult:
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

    def status(self) -> str:
        """Return the line of facts."""
        return next(each.text for each in self.container.descendants() if each.props.get("role") == "status")


@asynccontextmanager
async def open_panel(mime_type: str = "text/plain", upstream: str = "harbour") -> AsyncGenerator[OpenPanel]:
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from nicegui import Client, ui

    from wharfinger.web.html_elements import node
    from wharfinger.web.resource_panel import ResourcePanel

    server, reads, shelf = Server("harbour"), Reads(), ContentShelf()
    server.resource(URI, mime_type=mime_type)(reads.read)
    async with ServerConnections([ServerConfig(name="harbour", target=server)]) as connections, asyncio.timeout(40):
        await connections.upstreams.ready(30)
        client = Client(ui.page("/"))
        with client:
            container = node("main")
            yield OpenPanel(
                reads, ResourcePanel(container, connections, shelf, "visitor", upstream, URI), container, shelf
            )
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


@pytest.mark.parametrize(("number", "is_said"), [(20, False), (21, True)])
def test_contents_that_are_not_shown_are_counted(number: int, is_said: bool) -> None:
    """A bug: contents after the twentieth were dropped without a word."""

    async def test() -> None:
        async with open_panel() as page:
            texts = [f"content {index}" for index in range(number)]
            page.reads.text = [Content(text, uri=f"log://today/{index}") for index, text in enumerate(texts)]
            showing = asyncio.create_task(page.panel.show())
            (await page.reads.begun.get()).set_result(None)
            await showing
            assert page.texts() == texts[:20]
            assert (f"the first 20 of {number} contents are shown" in page.status()) is is_said

    asyncio.run(test())


def test_a_resource_without_contents_is_shown() -> None:
    """A bug: an AttributeError."""

    async def test() -> None:
        async with open_panel() as page:
            page.reads.text = ReadResourceResult(contents=[])
            showing = asyncio.create_task(page.panel.show())
            (await page.reads.begun.get()).set_result(None)
            await showing
            assert page.texts() == []
            assert page.status().startswith("no content · 0 B · ")

    asyncio.run(test())


def test_the_panel_of_a_server_that_is_gone_says_so() -> None:
    """A bug: it showed "Reading …" for ever."""

    async def test() -> None:
        async with open_panel(upstream="gone") as page:
            await page.panel.show()
            assert page.status() == "This server is no longer there."

    asyncio.run(test())
