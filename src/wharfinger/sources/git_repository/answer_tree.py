"""Trees and files at a revision: `git://label/tree/{rev}/{+path}`.

A symbolic link is the text of where it leads, and is followed nowhere. A submodule is the name of its commit, and is
entered nowhere.
"""

from __future__ import annotations

import functools

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION
from wharfinger.sources.directories import CHILDREN, dated, listing_text, summaries
from wharfinger.sources.git_repository.answers import GitAnswer, Repository
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.objects import PureMissing
from wharfinger.sources.git_repository.parsing import GitTreeEntry
from wharfinger.sources.git_repository.revision_names import GitRevision, peel
from wharfinger.sources.git_repository.trees import NoSuchPath, find, is_link, is_module, is_tree, name_of
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.windows.window import need_no_window, parse, read_content

__all__ = ["LINK", "MODULE", "TreeAnswer", "entry_resource"]

LINK = "inode/symlink"
MODULE = "text/plain"
BLOB = 0o100644


class TreeAnswer(GitAnswer):
    """A folder or a file of a tree; a tree or a file by its own object name."""

    @functools.cached_property
    def _found(self) -> tuple[GitRevision, GitTreeEntry, int | None]:
        """The revision, the entry at the path, and the time of the commit where there is one."""
        revision = self.revision(self.address.rev)
        kind, oid = peel(revision.oid, self.objects)
        seconds = None
        if kind == "commit":
            commit = self.objects.commit(oid)
            oid, seconds = commit.tree, commit.committer.seconds
        elif kind == "blob":
            if self.address.parts:
                raise NoSuchPath(self.address.uri)
            return revision, GitTreeEntry(b"", BLOB, oid), None
        entry = find(self.objects, oid, self.address.parts)
        if self.address.slashed and self.address.parts and not is_tree(entry.mode):
            raise NoSuchPath(self.address.uri)
        return revision, entry, seconds

    @property
    def entry(self) -> GitTreeEntry:
        """What is there."""
        return self._found[1]

    @property
    def fixed(self) -> bool:
        return self._found[0].fixed

    @property
    def modified(self) -> float | None:
        return self._found[2]

    @property
    def version(self) -> str:
        return self.entry.oid

    @property
    def _parts(self) -> Parts:
        return self.address.parts

    def resource(self) -> t.Resource:
        found = entry_resource(self.repository, self.address.rev, self._parts, self.entry)
        found.uri = self.uri
        seconds = self._found[2]
        if seconds is not None and not self._parts:
            found.annotations = dated(seconds)
        return found

    def contents(self) -> list[t.ResourceContents]:
        entry = self.entry
        if is_tree(entry.mode):
            need_no_window(parse(self.address.query))
            return self._directory()
        if is_module(entry.mode):
            return [self.text(_module_text(entry))]
        content = self.objects.content(entry.oid)
        window = parse(self.address.query)
        lines = self.repository.lines.of(entry.oid, entry.oid, content) if window and window.kind == "lines" else None
        found = read_content(
            self.uri,
            self.address.uri,
            name_of(entry),
            content,
            window,
            whole=self.repository.whole,
            meta={VERSION: entry.oid},
            lines=lines,
        )
        if is_link(entry.mode):
            found[0].mime_type = LINK
        return found

    def _directory(self) -> list[t.ResourceContents]:
        entries = self.objects.tree(self.entry.oid)
        children, key = self.children(None, CHILDREN)
        folders = sum(is_tree(entry.mode) for entry in entries)
        where = "".join([f"{shown(part)}/" for part in (self.repository.label, *self._parts)])
        counted = f"{many(folders, 'folder')} and {many(len(entries) - folders, 'file')}"
        template = self.uris.templates["tree"] if key is not None else ""
        text = listing_text(f"{where} at {shown(self.address.rev)}", counted, children, template)
        return [self.text(text), *summaries(children)]

    def children(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """The entries of a folder in git's order. A key is the number of the next one and the folder's object."""
        if not is_tree(self.entry.mode):
            raise ResourceNotFound(self.uri)
        oid, begin = self.entry.oid, 0
        if after is not None:
            oid, begin = self._position(after)
        entries = self.objects.tree(oid)
        resources = [
            entry_resource(self.repository, self.address.rev, (*self._parts, name_of(entry)), entry)
            for entry in entries[begin : begin + limit]
        ]
        end = begin + len(resources)
        return resources, f"{oid}.{end}" if end < len(entries) else None

    def _position(self, key: str) -> tuple[str, int]:
        oid, _, number = key.partition(".")
        try:
            if len(oid) == 40 and number.isdecimal() and len(number) < 10 and self.objects.header(oid)[0] == "tree":
                return oid, int(number)
        except (LookupError, ValueError):
            pass
        raise bad_cursor()


def entry_resource(repository: Repository, rev: str, parts: Parts, entry: GitTreeEntry) -> t.Resource:
    """An entry of a tree as a resource."""
    name = shown(parts[-1]) if parts else f"{repository.label} at {shown(rev)}"
    kind, size = _kind_and_size(repository, parts, entry)
    return t.Resource(
        uri=repository.uris.tree(rev, parts),
        name=name,
        title="/".join([shown(part) for part in parts]) if len(parts) > 1 else name,
        mime_type=kind,
        size=UNSET if size is None else size,
        meta={VERSION: entry.oid},
    )


def _kind_and_size(repository: Repository, parts: Parts, entry: GitTreeEntry) -> tuple[str, int | None]:
    if is_tree(entry.mode):
        return mime.DIRECTORY, None
    if is_module(entry.mode):
        return MODULE, len(_module_text(entry).encode())
    try:
        _, size = repository.objects.header(entry.oid)
    except (PureMissing, InvalidArgument):  # of a partial clone, or damaged: reading it says so
        return mime.by_name(parts[-1] if parts else "") or mime.OCTETS, None
    if is_link(entry.mode):
        return LINK, size
    name = parts[-1] if parts else ""
    promised = mime.by_name(name)
    if promised:
        return promised, size
    try:
        head = repository.objects.start(entry.oid, mime.SNIFFED_BYTES)
    except InvalidArgument:
        return mime.OCTETS, size
    return mime.classify(name, head, mime.begins_text(head)), size


def _module_text(entry: GitTreeEntry) -> str:
    return f"A submodule at commit {entry.oid} of another repository, which is not part of this one.\n"
