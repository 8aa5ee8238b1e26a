"""A git repository as live resources."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import Changed, Document, Source, UnusableSource, UriParameter
from wharfinger.sources.directories import MAX_CHILDREN
from wharfinger.sources.git_repository import git_completion, git_listing
from wharfinger.sources.git_repository.answer_commit import CommitAnswer
from wharfinger.sources.git_repository.answer_kinds import answer_for
from wharfinger.sources.git_repository.answer_top import head_words
from wharfinger.sources.git_repository.answer_tree import INLINE_BYTES, TreeAnswer
from wharfinger.sources.git_repository.answers import GitAnswer, Repository
from wharfinger.sources.git_repository.git_objects import is_file
from wharfinger.sources.git_repository.git_process import GitFailed, run_git
from wharfinger.sources.git_repository.references import BRANCHES, References, RepositoryGone, read_references
from wharfinger.sources.git_repository.revision_names import is_full
from wharfinger.sources.git_repository.safe_text import paragraph
from wharfinger.sources.polling import Polling
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.window import MAX_READ_BYTES, PARAMETERS

__all__ = ["POLL_SECONDS", "GitSource"]

Result = TypeVar("Result")

POLL_SECONDS = 0.25
"""Default time between two checks of the references."""
PINNED_SECONDS = 0.05
"""Maximum age of the references for a URI whose revisions are names of objects."""
COUNT_SECONDS = 0.3
"""Longest time that `describe` counts files."""
LOOK_SECONDS = 60.0
"""Longest time that one check of a watched URI takes."""
MAX_KNOWN_VERSIONS = 100_000
"""Maximum number of watched URIs whose versions are kept."""


class GitSource(Watched[Polling], Source):
    """The source that `git()` returns."""

    parameters: Mapping[str, UriParameter] = {
        "since": UriParameter("7d", "commits since then, or since a day such as 2026-11-20"),
        "until": UriParameter("2026-11-20", "commits before the end of that day"),
        "path": UriParameter("docs", "commits that changed this path"),
        "author": UriParameter("ada", "commits by an author with this in the name or address"),
        "grep": UriParameter("timeout", "commits with this text in their message"),
        "pickaxe": UriParameter("TIMEOUT", "commits that added or removed this text"),
        "limit": UriParameter("50", "this number of commits"),
        "text": UriParameter("routing", "lines with this text, with their files"),
        **{name: PARAMETERS[name] for name in ("lines", "tail")},
    }

    def __init__(self, repository: Repository, every: float) -> None:
        self.repository = repository
        self.name = repository.label
        self.uri = repository.uris.top
        self.location = shown(repository.private_directory.found.root)
        self.root = repository.private_directory.found.work_tree or repository.private_directory.found.root
        self.templates = _templates(repository)
        self._loop: asyncio.AbstractEventLoop | None = None  # the server's
        self._watches = Polling("wharfinger-git", self._look, every=every, prepare=self._prepare)
        self._references: References | None = None  # as of this round of polling
        self._known_versions: dict[str | None, tuple[References, Hashable]] = {}

    def patterns_below(self, names: Sequence[str]) -> Sequence[str]:
        """Return the patterns for a folder at every revision, and its differences, blame and uncommitted changes."""
        if not names:
            return (self.pattern_of(),)
        forms = (("tree", "*"), ("blame", "*"), ("diff", "*"), ("changes",))
        return [self.pattern_of(*names, between=form) for form in forms]

    def __repr__(self) -> str:
        return f"git({self.repository.private_directory.found.root!r}, label={self.repository.label!r})"

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to this repository. It need not exist."""
        return self.repository.uris.matches(uri)

    # Listing

    async def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return the top, HEAD's tree and log, branches, tags, HEAD's newest commits and its files."""
        return await git_listing.page(self.repository, await self._current(), after, limit)

    async def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """Return the entries of a folder, or of the top."""
        return await self._with_answer(uri, lambda answer: answer.children(after, limit))

    async def stat(self, uri: str) -> t.Resource:
        """Return the resource of a URI, without reading all of its content."""

        async def resource(answer: GitAnswer) -> t.Resource:
            if answer.readable is None:  # a watch compares unfiltered versions
                self._watches.record(uri, answer.version)
            return await answer.resource()

        return await self._with_answer(uri, resource)

    async def version(self, uri: str) -> str:
        """Return a text that changes with the content of the URI: for a file or folder, the name of its object."""
        return await self._with_answer(uri, _version)

    # Reading

    async def read(self, uri: str) -> t.ReadResourceResult:
        """Read what a URI names or, if it is large, a window of it."""

        async def result(answer: GitAnswer) -> t.ReadResourceResult:
            contents = await answer.contents()
            return t.ReadResourceResult(contents=contents, ttl_ms=answer.ttl_ms(), cache_scope=self.cache_scope)

        return await self._with_answer(uri, result)

    # Finding

    async def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Suggest branches, tags and short names of commits for revisions, and the paths of a revision."""
        if not any(template == known.uri_template for known in self.templates):
            return []
        try:
            return await git_completion.complete(self.repository, await self._current(), argument, value, context)
        except (LookupError, InvalidArgument, UnicodeError):
            return []

    async def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return the files of HEAD, and its newest commits."""
        return await git_listing.documents(self.repository, await self._current(), after, limit)

    async def text(self, uri: str) -> Iterable[str]:
        """Return the text of a file, or the message of a commit."""
        return await self._with_answer(uri, _searched_text)

    def shown_documents(self) -> Callable[[str], bool] | None:
        """Return a filter that leaves out commits, whose messages may describe any file.

        For a caller who may read everything, return None.
        """
        if self.repository.readable_history() is None:
            return None
        commits = self.repository.uris.commit("")
        return lambda uri: not uri.startswith(commits)

    # Watching

    def describe(self) -> str:
        """Return a summary: `main at 1a2b3c4, 3 branches, 120 files, watched by polling every 0.25 s`."""
        facts: list[str] = []
        thread = threading.Thread(target=lambda: facts.extend(asyncio.run(self._facts())), daemon=True)
        thread.start()  # the caller may have an event loop
        thread.join()
        return ", ".join([*facts, f"watched by {self._watches.means}"])

    async def _facts(self) -> list[str]:
        private_directory = self.repository.private_directory
        try:
            references = await read_references(private_directory)
        except (RepositoryGone, GitFailed, UnusableSource) as error:
            return [str(error).rstrip(".")]
        facts = [head_words(references), many(references.count(BRANCHES), "branch")]
        if references.head is not None:
            try:
                output = await run_git(
                    private_directory, "ls-tree", "-r", "-z", "--name-only", f"{references.head}^{{tree}}",
                    seconds=COUNT_SECONDS, partial=True,
                )  # fmt: skip
                if output.data or not output.cut:
                    facts.append(f"{'more than ' if output.cut else ''}{many(output.data.count(0), 'file')}")
            except GitFailed:
                facts.append("damaged")
        return facts

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed` after each change of this URI, or of the list if it is None."""
        self._loop = asyncio.get_running_loop()
        super().watch(uri, changed)

    async def close(self) -> None:
        """Stop watching, and end all processes."""
        await super().close()
        await self.repository.objects.reader.close()
        self.repository.references.forget()
        await asyncio.to_thread(self.repository.private_directory.close)

    def _prepare(self) -> None:
        try:
            self._references = self._on_loop(self._current())
        except InvalidArgument:  # the repository was moved or is damaged: until it is back, it has no resources
            self._references = None

    def _look(self, uri: str | None) -> Hashable:
        """Return the version of a URI. It is computed only if it may have changed since the last round of polling."""
        references = self._references
        if references is None:  # the repository is missing
            raise ResourceNotFound(uri or self.uri)
        cached = self._known_versions.get(uri)
        if cached is not None and cached[0] is references:
            return cached[1]
        if len(self._known_versions) > MAX_KNOWN_VERSIONS:
            self._known_versions.clear()
        if uri is None:
            version: Hashable = references.fingerprint
        else:
            version = self._on_loop(self._with_answer(uri, _version, references))
            if not answer_for(self.repository, references, uri).only_references:
                return version
        self._known_versions[uri] = references, version
        return version

    def _on_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the server's loop, from the polling thread."""
        assert self._loop is not None
        if self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("the server has ended")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LOOK_SECONDS)

    # Answers

    async def _current(self, within: float = 0.0) -> References:
        return await self.repository.references.now(within)

    async def _with_answer(
        self, uri: str, use: Callable[[GitAnswer], Awaitable[Result]], references: References | None = None
    ) -> Result:
        """Call `use` with the answer for a URI. Raises ResourceNotFound if something is missing."""
        try:
            address = self.repository.uris.parse(uri)
            pinned = address.kind != "top" and is_full(address.rev) and (address.to is None or is_full(address.to))
            answer = answer_for(
                self.repository, references or await self._current(PINNED_SECONDS if pinned else 0.0), uri
            )
            await answer.load()
            return await use(answer)
        except LookupError:
            raise ResourceNotFound(uri) from None


