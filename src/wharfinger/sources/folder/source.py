"""A folder as live resources: files and directories listed in pages, read, completed, searched and watched.

Refuses to know who asks, in which revision, or over what.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import dated, many, shown, size_text
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Changed, Document, Source
from wharfinger.sources.directories import CHILDREN, listing_text, modified_at, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.folder.counts import Count, count
from wharfinger.sources.folder.file_content import Kept, content_of, listed_type, type_of, version_of_file
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, quote, split_path
from wharfinger.sources.folder.file_watch import TreeWatch
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.safe_open import Handle, NotServed, holds, stat_entry
from wharfinger.sources.folder.tree import (
    DirectoryListing,
    FileTree,
    OpenDirectory,
    Parts,
    TreeEntry,
    TreePosition,
    write_key,
)
from wharfinger.sources.labels import UnusableFolder, default_label, resolve_root, usable_label
from wharfinger.sources.page_keys import read_position
from wharfinger.sources.path_completion import complete_path
from wharfinger.sources.ttl import ttl_ms
from wharfinger.sources.windows.line_index import LineIndexes
from wharfinger.sources.windows.text_pieces import text_pieces
from wharfinger.sources.windows.window import (
    ENCODING,
    SUMMARY,
    Window,
    digest_of,
    need_no_window,
    parse,
    read_content,
    split_query,
)

__all__ = ["CHILDREN", "ENCODING", "SUMMARY", "Count", "Folder", "UnusableFolder", "files", "size_text"]

MIB = 1 << 20
COUNTING = 0.4  # seconds in which what is published is counted to be told
COMPARED = MIB  # bytes of a watched window that are read to know whether it changed
COMPARED_WINDOWS = 64  # windows that are watched so; with more of them, each is told of any change


def files(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    hidden: bool = False,
    absolute_uris: bool = False,
    max_size: int = 32 * MIB,
    poll: bool | float | None = None,
) -> Folder:
    """Publish a folder: `server.include(files("charts"))`.

    `.gitignore` files below the folder hold; `.git`, symbolic links and what is no regular file are never published.

    Args:
        path: The folder.
        label: Its name in URIs, `file:///<label>/…`; the folder's own name by default.
        include: Patterns as in .gitignore: only files that match are published. A hidden, ignored or credential-like
            name that a pattern spells out without a wildcard is published too.
        exclude: Patterns of what is never published.
        hidden: Publish names that begin with a dot, too.
        absolute_uris: Use the folder's real path in URIs, for a server and its client on the same machine.
        max_size: Bytes that are read at once: of a larger file, the first window.
        poll: Watch by looking again and again, every so many seconds (True: 1); by default only where the system
            cannot tell of changes.

    Raises:
        UnusableFolder: it is missing, no folder, not readable, or `/` or the home folder by a relative path.
    """
    return Folder(
        resolve_root(path),
        label=label,
        choice=PublishChoice(_several("include", include), _several("exclude", exclude), hidden),
        absolute_uris=absolute_uris,
        max_size=max_size,
        poll=1.0 if poll is True else poll or None,
    )


def _several(name: str, patterns: Iterable[str]) -> tuple[str, ...]:
    if isinstance(patterns, str):
        raise TypeError(f"{name} takes several patterns: write {name}=[{patterns!r}].")
    return tuple(patterns)


class Folder(Source):
    """The source that `files()` makes. Its methods may be called from several threads at once."""

    def __init__(
        self,
        root: str,
        *,
        label: str | None,
        choice: PublishChoice,
        absolute_uris: bool,
        max_size: int,
        poll: float | None,
    ) -> None:
        self.root = root
        self.label = usable_label(default_label(root) if label is None else label, UnusableFolder)
        self.name = self.label
        self.location = root
        self.max_size = max_size
        self.uri = _absolute_uri(root) if absolute_uris else f"file:///{quote(self.label)}"
        self._inside = self.uri if self.uri.endswith("/") else self.uri + "/"
        self.tree = FileTree(root, choice)
        self.template = f"{self._inside}{{+path}}"
        label = shown(self.label)
        self.templates = [
            t.ResourceTemplate(
                uri_template=self.template,
                name=label,
                title=f"Any file or folder in {label}",
                description=f"Path of a file or folder in {label}, each part percent-encoded, such as docs/guide.md.",
            )
        ]
        self._lines = LineIndexes()
        self._watch = TreeWatch(self.tree, lambda uri: self._locate(split_query(uri)[0]), poll, self._shown_by)

    def __repr__(self) -> str:
        return f"files({self.root!r}, label={self.label!r})"

    @property
    def watched_by(self) -> str:
        """What tells of changes, in words: `inotify`, or `polling every 1 s (why)`."""
        return self._watch.means

    def matches(self, uri: str) -> bool:
        """Whether this URI is of this folder, existing or not."""
        return uri.startswith(self._inside) or uri == self.uri

    def uri_of(self, parts: Parts) -> str:
        """The URI of a path below the folder."""
        return self._inside + join_parts(parts) if parts else self.uri

    def _locate(self, uri: str) -> tuple[Parts, bool]:
        """The path that a URI means, and whether it can only be a directory."""
        if uri == self.uri:
            return (), True
        if not uri.startswith(self._inside):
            raise ResourceNotFound(uri)
        try:
            parts, slashed = split_path(uri[len(self._inside) :])
        except UnreadableUri:
            raise ResourceNotFound(uri) from None
        return parts, slashed or not parts

    # Listing

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """At most `limit` resources behind the key, and the key of the next page."""
        resources: list[t.Resource] = []
        position = None if after is None else read_position(after)
        self._watch.asked = time.monotonic()
        entries = self.tree.walk(position)
        try:
            for entry in entries:
                if len(resources) == limit and position is not None:
                    return resources, write_key(position)
                resource = self._resource(entry)
                if resource is not None:
                    resources.append(resource)
                    position = TreePosition(entry.directory, entry.parts)
        finally:
            entries.close()
            self._watch.asked = time.monotonic()
        return resources, None

    def children(
        self, uri: str, after: str | None = None, limit: int = CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """The entries of a directory in pages: sub-directories by name, then files by name.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        parts, _ = self._locate(uri)
        try:
            with self.tree.directory(parts) as place:
                return self._children(place, parts, after, limit)
        except NotServed:
            raise ResourceNotFound(uri) from None

    def _children(
        self, place: OpenDirectory, parts: Parts, after: str | None, limit: int
    ) -> tuple[list[t.Resource], str | None]:
        listing = self.tree.listing(place)
        resources: list[t.Resource] = []
        last: TreePosition | None = None
        for directory, name in _names(listing, after):
            if len(resources) == limit and last is not None:
                return resources, write_key(last)
            resource = self._child(place.handle, (*parts, name), directory)
            if resource is not None:
                resources.append(resource)
                last = TreePosition(directory, (name,))
        return resources, None

    def _child(self, handle: Handle, parts: Parts, directory: bool) -> t.Resource | None:
        name = parts[-1]
        try:
            with holds():
                status = stat_entry(handle, name)
        except NotServed:
            return None
        return self._describe(parts, mime.DIRECTORY if directory else listed_type(handle, name), status)

    def _resource(self, entry: TreeEntry) -> t.Resource | None:
        if not entry.directory:
            return self._child(entry.handle, entry.parts, False)
        try:
            with holds():
                return self._describe(entry.parts, mime.DIRECTORY, os.stat(entry.handle))
        except NotServed:
            return None

    def _describe(self, parts: Parts, kind: str, status: os.stat_result, uri: str = "") -> t.Resource:
        directory = kind == mime.DIRECTORY
        name = shown(parts[-1] if parts else self.label)
        return t.Resource(
            uri=uri or self.uri_of(parts),
            name=name,
            title="/".join([shown(part) for part in parts]) if len(parts) > 1 else name,
            mime_type=kind,
            size=UNSET if directory else status.st_size,
            annotations=dated(status.st_mtime),
            meta=UNSET if directory else self._meta(version_of_file(status)) or UNSET,
        )

    def stat(self, uri: str) -> t.Resource:
        """What is known of a URI that can be read, without reading it; of a window, what is known of its file.

        Raises:
            ResourceNotFound: missing or not published, which look the same.
            InvalidArgument: the URI asks for a window that cannot be.
        """
        base, query = split_query(uri)
        window = parse(query)
        parts, only_directory = self._locate(base)
        try:
            if not only_directory:
                try:
                    with self.tree.file(parts) as descriptor:
                        kind = type_of(parts[-1], descriptor)
                        found = self._describe(parts, kind, os.fstat(descriptor), uri)
                        if window is not None:
                            found.size = UNSET
                        return found
                except NotServed:
                    pass
            with self.tree.directory(parts) as place:
                need_no_window(window)
                with holds():
                    found = self._describe(parts, mime.DIRECTORY, os.stat(place.handle), uri)
                children, _ = self._children(place, parts, None, CHILDREN)
                found.meta = self._meta(digest(self._listing_text(parts, place, children))) or UNSET
                return found
        except NotServed:
            raise ResourceNotFound(uri) from None

    # Reading

    def read(self, uri: str) -> t.ReadResourceResult:
        """The content of a file, or a window of it; or a directory's listing with one more content for each child.

        Raises:
            ResourceNotFound: missing or not published, which look the same.
            InvalidArgument: the URI asks for a window that cannot be.
        """
        return self._read(uri, self.max_size)

    def _read(self, uri: str, most: int) -> t.ReadResourceResult:
        base, query = split_query(uri)
        window = parse(query)
        parts, only_directory = self._locate(base)
        try:
            if not only_directory:
                try:
                    with self.tree.file(parts) as descriptor:
                        return self._result(*self._contents(uri, base, parts, descriptor, window, most))
                except NotServed:
                    pass
            with self.tree.directory(parts) as place:
                need_no_window(window)
                return self._read_directory(uri, parts, place)
        except NotServed:
            raise ResourceNotFound(uri) from None

    def _contents(
        self, uri: str, base: str, parts: Parts, descriptor: int, window: Window | None, most: int
    ) -> tuple[list[t.ResourceContents], float]:
        """What is read of an open file, and when it was changed."""
        with holds():  # a file system may say only now that it does not want to (EACCES, ESTALE)
            status = os.fstat(descriptor)
            version = version_of_file(status)
            content = content_of(descriptor, status.st_size, most)
            contents = read_content(
                uri,
                base,
                parts[-1],
                content,
                window,
                whole=most,
                meta=self._meta(version),
                lines=self._lines.of(parts, version, content, (status.st_dev, status.st_ino)) if window else None,
                keep=lambda: Kept(descriptor, status.st_size),
            )
        return contents, status.st_mtime

    def _meta(self, version: str) -> dict[str, object]:
        """What is said in `_meta` of a content that has this version."""
        return {VERSION: version}

    def _result(self, contents: list[t.ResourceContents], modified: float) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl_ms(modified), cache_scope=self.cache_scope)

    def _read_directory(self, uri: str, parts: Parts, place: OpenDirectory) -> t.ReadResourceResult:
        children, _ = self._children(place, parts, None, CHILDREN)
        text = self._listing_text(parts, place, children)
        meta = self._meta(digest(text)) or UNSET
        contents = [t.ResourceContents(uri=uri, mime_type=mime.TEXT, text=text, meta=meta)]
        contents += summaries(children)
        with holds():
            modified = os.stat(place.handle).st_mtime
        return self._result(contents, max([modified, *map(modified_at, children)]))

    def _listing_text(self, parts: Parts, place: OpenDirectory, children: list[t.Resource]) -> str:
        listing = self.tree.listing(place)
        folders, others = len(listing.directories), len(listing.files)
        where = "".join([f"{shown(part)}/" for part in (self.label, *parts)])
        counted = f"{many(folders, 'folder')} and {many(others, 'file')}"
        return listing_text(where, counted, children, self.template if folders + others > CHILDREN else "")

    # Finding

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Paths that begin with `value`, then those that have its last part in their name; directories end with `/`."""
        return complete_path(self.tree, value) if argument == "path" else []

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Files in pages, pictures too, whose names are searched. None is opened."""
        found: list[Document] = []
        entries = self.tree.walk(None if after is None else read_position(after))
        position: TreePosition | None = None
        try:
            for entry in entries:
                if len(found) == limit and position is not None:
                    return found, write_key(position)
                if not entry.directory and (document := self._document(entry)):
                    found.append(document)
                    position = TreePosition(False, entry.parts)
        finally:
            entries.close()
        return found, None

    def _document(self, entry: TreeEntry) -> Document | None:
        promised = mime.by_name(entry.name)
        try:
            with holds():
                status = stat_entry(entry.handle, entry.name)
        except NotServed:
            return None
        title = "/".join([shown(part) for part in entry.parts])
        return Document(uri=self.uri_of(entry.parts), title=title, version=version_of_file(status), mime_type=promised)

    def text(self, uri: str) -> Iterator[str]:
        """The text of a file in pieces, read as they are asked for; none where it does not begin like text.

        Raises:
            ResourceNotFound: missing or not published, which look the same.
        """
        parts, _ = self._locate(uri)
        try:
            with self.tree.file(parts) as descriptor, holds():
                yield from text_pieces(content_of(descriptor, os.fstat(descriptor).st_size, self.max_size))
        except NotServed:
            raise ResourceNotFound(uri) from None

    def count(self, seconds: float = 1.0) -> Count:
        """Count what is published, for at most about this long. Blocks: call it in a thread."""
        return count(self.tree, seconds)

    def describe(self) -> str:
        """How much is published, what is left out, and how changes are noticed."""
        return f"{self.count(COUNTING)}, watched by {self.watched_by}"

    # Watching

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Tell `changed` when this URI's content changes, or the list; of a window, when what it shows does."""
        self._watch.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop telling."""
        self._watch.unwatch(uri)

    def _shown_by(self, uri: str, watched: int) -> bytes | None:
        """What a window shows, in short; None for what is no window, or would be much to read."""
        try:
            window = parse(split_query(uri)[1])
            if window is None or window.kind == "tail" or watched > COMPARED_WINDOWS:
                return None
            contents = self._read(uri, COMPARED).contents
        except (ResourceNotFound, InvalidArgument, OSError) as error:
            return type(error).__name__.encode()
        return None if window.last is not None and len(contents) > 1 else digest_of(contents[0])

    async def close(self) -> None:
        """Stop watching."""
        self._watch.close()


def _absolute_uri(root: str) -> str:
    drive, rest = os.path.splitdrive(root.replace(os.sep, "/"))
    path = "/".join(quote(part) for part in rest.strip("/").split("/"))
    return f"file:///{quote(drive)}/{path}" if drive else f"file:///{path}"


def _names(listing: DirectoryListing, after: str | None) -> Iterable[tuple[bool, str]]:
    """The entries of a directory behind a key: sub-directories, then files."""
    behind = TreePosition(True, ("",)) if after is None else read_position(after)
    last = behind.parts[-1] if behind.parts else ""
    if behind.directory:
        for at in range(listing.directories.behind(last), len(listing.directories)):
            yield True, listing.directories[at]
        last = ""
    for at in range(listing.files.behind(last), len(listing.files)):
        yield False, listing.files[at]
