"""Paged lists: first the registered features, then the entries of providers.

A cursor seals two values: the number of the next provider (0: the features), and a key of that provider. The key of the
features is a position (`feature_set`); sources and catalogues choose their own (`pages`). Encoded pages are
cached until a feature changes, if there are no providers, no computed definitions and no policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw

from wharfinger.errors import InvalidParams
from wharfinger.protocol.interfaces import Access
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.request import Request
from wharfinger.server.cursors import Keys, keys_for
from wharfinger.server.feature_scopes import decide_template
from wharfinger.server.features.feature_set import Feature, Features
from wharfinger.server.owners import owner_of

if TYPE_CHECKING:
    from wharfinger.server.services import Services

__all__ = ["DEFAULT_PAGE_SIZE", "PAGE_BYTES", "CallerView", "PagedList", "Provider", "joined_page", "view_of"]

DEFAULT_PAGE_SIZE = 1000
"""The maximum number of entries of a page, unless the server sets `page_size`. Each page costs a round trip."""
MIN_EXAMINED = 256
"""The minimum number of entries that are requested at a time if the caller may not see all of them."""
MAX_EXAMINED = 200_000
"""A page ends, even if it is short, when this many entries of one provider were examined for it."""
PAGE_BYTES = 1024 * 1024
"""The maximum number of encoded bytes in a page without a `page_size`; a single entry may be larger."""
MAX_CACHED_PAGES = 64
"""The maximum number of encoded pages that one list caches."""

F = TypeVar("F", bound=Feature)

Provider = Callable[[str, Any, int], Awaitable[tuple[Sequence[Any], Any]]]
"""Takes the owner of the call, a key or None, and a limit. Returns the definitions after the key, and the next key or
None."""


class CallerView(NamedTuple):
    """The items of a list that one caller sees, and the keys that seal the caller's cursors."""

    shows: Callable[[Any], bool]
    """Returns whether a definition is shown."""
    keys: Keys


def view_of(name: str, access: Access, keys: Keys) -> CallerView:
    """Return the view that a caller with this access has of the list `name`."""
    shows: dict[str, Callable[[Any], bool]] = {
        "tools": lambda tool: access.allows("call", f"tool:{tool.name}"),
        "prompts": lambda prompt: access.allows("prompt", f"prompt:{prompt.name}"),
        "resources": lambda resource: access.allows("read", resource.uri),
        "templates": lambda template: decide_template(access, template.uri_template).allowed,
    }
    return CallerView(shows[name], keys)


