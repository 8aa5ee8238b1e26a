"""Resources: what there is, what is in it, and that it changed; reads nothing."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from .base import Annotations, CacheableResult, Icon, Meta, NotificationParams, PaginatedResult, Wire
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
    "SubscribeRequestParams",
    "UnsubscribeRequestParams",
    "check_contents",
]


class Resource(Wire, kw_only=True):
    """Something that can be read by its URI; `size` is in bytes, before any encoding."""

    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ResourceTemplate(Wire, kw_only=True):
    """Resources whose URIs follow a template (RFC 6570); `mime_type` only if all of them have it."""

    uri_template: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ResourceContents(Wire, kw_only=True):
    """What is in a resource: exactly one of `text` and `blob` (see `check_contents`).

    The schemas' `TextResourceContents` and `BlobResourceContents`. `blob` holds the bytes themselves and is base64 on
    the wire only; it is the last member, so that a long one can be written piece by piece.
    """

    uri: str
    mime_type: str | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")
    text: str | UnsetType = UNSET
    blob: bytes | UnsetType = UNSET


def check_contents(contents: ResourceContents) -> None:
    """Accept contents that have exactly one of `text` and `blob`.

    Raises:
        ValueError: they have both or neither.
    """
    if (contents.text is UNSET) == (contents.blob is UNSET):
        raise ValueError(f"Contents of {contents.uri!r} must have either text or blob.")


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
    """Result of `resources/read`: one part, or several, such as a directory's children, each with its own URI."""

    contents: list[ResourceContents]


class SubscribeRequestParams(ResourceRequestParams, kw_only=True):
    """Params of `resources/subscribe` (handshake era)."""


class UnsubscribeRequestParams(ResourceRequestParams, kw_only=True):
    """Params of `resources/unsubscribe` (handshake era)."""


class ResourceUpdatedNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/resources/updated`: read it again if it still matters."""

    uri: str
