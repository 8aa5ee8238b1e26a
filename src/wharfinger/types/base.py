"""The types that all other parts of the protocol use: ids, names, icons, annotations, results."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

__all__ = [
    "META_RELATED_TASK",
    "META_SERVER_INFO",
    "META_SUBSCRIPTION_ID",
    "Annotations",
    "CacheScope",
    "CacheableResult",
    "Cursor",
    "EmptyResult",
    "ErrorObject",
    "Icon",
    "Implementation",
    "JSONObject",
    "JSONValue",
    "Meta",
    "NotificationParams",
    "PaginatedResult",
    "ProgressToken",
    "RequestId",
    "Result",
    "Role",
    "WireStruct",
    "or_unset",
]

T = TypeVar("T")

RequestId = str | int
"""The id of a JSON-RPC request: never null, never a fraction, and `1` is not `"1"`."""

ProgressToken = str | int
"""Names the request that a progress notification is about. The sender of the request chooses it."""

Cursor = str
"""An opaque position in a list; the empty string is a valid cursor."""

Role = Literal["user", "assistant"]
"""Who wrote a content block, or for whom it is."""

CacheScope = Literal["public", "private"]
"""Whether a cached result may be given to other callers."""

JSONValue = Any
"""Any JSON value: None, bool, int, float, str, list, and dict with string keys."""

JSONObject = dict[str, Any]
"""A JSON object whose members the protocol does not define."""

Meta = dict[str, Any]
"""`_meta` of anything but a request, unchanged; the keys that the protocol defines are the constants `META_…`."""

META_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
"""On a notification: the id of its `subscriptions/listen` request, with the same JSON type (2026-07-28)."""

META_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
"""On a result: the `Implementation` that made it (2026-07-28)."""

META_RELATED_TASK = "io.modelcontextprotocol/related-task"
"""On anything sent for a task: `{"taskId": …}` (2025-11-25, tasks)."""


class WireStruct(Struct, kw_only=True, rename="camel", gc=False, repr_omit_defaults=True):
    """Base class of all JSON objects of the protocol. UNSET members are omitted, unknown ones are ignored.

    The garbage collector does not track them: JSON has no cycles.
    """


def or_unset(value: T | None) -> T | UnsetType:
    """Return `value`, or UNSET if it is None, so that an optional member is left out."""
    return UNSET if value is None else value


class Icon(WireStruct, kw_only=True):
    """An image for a user interface: `src` is an https or data URI, `sizes` are strings such as `48x48` or `any`."""

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Literal["light", "dark"] | UnsetType = UNSET


class Annotations(WireStruct, kw_only=True):
    """Hints for clients: audience, priority (0 optional, 1 required), last change (ISO 8601)."""

    audience: list[Role] | UnsetType = UNSET
    priority: float | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET


class Implementation(WireStruct, kw_only=True):
    """Name and version of a client or server. It is the peer's own claim: base no decision on it."""

    name: str
    version: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    website_url: str | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET


class ErrorObject(WireStruct, kw_only=True):
    """The member `error` of a response (JSON-RPC 2.0, §5.1); `data` may be any JSON value, null included."""

    code: int
    message: str
    data: JSONValue = UNSET


class NotificationParams(WireStruct, kw_only=True):
    """The params that every notification may have."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class Result(WireStruct, kw_only=True):
    """The members of every result; `result_type` belongs to the stateless era, and is `complete` if it is absent."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")
    result_type: str | UnsetType = UNSET


EmptyResult = Result
"""A result without members of its own."""


class CacheableResult(Result, kw_only=True):
    """A result that may be cached for `ttl_ms` milliseconds (2026-07-28, caching); a negative time counts as 0."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: CacheScope | UnsetType = UNSET


class PaginatedResult(CacheableResult, kw_only=True):
    """One page of a list; there is another page if and only if `next_cursor` is set."""

    next_cursor: Cursor | UnsetType = UNSET
