"""The list of a repository in pages: its top, branches, tags, the newest commits of HEAD, and HEAD's files.

A key holds the commit that HEAD was when its list began, so that nothing is lost or shown twice while commits arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import Document, document_of
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts, split_path
from wharfinger.sources.git_repository.answer_commit import commit_resource
from wharfinger.sources.git_repository.answer_tree import entry_resource
from wharfinger.sources.git_repository.answering import answer_for
from wharfinger.sources.git_repository.answers import Repository
from wharfinger.sources.git_repository.git_text import subject
from wharfinger.sources.git_repository.git_uris import Parts, quote_rev, unquote_rev
from wharfinger.sources.git_repository.objects import PureDamaged, PureMissing
from wharfinger.sources.git_repository.parsing import Commit, GitTreeEntry
from wharfinger.sources.git_repository.references import BRANCHES, TAGS, References
from wharfinger.sources.git_repository.revision_names import commit_of, short_name
from wharfinger.sources.git_repository.trees import NoSuchPath, is_link, is_module, is_tree, walk
from wharfinger.sources.page_keys import bad_cursor

__all__ = ["RECENT", "SEARCHED", "documents", "page", "top_children"]

RECENT = 100
"""Commits of HEAD that are listed."""
SEARCHED = 10_000
"""Commits of HEAD whose messages are searched."""
LOOKED_AT = 20  # entries that one page of documents passes over, for each that it may return

Row = tuple[str, t.Resource | None]
"""A position and what is there; None where there is nothing to show."""


class _List:
    """What is listed, from one moment on: `tip` is what HEAD was, None in a repository without commits."""

    def __init__(self, repository: Repository, references: References, tip: str | None) -> None:
        self.repository = repository
        self.references = references
        self.tip = tip

    def _stat(self, uri: str) -> t.Resource | None:
        try:
            return answer_for(self.repository, self.references, uri).resource()
        except (LookupError, ResourceNotFound, InvalidArgument):  # a tag of what is not there, or damaged
            return None

    def top(self, after: str) -> Iterator[Row]:
        uris = self.repository.uris
        for position, uri in (("1", uris.top), *self._heads()):
            if position > after:
                yield position, self._stat(uri)

    def heads(self, after: str) -> Iterator[Row]:
        for position, uri in self._heads():
            if position > after:
                yield position, self._stat(uri)

    def _heads(self) -> tuple[tuple[str, str], ...]:
        uris = self.repository.uris
        return (("2", uris.tree("HEAD")), ("3", uris.log("HEAD"))) if self.tip else ()

    def branches(self, after: str) -> Iterator[Row]:
        return self._named(BRANCHES, after)

    def tags(self, after: str) -> Iterator[Row]:
        return self._named(TAGS, after)

    def _named(self, prefix: str, after: str) -> Iterator[Row]:
        for name in self.references.under(prefix, unquote_rev(after) if after else ""):
            rev = short_name(prefix + name, self.references)
            yield quote_rev(name), self._stat(self.repository.uris.tree(rev))

    def newest(self, after: str, most: int = RECENT) -> Iterator[tuple[str, Commit]]:
        if self.tip is None:
            return
        histories = self.repository.histories
        history = histories.walk(self.tip, self.references.shallow)
        begin = history.place_of(after) + 1 if after else 0
        if after and not begin:
            raise ValueError("no commit of this history")
        with suppress(PureMissing, PureDamaged):
            for commit in islice(history.commits(begin), max(0, most - begin)):
                yield commit.oid, commit

    def commits(self, after: str) -> Iterator[Row]:
        for position, commit in self.newest(after):
            yield position, commit_resource(self.repository, commit)

    def files(self, after: str) -> Iterator[Row]:
        for parts, entry in self.entries(after):
            yield join_parts(parts), entry_resource(self.repository, "HEAD", parts, entry)

    def entries(self, after: str) -> Iterator[tuple[Parts, GitTreeEntry]]:
        """What HEAD's tree holds behind a path; nothing where it cannot be read."""
        if self.tip is not None:
            objects = self.repository.objects
            begin = split_path(after)[0] if after else ()
            with suppress(PureMissing, PureDamaged):
                yield from walk(objects, objects.commit(self.tip).tree, begin)


