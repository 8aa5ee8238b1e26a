"""What every answer about a URI has in common: of which repository, at which moment, and how long it holds."""

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
from wharfinger.sources.ttl import IMMUTABLE, ttl_ms
from wharfinger.sources.windows.line_index import LineIndexes

__all__ = ["GitAnswer", "Repository"]

LAST_CHANGES = 10_000
"""Paths whose last change is kept."""
MOVING_MS = 10_000
"""How long an answer about a name may be used again, at most: a branch may move at any time."""


class Repository:
    """One repository as it is published: its objects, references and histories, and its URIs."""

    def __init__(self, private: PrivateDirectory, label: str, whole: int) -> None:
        self.private = private
        self.label = label
        self.whole = whole
        """Bytes of a file that are returned at once, at most."""
        self.uris = GitUris(label)
        self.objects = GitObjects(private)
        self.references = ReferenceReader(private, self.objects.forget)
        self.histories = Histories(self.objects)
        self.lines = LineIndexes()
        self.last_changes: BoundedCache[tuple[str, bytes, int], str] = BoundedCache(LAST_CHANGES)
        """The last commit that changed a path, by the commit from which it was looked for."""


class GitAnswer:
    """What is known of one URI at one moment.

    Call `load` before anything else. It sets `version`, `fixed` and `modified`, and raises LookupError if something is
    not there.
    """

    only_references = True
    """Whether the answer changes only if a reference does. If not, watching looks at it in every round."""

    def __init__(self, repository: Repository, references: References, address: GitAddress, uri: str) -> None:
        self.repository = repository
        self.objects = repository.objects
        self.uris = repository.uris
        self.references = references
        self.address = address
        self.uri = uri
        self.version = ""
        """A text that is the same while the content of this URI is the same."""
        self.fixed = False
        """Whether the URI can never mean anything else."""
        self.modified: float | None = None
        """When the content last changed, in seconds since 1970."""

    async def revision(self, name: str) -> GitRevision:
        """The object that a revision means."""
        return await resolve(name, self.references, self.objects)

    async def load(self) -> None:
        """Find what the URI means."""
        raise NotImplementedError

    async def resource(self) -> t.Resource:
        """What is known of it without reading it."""
        raise NotImplementedError

    async def contents(self) -> list[t.ResourceContents]:
        """Its content, with its version in `_meta` of the first."""
        raise NotImplementedError

    async def children(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """The entries of a directory."""
        raise ResourceNotFound(self.uri)

    def ttl_ms(self) -> int:
        """Milliseconds for which the answer may be used again."""
        return IMMUTABLE if self.fixed else min(MOVING_MS, ttl_ms(self.modified))

    def text(self, text: str, **meta: object) -> t.ResourceContents:
        """A text as the first content."""
        return t.ResourceContents(uri=self.uri, mime_type=mime.TEXT, text=text, meta={VERSION: self.version, **meta})
