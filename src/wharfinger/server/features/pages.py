"""Pages of resources that are listed without being registered: those of sources, and of an author's catalogues.

A page is requested by a key that stays valid while the list changes. A source makes its own keys (see
`sources.page_keys`); the keys of catalogues are made here. `server.cursors` seals both for clients.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, TypeVar, cast

from wharfinger import types as t
from wharfinger.errors import InternalError, Overloaded
from wharfinger.server.features.listing import Provider
from wharfinger.server.source_calls import SourceCalls
from wharfinger.source import Source

__all__ = ["pages_of_catalogue", "pages_of_source", "templates_of_source"]

T = TypeVar("T")

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
        shown = await _take_first(_without(function(after=key), key), limit + 1)
        return shown[:limit], shown[limit - 1].uri if len(shown) > limit else None

    return page


def _catalogue(function: Callable[..., AsyncIterator[t.Resource]]) -> Provider:
    """Return the pages of an async generator that starts over each time.

    The key is the position of the last resource on the page before, and the URIs of the last resources. A page
    continues after the last of these URIs that is still listed, so earlier additions and removals do not shift it.
    """

    async def page(owner: str, key: Any, limit: int) -> tuple[list[Any], Any]:
        position, last_uris = cast("tuple[int, list[str]]", key or (0, []))
        found = await _take_first(_continue_after(function(), last_uris, position, limit + 1), limit + 1)
        shown = [resource for _, resource in found[:limit]]
        if len(found) <= limit:
            return shown, None
        return shown, (found[limit - 1][0], _uris_for_cursor(last_uris + [resource.uri for resource in shown]))

    return page


async def _without(resources: AsyncIterator[t.Resource], uri: str | None) -> AsyncIterator[t.Resource]:
    """Yield the resources that do not have this URI."""
    try:
        async for resource in resources:
            if resource.uri != uri:
                yield resource
    finally:
        await _close(resources)


async def _continue_after(
    resources: AsyncIterator[t.Resource], last_uris: list[str], last_position: int, limit: int
) -> AsyncIterator[tuple[int, t.Resource]]:
    """Yield the resources after the last of `last_uris` that is still listed, each with its position (from 1).

    If `last_uris[-1]` is listed more than once, the one at `last_position` counts. So the search for it does not end
    before that position, and meanwhile at most `limit` resources are buffered. If none of `last_uris` is listed any
    more, the first `last_position - len(last_uris)` resources are skipped instead.
    """
    sought: set[str] = set(last_uris)
    found_last = False
    skip = last_position - len(last_uris)
    buffered: list[tuple[int, t.Resource]] = []
    position = 0
    try:
        async for resource in resources:
            position += 1
            if not sought:
                yield position, resource
                continue
            is_last = resource.uri == last_uris[-1]
            if is_last or (resource.uri in sought and not found_last):
                found_last, skip, buffered = is_last, 0, []
            elif skip > 0:
                skip -= 1
            elif len(buffered) < limit:
                buffered.append((position, resource))
            if found_last and position >= last_position:
                sought = set()
                for entry in buffered:
                    yield entry
                buffered = []
        for entry in buffered:
            yield entry
    finally:
        await _close(resources)


async def _take_first(items: AsyncIterator[T], number: int) -> list[T]:
    """Return the first `number` items, and close the generator."""
    taken: list[T] = []
    try:
        async for item in items:
            taken.append(item)
            if len(taken) == number:
                break
    finally:
        await _close(items)
    return taken


async def _close(resources: AsyncIterator[Any]) -> None:
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
