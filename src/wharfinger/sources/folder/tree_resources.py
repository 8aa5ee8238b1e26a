"""The directories and files of a tree as resources below one URI.

A source of files has three parts: this one, which locates, lists, describes and reads; a `TreeWatch`, which reports
changes; and code of its own, such as that for the windows of a log or the rows of a table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.policy.current import is_restricted, may_read
from wharfinger.source import VERSION, Document
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.directories import (
    MAX_CHILDREN,
    Describe,
    listing_text,
    modified_annotations,
    modified_at,
    summaries,
)
from wharfinger.sources.etag import digest
from wharfinger.sources.folder.annotating import annotations_of
from wharfinger.sources.folder.file_content import (
    DuplicatedFile,
    Headings,
    content_of,
    listed_type,
    read_at,
    type_of,
    version_of_file,
)
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, split_path
from wharfinger.sources.folder.readable_tree import ReadableTree, readable_tree
from wharfinger.sources.folder.safe_open import Handle, NotServed, OpenFile, missing_as_not_served, stamp_of, stat_entry
from wharfinger.sources.folder.tree import (
    DirectoryListing,
    FileTree,
    OpenDirectory,
    Parts,
    TreeEntry,
    TreePosition,
    read_key,
    write_key,
)
from wharfinger.sources.ttl import ttl_ms
from wharfinger.sources.windows.line_index import LineIndexes
from wharfinger.sources.windows.text_pieces import text_pieces
from wharfinger.sources.windows.window import (
    ENCODING,
    GUESSED,
    MAX_READ_BYTES,
    WINDOW,
    BytesContent,
    Window,
    digest_of,
    read_content,
    refuse_window,
    split_query,
    split_window,
)
from wharfinger.sources.windows.window_budget import within_budget

__all__ = ["TreeResources", "not_served_as_not_found"]

COMPARED_BYTES = 1 << 20
"""Maximum bytes of a watched window that are read to detect a change."""
COMPARED_WINDOWS = 64
"""If more URIs are watched, windows are not compared: any change of a file counts for all its windows."""

MAX_KEPT_FILE_BYTES = 16 << 10
"""Maximum bytes of a file whose contents are kept. A read of a larger one spends most of its time on the bytes."""
KEPT_FILE_COST = 1 << 10
"""Bytes that a kept file takes besides its content."""
KEPT_BYTES = 4 << 20
"""Maximum bytes of all kept files. Their decoded texts can take four times as much."""

HEADING_SECONDS = 0.25
"""Longest time that a page of a list reads headings. On a slow disk, a repeated request shows more."""

Adjust = Callable[[t.Resource, Parts], t.Resource | None]
"""Changes the resource of a file or directory before it is shown; None leaves it out."""


class _SmallFile(NamedTuple):
    """The bytes of a file, its status when they were read, and the contents made of them."""

    parts: Parts
    stamp: tuple[int, ...]
    modified: float
    data: bytes
    contents: t.ResourceContents
    spelling_checked: bool
    """Whether it was read for a caller with a policy: only then is the spelling of a name compared with the disk's."""


@contextmanager
def not_served_as_not_found(uri: str) -> Generator[None]:
    """Raise ResourceNotFound instead of NotServed."""
    try:
        yield
    except NotServed:
        raise ResourceNotFound(uri) from None


