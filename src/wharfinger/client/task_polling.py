"""Tool calls that become tasks: polls the task until it ends, and returns its result as the result of the call.

There are two task protocols, which have little more than the name in common:

- In 2025-11-25 the client decides: it sends `tools/call` with a `task`, because the tool's listing requires or allows
  it (`CALL_AS_TASK`). The response names the task, `tasks/get` returns its status, and `tasks/result` its result. If
  the task needs input, the server sends requests, and answers `tasks/result` only when the task is done.
- In the extension of 2026-07-28 the server decides: the result of a call may be a `TaskStarted`. The
  responses to `tasks/get` hold the server's questions, which `tasks/update` answers, and at the end the result.

When the caller gives up, the client cancels the task at the server.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.client.callbacks import CallbackQueue
from wharfinger.client.calls import Call, Next, progress_in
from wharfinger.client.connect import Negotiated
from wharfinger.client.input_handlers import InputHandlers
from wharfinger.client.multi_round import answer_in_time
from wharfinger.client.results import decode_result
from wharfinger.errors import ConnectionLost, InvalidResponse, RemoteError, RequestTimeout, remote_error
from wharfinger.protocol.client_peer import TASK_PROGRESS_PREFIX
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.methods import METHODS, Method
from wharfinger.protocol.request import open_result
from wharfinger.transports.background import BackgroundTasks
from wharfinger.types import tasks
from wharfinger.types.task_extension import TaskParams, TaskStarted, TaskUpdateParams

__all__ = ["CALL_AS_TASK", "TaskStep", "TaskTools"]

_ONLY_2025_11_25: dict[str, Any] = {"first": "2025-11-25", "last": "2025-11-25"}
CALL = METHODS["tools/call"]
CALL_AS_TASK = Method("tools/call", "client", t.CallToolRequestParams, Raw, **_ONLY_2025_11_25)
"""A call that is sent as a task (2025-11-25)."""
_STARTED = Method("tools/call", "client", t.CallToolRequestParams, tasks.CreateTaskResult, **_ONLY_2025_11_25)
GET = Method("tasks/get", "client", tasks.GetTaskRequestParams, tasks.GetTaskResult, **_ONLY_2025_11_25)
RESULT = Method("tasks/result", "client", tasks.GetTaskPayloadRequestParams, Raw, **_ONLY_2025_11_25)
CANCEL = Method("tasks/cancel", "client", tasks.CancelTaskRequestParams, tasks.CancelTaskResult, **_ONLY_2025_11_25)
"""The methods of 2025-11-25 are not in `METHODS`: the extension of 2026-07-28 has other params under the same names."""
EXTENSION_GET = METHODS["tasks/get"]
EXTENSION_UPDATE = METHODS["tasks/update"]
EXTENSION_CANCEL = METHODS["tasks/cancel"]

POLL_SECONDS, MIN_POLL_SECONDS, MAX_POLL_SECONDS = 1.0, 0.05, 60.0
"""The default interval of polls, and the bounds on the interval that a server asks for."""
CANCEL_SECONDS = 5.0
"""Timeout of `tasks/cancel` in seconds."""
MAX_TOOLS = 10_000
"""The maximum number of tools that are remembered. Other tools are not called as tasks."""
MAX_QUESTIONS = 1000
"""The maximum number of questions that one task may ask."""
NO_RESULT_CODE = -32603
"""The code of the error for a task that the server cancelled, or that failed without an error. The protocol defines
none."""

_decode_progress = msgspec.json.Decoder(t.ProgressNotificationParams).decode
_decode_status = msgspec.json.Decoder(tasks.TaskStatusNotificationParams).decode


class TaskTools:
    """The tools of a server that are called as tasks (2025-11-25)."""

    __slots__ = ("_optional", "as_tasks")

    def __init__(self, optional: bool) -> None:
        """With `optional`, tools that allow tasks are called as tasks too, not only tools that require them."""
        self._optional = optional
        self.as_tasks: dict[str, bool] = {}
        """Tools to call as tasks, by name; True if the tool requires a task."""

    def learn(self, tools: Iterable[t.Tool]) -> None:
        """Remember which of the listed tools to call as tasks."""
        for tool in tools:
            support = UNSET if isinstance(tool.execution, UnsetType) else tool.execution.task_support
            if support == "required" or (self._optional and support == "optional"):
                if len(self.as_tasks) < MAX_TOOLS or tool.name in self.as_tasks:
                    self.as_tasks[tool.name] = support == "required"
            else:
                self.as_tasks.pop(tool.name, None)

    @staticmethod
    def supported(agreed: Negotiated) -> bool:
        """Return whether the server accepts tool calls as tasks."""
        declared = agreed.capabilities.tasks
        if (
            not agreed.rules.client_makes_tasks
            or isinstance(declared, UnsetType)
            or isinstance(declared.requests, UnsetType)
        ):
            return False
        return not isinstance(declared.requests.tools, UnsetType) and declared.requests.tools.call is not UNSET


class TaskStep:
    """Polls the tasks that calls become, and returns their results."""

    def __init__(self, handlers: InputHandlers, extension: bool) -> None:
        """With `extension` the server may turn a call into a task (2026-07-28)."""
        self._handlers = handlers
        self._extension = extension
        self._background = BackgroundTasks()
        self._tokens = count(1)
        self._progress: dict[str, Callable[[Message], None]] = {}
        """Handlers of progress, by token."""
        self._changed: dict[str, asyncio.Event] = {}
        """Events that are set when the server reports that a task's status has changed, by task id."""

    def applies_to(self, row: Method) -> bool:
        """Return whether the method is `tools/call`, and calls may become tasks."""
        return row is CALL_AS_TASK or (self._extension and row is CALL)

    async def __call__(self, call: Call, next: Next) -> Any:
        if call.row is CALL_AS_TASK:
            return await self._call_as_task(call, next)
        result = await next(call)
        return await self._poll_extension(call, result, next) if type(result) is TaskStarted else result

    def notification_received(self, message: Message) -> None:
        """Handle a notification that belongs to no request: it may belong to a task."""
        if isinstance(message.params, UnsetType):
            return
        try:
            if message.method == "notifications/progress" and self._progress:
                on_progress = self._progress.get(str(_decode_progress(message.params).progress_token))
                if on_progress is not None:
                    on_progress(message)
            elif message.method == "notifications/tasks/status" and self._changed:
                changed = self._changed.get(_decode_status(message.params).task_id)
                if changed is not None:
                    changed.set()
        except msgspec.MsgspecError:
            return

    # Tasks of 2025-11-25.

    async def _call_as_task(self, call: Call, next: Next) -> t.CallToolResult:
        task_call = _to_task_call(call)
        reports = None if call.progress is None else CallbackQueue(call.progress)

        def on_progress(message: Message) -> None:
            if call.reset_on_progress:
                task_call.restart()
            progress = progress_in(message)
            if reports is not None and progress is not None:
                reports.put(*progress, size=len(memoryview(message.params)))  # type: ignore[arg-type]

        with self._progress_token(on_progress if reports is not None or call.reset_on_progress else None) as token:
            try:
                start_call = task_call.follow_up(
                    CALL_AS_TASK, _as_task(call.params, token, call.max_timeout), call.timeout
                )
                start_call.retry = call.retry
                started = _started_in(await next(start_call))
                if isinstance(started, t.CallToolResult):
                    result = started
                else:
                    result = await self._poll(task_call, started, call.timeout, next)
            except BaseException:
                if reports is not None:
                    reports.stop()
                raise
        if reports is not None:
            await reports.finished()
        return result

    async def _poll(self, task_call: Call, task: tasks.Task, seconds: float, next: Next) -> t.CallToolResult:
        """Poll a task as often as its server asks for, and fetch the result.

        Each request times out after `seconds`, except the one for the result of a task that needs input.

        Raises:
            InvalidResponse: a response about the task breaks the protocol.
            RemoteError: the task failed, or was cancelled at the server.
        """
        id, state = task.task_id, task
        changed = self._changed[id] = asyncio.Event()
        try:
            while state.status == "working":
                try:
                    async with asyncio.timeout(_poll_delay(state.poll_interval, task_call)):
                        await changed.wait()
                except TimeoutError:
                    pass
                changed.clear()  # before the request: a notification may come together with the response
                state = await next(task_call.follow_up(GET, tasks.GetTaskRequestParams(task_id=id), seconds))
                if state.task_id != id:
                    raise InvalidResponse("The server answered about a different task than the one in the request.")
            if state.status == "cancelled":
                raise RemoteError(NO_RESULT_CODE, "The server cancelled the task of this tools/call.")
            # If input is required, the server asks for it, and answers only when the task is done (2025-11-25, tasks).
            wait = math.inf if state.status == "input_required" else seconds
            raw = await next(task_call.follow_up(RESULT, tasks.GetTaskPayloadRequestParams(task_id=id), wait))
        except (asyncio.CancelledError, RequestTimeout, ConnectionLost):
            self._background.start(_cancel(next, CANCEL, tasks.CancelTaskRequestParams(task_id=id)))
            raise
        finally:
            self._changed.pop(id, None)
        result: t.CallToolResult = decode_result(CALL, raw)
        return result

    @contextmanager
    def _progress_token(self, on_progress: Callable[[Message], None] | None) -> Generator[str | UnsetType]:
        """Yield a progress token whose notifications go to `on_progress`; UNSET if `on_progress` is None.

        The token outlives the request: the server may report progress after it has answered the call with a task.
        """
        if on_progress is None:
            yield UNSET
            return
        token = f"{TASK_PROGRESS_PREFIX}{next(self._tokens)}"
        self._progress[token] = on_progress
        try:
            yield token
        finally:
            del self._progress[token]

    # Tasks of the extension.

    async def _poll_extension(self, call: Call, task: TaskStarted, next: Next) -> Any:
        """Poll a task as often as its server asks for, answer what it asks, and return its result.

        Raises:
            InvalidResponse: a response about the task breaks the protocol.
            RemoteError: the task failed, or was cancelled at the server.
        """
        task_call = call
        if not call.timeout_given:
            task_call = msgspec.structs.replace(call, timeout=math.inf, deadline=math.inf)
        answered: set[str] = set()
        state: Any = task
        try:
            while True:
                if state.status == "completed":
                    return _result_of(call, state)
                if state.status == "failed":
                    raise _failure_of(state)
                if state.status == "cancelled":
                    raise RemoteError(NO_RESULT_CODE, f"The server cancelled the task of this {call.method}.")
                if state.status == "input_required":
                    await self._answer(task_call, state, answered, call.timeout, next)
                # The result that started the task has no questions, so `tasks/get` asks for them at once.
                if state is not task or state.status == "working":
                    await asyncio.sleep(_poll_delay(state.poll_interval_ms, task_call))
                state = await next(task_call.follow_up(EXTENSION_GET, TaskParams(task_id=task.task_id), call.timeout))
                if state.task_id != task.task_id:
                    raise InvalidResponse("The server answered about a different task than the one in the request.")
        except (asyncio.CancelledError, RequestTimeout, ConnectionLost):
            self._background.start(_cancel(next, EXTENSION_CANCEL, TaskParams(task_id=task.task_id)))
            raise

    async def _answer(self, task_call: Call, state: Any, answered: set[str], seconds: float, next: Next) -> None:
        """Answer the questions that are new: a task uses each key for one question only."""
        requests = getattr(state, "input_requests", UNSET)
        new = (
            {}
            if isinstance(requests, UnsetType)
            else {key: each for key, each in requests.items() if key not in answered}
        )
        if not new:
            return
        answered.update(new)
        if len(answered) > MAX_QUESTIONS:
            raise InvalidResponse(f"The server's task asks more than {MAX_QUESTIONS} questions.")
        answers = await answer_in_time(self._handlers, new, task_call)
        params = TaskUpdateParams(task_id=state.task_id, input_responses=answers)
        await next(task_call.follow_up(EXTENSION_UPDATE, params, seconds))


