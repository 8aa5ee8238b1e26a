"""What a server publishes, for its page: the first resources and templates, and what a resource holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any

from wharfinger.cli.card import Item, Items

if TYPE_CHECKING:
    from wharfinger.client import Client
    from wharfinger.server import Server

__all__ = ["Listing"]

SHOWN = 50
"""Items of each kind on the page."""
COUNTED = 1000
"""Items up to which they are counted."""
SECONDS = 2.0
"""How long the page waits for the lists."""
READ_SECONDS = 30.0
"""How long a link to a resource waits for it."""
READS = 2
"""Resources that are read for browsers at a time: each may take as much memory as one content may have."""
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What a browser shows as it is. Nothing that could hold a script: SVG and HTML are text, or are saved."""
KEPT = 1.0
"""Seconds for which they are kept: whoever loads the page again and again costs one list a second."""


class Listing:
    """The lists of one server, as any client gets them: through its hooks and its bounds."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = asyncio.Lock()
        self._reading = asyncio.Semaphore(READS)
        self._found = Items()
        self._until = float("-inf")

    async def look(self) -> Items:
        """List what there is now; without what fails or takes too long."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if loop.time() >= self._until:
                self._found = await self._looked()
                self._until = loop.time() + KEPT
            return self._found

    async def read(self, uri: str) -> tuple[str, bytes]:
        """Read a resource for a browser: text as plain text, pictures as such, and anything else as bytes to save.

        Raises:
            Refused: there is no such resource, or it cannot be read.
        """
        from wharfinger.client import Client
        from wharfinger.errors import InvalidParams, ResourceNotFound, WharfingerError
        from wharfinger.protocol.http.rules import Refused

        try:
            async with self._reading, asyncio.timeout(READ_SECONDS), Client(self._server, cache=False) as client:
                content = (await client.read_resource(uri)).contents[0]
        except (ResourceNotFound, InvalidParams):
            raise Refused(404, "There is no such resource.") from None
        except (WharfingerError, TimeoutError, IndexError):
            raise Refused(503, "This cannot be read now: the command on the page says why.") from None
        if isinstance(content.text, str):
            return "text/plain; charset=utf-8", content.text.encode("utf-8", "replace")
        kind = content.mime_type if content.mime_type in PICTURES else "application/octet-stream"
        return str(kind), content.blob if isinstance(content.blob, bytes) else b""

    async def _looked(self) -> Items:
        from wharfinger import types as t
        from wharfinger.client import Client
        from wharfinger.errors import WharfingerError

        found = Items()
        try:
            async with (
                asyncio.timeout(SECONDS),
                Client(self._server, info=t.Implementation(name="page", version=""), cache=False) as client,
            ):
                for kind in ("resources", "templates"):
                    found = await self._listed(client, kind, found)
        except (WharfingerError, TimeoutError):
            return found._replace(whole=False)
        return found

    async def _listed(self, client: Client, kind: str, found: Items) -> Items:
        if not client.capabilities.resources:
            return found
        items: AsyncIterable[Any] = client.list_resources() if kind == "resources" else client.list_resource_templates()
        shown: list[Item] = []
        number = 0
        async for one in items:
            number += 1
            if number <= SHOWN:
                shown.append(item_of(one))
            if number > COUNTED:
                break
        left = min(number, COUNTED) - SHOWN
        more = "" if left <= 0 else f"and {'more than ' if number > COUNTED else ''}{left:,} more"
        if kind == "resources":
            return found._replace(resources=tuple(shown), more_resources=more)
        return found._replace(templates=tuple(shown), more_templates=more)


def item_of(one: Any) -> Item:
    """Take what the page shows of a resource or template."""
    from wharfinger.cli.words import size

    uri = getattr(one, "uri", None) or one.uri_template
    title = one.title if isinstance(one.title, str) else one.name
    kind = one.mime_type if isinstance(one.mime_type, str) else ""
    amount = getattr(one, "size", None)
    return Item(uri, title, kind, size(amount) if isinstance(amount, int) else "")
