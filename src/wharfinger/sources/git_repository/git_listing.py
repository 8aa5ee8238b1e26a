"""The list of a repository in pages: its top, HEAD's tree and log, branches, tags, HEAD's newest commits and its files.

A key contains the commit that HEAD named when the first page was requested, so that no entry is lost or repeated while
commits arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from wharfinger import types as t
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.policy.current import may_read
from wharfinger.source import Document, document_of
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, split_path
from wharfinger.sources.git_repository.answer_commit import commit_resource
from wharfinger.sources.git_repository.answer_kinds import answer_for
from wharfinger.sources.git_repository.answer_tree import entry_resources
from wharfinger.sources.git_repository.answers import Repository
from wharfinger.sources.git_repository.git_objects import NoSuchPath, is_file, is_tree
from wharfinger.sources.git_repository.git_process import GitFailed
from wharfinger.sources.git_repository.git_uris import Parts, quote_rev, unquote_rev
from wharfinger.sources.git_repository.history import EVERYTHING
from wharfinger.sources.git_repository.object_reader import MissingObject
from wharfinger.sources.git_repository.parsing import Commit, GitTreeEntry
from wharfinger.sources.git_repository.references import BRANCHES, TAGS, References
from wharfinger.sources.git_repository.revision_names import short_name
from wharfinger.sources.page_keys import bad_cursor

__all__ = ["LISTED_COMMITS", "SEARCHED_COMMITS", "documents", "page", "top_children"]

LISTED_COMMITS = 100
"""Maximum number of commits of HEAD that are listed."""
SEARCHED_COMMITS = 10_000
"""Maximum number of commits of HEAD whose messages are searched."""
MAX_ROUNDS = 20
"""Maximum number of rounds in which a page of documents is collected."""


class _Row(NamedTuple):
    """A position in a section of the list, and its entry: a URI, a file or a commit."""

    position: str
    uri: str = ""
    file: tuple[Parts, GitTreeEntry] | None = None
    commit: str = ""


class _List:
    """The list as of one moment. `tip` is the commit of HEAD that the caller may read at that time, or None."""

    def __init__(self, repository: Repository, references: References, tip: str | None) -> None:
        self.repository = repository
        self.references = references
        self.tip = tip
        self.readable = repository.readable_history()

    def _reads(self, row: _Row) -> bool:
        return self.readable is None or may_read(row.uri)

    async def top(self, after: str) -> AsyncIterator[_Row]:
        if after < "1" and self._reads(row := _Row("1", self.repository.uris.top)):
            yield row
        async for row in self.head(after):
            yield row

    async def head(self, after: str) -> AsyncIterator[_Row]:
        """Yield HEAD's tree and log."""
        uris = self.repository.uris
        for position, uri in (("2", uris.tree("HEAD")), ("3", uris.log("HEAD"))) if self.tip else ():
            if position > after and self._reads(row := _Row(position, uri)):
                yield row

    async def branches(self, after: str) -> AsyncIterator[_Row]:
        last_name = unquote_rev(after) if after else ""
        for name in self.references.under(BRANCHES):
            if name > last_name and self._reads(row := self._named(BRANCHES, name, quote_rev(name))):
                yield row

    async def tags(self, after: str) -> AsyncIterator[_Row]:
        """Yield the tags, newest first. A position contains the time, so that it stays valid if its tag is deleted."""
        reader = self.repository.references
        times = await reader.tag_times(self.references)
        begin = (0, "")
        if after:
            seconds, _, name = after.partition(":")
            begin = (-int(seconds), unquote_rev(name))
        for name in await reader.tags(self.references):
            tagged_at = times.get(TAGS + name, 0)
            if not after or (-tagged_at, name) > begin:
                row = self._named(TAGS, name, f"{tagged_at}:{quote_rev(name)}")
                if self._reads(row):
                    yield row

    def _named(self, prefix: str, name: str, position: str) -> _Row:
        return _Row(position, self.repository.uris.tree(short_name(prefix + name, self.references)))

    async def commits(self, after: str, limit: int = LISTED_COMMITS) -> AsyncIterator[_Row]:
        """Yield the newest commits. A position is the number and the name of its commit."""
        if self.tip is None:
            return
        number, _, oid = after.partition(":")
        count = int(number) if after else 0
        while count < limit:
            batch_size = min(LISTED_COMMITS, limit - count)
            boundary_version = self.repository.references.boundary_version
            histories = self.repository.histories
            try:
                if self.readable is None:
                    window = await histories.window(self.tip, boundary_version, oid or None, batch_size)
                else:
                    window = await self.readable.window(histories, self.tip, oid or None, batch_size, EVERYTHING)
            except GitFailed:  # only the history is damaged: continue with the rest of the list
                return
            for commit in window.commits:
                count += 1
                yield _Row(f"{count}:{commit.oid}", commit=commit.oid)
            if window.after is None:
                return
            oid = window.after

    async def files(self, after: str) -> AsyncIterator[_Row]:
        """Yield the files and folders of HEAD's tree, or nothing if the tree cannot be read."""
        if self.tip is not None:
            objects = self.repository.objects
            begin = split_path(after)[0] if after else ()
            readable = self.readable
            should_enter = None if readable is None else partial(readable.may_read_below, "HEAD")
            with suppress(MissingObject, InvalidArgument):
                async for parts, entry in objects.walk((await objects.commit(self.tip)).tree, begin, should_enter):
                    if readable is not None and not readable.may_read("HEAD", parts):
                        continue
                    if readable is not None and is_tree(entry.mode) and not readable.reads_all_below("HEAD", parts):
                        entry = entry._replace(oid="")  # its name also depends on entries that may not be read
                    yield _Row(join_parts(parts), file=(parts, entry))

    async def resources(self, rows: Sequence[_Row]) -> list[t.Resource]:
        """Return the resources of rows, except those that cannot be read."""
        files = [row.file for row in rows if row.file is not None]
        file_resources = iter(await entry_resources(self.repository, "HEAD", files) if files else [])
        commits = await _commits(self.repository, rows)
        other_resources = iter(await asyncio.gather(*[self._other_resource(row) for row in rows if row.uri]))
        resources: list[t.Resource | None] = []
        for row in rows:
            if row.file is not None:
                resources.append(next(file_resources))
            elif row.uri:
                resources.append(next(other_resources))
            elif row.commit in commits:
                resources.append(commit_resource(self.repository, commits[row.commit]))
        return [resource for resource in resources if resource is not None]

    async def _other_resource(self, row: _Row) -> t.Resource | None:
        try:
            answer = answer_for(self.repository, self.references, row.uri)
            await answer.load()
            return await answer.resource()
        except (LookupError, ResourceNotFound, InvalidArgument):  # a tag of a missing object, or a damaged one
            return None


