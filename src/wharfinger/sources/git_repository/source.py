"""A git repository as live resources."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import TypeVar

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.source import Changed, Document, Source
from wharfinger.sources.directories import CHILDREN
from wharfinger.sources.git_repository import git_completion, git_listing
from wharfinger.sources.git_repository.answer_commit import CommitAnswer
from wharfinger.sources.git_repository.answer_top import head_words
from wharfinger.sources.git_repository.answer_tree import TreeAnswer
from wharfinger.sources.git_repository.answering import answer_for
from wharfinger.sources.git_repository.answers import GitAnswer, Repository
from wharfinger.sources.git_repository.references import BRANCHES, References
from wharfinger.sources.git_repository.repository import find_pure_repository
from wharfinger.sources.git_repository.revision_names import commit_of
from wharfinger.sources.git_repository.safe_text import paragraph
from wharfinger.sources.git_repository.trees import is_link, is_module, is_tree, walk
from wharfinger.sources.labels import default_label, usable_label
from wharfinger.sources.polling import Polling
from wharfinger.sources.windows.window import WHOLE

__all__ = ["GitSource", "git"]

Result = TypeVar("Result")

POLL_SECONDS = 0.25
"""Time between two looks at the references."""
COUNT_SECONDS = 0.3
"""How long `describe` counts files."""


def git(
    path: str | os.PathLike[str], *, label: str | None = None, every: float = POLL_SECONDS, max_size: int = WHOLE
) -> GitSource:
    """Publish a git repository: `server.include(git("."))`.

    Clients read trees, files, commits, differences and logs at any revision. Nothing in the repository is ever run or
    written, and nothing outside its folder is read. All of its objects can be read by name, also those in no branch.

    Args:
        path: The top folder of a repository, or a bare repository.
        label: The name in URIs, `git://<label>/…`; by default that of the folder.
        every: Seconds between two checks of branches, tags and HEAD, while somebody watches.
        max_size: The largest file in bytes that is read whole; a larger one is read in windows.

    Raises:
        UnusableSource: it is not a repository, or parts of it are stored elsewhere.
        MissingExtra: dulwich is not installed.
    """
    if find_spec("dulwich") is None:
        raise MissingExtra("git", "Publishing a git repository")
    directory = find_pure_repository(path)
    name = default_label(directory.root).removesuffix(".git") or "repository" if label is None else label
    return GitSource(Repository(directory, usable_label(name), max_size), every)


class GitSource(Source):
    """The source that `git()` returns. Its methods may be called from several threads at once."""

    def __init__(self, repository: Repository, every: float) -> None:
        self.repository = repository
        self.name = repository.label
        self.uri = repository.uris.top
        self.location = shown(repository.directory.root)
        self.templates = _templates(repository)
        self._polling = Polling("wharfinger-git", self._look, every=every, prepare=self._prepare)
        self._moment: References | None = None  # the references in the present round of polling
        self._looked: dict[str | None, tuple[References, Hashable]] = {}

    def __repr__(self) -> str:
        return f"git({self.repository.directory.root!r}, label={self.repository.label!r})"

    def matches(self, uri: str) -> bool:
        """Whether this URI belongs to this repository, whether or not it exists."""
        return self.repository.uris.matches(uri)

    # Listing

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """The top, branches, tags, the newest commits of HEAD, and HEAD's files."""
        return git_listing.page(self.repository, self._now(), after, limit)

    def children(
        self, uri: str, after: str | None = None, limit: int = CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """The entries of a folder, or of the top."""
        return self._answered(uri, lambda answer: answer.children(after, limit))

    def stat(self, uri: str) -> t.Resource:
        """The resource of a URI, without reading it whole."""

        def known(answer: GitAnswer) -> t.Resource:
            self._polling.record(uri, answer.version)
            return answer.resource()

        return self._answered(uri, known)

    def version(self, uri: str) -> str:
        """The name of the object that the URI refers to now; for a difference, of both objects."""
        return self._answered(uri, lambda answer: answer.version)

    # Reading

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read a file, folder, commit, difference or log; if it is large, a window of it."""

        def result(answer: GitAnswer) -> t.ReadResourceResult:
            contents = answer.contents()
            return t.ReadResourceResult(contents=contents, ttl_ms=answer.ttl_ms(), cache_scope=self.cache_scope)

        return self._answered(uri, result)

    # Finding

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Suggest branches, tags and short names of commits for revisions, and the paths of a revision."""
        if not any(template == shown.uri_template for shown in self.templates):
            return []
        try:
            return git_completion.complete(self.repository, self._now(), argument, value, context)
        except (LookupError, InvalidArgument, UnicodeError):
            return []

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """The files of HEAD, and its newest commits."""
        return git_listing.documents(self.repository, self._now(), after, limit)

    def text(self, uri: str) -> Iterable[str]:
        """The text of a file, or the message of a commit."""
        return self._answered(uri, lambda answer: tuple(_pieces(answer)))

    # Watching

    def describe(self) -> str:
        """Facts for people, such as `main at 1a2b3c4, 3 branches, 120 files, watched by polling every 0.25 s`."""
        references = self._now()
        said = [head_words(references), many(references.many(BRANCHES), "branch"), *self._files(references)]
        return ", ".join([*said, f"watched by {self._polling.means}"])

    def _files(self, references: References) -> Iterator[str]:
        if references.head is None:
            return
        ends = time.monotonic() + COUNT_SECONDS
        number = 0
        try:
            for _, entry in walk(self.repository.objects, commit_of(references.head, self.repository.objects).tree):
                number += not is_tree(entry.mode)
                if time.monotonic() > ends:
                    yield f"more than {many(number, 'file')}"
                    return
        except (LookupError, InvalidArgument):
            yield "damaged"
            return
        yield many(number, "file")

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed` after each change of this URI, or of the list if it is None."""
        self._polling.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching it."""
        self._polling.unwatch(uri)

    async def close(self) -> None:
        """End all watches."""
        self._polling.close()

    def _prepare(self) -> None:
        self._moment = self._now()

    def _look(self, uri: str | None) -> Hashable:
        """The version of a URI in this round of polling, computed only if a reference moved since the last round."""
        moment = self._moment or self._now()
        before = self._looked.get(uri)
        if before is not None and before[0] is moment:
            return before[1]
        if len(self._looked) > 100_000:
            self._looked.clear()
        version: Hashable = moment.mark if uri is None else self._answered(uri, lambda found: found.version, moment)
        self._looked[uri] = moment, version
        return version

    # Asking

    def _now(self) -> References:
        return self.repository.references.now()

    def _answered(self, uri: str, use: Callable[[GitAnswer], Result], moment: References | None = None) -> Result:
        """Call `use` with the answer for a URI. Raises ResourceNotFound if something is missing."""
        try:
            return use(answer_for(self.repository, moment or self._now(), uri))
        except LookupError:
            raise ResourceNotFound(uri) from None


def _pieces(answer: GitAnswer) -> Iterator[str]:
    """The text to search: that of a file, or the message of a commit."""
    if isinstance(answer, CommitAnswer):
        commit = answer.commit
        yield f"{paragraph(commit.message)}\n{shown(commit.author.name)}\n{commit.oid}\n"
    elif isinstance(answer, TreeAnswer):
        entry = answer.entry
        if not (is_tree(entry.mode) or is_link(entry.mode) or is_module(entry.mode)):
            content = answer.objects.content(entry.oid)
            decoded = mime.decode_text(content.read(0, content.size)) if content.size <= WHOLE else None
            yield from () if decoded is None else (decoded[0],)
    else:
        text = answer.contents()[0].text
        yield from () if text is UNSET else (text,)


_DESCRIBED = {
    "tree": ("Any file or folder of {} at a revision", "A path at a revision, such as docs/guide.md at HEAD."),
    "root": ("All of {} at a revision", "The top folder at a branch, a tag or a commit."),
    "commit": (
        "Any commit of {}",
        "Author, message and changed paths of a commit, by its name, a branch or a tag.",
    ),
    "changes": (
        "The changes of one commit of {}",
        "What a commit changed against its first parent, as a unified diff.",
    ),
    "diff": ("The changes of {} between two revisions", "A unified diff from one revision to another."),
    "path diff": ("The changes of {} at a path", "A unified diff of one file or folder, from one revision to another."),
    "log": (
        "The history of {}",
        "Commits that led to a revision, newest first; optionally of one path, after a commit, or of a period.",
    ),
}


def _templates(repository: Repository) -> list[t.ResourceTemplate]:
    name = shown(repository.label)
    return [
        t.ResourceTemplate(
            uri_template=template,
            name=f"{name} {kind}",
            title=_DESCRIBED[kind][0].format(name),
            description=_DESCRIBED[kind][1],
        )
        for kind, template in repository.uris.templates.items()
    ]
