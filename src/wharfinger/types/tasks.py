"""Tasks of 2025-11-25: requests whose results are fetched later."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType, field

from .base import Meta, PaginatedResult, Result, WireStruct
from .requests import RequestParams

__all__ = [
    "CancelTaskRequestParams",
    "CancelTaskResult",
    "CreateTaskResult",
    "GetTaskPayloadRequestParams",
    "GetTaskRequestParams",
    "GetTaskResult",
    "ListTasksResult",
    "Task",
    "TaskStatus",
    "TaskStatusNotificationParams",
]

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""The status of a task; the last three are final."""


class Task(WireStruct, kw_only=True):
    """A task. Times are ISO 8601, `ttl` (None: no expiry) and `poll_interval` in milliseconds."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    poll_interval: int | UnsetType = UNSET
    status_message: str | UnsetType = UNSET


class CreateTaskResult(Result, kw_only=True):
    """Result of a request that became a task."""

    task: Task


class GetTaskRequestParams(RequestParams, kw_only=True):
    """Params of `tasks/get`."""

    task_id: str


class GetTaskPayloadRequestParams(RequestParams, kw_only=True):
    """Params of `tasks/result`, whose result is that of the original request."""

    task_id: str


class CancelTaskRequestParams(RequestParams, kw_only=True):
    """Params of `tasks/cancel`."""

    task_id: str


class GetTaskResult(Task, kw_only=True):
    """Result of `tasks/get`."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class CancelTaskResult(Task, kw_only=True):
    """Result of `tasks/cancel`."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ListTasksResult(PaginatedResult, kw_only=True):
    """Result of `tasks/list`."""

    tasks: list[Task]


class TaskStatusNotificationParams(Task, kw_only=True):
    """Params of `notifications/tasks/status`."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")
