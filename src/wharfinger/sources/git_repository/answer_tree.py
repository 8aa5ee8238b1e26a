"""Trees and files at a revision: `git://label/tree/{rev}/{+path}`.

A symbolic link is shown as the path of its target, a submodule as the name of its commit. Neither is followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION
from wharfinger.sources.directories import MAX_CHILDREN, listing_text, modified_annotations, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.git_repository.answers import GitAnswer, Repository
from wharfinger.sources.git_repository.git_objects import NoSuchPath, is_link, is_submodule, is_tree
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.object_reader import MissingObject
from wharfinger.sources.git_repository.parsing import GitTreeEntry
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.windows.window import RandomAccess, parse_window, read_content, refuse_window
from wharfinger.types.base import or_unset

__all__ = ["INLINE_BYTES", "TreeAnswer", "entry_resources"]

LINK_TYPE = "inode/symlink"
FILE_MODE = 0o100644
INLINE_BYTES = 256 << 10
"""A larger file is cut and decoded in a thread, because this work would block the event loop."""


class TreeAnswer(GitAnswer):
    """A folder or file at a revision, or a tree or file by its object name."""

    entry: GitTreeEntry
    _committed_at: int | None = None

    async def load(self) -> None:
        self.need_path()
        revision = await self.revision(self.address.rev)
        parts = self.address.parts
        info = await self.objects.peel(revision.oid)
        oid = info.oid
        if info.kind == "blob":
            if parts:
                raise NoSuchPath(self.address.uri)
            self.entry = GitTreeEntry(b"", FILE_MODE, oid)
        else:
            if info.kind == "commit":
                commit = await self.objects.commit(oid)
                oid, self._committed_at = commit.tree, commit.committer.seconds
            self.entry = await self.objects.find(oid, parts)
            if self.address.ends_with_slash and parts and not is_tree(self.entry.mode):
                raise NoSuchPath(self.address.uri)
        self.version, self.fixed, self.modified = self.entry.oid, revision.fixed, self._committed_at
        if (
            is_tree(self.entry.mode)
            and self.readable is not None
            and not self.readable.reads_all_below(self.address.rev, parts)
        ):
            # The name of the tree also depends on entries that the caller may not read.
            self.version = digest(repr(await self._readable_entries(self.entry.oid)))

    async def resource(self) -> t.Resource:
        (resource,) = await entry_resources(self.repository, self.address.rev, [(self.address.parts, self.entry)])
        resource.uri, resource.meta = self.uri, {VERSION: self.version}
        if self._committed_at is not None and not self.address.parts:
            resource.annotations = modified_annotations(self._committed_at)
        return resource

    async def contents(self) -> list[t.ResourceContents]:
        entry = self.entry
        window = parse_window(self.address.query)
        if is_tree(entry.mode):
            refuse_window(window)
            return await self._directory()
        if is_submodule(entry.mode):
            return [self.text(_submodule_text(entry))]
        content = await self.objects.content(entry.oid)
        if content.size > INLINE_BYTES:
            contents = await asyncio.to_thread(self._file_contents, content)
        else:
            contents = self._file_contents(content)
        if is_link(entry.mode):
            contents[0].mime_type = LINK_TYPE
        return contents

    def _file_contents(self, content: RandomAccess) -> list[t.ResourceContents]:
        window, oid = parse_window(self.address.query), self.entry.oid
        return read_content(
            self.uri,
            self.address.uri,
            self.entry.part,
            content,
            window,
            max_bytes=self.repository.max_size,
            meta={VERSION: oid},
            lines=self.repository.lines.of(oid, oid, content) if window and window.kind == "lines" else None,
        )

    async def _directory(self) -> list[t.ResourceContents]:
        entries = await self._readable_entries(self.entry.oid)
        children, key = await self.children(None, MAX_CHILDREN)
        folders = sum(is_tree(entry.mode) for entry in entries)
        directory = "".join([f"{shown(part)}/" for part in (self.repository.label, *self.address.parts)])
        counts = f"{many(folders, 'folder')} and {many(len(entries) - folders, 'file')}"
        template = self.uris.templates["tree"] if key is not None else ""
        text = listing_text(f"{directory} at {shown(self.address.rev)}", counts, children, template)
        return [self.text(text), *summaries(children)]

    async def _readable_entries(self, oid: str) -> Sequence[GitTreeEntry]:
        """Return the entries of a tree that the caller may read. A folder that is only partly readable has no `oid`."""
        entries: Sequence[GitTreeEntry] = await self.objects.tree(oid)
        readable, rev, parts = self.readable, self.address.rev, self.address.parts
        if readable is None or readable.reads_all_below(rev, parts):
            return entries
        visible = [entry for entry in entries if readable.may_read(rev, (*parts, entry.part))]
        return [
            entry
            if not is_tree(entry.mode) or readable.reads_all_below(rev, (*parts, entry.part))
            else entry._replace(oid="")
            for entry in visible
        ]

    async def children(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return the entries of a folder in git's order. A key has the folder's object and the next entry's index."""
        if not is_tree(self.entry.mode):
            raise ResourceNotFound(self.uri)
        oid, begin = self.entry.oid, 0
        if after is not None:
            oid, begin = await self._position(after)
        entries = await self._readable_entries(oid)
        rows = [((*self.address.parts, entry.part), entry) for entry in entries[begin : begin + limit]]
        resources = await entry_resources(self.repository, self.address.rev, rows)
        end = begin + len(resources)
        return resources, f"{oid}.{end}" if end < len(entries) else None

    async def _position(self, key: str) -> tuple[str, int]:
        oid, _, number = key.partition(".")
        if len(oid) == self.repository.private_directory.oid_length and number.isdecimal() and len(number) < 10:
            try:
                # `fromhex` refuses what is not hexadecimal, such as the name of a branch, but it skips white space.
                if oid.isalnum() and (await self.objects.info(bytes.fromhex(oid).hex())).kind == "tree":
                    return oid, int(number)
            except (LookupError, ValueError):
                pass
        raise bad_cursor()


