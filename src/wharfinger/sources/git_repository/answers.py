"""The base class of all answers: their repository, their references, and how long they are valid."""

from __future__ import annotations

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.errors import ResourceNotFound
from wharfinger.source import VERSION
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.git_repository.git_objects import GitObjects
from wharfinger.sources.git_repository.git_uris import GitAddress, GitUris
from wharfinger.sources.git_repository.history import Histories
from wharfinger.sources.git_repository.private_directory import PrivateDirectory
from wharfinger.sources.git_repository.references import ReferenceReader, References
from wharfinger.sources.git_repository.revision_names import GitRevision, resolve
from wharfinger.sources.ttl import IMMUTABLE_TTL_MS, ttl_ms
from wharfinger.sources.windows.line_index import LineIndexes

__all__ = ["GitAnswer", "Repository"]

MAX_LAST_CHANGES = 10_000
"""The most paths whose last change is kept."""
MOVING_MS = 10_000
"""The most milliseconds for which an answer about a name may be reused: a branch may move at any time."""


class Repository:
    """One published repository: its objects, references and histories, and its URIs."""

    def __init__(self, private: PrivateDirectory, label: str, whole: int) -> None:
        self.private = private
        self.label = label
        self.whole = whole
        """The most bytes of a file that are returned at once."""
        self.uris = GitUris(label)
        self.objects = GitObjects(private)
        self.references = ReferenceReader(private, self.objects.forget)
        self.histories = Histories(self.objects)
        self.lines = LineIndexes()
        self.last_changes: BoundedCache[tuple[str, bytes, int], str] = BoundedCache(MAX_LAST_CHANGES)
        """The last commit that changed a path, by the path and the commit at which the search began."""


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
        self.version = ""
        """A text that changes if the content of this URI changes."""
        self.fixed = False
        """Whether the content of this URI can never change."""
        self.modified: float | None = None
        """When the content last changed, in seconds since 1970."""

    async def revision(self, name: str) -> GitRevision:
        """Resolve the name of a revision."""
        return await resolve(name, self.references, self.objects)

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
        """Return the entries of a directory."""
        raise ResourceNotFound(self.uri)

    def ttl_ms(self) -> int:
        """Return the milliseconds for which the answer may be reused."""
        return IMMUTABLE_TTL_MS if self.fixed else min(MOVING_MS, ttl_ms(self.modified))

    def text(self, text: str, **meta: object) -> t.ResourceContents:
        """Return a text as the first content."""
        return t.ResourceContents(uri=self.uri, mime_type=mime.TEXT, text=text, meta={VERSION: self.version, **meta})