def _to_task_call(call: Call) -> Call:
    """Return a copy of a call that is sent as a task. The client's default timeout does not apply to it."""
    return msgspec.structs.replace(call, timeout=call.timeout if call.timeout_given else math.inf, deadline=None)


async def _cancel(next: Next, row: Method, params: Any) -> None:
    await next(Call(row, params, CANCEL_SECONDS, CANCEL_SECONDS))


def _poll_delay(interval: int | UnsetType, task_call: Call) -> float:
    """Return the seconds before the next poll; the server's `interval` is in milliseconds."""
    delay = POLL_SECONDS if isinstance(interval, UnsetType) else interval / 1000
    delay = min(max(delay, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
    remaining = task_call.left(asyncio.get_running_loop().time())
    return delay if remaining is None else min(delay, remaining)


def _as_task(params: t.CallToolRequestParams, token: str | UnsetType, seconds: float) -> t.CallToolRequestParams:
    """Return the params that send a call as a task, whose result the server need not keep for longer than `seconds`."""
    meta = params.meta  # set by middleware
    if not isinstance(token, UnsetType):
        meta = msgspec.structs.replace(t.RequestMeta() if isinstance(meta, UnsetType) else meta, progress_token=token)
    ttl = UNSET if seconds == math.inf else max(1, int(seconds * 1000))
    return msgspec.structs.replace(params, task=t.TaskMetadata(ttl=ttl), meta=meta)


def _started_in(raw: Raw) -> tasks.Task | t.CallToolResult:
    """Return the task that a call became, or its result if the server answered at once."""
    try:
        started: tasks.CreateTaskResult = open_result(_STARTED, raw)
    except InvalidResponse as error:
        try:
            result: t.CallToolResult = decode_result(CALL, raw)
        except InvalidResponse:
            raise error from None
        return result
    return started.task


def _result_of(call: Call, state: Any) -> Any:
    raw = getattr(state, "result", UNSET)
    if isinstance(raw, UnsetType):
        raise InvalidResponse("The server reports a task as complete, but sends no result.")
    return decode_result(call.row, raw)


def _failure_of(state: Any) -> RemoteError:
    error = getattr(state, "error", UNSET)
    if isinstance(error, UnsetType):
        text = state.status_message
        return RemoteError(NO_RESULT_CODE, "The task failed." if isinstance(text, UnsetType) else text)
    return remote_error(error.code, error.message, None if error.data is UNSET else error.data)
