"""Looking through what another server has, before anybody asks: its templates, and the beginning of its list.

Refuses to know what becomes of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec import UnsetType

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.errors import InternalError, WharfingerError
from wharfinger.sources.upstream_server.upstream_client import UpstreamClient, UpstreamUnreachable
from wharfinger.sources.upstream_server.upstream_lists import UpstreamLists
from wharfinger.sources.upstream_server.uri_index import UriIndex

__all__ = ["LEARNED", "Discovery"]

log = logging.getLogger("wharfinger.sources.upstream_server")

LEARNED = 5_000
"""Resources that are looked through before anybody asks, and by a search."""
TEMPLATES = 5_000
"""Templates that are asked for."""
WAITED = 2.0
"""Seconds that a start waits for what there is; it goes on to learn it afterwards."""
AGAIN, LONGEST_AGAIN = 1.0, 60.0
"""Seconds until it is tried again: twice as long each time."""


class Discovery:
    """Fills what is `known`; `changed` is called when the list here is another one by that."""

    def __init__(
        self, name: str, reach: UpstreamClient, known: UriIndex, lists: UpstreamLists, changed: Callable[[], None]
    ) -> None:
        self._name = name
        self._reach = reach
        self._known = known
        self._lists = lists
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._done = self._whole = False
        self._about = ""

    async def start(self) -> None:
        """Begin, and wait a little for the end."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._learn())
            await asyncio.wait((self._task,), timeout=WAITED)

    async def close(self) -> None:
        """End it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    def again(self) -> None:
        """The server has come back, and may be another one."""
        self._lists.forget()
        if self._task is not None and self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._learn())
            self._changed()

    async def list_changed(self) -> None:
        """Its list is another one: learn its templates, which nothing else would ask for."""
        self._lists.forget()
        try:
            await self._learn_templates()
        except WharfingerError as error:
            log.debug("%s: its templates were not looked at: %s", self._name, error)

    def describe(self) -> str:
        """What is known, for a person."""
        if not self._done:
            return "not looked at yet"
        number, templates = len(self._known), len(self._known.templates)
        counted = f"{'' if self._whole else 'more than '}{number:,} resource{'' if number == 1 else 's'}"
        return f"{counted}, {templates} template{'' if templates == 1 else 's'}{self._about}"

    async def _learn(self) -> None:
        """Look through what there is, once; again and again where it cannot be reached."""
        delay = AGAIN
        while True:
            try:
                await self._look_through()
                return
            except UpstreamUnreachable as error:
                log.debug("%s was not looked through: %s", self._name, error)
            except WharfingerError as error:  # what it answers now, it answers later
                log.warning("%s could not be looked through: %s", self._name, error)
                self._done = True
                return
            except Exception:
                log.exception("%s could not be looked through", self._name)
                return
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_AGAIN)

    async def _look_through(self) -> None:
        self._about = await self._reach.ask(_about)
        changed = await self._learn_templates()
        after, seen = None, 0
        while seen < LEARNED:
            resources, after = await self._lists.page(after, 1_000)
            seen += len(resources)
            if after is None:
                break
        self._whole = after is None
        if changed or not self._done:
            self._done = True
            self._changed()

    async def _learn_templates(self) -> bool:
        """Whether they are others than before."""

        async def every(client: Client) -> list[t.ResourceTemplate]:
            found: list[t.ResourceTemplate] = []
            async for template in client.list_resource_templates():
                found.append(template)
                if len(found) >= TEMPLATES:
                    break
            return found

        try:
            return self._known.learn_templates(await self._reach.ask(every))
        except InternalError as error:
            if isinstance(error, UpstreamUnreachable):
                raise
            log.debug("%s has no templates: %s", self._name, error)  # many servers do not know the method
            return False


async def _about(client: Client) -> str:
    """What is spoken, and whether changes are told."""
    resources = client.capabilities.resources
    told = not isinstance(resources, UnsetType) and resources.subscribe is True
    return f", {client.revision}{', subscribed' if told else ''}"
