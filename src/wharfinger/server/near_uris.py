"""Finds the URIs nearest to one that does not exist, to suggest them in the error.

Only listed URIs that the caller may read are suggested, so the error reveals nothing: a withheld file looks like one
that does not exist. If middleware may let one caller read what another may not, nothing is suggested. The cost is
bounded in URIs, in time, and in the number of requests that search for suggestions at a time; other requests get
the error without them.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

from wharfinger.content.near_words import distance
from wharfinger.errors import InternalError, InvalidParams, ResourceNotFound
from wharfinger.policy.current import may_read
from wharfinger.protocol.request import Request
from wharfinger.server.document_search import PAGE_DOCUMENTS, SourceReader
from wharfinger.server.owners import owner_of
from wharfinger.source import Source

if TYPE_CHECKING:
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.services import Services

__all__ = ["add_near_uris", "near_uris"]

LISTING_SECONDS = 0.25
"""The maximum time to list the sources."""
MAX_COMPARED_URIS = 5_000
"""The maximum number of URIs that are compared."""
MAX_CONCURRENT_SEARCHES = 2
"""The maximum number of requests that search for suggestions at a time."""
MAX_SUGGESTIONS = 3
"""The maximum number of URIs that are suggested."""
MAX_COMPARED_CHARACTERS = 400
"""The maximum number of characters of a URI that are compared."""

log = logging.getLogger("wharfinger.server")

_SEPARATOR = re.compile(r"[/?#]+")


async def add_near_uris(services: Services, resources: Resources, request: Request, error: ResourceNotFound) -> None:
    """Add to the error the URIs nearest to the missing one, if there are any."""
    if resources.may_differ():
        error.suggest(())  # removes those of a mounted server, which does not know the middleware around it
        return
    if error.near or len(error.uri) > MAX_COMPARED_CHARACTERS or resources.near_uri_searches >= MAX_CONCURRENT_SEARCHES:
        return
    # The results of other sources depend on the caller.
    sources = [source for source in resources.every_source() if source.cache_scope == "public"]
    # If the URI belongs to a source, only that one is listed, because others may be slow.
    likely = [source for source in sources if source.matches(error.uri)] or sources
    reader = SourceReader(asyncio.get_running_loop(), LISTING_SECONDS)
    resources.near_uri_searches += 1
    try:
        async with asyncio.timeout(2 * LISTING_SECONDS):  # the last page may be requested just before the deadline
            known = list(islice(filter(may_read, resources.uris()), MAX_COMPARED_URIS))
            error.suggest(await services.pool.run(owner_of(request), _suggestions, error.uri, known, likely, reader))
    except (TimeoutError, InternalError, InvalidParams, OSError):
        return
    finally:
        resources.near_uri_searches -= 1
        reader.stop()


def _suggestions(uri: str, known: list[str], sources: list[Source], reader: SourceReader) -> list[str]:
    deadline = time.monotonic() + LISTING_SECONDS

    def every_uri() -> Iterator[str]:
        yield from known
        remaining = MAX_COMPARED_URIS - len(known)
        for source in sources:
            after: str | None = None
            try:
                while remaining > 0 and time.monotonic() < deadline:
                    documents, after = reader.documents(source, after, min(PAGE_DOCUMENTS, remaining))
                    readable = [document.uri for document in documents if may_read(document.uri)]
                    yield from readable
                    remaining -= len(readable)
                    if after is None:
                        break
            except Exception as error:  # suggestions are optional: a source that cannot be listed has none
                log.debug("%s cannot be listed for suggestions: %r", source.name, error)

    return near_uris(uri, every_uri())


def near_uris(uri: str, known: Iterable[str]) -> list[str]:
    """Return at most MAX_SUGGESTIONS known URIs whose last part is nearly that of this URI, the nearest first.

    Their last part is the same, differs in one or two letters, or has another extension. The parts before it decide
    which URIs are nearer.
    """
    parts = _parts(uri)
    if not parts:
        return []
    missing = uri.partition("?")[0]  # never suggested: it may exist, and be withheld from the caller
    best = heapq.nsmallest(
        MAX_SUGGESTIONS, {(-_likeness(parts, _parts(other)), len(other), other) for other in known if other != missing}
    )
    highest = -best[0][0] if best else 0.0
    # Without those that are much less alike than the best.
    return [other for negated_likeness, _, other in best if -negated_likeness >= max(1.0, highest - 0.7)]


def _parts(uri: str) -> list[str]:
    """Return the parts of a URI without scheme, query and fragment, unescaped and case-folded."""
    path = uri[:MAX_COMPARED_CHARACTERS].partition("?")[0].partition("#")[0].rpartition("://")[2]
    return [unquote(part).casefold() for part in _SEPARATOR.split(path) if part]


def _likeness(parts: list[str], other: list[str]) -> float:
    """Return how similar two paths are: at least 1 if their last parts are similar, otherwise 0."""
    if not other:
        return 0.0
    last, other_last = parts[-1], other[-1]
    max_distance = 1 if len(last) < 8 else 2
    if last == other_last:
        likeness = 2.0
    elif len(last) > 3 and distance(last, other_last, max_distance) <= max_distance:
        likeness = 1.5
    elif len(last) > 3 and other_last.rpartition(".")[0] in (last, last.rpartition(".")[0] or last):
        likeness = 1.2
    else:
        return 0.0
    shared = sum(part in other[:-1] for part in parts[:-1])
    same_end = 0
    for one, two in zip(reversed(parts[:-1]), reversed(other[:-1]), strict=False):
        if one != two:
            break
        same_end += 1
    return likeness + 0.3 * min(shared, 10) + 0.2 * min(same_end, 10)
