"""`GitAnswer`, the base class of the answers to all URIs, and `Repository`, which they read."""

from __future__ import annotations

import os
from collections.abc import Callable

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.policy.current import reads_all_below
from wharfinger.source import VERSION
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.folder.file_uri import UnreadableUri
from wharfinger.sources.git_repository.git_directory import find_repository
from wharfinger.sources.git_repository.git_objects import GitObjects, NoSuchPath
from wharfinger.sources.git_repository.git_process import find_git
from wharfinger.sources.git_repository.git_uris import GitAddress, GitUris, Parts, plain_path
from wharfinger.sources.git_repository.history import Histories
from wharfinger.sources.git_repository.private_directory import PrivateDirectory
from wharfinger.sources.git_repository.readable_history import ChangedPaths, ReadableHistory
from wharfinger.sources.git_repository.references import ReferenceReader, References
from wharfinger.sources.git_repository.revision_names import GitRevision, resolve
from wharfinger.sources.labels import default_label, usable_label
from wharfinger.sources.ttl import IMMUTABLE_TTL_MS, ttl_ms
from wharfinger.sources.windows.line_index import LineIndexes

__all__ = ["GitAnswer", "Repository"]

MAX_LAST_CHANGES = 10_000
"""Maximum number of paths whose last change is kept."""
MOVING_MS = 10_000
"""Longest time in ms for which clients may reuse an answer that may change, such as one about a branch."""


class Repository:
    """One published repository: its objects, references and histories, and its URIs."""

    def __init__(self, private_directory: PrivateDirectory, label: str, max_size: int) -> None:
        self.private_directory = private_directory
        self.label = label
        self.max_size = max_size
        """The size in bytes of the largest file that is read whole."""
        self.uris = GitUris(label)
        self.objects = GitObjects(private_directory)
        self.references = ReferenceReader(private_directory, self.objects.forget)
        self.histories = Histories(self.objects)
        self.changed_paths = ChangedPaths(self.objects)
        self.lines = LineIndexes()
        self.last_changes: BoundedCache[tuple[str, bytes, int], str] = BoundedCache(MAX_LAST_CHANGES)
        """The last commit that changed a path, by the newest commit searched, the path and `boundary_version`."""
        self.outage: Callable[[], str] = lambda: ""
        """Returns a sentence that says why the clone cannot be updated, or an empty string."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        label: str | None,
        max_size: int,
        *,
        git_dir: str | os.PathLike[str] | None = None,
    ) -> Repository:
        """Return the repository at a path. If `label` is None, the label is the name of the folder.

        Raises:
            UnusableSource: it cannot be published, or git is missing or too old.
        """
        program = find_git()
        found = find_repository(path, git_dir, program.version)
        if label is None:
            label = default_label(found.work_tree or found.root).removesuffix(".git") or "repository"
        label = usable_label(label)
        private_directory = PrivateDirectory(found, program.path)
        private_directory.open()
        return cls(private_directory, label, max_size)

    def readable_history(self) -> ReadableHistory | None:
        """Return the history that the current caller may read; None if the caller may read everything."""
        if reads_all_below(f"{self.uris.top}/"):
            return None
        return ReadableHistory(self.uris, self.objects, self.changed_paths, self.references.boundary_version)

    async def revision(self, name: str, references: References, readable: ReadableHistory | None) -> GitRevision:
        """Resolve the name of a revision. Raises what `resolve` raises.

        For a caller who may not read all files, the object is the nearest commit that is shown (`readable_history`).
        """
        if readable is None or readable.reads_all_files:
            return await resolve(name, references, self.objects)
        return await resolve(name, references, self.objects, lambda oid: readable.nearest(oid, name))


class GitAnswer:
    """The answer for one URI at one moment.

    Call `load` first. It sets `version`, `fixed` and `modified`, and raises LookupError if something is missing.
    """

    only_references = True
    """Whether the answer changes only if a reference does. If not, a watch checks it in every round."""

    def __init__(self, repository: Repository, references: References, address: GitAddress, uri: str) -> None:
        self.repository = repository
        self.objects = repository.objects
        self.uris = repository.uris
        self.references = references
        self.address = address
        self.uri = uri
        self.readable = repository.readable_history()
        """The history that the caller may read; None if the caller may read everything."""
        self.version = ""
        """A text that changes if the content of this URI changes."""
        self.fixed = False
        """Whether the content of this URI can never change. `contents` sets it to False if git was ended too early."""
        self.modified: float | None = None
        """The time of the commit that the URI names, in seconds since 1970; None if it names none."""

    @property
    def path(self) -> bytes:
        """The path in the URI, as git takes it."""
        return os.fsencode("/".join(self.address.parts))

    def path_parameter(self, name: str) -> Parts:
        """Return the path in a parameter of the query; an empty path if the URI has no such parameter.

        Raises:
            InvalidArgument: it is not a path.
        """
        value = self.address.query.get(name, "")
        try:
            return plain_path(value.rstrip("/")) if value else ()
        except UnreadableUri:
            raise InvalidArgument(f"{name}= must be a file or folder, such as {name}=docs/guide.md.") from None

    async def revision(self, name: str) -> GitRevision:
        """Resolve the name of a revision."""
        return await self.repository.revision(name, self.references, self.readable)

    def may_read(self, path: Parts | bytes) -> bool:
        """Return whether the caller may read a file at the revisions of this answer."""
        readable, address = self.readable, self.address
        return readable is None or all(readable.may_read(rev, path) for rev in (address.rev, address.to) if rev)

    @property
    def path_filter(self) -> Callable[[bytes], bool] | None:
        """`may_read`, or None if the caller may read all files."""
        return None if self.readable is None or self.readable.reads_all_files else self.may_read

    def need_path(self, *, is_folder: bool = False) -> None:
        """Raise NoSuchPath if the caller may not read the path of this answer, nor, if `is_folder`, anything in it."""
        readable, address = self.readable, self.address
        if readable is None or self.may_read(address.parts):
            return
        if not is_folder or not all(
            readable.may_read_below(rev, address.parts) for rev in (address.rev, address.to) if rev
        ):
            raise NoSuchPath(address.uri)

    async def load(self) -> None:
        """Find the objects that the URI names."""
        raise NotImplementedError

    async def resource(self) -> t.Resource:
        """Return the resource of the URI."""
        raise NotImplementedError

    async def contents(self) -> list[t.ResourceContents]:
        """Return the contents, the first with the version in its `_meta`."""
        raise NotImplementedError

    async def children(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """Return the entries of a directory.

        Raises:
            ResourceNotFound: the URI does not name a directory.
        """
        raise ResourceNotFound(self.uri)

    def ttl_ms(self) -> int:
        """Return the milliseconds for which the answer may be reused."""
        return IMMUTABLE_TTL_MS if self.fixed else min(MOVING_MS, ttl_ms(self.modified))

    def text(self, text: str) -> t.ResourceContents:
        """Return a text as the first content."""
        return t.ResourceContents(uri=self.uri, mime_type=mime.TEXT, text=text, meta={VERSION: self.version})
