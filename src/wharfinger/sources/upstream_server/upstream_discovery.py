"""Fetches the templates of another server and the beginning of its list, before a client requests them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from msgspec import UnsetType

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.content.text import many
from wharfinger.errors import InternalError, WharfingerError
from wharfinger.protocol.backoff import Backoff
from wharfinger.sources.upstream_server.upstream_client import UpstreamClient
from wharfinger.sources.upstream_server.upstream_lists import UpstreamLists
from wharfinger.upstreams.upstream import UpstreamUnreachable
from wharfinger.upstreams.uri_index import UriIndex

__all__ = ["Discovery"]

log = logging.getLogger("wharfinger.sources.upstream_server")

MAX_RESOURCES = 5_000
"""Maximum number of resources of the list that are read in advance."""
MAX_TEMPLATES = 5_000
"""Maximum number of templates that are requested."""
START_SECONDS = 2.0
"""The maximum time that `start` waits. Discovery then continues in the background."""
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
"""The first and the longest delay between attempts to reach the server. Each failure doubles it."""


class Discovery:
    """Fills `index` in the background. Calls `changed` when the published list changes."""

    def __init__(
        self, name: str, client: UpstreamClient, index: UriIndex, lists: UpstreamLists, changed: Callable[[], None]
    ) -> None:
        self._name = name
        self._client = client
        self._index = index
        self._lists = lists
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._reachable = asyncio.Event()
        """Set when the server is reachable again, so that discovery continues immediately."""
        self._done = self._complete = False
        self._connection_facts = ""

    async def start(self) -> None:
        """Start discovery, and wait at most `START_SECONDS` for its end."""
        if self._task is None:
            self._reachable = asyncio.Event()  # an event belongs to a single event loop
            self._task = asyncio.get_running_loop().create_task(self._run())
            await asyncio.wait((self._task,), timeout=START_SECONDS)

    async def close(self) -> None:
        """Stop discovery."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    def restart(self) -> None:
        """Start again when the server has become reachable: its lists may have changed."""
        self._lists.forget()
        self._reachable.set()
        if self._task is not None and self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._changed()

    async def list_changed(self) -> None:
        """Fetch the templates again after the list changed, because no client request fetches them."""
        self._lists.forget()
        try:
            await self._fetch_templates()
        except WharfingerError as error:
            log.debug("The templates of %s could not be fetched: %s", self._name, error)

    def describe(self) -> str:
        """Return a description of the connection, such as `14 resources, 2 templates, 2025-11-25, subscribed`."""
        if not self._done:
            return "not listed yet"
        counted = f"{'' if self._complete else 'more than '}{many(len(self._index), 'resource')}"
        return f"{counted}, {many(len(self._index.templates), 'template')}{self._connection_facts}"

    async def _run(self) -> None:
        backoff = Backoff(RETRY_SECONDS, MAX_RETRY_SECONDS)
        while True:
            try:
                await self._discover()
                return
            except UpstreamUnreachable as error:
                log.debug("%s could not be listed; retrying: %s", self._name, error)
            except WharfingerError as error:  # another attempt would get the same answer
                log.warning("%s could not be listed: %s", self._name, error)
                self._done = True
                return
            except Exception:
                log.exception("%s could not be listed", self._name)
                return
            self._reachable.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.failed()):
                    await self._reachable.wait()

    async def _discover(self) -> None:
        self._connection_facts = await self._client.call(_connection_facts)
        changed = await self._fetch_templates()
        after, seen = None, 0
        while seen < MAX_RESOURCES:
            resources, after = await self._lists.page(after, 1_000)
            seen += len(resources)
            if after is None:
                break
        self._complete = after is None
        if changed or not self._done:
            self._done = True
            self._changed()

    async def _fetch_templates(self) -> bool:
        """Fetch the templates. Returns whether they have changed."""

        async def fetch(client: Client) -> list[t.ResourceTemplate]:
            templates: list[t.ResourceTemplate] = []
            async for template in client.list_resource_templates():
                templates.append(template)
                if len(templates) >= MAX_TEMPLATES:
                    break
            return templates

        try:
            return self._index.set_templates(await self._client.call(fetch))
        except InternalError as error:
            if isinstance(error, UpstreamUnreachable):
                raise
            log.debug("%s has no templates: %s", self._name, error)  # many servers do not implement the method
            return False


async def _connection_facts(client: Client) -> str:
    """Return the revision of the connection, and whether the server reports changes."""
    resources = client.capabilities.resources
    subscribed = not isinstance(resources, UnsetType) and resources.subscribe is True
    return f", {client.revision}{', subscribed' if subscribed else ''}"
