"""The top of a repository, `git://label`: HEAD, branches, tags, and the URIs of everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument
from wharfinger.source import VERSION
from wharfinger.sources.directories import MAX_CHILDREN, summaries
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_text import local_time, subject, top_text
from wharfinger.sources.git_repository.object_reader import MissingObject
from wharfinger.sources.git_repository.references import BRANCHES, TAGS, References
from wharfinger.sources.git_repository.revision_names import short_name

__all__ = ["TopAnswer", "head_words"]

MAX_NAMED_REFERENCES = 50
"""The most branches, and the most tags, that the text names."""


class TopAnswer(GitAnswer):
    """The directory of a repository: HEAD's tree and log, and the trees of branches and tags."""

    async def load(self) -> None:
        self.version = self.references.mark

    async def resource(self) -> t.Resource:
        label = shown(self.repository.label)
        return t.Resource(
            uri=self.uri, name=label, title=f"git repository {label}", mime_type=mime.DIRECTORY,
            meta={VERSION: self.version},
        )  # fmt: skip

    async def contents(self) -> list[t.ResourceContents]:
        references = self.references
        counts = f"{many(references.count(BRANCHES), 'branch')}, {many(references.count(TAGS), 'tag')}"
        tags = await self.repository.references.tags(references)
        lists = [
            ("Branches:", self._names(BRANCHES, list(references.under(BRANCHES)))),
            ("Tags, newest first:", self._names(TAGS, tags)),
        ]
        text = top_text(shown(self.repository.label), await self._head(), counts, lists, self._uri_forms())
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
            commit = await self.objects.commit_of(self.references.head)
        except (MissingObject, InvalidArgument):
            return f"{words}, which cannot be read"
        return f"{words}, {local_time(commit.committer)}, “{subject(commit)}”"

    def _names(self, prefix: str, names: Sequence[str]) -> Iterator[str]:
        for name in names[:MAX_NAMED_REFERENCES]:
            oid = self.references.names[prefix + name]
            yield f"{shown(name)} at {oid[:12]}  {self.uris.tree(short_name(prefix + name, self.references))}"
        if len(names) > MAX_NAMED_REFERENCES:
            yield f"and {len(names) - MAX_NAMED_REFERENCES:,} more: see the completion of rev"

    def _uri_forms(self) -> list[str]:
        return [
            "REV is HEAD, a branch, a tag or a commit, with %2F for a slash, and ~2 or ^ at its end for parents.",
            *[f"{words}: {self.uris.top}/{form}" for words, form in _URI_FORMS],
        ]


_URI_FORMS = (
    ("Files", "tree/REV/PATH"),
    ("Changes that are not committed", "changes, or changes/PATH"),
    ("Lines with a text", "grep/REV?text=TEXT&path=PATH"),
    ("Who wrote the lines of a file", "blame/REV/PATH?lines=1-50"),
    ("A commit", "commit/REV"),
    ("Changes", "diff/REV..REV, diff/REV..REV/PATH, or diff/REV for those of one commit"),
    (
        "History",
        "log/REV?path=PATH&since=7d&author=NAME&grep=WORDS&limit=50, and pickaxe=TEXT for who added or removed it",
    ),
)


def head_words(references: References) -> str:
    """Return HEAD in words, such as `main at 1a2b3c4`."""
    if references.head is None:
        return f"{shown(references.head_name)}, without commits yet"
    return f"{shown(references.head_name)} at {references.head[:7]}"
