"""The contract of a source: something that provides resources from data which is never registered one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import ResourceNotFound, WharfingerError

__all__ = ["VERSION", "Changed", "Document", "Hit", "Hits", "Source", "UnusableSource", "document_of", "version_of"]

VERSION = "wharfinger/version"
"""In `_meta` of a resource and of its contents: equal while the content stays the same."""

Changed = Callable[[str | None], None]
"""Told from any thread: a URI whose content changed, or None where the list did."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a search."""

    uri: str
    title: str
    snippet: str = ""
    resource: t.Resource | None = None


class Hits(list[Hit]):
    """What a search found; `truncated` says in a sentence why there may be more, and is empty where there is not."""

    truncated: str = ""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Something whose text can be searched; with another `version` (see `Source.version`) it has another text."""

    uri: str
    title: str
    version: str
    mime_type: str = ""


class UnusableSource(WharfingerError, ValueError):
    """This cannot be published; `str()` says what was looked at, and what to give instead."""

    exit_code = 2


class Source:
    """Data as resources. Subclass it and `server.include()` it.

    Methods that may block are plain functions, which run in the server's thread pool, several at once; they may be
    coroutine functions instead. What a subclass does not define, it does not offer. Each is bounded: in what it returns
    by its `limit`, in what it reads by its own means, in time by the server's deadline.
    """

    name: str = ""
    """One word: what it is called in URIs and where a search is narrowed to one source."""

    uri: str = ""
    """The URI of its top directory; empty where it has none."""

    location: str = ""
    """Where the data is, for a person: a path, an address without its password."""

    cache_scope: t.CacheScope = "public"
    """`private` where what it answers depends on who asks."""

    templates: Sequence[t.ResourceTemplate] = ()
    """Shown by `resources/templates/list`; their variables complete by `complete`."""

    def matches(self, uri: str) -> bool:
        """Whether this URI is of this source, existing or not; quick, called on the event loop."""
        raise NotImplementedError

    def page(self, after: str | None, limit: int) -> Any:
        """`(resources, key)`: at most `limit` resources behind the key `after`, and the key of the next page or None.

        Keys are positions that stay valid while the list changes: what was added or removed moves nothing.

        Raises:
            InvalidArgument: the key is none of this source.
        """
        return [], None

    def stat(self, uri: str) -> Any:
        """The `Resource` of one URI, with its version in `_meta` (`VERSION`).

        Raises:
            ResourceNotFound: missing or forbidden, which look the same.
        """
        raise ResourceNotFound(uri)

    def version(self, uri: str) -> Any:
        """What tells this content of the URI from any other: equal while it stays the same. Empty where nothing can.

        Raises:
            ResourceNotFound: missing or forbidden, which look the same.
        """
        return version_of(self.stat(uri))

    def read(self, uri: str) -> Any:
        """The `ReadResourceResult` of one URI: whole, or the first window where it is large.

        Raises:
            ResourceNotFound: missing or forbidden, which look the same.
            InvalidArgument: the URI asks for a window that cannot be, which the message mends.
        """
        raise ResourceNotFound(uri)

    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> Any:
        """`(resources, key)` of what is directly in a directory, in pages as those of `page`.

        Raises:
            ResourceNotFound: there is no such directory.
            InvalidArgument: the key is none of this directory.
        """
        raise ResourceNotFound(uri)

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> Any:
        """What may stand for `argument` of one of `templates`, given `value` so far: a list of strings, best first."""
        return []

    def search(self, query: str, limit: int) -> Any:
        """At most `limit` `Hit`s, best first; as `Hits` where a bound of time or size may have left some out.

        Asked where no index is kept, or as long as it is not complete.
        """
        return []

    def documents(self, after: str | None, limit: int) -> Any:
        """`(documents, key)`: what a search looks through, as `Document`s, in pages as those of `page`."""
        resources, key = self.page(after, limit)
        return [document_of(resource) for resource in resources if resource.mime_type != DIRECTORY], key

    def text(self, uri: str) -> Any:
        """The text of one of `documents` in pieces, from its beginning; none where it is not text."""
        content = self.read(uri).contents[0]
        return () if content.text is UNSET else (content.text,)

    def describe(self) -> str:
        """What it publishes, in a few words for a person, such as `120 files, watched by inotify`; within 0.5 s."""
        return ""

    def watch(self, uri: str | None, changed: Changed) -> None:
        """The first watcher of a URI came (None: of the list). Called on the event loop; must not block."""

    def unwatch(self, uri: str | None) -> None:
        """The last watcher of a URI went (None: of the list). Called on the event loop; must not block."""

    async def start(self) -> None:
        """The server starts."""

    async def close(self) -> None:
        """The server ends."""


def version_of(resource: t.Resource) -> str:
    """The version that a resource says it has; empty where it says none."""
    return "" if resource.meta is UNSET else str(resource.meta.get(VERSION, ""))


def document_of(resource: t.Resource) -> Document:
    """A listed resource as something to search."""
    return Document(
        uri=resource.uri,
        title=resource.title or resource.name,
        version=version_of(resource),
        mime_type=resource.mime_type or "",
    )
