"""One commit: `git://label/commit/{rev}`. Who, when, why, and which paths it changed against its first parent."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.source import VERSION
from wharfinger.sources.directories import dated
from wharfinger.sources.git_repository.answers import GitAnswer, Repository
from wharfinger.sources.git_repository.git_text import commit_text, subject
from wharfinger.sources.git_repository.objects import PureDamaged, PureMissing
from wharfinger.sources.git_repository.parsing import Commit, Tag
from wharfinger.sources.git_repository.revision_names import PEELED, GitRevision
from wharfinger.sources.git_repository.trees import TreeChange, changes

__all__ = ["CommitAnswer", "commit_resource", "first_changes", "tree_before", "with_moves"]

PATHS = 300  # changed paths that are named
PATIENCE = 1.0  # seconds of looking for them


class CommitAnswer(GitAnswer):
    """A commit, or the annotated tags on the way to one."""

    @functools.cached_property
    def _found(self) -> tuple[GitRevision, list[Tag], Commit]:
        revision = self.revision(self.address.rev)
        oid, tags = revision.oid, list[Tag]()
        while len(tags) < PEELED and self.objects.header(oid)[0] == "tag":
            tags.append(self.objects.tag(oid))
            oid = tags[-1].target
        return revision, tags, self.objects.commit(oid)

    @property
    def commit(self) -> Commit:
        """The commit."""
        return self._found[2]

    @property
    def fixed(self) -> bool:
        return self._found[0].fixed

    @property
    def modified(self) -> float | None:
        return self._found[2].committer.seconds

    @property
    def version(self) -> str:
        return self._found[0].oid

    def resource(self) -> t.Resource:
        found = commit_resource(self.repository, self._found[2])
        found.uri, found.meta = self.uri, {VERSION: self.version}
        return found

    def contents(self) -> list[t.ResourceContents]:
        _, tags, commit = self._found
        try:
            before = tree_before(self.repository, commit, self.references.shallow)
            changed, more = first_changes(changes(self.objects, before, commit.tree), PATHS)
        except (PureMissing, PureDamaged):  # of a partial clone, or a damaged one
            changed, more = [], True
        return [self.text(commit_text(commit, tags, with_moves(changed), more, self.uris.diff(commit.oid)))]


def commit_resource(repository: Repository, commit: Commit) -> t.Resource:
    """A commit as a resource."""
    return t.Resource(
        uri=repository.uris.commit(commit.oid),
        name=commit.oid[:12],
        title=subject(commit) or commit.oid[:12],
        mime_type=mime.TEXT,
        annotations=dated(commit.committer.seconds),
        meta={VERSION: commit.oid},
    )


def tree_before(repository: Repository, commit: Commit, shallow: frozenset[str]) -> str | None:
    """The tree of a commit's first parent; None where it has none, or is the end of a shallow clone."""
    if not commit.parents or commit.oid in shallow:
        return None
    return repository.objects.commit(commit.parents[0]).tree


def first_changes(found: Iterable[TreeChange], most: int) -> tuple[list[TreeChange], bool]:
    """At most so many changes, as many as are found in time; and whether there are more."""
    ends = time.monotonic() + PATIENCE
    listed: list[TreeChange] = []
    for change in found:
        if len(listed) >= most or time.monotonic() > ends:
            return listed, True
        listed.append(change)
    return listed, False


def with_moves(listed: list[TreeChange]) -> list[TreeChange]:
    """Take what went in one place and came in another, unchanged, for a move."""
    gone = {change.old.oid: change for change in listed if change.old is not None and change.new is None}
    moved: set[bytes] = set()
    found: list[TreeChange] = []
    for change in listed:
        source = gone.pop(change.new.oid, None) if change.old is None and change.new is not None else None
        if source is not None:
            moved.add(source.path)
            found.append(TreeChange(change.path, source.old, change.new, source.path))
        else:
            found.append(change)
    return [change for change in found if change.new is not None or change.path not in moved]