_PAGE = ("top", "branches", "tags", "commits", "files")
_CHILDREN = ("heads", "branches", "tags")


def page(
    repository: Repository, references: References, after: str | None, limit: int
) -> tuple[list[t.Resource], str | None]:
    """At most `limit` resources behind the key, and the key of the next page.

    Raises:
        InvalidArgument: the key is none of this list.
    """
    return _page(repository, references, after, limit, _PAGE)


def top_children(
    repository: Repository, references: References, after: str | None, limit: int
) -> tuple[list[t.Resource], str | None]:
    """What is directly in the top, in pages as those of `page`."""
    return _page(repository, references, after, limit, _CHILDREN)


def _page(
    repository: Repository, references: References, after: str | None, limit: int, parts: tuple[str, ...]
) -> tuple[list[t.Resource], str | None]:
    part, tip, position = _begin(repository, references, after, parts)
    listed = _List(repository, references, tip)
    found: list[t.Resource] = []
    key: str | None = None
    try:
        for name in parts[parts.index(part) :]:
            for here, resource in getattr(listed, name)(position):
                if resource is None:
                    continue
                if len(found) >= limit:
                    return found, key
                found.append(resource)
                key = f"{name} {tip or '-'} {here}"
            position = ""
    except (UnreadableUri, ValueError, NoSuchPath):
        raise bad_cursor() from None
    return found, None


def _begin(
    repository: Repository, references: References, after: str | None, parts: tuple[str, ...]
) -> tuple[str, str | None, str]:
    """Where a page begins: the part of the list, the commit, and the position."""
    if after is None:
        return parts[0], _tip(repository, references), ""
    name, _, rest = after.partition(" ")
    tip, _, position = rest.partition(" ")
    if name not in parts or not position or len(after) > 100_000:
        raise bad_cursor()
    if tip == "-":
        return name, None, position
    try:
        if len(tip) != 40:
            raise ValueError
        return name, repository.objects.commit(bytes.fromhex(tip).hex()).oid, position
    except (LookupError, ValueError):
        raise bad_cursor() from None


def _tip(repository: Repository, references: References) -> str | None:
    if references.head is None:
        return None
    try:
        return commit_of(references.head, repository.objects).oid
    except (PureMissing, InvalidArgument):
        return None


def documents(
    repository: Repository, references: References, after: str | None, limit: int
) -> tuple[list[Document], str | None]:
    """What is searched: the files of HEAD's tree, and the messages of its newest commits.

    Raises:
        InvalidArgument: the key is none of these.
    """
    part, tip, position = _begin(repository, references, after, ("files", "commits"))
    listed = _List(repository, references, tip)
    found: list[Document] = []
    key = after
    looked = 0
    try:
        for name in ("files", "commits")[("files", "commits").index(part) :]:
            rows = _file_documents(listed, position) if name == "files" else _commit_documents(listed, position)
            for here, document in rows:
                if len(found) >= limit or looked >= limit * LOOKED_AT:
                    return found, key
                looked += 1
                key = f"{name} {tip or '-'} {here}"
                if document is not None:
                    found.append(document)
            position = ""
    except (UnreadableUri, ValueError, NoSuchPath):
        raise bad_cursor() from None
    return found, None


def _file_documents(listed: _List, after: str) -> Iterator[tuple[str, Document | None]]:
    repository = listed.repository
    for parts, entry in listed.entries(after):
        document = None
        if not (is_tree(entry.mode) or is_module(entry.mode) or is_link(entry.mode)):
            resource = entry_resource(repository, "HEAD", parts, entry)
            document = document_of(resource)
        yield join_parts(parts), document


def _commit_documents(listed: _List, after: str) -> Iterator[tuple[str, Document | None]]:
    for position, commit in listed.newest(after, SEARCHED):
        title = subject(commit) or commit.oid[:12]
        uri = listed.repository.uris.commit(commit.oid)
        yield position, Document(uri=uri, title=title, version=commit.oid, mime_type=mime.TEXT)