class PagedList(Generic[F]):
    """One list of the protocol. `result` builds its result from `(definitions, next_cursor)`.

    Pages have at most `size` entries; if it is None, at most `DEFAULT_PAGE_SIZE` entries and `PAGE_BYTES` bytes.

    Raises:
        ValueError: `size` is below 1.
    """

    def __init__(
        self, name: str, features: Features[F], services: Services, size: int | None, result: Callable[..., Any]
    ) -> None:
        if size is not None and size < 1:
            raise ValueError(f"page_size={size}: a page has at least 1 item.")
        self.name = name
        self.features = features
        self.providers: list[Provider] = []
        """Listed after the features; add to it with `add_provider` and `add_part`."""
        self._parts: list[PagedList[F]] = []
        self.size = DEFAULT_PAGE_SIZE if size is None else size
        self.max_bytes = PAGE_BYTES if size is None else None
        self.definition_of: Callable[[F], Any] = lambda feature: feature.definition
        """Returns the definition to list for a feature."""
        self.full_definition_of: Callable[[F], Any] | None = None
        """Replaces `definition_of` for callers whose rules allow `any_structured_content`; None if it is the same."""
        self.computed = False
        """Whether the definitions are made again for each request. Pages are then not cached."""
        self.ttl_ms, self.cache_scope = services.ttl_ms, services.cache_scope
        self._services = services
        self._result = result
        self._cached_pages: dict[tuple[Any, bool, Keys], tuple[int, Raw]] = {}

    def add_provider(self, provider: Provider) -> None:
        """List the entries of a provider after all others."""
        self.providers.append(provider)

    def add_part(self, listing: PagedList[F]) -> None:
        """List the entries of a mounted server's providers, including providers that it gets later."""
        self._parts.append(listing)
        self.providers.append(listing.page_of_providers)

    async def page_of_providers(self, owner: str, position: Any, limit: int) -> tuple[Sequence[Any], Any]:
        """Return a page of the providers without the features, for the list of the parent server."""
        return await joined_page(self.providers, owner, position, limit)

    def _is_cacheable(self) -> bool:
        """Return whether every change of the list changes the version of its features."""
        return (
            not self.computed
            and len(self.providers) == len(self._parts)
            and all(part._is_cacheable() for part in self._parts)
        )

    async def serve(self, request: Request) -> Any:
        """Handle the method of this list, such as `tools/list`."""
        request.ttl_ms, request.cache_scope = self.ttl_ms, self.cache_scope
        full = self.full_definition_of is not None and request.caller.rules.any_structured_content
        if request.access is not None:
            request.cache_scope = "private"
        return await self.page_for(request, request.params.cursor, full)

    async def page_for(self, request: Request, cursor: Any = UNSET, full: bool = False) -> Any:
        """Return one page of the items that the caller of a request sees; `full` selects `full_definition_of`.

        Raises:
            InvalidParams: the cursor does not belong to this list, or is another caller's.
        """
        if request.access is None:
            return await self.page(cursor, owner_of(request), full)
        keys = keys_for(self._services.keys, request)
        number, key = (0, 0) if cursor is UNSET else self._position(cursor, keys)
        return await self.build(number, key, owner_of(request), full, view_of(self.name, request.access, keys))

    async def page(self, cursor: Any = UNSET, owner: str = "", full: bool = False) -> Any:
        """Return one page. Cached pages are `Raw`, ready to be sent.

        Threads of providers count towards the share of `owner`.

        Raises:
            InvalidParams: the cursor does not belong to this list.
        """
        keys = self._services.keys  # not stored: mounting this server may replace them with its parent's
        number, key = (0, 0) if cursor is UNSET else self._position(cursor, keys)
        if number == 0 and self._is_cacheable():  # an old cursor may name a provider that is gone
            cached = self._cached_pages.get((key, full, keys))
            if cached is not None and cached[0] == self.features.version:
                return cached[1]
            version = self.features.version
            page = Raw(encode(await self.build(0, key, full=full)))
            if len(self._cached_pages) >= MAX_CACHED_PAGES and (key, full, keys) not in self._cached_pages:
                del self._cached_pages[next(iter(self._cached_pages))]
            self._cached_pages[key, full, keys] = (version, page)
            return page
        return await self.build(number, key, owner, full)

    def _position(self, cursor: str, keys: Keys) -> tuple[int, Any]:
        number, key = keys.open(self.name, cursor)
        if number == 0 and isinstance(key, list):  # a position in a set that has parts (`feature_set`)
            if self.features.parts:
                return number, tuple(cast("list[int]", key))
        elif number <= len(self.providers):
            return number, key
        raise InvalidParams("This cursor is not valid any more: list again from the start, without a cursor.")

    async def build(
        self, number: int, after: Any, owner: str = "", full: bool = False, view: CallerView | None = None
    ) -> Any:
        """Build one page, from the position `after` of provider `number` on; 0 is the registered features.

        With a view, it has only the entries that the caller sees, and is filled up with later ones.
        """
        keys = self._services.keys if view is None else view.keys
        shown: list[Any] = []
        used_bytes = 0
        while True:
            start = after
            entries, after = await self._take(number, start, self.size - len(shown), owner, full, view)
            if entries and self.max_bytes is not None:
                encoded_size = len(encode(entries))
                if encoded_size > self.max_bytes - used_bytes:
                    number_that_fits = _count_that_fit(entries, self.max_bytes - used_bytes)
                    if not number_that_fits and shown:
                        return self._result(shown, keys.seal(self.name, [number, start]))
                    # Only the provider knows the key after an entry: call it again with a lower limit.
                    entries, after = await self._take(number, start, max(number_that_fits, 1), owner, full, view)
                    encoded_size = len(encode(entries))
                used_bytes += encoded_size
            shown.extend(entries)
            if after is not None:
                break
            number += 1
            if number > len(self.providers):
                return self._result(shown, UNSET)
            if len(shown) >= self.size:
                break
        return self._result(shown, keys.seal(self.name, [number, after]))

    async def feed_digest(self, update: Callable[[bytes], object], owner: str, view: CallerView) -> None:
        """Pass the encoded entries that a caller sees, at most `MAX_EXAMINED`, to the `update` of a digest."""
        remaining = MAX_EXAMINED
        for number in range(len(self.providers) + 1):
            after: Any = None if number else 0
            while remaining > 0:
                entries, after = await self._take(number, after, DEFAULT_PAGE_SIZE, owner, False, view)
                update(encode(list(entries)))
                remaining -= len(entries)
                if after is None:
                    break

    async def _take(
        self, number: int, after: Any, limit: int, owner: str, full: bool, view: CallerView | None
    ) -> tuple[Sequence[Any], Any]:
        """Return at most `limit` entries that the caller sees, from one provider, and the key of the next page."""
        if view is None:
            return await self._take_any(number, after, limit, owner, full)
        shown: list[Any] = []
        examined = 0
        while True:
            start = after
            entries, after = await self._take_any(number, start, max(limit - len(shown), MIN_EXAMINED), owner, full)
            visible = [index for index, entry in enumerate(entries) if view.shows(entry)]
            if len(shown) + len(visible) > limit:
                # Only the provider knows the key after an entry: call it again with a lower limit.
                last = visible[limit - len(shown) - 1]
                entries, after = await self._take_any(number, start, last + 1, owner, full)
                visible = [index for index, entry in enumerate(entries) if view.shows(entry)]
            shown += [entries[index] for index in visible]
            examined += len(entries)
            if after is None or len(shown) >= limit or examined >= MAX_EXAMINED:
                return shown, after

    async def _take_any(self, number: int, after: Any, limit: int, owner: str, full: bool) -> tuple[Sequence[Any], Any]:
        """Return at most `limit` entries of one provider, hidden ones too, and the key of the next page."""
        if number:
            return await self.providers[number - 1](owner, after, limit)
        definition_of = (self.full_definition_of if full else None) or self.definition_of
        features, position = self.features.page(after, limit)
        if not self.features.parts or self.name not in ("tools", "prompts"):
            return [definition_of(feature) for _, feature in features], position
        # A name may begin with the prefix of a mounted server, which the feature's own definition does not have.
        return [msgspec.structs.replace(definition_of(feature), name=key) for key, feature in features], position


async def joined_page(
    providers: Sequence[Provider], owner: str, position: Any, limit: int
) -> tuple[list[Any], tuple[int, Any] | None]:
    """Return a page of the entries of several providers, one after another, and the position after it.

    A position is the number of a provider and its key. None is the start, and the position after the last page.
    """
    number, key = position or (0, None)
    shown: list[Any] = []
    while number < len(providers) and len(shown) < limit:
        entries, key = await providers[number](owner, key, limit - len(shown))
        shown.extend(entries)
        if key is None:
            number += 1
        elif entries:  # a provider may end a page early, so that its answer stays small
            break
    return shown, (number, key) if number < len(providers) else None


def _count_that_fit(definitions: Sequence[Any], room: int) -> int:
    """Return how many of the first definitions fit in `room` bytes as a JSON list."""
    room -= 1  # two brackets, minus the comma that the last definition does not need
    for number, definition in enumerate(definitions):
        room -= len(encode(definition)) + 1
        if room < 0:
            return number
    return len(definitions)
