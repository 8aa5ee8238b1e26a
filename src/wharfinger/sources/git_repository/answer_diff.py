"""What differs between two revisions: `git://label/diff/{from}..{to}`, and of one commit `git://label/diff/{rev}`.

A long one is read in windows, each of whole paths: `?after=` names the last path of the window before.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator

from wharfinger import types as t
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument
from wharfinger.source import VERSION
from wharfinger.sources.folder.file_uri import UnreadableUri, join_parts
from wharfinger.sources.git_repository.answer_commit import first_changes, tree_before, with_moves
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_differences import difference
from wharfinger.sources.git_repository.git_uris import plain_path
from wharfinger.sources.git_repository.parsing import Commit, GitTreeEntry
from wharfinger.sources.git_repository.revision_names import GitRevision, commit_of
from wharfinger.sources.git_repository.trees import NoSuchPath, TreeChange, changes, find, is_tree
from wharfinger.sources.windows.window import NEXT, WINDOW_BYTES, going_on, with_query

__all__ = ["DIFF", "DiffAnswer"]

DIFF = "text/x-diff"
PATHS = 1_000  # paths of one window
PATIENCE = 2.0  # seconds of comparing in one window


class DiffAnswer(GitAnswer):
    """The difference between two commits, or of one to its first parent; of everything, or of what is at a path."""

    @functools.cached_property
    def _ends(self) -> tuple[list[GitRevision], str | None, Commit]:
        """The revisions that were named, the older tree, and the newer commit."""
        address = self.address
        named = [self.revision(name) for name in (address.rev, address.to) if name is not None]
        commits = [commit_of(revision.oid, self.objects) for revision in named]
        if len(commits) == 1:
            return named, tree_before(self.repository, commits[0], self.references.shallow), commits[0]
        return named, commits[0].tree, commits[1]

    @functools.cached_property
    def _sides(self) -> tuple[GitTreeEntry | None, GitTreeEntry | None]:
        """What each end has at the path."""
        _, old, commit = self._ends
        sides = self._at(old), self._at(commit.tree)
        if sides == (None, None):
            raise NoSuchPath(self.address.uri)
        return sides

    def _at(self, tree: str | None) -> GitTreeEntry | None:
        try:
            return None if tree is None else find(self.objects, tree, self.address.parts)
        except NoSuchPath:
            return None

    @property
    def fixed(self) -> bool:
        return all(revision.fixed for revision in self._ends[0])

    @property
    def modified(self) -> float | None:
        return self._ends[2].committer.seconds

    @property
    def version(self) -> str:
        old, new = self._sides
        return "..".join("" if side is None else f"{side.oid}" for side in (old, new)) + _modes(old, new)

    def resource(self) -> t.Resource:
        address = self.address
        between = address.rev if address.to is None else f"{address.rev}..{address.to}"
        where = " of " + "/".join(address.parts) if address.parts else ""
        return t.Resource(
            uri=self.uri,
            name=shown(between),
            title=shown(f"Changes {'between' if address.to else 'by'} {between}{where}"),
            mime_type=DIFF,
            meta={VERSION: self.version},
        )

    def contents(self) -> list[t.ResourceContents]:
        after = self._after()
        listed, more = first_changes(self._changes(after), PATHS)
        texts: list[str] = []
        if not more and not after:  # a move is only told where both of its ends are in the same window
            moved = with_moves(listed)
            texts = self._texts(moved)
            more = len(texts) < len(moved)
        if more or after:
            texts = self._texts(listed)
            more = more or len(texts) < len(listed)
        meta: dict[str, object] = {VERSION: self.version}
        text = "".join(texts) or "Nothing differs.\n"
        contents = [t.ResourceContents(uri=self.uri, mime_type=DIFF, text=text, meta=meta)]
        if more:
            path = join_parts(tuple(os.fsdecode(listed[len(texts) - 1].path).split("/")))
            following = with_query(self._pinned(), f"after={path.replace('&', '%26')}")
            meta[NEXT] = following
            contents.append(going_on(following, f"{many(len(texts), 'path')} so far."))
        return contents

    def _texts(self, listed: list[TreeChange]) -> list[str]:
        """The differences that one window holds: the first, and more while there is room and time."""
        ends = time.monotonic() + PATIENCE
        texts: list[str] = []
        size = 0
        for change in listed:
            if texts and (size >= WINDOW_BYTES or time.monotonic() > ends):
                break
            texts.append(difference(self.objects, change))
            size += len(texts[-1])
        return texts

    def _changes(self, after: bytes) -> Iterator[TreeChange]:
        """The changed paths behind one, in order."""
        old, new = self._sides
        prefix = os.fsencode("/".join(self.address.parts))
        trees = [side is not None and is_tree(side.mode) for side in (old, new)]
        if not any(trees):
            if old != new and not after:
                yield TreeChange(prefix, old, new)
            return
        for side, (before, now) in zip((old, new), ((old, None), (None, new)), strict=True):
            if side is not None and not is_tree(side.mode):
                yield TreeChange(prefix, before, now)
        if prefix:
            prefix += b"/"
        compared = changes(self.objects, *(side.oid if side and is_tree(side.mode) else None for side in (old, new)))
        behind = after.split(b"/")
        for change in compared:
            path = prefix + change.path
            if not after or path.split(b"/") > behind:
                yield change._replace(path=path)

    def _after(self) -> bytes:
        after = self.address.query.get("after")
        if after is None:
            return b""
        try:
            parts = plain_path(after)
        except UnreadableUri:
            raise InvalidArgument("after= must be the path of a file, such as after=docs/guide.md.") from None
        return os.fsencode("/".join(parts))

    def _pinned(self) -> str:
        """This difference by the names of the objects, so that its windows stay what they are."""
        named, _, _ = self._ends
        oids = [commit_of(revision.oid, self.objects).oid for revision in named]
        return self.uris.diff(oids[0], oids[1] if len(oids) > 1 else None, self.address.parts)


def _modes(old: GitTreeEntry | None, new: GitTreeEntry | None) -> str:
    """Modes where they differ: a file that became executable differs, though its object does not."""
    modes = [side.mode if side else 0 for side in (old, new)]
    return "" if modes[0] == modes[1] else f" {modes[0]:o}..{modes[1]:o}"
