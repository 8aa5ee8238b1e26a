"""A folder as live resources: files and directories listed in pages, read, completed, searched and watched."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import shown, size_text
from wharfinger.errors import ResourceNotFound
from wharfinger.source import Document, Source, SourceUnavailable, TextPlace, quick
from wharfinger.sources.directories import MAX_CHILDREN
from wharfinger.sources.document_text import document_query
from wharfinger.sources.document_text.document_pages import FORMATS, can_read_documents, is_document
from wharfinger.sources.document_text.document_query import is_document_uri
from wharfinger.sources.folder.counts import Count, count
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.folder.file_watch import TreeWatch
from wharfinger.sources.folder.ignore import PublishChoice
from wharfinger.sources.folder.tree import FileTree, Parts
from wharfinger.sources.folder.tree_resources import TreeResources
from wharfinger.sources.labels import UnusableFolder, default_label, resolve_root, usable_label
from wharfinger.sources.path_completion import complete_path
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.window import (
    ENCODING,
    PARAMETERS,
    SUMMARY,
)

if TYPE_CHECKING:
    from wharfinger.sources.document_text.document_files import DocumentFiles

__all__ = ["ENCODING", "MAX_CHILDREN", "SUMMARY", "Count", "Folder", "UnusableFolder", "files", "size_text"]

MIB = 1 << 20
COUNTING_SECONDS = 0.4
"""Longest time that `describe` counts files."""


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

    `.gitignore` files in the folder are followed. `.git`, symbolic links and special files are never published.

    Args:
        path: The folder.
        label: Its name in URIs, `file:///<label>/…`; the folder's own name by default.
        include: Patterns as in .gitignore: only files that match are published. A hidden, ignored or credential-like
            name that a pattern spells out without a wildcard is published too.
        exclude: Patterns of files and directories that are never published.
        hidden: Also publish names that begin with a dot.
        absolute_uris: Use the folder's real path in URIs, for a server and its client on the same machine.
        max_size: Maximum bytes of a file that is read whole; of a larger file, the first window is read.
        poll: Watch by polling, with this number of seconds between two rounds (True: 1); by default only if the system
            cannot watch.

    Raises:
        UnusableFolder: `path` is missing, is not a folder, or cannot be read; or it is a relative path to the home
            folder of the user, or to a folder above it; or `label` cannot be part of a URI.
        UnusableSource: there are too many patterns, or one is too long.
        TypeError: `include` or `exclude` is a single text.
    """
    return Folder(
        resolve_root(path),
        label=label,
        choice=PublishChoice(_pattern_tuple("include", include), _pattern_tuple("exclude", exclude), hidden),
        absolute_uris=absolute_uris,
        max_size=max_size,
        poll=1.0 if poll is True else poll or None,
    )


def _pattern_tuple(name: str, patterns: Iterable[str]) -> tuple[str, ...]:
    if isinstance(patterns, str):
        raise TypeError(f"{name} takes several patterns: write {name}=[{patterns!r}].")
    return tuple(patterns)


