"""What is listed without being registered, in pages: the resources of sources, and what catalogues yield.

A page is asked for by a key that stays valid while the list changes. A source makes its own keys (see
`sources.page_keys`); the keys of catalogues are made here. `server.cursors` seals both for clients.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, cast

from wharfinger import types as t
from wharfinger.errors import InternalError, Overloaded
from wharfinger.server.features.listing import Provider
from wharfinger.source import Source

__all__ = ["pages_of_catalogue", "pages_of_source", "templates_of_source"]

log = logging.getLogger("wharfinger.server.features.resources")

PATIENCE = 5.0
"""Seconds that a list of several sources waits for the first page of one."""

MARKS, MARKS_LENGTH = 16, 4096
"""URIs, and their characters, that a cursor keeps of a catalogue: the last shown, so that any but all may go."""


def pages_of_source(source: Source, ask: Provider, come: Callable[[], None], alone: Callable[[], bool]) -> Provider:
    """The pages of a source; while it cannot be reached, its top stands there and says why, and others are listed.

    `come` is called when a first page comes for which the list did not wait; it waits for a source that is `alone`.
    """
    patient = _Patient(ask, come)
    down = False

    async def page(owner: str, key: Any, limit: int) -> tuple[Sequence[Any], Any]:
        nonlocal down
        try:
            if key is not None or alone():
                return await ask(owner, key, limit)
            found = await patient(owner, key, limit)
        except (InternalError, OSError) as error:
            if key is not None or isinstance(error, Overloaded):  # a page that may be asked for again
                raise
            name = source.name or source.uri
            why = " ".join(str(error).split()) if isinstance(error, InternalError) else f"{name} cannot be read now."
            if not down:
                log.warning("%s is not listed: %s", name, why)
            down = True
            return [t.Resource(uri=source.uri, name=name, title=why)] if source.uri else [], None
        down = False
        return found

    return page


class _Patient:
    """Asks for the first page of a source, for which the others wait `PATIENCE`; `come` is called when it comes."""

    def __init__(self, wait: Provider, come: Callable[[], None]) -> None:
        self._wait = wait
        self._come = come
        self._late: asyncio.Future[Any] | None = None

    async def __call__(self, owner: str, key: Any, limit: int) -> tuple[Sequence[Any], Any]:
        """Its first page.

        Raises:
            InternalError: it takes longer, or a question of before is still on its way.
        """
        if self._late is None:
            asked = asyncio.ensure_future(self._wait(owner, key, limit))
            try:
                done, _ = await asyncio.wait((asked,), timeout=PATIENCE)
            except asyncio.CancelledError:
                asked.cancel()
                raise
            if done:
                return asked.result()
            self._late = asked
            asked.add_done_callback(self._answered)
        raise InternalError("It has not answered yet: list again later.")

    def _answered(self, asked: asyncio.Future[Any]) -> None:
        self._late = None
        if not asked.cancelled() and asked.exception() is None:
            self._come()


def templates_of_source(source: Source) -> Provider:
    """What it shows at the time: a source may learn of templates when it is included already."""

    async def page(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        start, definitions = key or 0, source.templates
        return list(definitions[start : start + limit]), start + limit if start + limit < len(definitions) else None

    return page


def pages_of_catalogue(function: Callable[..., AsyncIterator[t.Resource]]) -> Provider:
    """The pages of an async generator, which goes on after a URI if it has a parameter `after`."""
    return (_keyed_catalogue if "after" in inspect.signature(function).parameters else _catalogue)(function)


def _keyed_catalogue(function: Callable[..., AsyncIterator[t.Resource]]) -> Provider:
    """Pages of an async generator that goes on after a URI."""

    async def page(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        shown = await _first(function(after=key), limit + 1)
        return shown[:limit], shown[limit - 1].uri if len(shown) > limit else None

    return page


def _catalogue(function: Callable[..., AsyncIterator[t.Resource]]) -> Provider:
    """Pages of an async generator that starts over each time; the key is how many were shown, and the last of them.

    A page goes on after the last of these that is still there: what came or went before it moves nothing.
    """

    async def page(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        count, marks = cast("tuple[int, list[str]]", key or (0, []))
        shown = await _first(_after(function(), marks, count, limit + 1), limit + 1)
        if len(shown) <= limit:
            return shown, None
        shown.pop()
        return shown, (count + limit, _marks(marks + [resource.uri for resource in shown]))

    return page


async def _after(
    resources: AsyncIterator[t.Resource], marks: list[str], count: int, most: int
) -> AsyncIterator[t.Resource]:
    """What comes after the last of `marks` that is there; if none is, after as many of `count` as are not marked."""
    left: set[str] = set(marks)
    skip = count - len(marks)
    later: list[t.Resource] = []
    try:
        async for resource in resources:
            if resource.uri in left:
                skip, later = 0, []
                if resource.uri == marks[-1]:
                    left = set()
            elif not left:
                yield resource
            elif skip > 0:
                skip -= 1
            elif len(later) < most:
                later.append(resource)
        for resource in later:
            yield resource
    finally:
        await _close(resources)


async def _first(resources: AsyncIterator[t.Resource], number: int) -> list[t.Resource]:
    """At most so many; a generator is closed then, and what it has open."""
    shown: list[t.Resource] = []
    try:
        async for resource in resources:
            shown.append(resource)
            if len(shown) == number:
                break
    finally:
        await _close(resources)
    return shown


async def _close(resources: AsyncIterator[t.Resource]) -> None:
    if isinstance(resources, AsyncGenerator):
        await resources.aclose()


def _marks(uris: list[str]) -> list[str]:
    """The last of these URIs, at least one, within what a cursor may hold."""
    kept: list[str] = []
    length = 0
    for uri in reversed(uris[-MARKS:]):
        length += len(uri)
        if kept and length > MARKS_LENGTH:
            break
        kept.append(uri)
    return kept[::-1]
