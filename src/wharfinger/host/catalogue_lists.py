"""The list of one server in a catalogue: read page by page within bounds, kept in the order of the URIs, and filtered.

Because the URIs are in order, everything below a folder is one slice of the list. The children of a folder, and how
many entries each has below it, are found by bisection, and no tree is kept. A list never changes, so threads may
read it; after a change of the server's list, a new one is made.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.content.globs import MAX_PATTERN_CHARACTERS, compile_glob
from wharfinger.content.text import many, printable
from wharfinger.errors import InvalidArgument, MethodNotFound, RequestTimeout, WharfingerError
from wharfinger.server.search import fits_type
from wharfinger.source import version_of
from wharfinger.upstreams.uri_index import UriIndex

__all__ = [
    "MAX_ENTRIES",
    "MAX_ENTRY_BYTES",
    "MAX_URI_CHARACTERS",
    "CatalogueEntry",
    "CatalogueFilter",
    "CatalogueFilters",
    "ServerList",
    "TreeNode",
    "TreePage",
    "modified_at",
    "read_server_list",
]

MAX_ENTRIES = 250_000
"""Maximum number of resources, and of templates, of one server that a catalogue keeps."""
MAX_PAGES = 10_000
"""Maximum number of pages of one list that are read, since a server may send empty pages without end."""
LIST_SECONDS = 120.0
"""Longest time for reading the resources of a server, and again for its templates. Entries that came in time are
kept."""
MAX_URI_CHARACTERS = 8_192
"""An entry with a longer URI is left out."""
MAX_ENTRY_BYTES = 16 << 10
"""Maximum size of an entry as JSON. Of a larger one, only the URI, the beginning of the name, the type and the size are
kept."""
MAX_NAME_CHARACTERS = 500

Audience = Literal["user", "assistant"]


class CatalogueEntry(NamedTuple):
    """A resource, or a template of resources, of one server."""

    server: str
    """The name of the server in the host."""
    resource: t.Resource | t.ResourceTemplate

    @property
    def uri(self) -> str:
        """The URI, or the template of the URIs."""
        return _uri(self.resource)

    @property
    def is_template(self) -> bool:
        """Whether it is a template."""
        return isinstance(self.resource, t.ResourceTemplate)

    @property
    def title(self) -> str:
        """The title, or else the name."""
        return self.resource.title or self.resource.name

    @property
    def mime_type(self) -> str:
        """The MIME type, or an empty string if the server does not give it."""
        return self.resource.mime_type or ""

    @property
    def version(self) -> str:
        """The version that the server lists, or an empty string. Wharfinger's servers list one."""
        return version_of(self.resource) if isinstance(self.resource, t.Resource) else ""

    @property
    def audience(self) -> Sequence[str]:
        """The roles that it is for; empty for everyone."""
        annotations = self.resource.annotations
        return () if annotations is UNSET else annotations.audience or ()

    @property
    def priority(self) -> float | None:
        """Its priority from 0 (optional) to 1 (required); None if the server gives none."""
        annotations = self.resource.annotations
        priority = UNSET if annotations is UNSET else annotations.priority
        return None if priority is UNSET else min(1.0, max(0.0, priority))


class CatalogueFilters(TypedDict, total=False):
    """The filters of a catalogue's methods; `CatalogueFilter` describes them."""

    server: str
    type: str
    audience: Audience | None
    min_priority: float | None
    since: datetime | str | None
    before: datetime | str | None
    min_size: int | None
    max_size: int | None
    pattern: str
    templates: bool | None


class CatalogueFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to return. An entry must pass all filters that are set.

    An entry without an audience is for everyone, so it passes any `audience`. An entry without another property, such
    as a size, does not pass the filter of that property.
    """

    server: str = ""
    """The name of a server."""
    type: str = ""
    """A MIME type, or the part of one before the slash, such as `image`."""
    audience: Audience | None = None
    min_priority: float | None = None
    since: datetime | str | None = None
    """Changed at this time or later: a datetime, or ISO 8601. A time without a zone is UTC."""
    before: datetime | str | None = None
    """Changed before this time."""
    min_size: int | None = None
    """Bytes."""
    max_size: int | None = None
    pattern: str = ""
    """A pattern with `*`, `?` and `[…]`, or a prefix, of titles (which are often paths) or URIs."""
    templates: bool | None = None
    """True for templates only, False for resources only."""

    def test(self) -> Callable[[CatalogueEntry], bool]:
        """Return a function that returns whether an entry passes all filters except `server`.

        Raises:
            InvalidArgument: a time or the pattern cannot be used.
        """
        tests = list(self._tests())
        return lambda entry: all(test(entry) for test in tests)

    def _tests(self) -> Iterator[Callable[[CatalogueEntry], bool]]:
        if self.templates is not None:
            yield lambda entry: entry.is_template is self.templates
        if self.type:
            yield lambda entry: fits_type(entry.mime_type, self.type)
        if self.audience is not None:
            yield lambda entry: not entry.audience or self.audience in entry.audience
        if (least := self.min_priority) is not None:
            yield lambda entry: entry.priority is not None and entry.priority >= least
        if (begin := _time(self.since, "since")) is not None:
            yield lambda entry: (at := modified_at(entry)) is not None and at >= begin
        if (end := _time(self.before, "before")) is not None:
            yield lambda entry: (at := modified_at(entry)) is not None and at < end
        if self.min_size is not None or self.max_size is not None:
            least_size, most_size = self.min_size or 0, sys.maxsize if self.max_size is None else self.max_size
            yield lambda entry: (size := _size(entry)) is not None and least_size <= size <= most_size
        if self.pattern:
            pattern = self.pattern
            if len(pattern) > MAX_PATTERN_CHARACTERS:
                raise InvalidArgument(
                    f"The pattern has {len(pattern):,} characters: give at most {MAX_PATTERN_CHARACTERS:,}."
                )
            matches = compile_glob(pattern if any(sign in pattern for sign in "*?[") else pattern + "*", path=False)
            yield lambda entry: matches(entry.title) or matches(entry.uri)


def _time(value: datetime | str | None, name: str) -> datetime | None:
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidArgument(
            f"{name}={printable(str(value))!r} is not a time: write 2026-11-22 or 2026-11-22T09:30:00Z."
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def modified_at(entry: CatalogueEntry) -> datetime | None:
    """Return when an entry changed last; None if the server gives no time, or one that is not ISO 8601."""
    annotations = entry.resource.annotations
    if annotations is UNSET or not annotations.last_modified:
        return None
    try:
        time = datetime.fromisoformat(annotations.last_modified)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _size(entry: CatalogueEntry) -> int | None:
    size = entry.resource.size if isinstance(entry.resource, t.Resource) else UNSET
    return None if size is UNSET else size


class TreeNode(NamedTuple):
    """A folder, a resource, or both."""

    server: str
    path: str
    """The beginning of the URIs of its children: pass it as `under` to get them. Empty for a server."""
    name: str
    """The rest of the URI after the path of the folder above. A chain of single folders is one node."""
    entries: tuple[CatalogueEntry, ...]
    """The entries with this URI, with or without a final slash; empty for a folder that the server does not list."""
    below: int
    """The number of entries below it; 0 for a leaf."""


class TreePage(NamedTuple):
    """Some nodes of a folder, in the order of their URIs."""

    nodes: list[TreeNode]
    after: str
    """Pass it to get the next nodes. Empty after the last one."""


class ServerList:
    """The resources and templates that a server listed. It is not changed after it was made."""

    def __init__(
        self,
        server: str,
        resources: Mapping[str, t.Resource],
        templates: Mapping[str, t.ResourceTemplate],
        notes: Sequence[str] = (),
        *,
        failed: bool = False,
    ) -> None:
        self.server = server
        self.resources = resources
        self.templates = templates
        self.notes = tuple(notes)
        """Sentences about omitted entries."""
        self.failed = failed
        """Whether a page could not be read, which may succeed later."""
        self.keys = sorted(resources.keys() | templates.keys()) if templates else sorted(resources)
        """The URIs and templates, in order."""
        self._uris: UriIndex | None = None

    def at(self, key: str) -> tuple[CatalogueEntry, ...]:
        """Return the entries with this URI or template: usually one, and an empty tuple if there is none."""
        candidates = (self.resources.get(key), self.templates.get(key))
        return tuple(CatalogueEntry(self.server, resource) for resource in candidates if resource is not None)

    def entries(self, after: str = "") -> Iterator[CatalogueEntry]:
        """Yield the entries in the order of their URIs, beginning with the first one after the URI `after`."""
        begin = bisect_right(self.keys, after) if after else 0
        for at in range(begin, len(self.keys)):
            yield from self.at(self.keys[at])

    def has_template_for(self, uri: str) -> bool:
        """Return whether a template of the server fits a URI."""
        if self._uris is None:
            self._uris = UriIndex()
            self._uris.set_templates(list(self.templates.values()))
        return self._uris.covers(uri)

    def children(self, under: str, after: str, limit: int) -> TreePage:
        """Return the nodes of a folder, at most `limit`. Each node takes a few bisections."""
        keys, index = self.keys, bisect_left(self.keys, after or under)
        nodes: list[TreeNode] = []
        while index < len(keys) and keys[index].startswith(under):
            if len(nodes) == limit:
                return TreePage(nodes, keys[index])
            key = keys[index]
            end = _segment_end(key, under)
            if not under and self._is_mixed(key):
                end = key.index(":") + 1  # the folder is the scheme, which has all its URIs
            if end:  # the key lies in a folder, which may also be a listed resource
                folder = key[:end]
                stop = _end_of(keys, folder, index)
                listed = folder.endswith("/") and folder[:-1] != under and self.at(folder[:-1])
                if not listed:  # otherwise the node of the resource with this URI has included the folder already
                    nodes.append(self._folder(folder, under, index, stop))
                index = stop
                continue
            if key != under:  # the key is a resource or template, which may also be a folder
                folder, entries, below = key + "/", self.at(key), 0
                if _segment_end(folder, under):  # otherwise the key ends in a query or a variable: nothing is below it
                    begin = bisect_left(keys, folder, index)
                    own = self.at(folder)
                    below = _end_of(keys, folder, begin) - begin - bool(own)
                    entries += own
                nodes.append(TreeNode(self.server, folder if below else key, key[len(under) :], entries, below))
            index += 1
        return TreePage(nodes, "")

    def _is_mixed(self, key: str) -> bool:
        """Return whether a key has `//` after its scheme, but another key with the same scheme has not."""
        scheme, colon, rest = key.partition(":")
        if not colon or not rest.startswith("//"):
            return False
        keys, folder, slashes = self.keys, f"{scheme}:", f"{scheme}://"
        first, stop = bisect_left(keys, folder), _end_of(keys, folder, 0)
        return bisect_left(keys, slashes) > first or _end_of(keys, slashes, 0) < stop

    def _folder(self, folder: str, under: str, begin: int, stop: int) -> TreeNode:
        """Return the node of a folder, joined with the chain of folders that are its only content."""
        keys = self.keys
        common = os.path.commonprefix([keys[begin], keys[stop - 1]])  # noqa: RUF071  # by character, as URIs are
        path_end = _PATH_ENDS.search(common, len(folder))
        last_slash = common.rfind("/", len(folder), path_end.start() if path_end is not None else len(common))
        folder = common[: last_slash + 1] or folder
        own = self.at(folder)
        name = folder[len(under) :].removesuffix("/") if under else folder
        return TreeNode(self.server, folder, name, own, stop - begin - bool(own))

    def difference(self, old: ServerList | None) -> tuple[set[str], set[str], set[str]]:
        """Return the URIs and templates that were added, removed and changed since an older list."""
        if old is None:
            return set(self.keys), set(), set()
        added, removed, changed = set[str](), set[str](), set[str]()
        lists: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = (
            (self.resources, old.resources),
            (self.templates, old.templates),
        )
        for current, earlier in lists:
            added |= current.keys() - earlier.keys()
            removed |= earlier.keys() - current.keys()
            changed |= {key for key, item in current.items() if key in earlier and earlier[key] != item}
        return added, removed, changed


_PATH_ENDS = re.compile(r"[?#{]")


def _segment_end(key: str, under: str) -> int:
    """Return the index after the first segment below `under` and its slash; 0 if there is no slash after it.

    Without a slash, nothing is below the segment. The scheme of a URI without `//` is a segment, too.
    """
    if not under:
        scheme, mark, _ = key.partition(":")
        if not mark:
            return 0
        begin = len(scheme) + (3 if key.startswith("://", len(scheme)) else 1)
        if begin == len(scheme) + 1:
            return begin
    else:
        begin = len(under)
    stop = _PATH_ENDS.search(key, begin)
    return key.find("/", begin, stop.start() if stop is not None else len(key)) + 1


def _end_of(keys: Sequence[str], folder: str, begin: int) -> int:
    """Return the index after the last key that begins with `folder`."""
    return bisect_left(keys, folder[:-1] + chr(ord(folder[-1]) + 1), begin)


def _uri(item: t.Resource | t.ResourceTemplate) -> str:
    return item.uri if isinstance(item, t.Resource) else item.uri_template


# Reading a list


class _Reader:
    """Collects one list of a server, within the bounds."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.duplicates = self.unusable = self.shortened = 0
        self.incomplete = ""
        """Why the list is not complete, or an empty string."""
        self.failed = False
        """Whether a page could not be read."""
        self._annotations: dict[tuple[Any, ...], t.Annotations] = {}

    def add(self, items: Sequence[t.Resource | t.ResourceTemplate]) -> None:
        for item in items:
            if len(self.found) == MAX_ENTRIES:
                self.incomplete = f"only the first {MAX_ENTRIES:,} are kept"
                return
            uri = _uri(item)
            if not uri or len(uri) > MAX_URI_CHARACTERS or not uri.isprintable():
                self.unusable += 1
            elif uri in self.found:
                self.duplicates += 1
            else:
                self.found[uri] = self._compact(item)

    def _compact(self, item: Any) -> Any:
        """Return an item within the bounds. Items with equal types or annotations share the objects."""
        if len(msgspec.json.encode(item)) > MAX_ENTRY_BYTES:
            self.shortened += 1
            fields: dict[str, Any] = {"name": item.name[:MAX_NAME_CHARACTERS]}
            if item.mime_type and len(item.mime_type) <= MAX_NAME_CHARACTERS:
                fields["mime_type"] = item.mime_type
            if isinstance(item, t.ResourceTemplate):
                return t.ResourceTemplate(uri_template=item.uri_template, **fields)
            return t.Resource(uri=item.uri, size=item.size, **fields)
        if item.mime_type:
            item.mime_type = sys.intern(item.mime_type)
        if item.title == item.name:
            item.title = item.name  # one string in memory instead of two
        if (annotations := item.annotations) is not UNSET:
            audience = annotations.audience if annotations.audience is UNSET else tuple(annotations.audience)
            item.annotations = self._annotations.setdefault(
                (audience, annotations.priority, annotations.last_modified), annotations
            )
        return item

    def notes(self, noun: str) -> Iterator[str]:
        if self.incomplete:
            yield f"The list of {noun}s is not complete: {self.incomplete}."
        if self.unusable:
            yield f"Left out: {many(self.unusable, noun)} with a URI that is empty, unprintable or too long."
        if self.duplicates:
            yield f"Left out: {many(self.duplicates, noun)} with a URI that was listed before."
        if self.shortened:
            yield f"Shortened: {many(self.shortened, noun)} with more than {MAX_ENTRY_BYTES >> 10} KiB."