_PAGE_SECTIONS = ("top", "branches", "tags", "commits", "files")
_CHILD_SECTIONS = ("head", "branches", "tags")
_DOCUMENT_SECTIONS = ("files", "commits")


async def page(
    repository: Repository, references: References, after: str | None, limit: int
) -> tuple[list[t.Resource], str | None]:
    """Return at most `limit` resources after the key, and the key of the next page.

    Raises:
        InvalidArgument: the key does not belong to this list.
    """
    return await _page(repository, references, after, limit, _PAGE_SECTIONS)


async def top_children(
    repository: Repository, references: References, after: str | None, limit: int
) -> tuple[list[t.Resource], str | None]:
    """Return the entries of the top, in pages like those of `page`."""
    return await _page(repository, references, after, limit, _CHILD_SECTIONS)


async def _page(
    repository: Repository, references: References, after: str | None, limit: int, sections: tuple[str, ...]
) -> tuple[list[t.Resource], str | None]:
    while True:
        listing, rows, key = await _rows(repository, references, after, limit, sections, LISTED_COMMITS)
        resources = await listing.resources(rows)
        if resources or key is None:  # only the last page may be empty
            return resources, key
        after = key


async def _rows(
    repository: Repository,
    references: References,
    after: str | None,
    limit: int,
    sections: tuple[str, ...],
    max_commits: int,
) -> tuple[_List, list[_Row], str | None]:
    """Return at most `limit` rows after a key, and the key of the last one if there are more."""
    first, tip, position = await _begin(repository, references, after, sections)
    listing = _List(repository, references, tip)
    rows_of: dict[str, Callable[[str], AsyncIterator[_Row]]] = {
        "top": listing.top, "head": listing.head, "branches": listing.branches, "tags": listing.tags,
        "commits": partial(listing.commits, limit=max_commits), "files": listing.files,
    }  # fmt: skip
    rows: list[_Row] = []
    key: str | None = None
    try:
        for name in sections[sections.index(first) :]:
            async for row in rows_of[name](position):
                if len(rows) >= limit:
                    return listing, rows, key
                rows.append(row)
                key = f"{name} {tip or '-'} {row.position}"
            position = ""
    except (UnreadableUri, ValueError, NoSuchPath):
        raise bad_cursor() from None
    return listing, rows, None


async def _begin(
    repository: Repository, references: References, after: str | None, sections: tuple[str, ...]
) -> tuple[str, str | None, str]:
    """Return where a page begins: the section of the list, the commit of HEAD, and the position in the section."""
    if after is None:
        return sections[0], await _tip(repository, references), ""
    name, _, rest = after.partition(" ")
    tip, _, position = rest.partition(" ")
    if name not in sections or not position or len(after) > 100_000:
        raise bad_cursor()
    if tip == "-":
        return name, None, position
    try:
        if len(tip) != repository.private_directory.oid_length:
            raise ValueError
        return name, (await repository.objects.commit(bytes.fromhex(tip).hex())).oid, position
    except (LookupError, ValueError):
        raise bad_cursor() from None


async def _tip(repository: Repository, references: References) -> str | None:
    if references.head is None:
        return None
    try:
        head = (await repository.objects.commit_of(references.head)).oid
        readable = repository.readable_history()
        return head if readable is None else await readable.nearest(head, "HEAD")
    except (LookupError, InvalidArgument):
        return None


async def documents(
    repository: Repository, references: References, after: str | None, limit: int
) -> tuple[list[Document], str | None]:
    """Return the documents to search: the files of HEAD's tree, and the messages of its newest commits.

    Raises:
        InvalidArgument: the key does not belong to this list.
    """
    page_documents: list[Document] = []
    for _ in range(MAX_ROUNDS):
        _, rows, after = await _rows(
            repository, references, after, limit - len(page_documents), _DOCUMENT_SECTIONS, SEARCHED_COMMITS
        )
        files = [row.file for row in rows if row.file is not None and is_file(row.file[1].mode)]
        page_documents += map(document_of, await entry_resources(repository, "HEAD", files))
        commits = await _commits(repository, rows)
        commit_resources = [commit_resource(repository, commits[row.commit]) for row in rows if row.commit in commits]
        page_documents += map(document_of, commit_resources)
        if after is None or len(page_documents) >= limit:
            break
    return page_documents, after


async def _commits(repository: Repository, rows: Sequence[_Row]) -> dict[str, Commit]:
    """Return the commits of rows, without the parts that the caller may not read. Damaged commits are left out."""
    commits = await repository.objects.commits([row.commit for row in rows if row.commit])
    readable = repository.readable_history()
    if readable is None:
        return commits
    return {oid: await readable.without_hidden(commit) for oid, commit in commits.items()}