class TreeResources:
    """The published files and directories of a tree as resources.

    Args:
        tree: The directories and files.
        uri: The URI of the top directory.
        label: The name of the top directory.
        prefix: The beginning of all URIs below the top; by default `uri` and a slash.
        max_size: Maximum bytes of a file that is read whole. Of a larger file, the first window is read.
        adjust: Changes each resource before it is shown.
        versioned: Whether resources and contents have their version in `_meta`.
        utf8_only: Whether a file in another encoding is read as bytes.
        annotated: Whether resources have the heading of the file as description, and a priority and audience.
        noun: The word for a file in the listing of a directory.
        describe: Returns the facts about a file that a listing shows.
    """

    def __init__(
        self,
        tree: FileTree,
        uri: str,
        label: str,
        *,
        prefix: str = "",
        max_size: int = MAX_READ_BYTES,
        adjust: Adjust | None = None,
        versioned: bool = True,
        utf8_only: bool = False,
        annotated: bool = False,
        noun: str = "file",
        describe: Describe | None = None,
    ) -> None:
        self.tree = tree
        self.uri = uri
        self.label = label
        self.prefix = prefix or (uri if uri.endswith("/") else uri + "/")
        self.template = f"{self.prefix}{{+path}}"
        self.max_size = max_size
        self._adjust = adjust
        self._versioned = versioned
        self._utf8_only = utf8_only
        self._headings = Headings() if annotated else None
        self._noun = noun
        self._describe = describe
        self._lines = LineIndexes()
        self._small_files = BoundedCache[str, _SmallFile](KEPT_BYTES)

    # URIs

    def matches(self, uri: str) -> bool:
        """Return whether this URI is the top or below it. It need not exist."""
        return uri.startswith(self.prefix) or uri == self.uri

    def uri_of(self, parts: Parts) -> str:
        """Return the URI of a path below the top."""
        return self.prefix + join_parts(parts) if parts else self.uri

    def locate(self, uri: str) -> tuple[Parts, bool]:
        """Return the path that a URI without a query names, and whether it can only be a directory.

        Raises:
            ResourceNotFound: it cannot name a path below the top.
        """
        if uri == self.uri:
            return (), True
        if not uri.startswith(self.prefix):
            raise ResourceNotFound(uri)
        try:
            parts, ends_with_slash = split_path(uri[len(self.prefix) :])
        except UnreadableUri:
            raise ResourceNotFound(uri) from None
        return parts, ends_with_slash or not parts

    def locate_base(self, uri: str) -> tuple[Parts, bool]:
        """Locate a URI, ignoring its query."""
        return self.locate(split_query(uri)[0])

    def _open(self, uri: str, parts: Parts, only_directory: bool) -> OpenFile | OpenDirectory:
        """Open the file or directory at a path. Close it with `_close`.

        Raises:
            ResourceNotFound: it is missing or not published.
        """
        if not only_directory:
            try:
                return self.tree.open_file(parts)
            except NotServed:
                pass
        try:
            return self.tree.open_directory(parts)
        except NotServed:
            raise ResourceNotFound(uri) from None

    def _close(self, opened: OpenFile | OpenDirectory) -> None:
        if isinstance(opened, OpenDirectory):
            self.tree.close_directory(opened)
        else:
            os.close(opened[0])

    def view(self) -> ReadableTree | None:
        """Return the part of this tree that the current caller may read; None without restrictions."""
        return readable_tree(self.prefix)

    # Lists

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return at most `limit` resources after the key, and the key of the next page."""
        resources: list[t.Resource] = []
        position = None if after is None else read_key(after)
        began = self.tree.listed_at = time.monotonic()
        view = self.view()
        entries = self.tree.walk(position, view)
        try:
            for entry in entries:
                if len(resources) == limit and position is not None:
                    return resources, write_key(position)
                if not entry.parts and not may_read(self.uri):
                    continue
                resource = self._entry(entry, began)
                if resource is not None:
                    resources.append(resource)
                    position = TreePosition(entry.is_directory, entry.parts)
        finally:
            entries.close()
            self.tree.listed_at = time.monotonic()
        return resources, None

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """Return the entries of a directory in pages: sub-directories by name, then files by name.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        parts, _ = self.locate(uri)
        with not_served_as_not_found(uri), self.tree.directory(parts) as directory:
            return self._children(directory, parts, after, limit)

    def _children(
        self, directory: OpenDirectory, parts: Parts, after: str | None, limit: int
    ) -> tuple[list[t.Resource], str | None]:
        listing = self.tree.listing(directory)
        began = time.monotonic()
        resources: list[t.Resource] = []
        last: TreePosition | None = None
        view = self.view()
        shows = None if view is None else view.name_filter(parts)
        for is_directory, name in _entries_after(listing, after):
            if shows is not None and not shows(name):
                continue
            if len(resources) == limit and last is not None:
                return resources, write_key(last)
            resource = self._child(directory.handle, (*parts, name), is_directory, began)
            if resource is not None:
                resources.append(resource)
                last = TreePosition(is_directory, (name,))
        return resources, None

    def _entry(self, entry: TreeEntry, began: float) -> t.Resource | None:
        if not entry.is_directory:
            return self._child(entry.handle, entry.parts, False, began)
        try:
            with missing_as_not_served():
                status = os.stat(entry.handle)
        except NotServed:
            return None
        return self._resource(entry.parts, mime.DIRECTORY, status)

    def _child(self, handle: Handle, parts: Parts, is_directory: bool, began: float) -> t.Resource | None:
        """Return the resource of an entry of a directory. `began` is when the list began (monotonic clock)."""
        name = parts[-1]
        try:
            with missing_as_not_served():
                status = stat_entry(handle, name)
        except NotServed:
            return None
        mime_type = mime.DIRECTORY if is_directory else listed_type(handle, name)
        heading = ""
        if self._headings is not None:
            in_time = time.monotonic() - began < HEADING_SECONDS
            heading = self._headings.listed(mime_type, status, handle, name, may_open=in_time)
        return self._resource(parts, mime_type, status, heading=heading)

    def _resource(
        self, parts: Parts, mime_type: str, status: os.stat_result, uri: str = "", heading: str = ""
    ) -> t.Resource | None:
        is_directory = mime_type == mime.DIRECTORY
        view = self.view() if is_directory else None
        modified = status.st_mtime if view is None or view.reads_all_below(parts) else None
        name = shown(parts[-1] if parts else self.label)
        resource = t.Resource(
            uri=uri or self.uri_of(parts),
            name=name,
            title="/".join([shown(part) for part in parts]) if len(parts) > 1 else name,
            mime_type=mime_type,
            size=UNSET if is_directory else status.st_size,
            description=heading or UNSET,
            annotations=modified_annotations(modified)
            if self._headings is None
            else annotations_of(parts, mime_type, modified),
            meta=UNSET if is_directory else self._meta(version_of_file(status)) or UNSET,
        )
        return resource if self._adjust is None else self._adjust(resource, parts)

    def _meta(self, version: str) -> dict[str, object]:
        return {VERSION: version} if self._versioned else {}

    # Reading

    def stat(self, uri: str) -> t.Resource:
        """Return the resource of a URI, without reading all of it. For a window: the file's resource, without a size.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
            InvalidArgument: the URI asks for an impossible window.
        """
        base, window = split_window(uri)
        parts, only_directory = self.locate(base)
        opened = self._open(uri, parts, only_directory)
        try:
            if not isinstance(opened, OpenDirectory):
                descriptor, status = opened
                mime_type = type_of(parts[-1], descriptor)
                heading = "" if self._headings is None else self._headings.of(mime_type, status, descriptor)
                resource = self._resource(parts, mime_type, status, uri, heading)
                if resource is not None and window is not None:
                    resource.size = UNSET
            else:
                refuse_window(window)
                with missing_as_not_served():
                    resource = self._resource(parts, mime.DIRECTORY, os.stat(opened.handle), uri)
                if resource is not None:
                    children, _ = self._children(opened, parts, None, MAX_CHILDREN)
                    resource.meta = self._meta(digest(self._listing_text(parts, opened, children))) or UNSET
        except NotServed:
            raise ResourceNotFound(uri) from None
        finally:
            self._close(opened)
        if resource is None:
            raise ResourceNotFound(uri)
        return resource

    def read(
        self, uri: str, max_bytes: int | None = None, cache_scope: t.CacheScope = "public"
    ) -> t.ReadResourceResult:
        """Read a file or a window of it. For a directory, return its listing, and one more content for each child.

        `max_bytes` replaces `max_size`, if given.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
            InvalidArgument: the URI asks for an impossible window.
        """
        cached = self._small_files.get(uri)
        if cached is not None and (unchanged := self._read_again(cached, max_bytes or self.max_size)) is not None:
            return t.ReadResourceResult(contents=[unchanged], ttl_ms=ttl_ms(cached.modified), cache_scope=cache_scope)
        base, window = split_window(uri)
        parts, only_directory = self.locate(base)
        opened = self._open(uri, parts, only_directory)
        modified: float | None
        try:
            if not isinstance(opened, OpenDirectory):
                contents, modified = self._read_file(uri, base, parts, opened, window, max_bytes or self.max_size)
            else:
                refuse_window(window)
                contents, modified = self._read_directory(uri, parts, opened)
        except NotServed:
            raise ResourceNotFound(uri) from None
        finally:
            self._close(opened)
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl_ms(modified), cache_scope=cache_scope)

    def _read_file(
        self, uri: str, base: str, parts: Parts, opened: OpenFile, window: Window | None, max_bytes: int
    ) -> tuple[list[t.ResourceContents], float]:
        descriptor, status = opened
        size = status.st_size
        with missing_as_not_served():  # some file systems refuse only now (EACCES, ESTALE)
            version = version_of_file(status)
            content = content_of(descriptor, size, max_bytes)
            small = window is None and 0 < size <= min(MAX_KEPT_FILE_BYTES, within_budget(max_bytes))
            data = content.read(0, size) if small else b""
            if data:
                content = BytesContent(data)
            contents = read_content(
                uri,
                base,
                parts[-1],
                content,
                window,
                max_bytes=max_bytes,
                meta=self._meta(version),
                lines=self._lines.of(parts, version, content, (status.st_dev, status.st_ino)) if window else None,
                keep=lambda: DuplicatedFile(descriptor, status.st_size),
            )
            if self._utf8_only and ENCODING in (meta := dict(contents[0].meta or {})):
                del meta[ENCODING]
                meta.pop(GUESSED, None)
                place: Any = meta.get(WINDOW, {"begin": 0, "end": max_bytes})
                blob = content.read(place["begin"], place["end"] - place["begin"])
                contents[0] = t.ResourceContents(
                    uri=uri, mime_type=contents[0].mime_type, blob=blob, meta=meta or UNSET
                )
            if data and len(data) == size:  # otherwise it was truncated meanwhile
                small_file = _SmallFile(
                    parts, stamp_of(status), status.st_mtime, data, _copy(contents[0]), is_restricted()
                )
                self._small_files.put(uri, small_file, KEPT_FILE_COST + size)
        return contents, status.st_mtime

    def _read_again(self, kept: _SmallFile, max_bytes: int) -> t.ResourceContents | None:
        """Read a small file that was read before. Returns None if it may have changed, or cannot be read whole.

        Its bytes are read each time, since writes through a memory map or by another machine may not change its times.
        But equal bytes are not decoded again.
        """
        size = kept.stamp[2]
        if size > within_budget(max_bytes) or (is_restricted() and not kept.spelling_checked):
            return None
        try:
            descriptor, status = self.tree.open_file(kept.parts, was_opened=True)
        except NotServed:
            return None
        try:
            if stamp_of(status) != kept.stamp or read_at(descriptor, size + 1, 0) != kept.data:
                return None
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return _copy(kept.contents)

    def _read_directory(
        self, uri: str, parts: Parts, directory: OpenDirectory
    ) -> tuple[list[t.ResourceContents], float | None]:
        children, _ = self._children(directory, parts, None, MAX_CHILDREN)
        text = self._listing_text(parts, directory, children)
        contents = [t.ResourceContents(uri=uri, mime_type=mime.TEXT, text=text, meta=self._meta(digest(text)) or UNSET)]
        contents += summaries(children, describe=self._describe)
        view = self.view()
        if view is not None and not view.reads_all_below(parts):
            return contents, None  # the time would reveal changes that the caller may not see
        with missing_as_not_served():
            modified = os.stat(directory.handle).st_mtime
        return contents, max([modified, *map(modified_at, children)])

    def _listing_text(self, parts: Parts, directory: OpenDirectory, children: list[t.Resource]) -> str:
        listing = self.tree.listing(directory)
        view = self.view()
        shows = None if view is None else view.name_filter(parts)
        if shows is None:
            folders, others = len(listing.directories), len(listing.files)
        else:
            folders, others = listing.directories.count_where(shows), listing.files.count_where(shows)
        where = "".join([f"{shown(part)}/" for part in (self.label, *parts)])
        counted = f"{many(folders, 'folder')} and {many(others, self._noun)}"
        more = self.template if folders + others > MAX_CHILDREN else ""
        return listing_text(where, counted, children, more, describe=self._describe)

    def window_digest(self, uri: str, watched_count: int) -> bytes | None:
        """Return a digest of the content of a window of lines or bytes.

        Returns None if the URI has no such window, or if too much would be read. If the window cannot be read, the
        result is the name of the error.

        Args:
            uri: The URI of the window.
            watched_count: The number of watched URIs.
        """
        try:
            _, window = split_window(uri)
            if window is None or window.kind == "tail" or watched_count > COMPARED_WINDOWS:
                return None
            contents = self.read(uri, COMPARED_BYTES).contents
        except (ResourceNotFound, InvalidArgument, OSError) as error:
            return type(error).__name__.encode()
        # A second content says where the rest is. For a window with an end, too little was read to compare it.
        return None if window.last is not None and len(contents) > 1 else digest_of(contents[0])

    # Finding

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return files in pages, without opening them. Pictures are included, since names are searched too."""
        documents: list[Document] = []
        entries = self.tree.walk(None if after is None else read_key(after), self.view())
        position: TreePosition | None = None
        try:
            for entry in entries:
                if len(documents) == limit and position is not None:
                    return documents, write_key(position)
                if entry.is_directory:
                    continue
                try:
                    with missing_as_not_served():
                        version = version_of_file(stat_entry(entry.handle, entry.name))
                except NotServed:
                    continue
                title = "/".join([shown(part) for part in entry.parts])
                mime_type = mime.by_name(entry.name)
                documents.append(
                    Document(uri=self.uri_of(entry.parts), title=title, version=version, mime_type=mime_type)
                )
                position = TreePosition(False, entry.parts)
        finally:
            entries.close()
        return documents, None

    def text(self, uri: str, max_bytes: int | None = None) -> Iterator[str]:
        """Yield the text of a file in pieces, each read when it is requested; nothing if its beginning is not text.

        `max_bytes` is the maximum number of bytes to read.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
        """
        parts, _ = self.locate(uri)
        with not_served_as_not_found(uri), self.tree.file(parts) as descriptor, missing_as_not_served():
            size = os.fstat(descriptor).st_size
            yield from text_pieces(content_of(descriptor, min(size, max_bytes or size), self.max_size))


def _copy(contents: t.ResourceContents) -> t.ResourceContents:
    """Return a copy for one caller, since middleware may change it."""
    copied = copy(contents)
    if copied.meta:
        copied.meta = copied.meta.copy()
    return copied


def _entries_after(listing: DirectoryListing, after: str | None) -> Iterable[tuple[bool, str]]:
    """Yield the entries of a directory after a key, sub-directories first, each as `(is_directory, name)`."""
    position = TreePosition(True, ("",)) if after is None else read_key(after)
    last = position.parts[-1] if position.parts else ""
    if position.is_directory:
        for at in range(listing.directories.index_after(last), len(listing.directories)):
            yield True, listing.directories[at]
        last = ""
    for at in range(listing.files.index_after(last), len(listing.files)):
        yield False, listing.files[at]
