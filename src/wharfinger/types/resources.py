"""Resources: lists, contents and change notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from msgspec import UNSET, UnsetType, field

from .base import Annotations, CacheableResult, Icon, Meta, NotificationParams, PaginatedResult, WireStruct
from .requests import InputResponseRequestParams, ResourceRequestParams

__all__ = [
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "Resource",
    "ResourceContents",
    "ResourceTemplate",
    "ResourceUpdatedNotificationParams",
    "StoredBlob",
    "StoredBytes",
    "SubscribeRequestParams",
    "UnsubscribeRequestParams",
    "check_contents",
    "find_stored_blob",
    "stored_blob",
]


class Resource(WireStruct, kw_only=True):
    """A resource that can be read by its URI; `size` is in bytes, before any encoding."""

    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ResourceTemplate(WireStruct, kw_only=True):
    """Resources whose URIs follow a template (RFC 6570); `mime_type` is set only if all of them have it."""

    uri_template: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ResourceContents(WireStruct, kw_only=True):
    """The contents of a resource: exactly one of `text` and `blob` (see `check_contents`).

    In the protocol's schema these are `TextResourceContents` and `BlobResourceContents`. `blob` has the raw bytes,
    which are base64 only on the wire; it is the last member, so that a long one can be sent in chunks.
    """

    uri: str
    mime_type: str | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")
    text: str | UnsetType = UNSET
    blob: bytes | UnsetType = UNSET


def check_contents(contents: ResourceContents) -> None:
    """Check that contents have exactly one of `text` and `blob`.

    Raises:
        ValueError: they have both or neither.
    """
    if (contents.text is UNSET) == (contents.blob is UNSET):
        raise ValueError(f"Contents of {contents.uri!r} must have either text or blob.")


class StoredBytes(Protocol):
    """Bytes with random access, such as an open file."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer only at the end. Blocks; may raise OSError."""
        ...


class StoredBlob:
    """A blob that is read while it is sent, instead of being held in memory; `len()` is its size in bytes.

    A source returns it instead of bytes (see `stored_blob`). The server sets `run`, which calls a blocking function in
    a thread. An open file is closed when the last reference to it is gone, whether it was sent or not.
    """

    __slots__ = ("content", "run", "size")

    def __init__(self, content: StoredBytes) -> None:
        self.content = content
        self.size = content.size
        self.run: Callable[..., Awaitable[Any]] | None = None

    def __len__(self) -> int:
        return self.size

    def read(self, offset: int, length: int) -> bytes:
        """Return a part of the blob. Blocks.

        Raises:
            OSError: it cannot be read, or has become shorter.
        """
        length = min(length, self.size - offset)
        data = self.content.read(offset, length)
        if len(data) != length:
            raise OSError(f"it became shorter while it was read: {offset + len(data)} of {self.size} bytes")
        return data


def stored_blob(content: StoredBytes) -> bytes:
    """Return a value for `ResourceContents.blob` that is read while it is sent, for a blob too large for memory.

    Its declared type is bytes because only the server handles it: contexts, middleware and clients get bytes.
    """
    return cast("bytes", StoredBlob(content))


def find_stored_blob(contents: ResourceContents) -> StoredBlob | None:
    """Return the stored blob of these contents; None if they have no blob, or one in memory."""
    blob: object = contents.blob
    return blob if isinstance(blob, StoredBlob) else None


class ListResourcesResult(PaginatedResult, kw_only=True):
    """Result of `resources/list`."""

    resources: list[Resource]


class ListResourceTemplatesResult(PaginatedResult, kw_only=True):
    """Result of `resources/templates/list`."""

    resource_templates: list[ResourceTemplate]


class ReadResourceRequestParams(InputResponseRequestParams, kw_only=True):
    """Params of `resources/read`."""

    uri: str


class ReadResourceResult(CacheableResult, kw_only=True):
    """Result of `resources/read`: one or more contents, such as a directory's children, each with its own URI."""

    contents: list[ResourceContents]


class SubscribeRequestParams(ResourceRequestParams, kw_only=True):
    """Params of `resources/subscribe` (handshake era)."""


class UnsubscribeRequestParams(ResourceRequestParams, kw_only=True):
    """Params of `resources/unsubscribe` (handshake era)."""


class ResourceUpdatedNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/resources/updated`: the resource has changed."""

    uri: str
