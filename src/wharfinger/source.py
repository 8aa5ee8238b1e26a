"""The interface of a source, which provides resources from data such as files, without registering each of them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import HandlerFailed, ResourceNotFound, WharfingerError
from wharfinger.protocol.breaker import Breaker

__all__ = [
    "PROBLEM",
    "VERSION",
    "Changed",
    "Document",
    "DocumentPage",
    "Hit",
    "Hits",
    "MaybeAwaitable",
    "ResourcePage",
    "Source",
    "SourceUnavailable",
    "TextPieces",
    "TextPlace",
    "UnusableSource",
    "UriParameter",
    "document_of",
    "is_quick",
    "outage_of",
    "quick",
    "version_of",
]

T = TypeVar("T")
R = TypeVar("R")

VERSION = "wharfinger/version"
"""The key of the version in `_meta` of a resource and of its contents. The version changes when the content does."""

PROBLEM = "wharfinger/problem"
"""The key in `_meta` of a source's top directory for a sentence that says why its data is missing or not renewed."""

MaybeAwaitable: TypeAlias = T | Awaitable[T]
"""The return type of a source's methods: a value for a plain function, an awaitable for a coroutine function."""

Changed: TypeAlias = Callable[[str | None], None]
"""Called from any thread, with a URI whose content changed, or with None if the list of resources changed."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a search."""

    uri: str
    title: str
    snippet: str = ""
    resource: t.Resource | None = None


class Hits(list[Hit]):
    """The results of a search."""

    truncated: str = ""
    """A sentence that says why there may be more results, or an empty string if there are no more."""
    remark: str = ""
    """A sentence about the words of the query: that one was corrected, or that no result has all of them."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A text that can be searched. If the text changes, so does `version` (see `Source.version`)."""

    uri: str
    title: str
    version: str
    mime_type: str = ""


ResourcePage: TypeAlias = tuple[Sequence[t.Resource], str | None]
"""`(resources, key)`: one page of a list, and the key of the next page or None."""

DocumentPage: TypeAlias = tuple[Sequence[Document], str | None]
"""`(documents, key)`: one page of the documents to search, and the key of the next page or None."""

TextPieces: TypeAlias = Iterable[str] | AsyncIterator[str]
"""A text in pieces, in order."""


class TextPlace(NamedTuple):
    """A part of a document with a URI of its own, such as a page, and its lines in the document's text."""

    uri: str
    """The URI of the part, with a query to which `&lines=1-200` can be added.

    A read of this URI returns the lines from `first` to `last`.
    """
    label: str
    """Its name for people, such as `page 3`."""
    first: int
    """The number of its first line in the text of the document, from 1."""
    last: int
    """The number of its last line."""


F = TypeVar("F", bound=Callable[..., object])

_PATH_CHARACTERS = "-._~!$&'()+,;=:@"
"""Characters that a pattern leaves as they are, besides letters and digits; a path also allows `*` (RFC 3986 §3.3)."""


def quick(method: F) -> F:
    """Mark a plain method that usually returns within a few tenths of a millisecond, such as the read of a local file.

    Waiting calls of the method are then made one after another in one thread, since handing each of them to a thread
    would take longer than the call. While calls are slow, each runs in a thread of its own.
    """
    method.is_quick = True  # type: ignore[attr-defined]
    return method


def is_quick(method: Callable[..., object]) -> bool:
    """Return whether a method is marked as `quick`."""
    return getattr(method, "is_quick", False) is True


class UriParameter(NamedTuple):
    """A parameter in the query of a source's URIs, such as `level` in `?level=error`."""

    example: str
    """A value as it is written in a URI, such as `error`; empty if it is written without one, as in `?text`."""
    meaning: str
    """The result of a read with it, in a few words, such as `entries of this level and above`."""
    types: tuple[str, ...] = ()
    """The MIME types of the resources that it is for; empty if it is for all."""


class UnusableSource(WharfingerError, ValueError):
    """The argument cannot be published as a source; `str()` says why, and what to pass instead."""

    exit_code = 2


class SourceUnavailable(HandlerFailed):
    """None of the source's data can be reached now, or all of it was moved or removed; `str()` says why.

    Any method may raise it, and so may the function that looks for changes (`sources.polling`). Do not raise it for one
    missing resource, and never return an empty list or empty content instead of it. The server then names the source as
    missing in lists and searches, reports its list and its watched resources as changed, and probes it until it is
    back.
    """


QUICK_SECONDS = 0.25
"""After a failure that took less time than this, calls are still allowed: no caller waits long (see `Breaker`)."""


