"""A remote repository as live resources: a clone in the cache that follows it, read like a local repository."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from wharfinger.errors import InvalidArgument, Overloaded, ResourceNotFound
from wharfinger.source import UnusableSource
from wharfinger.sources.git_remote.clone_folder import CloneFolder
from wharfinger.sources.git_remote.mirror import EVERY_SECONDS, MAX_CLONE_BYTES, Mirror
from wharfinger.sources.git_remote.remote_address import parse_remote
from wharfinger.sources.git_repository.answers import GitAnswer, Repository
from wharfinger.sources.git_repository.git_process import GitFailed, find_git
from wharfinger.sources.git_repository.object_reader import MissingObject
from wharfinger.sources.git_repository.references import References
from wharfinger.sources.git_repository.source import GitSource

__all__ = ["RemoteGitSource", "open_clone", "publish_clone"]

Result = TypeVar("Result")

MIN_EVERY_SECONDS = 1.0
LOOK_EVERY_SECONDS = 1.0
"""Time between two checks of the clone's references while a client watches: another server may have fetched."""


def open_clone(
    url: str, label: str | None, *, every: float | None, max_size: int, max_clone_size: int | None
) -> tuple[Repository, Mirror]:
    """Return the clone of a remote repository, and its mirror, which is not started yet.

    Arguments that are None have defaults.

    Raises:
        UnusableSource: an argument or the token cannot be used, the clone cannot be kept, or git is missing or too old.
    """
    every = EVERY_SECONDS if every is None else every
    if not every >= MIN_EVERY_SECONDS:  # also refuses NaN
        raise UnusableSource(
            f"A remote repository is fetched at most once a second: every={every:g} must be at least 1."
        )
    address = parse_remote(url)
    program = find_git()  # before anything is written
    address.authorization()  # before anything is published, refuse a token that cannot be used
    folder = CloneFolder.of(address)
    repository = Repository.open(folder.repository, address.name if label is None else label, max_size)
    max_bytes = MAX_CLONE_BYTES if max_clone_size is None else max_clone_size
    return repository, Mirror(program.path, address, folder, every=every, max_bytes=max_bytes)


def publish_clone(
    url: str, label: str | None, *, every: float | None, max_size: int, max_clone_size: int | None
) -> RemoteGitSource:
    """Return the source that `git()` returns for an address. Raises what `open_clone` raises."""
    return RemoteGitSource(*open_clone(url, label, every=every, max_size=max_size, max_clone_size=max_clone_size))


class RemoteGitSource(GitSource):
    """The source that `git()` returns for the address of a remote repository."""

    noun = "repository"

    def __init__(self, repository: Repository, mirror: Mirror) -> None:
        super().__init__(repository, LOOK_EVERY_SECONDS)
        self.mirror = mirror
        self.location = mirror.address.url
        self.root = ""  # the clone is not a folder of the operator
        repository.outage = mirror.outage
        mirror.changed.append(self._on_fetch)

    def __repr__(self) -> str:
        return f"git({self.location!r}, label={self.name!r})"

    async def start(self) -> None:
        """Begin to clone or fetch."""
        self.mirror.start()

    async def close(self) -> None:
        """Stop fetching and watching, and end all processes."""
        await self.mirror.close()
        await super().close()

    def describe(self) -> str:
        """Describe the clone, and how recent it is."""
        facts = self.mirror.describe()
        return f"{super().describe().partition(', watched by')[0]}, {facts}" if self.mirror.cloned else facts

    async def _on_fetch(self) -> None:
        self._known_versions.pop(self.uri, None)  # the top resource shows outages too
        self._watches.look_now()

    async def _current(self, within: float = 0.0) -> References:
        await self.mirror.wait_until_cloned()
        return await super()._current(within)

    async def _with_answer(
        self, uri: str, use: Callable[[GitAnswer], Awaitable[Result]], references: References | None = None
    ) -> Result:
        async def checked(answer: GitAnswer) -> Result:
            if self.mirror.why_incomplete:
                address = answer.address
                # `git grep` would leave out missing contents without an error.
                if address.kind == "grep" and (await answer.revision(address.rev)).oid != answer.references.head:
                    raise Overloaded(self.mirror.why_incomplete)
                answer.fixed = False  # the sizes of missing files are not shown yet
            return await use(answer)

        try:
            return await super()._with_answer(uri, checked, references)
        except (ResourceNotFound, InvalidArgument) as error:
            if self.mirror.why_incomplete and _is_about_missing_objects(error):
                raise Overloaded(self.mirror.why_incomplete) from None
            raise


def _is_about_missing_objects(error: Exception) -> bool:
    cause = error.__cause__ or error.__context__
    if isinstance(error, GitFailed):
        return any(words in error.why for words in ("unable to read", "Cannot read blob", "missing", "promisor"))
    return isinstance(cause, MissingObject)
