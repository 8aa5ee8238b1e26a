"""Another server's list in pages of our size: where it goes on, and that it ends; asks through a function."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.errors import InternalError
from wharfinger.sources.page_keys import bad_cursor

__all__ = ["Cursor", "Page", "UpstreamLists"]

Cursor = str | UnsetType
Page = tuple[Sequence[t.Resource], Cursor]

PAGES = 10_000
"""Pages of one list: behind them it is given up."""
PAGE = 100_000
"""Resources of one page."""
CURSOR = 16 * 1024
"""Characters of a cursor that is not ours: it travels in one of ours."""
ASKED = 50
"""Pages of theirs that one of ours is made of at most."""
MARKS = 8
"""The last resources shown of a page that a key remembers: all but one may go."""
AHEAD = 4
"""Pages in which they are looked for."""
KEPT, FRESH = 4, 1.0
"""Pages that are kept for going on in their middle, and for how many seconds."""


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a list goes on: in the page at `cursor`, of which `index` were shown, the last of them `shown`."""

    cursor: str | None = None
    shown: tuple[str, ...] = ()
    """As digests, the latest first."""
    index: int = 0
    pages: int = 0
    mark: str = ""
    """A cursor of before, as a digest: a list that comes back to it goes round in a circle (Brent's way)."""


class UpstreamLists:
    """Gives the pages of `fetch`, called with a cursor, in any other size."""

    def __init__(self, name: str, fetch: Callable[[Cursor], Awaitable[Page]]) -> None:
        self._name = name
        self._fetch = fetch
        self._kept: OrderedDict[Cursor, tuple[float, Page]] = OrderedDict()

    def forget(self) -> None:
        """The list has changed."""
        self._kept.clear()

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """At most `limit` resources behind the key, and the key of the next page.

        Raises:
            InvalidArgument: the key is none of this list.
            InternalError: the list has no end, or a page that cannot be used.
        """
        place = _Place() if after is None else _read(after)
        shown: list[t.Resource] = []
        for _ in range(ASKED):
            resources, following = await self.at(UNSET if place.cursor is None else place.cursor)
            begin = _behind(resources, place)
            if begin is None:
                place = await self._found_again(place, following)
                resources, following = await self.at(UNSET if place.cursor is None else place.cursor)
                begin = _behind(resources, place) or 0
            end = begin + limit - len(shown)
            shown += resources[begin:end]
            latest = [_digest(resource.uri) for resource in reversed(resources[max(begin, end - MARKS) : end])]
            place = msgspec.structs.replace(place, shown=(*latest, *place.shown)[:MARKS])
            if end < len(resources):
                return shown, _written(msgspec.structs.replace(place, index=end))
            if following is UNSET:
                return shown, None
            place = self._next(place, following)
            if len(shown) >= limit:
                break
        return shown, _written(place)

    async def _found_again(self, place: _Place, following: Cursor) -> _Place:
        """The place where what was shown is now: what came before it may have pushed it to a later page."""
        ahead = place
        for _ in range(AHEAD):
            if following is UNSET:
                break
            ahead = self._next(ahead, following)
            resources, following = await self.at(following)
            if _behind(resources, msgspec.structs.replace(ahead, shown=place.shown, index=place.index)) is not None:
                return msgspec.structs.replace(ahead, shown=place.shown, index=place.index)
        index = max(0, place.index - len(place.shown))  # all of them are gone
        return msgspec.structs.replace(place, shown=(), index=index)

    async def at(self, cursor: Cursor) -> Page:
        """The page at a cursor, which may be one of a moment ago."""
        at, page = self._kept.get(cursor, (0.0, None))
        if page is None or time.monotonic() - at > FRESH:
            page = await self._fetch(cursor)
            if len(page[0]) > PAGE:
                raise InternalError(f"{self._name} has a page of more than {PAGE:,} resources.")
            self._kept[cursor] = (time.monotonic(), page)
            self._kept.move_to_end(cursor)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return page

    def _next(self, place: _Place, cursor: str) -> _Place:
        pages, found = place.pages + 1, _digest(cursor)
        if cursor == place.cursor or found == place.mark or pages >= PAGES or len(cursor) > CURSOR:
            raise InternalError(f"The list of {self._name} has no end, or a cursor that cannot be used.")
        return _Place(cursor, place.shown, 0, pages, found if pages & (pages - 1) == 0 else place.mark)


def _behind(resources: Sequence[t.Resource], place: _Place) -> int | None:
    """Where to go on in a page that may have changed: behind the last shown that is still there, wherever it is now.

    None: nothing of what was shown is there.
    """
    if not place.shown:
        return min(place.index, len(resources))
    if 0 < place.index <= len(resources) and _digest(resources[place.index - 1].uri) == place.shown[0]:
        return place.index
    places = {_digest(resource.uri): number for number, resource in enumerate(resources, 1)}
    return next((places[mark] for mark in place.shown if mark in places), None if place.index else 0)


def _written(place: _Place) -> str:
    return msgspec.json.encode(place).decode()


_decode = msgspec.json.Decoder(_Place).decode


def _read(key: str) -> _Place:
    try:
        return _decode(key.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise bad_cursor() from None


def _digest(cursor: str) -> str:
    return hashlib.blake2b(cursor.encode(errors="replace"), digest_size=9).hexdigest()
