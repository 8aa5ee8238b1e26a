"""Starts and stops everything that reports changes: sources, watcher functions and mounted servers.

They look for changes only while a client watches. When the first client watches a URI, its source starts to look for
changes, and the watcher function of its template starts; when the last client stops watching, both stop. Mounted
servers watch and unwatch the same URIs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.protocol.uri.template_index import TemplateIndex
from wharfinger.server.features.resource import check_scheme
from wharfinger.server.logged_calls import call_logged
from wharfinger.server.subscriptions.watching import run_watcher_function
from wharfinger.server.threads import is_async
from wharfinger.source import Source
from wharfinger.transports.background import BackgroundTasks

if TYPE_CHECKING:
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.part import Part
    from wharfinger.server.services import Services

__all__ = ["SourceWatches"]

log = logging.getLogger("wharfinger.server.subscriptions.source_watches")


class SourceWatches:
    """The sources and watcher functions that look for changes of watched URIs. None means the list of resources."""

    def __init__(self, services: Services, resources: Resources, parts: Sequence[Part]) -> None:
        self._services = services
        self._resources = resources
        self._parts = parts
        self._functions: TemplateIndex[Callable[..., Awaitable[None]]] = TemplateIndex()
        """Watcher functions by template. For each watched URI, that of the most specific matching template runs."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The running watcher functions, by URI."""
        self._attached: dict[str | None, list[Source]] = {}
        """The sources that watch each URI."""
        self._joining = BackgroundTasks(report_failures=True)

    def add_watcher(self, template: str, function: Callable[..., Awaitable[None]]) -> None:
        """Run an async function for each URI that `template` matches, while it is watched. See `Server.watcher`.

        Raises:
            TypeError: it is not an async function.
            InvalidTemplate: it is not a template that can be parsed.
            ValueError: the template does not begin with a scheme, does not say where a variable ends, or is ambiguous
                with another.
        """
        if not is_async(function):
            raise TypeError(f"{getattr(function, '__name__', function)}() must be an async function.")
        check_scheme(template, function)
        self._functions.add(UriTemplate(template), function)

    def join(self, source: Source) -> None:
        """Start a source that was added after the server started.

        Raises:
            RuntimeError: the calling thread does not run the server's event loop.
        """
        self._joining.start(self._begin(source))

    def join_part(self, part: Part) -> None:
        """Start a server that was mounted after this one started.

        Raises:
            RuntimeError: the calling thread does not run the server's event loop.
        """
        self._joining.start(self._begin_part(part))

    async def _begin_part(self, part: Part) -> None:
        try:
            await part.start()
        except Exception:
            log.exception("The server %r did not start", part.name)
        for uri in self._attached:
            call_logged(part.watch, uri)

    async def _begin(self, source: Source) -> None:
        """Start a source that was added late. Its list, and URIs that no other source has, may be watched already."""
        await self._resources.calls.join(source)
        for uri, sources in list(self._attached.items()):
            # A watch that began during the start has the source already.
            if source not in sources if uri is None else not sources and source.matches(uri):
                sources.append(source)
                call_logged(source.watch, uri, partial(self._changed, source))

    def attach(self, uri: str | None) -> None:
        """Start everything that reports changes of a URI, or (None) of the list, which has its first watcher now."""
        claimed = (source for source in self._resources.sources if uri is None or source.matches(uri))
        sources = list(claimed) if uri is None else list(islice(claimed, 1))
        self._attached[uri] = sources
        for part in self._parts:
            call_logged(part.watch, uri)
        for source in sources:
            call_logged(source.watch, uri, partial(self._changed, source))
        if uri is not None and (found := self._functions.find(uri, check=False)):
            self._tasks[uri] = asyncio.get_running_loop().create_task(run_watcher_function(found[0], uri))

    def detach(self, uri: str | None) -> None:
        """Stop what `attach` started. Called when the last watcher has left."""
        for source in self._attached.pop(uri, ()):
            call_logged(source.unwatch, uri)
        for part in self._parts:
            call_logged(part.unwatch, uri)
        if uri is not None and (task := self._tasks.pop(uri, None)):
            task.cancel()

    def _changed(self, source: Source, uri: str | None) -> None:
        if source.breaker.down:  # perhaps it is back
            self._resources.calls.look_again(source)
        if uri is None:
            self._resources.calls.forget_late_pages(source)
            self._services.watching.list_changed("resources")
        else:
            self._services.watching.updated(uri)

    async def end(self) -> None:
        """Cancel the watcher functions and close all sources, even if one of them fails."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._services.limits.drain)
        for source in self._resources.sources:
            try:
                await source.close()
            except Exception:  # still close the other sources, and end the lifespan
                log.exception("%s did not close", type(source).__qualname__)
