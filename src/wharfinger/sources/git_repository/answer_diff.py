"""The difference between two revisions, `git://label/diff/{from}..{to}`, or of one commit, `git://label/diff/{rev}`.

A long difference is read in windows, which do not divide the patch of a path: `?after=` names the last path of the
previous window.
"""

from __future__ import annotations

import asyncio
import os

from wharfinger import types as t
from wharfinger.content.text import shown
from wharfinger.source import VERSION
from wharfinger.sources.directories import modified_annotations
from wharfinger.sources.etag import digest
from wharfinger.sources.git_repository.answer_commit import tree_before
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_differences import (
    DIFF,
    ComparedPaths,
    changes,
    changes_after,
    compared_paths,
    patches,
    window_contents,
)
from wharfinger.sources.git_repository.git_objects import NoSuchPath, is_tree
from wharfinger.sources.git_repository.parsing import Commit, GitTreeEntry
from wharfinger.sources.windows.window_budget import window_bytes

__all__ = ["DiffAnswer"]


class DiffAnswer(GitAnswer):
    """The difference between two commits, or between a commit and its first parent, in all files or at one path."""

    _commits: list[Commit]
    _trees: tuple[str, str]
    _compared: ComparedPaths

    async def load(self) -> None:
        address = self.address
        revisions = [await self.revision(name) for name in (address.rev, address.to) if name is not None]
        self._commits = [await self.objects.commit_of(revision.oid) for revision in revisions]
        old_tree = self._commits[0].tree
        if len(revisions) == 1:
            old_tree = await tree_before(self.objects, self._commits[0])
        self._trees = old_tree, self._commits[-1].tree
        old, new = await asyncio.gather(*[self._entry_in(tree) for tree in self._trees])
        if old is None and new is None:
            raise NoSuchPath(address.uri)
        self.need_path(is_folder=all(side is None or is_tree(side.mode) for side in (old, new)))
        self._compared = await compared_paths(
            self.repository.private_directory, *self._trees, self.path, self.path_filter
        )
        self.version = "..".join("" if side is None else side.oid for side in (old, new))
        modes = [0 if side is None else side.mode for side in (old, new)]
        if modes[0] != modes[1]:  # a file that became executable keeps its object
            self.version += f" {modes[0]:o}..{modes[1]:o}"
        if self.path_filter is not None and any(side is not None and is_tree(side.mode) for side in (old, new)):
            # The object IDs of trees also depend on files that the caller may not read.
            listed, _ = await changes(self.repository.private_directory, *self._trees, self._compared)
            self.version = digest(repr(listed))
        self.fixed = all(revision.fixed for revision in revisions)
        self.modified = self._commits[-1].committer.seconds

    async def _entry_in(self, tree: str) -> GitTreeEntry | None:
        """Return the entry of a tree at the path of this answer; None if the tree has no such path."""
        try:
            return await self.objects.find(tree, self.address.parts)
        except NoSuchPath:
            return None

    async def resource(self) -> t.Resource:
        address = self.address
        between = address.rev if address.to is None else f"{address.rev}..{address.to}"
        where = " of " + "/".join(address.parts) if address.parts else ""
        return t.Resource(
            uri=self.uri,
            name=shown(between),
            title=shown(f"Changes {'between' if address.to else 'by'} {between}{where}"),
            mime_type=DIFF,
            annotations=modified_annotations(self.modified),
            meta={VERSION: self.version},
        )

    async def contents(self) -> list[t.ResourceContents]:
        listed, cut = await changes(self.repository.private_directory, *self._trees, self._compared)
        self.fixed = self.fixed and not cut
        listed = changes_after(listed, os.fsencode("/".join(self.path_parameter("after"))))
        texts: list[str] = []
        if listed:
            texts, ended_early = await patches(
                self.repository.private_directory, *self._trees, listed, self._compared, window_bytes()
            )
            self.fixed = self.fixed and not ended_early
        text = "".join(texts) or ("Nothing was found in time: ask for one path.\n" if cut else "Nothing differs.\n")
        # With the object IDs of the commits, the windows stay the same when a branch moves.
        oids = [commit.oid for commit in self._commits]
        pinned = self.uris.diff(oids[0], oids[1] if len(oids) > 1 else None, self.address.parts)
        return window_contents(self.uri, self.version, text, listed, len(texts), pinned)