async def _version(answer: GitAnswer) -> str:
    return answer.version


async def _searched_text(answer: GitAnswer) -> tuple[str, ...]:
    """Return the text to search: the text of a file, or the message of a commit."""
    if isinstance(answer, CommitAnswer):
        commit = answer.commit
        return (f"{paragraph(commit.message)}\n{shown(commit.author.name)}\n{commit.oid}\n",)
    if isinstance(answer, TreeAnswer):
        entry = answer.entry
        if not is_file(entry.mode):
            return ()
        content = await answer.objects.content(entry.oid)
        if content.size > MAX_READ_BYTES:
            return ()
        decode = partial(mime.decode_text, content.read(0, content.size))
        decoded = decode() if content.size <= INLINE_BYTES else await asyncio.to_thread(decode)
        return () if decoded is None else (decoded[0],)
    text = (await answer.contents())[0].text
    return () if text is UNSET else (text,)


_TEMPLATE_TEXTS = {
    "tree": ("Any file or folder of {} at a revision", "A path at a revision, such as docs/guide.md at HEAD."),
    "root": ("All of {} at a revision", "The top folder at a branch, a tag or a commit."),
    "commit": (
        "Any commit of {}",
        "Author, message and changed paths of a commit, by its name, a branch or a tag.",
    ),
    "commit diff": (
        "The changes of one commit of {}",
        "What a commit changed against its first parent, as a unified diff.",
    ),
    "diff": ("The changes of {} between two revisions", "A unified diff from one revision to another."),
    "path diff": ("The changes of {} at a path", "A unified diff of one file or folder, from one revision to another."),
    "blame": (
        "Who wrote the lines of a file of {}",
        "For each line of a file, the commit that last changed it, with author, day and subject; lines=40-60: a part.",
    ),
    "changes": (
        "Changes of {} that are not committed",
        "Uncommitted changes at a path: a list of what is changed, staged or untracked, and a patch against HEAD.",
    ),
    "grep": (
        "Lines with a text in the files of {}",
        "The lines of a revision's files that have a text (text=routing), of all files or below a path.",
    ),
    "log": (
        "The history of {}",
        "Commits that led to a revision, newest first: of a path, author or period (since=7d), or with words (grep).",
    ),
}


def _templates(repository: Repository) -> list[t.ResourceTemplate]:
    name = shown(repository.label)
    return [
        t.ResourceTemplate(
            uri_template=template,
            name=f"{name} {template_name}",
            title=_TEMPLATE_TEXTS[template_name][0].format(name),
            description=_TEMPLATE_TEXTS[template_name][1],
        )
        for template_name, template in repository.uris.templates.items()
        if template_name != "changes" or repository.private_directory.found.work_tree
    ]
