"""The data of the start page: the first resources and templates, and the content of a resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any

from wharfinger.cli.render.start_page import PageItem, PageItems

if TYPE_CHECKING:
    from wharfinger.server import Server

__all__ = ["PageData"]

SHOWN_ITEMS = 50
"""Maximum number of items of each kind on the page."""
COUNTED_ITEMS = 1000
"""Maximum number of items of each kind that are counted; for more, the page shows `more than`."""
LIST_SECONDS = 2.0
READ_SECONDS = 30.0
CONCURRENT_READS = 2
"""Maximum number of resources that are read at the same time: each takes as much memory as its content."""
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that a browser shows as images. None can contain a script: SVG and HTML are shown as text, or saved."""
CACHE_SECONDS = 1.0
"""Time for which the lists are cached, so that reloading the page reads them at most once a second."""


class PageData:
    """The lists and contents of one server, as any client gets them: through its middleware and limits.

    Nothing is shown of a server with a policy, since a browser does not say who reads the page.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = asyncio.Lock()
        self._reading = asyncio.Semaphore(CONCURRENT_READS)
        self._items = PageItems()
        self._fresh_until = float("-inf")

    async def items(self) -> PageItems:
        """Return the current items. A list that fails or takes too long is left out, and so is the list after it."""
        if self._server.policy is not None:  # the page is the same for everyone who may open it
            return PageItems()
        loop = asyncio.get_running_loop()
        async with self._lock:
            if loop.time() >= self._fresh_until:
                self._items = await self._load()
                self._fresh_until = loop.time() + CACHE_SECONDS
            return self._items

    async def read(self, uri: str) -> tuple[str, bytes]:
        """Return MIME type and bytes of the first content, for a browser, which saves anything but text and images.

        Raises:
            HttpRefusal: there is no such resource, or it cannot be read.
        """
        from wharfinger.client import Client
        from wharfinger.errors import InvalidParams, ResourceNotFound, WharfingerError
        from wharfinger.protocol.http.rules import HttpRefusal

        if self._server.policy is not None:
            raise HttpRefusal(404, "There is no such resource.")
        try:
            async with self._reading, asyncio.timeout(READ_SECONDS), Client(self._server, cache=False) as client:
                content = (await client.read_resource(uri)).contents[0]
        except (ResourceNotFound, InvalidParams):
            raise HttpRefusal(404, "There is no such resource.") from None
        except (WharfingerError, TimeoutError, IndexError):
            raise HttpRefusal(503, "This cannot be read now: the command on the page shows why.") from None
        if isinstance(content.text, str):
            return "text/plain; charset=utf-8", content.text.encode("utf-8", "replace")
        kind = content.mime_type if content.mime_type in IMAGES else "application/octet-stream"
        return str(kind), content.blob if isinstance(content.blob, bytes) else b""

    async def _load(self) -> PageItems:
        from wharfinger import types as t
        from wharfinger.client import Client
        from wharfinger.errors import WharfingerError

        page_items = PageItems()
        try:
            async with (
                asyncio.timeout(LIST_SECONDS),
                Client(self._server, info=t.Implementation(name="page", version=""), cache=False) as client,
            ):
                if client.capabilities.resources:
                    resources, more = await first_items(client.list_resources())
                    page_items = PageItems(resources, more_resources=more)
                    templates, more = await first_items(client.list_resource_templates())
                    page_items = page_items._replace(templates=templates, more_templates=more)
        except (WharfingerError, TimeoutError):
            return page_items._replace(complete=False)
        return page_items


async def first_items(listing: AsyncIterable[Any]) -> tuple[tuple[PageItem, ...], str]:
    """Return the first items of a list, and a text with the number of the others, empty if there are none."""
    page_items: list[PageItem] = []
    number = 0
    async for listed in listing:
        number += 1
        if number <= SHOWN_ITEMS:
            page_items.append(item_of(listed))
        if number > COUNTED_ITEMS:
            break
    hidden_count = min(number, COUNTED_ITEMS) - SHOWN_ITEMS
    more = "" if hidden_count <= 0 else f"and {'more than ' if number > COUNTED_ITEMS else ''}{hidden_count:,} more"
    return tuple(page_items), more


def item_of(listed: Any) -> PageItem:
    """Return the item of the page for a resource or template."""
    from wharfinger.content.text import size_text

    uri = getattr(listed, "uri", None) or listed.uri_template
    title = listed.title if isinstance(listed.title, str) else listed.name
    kind = listed.mime_type if isinstance(listed.mime_type, str) else ""
    amount = getattr(listed, "size", None)
    return PageItem(uri, title, kind, size_text(amount) if isinstance(amount, int) else "")
