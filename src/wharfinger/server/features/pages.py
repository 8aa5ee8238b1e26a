"""Pages of resources that are listed without being registered: those of sources, and of an author's catalogues.

A page is requested by a key that stays valid while the list changes. A source makes its own keys (see
`sources.page_keys`); the keys of catalogues are made here. `server.cursors` seals both for clients.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, cast

from wharfinger import types as t
from wharfinger.errors import InternalError, Overloaded
from wharfinger.server.features.listing import Provider
from wharfinger.server.source_calls import SourceCalls
from wharfinger.source import Source

__all__ = ["pages_of_catalogue", "pages_of_source", "templates_of_source"]

MAX_CURSOR_URIS, MAX_CURSOR_URI_CHARACTERS = 16, 4096
"""The maximum numbers of URIs in a catalogue's cursor (those listed last), and of their characters in total."""


def pages_of_source(
    source: Source, calls: SourceCalls, arrived: Callable[[], None], alone: Callable[[], bool]
) -> Provider:
    """Return the pages of a source. If the first page cannot be listed, it has a placeholder, with the reason as title.

    A list of several sources waits for the first page at most as long as the source's patience. `arrived` is called
    when the page arrives later. If the source is `alone`, the list waits longer: until a probe shows that the source
    does not answer.
    """

    async def page(owner: str, key: Any, limit: int) -> tuple[Sequence[Any], Any]:
        if key is not None:  # its errors are raised: the client can request this page again
            return await calls.page(source, owner, key, limit)
        try:
            if alone():
                return await calls.page(source, owner, None, limit)
            return await calls.first_page(source, owner, limit, arrived)
        except InternalError as error:
            if isinstance(error, Overloaded):
                raise
            return source.placeholder(calls.describe_missing(source) or str(error)), None

    return page


def templates_of_source(source: Source, calls: SourceCalls) -> Provider:
    """Return the pages of a source's current templates, which may change after it was included.

    Some sources learn their templates while they start, for example from the document of an API. So the list waits for
    a source without templates to start, at most for its patience.
    """

    async def page(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        if not source.templates:
            await calls.wait_for_start(source)
        start, definitions = key or 0, source.templates
        return list(definitions[start : start + limit]), start + limit if start + limit < len(definitions) else None

    return page


def pages_of_catalogue(function: Callable[..., AsyncIterator[t.Resource]]) -> Provider:
    """Return the pages of an async generator. If it has a parameter `after`, it continues after that URI."""
    return (_keyed_catalogue if "after" in inspect.signature(function).parameters else _catalogue)(function)


def _keyed_catalogue(function: Callable[..., AsyncIterator[t.Resource]]) -> Provider:
    """Return the pages of an async generator that continues after a URI."""

    async def page(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        shown = await _take_first(function(after=key), limit + 1)
        return shown[:limit], shown[limit - 1].uri if len(shown) > limit else None

    return page


def _catalogue(function: Callable[..., AsyncIterator[t.Resource]]) -> Provider:
    """Return the pages of an async generator that starts over each time.

    The key is the number of resources on earlier pages, and the URIs of the last ones. A page continues after the last
    of these URIs that is still listed, so earlier additions and removals do not shift it.
    """

    async def page(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        count, last_uris = cast("tuple[int, list[str]]", key or (0, []))
        shown = await _take_first(_continue_after(function(), last_uris, count, limit + 1), limit + 1)
        if len(shown) <= limit:
            return shown, None
        shown.pop()
        return shown, (count + limit, _uris_for_cursor(last_uris + [resource.uri for resource in shown]))

    return page


async def _continue_after(
    resources: AsyncIterator[t.Resource], last_uris: list[str], count: int, limit: int
) -> AsyncIterator[t.Resource]:
    """Yield the resources after the last of `last_uris` that is still listed.

    Until `last_uris[-1]` is found, at most `limit` resources are buffered. If none of `last_uris` is listed any more,
    the first `count - len(last_uris)` resources are skipped instead.
    """
    sought: set[str] = set(last_uris)
    skip = count - len(last_uris)
    buffered: list[t.Resource] = []
    try:
        async for resource in resources:
            if resource.uri in sought:
                skip, buffered = 0, []
                if resource.uri == last_uris[-1]:
                    sought = set()
            elif not sought:
                yield resource
            elif skip > 0:
                skip -= 1
            elif len(buffered) < limit:
                buffered.append(resource)
        for resource in buffered:
            yield resource
    finally:
        await _close(resources)


async def _take_first(resources: AsyncIterator[t.Resource], number: int) -> list[t.Resource]:
    """Return the first `number` resources, and close the generator."""
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


def _uris_for_cursor(uris: list[str]) -> list[str]:
    """Return the last of these URIs, at least one, within the bounds of a cursor."""
    kept: list[str] = []
    length = 0
    for uri in reversed(uris[-MAX_CURSOR_URIS:]):
        length += len(uri)
        if kept and length > MAX_CURSOR_URI_CHARACTERS:
            break
        kept.append(uri)
    return kept[::-1]