class Folder(Watched[TreeWatch], Source):
    """The source that `files()` returns. Its methods may be called from several threads at once."""

    parameters = PARAMETERS
    noun = "folder"

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
        self.label = usable_label(default_label(root) if label is None else label, UnusableFolder)
        self.root = root
        self.name = self.label
        self.location = root
        self.uri = _absolute_uri(root) if absolute_uris else f"file:///{quote(self.label)}"
        reads_documents = can_read_documents()
        self.files = TreeResources(
            FileTree(root, choice),
            self.uri,
            self.label,
            max_size=max_size,
            annotated=True,
            adjust=_describe_document if reads_documents else None,
        )
        self.template = self.files.template
        self.pages_template = f"{self.template}{{?pages}}"
        label = shown(self.label)
        self.templates = [
            t.ResourceTemplate(
                uri_template=self.template,
                name=label,
                title=f"Any file or folder in {label}",
                description=f"Path of a file or folder in {label}, each part percent-encoded, such as docs/guide.md.",
            )
        ]
        if reads_documents:
            self.parameters = {**PARAMETERS, **document_query.PARAMETERS}
            self.templates.append(
                t.ResourceTemplate(
                    uri_template=self.pages_template,
                    name=f"{label} documents",
                    title=f"Text of pages of a PDF, DOCX, PPTX or EPUB file in {label}",
                    description="pages=3 or pages=3-5; ?text instead of ?pages= for all of it.",
                )
            )
        self._watches = TreeWatch(self.files.tree, self._locate, poll, self._window_digest)

    def __repr__(self) -> str:
        return f"files({self.root!r}, label={self.label!r})"

    @cached_property
    def _documents(self) -> DocumentFiles:
        from wharfinger.sources.document_text.document_files import DocumentFiles  # costs time, and few folders need it

        return DocumentFiles(self.files)

    @property
    def watched_by(self) -> str:
        """The means of watching: `inotify`, or `polling every 1 s (why)`."""
        return self._watches.means

    def patterns_below(self, names: Sequence[str]) -> Sequence[str]:
        """Return the pattern, for rules of a policy, of the path of these names in this folder and all below it."""
        return (self.pattern_of(*names),)

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to this folder. It need not exist."""
        return self.files.matches(uri)

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return at most `limit` resources after the key, and the key of the next page.

        Raises:
            SourceUnavailable: the folder itself is missing. `children`, `stat`, `read`, `documents` and `describe`
                raise it too.
        """
        result = self.files.page(after, limit)
        if not result[0]:  # the list of a folder that exists begins with the folder itself
            self._check_root()
        return result

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """Return the entries of a directory in pages: sub-directories by name, then files by name.

        Raises:
            ResourceNotFound: there is no such directory.
        """
        try:
            return self.files.children(uri, after, limit)
        except ResourceNotFound:
            self._check_root()
            raise

    @quick
    def stat(self, uri: str) -> t.Resource:
        """Return the resource of a URI, without reading all of it. For a window: the file's resource, without a size.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
            InvalidArgument: the URI asks for an impossible window.
        """
        try:
            return self._documents.stat(uri) if is_document_uri(uri) else self.files.stat(uri)
        except ResourceNotFound:
            self._check_root()
            raise

    @quick
    def read(self, uri: str) -> t.ReadResourceResult:
        """Read a file or a window of it. For a directory, return its listing, and one more content for each child.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
            InvalidArgument: the URI asks for an impossible window.
        """
        try:
            if is_document_uri(uri):
                return self._documents.read(uri, self.cache_scope)
            return self.files.read(uri, cache_scope=self.cache_scope)
        except ResourceNotFound:
            self._check_root()
            raise

    def _check_root(self) -> None:
        """Raise an error with the reason if nothing is found because the folder itself is missing.

        Raises:
            SourceUnavailable: it was moved or removed, or its disk is not mounted.
        """
        if not os.path.isdir(self.root):
            raise SourceUnavailable(f"The folder {self.label!r} was moved or removed, or its disk is not mounted.")

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Return paths that start with `value`, then others whose name contains its last part. Folders end with `/`.

        In the template of pages, return only documents and folders, and ranges of a document's pages.
        """
        is_pages_template = template == self.pages_template
        if argument == "path":
            return complete_path(self.files.tree, value, self.files.view(), is_document if is_pages_template else None)
        if argument == "pages" and is_pages_template and (path := context.get("path")):
            return self._documents.complete_pages(self.files.prefix + path, value)
        return []

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return all files for the search index, some at a time, without opening them.

        Files without text, such as pictures, are included: their names are searched.
        """
        result = self.files.documents(after, limit)
        if not result[0]:
            self._check_root()
        return result

    def text(self, uri: str) -> Iterator[str]:
        """Return the text of a file, or of the pages of a document, in pieces that are read when they are requested.

        It is empty if the beginning of a file is not text.

        Raises:
            ResourceNotFound: it is missing or not published; the error does not say which.
        """
        mime_type = mime.by_name(uri.rpartition("/")[2])
        return self._documents.text(uri, mime_type) if mime_type in FORMATS else self.files.text(uri)

    def place(self, uri: str, line: int) -> TextPlace | None:
        """Return the page on which a line of a document's text is; None if the file is not a document."""
        mime_type = mime.by_name(uri.rpartition("/")[2])
        return self._documents.place(uri, mime_type, line) if mime_type in FORMATS else None

    def count(self, seconds: float = 1.0) -> Count:
        """Count the published and withheld files, for at most about this many seconds. Blocks: call it in a thread."""
        return count(self.files.tree, seconds)

    def describe(self) -> str:
        """Return the numbers of published and withheld files, and the means of watching."""
        self._check_root()
        return f"{self.count(COUNTING_SECONDS)}, watched by {self.watched_by}"

    def _locate(self, uri: str) -> tuple[Parts, bool]:
        return self.files.locate(uri.partition("?")[0]) if is_document_uri(uri) else self.files.locate_base(uri)

    def _window_digest(self, uri: str, watched_count: int) -> bytes | None:
        """Return a digest of a window's content; None for the text of a document, which is not parsed to compare it."""
        return None if is_document_uri(uri) else self.files.window_digest(uri, watched_count)

    def batch(self) -> AbstractContextManager[object]:
        """Share opened directories between the reads that this thread makes in the `with` block."""
        return self.files.tree.share()

    async def close(self) -> None:
        """Stop watching and parsing."""
        await super().close()
        if "_documents" in self.__dict__:
            await asyncio.to_thread(self._documents.close)


def _describe_document(resource: t.Resource, parts: Parts) -> t.Resource:
    """Return the resource of a document with a description of how its text is read."""
    if resource.mime_type in FORMATS and resource.description is UNSET and "?" not in resource.uri:
        resource.description = f"Its text: {resource.uri}?text"
    return resource


def _absolute_uri(root: str) -> str:
    drive, rest = os.path.splitdrive(root.replace(os.sep, "/"))
    path = "/".join(quote(part) for part in rest.strip("/").split("/"))
    return f"file:///{quote(drive)}/{path}" if drive else f"file:///{path}"
