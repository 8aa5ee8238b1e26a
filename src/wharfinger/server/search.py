"""Searches everything that a server publishes: registered resources, the index, and the sources outside of the index.

Middleware around `resources/read` may refuse a read, or change its text. With such middleware, a hit is shown only if
the caller can read the resource, and the text that the caller gets has the words.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import UNSET

from wharfinger.content.folding import fold
from wharfinger.content.globs import MAX_PATTERN_CHARACTERS, Matcher, compile_glob
from wharfinger.content.match_lines import match_text
from wharfinger.content.search_query import MAX_QUERY_CHARACTERS, Query, query_of
from wharfinger.errors import (
    InternalError,
    InvalidArgument,
    InvalidParams,
    Overloaded,
    PermissionDenied,
    ResourceNotFound,
)
from wharfinger.policy.current import is_restricted, may_read, reads_all_of_source, reads_source
from wharfinger.protocol.request import Request
from wharfinger.server.document_search import SourceReader, search_documents
from wharfinger.server.input.request_state import CannotAsk
from wharfinger.server.nested_requests import read_request
from wharfinger.server.owners import owner_of
from wharfinger.server.search_ranking import FoundHit, is_prose
from wharfinger.source import Hit, Hits, Source, outage_of

if TYPE_CHECKING:
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.services import Services

__all__ = ["Index", "SearchRequest", "fits_type", "not_searched", "search", "source_name"]

MAX_TERM_CHARACTERS = MAX_QUERY_CHARACTERS
"""The maximum number of characters of a query, and of the name of a source or type."""

MAX_OWN_HITS = 10_000
"""The maximum number of hits that are requested from a source's own search if the caller may not read all of them."""
FILTERED_LIMIT_FACTOR = 10
"""If a filter may drop hits, a source is asked for this many times the limit."""


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A query (see `content.search_query`), and filters. An empty filter passes everything.

    `source` is the name or URI of a source; `type` a MIME type, or its part before the slash; `path` a
    pattern with `*`, `?` and `[…]`, or a prefix, of titles (often paths) or URIs.
    """

    query: str
    limit: int = 20
    source: str = ""
    type: str = ""
    path: str = ""

    @property
    def filtered(self) -> bool:
        """Whether hits must pass a filter."""
        return bool(self.source or self.type or self.path)

    @property
    def pattern(self) -> str:
        """`path` as a pattern for a whole title or URI."""
        return self.path if not self.path or any(sign in self.path for sign in "*?[") else self.path + "*"

    @property
    def matches_path(self) -> Matcher:
        """A function that returns whether a title or URI fits `path`."""
        return _compile(self.pattern)

    def includes(self, source: Source) -> bool:
        """Return whether this source is searched."""
        return not self.source or self.source.casefold() in (source.name.casefold(), source.uri.casefold())

    def accepts(self, hit: Hit) -> bool:
        """Return whether a hit passes the filters of type and path."""
        kind = (hit.resource.mime_type or "") if hit.resource is not None else ""
        if isinstance(hit, FoundHit) and hit.document_type:
            kind = hit.document_type
        if self.type and not fits_type(kind, self.type):
            return False
        return not self.path or self.matches_path(hit.title) or self.matches_path(hit.uri)


def fits_type(kind: str, type_filter: str) -> bool:
    """Return whether a MIME type equals the filter, or is of its family, such as `image` or `image/*`."""
    return kind == type_filter or kind.startswith(type_filter.removesuffix("*").removesuffix("/") + "/")


_WINDOW = re.compile(r"[?&]lines=(\d{1,9})-")
"""Finds the first line of a window in its URI."""


@lru_cache(maxsize=16)
def _compile(pattern: str) -> Matcher:
    return compile_glob(pattern, path=False)


class Index(Protocol):
    """Searches sources faster than their own searches do."""

    async def start(self) -> None:
        """Called when the server starts."""
        ...

    async def close(self) -> None:
        """Called when the server ends."""
        ...

    async def search(
        self, owner: str, wanted: SearchRequest, progress: Callable[[float, str], object]
    ) -> tuple[Hits, list[Source]]:
        """Return the hits, and the sources that `wanted` includes but this index does not cover."""
        ...


async def search(
    services: Services,
    resources: Resources,
    request: Request,
    wanted: SearchRequest,
    progress: Callable[[float, str], object],
) -> Hits:
    """Return the best hits; `truncated` says why there may be more.

    Raises:
        InvalidArgument: there is no such source, or the query or a filter is too long.
        Overloaded: no thread became free in time.
    """
    if (
        max(map(len, (wanted.query, wanted.source, wanted.type))) > MAX_TERM_CHARACTERS
        or len(wanted.path) > MAX_PATTERN_CHARACTERS
    ):
        raise InvalidArgument(
            f"Search for at most {MAX_TERM_CHARACTERS:,} characters, with a path of at most {MAX_PATTERN_CHARACTERS:,}."
        )
    readable_sources = [source for source in resources.every_source() if reads_source(source.uri)]
    sources = [source for source in readable_sources if wanted.includes(source)]
    if wanted.source and not sources:
        names = sorted({source_name(source) for source in readable_sources})
        raise InvalidArgument(f"There is no source {wanted.source!r}: there are {', '.join(names) or 'none'}.")
    query = query_of(wanted.query)
    hits = Hits() if wanted.source else Hits(hit for hit in _registered_hits(resources, query) if wanted.accepts(hit))
    owner = owner_of(request)
    if resources.search_index is not None:
        found, sources = await _search_index(resources, resources.search_index, owner, wanted, progress, sources)
        hits += found
        hits.truncated, hits.remark = found.truncated, found.remark
    remaining = wanted.limit - len(hits)
    unreachable: list[Source] = []
    if remaining > 0 and sources:
        source_limit = remaining * FILTERED_LIMIT_FACTOR if wanted.type or wanted.path else remaining
        known = {hit.uri for hit in hits}
        pending = {
            source: asyncio.ensure_future(_search_source(resources, owner, source, wanted.query, source_limit))
            for source in sources
        }
        await _wait_for_all(pending.values())
        unreachable = [source for source, answer in pending.items() if _is_unreachable(answer)]
        answers = [answer.result() for source, answer in pending.items() if source not in unreachable]
        shown = [[hit for hit in answer if hit.uri not in known and wanted.accepts(hit)] for answer in answers]
        hits.truncated = next(
            filter(None, (hits.truncated, *(getattr(answer, "truncated", "") for answer in answers))), ""
        )
        _merge(hits, shown, [getattr(answer, "remark", "") for answer in answers])
        if unreachable:
            hits.truncated = not_searched(unreachable)
    missing = [source for source, _ in resources.missing() if wanted.includes(source) and reads_source(source.uri)]
    if missing:  # also those that the index covers, which may be out of date
        hits.truncated = not_searched({*missing, *unreachable})
    if is_restricted():  # a second check: each search has left out such hits already, so that they displace no others
        hits[:] = [hit for hit in hits if may_read(hit.uri)]
    if resources.may_differ():
        hits = await _readable_hits(services, request, query, hits, wanted.limit)
    del hits[max(0, wanted.limit) :]
    return hits


def _merge(hits: Hits, found: Sequence[Sequence[Hit]], remarks: Sequence[str]) -> None:
    """Add the hits of sources, the best first. Hits for another spelling, or for some of the words, follow."""
    exact = [source_hits for source_hits, remark in zip(found, remarks, strict=True) if not remark]
    other = [source_hits for source_hits, remark in zip(found, remarks, strict=True) if remark]
    if not hits and not any(exact):
        hits.remark = next(filter(None, remarks), "")
    for group in (exact, other):
        hits += sorted(chain.from_iterable(group), key=lambda hit: -hit.score if isinstance(hit, FoundHit) else -1.0)


async def _search_index(
    resources: Resources,
    index: Index,
    owner: str,
    wanted: SearchRequest,
    progress: Callable[[float, str], object],
    sources: list[Source],
) -> tuple[Hits, list[Source]]:
    """Search the index, which reads the sources. Returns its hits, and the sources that it does not cover.

    If this takes longer than the longest patience of a source, the sources are probed. If one of them is down then,
    this returns no hits, and the sources that are not down, to be searched without the index.
    """
    searching = asyncio.ensure_future(index.search(owner, wanted, progress))
    try:
        done, _ = await asyncio.wait((searching,), timeout=max((source.patience for source in sources), default=None))
        if not done:
            await resources.calls.probe(sources)
        if done or not any(source.breaker.down for source in sources):
            return await searching
        return Hits(), [source for source in sources if not source.breaker.down]
    finally:
        searching.cancel()


async def _search_source(resources: Resources, owner: str, source: Source, query: str, limit: int) -> Sequence[Hit]:
    """Search a source by its own search or, if it has none, by its documents, within the source's patience.

    Raises:
        TimeoutError: the search took longer.
    """
    async with asyncio.timeout(source.patience):
        own_hits = await _own_search(resources, owner, source, query, limit)
        if own_hits is not None:
            return own_hits
        reader = SourceReader(asyncio.get_running_loop(), source.patience)
        try:
            hits: Sequence[Hit] = await resources.calls.call(
                source, search_documents, owner, source, query, limit, reader
            )
            return hits
        finally:
            reader.stop()


async def _own_search(resources: Resources, owner: str, source: Source, query: str, limit: int) -> Sequence[Hit] | None:
    """Return the hits of a source's own search that the caller may read; None if the source has no search.

    If the caller may not read all of the source, other hits are left out, and more are requested, up to `MAX_OWN_HITS`,
    until `limit` are left. The remarks of the search are left out too, since they may be about hidden hits.
    """
    reads_all = reads_all_of_source(source.uri)
    source_limit = limit
    while True:
        hits: Sequence[Hit] | None = await resources.calls.call(source, source.search, owner, query, source_limit)
        if hits is None or reads_all:
            return hits
        readable = Hits(hit for hit in hits if may_read(hit.uri))
        if len(readable) >= limit or len(hits) < source_limit or source_limit >= MAX_OWN_HITS:
            return readable
        source_limit = min(10 * source_limit, MAX_OWN_HITS)


async def _wait_for_all(pending: Iterable[asyncio.Future[Any]]) -> None:
    """Wait until all are done. If this wait is cancelled, because the caller gives up, cancel them."""
    waiting = tuple(pending)
    try:
        await asyncio.wait(waiting)
    finally:
        for answer in waiting:
            answer.cancel()


def _is_unreachable(answer: asyncio.Future[Any]) -> bool:
    """Return whether a source cannot be reached or has not answered. Raises any other exception of the source."""
    if answer.cancelled():
        return True
    error = answer.exception()
    if isinstance(error, (InternalError, OSError)) and not isinstance(error, Overloaded):
        return True
    answer.result()
    return False


def source_name(source: Source) -> str:
    """Return the name of a source in searches: its name or, if it has none, its URI."""
    return source.name or source.uri


def not_searched(sources: Iterable[Source]) -> str:
    """Return a sentence that names the sources that could not be reached, and says why."""
    reasons = sorted(outage_of(source) or f"{source_name(source)} cannot be reached now" for source in sources)
    return f"Not searched: {'; '.join(reasons)}."


def _registered_hits(resources: Resources, query: Query) -> Iterator[Hit]:
    """Yield the registered resources whose name, title, description or URI has all the words."""
    for feature in resources.static:
        resource: Any = feature.definition
        if not may_read(resource.uri):
            continue
        text = " ".join(filter(None, (resource.name, resource.title or "", resource.description or "", resource.uri)))
        if query.words and all(query.match_name(text, fold(text))):
            yield Hit(uri=resource.uri, title=resource.title or resource.name, resource=resource)


async def _readable_hits(services: Services, request: Request, query: Query, hits: Hits, limit: int) -> Hits:
    """Return the first `limit` hits that the caller can read, each with a snippet of the text that the caller reads.

    That text must have every word for which the hit was found; otherwise the hit would reveal a word that the caller
    may not see. For the same reason, no other spellings are suggested.
    """
    readable = Hits()
    readable.truncated = hits.truncated
    owner = owner_of(request)
    for hit in hits:
        if len(readable) >= limit:
            break
        text = await _read_text(services, request, hit.uri)
        if text is None:
            continue
        if not hit.snippet:
            readable.append(hit)
        elif (snippet := await services.pool.run(owner, _snippet_of, text, query, hit)) is not None:
            readable.append(msgspec.structs.replace(hit, snippet=snippet))
    return readable


async def _read_text(services: Services, request: Request, uri: str) -> str | None:
    """Return the text that the caller reads at `uri`, all contents joined; None if the caller cannot read it."""
    try:
        contents = (await services.methods.handlers["resources/read"](read_request(request, uri))).contents
    except (ResourceNotFound, InvalidParams, PermissionDenied, PermissionError):
        return None
    except CannotAsk:  # the handler asks its user before it returns anything, so the resource exists
        return ""
    return "\n".join(content.text for content in contents if content.text is not UNSET)


def _snippet_of(text: str, query: Query, hit: Hit) -> str | None:
    """Return the best lines of the text that a caller reads. Slow for large texts.

    None if a word for which the hit was found is neither in this text nor in the name.
    """
    needed = hit.words if isinstance(hit, FoundHit) else tuple(word.text for word in query.words)
    asked = {word.text for word in query.words}
    respelled = [word for text in needed if text not in asked for word in query_of(text).words]
    query = query._replace(words=(*query.words, *respelled))  # the source may have searched for another spelling
    name = f"{hit.title}\n{hit.uri}"
    name_matches = query.match_name(name, fold(name))
    match = match_text([text], query, name_matches, prose=is_prose(hit.title))
    counts = match.counts if match is not None else (0,) * len(name_matches)
    for word, count, name_match in zip(query.words, counts, name_matches, strict=True):
        if word.text in needed and not count and not name_match:
            return None
    if match is None:
        return ""
    window = _WINDOW.search(hit.uri)
    before = int(window[1]) - 1 if window is not None else 0
    snippet = match.passages[0].moved(before).snippet
    return f"{hit.place}\n{snippet}" if isinstance(hit, FoundHit) and hit.place else snippet
