"""Divides another server's list into pages of our own size.

Our key of the next page contains the other server's cursor, the number of resources of its page that were shown, and
digests of the last of them. If that page has changed since, the list continues after the last shown resource that the
page still has, so that none is left out or shown twice. A list that never ends is an error: it returns to an earlier
cursor (detected with Brent's algorithm, which remembers one cursor), or has too many pages.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InternalError
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.upstreams.uri_index import Cursor

__all__ = ["Cursor", "Page", "UpstreamLists"]


Page = tuple[Sequence[t.Resource], Cursor]

MAX_PAGES = 10_000
"""Maximum number of pages of the other server's list."""
MAX_PAGE_ITEMS = 100_000
"""Maximum number of resources in one page of the other server."""
MAX_CURSOR_LENGTH = 16 * 1024
"""Maximum length of the other server's cursor, which is part of our own."""
MAX_FETCHES = 50
"""Maximum number of pages of the other server that are fetched for one of ours."""
MAX_DIGESTS = 8
"""Digests of shown resources in a key. The list continues at the right place if one of these resources still exists."""
SEARCHED_PAGES = 4
"""Number of later pages that are searched for these resources."""
CACHED_PAGES, CACHE_SECONDS = 4, 1.0
"""Number of cached pages and their lifetime, for a list that continues in the middle of a page."""


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """The position at which a list continues: in the page at `cursor`, after `index` resources."""

    cursor: str | None = None
    """The other server's cursor; None for its first page."""
    shown: tuple[str, ...] = ()
    """Digests of the last resources that were shown, the latest first."""
    index: int = 0
    pages: int = 0
    """The number of pages of the other server before this one."""
    earlier: str = ""
    """The digest of an earlier cursor: a list that returns to it never ends."""


class UpstreamLists:
    """Divides the pages that `fetch(cursor)` returns into pages of another size."""

    def __init__(self, name: str, fetch: Callable[[Cursor], Awaitable[Page]]) -> None:
        self._name = name
        self._fetch = fetch
        self._cache: OrderedDict[Cursor, tuple[float, Page]] = OrderedDict()

    def forget(self) -> None:
        """Clear the cache, because the list has changed."""
        self._cache = OrderedDict()  # a new one: a fetch that began before puts its page into the old one

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return at most `limit` resources after the key, and the key of the next page (None if this is the last).

        Raises:
            InvalidArgument: the key does not belong to this list.
            InternalError: the list never ends, or one of its pages cannot be used.
        """
        position = _Position() if after is None else _decode_key(after)
        visible: list[t.Resource] = []
        for _ in range(MAX_FETCHES):
            resources, next_cursor = await self.page_at(UNSET if position.cursor is None else position.cursor)
            begin = _continue_at(resources, position)
            if begin is None:
                position = await self._find_again(position, next_cursor)
                resources, next_cursor = await self.page_at(UNSET if position.cursor is None else position.cursor)
                begin = _continue_at(resources, position) or 0
            end = begin + limit - len(visible)
            visible += resources[begin:end]
            latest = [_digest(resource.uri) for resource in reversed(resources[max(begin, end - MAX_DIGESTS) : end])]
            position = msgspec.structs.replace(position, shown=(*latest, *position.shown)[:MAX_DIGESTS])
            if end < len(resources):
                return visible, _encode_key(msgspec.structs.replace(position, index=end))
            if next_cursor is UNSET:
                return visible, None
            position = self._next(position, next_cursor)
            if len(visible) >= limit:
                break
        return visible, _encode_key(position)

    async def _find_again(self, position: _Position, next_cursor: Cursor) -> _Position:
        """Find the resources that were shown: new ones before them may have moved them to a later page."""
        ahead = position
        for _ in range(SEARCHED_PAGES):
            if next_cursor is UNSET:
                break
            ahead = self._next(ahead, next_cursor)
            resources, next_cursor = await self.page_at(next_cursor)
            moved = msgspec.structs.replace(ahead, shown=position.shown, index=position.index)
            if _continue_at(resources, moved) is not None:
                return moved
        index = max(0, position.index - len(position.shown))  # all of these resources are gone
        return msgspec.structs.replace(position, shown=(), index=index)

    async def page_at(self, cursor: Cursor) -> Page:
        """Return the page at a cursor, at most `CACHE_SECONDS` old."""
        cache = self._cache
        fetched_at, page = cache.get(cursor, (0.0, None))
        if page is None or time.monotonic() - fetched_at > CACHE_SECONDS:
            page = await self._fetch(cursor)
            if len(page[0]) > MAX_PAGE_ITEMS:
                raise InternalError(f"{self._name} has a page of more than {MAX_PAGE_ITEMS:,} resources.")
            cache[cursor] = (time.monotonic(), page)
            cache.move_to_end(cursor)
            if len(cache) > CACHED_PAGES:
                cache.popitem(last=False)
        return page

    def _next(self, position: _Position, cursor: str) -> _Position:
        pages, digest = position.pages + 1, _digest(cursor)
        if (
            cursor == position.cursor
            or digest == position.earlier
            or pages >= MAX_PAGES
            or len(cursor) > MAX_CURSOR_LENGTH
        ):
            raise InternalError(f"The list of {self._name} has no end, or a cursor that cannot be used.")
        # Brent's algorithm remembers the cursors of pages 1, 2, 4, 8, …
        return _Position(cursor, position.shown, 0, pages, digest if pages & (pages - 1) == 0 else position.earlier)


def _continue_at(resources: Sequence[t.Resource], position: _Position) -> int | None:
    """Return the index after the last of the page's resources that were already shown.

    The page may have changed. If it has none of the resources in `position.shown`, returns 0 if the list has not yet
    shown any of this page (`position.index` is 0), and None otherwise. If `shown` is empty, only `index` counts.
    """
    if not position.shown:
        return min(position.index, len(resources))
    if 0 < position.index <= len(resources) and _digest(resources[position.index - 1].uri) == position.shown[0]:
        return position.index
    after = {_digest(resource.uri): number for number, resource in enumerate(resources, 1)}
    return next((after[digest] for digest in position.shown if digest in after), None if position.index else 0)


def _encode_key(position: _Position) -> str:
    return msgspec.json.encode(position).decode()


_decoder = msgspec.json.Decoder(_Position)


def _decode_key(key: str) -> _Position:
    try:
        return _decoder.decode(key.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise bad_cursor() from None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=9).hexdigest()
