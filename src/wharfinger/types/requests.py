"""Params that many requests share, and those of `logging/setLevel`, cancellation and progress."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType, field

from .base import Cursor, Implementation, NotificationParams, ProgressToken, RequestId, WireStruct
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


class RelatedTaskMetadata(WireStruct, kw_only=True):
    """The task that a message belongs to (2025-11-25, tasks)."""

    task_id: str


class RequestMeta(WireStruct, kw_only=True):
    """`_meta` of a request, with the keys that the protocol defines; others are in the raw params only.

    `protocol_version` makes the request one of the stateless era, which also requires `client_capabilities`
    (2026-07-28, per-request metadata). The last three keys are those of W3C Trace Context and Baggage.
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


class RequestParams(WireStruct, kw_only=True):
    """The params that every request may have."""

    meta: RequestMeta | UnsetType = field(default=UNSET, name="_meta")


class PaginatedRequestParams(RequestParams, kw_only=True):
    """Params of a request for one page of a list; no cursor means the first."""

    cursor: Cursor | UnsetType = UNSET


class ResourceRequestParams(RequestParams, kw_only=True):
    """Params of a request about one resource."""

    uri: str


InputResponses = dict[str, Raw]
"""The client's answers, still encoded, by the keys of the input requests (2026-07-28, multi round-trip requests).

The input request with the same key decides the type of an answer.
"""


class InputResponseRequestParams(RequestParams, kw_only=True):
    """Params of a request that may be sent again with the input that its result asked for.

    See 2026-07-28, multi round-trip requests.
    """

    input_responses: InputResponses | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class TaskMetadata(WireStruct, kw_only=True):
    """Makes a request a task; `ttl` is how long to keep the task, in milliseconds (2025-11-25)."""

    ttl: int | UnsetType = UNSET


class TaskAugmentedRequestParams(RequestParams, kw_only=True):
    """Params of a request that can be a task (2025-11-25)."""

    task: TaskMetadata | UnsetType = UNSET


class SetLevelRequestParams(RequestParams, kw_only=True):
    """Params of `logging/setLevel`: send messages of this level and above (handshake era)."""

    level: LoggingLevel


class CancelledNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/cancelled`; `request_id` has the JSON type of the request's id."""

    request_id: RequestId | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ProgressNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/progress`; `progress` increases with each notification."""

    progress_token: ProgressToken
    progress: int | float
    total: int | float | UnsetType = UNSET
    message: str | UnsetType = UNSET
