"""The top of a repository, `git://label`: HEAD, branches, tags, and the URIs of everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument
from wharfinger.policy.current import may_read
from wharfinger.source import PROBLEM, VERSION
from wharfinger.sources.directories import MAX_CHILDREN, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_text import local_time, subject, top_text
from wharfinger.sources.git_repository.references import BRANCHES, TAGS, References
from wharfinger.sources.git_repository.revision_names import short_name

__all__ = ["TopAnswer", "head_words"]

MAX_NAMED_REFERENCES = 50
"""Maximum number of branches, and of tags, that the text names."""


class TopAnswer(GitAnswer):
    """The answer for the top: a text about HEAD, branches and tags, with their trees and HEAD's log as children."""

    problem = ""

    async def load(self) -> None:
        self.version = self.references.fingerprint
        self.problem = self.repository.outage()
        if self.problem:
            self.version = digest(f"{self.version} {self.problem}")
        if self.readable is not None:  # the fingerprint also depends on branches that the caller may not read
            self.version = digest((await self.contents())[0].text or "")

    async def resource(self) -> t.Resource:
        label = shown(self.repository.label)
        return t.Resource(
            uri=self.uri, name=label, title=f"git repository {label}", mime_type=mime.DIRECTORY,
            meta={VERSION: self.version, **({PROBLEM: self.problem} if self.problem else {})},
        )  # fmt: skip

    async def contents(self) -> list[t.ResourceContents]:
        references = self.references
        branches = self._readable_names(BRANCHES, references.under(BRANCHES))
        tags = self._readable_names(TAGS, await self.repository.references.tags(references))
        counts = f"{many(len(branches), 'branch')}, {many(len(tags), 'tag')}"
        lists = [
            ("Branches:", [line async for line in self._lines(BRANCHES, branches)]),
            ("Tags, newest first:", [line async for line in self._lines(TAGS, tags)]),
        ]
        text = top_text(shown(self.repository.label), await self._head(), counts, lists, self._uri_forms())
        if self.problem:
            text = f"{self.problem}\n\n{text}"
        children, _ = await self.children(None, MAX_CHILDREN)
        return [self.text(text), *summaries(children)]

    async def children(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        from wharfinger.sources.git_repository.git_listing import top_children

        return await top_children(self.repository, self.references, after, limit)

    async def _head(self) -> str:
        words = head_words(self.references)
        if self.references.head is None:
            return words
        try:
            head = await self._nearest(self.references.head)
            commit = await self.objects.commit_of(head)
            if self.readable is not None:
                commit = await self.readable.without_hidden(commit)
        except (LookupError, InvalidArgument):
            return f"{words}, which cannot be read" if self.readable is None else head_without_commits(self.references)
        words = head_words(self.references, head)
        return f"{words}, {local_time(commit.committer)}, “{subject(commit)}”"

    def _readable_names(self, prefix: str, names: Iterable[str]) -> list[str]:
        """Return the branches or tags whose trees the caller may read."""
        if self.readable is None:
            return list(names)
        return [name for name in names if may_read(self.uris.tree(short_name(prefix + name, self.references)))]

    async def _nearest(self, oid: str) -> str:
        """Return `oid` or, if the caller may not read everything, the nearest commit that is shown."""
        if self.readable is None:
            return oid
        return await self.readable.nearest((await self.objects.commit_of(oid)).oid)

    async def _lines(self, prefix: str, names: Sequence[str]) -> AsyncIterator[str]:
        for name in names[:MAX_NAMED_REFERENCES]:
            try:
                oid = await self._nearest(self.references.names[prefix + name])
            except (LookupError, InvalidArgument):
                continue
            yield f"{shown(name)} at {oid[:12]}  {self.uris.tree(short_name(prefix + name, self.references))}"
        if len(names) > MAX_NAMED_REFERENCES:
            yield f"and {len(names) - MAX_NAMED_REFERENCES:,} more: see the completion of rev"

    def _uri_forms(self) -> list[str]:
        return [
            "REV is HEAD, a branch, a tag or a commit, with %2F for a slash, and ~2 or ^ at its end for parents.",
            *[
                f"{words}: {self.uris.top}/{form}"
                for words, form in _URI_FORMS
                if not form.startswith("changes") or self.repository.private_directory.found.work_tree
            ],
        ]


_URI_FORMS = (
    ("Files", "tree/REV/PATH"),
    ("Changes that are not committed", "changes, or changes/PATH"),
    ("Lines with a text", "grep/REV?text=TEXT&path=PATH"),
    ("Who wrote the lines of a file", "blame/REV/PATH?lines=1-50"),
    ("A commit", "commit/REV"),
    ("Differences", "diff/REV..REV, diff/REV..REV/PATH, or diff/REV for those of one commit"),
    (
        "History",
        "log/REV?path=PATH&since=7d&author=NAME&grep=WORDS&limit=50, and pickaxe=TEXT for who added or removed it",
    ),
)


def head_words(references: References, oid: str = "") -> str:
    """Return HEAD in words, such as `main at 1a2b3c4`. `oid` is the commit that is shown instead of HEAD's."""
    if references.head is None:
        return head_without_commits(references)
    return f"{shown(references.head_name)} at {(oid or references.head)[:7]}"


def head_without_commits(references: References) -> str:
    """Return HEAD in words if there is no commit, or none that the caller may read."""
    return f"{shown(references.head_name)}, without commits yet"
