"""What every answer about a URI has in common: of which repository, at which moment, and how long it holds.

Refuses to know what is answered.
"""

from __future__ import annotations

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.errors import ResourceNotFound
from wharfinger.source import VERSION
from wharfinger.sources.git_repository.git_uris import GitAddress, GitUris
from wharfinger.sources.git_repository.history import Histories
from wharfinger.sources.git_repository.objects import PureReader
from wharfinger.sources.git_repository.references import ReferenceReader, References
from wharfinger.sources.git_repository.repository import PureDirectory
from wharfinger.sources.git_repository.revision_names import GitRevision, resolve
from wharfinger.sources.ttl import IMMUTABLE, ttl_ms
from wharfinger.sources.windows.line_index import LineIndexes

__all__ = ["GitAnswer", "Repository"]

MOVING = 10_000  # milliseconds at most for what a name stands for: a branch may move at any time


class Repository:
    """One repository as it is published: its objects, references and histories, and its URIs."""

    def __init__(self, directory: PureDirectory, label: str, whole: int) -> None:
        self.directory = directory
        self.label = label
        self.whole = whole
        """Bytes of a file that are read at once at most."""
        self.uris = GitUris(label)
        self.objects = PureReader(directory)
        self.references = ReferenceReader(directory)
        self.histories = Histories(self.objects)
        self.lines = LineIndexes()


class GitAnswer:
    """What is known of one URI at one moment. The methods of subclasses may raise LookupError: it is not there."""

    def __init__(self, repository: Repository, references: References, address: GitAddress, uri: str) -> None:
        self.repository = repository
        self.objects = repository.objects
        self.uris = repository.uris
        self.references = references
        self.address = address
        self.uri = uri

    def revision(self, name: str) -> GitRevision:
        """The object that a revision means."""
        return resolve(name, self.references, self.objects)

    @property
    def fixed(self) -> bool:
        """Whether the URI can never mean anything else."""
        return False

    @property
    def modified(self) -> float | None:
        """When the content last changed, in seconds since 1970."""
        return None

    @property
    def version(self) -> str:
        """What tells this content from any other of the same URI."""
        raise NotImplementedError

    def resource(self) -> t.Resource:
        """What is known of it without reading it."""
        raise NotImplementedError

    def contents(self) -> list[t.ResourceContents]:
        """Its content, with its version in `_meta` of the first."""
        raise NotImplementedError

    def children(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """What is directly in it, where it is a directory."""
        raise ResourceNotFound(self.uri)

    def ttl_ms(self) -> int:
        """Milliseconds for which the answer may be used again."""
        return IMMUTABLE if self.fixed else min(MOVING, ttl_ms(self.modified))

    def text(self, text: str, **meta: object) -> t.ResourceContents:
        """A text as the first content."""
        return t.ResourceContents(uri=self.uri, mime_type=mime.TEXT, text=text, meta={VERSION: self.version, **meta})
