"""What the params of many requests have in common: `_meta`, cursors, answers to questions, cancellation, progress."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType, field

from .base import Cursor, Implementation, NotificationParams, ProgressToken, RequestId, Wire
from .capabilities import ClientCapabilities
from .logging import LoggingLevel

__all__ = [
    "CancelledNotificationParams",
    "InputResponseRequestParams",
    "InputResponses",
    "PaginatedRequestParams",
    "ProgressNotificationParams",
    "RelatedTaskMetadata",
    "RequestMeta",
    "RequestParams",
    "ResourceRequestParams",
    "SetLevelRequestParams",
    "TaskAugmentedRequestParams",
    "TaskMetadata",
]


class RelatedTaskMetadata(Wire, kw_only=True):
    """Names the task for which something is sent (2025-11-25, tasks)."""

    task_id: str


class RequestMeta(Wire, kw_only=True):
    """`_meta` of a request, as far as the protocol names its keys; others are in the raw params only.

    `protocol_version` makes the request one of the stateless era, which then wants `client_capabilities` too
    (2026-07-28, per-request metadata). The last three are those of W3C Trace Context and Baggage.
    """

    progress_token: ProgressToken | UnsetType = UNSET
    protocol_version: str | UnsetType = field(default=UNSET, name="io.modelcontextprotocol/protocolVersion")
    client_info: Implementation | UnsetType = field(default=UNSET, name="io.modelcontextprotocol/clientInfo")
    client_capabilities: ClientCapabilities | UnsetType = field(
        default=UNSET, name="io.modelcontextprotocol/clientCapabilities"
    )
    log_level: LoggingLevel | UnsetType = field(default=UNSET, name="io.modelcontextprotocol/logLevel")
    related_task: RelatedTaskMetadata | UnsetType = field(default=UNSET, name="io.modelcontextprotocol/related-task")
    traceparent: str | UnsetType = UNSET
    tracestate: str | UnsetType = UNSET
    baggage: str | UnsetType = UNSET


class RequestParams(Wire, kw_only=True):
    """Params of a request that says nothing but its method."""

    meta: RequestMeta | UnsetType = field(default=UNSET, name="_meta")


class PaginatedRequestParams(RequestParams, kw_only=True):
    """Params of a request for one page of a list; no cursor means the first."""

    cursor: Cursor | UnsetType = UNSET


class ResourceRequestParams(RequestParams, kw_only=True):
    """Params of a request about one resource."""

    uri: str


InputResponses = dict[str, Raw]
"""Answers by the keys of their questions; what an answer is shaped like, its question knows (2026-07-28, MRTR)."""


class InputResponseRequestParams(RequestParams, kw_only=True):
    """Params of a request that may be sent again, with answers to what its result asked (2026-07-28, MRTR)."""

    input_responses: InputResponses | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class TaskMetadata(Wire, kw_only=True):
    """Asks that a request be made a task; `ttl` is how long it should be kept, in milliseconds (2025-11-25)."""

    ttl: int | UnsetType = UNSET


class TaskAugmentedRequestParams(RequestParams, kw_only=True):
    """Params of a request that may be made a task (2025-11-25)."""

    task: TaskMetadata | UnsetType = UNSET


class SetLevelRequestParams(RequestParams, kw_only=True):
    """Params of `logging/setLevel`: send this level and worse ones (handshake era)."""

    level: LoggingLevel


class CancelledNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/cancelled`; `request_id` has the JSON type that the request's id had."""

    request_id: RequestId | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ProgressNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/progress`: how far a request is, always more than before."""

    progress_token: ProgressToken
    progress: int | float
    total: int | float | UnsetType = UNSET
    message: str | UnsetType = UNSET
