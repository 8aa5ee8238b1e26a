"""One task that runs in this process: its status, and the questions of its handler. Does no I/O."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.errors import ProtocolError
from wharfinger.protocol.jsonrpc import Message, encode
from wharfinger.protocol.request import Request
from wharfinger.types.task_extension import TaskStarted, TaskState

__all__ = ["RunningTask", "TaskQuestion"]


class TaskQuestion:
    """One of a task's `inputRequests`, and the future of its answer."""

    __slots__ = ("answer", "request")

    def __init__(self, method: str, params: Any) -> None:
        self.request: dict[str, Any] = {"method": method}
        if params is not UNSET:
            self.request["params"] = Raw(encode(params))
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()


class RunningTask:
    """A running task, and the `Channel` of its request: questions wait here, and nothing else can be sent.

    `ttl` is in seconds from now, None means no limit; the task fails if it takes longer. `poll` is the time in seconds
    after which clients should get its state again. `changed` is called with the task after each change that clients can
    see while it runs, but not when it ends.
    """

    multiplexed = False

    def __init__(
        self,
        id: str,
        key: str,
        owner: str,
        *,
        ttl: float | None,
        poll: float,
        changed: Callable[[RunningTask], None],
    ) -> None:
        self.id = id
        self.key = key
        """Its key in the store."""
        self.tool = ""
        """The name of the tool as its caller knows it, by which the policy decides."""
        self.call_name = ""
        """The method and name that were called, for the log."""
        self.owner = owner
        """The owner whose share of running tasks this task uses."""
        self.created = self.updated = time.time()
        self.ttl_ms = None if ttl is None else max(1, round(ttl * 1000))
        self.poll_ms = max(1, round(poll * 1000))
        self.final_status: t.TaskStatus | None = None
        """The status with which the task ended; None while it runs."""
        self.status_message = ""
        self.questions: dict[str, TaskQuestion] = {}
        """The questions without an answer yet. No key is used twice."""
        self.runner: asyncio.Task[Any] | None = None
        self.stop_reason = ""
        """Why `stop` was called: `cancel`, `late`, `end` or `lost`; empty if it was not called."""
        self.timer: asyncio.TimerHandle | None = None
        """The timer that stops the task when its `ttl` is over."""
        self.notify_timer: asyncio.TimerHandle | None = None
        """The timer that notifies listeners of the latest changes."""
        self.save_lock = asyncio.Lock()
        self.stored: bytes | None = None
        """Its value in the store; None before the first write."""
        self.ended_by_other = False
        """Whether another process has marked it as failed in the store, because this one wrote no heartbeat in time."""
        self._question_count = 0
        self._changed = changed
        self._result: Raw | UnsetType = UNSET
        self._error: t.ErrorObject | UnsetType = UNSET

    # -- the channel of its request

    def send(self, request: Request, message: bytes) -> bool:
        """Return False: the extension has no progress or log messages for tasks, only notifications of their status."""
        return False

    async def ask(self, request: Request, method: str, params: Any) -> Message:
        """Ask the client, and wait until `tasks/update` brings the answer."""
        self._question_count += 1
        key = f"question-{self._question_count}"
        question = self.questions[key] = TaskQuestion(method, params)
        self._touch()
        try:
            return await question.answer
        finally:
            if self.questions.pop(key, None) is not None:  # the handler was cancelled
                self._touch()

    def detach(self, request: Request, retry_ms: int) -> bool:
        """Return False: a task has no connection that belongs to it alone."""
        return False

    def answer(self, responses: Mapping[str, Raw]) -> None:
        """Pass the answers of `tasks/update` to the handler. Answers to unknown or answered questions are ignored."""
        waiting = [key for key in responses if key in self.questions]
        for key in waiting:
            future = self.questions.pop(key).answer
            if not future.done():
                future.set_result(Message("2.0", result=responses[key]))
        if waiting:
            self._touch()

    # -- status

    @property
    def status(self) -> t.TaskStatus:
        """The status for clients."""
        return self.final_status or ("input_required" if self.questions else "working")

    @property
    def expires(self) -> float | None:
        """When the task may be deleted, in seconds since 1970; None means never."""
        return None if self.ttl_ms is None else self.created + self.ttl_ms / 1000

    def start_result(self) -> TaskStarted:
        """Return the result of the call that became this task."""
        return TaskStarted(result_type="task", status=self.status, **self._common_fields())

    def state(self) -> bytes:
        """Return the result of `tasks/get`, encoded."""
        requests: Any = {key: question.request for key, question in self.questions.items()}
        final = self.final_status is not None
        return encode(
            TaskState(
                status=self.status,
                input_requests=requests if requests and not final else UNSET,
                result=self._result,
                error=self._error,
                **self._common_fields(),
            )
        )

    def _common_fields(self) -> dict[str, Any]:
        return {
            "task_id": self.id,
            "created_at": format_time(self.created),
            "last_updated_at": format_time(self.updated),
            "ttl_ms": self.ttl_ms,
            "poll_interval_ms": self.poll_ms,
            "status_message": self.status_message or UNSET,
        }

    def set_message(self, message: str) -> None:
        """Set the `statusMessage` that clients see."""
        message = message.encode(errors="replace").decode()  # a lone surrogate would make every later response fail
        if self.final_status is None and message != self.status_message:
            self.status_message = message
            self._touch()

    def complete(self, result: Raw) -> None:
        """End the task with the result of its call, which may have `isError`."""
        self._end("completed", "")
        self._result = result

    def fail(self, error: ProtocolError) -> None:
        """End the task with the error that its call would have returned."""
        self._end("failed", error.message)
        data = UNSET if error.data is None else error.data
        self._error = t.ErrorObject(code=error.code, message=error.message, data=data)

    def end_cancelled(self) -> None:
        """End the task because its client cancelled it."""
        self._end("cancelled", "")

    def _end(self, status: t.TaskStatus, message: str) -> None:
        self.final_status, self.status_message = status, message
        self.updated = time.time()
        for handle in (self.timer, self.notify_timer):
            if handle is not None:
                handle.cancel()

    def _touch(self) -> None:
        if self.final_status is None:
            self.updated = time.time()
            self._changed(self)

    def stop(self, reason: str) -> None:
        """Cancel the handler, which may still return a result. Does nothing if the task has ended."""
        if self.final_status is None:
            self.stop_reason = self.stop_reason or reason
            if self.runner is not None:
                self.runner.cancel()


def format_time(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
