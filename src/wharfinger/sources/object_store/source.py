"""A store of objects as live resources: listed in pages, read in windows, completed, searched and watched."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import ResourceNotFound
from wharfinger.policy.current import may_read, readable_uris, reads_all_below
from wharfinger.source import VERSION, Document, Source
from wharfinger.sources.directories import MAX_CHILDREN, listing_text, modified_annotations, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.folder.file_uri import UnreadableUri, quote, split_path
from wharfinger.sources.name_completion import MAX_COMPLETIONS
from wharfinger.sources.object_store.object_store_contract import (
    ObjectChanged,
    ObjectInfo,
    ObjectStore,
    StoreFailed,
    UnreadableObject,
    digest_of_keys,
    is_served,
    is_valid_key,
    with_directories,
)
from wharfinger.sources.object_store.read_ahead import ReadAhead
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.polling import Polling
from wharfinger.sources.ttl import ttl_ms
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.text_pieces import text_pieces
from wharfinger.sources.windows.window import (
    PARAMETERS,
    LineIndexes,
    parse_window,
    read_content,
    split_query,
)

__all__ = ["Objects"]

MAX_WATCHED_OBJECTS = 10_000
"""Maximum number of objects that are compared to find changes of the list. Changes of later ones are not reported."""
POLL_PAGE_OBJECTS = 1_000
"""Maximum number of objects per request of a poll."""
FEW_WATCHED = MAX_WATCHED_OBJECTS // POLL_PAGE_OBJECTS
"""Up to this many watched URIs are requested one by one: a listing may take as many requests."""
PATIENCE_SECONDS = 3.0
"""Longest wait for this store in a list of several sources."""
MAX_REQUESTS = 10
"""Maximum number of requests to the store for one page. Several are needed if many names cannot be served, or may
not be read."""
READ_ATTEMPTS = 3
"""Maximum number of attempts to read an object that changes during the read."""
KEY_PREFIX = "k:"
"""The key of a page is this prefix with the key of the object after which the page begins."""
MAX_KEY_CHARACTERS = 4_096
"""Maximum number of characters in the key of a page."""

MAX_TEXT_BYTES = 8 << 20
"""Maximum size of an object whose text is searched."""
_NO_TEXT = ("image/p", "image/j", "image/g", "image/w", "audio/", "video/", "font/")
"""Beginnings of the types whose text is not searched. SVG is text."""


class Objects(Watched[Polling], Source):
    """The source that `objects()` returns. Its methods may be called from several threads at once."""

    parameters = PARAMETERS

    def __init__(self, store: ObjectStore, *, uri: str, name: str, title: str) -> None:
        self.store = store
        self.name = name
        self.title = title
        self.uri = uri
        """Ends with a slash, like the URI of every directory: an object may have the same name."""
        self.location = store.location
        self.template = f"{uri}{{+path}}"
        self.templates = [
            t.ResourceTemplate(
                uri_template=self.template,
                name=title,
                title=f"Any object or directory in {title}",
                description="Key of an object with percent-encoded parts, or of a directory with a slash at its end.",
            )
        ]
        self._lines = LineIndexes()
        self.noun = store.noun
        self.patience = PATIENCE_SECONDS
        self._listed_versions: dict[str, str] | None = None
        """The versions of the first objects, listed in this round of polling. None if the round did not need them."""
        self._watches = Polling(
            f"objects {title}",
            self._look,
            every=store.poll_seconds,
            sleep_ratio=store.sleep_ratio,
            prepare=self._prepare,
        )

    def __repr__(self) -> str:
        return f"<Objects {self.location}>"

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to this store, whether or not it exists."""
        return uri.startswith(self.uri) or uri.partition("?")[0] == self.uri[:-1]

    def uri_of(self, key: str) -> str:
        """Return the URI of an object or directory. The key of a directory ends with a slash."""
        return self.uri + "/".join([quote(part) for part in key.split("/")])

    def _locate(self, uri: str) -> str:
        """Return the key of a URI without query. It is empty for the top directory."""
        if uri in (self.uri, self.uri[:-1]):
            return ""
        try:
            parts, ends_with_slash = split_path(uri[len(self.uri) :])
        except UnreadableUri:
            raise ResourceNotFound(uri) from None
        if not parts or not uri.startswith(self.uri):
            raise ResourceNotFound(uri)
        key = "/".join(parts)
        if not is_valid_key(key):
            raise ResourceNotFound(uri)
        return key + ("/" if ends_with_slash else "")

    # Listing

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List at most `limit` objects and directories by their keys. Returns them and the key of the next page."""
        position = _position(after)
        if not reads_all_below(self.uri):
            return self._readable_page(position, limit, is_first=after is None)
        resources = [self._resource(ObjectInfo(""))] if after is None else []
        for _ in range(MAX_REQUESTS):
            if len(resources) >= limit:
                return resources, KEY_PREFIX + position
            objects, more = self.store.page(position, max(1, limit - len(resources)))
            for info in with_directories(objects, position):
                if len(resources) >= limit:
                    return resources, KEY_PREFIX + position
                if is_served(info.key):
                    resources.append(self._resource(info))
                position = info.key
            if not more:
                return resources, None
            position = objects[-1].key if objects else position
        return resources, KEY_PREFIX + position

    def _readable_page(self, position: str, limit: int, *, is_first: bool) -> tuple[list[t.Resource], str | None]:
        """Return a page as `page` does, for a caller who may not read everything.

        A directory is listed before the first object in it that the caller may read.
        """
        reads = readable_uris()
        resources = [self._resource(ObjectInfo(""))] if is_first and may_read(self.uri) else []
        last_key = position
        for _ in range(MAX_REQUESTS):
            objects, more = self.store.page(position, MAX_CHILDREN)
            visible = [info for info in objects if is_served(info.key) and reads(self.uri_of(info.key))]
            for info in with_directories(visible, last_key):
                if reads(self.uri_of(info.key)):
                    if len(resources) == limit:  # only now: a key says that there is more that the caller may read
                        return resources, KEY_PREFIX + last_key
                    resources.append(self._resource(info))
                last_key = info.key
            if not more:
                return resources, None
            position = objects[-1].key if objects else position
        return resources, KEY_PREFIX + position

    def probe(self) -> object:
        """Request one object.

        Raises:
            StoreUnavailable: the store does not answer, or its bucket or file no longer exists.
        """
        return self.store.page("", 1)

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """List the direct entries of a directory, in the order of their keys.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        base, query = split_query(uri)
        directory = self._directory(base)
        if query or directory is None:
            raise ResourceNotFound(uri)
        infos, more = self._directory_page(directory, _position(after), limit)
        return [self._resource(info) for info in infos], KEY_PREFIX + infos[-1].key if more and infos else None

    def _directory_page(self, directory: str, after: str, limit: int, begin: str = "") -> tuple[list[ObjectInfo], bool]:
        """List the entries of a directory whose keys a URI can contain, and return whether there are more."""
        entries: list[ObjectInfo] = []
        if not reads_all_below(self.uri_of(directory)):
            return self._readable_directory_page(directory, after, limit, begin)
        for _ in range(MAX_REQUESTS):
            infos, more = self.store.directory_page(directory, begin, after, limit - len(entries))
            entries += [info for info in infos if is_served(info.key)]
            if not more or not infos or len(entries) == limit:
                return entries, more
            after = infos[-1].key
        return entries, True

    def _readable_directory_page(
        self, directory: str, after: str, limit: int, begin: str
    ) -> tuple[list[ObjectInfo], bool]:
        """List the entries of a directory that the caller may read, and return whether there are more of them."""
        reads = readable_uris()
        entries: list[ObjectInfo] = []
        for _ in range(MAX_REQUESTS):
            infos, more = self.store.directory_page(directory, begin, after, MAX_CHILDREN)
            entries += [info for info in infos if is_served(info.key) and reads(self.uri_of(info.key))]
            if not more or not infos or len(entries) > limit:
                return entries[:limit], len(entries) > limit
            after = infos[-1].key
        return entries[:limit], True

    def _directory(self, uri: str) -> str | None:
        """Return the key of the directory with this URI, or None if it does not exist."""
        key = self._locate(uri)
        directory = key if not key or key.endswith("/") else key + "/"
        if reads_all_below(self.uri_of(directory)):
            entries, _ = self.store.directory_page(directory, "", "", 1)
        else:
            entries, _ = self._readable_directory_page(directory, "", 1, "")
        exists = not key or entries or self.store.info(directory)
        return directory if exists else None

    def _resource(self, info: ObjectInfo, uri: str = "") -> t.Resource:
        """Return an object or directory as a resource. Its type is guessed from its name."""
        path = shown(info.key.rstrip("/")) or self.title
        name = path.rpartition("/")[2]
        return t.Resource(
            uri=uri or self.uri_of(info.key),
            name=name,
            title=path,
            mime_type=mime.DIRECTORY if info.is_directory else mime.by_name(name) or UNSET,
            size=UNSET if info.is_directory or info.size is None else info.size,
            annotations=modified_annotations(info.modified),
            meta={VERSION: info.version} if info.version else UNSET,
        )

    def stat(self, uri: str) -> t.Resource:
        """Describe a URI as a resource.

        Raises:
            ResourceNotFound: it does not exist, or is not served.
            InvalidArgument: the query of the URI asks for no valid window.
            StoreFailed: the store does not answer.
        """
        base, query = split_query(uri)
        parse_window(query)
        info = self._object(base)
        if info is None:
            directory = self._directory(base)
            if query or directory is None:
                raise ResourceNotFound(uri)
            info = ObjectInfo(directory, version=self._directory_version(directory))
        if reads_all_below(self.uri):  # a watch compares unfiltered versions
            self._watches.record(uri, info.version)
        return self._resource(info, uri)

    def _object(self, uri: str) -> ObjectInfo | None:
        key = self._locate(uri)
        return self.store.info(key) if key and not key.endswith("/") else None

    # Reading

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read an object, completely or in windows, or list a directory, with one more content for each child.

        Raises:
            ResourceNotFound: it does not exist, or is not served.
            InvalidArgument: there is no such window, or the object cannot be read. The message says why.
            StoreFailed: the store does not answer.
        """
        base, query = split_query(uri)
        window = parse_window(query)
        for _ in range(READ_ATTEMPTS):
            info = self._object(base)
            if info is None:
                directory = self._directory(base)
                if query or directory is None:
                    raise ResourceNotFound(uri)
                return self._read_directory(uri, directory)
            name, meta = info.key.rpartition("/")[2], {VERSION: info.version} if info.version else {}
            try:
                content = ReadAhead(self.store.content(info))
                lines = self._lines.of(info.key, info.version, content)
                contents = read_content(uri, base, name, content, window, meta=meta, lines=lines)
            except ObjectChanged:
                continue
            return t.ReadResourceResult(contents=contents, ttl_ms=ttl_ms(info.modified), cache_scope=self.cache_scope)
        raise StoreFailed(f"{base} changes faster than it can be read: try again later.")

    def _read_directory(self, uri: str, directory: str) -> t.ReadResourceResult:
        infos, more = self._directory_page(directory, "", MAX_CHILDREN)
        children = [self._resource(info) for info in infos]
        folders = sum(info.is_directory for info in infos)
        counted = f"{many(folders, 'folder')} and {many(len(infos) - folders, 'object')}"
        where = shown(f"{self.title}/{directory}")
        text = listing_text(where, f"more than {counted}" if more else counted, children, self.template if more else "")
        meta: dict[str, object] = {VERSION: digest_of_keys(infos)}
        contents = [t.ResourceContents(uri=uri, mime_type=mime.TEXT, text=text, meta=meta), *summaries(children)]
        return t.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope=self.cache_scope)

    # Completion and search

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Suggest keys in one directory that start with `value`. Those of directories end with `/`."""
        if argument != "path" or template != self.template:
            return []
        head, slash, typed = value.rpartition("/")
        try:
            parts = split_path(head)[0] if head else ()
            begin = split_path(typed)[0][0] if typed else ""
        except (UnreadableUri, IndexError):
            return []
        if slash and not parts:
            return []
        directory = "".join([f"{part}/" for part in parts])
        infos, _ = self._directory_page(directory, "", MAX_COMPLETIONS, begin)
        return [self.uri_of(info.key)[len(self.uri) :] for info in infos]

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return a page of objects. Pictures are included, because their names are searched."""
        infos, more = self.store.page(_position(after), limit)
        reads = readable_uris()
        documents = [
            Document(
                uri=self.uri_of(info.key),
                title=info.key,
                version=info.version,
                mime_type=mime.by_name(info.key.rpartition("/")[2]),
            )
            for info in infos
            if is_served(info.key) and not info.is_directory and reads(self.uri_of(info.key))
        ]
        return documents, KEY_PREFIX + infos[-1].key if more and infos else None

    def text(self, uri: str) -> Iterator[str]:
        """Yield the text of an object in pieces, or nothing if it is not text, is too large, or cannot be read.

        Raises:
            ResourceNotFound: there is no such object.
        """
        info = self._object(split_query(uri)[0])
        if info is None:
            raise ResourceNotFound(uri)
        mime_type = mime.by_name(info.key.rpartition("/")[2])
        if mime_type.startswith(_NO_TEXT) or (info.size is not None and info.size > MAX_TEXT_BYTES):
            return
        with suppress(ObjectChanged, UnreadableObject, StoreFailed):
            yield from text_pieces(self.store.content(info))

    # Watching

    def describe(self) -> str:
        """Return a description of the store, and how changes are found."""
        try:
            return ", ".join(filter(None, (self.store.describe(), f"watched by {self._watches.means}")))
        except StoreFailed as error:
            return str(error)

    def _prepare(self) -> None:
        """List the first objects, if the list or many URIs are watched, because that takes fewer requests."""
        watched = self._watches.watched
        self._listed_versions = None
        if None in watched or len(watched) > FEW_WATCHED:
            self._listed_versions = {info.key: info.version for info in self._first_objects(MAX_WATCHED_OBJECTS)}

    def _look(self, uri: str | None) -> Hashable:
        if uri is None:
            if self._listed_versions is None:  # the watch has just begun
                self._prepare()
            return digest(*(self._listed_versions or ()))
        base = split_query(uri)[0]
        listed = "" if self._listed_versions is None else self._listed_versions.get(self._locate(base), "")
        if listed:
            return listed
        info = self._object(base)
        if info is not None:
            return info.version
        directory = self._directory(base)
        if directory is None:
            raise ResourceNotFound(uri)
        return self._directory_version(directory)

    def _directory_version(self, directory: str) -> str:
        return digest_of_keys(self._directory_page(directory, "", MAX_CHILDREN)[0])

    def _first_objects(self, number: int) -> Iterator[ObjectInfo]:
        """Yield the first objects that are served."""
        position, more = "", True
        while more and number > 0:
            infos, more = self.store.page(position, POLL_PAGE_OBJECTS)
            visible = [info for info in infos if is_served(info.key) and not info.is_directory][:number]
            yield from visible
            number -= len(visible)
            more = more and bool(infos)
            position = infos[-1].key if infos else position

    async def close(self) -> None:
        """End all watches and close connections."""
        await super().close()
        await asyncio.to_thread(self.store.close)


def _position(after: str | None) -> str:
    """Return the key of the object after which a list continues.

    Raises:
        InvalidArgument: the key of the page is not valid.
    """
    if after is None:
        return ""
    if not after.startswith(KEY_PREFIX) or len(after) > MAX_KEY_CHARACTERS or not is_valid_key(after):
        raise bad_cursor()
    return after[len(KEY_PREFIX) :]
