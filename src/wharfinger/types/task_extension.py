"""The extension `io.modelcontextprotocol/tasks` of 2026-07-28: calls that are answered later.

The tasks of 2025-11-25, in the module `tasks`, have other names and messages.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType, field

from .base import ErrorObject, Meta, Result, WireStruct
from .input import InputRequests
from .requests import InputResponses, RequestParams
from .tasks import TaskStatus

__all__ = [
    "EXTENSION",
    "TaskNotificationParams",
    "TaskParams",
    "TaskStarted",
    "TaskState",
    "TaskUpdateParams",
]

EXTENSION = "io.modelcontextprotocol/tasks"
"""The identifier of the extension. Both sides declare it in `capabilities.extensions`, a client in every request."""


class TaskState(WireStruct, kw_only=True):
    """A task with its full state (`DetailedTask` in the schema); also the result of `tasks/get`.

    Times are ISO 8601. `ttl_ms` counts from `created_at` (None: no expiry); both durations are in milliseconds and may
    change. `input_requests` is set if input is required, `result` if the task completed, `error` if it failed.
    """

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | UnsetType = UNSET
    status_message: str | UnsetType = UNSET
    input_requests: InputRequests | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET


class TaskStarted(Result, kw_only=True):
    """Result of a call that became a task (`CreateTaskResult` in the schema); `result_type` is `task`."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | UnsetType = UNSET
    status_message: str | UnsetType = UNSET


class TaskParams(RequestParams, kw_only=True):
    """Params of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskParams, kw_only=True):
    """Params of `tasks/update`: answers by the keys of the task's `input_requests`."""

    input_responses: InputResponses


class TaskNotificationParams(TaskState, kw_only=True):
    """Params of `notifications/tasks`: the same as the result of `tasks/get`."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")