class Source:
    """Provides data as resources. Subclass it, and include it with `server.include()`.

    A method that returns a `MaybeAwaitable` may be a plain function or a coroutine function. A server calls plain
    functions in its thread pool, several at once, so they may block; it awaits coroutine functions. All other methods
    are as they are declared here; `matches`, `watch` and `unwatch` are called on the event loop. Override only the
    methods that the data supports.

    Bound every method: return at most `limit` items, and limit how much it reads. The server limits its time.
    Any method may raise `SourceUnavailable` if all of the data is out of reach.
    """

    name: str = ""
    """One word that names the source in URIs, and in searches that are limited to it."""

    uri: str = ""
    """The URI of its top directory, or an empty string if there is none."""

    location: str = ""
    """The location of the data, for people to read: a path, or an address without its password."""

    root: str = ""
    """The directory or file on this machine that it publishes, for the `roots` of a policy; empty if there is none."""

    noun: str = "source"
    """The kind of source, for messages: folder, bucket, database, server."""

    patience: float = 5.0
    """Seconds that a list, a search of several sources, or a probe waits for this source.

    The code that publishes the source may change it.
    """

    cache_scope: t.CacheScope = "public"
    """`private` if the results depend on the caller."""

    templates: Sequence[t.ResourceTemplate] = ()
    """Shown by `resources/templates/list`; `complete` completes their variables."""

    parameters: Mapping[str, UriParameter] = {}
    """The parameters in the queries of its URIs, by name. The tools show them to models.

    A parameter in the query of a template, such as `level` in `{+path}{?level}`, is for the URIs of that template; any
    other parameter is for all URIs of the source.
    """

    @cached_property
    def breaker(self) -> Breaker:
        """Whether the source answers. The server records its calls here, and skips a source that has just failed."""
        return Breaker(time.monotonic, quick_below=QUICK_SECONDS)

    def placeholder(self, reason: str) -> Sequence[t.Resource]:
        """Return the entry to list while the source is unavailable: its top directory, with the reason as title.

        Returns an empty list if the source has no `uri`.
        """
        entry = t.Resource(uri=self.uri, name=self.name or self.uri, title=reason, meta={PROBLEM: reason})
        return [entry] if self.uri else []

    def probe(self) -> MaybeAwaitable[object]:
        """Check, at little cost, whether the data can be reached. The server calls this until the source is back.

        By default, it requests two resources of the list, because the first may be a directory that needs no request.

        Raises:
            SourceUnavailable: the data cannot be reached.
        """
        return self.page(None, 2)

    def matches(self, uri: str) -> bool:
        """Return whether a URI belongs to this source, even if it has no such resource.

        The server calls this on the event loop, so it must be fast.
        """
        raise NotImplementedError

    def page(self, after: str | None, limit: int) -> MaybeAwaitable[ResourcePage]:
        """Return at most `limit` resources after the key `after` (None: from the beginning), and the next page's key.

        A key is a position that stays valid while the list changes: if a resource is added or removed, no other
        resource is left out or returned twice.

        Raises:
            InvalidArgument: this source did not make the key.
        """
        return [], None

    def stat(self, uri: str) -> MaybeAwaitable[t.Resource]:
        """Return the resource of one URI, with its version in `_meta` under `VERSION`.

        Raises:
            ResourceNotFound: it does not exist, or the caller may not read it: the error is the same.
        """
        raise ResourceNotFound(uri)

    def version(self, uri: str) -> MaybeAwaitable[str]:
        """Return a string that changes with the content, or an empty one if unknown. By default, the one from `stat`.

        Raises:
            ResourceNotFound: it does not exist, or the caller may not read it: the error is the same.
        """
        return _then(self.stat(uri), version_of)

    def read(self, uri: str) -> MaybeAwaitable[t.ReadResourceResult]:
        """Return the content of one URI: all of it, or the first window if it is large.

        Raises:
            ResourceNotFound: it does not exist, or the caller may not read it: the error is the same.
            InvalidArgument: the URI has an impossible window; the message says which windows are possible.
        """
        raise ResourceNotFound(uri)

    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> MaybeAwaitable[ResourcePage]:
        """Return the direct children of a directory, in pages as `page` does.

        Raises:
            ResourceNotFound: there is no such directory.
            InvalidArgument: the key does not belong to this directory.
        """
        raise ResourceNotFound(uri)

    def complete(
        self, template: str, argument: str, value: str, context: Mapping[str, str]
    ) -> MaybeAwaitable[Sequence[str] | t.Completion]:
        """Return the values of a template's variable that fit the `value` typed so far, best first.

        `template` is a URI template, `argument` the name of its variable, and `context` has the values of other
        variables. Return at most 101: clients get 100, and learn from the 101st that there are more.
        """
        return []

    def search(self, query: str, limit: int) -> MaybeAwaitable[Sequence[Hit] | None]:
        """Return at most `limit` hits, best first, as `Hits` with `truncated` if a limit may have left some out.

        Override it only if the data has a search of its own. If it returns None, which is the default, the server
        searches `documents` and `text`. It is not called while a complete search index covers this source.
        """
        return None

    def documents(self, after: str | None, limit: int) -> MaybeAwaitable[DocumentPage]:
        """Return the documents to search, in pages as `page` does. By default, all resources except directories.

        The server looks for the words of a query in their titles and in their text.
        """

        def documents_of(page: ResourcePage) -> DocumentPage:
            resources, key = page
            return [document_of(resource) for resource in resources if resource.mime_type != DIRECTORY], key

        return _then(self.page(after, limit), documents_of)

    def text(self, uri: str) -> MaybeAwaitable[TextPieces]:
        """Return the text of one of `documents` in pieces, from its beginning; no pieces if it is not text.

        Raises:
            ResourceNotFound: it does not exist, or the caller may not read it: the error is the same.
        """

        def text_of(result: t.ReadResourceResult) -> Sequence[str]:
            return [content.text for content in result.contents[:1] if content.text is not UNSET]

        return _then(self.read(uri), text_of)

    def place(self, uri: str, line: int) -> TextPlace | None:
        """Return the part of a document that has this line (from 1) of its `text`. A search links its hits to it.

        Override it if documents have parts with URIs of their own, such as pages. None, the default, lets a search
        link to a window of lines. It is called in a thread, so it may block.
        """
        return None

    def unsearched(self) -> str:
        """Return a sentence that says why a search may miss something now, or an empty string. Must not block.

        Override it if `text` cannot return the text of all documents yet. It is called with each search, so a source
        may then start to load the missing text.
        """
        return ""

    def shown_documents(self) -> Callable[[str], bool] | None:
        """Return a function that takes a URI that the caller may read, and returns whether a search may show it.

        Override it if the title or text of a document depends on other resources, which the caller may not read
        (`policy.current`). None, the default, shows all. The search index calls it in a thread, so it may block.
        """
        return None

    def patterns_below(self, names: Sequence[str]) -> Sequence[str]:
        """Return the policy patterns that match the path made of `names` below `root`, and everything in it.

        By default, it returns one pattern for all URIs of the source if `names` is empty, and none otherwise. A source
        whose URIs contain paths returns `[self.pattern_of(*names)]`.
        """
        return () if names else (self.pattern_of(),)

    def pattern_of(self, *names: str, between: Sequence[str] = ()) -> str:
        """Return the policy pattern for the path made of `between` and `names` below `uri`, and for everything in it.

        `between` has segments of URIs, which are not escaped again; `names` has file names.
        """
        quoted = [quote(os.fsencode(name), safe=_PATH_CHARACTERS) for name in names]
        top = self.uri.replace("*", "%2A")
        return top + ("" if top.endswith("/") else "/") + "/".join((*between, *quoted, "**"))

    def describe(self) -> str:
        """Describe the published data in a few words, such as `120 files, watched by inotify`. Must return in 0.5 s."""
        return ""

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Begin to report changes of a URI, or of the list (None). Called on the event loop; must not block."""

    def unwatch(self, uri: str | None) -> None:
        """Stop reporting changes of a URI, or of the list (None). Called on the event loop; must not block."""

    def batch(self) -> AbstractContextManager[object]:
        """Return a context manager for several `quick` calls that one thread makes one after another.

        Override it to open something once for all of them. All are requested before the context is entered.
        """
        return nullcontext()

    async def start(self) -> None:
        """Called when the server starts."""

    async def close(self) -> None:
        """Called when the server ends."""


def outage_of(source: Source) -> str:
    """Return a clause that says how long a source has been unavailable, and why, or an empty string if it answers."""
    breaker = source.breaker
    if not breaker.down:
        return ""
    uri, seconds = source.uri, breaker.down_seconds()
    # Without its last slash, except for the root directory, `file:///`.
    label = f"{source.noun} {(uri if uri.endswith('//') else uri.removesuffix('/')) or source.name!r}"
    if not breaker.reason:
        return f"{label} has not answered for {_duration(seconds)}"
    return f"{label} has been unavailable for {_duration(seconds)} ({breaker.reason.rstrip('.')})"


def _duration(seconds: float) -> str:
    """Return a duration as text, in hours or minutes if it has at least two of them, otherwise in seconds."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s"


def version_of(resource: t.Resource) -> str:
    """Return the version in a resource's `_meta`, or an empty string if there is none."""
    return "" if resource.meta is UNSET else str(resource.meta.get(VERSION, ""))


def document_of(resource: t.Resource) -> Document:
    """Return the document for a listed resource."""
    return Document(
        uri=resource.uri,
        title=resource.title or resource.name,
        version=version_of(resource),
        mime_type=resource.mime_type or "",
    )


def _then(value: MaybeAwaitable[T], convert: Callable[[T], R]) -> MaybeAwaitable[R]:
    """Convert a value, or the result of an awaitable."""
    if not isinstance(value, Awaitable):
        return convert(value)
    awaitable = cast("Awaitable[T]", value)

    async def converted() -> R:
        return convert(await awaitable)

    return converted()
