"""The contract of a source: something that provides resources from data which is never registered one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger import types as t
from wharfinger.errors import ResourceNotFound

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["Changed", "Hit", "Hits", "Source"]

Changed = Callable[[str | None], None]
"""Told from any thread: a URI whose content changed, or None where the list did."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a search."""

    uri: str
    title: str
    snippet: str = ""
    resource: t.Resource | None = None


class Hits(list[Hit]):
    """What a search found; `cut` says in a sentence why there may be more, and is empty where there is not."""

    cut: str = ""


class Source:
    """Data as resources. Subclass it and `server.include()` it.

    Methods that may block are plain functions, which run in the server's thread pool; they may be coroutine functions
    instead. What a subclass does not define, it does not offer.
    """

    templates: Sequence[t.ResourceTemplate] = ()
    """Shown by `resources/templates/list`; their variables complete by `complete`."""

    def claims(self, uri: str) -> bool:
        """Whether this URI is of this source, existing or not; quick, called on the event loop."""
        raise NotImplementedError

    def page(self, after: str | None, limit: int) -> Any:
        """`(resources, key)`: at most `limit` resources behind the key `after`, and the key of the next page or None.

        Keys are positions that stay valid while the list changes: what was added or removed moves nothing.
        """
        return [], None

    def stat(self, uri: str) -> Any:
        """The `Resource` of one URI.

        Raises:
            ResourceNotFound: missing or forbidden, which look the same.
        """
        raise ResourceNotFound(uri)

    def read(self, uri: str) -> Any:
        """The `ReadResourceResult` of one URI.

        Raises:
            ResourceNotFound: missing or forbidden, which look the same.
        """
        raise ResourceNotFound(uri)

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> Any:
        """What may stand for `argument` of one of `templates`, given `value` so far: a list of strings, best first."""
        return []

    def search(self, query: str, limit: int) -> Any:
        """At most `limit` `Hit`s, best first; as `Hits` where a bound of time or size may have left some out."""
        return []

    def attach(self, uri: str | None, changed: Changed) -> None:
        """The first watcher of a URI came (None: of the list). Called on the event loop; must not block."""

    def detach(self, uri: str | None) -> None:
        """The last watcher of a URI went (None: of the list). Called on the event loop; must not block."""

    async def start(self) -> None:
        """The server starts."""

    async def close(self) -> None:
        """The server ends."""

    def include_into(self, server: Server) -> None:
        """Add this source to a server; `server.include(source)` calls it."""
        server.add_source(self)