async def entry_resources(
    repository: Repository, rev: str, rows: Sequence[tuple[Parts, GitTreeEntry]]
) -> list[t.Resource]:
    """Return the resources of entries of trees at a revision."""
    files = {entry.oid for _, entry in rows if not (is_tree(entry.mode) or is_submodule(entry.mode))}
    infos = await repository.objects.infos(list(files))
    sizes = {oid: info.size for oid, info in infos.items()}
    # Most types follow from the names of the files. For the other types, the first bytes are read.
    unknown = {
        entry.oid
        for parts, entry in rows
        if entry.oid in sizes and not is_link(entry.mode) and not mime.by_name(parts[-1] if parts else "")
    }
    first_bytes = dict(
        zip(unknown, await asyncio.gather(*[_first_bytes(repository, oid) for oid in unknown]), strict=True)
    )
    return [
        _resource(repository, rev, parts, entry, sizes.get(entry.oid), first_bytes.get(entry.oid))
        for parts, entry in rows
    ]


async def _first_bytes(repository: Repository, oid: str) -> bytes | None:
    try:
        return await repository.objects.first_bytes(oid)
    except (MissingObject, InvalidArgument):  # a read of the file reports the error
        return None


def _resource(
    repository: Repository, rev: str, parts: Parts, entry: GitTreeEntry, size: int | None, first_bytes: bytes | None
) -> t.Resource:
    last = parts[-1] if parts else ""
    name = shown(last) if parts else f"{repository.label} at {shown(rev)}"
    if is_tree(entry.mode):
        kind = mime.DIRECTORY
    elif is_submodule(entry.mode):
        kind, size = mime.TEXT, len(_submodule_text(entry).encode())
    elif is_link(entry.mode):
        kind = LINK_TYPE
    else:
        kind = mime.by_name(last)
        if not kind and first_bytes is not None:
            kind = mime.classify(last, first_bytes, mime.begins_text(first_bytes))
    return t.Resource(
        uri=repository.uris.tree(rev, parts),
        name=name,
        title="/".join([shown(part) for part in parts]) if len(parts) > 1 else name,
        mime_type=kind or mime.OCTETS,
        size=or_unset(size),
        meta={VERSION: entry.oid} if entry.oid else UNSET,
    )


def _submodule_text(entry: GitTreeEntry) -> str:
    return f"A submodule at commit {entry.oid} of another repository, which is not part of this one.\n"
