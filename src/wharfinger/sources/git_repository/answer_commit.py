"""One commit, `git://label/commit/{rev}`: author, time, message, and the paths that differ from its first parent."""

from __future__ import annotations

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.source import VERSION
from wharfinger.sources.directories import modified_annotations
from wharfinger.sources.git_repository.answers import GitAnswer, Repository
from wharfinger.sources.git_repository.git_differences import EMPTY_TREES, changes, compared_paths
from wharfinger.sources.git_repository.git_objects import MAX_TAGS, GitObjects
from wharfinger.sources.git_repository.git_process import GitFailed
from wharfinger.sources.git_repository.git_text import commit_text, subject
from wharfinger.sources.git_repository.object_reader import MissingObject
from wharfinger.sources.git_repository.parsing import Commit, Tag

__all__ = ["CommitAnswer", "commit_resource", "tree_before"]

MAX_PATHS = 300
"""Maximum number of changed paths that the text names."""
COMPARISON_SECONDS = 3.0
"""Maximum time of the search for changed paths."""


class CommitAnswer(GitAnswer):
    """A commit, with the annotated tags that lead to it."""

    commit: Commit
    tags: list[Tag]

    async def load(self) -> None:
        revision = await self.revision(self.address.rev)
        oid = revision.oid
        self.tags = []
        while len(self.tags) < MAX_TAGS and (await self.objects.info(oid)).kind == "tag":
            self.tags.append(await self.objects.tag(oid))
            oid = self.tags[-1].target
        self.commit = await self.objects.commit(oid)
        if self.readable is not None:
            if not await self.readable.shows(oid, self.address.rev):
                raise MissingObject(oid)
            self.commit = await self.readable.without_hidden(self.commit)
        self.version, self.fixed = revision.oid, revision.fixed
        self.modified = self.commit.committer.seconds

    async def resource(self) -> t.Resource:
        resource = commit_resource(self.repository, self.commit)
        resource.uri, resource.meta = self.uri, {VERSION: self.version}
        return resource

    async def contents(self) -> list[t.ResourceContents]:
        commit = self.commit
        try:
            old_tree = await tree_before(self.objects, await self.objects.commit(commit.oid))
            private_directory = self.repository.private_directory
            compared = await compared_paths(private_directory, old_tree, commit.tree, b"", self.path_filter)
            changed, more = await changes(
                private_directory, old_tree, commit.tree, compared, limit=MAX_PATHS, seconds=COMPARISON_SECONDS
            )
        except (MissingObject, GitFailed):  # in a partial clone, or a damaged repository
            changed, more = [], True
        # A list that was cut below `MAX_PATHS` may be longer next time: git was stopped early, or objects are missing.
        self.fixed = self.fixed and (not more or len(changed) >= MAX_PATHS)
        return [self.text(commit_text(commit, self.tags, changed, more, self.uris.diff(commit.oid)))]


def commit_resource(repository: Repository, commit: Commit) -> t.Resource:
    """Return the resource of a commit."""
    return t.Resource(
        uri=repository.uris.commit(commit.oid),
        name=commit.oid[:12],
        title=subject(commit) or commit.oid[:12],
        mime_type=mime.TEXT,
        annotations=modified_annotations(commit.committer.seconds),
        meta={VERSION: commit.oid},
    )


async def tree_before(objects: GitObjects, commit: Commit) -> str:
    """Return the tree of a commit's first parent; the empty tree if it has none, or if a shallow clone ends there."""
    if not commit.parents:
        return EMPTY_TREES[objects.private_directory.oid_length]
    try:
        return (await objects.commit((await objects.info(f"{commit.oid}^")).oid)).tree
    except MissingObject:
        if commit.oid in objects.private_directory.shallow:
            return EMPTY_TREES[objects.private_directory.oid_length]
        raise