async def read_server_list(server: str, client: Client, last: ServerList | None = None) -> ServerList:
    """Read the whole list of a server, page by page. Its notes say what was left out.

    If a page fails, the entries of the pages before are returned. If the first page of the templates fails, the
    templates of the `last` list are used.

    Raises:
        WharfingerError: the first page of the resources failed.
    """
    if client.capabilities.resources is UNSET:
        return ServerList(server, {}, {})
    resources, templates = _Reader(), _Reader()
    await _read_pages(resources, client.list_resources(bypass_cache=True).pages())
    template_notes: list[str] = []
    try:
        await _read_pages(templates, client.list_resource_templates(bypass_cache=True).pages())
    except MethodNotFound:
        pass  # a server with resources need not have templates
    except WharfingerError as error:
        used = "" if last is None else " The last ones are used."
        template_notes.append(f"The templates cannot be read ({printable(str(error), 200)}).{used}")
        templates.found = {} if last is None else dict(last.templates)
        templates.failed = True
    notes = [*resources.notes("resource"), *templates.notes("template"), *template_notes]
    failed = resources.failed or templates.failed
    return ServerList(server, resources.found, templates.found, notes, failed=failed)


async def _read_pages(reader: _Reader, pages: Any) -> None:
    number = 0
    try:
        async with asyncio.timeout(LIST_SECONDS):
            async for page in pages:
                reader.add(page)
                number += 1
                if reader.incomplete:
                    return
                if number == MAX_PAGES:
                    reader.incomplete = f"only the first {MAX_PAGES:,} pages are read"
                    return
    except WharfingerError as error:  # also a RequestTimeout, which is a TimeoutError too
        if not number:
            raise
        reader.incomplete, reader.failed = f"a page failed ({printable(str(error), 200)})", True
    except TimeoutError:
        if not number:
            raise RequestTimeout(f"There was no first page within {LIST_SECONDS:g} s.") from None
        reader.incomplete, reader.failed = f"it was not read within {LIST_SECONDS:g} s", True
